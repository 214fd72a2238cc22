//! Memcached: a Deployment of the same name, whose pods the status names.

use serde_json::{Value, json};

use super::{Family, NAME, delete_a_pod, mutants, tests};
use crate::sweep::cluster::Cluster;
use crate::sweep::subject::scenarios;

static MEMCACHED: Family = Family {
    name: "memcached",
    api_version: "cache.example.com/v1alpha1",
    object_kind: "Memcached",
    plural: "memcacheds",
    watched: &["memcacheds", "deployments", "pods"],
    child_api_version: "apps/v1",
    child_kind: "Deployment",
    children: "deployments",
    child: NAME,
    spec: || json!({"size": 2, "image": "memcached:1.6"}),
    scenarios: SCENARIOS,
    is_done,
    rare: &["Refused", "DeploymentExists", "Invalid"],
    mutants: mutants::OF_ANY,
};

fn is_done(memcached: &Value) -> bool {
    let (size, status) = (&memcached["spec"]["size"], &memcached["status"]);
    let named = status["nodes"].as_array().map(Vec::len);
    status["availableReplicas"] == *size
        && status["updatedReplicas"] == *size
        && status["replicas"] == *size
        && named == size.as_u64().and_then(|size| usize::try_from(size).ok())
}

fn is_up(cluster: &Cluster) -> bool {
    let memcached = cluster.get("memcacheds", NAME);
    MEMCACHED.owns_child(cluster) && memcached.is_some_and(|memcached| is_done(&memcached))
}

async fn up(cluster: &Cluster) {
    MEMCACHED.create(cluster);
    cluster.until(is_up).await;
}

scenarios! {
    created = |cluster| {
        MEMCACHED.create(cluster);
    };
    two_operators(TwoOperators) = |cluster| {
        up(cluster).await;
        MEMCACHED.change(cluster, &json!({"memory": 128}));
    };
    handed_over = |cluster| {
        MEMCACHED.create(cluster);
        cluster.until(|c| MEMCACHED.owns_child(c)).await;
        cluster.hand_over().await;
    };
    scaled_and_back = |cluster| {
        up(cluster).await;
        MEMCACHED.change(cluster, &json!({"size": 3}));
        cluster.until(is_up).await;
        MEMCACHED.change(cluster, &json!({"size": 2}));
    };
    scaled_to_nothing_and_back = |cluster| {
        up(cluster).await;
        MEMCACHED.change(cluster, &json!({"size": 0}));
        cluster.until(is_up).await;
        MEMCACHED.change(cluster, &json!({"size": 2}));
    };
    image_and_memory_changed_and_back = |cluster| {
        up(cluster).await;
        MEMCACHED.change(cluster, &json!({"image": "memcached:1.5", "memory": 128}));
        cluster.until(is_up).await;
        MEMCACHED.change(cluster, &json!({"image": "memcached:1.6", "memory": null}));
    };
    child_deleted = |cluster| {
        up(cluster).await;
        cluster.delete("deployments", NAME);
    };
    child_edited = |cluster| {
        up(cluster).await;
        cluster.patch("deployments", NAME, &json!({"spec": {"replicas": 5}}));
        cluster.until(|c| c.get("deployments", NAME).is_some_and(|it| it["spec"]["replicas"] == 2)).await;
    };
    child_without_owner = |cluster| {
        up(cluster).await;
        cluster.patch("deployments", NAME, &json!({"metadata": {"ownerReferences": null}}));
        cluster.until(|c| MEMCACHED.owns_child(c)).await;
    };
    pod_deleted = |cluster| {
        up(cluster).await;
        delete_a_pod(cluster);
    };
    foreign_child = |cluster| {
        cluster.create("deployments", MEMCACHED.foreign(NAME));
        MEMCACHED.create(cluster);
        MEMCACHED.give_name_back(cluster, "DeploymentExists").await;
    };
    refused = |cluster| {
        cluster.admission().refuse(|review| review.resource == "deployments");
        MEMCACHED.create(cluster);
        cluster.until(|c| c.condition("Degraded") == "Refused").await;
        cluster.admission().allow_everything();
    };
    invalid_for_a_while = |cluster| {
        up(cluster).await;
        MEMCACHED.change(cluster, &json!({"size": -1}));
        cluster.until(|c| c.condition("Accepted") == "Invalid").await;
        MEMCACHED.change(cluster, &json!({"size": 3}));
        cluster.until(is_up).await;
    };
    deleted = |cluster| {
        up(cluster).await;
        cluster.delete("memcacheds", NAME);
        cluster.until(|c| c.get("deployments", NAME).is_none()).await;
    };
    recreated_after_background_deletion = |cluster| {
        up(cluster).await;
        MEMCACHED.recreate(cluster, "Background").await;
    };
    recreated_after_foreground_deletion = |cluster| {
        up(cluster).await;
        MEMCACHED.recreate(cluster, "Foreground").await;
    };
    recreated_after_orphaning_deletion = |cluster| {
        up(cluster).await;
        MEMCACHED.recreate(cluster, "Orphan").await;
        cluster.until(|c| MEMCACHED.owns_child(c)).await;
    };
}

tests!(MEMCACHED, {"size": 3}, [
    ("/size", 3),
    ("/size", 0),
    ("/image", "memcached:1.5"),
    ("/image", null),
    ("/memory", 128),
]);
