//! `FooBar`: a Job for each generation, which starts at most once.

use serde_json::{Value, json};
use simulated_apiserver::Verb;

use super::{Family, NAME, delete_a_pod, mutants, tests};
use crate::sweep::cluster::Cluster;
use crate::sweep::subject::scenarios;

static FOOBAR: Family = Family {
    name: "foobar",
    api_version: "k8s.io/v1",
    object_kind: "FooBar",
    plural: "foobars",
    watched: &["foobars", "jobs", "pods"],
    child_api_version: "batch/v1",
    child_kind: "Job",
    children: "jobs",
    child: "a-1",
    spec: || json!({"command": "exit 0"}),
    scenarios: SCENARIOS,
    is_done,
    rare: &[
        "CommandFailed",
        "Invalid",
        "JobExists",
        "JobLost",
        "Refused",
        "Suspended",
        "Terminating",
    ],
    mutants: mutants::OF_FOOBAR,
};

fn is_done(foobar: &Value) -> bool {
    ["Succeeded", "Failed"]
        .map(Value::from)
        .contains(&foobar["status"]["phase"])
}

fn phase(cluster: &Cluster) -> String {
    cluster.text("/status/phase")
}

/// Whether a Job has that condition.
fn job_is(cluster: &Cluster, job: &str, type_: &str) -> bool {
    let job = cluster.get("jobs", job).unwrap_or_default();
    crate::sweep::changes::condition(&job, type_).is_some_and(|(status, _)| status == "True")
}

/// The command of the first generation runs. Under several faults the operator may see its end alone.
async fn running(cluster: &Cluster, seconds: u64) {
    FOOBAR.create_with(cluster, &json!({"command": format!("sleep {seconds}")}));
    let has_run = |c: &Cluster| ["Running", "Succeeded", "Failed"].contains(&phase(c).as_str());
    cluster.until(has_run).await;
}

async fn ended(cluster: &Cluster) {
    FOOBAR.create(cluster);
    cluster.until(|c| phase(c) == "Succeeded").await;
}

/// No operator may release a Job.
fn refuse_releases(cluster: &Cluster) {
    cluster
        .admission()
        .refuse(|review| (review.verb, review.resource) == (Verb::Update, "jobs"));
}

