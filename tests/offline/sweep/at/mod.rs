//! The lives of an At that the faults are put into.

use std::time::Duration;

use my_operator_rounds::{Budget, lengths};
use serde_json::{Value, json};
use simulated_apiserver::{Run, Site, Verb};

mod judge;
mod mutants;

use self::judge::GATE;
use super::cluster::{Cluster, NAMESPACE, OTHER, SECOND, command, run_of_command};
use super::faults::Fault;
use super::mutants::Mutant;
use super::subject::{Judged, Scenario, Seen, Special, Subject, scenarios};

/// The annotation of an At with the time of the update that changed its schedule.
pub const SCHEDULE_SET_AT: &str = "cnat.programming-kubernetes.info/schedule-set-at";
/// The name of the pod of the At `a`.
const POD: &str = "a-pod";
/// The node of the cluster.
const NODE: &str = "node-1";
/// The fault that a foreign client removes the gate of the pod.
const RELEASE_BEFORE: &str = "ReleaseBefore";

/// See the module.
pub struct At;

impl Subject for At {
    fn kind(&self) -> &'static str {
        "at"
    }

    fn object(&self) -> (&'static str, &'static str) {
        ("ats", "a")
    }

    fn watched(&self) -> &'static [&'static str] {
        &["ats", "pods"]
    }

    fn scenarios(&self) -> &'static [Scenario] {
        SCENARIOS
    }

    fn nodes(&self) -> &'static [&'static str] {
        &[NODE]
    }

    /// A command `exit CODE` takes two seconds, `sleep SECONDS` as long as it says, and a foreign pod goes on for ever. The
    /// volume of a pod with the command `mount` is missing.
    fn run(&self, pod: &Value) -> Run {
        if command(pod) == "mount" {
            return Run {
                starts_after: None,
                waits: Some("ContainerCreating".to_owned()),
                ..Run::default()
            };
        }
        run_of_command(pod)
    }

    fn is_settled(&self, cluster: &Cluster, _: Special) -> bool {
        cluster.get("ats", "a").is_none() || phase(cluster) == "DONE"
    }

    fn meddlings(&self) -> &'static [&'static str] {
        &[RELEASE_BEFORE]
    }

    fn meddle(&self, _: &str, cluster: &Cluster, _: &Site) {
        remove_gate(cluster, POD, GATE);
    }

    /// A pod that is not of the At, gate or no gate.
    fn replacement(&self, mut pod: Value) -> Value {
        let gates = pod["spec"]["schedulingGates"].take();
        pod["spec"] =
            json!({"containers": [{"name": "foreign", "image": "i"}], "schedulingGates": gates});
        pod
    }

    /// All of them, which is not much more than a minute.
    fn runs(&self) -> Budget {
        lengths::swept_faults_of_at()
    }

    /// What a policy refuses at first is let in if the API server stores it only at the end of a stall.
    fn keeps_the_end(&self, fault: Fault, _: &Site) -> bool {
        fault != Fault::Stall && (!fault.is_a_foreign_hand() || fault == Fault::EditBefore)
    }

    /// Which of several objects has its Event published first is left to chance. A slow call would come after what some
    /// scripts do next: it was decided before.
    fn applies(&self, fault: Fault, site: &Site, special: Special) -> bool {
        let is_late = matches!(special, Special::ClockIsSet | Special::EndMayBeMissed);
        (special != Special::Neighbours || site.resource != "events")
            && !(is_late && fault == Fault::Slow)
    }

    fn judge(&self, seen: &Seen<'_>) -> Judged {
        // Another client released a pod, and the operator may not know: the hole that docs/at/exactly-once.md names.
        let hides = seen.faults.iter().any(|fault| fault.hides("pods"));
        let has_hole = hides && judge::foreign_release(seen.history);
        let outcome = judge::outcome(seen.history);
        let lost = outcome.contains(" DONE Unknown exit null PodLost ");
        // The operator died at the deletion, and the next one does not find it: another fault delays the watches.
        let is_forgotten = hides && seen.faults.len() > 1 && judge::is_decided(seen.history);
        let other_end = match seen.special {
            Special::EndMayBeMissed => lost,
            Special::Nothing if is_forgotten => lost,
            Special::EndMayBeSeen | Special::DeadlineIsNear => {
                lost || outcome.contains(" DONE Missed ")
            }
            _ => false,
        };
        Judged {
            broken: judge::broken_promises(seen, has_hole),
            outcome,
            end_may_differ: has_hole || other_end,
            marks: judge::reasons(seen.history),
            patience: Duration::ZERO,
        }
    }

    fn rare(&self) -> &'static [&'static str] {
        &[
            "Committed",
            "ContainerCreating",
            "DeadlineExceeded",
            "DeleteRefused",
            "Evicted",
            "GateViolated",
            "Invalid",
            "NameConflict",
            "NeverStarted",
            "OtherContainersRunning",
            "PodAltered",
            "PodLost",
            "PodRefused",
            "PodTerminating",
            "ReleaseRefused",
            "StartingDeadlineExceeded",
            "Suspended",
            "Unschedulable",
        ]
    }

    fn mutants(&self) -> &'static [Mutant] {
        mutants::ALL
    }
}

