//! Foo: a Deployment whose name the spec has.

use serde_json::{Value, json};

use super::{Family, NAME, mutants, tests};
use crate::sweep::cluster::{Cluster, NAMESPACE};
use crate::sweep::subject::scenarios;

/// The name of the Deployment after a change.
const OTHER: &str = "site";

static FOO: Family = Family {
    name: "foo",
    api_version: "samplecontroller.k8s.io/v1alpha1",
    object_kind: "Foo",
    plural: "foos",
    watched: &["foos", "deployments"],
    child_api_version: "apps/v1",
    child_kind: "Deployment",
    children: "deployments",
    child: "web",
    spec: || json!({"deploymentName": "web", "replicas": 2}),
    scenarios: SCENARIOS,
    is_done,
    rare: &[
        "Refused",
        "ErrResourceExists",
        "Terminating",
        "Invalid",
        "NoDeployment",
        "Contested",
    ],
    mutants: mutants::OF_FOO,
};

fn is_done(object: &Value) -> bool {
    object["status"]["availableReplicas"] == object["spec"]["replicas"]
}

/// Everything is as the spec says.
fn is_up(cluster: &Cluster) -> bool {
    FOO.owns_child(cluster) && cluster.condition("Available") == "ReplicasAvailable"
}

async fn up(cluster: &Cluster) {
    FOO.create(cluster);
    cluster.until(is_up).await;
}

scenarios! {
    created = |cluster| {
        FOO.create(cluster);
    };
    two_operators(TwoOperators) = |cluster| {
        up(cluster).await;
        FOO.change(cluster, &json!({"replicas": 3}));
    };
    handed_over = |cluster| {
        FOO.create(cluster);
        cluster.until(|c| FOO.owns_child(c)).await;
        cluster.hand_over().await;
    };
    scaled_and_back = |cluster| {
        up(cluster).await;
        FOO.change(cluster, &json!({"replicas": 3}));
        cluster.until(|c| c.field("/status/availableReplicas") == Some(json!(3))).await;
        FOO.change(cluster, &json!({"replicas": 2}));
    };
    renamed = |cluster| {
        up(cluster).await;
        FOO.change(cluster, &json!({"deploymentName": OTHER}));
        cluster.until(|c| c.get("deployments", "web").is_none()).await;
    };
    renamed_and_back = |cluster| {
        up(cluster).await;
        FOO.change(cluster, &json!({"deploymentName": OTHER}));
        cluster.until(|c| c.get("deployments", OTHER).is_some()).await;
        FOO.change(cluster, &json!({"deploymentName": "web"}));
        cluster.until(|c| c.get("deployments", OTHER).is_none()).await;
    };
    renamed_to_a_name_that_is_taken = |cluster| {
        up(cluster).await;
        cluster.create("deployments", FOO.foreign(OTHER));
        FOO.change(cluster, &json!({"deploymentName": OTHER}));
        cluster
            .until(|c| FOO.owns(c, OTHER) || c.condition("Degraded") == "ErrResourceExists")
            .await;
        FOO.change(cluster, &json!({"deploymentName": "web"}));
        cluster.delete("deployments", OTHER);
    };
    retirement_refused = |cluster| {
        up(cluster).await;
        cluster.admission().refuse(|review| {
            review.verb == simulated_apiserver::Verb::Delete && review.resource == "deployments"
        });
        FOO.change(cluster, &json!({"deploymentName": OTHER}));
        cluster.until(|c| c.condition("Degraded") == "Refused").await;
        cluster.admission().allow_everything();
        cluster.until(|c| c.get("deployments", "web").is_none()).await;
    };
    child_deleted = |cluster| {
        up(cluster).await;
        cluster.delete("deployments", "web");
    };
    child_held_by_a_finalizer = |cluster| {
        up(cluster).await;
        let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        cluster.patch("deployments", "web", &hold);
        cluster.delete("deployments", "web");
        cluster.until(|c| c.condition("Degraded") == "Terminating").await;
        cluster.patch("deployments", "web", &json!({"metadata": {"finalizers": null}}));
        cluster.until(is_up).await;
    };
    child_edited = |cluster| {
        up(cluster).await;
        cluster.patch("deployments", "web", &json!({"spec": {"replicas": 5}}));
        cluster.until(|c| c.get("deployments", "web").is_some_and(|web| web["spec"]["replicas"] == 2)).await;
    };
    child_edited_again_and_again = |cluster| {
        up(cluster).await;
        for _ in 0..12 {
            cluster.patch("deployments", "web", &json!({"spec": {"replicas": 5}}));
            cluster.until(|c| c.get("deployments", "web").is_none_or(|web| web["spec"]["replicas"] == 2)).await;
        }
        cluster.until(|c| c.condition("Degraded") == "Contested").await;
        cluster.until(|c| c.condition("Degraded") == "AsDesired").await;
    };
    child_without_labels = |cluster| {
        up(cluster).await;
        cluster.patch("deployments", "web", &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}));
        cluster.until(|c| {
            let web = c.get("deployments", "web").unwrap_or_default();
            web["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "my-operator"
        }).await;
    };
    child_without_owner = |cluster| {
        up(cluster).await;
        cluster.patch("deployments", "web", &json!({"metadata": {"ownerReferences": null}}));
        cluster.until(|c| FOO.owns_child(c)).await;
    };
    foreign_child = |cluster| {
        cluster.create("deployments", FOO.foreign("web"));
        FOO.create(cluster);
        FOO.give_name_back(cluster, "ErrResourceExists").await;
    };
    refused = |cluster| {
        cluster.admission().refuse(|review| review.resource == "deployments");
        FOO.create(cluster);
        cluster.until(|c| c.condition("Degraded") == "Refused").await;
        cluster.admission().allow_everything();
    };
    change_refused = |cluster| {
        up(cluster).await;
        cluster.admission().refuse(|review| review.resource == "deployments");
        FOO.change(cluster, &json!({"replicas": 3}));
        cluster.until(|c| c.condition("Degraded") == "Refused").await;
        cluster.admission().allow_everything();
    };
    invalid_for_a_while = |cluster| {
        up(cluster).await;
        FOO.change(cluster, &json!({"replicas": -1}));
        cluster.until(|c| c.condition("Accepted") == "Invalid").await;
        FOO.change(cluster, &json!({"replicas": 3}));
        cluster.until(is_up).await;
    };
    unreadable_status = |cluster| {
        up(cluster).await;
        let strange = json!({"status": {"availableReplicas": "many"}});
        let _ = cluster.server.direct().patch_status("foos", NAMESPACE, NAME, &strange);
        cluster.until(|c| c.field("/status/availableReplicas") == Some(json!(2))).await;
    };
    deleted = |cluster| {
        up(cluster).await;
        cluster.delete("foos", NAME);
        cluster.until(|c| c.get("deployments", "web").is_none()).await;
    };
    recreated_after_background_deletion = |cluster| {
        up(cluster).await;
        FOO.recreate(cluster, "Background").await;
    };
    recreated_after_foreground_deletion = |cluster| {
        up(cluster).await;
        FOO.recreate(cluster, "Foreground").await;
    };
    recreated_after_orphaning_deletion = |cluster| {
        up(cluster).await;
        FOO.recreate(cluster, "Orphan").await;
        cluster.until(|c| FOO.owns_child(c)).await;
    };
}

tests!(FOO, {"replicas": 3}, [
    ("/deploymentName", OTHER),
    ("/replicas", 3),
    ("/replicas", 1),
]);