scenarios! {
    succeeded = |cluster| {
        FOOBAR.create(cluster);
    };
    failed = |cluster| {
        FOOBAR.create_with(cluster, &json!({"command": "exit 3"}));
    };
    two_operators(TwoOperators) = |cluster| {
        ended(cluster).await;
        FOOBAR.change(cluster, &json!({"foo": "2"}));
    };
    handed_over = |cluster| {
        FOOBAR.create(cluster);
        cluster.until(|c| c.field("/status/jobUID").is_some()).await;
        cluster.hand_over().await;
    };
    changed_and_back = |cluster| {
        ended(cluster).await;
        FOOBAR.change(cluster, &json!({"foo": "2"}));
        cluster.until(|c| c.get("jobs", "a-1").is_none()).await;
        FOOBAR.change(cluster, &json!({"foo": null}));
        cluster.until(|c| c.get("jobs", "a-2").is_none()).await;
    };
    changed_after_a_failure = |cluster| {
        FOOBAR.create_with(cluster, &json!({"command": "exit 3"}));
        cluster.until(|c| phase(c) == "Failed").await;
        FOOBAR.change(cluster, &json!({"command": "exit 4"}));
        cluster.until(|c| c.field("/status/exitCode") == Some(json!(4))).await;
        FOOBAR.change(cluster, &json!({"command": "exit 0"}));
        cluster.until(|c| c.get("jobs", "a-2").is_none()).await;
    };
    changed_while_it_runs = |cluster| {
        running(cluster, 60).await;
        FOOBAR.change(cluster, &json!({"command": "exit 0"}));
        cluster.until(|c| phase(c) == "Succeeded").await;
        cluster.until(|c| c.get("jobs", "a-1").is_none()).await;
    };
    overtaken_before_its_start = |cluster| {
        refuse_releases(cluster);
        FOOBAR.create_with(cluster, &json!({"command": "exit 3"}));
        cluster.until(|c| c.condition("Degraded") == "Refused").await;
        cluster.server.watches(simulated_apiserver::Target::resource("foobars")).hold();
        FOOBAR.change(cluster, &json!({"command": "exit 0"}));
        cluster.admission().allow_everything();
        cluster.sleep(10).await;
        cluster.server.watches(simulated_apiserver::Target::resource("foobars")).release();
        cluster.until(|c| phase(c) == "Succeeded").await;
        cluster.until(|c| c.get("jobs", "a-1").is_none()).await;
    };
    job_deleted_before_its_start = |cluster| {
        refuse_releases(cluster);
        FOOBAR.create(cluster);
        let is_refused = |c: &Cluster| c.condition("Degraded") == "Refused";
        // Its creation may have been refused before.
        cluster.until(|c| is_refused(c) && c.field("/status/jobUID").is_some()).await;
        cluster.delete("jobs", "a-1");
        cluster.until(|c| c.condition("Complete") == "JobLost").await;
        cluster.admission().allow_everything();
    };
    job_deleted_while_it_runs = |cluster| {
        running(cluster, 60).await;
        cluster.delete("jobs", "a-1");
    };
    job_deleted_after_its_end = |cluster| {
        ended(cluster).await;
        cluster.delete("jobs", "a-1");
    };
    job_held_by_a_finalizer = |cluster| {
        running(cluster, 60).await;
        cluster.patch("jobs", "a-1", &json!({"metadata": {"finalizers": ["example.com/hold"]}}));
        cluster.delete("jobs", "a-1");
        cluster.until(|c| c.condition("Complete") == "Terminating").await;
        cluster.patch("jobs", "a-1", &json!({"metadata": {"finalizers": null}}));
    };
    job_suspended_and_resumed = |cluster| {
        running(cluster, 60).await;
        cluster.patch("jobs", "a-1", &json!({"spec": {"suspend": true}}));
        cluster.until(|c| c.condition("Complete") == "Suspended").await;
        cluster.patch("jobs", "a-1", &json!({"spec": {"suspend": false}}));
    };
    job_without_owner = |cluster| {
        running(cluster, 60).await;
        cluster.patch("jobs", "a-1", &json!({"metadata": {"ownerReferences": null}}));
        cluster.until(|c| FOOBAR.owns_child(c)).await;
    };
    pod_deleted = |cluster| {
        running(cluster, 60).await;
        delete_a_pod(cluster);
    };
    foreign_child = |cluster| {
        cluster.create("jobs", FOOBAR.foreign("a-1"));
        FOOBAR.create(cluster);
        FOOBAR.give_name_back(cluster, "JobExists").await;
    };
    refused = |cluster| {
        cluster.admission().refuse(|review| (review.verb, review.resource) == (Verb::Create, "jobs"));
        FOOBAR.create(cluster);
        cluster.until(|c| c.condition("Degraded") == "Refused").await;
        cluster.admission().allow_everything();
    };
    invalid_for_a_while = |cluster| {
        ended(cluster).await;
        FOOBAR.change(cluster, &json!({"command": ""}));
        cluster.until(|c| c.condition("Accepted") == "Invalid").await;
        FOOBAR.change(cluster, &json!({"command": "exit 0"}));
        cluster.until(|c| c.get("jobs", "a-1").is_none()).await;
    };
    deleted_while_it_runs = |cluster| {
        running(cluster, 60).await;
        cluster.delete("foobars", NAME);
        cluster.until(|c| c.get("jobs", "a-1").is_none()).await;
    };
    recreated_after_background_deletion = |cluster| {
        ended(cluster).await;
        FOOBAR.recreate(cluster, "Background").await;
    };
    recreated_after_foreground_deletion = |cluster| {
        running(cluster, 60).await;
        FOOBAR.recreate(cluster, "Foreground").await;
    };
    recreated_after_orphaning_deletion = |cluster| {
        running(cluster, 60).await;
        FOOBAR.recreate(cluster, "Orphan").await;
        cluster.until(|c| job_is(c, "a-1", "Complete")).await;
        FOOBAR.give_name_back(cluster, "JobExists").await;
    };
}

tests!(FOOBAR, {"foo": "2"}, [
    ("/foo", "2"),
    ("/barz", "true"),
    ("/command", "exit 3"),
    ("/image", "bash:5.2"),
]);