#[test]
fn an_at_stays_true_whatever_fails_at_whichever_call() {
    super::every_fault(&At);
}

#[test]
fn an_at_stays_true_under_faults_at_random() {
    super::faults_at_random(&At);
}

#[test]
fn every_mutant_of_at_is_caught() {
    super::every_mutant_is_caught(&At);
}

fn phase(cluster: &Cluster) -> String {
    cluster.text("/status/phase")
}

/// The reason that the status of the At shows.
fn reason(cluster: &Cluster) -> String {
    cluster.text("/status/reason")
}

fn pod_phase(cluster: &Cluster) -> String {
    let pod = cluster.get("pods", POD).unwrap_or_default();
    let phase = pod["status"]["phase"].as_str();
    phase.unwrap_or_default().to_owned()
}

/// No status with that phase may be written.
fn refuse_status(cluster: &Cluster, phase: &'static str) {
    cluster.admission().refuse(move |review| {
        review.resource == "ats/status" && review.object["status"]["phase"] == phase
    });
}

/// A client with rights on pods removes a gate.
fn remove_gate(cluster: &Cluster, pod: &str, gate: &str) {
    let _ = cluster.server.direct().edit("pods", NAMESPACE, pod, |pod| {
        if let Some(gates) = pod["spec"]["schedulingGates"].as_array_mut() {
            gates.retain(|known| known["name"] != gate);
        }
    });
}

/// The eviction of a pod by its kubelet.
fn evict(cluster: &Cluster, pod: &str) {
    let status = json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}});
    let _ = cluster
        .server
        .direct()
        .patch_status("pods", NAMESPACE, pod, &status);
}

