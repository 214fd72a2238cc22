//! The lives of an At that the faults are put into.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::cluster::{Cluster, POD};
use super::judge::GATE;

/// A life of an At. Its steps wait for what they need, so that a fault may delay them.
pub struct Scenario {
    pub name: &'static str,
    /// What is special about it.
    pub special: Special,
    pub script: fn(&Cluster) -> BoxFuture<'_, ()>,
}

/// What is special about a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Nothing,
    /// Two operators work at once, of which the first meets the faults.
    TwoOperators,
    /// The pod goes before a disturbed operator may have seen its end: then the result may be Unknown.
    EndMayBeMissed,
    /// The clock is set.
    ClockIsSet,
}

macro_rules! scenarios {
    ($($(#[$meta:meta])* $name:ident $(($special:ident))? = |$cluster:ident| $script:block;)+) => {
        /// Every scenario.
        pub const SCENARIOS: &[Scenario] = &[$(
            Scenario {
                name: stringify!($name),
                special: special!($($special)?),
                script: |$cluster| async move $script.boxed(),
            },
        )+];
    };
}

macro_rules! special {
    () => {
        Special::Nothing
    };
    ($special:ident) => {
        Special::$special
    };
}

/// An At with that spec, in the future or `now`, and a command that takes two seconds.
fn at(spec: Value) -> Value {
    let mut spec = spec;
    let defaults = json!({"schedule": "now + 5 seconds", "command": "exit 0", "image": "bash:5.3",
        "shell": ["bash", "-c"], "suspend": false});
    for (field, value) in defaults.as_object().into_iter().flatten() {
        if spec.get(field).is_none() {
            spec[field] = value.clone();
        }
    }
    json!({"apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At",
        "metadata": {"name": "a", "namespace": "ns"}, "spec": spec})
}

scenarios! {
    normal = |cluster| {
        cluster.create("ats", at(json!({})));
    };
    at_once = |cluster| {
        cluster.create("ats", at(json!({"schedule": "now"})));
    };
    failing = |cluster| {
        cluster.create("ats", at(json!({"command": "exit 3"})));
    };
    two_operators(TwoOperators) = |cluster| {
        cluster.create("ats", at(json!({})));
    };
    handed_over = |cluster| {
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.at("/status/podUID").is_some()).await;
        cluster.hand_over().await;
    };
    suspended = |cluster| {
        cluster.create("ats", at(json!({"suspend": true})));
        cluster.sleep(20).await;
        cluster.patch("ats", "a", &json!({"spec": {"suspend": false}}));
    };
    suspended_with_a_gated_pod = |cluster| {
        cluster.admission().refuse_status("RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        cluster.patch("ats", "a", &json!({"spec": {"suspend": true}}));
        cluster.until(|c| c.get("pods", POD).is_none()).await;
        cluster.admission().allow_everything();
        cluster.patch("ats", "a", &json!({"spec": {"suspend": false}}));
    };
    starting_deadline = |cluster| {
        cluster.create("ats", at(json!({"suspend": true, "startingDeadlineSeconds": 10})));
        cluster.sleep(30).await;
        cluster.patch("ats", "a", &json!({"spec": {"suspend": false}}));
    };
    too_late_to_release = |cluster| {
        cluster.admission().refuse_updates_of_pods();
        cluster.create("ats", at(json!({"startingDeadlineSeconds": 90})));
    };
    active_deadline = |cluster| {
        cluster.create("ats", at(json!({"activeDeadlineSeconds": 60,
            "template": {"spec": {"nodeSelector": {"none": "such"}}}})));
    };
    deadline_of_a_running_pod = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 600", "activeDeadlineSeconds": 30})));
    };
    schedule_changed = |cluster| {
        cluster.create("ats", at(json!({"schedule": "now + 8 weeks"})));
        cluster.sleep(10).await;
        let change = json!({"spec": {"schedule": "2020-01-01T00:00:00Z"}});
        cluster.patch("ats", "a", &change);
    };
    command_changed = |cluster| {
        cluster.admission().refuse_status("RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        cluster.patch("ats", "a", &json!({"spec": {"command": "exit 4"}}));
        cluster.sleep(5).await;
        cluster.admission().allow_everything();
    };
    time_to_live = |cluster| {
        cluster.create("ats", at(json!({"ttlSecondsAfterFinished": 10, "startingDeadlineSeconds": 3600})));
    };
    time_to_live_set_later = |cluster| {
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.phase() == "DONE").await;
        let change = json!({"spec": {"ttlSecondsAfterFinished": 86_400}});
        cluster.patch("ats", "a", &change);
    };
    suspended_while_running = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 120"})));
        cluster.until(|c| c.pod_phase() == "Running").await;
        cluster.patch("ats", "a", &json!({"spec": {"suspend": true}}));
    };
    deleted_before = |cluster| {
        cluster.create("ats", at(json!({})));
        cluster.sleep(2).await;
        cluster.delete("ats", "a");
    };
    deleted_while_running = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 60"})));
        cluster.until(|c| c.pod_phase() == "Running").await;
        cluster.delete("ats", "a");
    };
    deleted_and_created_again = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 60"})));
        cluster.until(|c| c.pod_phase() == "Running").await;
        cluster.delete("ats", "a");
        cluster.create("ats", at(json!({"schedule": "now"})));
    };
    pod_refused = |cluster| {
        cluster.admission().refuse_pods();
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.reason() == "PodRefused").await;
        cluster.admission().allow_everything();
    };
    release_refused = |cluster| {
        cluster.admission().refuse_updates_of_pods();
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.reason() == "ReleaseRefused").await;
        cluster.admission().allow_everything();
    };
    deletion_refused = |cluster| {
        cluster.admission().refuse_status("RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        cluster.admission().refuse_deletions_of_pods();
        cluster.patch("ats", "a", &json!({"spec": {"command": "exit 4"}}));
        cluster.until(|c| c.reason() == "DeleteRefused").await;
        cluster.admission().allow_everything();
    };
    pod_altered = |cluster| {
        cluster.admission().alter_pods(json!({"spec": {"restartPolicy": "Always"}}));
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.reason() == "PodAltered").await;
        cluster.admission().allow_everything();
    };
    name_taken = |cluster| {
        let foreign = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": "ns"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        cluster.create("pods", foreign);
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.reason() == "NameConflict").await;
        cluster.delete("pods", POD);
    };
    pod_terminating = |cluster| {
        cluster.admission().refuse_status("RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        cluster.patch("pods", POD, &json!({"metadata": {"finalizers": ["example.com/hold"]}}));
        cluster.delete("pods", POD);
        cluster.admission().allow_everything();
        cluster.until(|c| c.reason() == "PodTerminating").await;
        cluster.patch("pods", POD, &json!({"metadata": {"finalizers": null}}));
    };
    pod_deleted(EndMayBeMissed) = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 60"})));
        cluster.until(|c| c.pod_phase() == "Running").await;
        cluster.delete_at_once("pods", POD);
    };
    pod_deleted_before_its_release(EndMayBeMissed) = |cluster| {
        cluster.admission().refuse_updates_of_pods();
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.reason() == "ReleaseRefused").await;
        cluster.delete_at_once("pods", POD);
    };
    pod_evicted = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 600"})));
        cluster.until(|c| c.pod_phase() == "Running").await;
        cluster.evict(POD);
    };
    node_lost(EndMayBeMissed) = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 600"})));
        cluster.until(|c| c.pod_phase() == "Running").await;
        cluster.lose_the_node().await;
    };
    gate_removed_before_the_commit = |cluster| {
        cluster.admission().refuse_status("RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        cluster.remove_gate(POD, GATE);
        cluster.until(|c| c.pod_phase() == "Succeeded").await;
        cluster.sleep(5).await;
        cluster.admission().allow_everything();
    };
    gate_removed_and_pod_deleted(EndMayBeMissed) = |cluster| {
        cluster.admission().refuse_status("RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        cluster.remove_gate(POD, GATE);
        cluster.until(|c| c.pod_phase() == "Succeeded").await;
        cluster.sleep(2).await;
        cluster.delete_at_once("pods", POD);
        cluster.sleep(2).await;
        cluster.admission().allow_everything();
    };
    invalid = |cluster| {
        cluster.create("ats", at(json!({"schedule": "tomorrow"})));
        cluster.until(|c| c.condition("Accepted") == "Invalid").await;
        cluster.patch("ats", "a", &json!({"spec": {"schedule": "2020-01-01T00:00:00Z"}}));
    };
    clock_set_forth(ClockIsSet) = |cluster| {
        cluster.create("ats", at(json!({"schedule": "now + 1 hour"})));
        cluster.sleep(10).await;
        cluster.set_clock(3600);
    };
    clock_set_back(ClockIsSet) = |cluster| {
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        cluster.set_clock(-60);
        cluster.sleep(10).await;
        cluster.set_clock(60);
    };
}