/// The node is lost: its pods are marked for deletion, and go when the Node object does.
async fn lose_the_node(cluster: &Cluster) {
    cluster.kubelet.lose(NODE);
    cluster
        .until(|c| {
            c.get("pods", POD)
                .is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
    cluster.sleep(60).await;
    cluster.delete_at_once("pods", POD);
}

/// The operator decides that the At is Missed, and is away while the pod is deleted. A release that arrives late meets the
/// pod in between, and no operator sees it.
async fn lose_the_pod_after_the_decision(cluster: &Cluster) {
    cluster.admission().refuse_updates_of_pods();
    cluster.admission().refuse_deletions_of_pods();
    let spec = json!({"command": "sleep 600", "startingDeadlineSeconds": 30});
    cluster.create("ats", at(spec));
    let is_decided = |c: &Cluster| !c.condition("FailureTarget").is_empty() || phase(c) == "DONE";
    cluster.until(is_decided).await;
    cluster.retire().await;
    cluster.admission().allow_everything();
    cluster.sleep(70).await;
    cluster.delete_at_once("pods", POD);
}

/// A client reports that the containers of the pod are in that state, and the pod in that phase.
fn report(cluster: &Cluster, phase: &str, containers: &Value) {
    let status = json!({"status": {"phase": phase, "containerStatuses": containers}});
    let _ = cluster
        .server
        .direct()
        .patch_status("pods", NAMESPACE, POD, &status);
}

/// Like [`at`], with that name in that namespace.
fn at_of(namespace: &str, name: &str, spec: Value) -> Value {
    let mut at = at(spec);
    at["metadata"] = json!({"name": name, "namespace": namespace});
    at
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
        cluster.until(|c| c.field("/status/podUID").is_some()).await;
        cluster.hand_over().await;
    };
    shared = |cluster| {
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.field("/status/podUID").is_some()).await;
        cluster.share().await;
        cluster.until(|c| phase(c) == "RUNNING").await;
        cluster.unite().await;
    };
    suspended = |cluster| {
        cluster.create("ats", at(json!({"suspend": true})));
        cluster.sleep(20).await;
        cluster.patch("ats", "a", &json!({"spec": {"suspend": false}}));
    };
    suspended_with_a_gated_pod = |cluster| {
        refuse_status(cluster, "RUNNING");
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
    pod_deleted_after_the_decision(EndMayBeMissed) = |cluster| {
        lose_the_pod_after_the_decision(cluster).await;
        cluster.start(SECOND);
    };
    pod_deleted_after_the_decision_and_forgotten(EndMayBeSeen) = |cluster| {
        lose_the_pod_after_the_decision(cluster).await;
        // The API server keeps no changes for watches for ever.
        cluster.server.compact(cluster.server.version());
        cluster.start(SECOND);
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
        refuse_status(cluster, "RUNNING");
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
        cluster.until(|c| phase(c) == "DONE").await;
        let change = json!({"spec": {"ttlSecondsAfterFinished": 86_400}});
        cluster.patch("ats", "a", &change);
    };
    suspended_while_running = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 120"})));
        cluster.until(|c| pod_phase(c) == "Running").await;
        cluster.patch("ats", "a", &json!({"spec": {"suspend": true}}));
    };
    deleted_before = |cluster| {
        cluster.create("ats", at(json!({})));
        cluster.sleep(2).await;
        cluster.delete("ats", "a");
    };
    deleted_while_running = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 60"})));
        cluster.until(|c| pod_phase(c) == "Running").await;
        cluster.delete("ats", "a");
    };
    deleted_and_created_again = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 60"})));
        cluster.until(|c| pod_phase(c) == "Running").await;
        cluster.delete("ats", "a");
        cluster.create("ats", at(json!({"schedule": "now"})));
    };
    pod_refused = |cluster| {
        cluster.admission().refuse_pods();
        cluster.create("ats", at(json!({})));
        cluster.until(|c| reason(c) == "PodRefused").await;
        cluster.admission().allow_everything();
    };
    release_refused = |cluster| {
        cluster.admission().refuse_updates_of_pods();
        cluster.create("ats", at(json!({})));
        cluster.until(|c| reason(c) == "ReleaseRefused").await;
        cluster.admission().allow_everything();
    };
    edited_while_refused = |cluster| {
        cluster.admission().refuse(|review| {
            (review.verb, review.resource) == (Verb::Create, "pods") && command(review.object) == "exit 0"
        });
        cluster.create("ats", at(json!({})));
        cluster.until(|c| reason(c) == "PodRefused").await;
        cluster.sleep(20).await;
        cluster.patch("ats", "a", &json!({"spec": {"command": "exit 4"}}));
    };
    tried_early = |cluster| {
        cluster.create("ats", at(json!({"schedule": "now + 2 minutes"})));
    };
    refused_early = |cluster| {
        cluster.admission().refuse_pods();
        cluster.create("ats", at(json!({"schedule": "now + 3 minutes"})));
        cluster.until(|c| c.condition("PodAccepted") == "PodRefused" || phase(c) == "DONE").await;
        cluster.admission().allow_everything();
    };
    edited_after_an_early_refusal = |cluster| {
        cluster.admission().refuse(|review| {
            (review.verb, review.resource) == (Verb::Create, "pods") && command(review.object) == "exit 0"
        });
        cluster.create("ats", at(json!({"schedule": "now + 3 minutes"})));
        cluster.until(|c| c.condition("PodAccepted") == "PodRefused" || phase(c) == "DONE").await;
        cluster.patch("ats", "a", &json!({"spec": {"command": "exit 4"}}));
    };
    allowed_before_the_deadline(DeadlineIsNear) = |cluster| {
        cluster.admission().refuse_pods();
        cluster.create("ats", at(json!({"schedule": "now", "startingDeadlineSeconds": 50})));
        cluster.sleep(45).await;
        cluster.admission().allow_everything();
    };
    refused_until_the_deadline = |cluster| {
        cluster.admission().refuse_pods();
        cluster.create("ats", at(json!({"startingDeadlineSeconds": 20})));
    };
    outlived = |cluster| {
        let template = json!({"spec": {"containers": [{"name": "at"}, {"name": "log", "image": "i"}]}});
        cluster.create("ats", at(json!({"command": "sleep 600", "template": template})));
        cluster.until(|c| pod_phase(c) == "Running").await;
        cluster.sleep(5).await;
        let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
        report(cluster, "Running", &json!([{"name": "at", "state": ended}, {"name": "log", "state": {"running": {}}}]));
        cluster.until(|c| reason(c) == "OtherContainersRunning").await;
        report(cluster, "Failed", &json!([{"name": "at", "state": ended}, {"name": "log", "state": ended}]));
    };
    not_set_up = |cluster| {
        cluster.create("ats", at(json!({"command": "mount"})));
        cluster.until(|c| reason(c) == "ContainerCreating").await;
        report(cluster, "Running", &json!([{"name": "at", "state": {"running": {}}}]));
        cluster.until(|c| reason(c).is_empty()).await;
        report(cluster, "Succeeded", &json!([{"name": "at", "state": {"terminated": {"exitCode": 0}}}]));
    };
    neighbours(Neighbours) = |cluster| {
        for (namespace, name) in [(NAMESPACE, "a"), (NAMESPACE, "b"), (OTHER, "c")] {
            cluster.create("ats", at_of(namespace, name, json!({})));
        }
    };
    neighbour_hangs(Neighbours) = |cluster| {
        cluster.hang_other(true);
        for (namespace, name) in [(OTHER, "c"), (NAMESPACE, "a"), (NAMESPACE, "b")] {
            cluster.create("ats", at_of(namespace, name, json!({})));
        }
        cluster.until(|c| phase(c) == "DONE").await;
        cluster.hang_other(false);
        cluster.until(|c| {
            let at = c.server.direct().get("ats", OTHER, "c");
            at.is_none_or(|at| at["status"]["phase"] == "DONE")
        }).await;
    };
    deletion_refused = |cluster| {
        refuse_status(cluster, "RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        cluster.admission().refuse_deletions_of_pods();
        cluster.patch("ats", "a", &json!({"spec": {"command": "exit 4"}}));
        cluster.until(|c| reason(c) == "DeleteRefused").await;
        cluster.admission().allow_everything();
    };
    pod_altered = |cluster| {
        cluster.admission().alter_pods(json!({"spec": {"restartPolicy": "Always"}}));
        cluster.create("ats", at(json!({})));
        cluster.until(|c| reason(c) == "PodAltered").await;
        cluster.admission().allow_everything();
    };
    name_taken = |cluster| {
        let foreign = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": "ns"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        cluster.create("pods", foreign);
        cluster.create("ats", at(json!({})));
        cluster.until(|c| reason(c) == "NameConflict").await;
        cluster.delete("pods", POD);
    };
    pod_terminating(EndMayBeMissed) = |cluster| {
        refuse_status(cluster, "RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        cluster.patch("pods", POD, &json!({"metadata": {"finalizers": ["example.com/hold"]}}));
        cluster.delete("pods", POD);
        cluster.admission().allow_everything();
        cluster.until(|c| reason(c) == "PodTerminating").await;
        cluster.patch("pods", POD, &json!({"metadata": {"finalizers": null}}));
    };
    pod_deleted(EndMayBeMissed) = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 60"})));
        cluster.until(|c| pod_phase(c) == "Running").await;
        cluster.delete_at_once("pods", POD);
    };
    pod_deleted_before_its_release(EndMayBeMissed) = |cluster| {
        cluster.admission().refuse_updates_of_pods();
        cluster.create("ats", at(json!({})));
        cluster.until(|c| reason(c) == "ReleaseRefused").await;
        cluster.delete_at_once("pods", POD);
    };
    pod_evicted = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 600"})));
        cluster.until(|c| pod_phase(c) == "Running").await;
        evict(cluster, POD);
    };
    node_lost(EndMayBeMissed) = |cluster| {
        cluster.create("ats", at(json!({"command": "sleep 600"})));
        cluster.until(|c| pod_phase(c) == "Running").await;
        lose_the_node(cluster).await;
    };
    gate_removed_before_the_commit = |cluster| {
        refuse_status(cluster, "RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        remove_gate(cluster, POD, GATE);
        cluster.until(|c| pod_phase(c) == "Succeeded").await;
        cluster.sleep(5).await;
        cluster.admission().allow_everything();
    };
    gate_removed_and_pod_deleted(EndMayBeMissed) = |cluster| {
        refuse_status(cluster, "RUNNING");
        cluster.create("ats", at(json!({})));
        cluster.until(|c| c.get("pods", POD).is_some()).await;
        remove_gate(cluster, POD, GATE);
        cluster.until(|c| pod_phase(c) == "Succeeded").await;
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
