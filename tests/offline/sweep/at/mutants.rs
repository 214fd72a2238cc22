//! Operators of Ats with a bug.

use axum::http::Method;
use serde_json::{Value, json};
use simulated_apiserver::Server;

use super::POD;
use super::judge::GATE;
use crate::sweep::cluster::{NAMESPACE, OTHER};
use crate::sweep::faults::Fault;
use crate::sweep::mutants::{BASE, Mutant, NO_RETRY_AFTER, Sent, conditions};

const PODS_HELD_BACK: Fault = Fault::HeldBack("pods");
const ATS_HELD_BACK: Fault = Fault::HeldBack("ats");
const RELEASE_BEFORE: Fault = Fault::Own(super::RELEASE_BEFORE);

fn is_status(sent: &Sent) -> bool {
    sent.is(&Method::PUT, "/status")
}

fn is_new_pod(sent: &Sent) -> bool {
    sent.is(&Method::POST, "/pods")
}

fn is_release(sent: &Sent) -> bool {
    sent.is_on(&Method::PATCH, "pods")
}

fn is_deletion(sent: &Sent) -> bool {
    sent.is_on(&Method::DELETE, "pods")
}

fn is_look(sent: &Sent) -> bool {
    sent.is_on(&Method::GET, "pods")
}

/// The resourceVersion that is stored, whichever the operator looked at.
fn newest_version(server: &Server, sent: &mut Sent) {
    if is_status(sent)
        && let Some(at) = server.direct().get("ats", NAMESPACE, "a")
    {
        sent.body["metadata"]["resourceVersion"] = at["metadata"]["resourceVersion"].clone();
    }
}

/// Changes a condition in a status that is written.
fn set_condition(sent: &mut Sent, type_: &str, field: &str, value: &Value) {
    for condition in conditions(&mut sent.body) {
        if condition["type"] == type_ {
            condition[field] = value.clone();
        }
    }
}

/// Every mutant.
pub const ALL: &[Mutant] = &[
    Mutant {
        name: "the status is written over any version",
        request: newest_version,
        shown_by: &[
            Fault::EditBefore,
            ATS_HELD_BACK,
            Fault::Late,
            Fault::CrashAndOldList,
        ],
        ..BASE
    },
    Mutant {
        name: "the status is written over that of a namesake",
        request: |server, sent| {
            newest_version(server, sent);
            if is_status(sent) {
                sent.remove("/metadata", "uid");
            }
        },
        shown_by: &[Fault::RecreateBefore],
        ..BASE
    },
    Mutant {
        name: "the status does not name the pod",
        request: |_, sent| {
            if is_status(sent) {
                sent.remove("/status", "podUID");
            }
        },
        ..BASE
    },
    Mutant {
        name: "a pod is born without a gate",
        request: |_, sent| {
            if is_new_pod(sent) {
                sent.remove("/spec", "schedulingGates");
            }
        },
        ..BASE
    },
    Mutant {
        name: "a pod has no owner",
        request: |_, sent| {
            if is_new_pod(sent) {
                sent.remove("/metadata", "ownerReferences");
            }
        },
        ..BASE
    },
    Mutant {
        name: "the name is no lock",
        request: |server, sent| {
            if is_new_pod(sent) {
                let options = json!({"gracePeriodSeconds": 0});
                // If there is none, no problems.
                let _ = server
                    .direct_as("mutant")
                    .delete_with("pods", NAMESPACE, POD, &options);
            }
        },
        shown_by: &[PODS_HELD_BACK, Fault::Unanswered],
        ..BASE
    },
    Mutant {
        name: "any pod of the name is released",
        request: |server, sent| {
            if is_release(sent)
                && let Some(pod) = server.direct().get("pods", NAMESPACE, POD)
            {
                // The gate of any pod: an index that exists, and no question whose it is.
                let gates = pod["spec"]["schedulingGates"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let index = gates
                    .iter()
                    .position(|gate| gate["name"] == GATE)
                    .unwrap_or_default();
                let place = format!("/spec/schedulingGates/{index}");
                sent.body = json!([{"op": "remove", "path": place}]);
            }
        },
        shown_by: &[Fault::RecreateBefore, Fault::Late],
        ..BASE
    },
    Mutant {
        name: "a pod is released before it is committed",
        answer: |server, sent, answer| {
            if is_new_pod(sent) && answer.as_ref().is_some_and(|(code, _)| *code < 300) {
                let _ = server
                    .direct_as("operator-mutant")
                    .edit("pods", NAMESPACE, POD, |pod| {
                        pod["spec"]["schedulingGates"] = json!([]);
                    });
            }
            answer
        },
        ..BASE
    },
    Mutant {
        name: "a pod of any version is deleted",
        request: |_, sent| {
            if is_deletion(sent) {
                sent.remove("/preconditions", "resourceVersion");
            }
        },
        shown_by: &[RELEASE_BEFORE],
        ..BASE
    },
    Mutant {
        name: "any pod of the name is deleted",
        request: |_, sent| {
            if is_deletion(sent) {
                sent.remove("", "preconditions");
            }
        },
        shown_by: &[
            Fault::Late,
            Fault::RecreateBefore,
            Fault::Unanswered,
            Fault::TimeoutThoughDone,
        ],
        ..BASE
    },
    Mutant {
        name: "the deletion of a pod shows it as it was before its release",
        read: |path, event| {
            if path.ends_with("/pods") && event["type"] == "DELETED" {
                event["object"]["spec"]["schedulingGates"] = json!([{"name": GATE}]);
            }
        },
        shown_by: &[Fault::Late],
        ..BASE
    },
    Mutant {
        name: "a look at the pod sees none",
        answer: |_, sent, answer| {
            let none = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                "reason": "NotFound", "message": "pods \"a-pod\" not found"});
            if is_look(sent) {
                Some((404, none))
            } else {
                answer
            }
        },
        shown_by: &[PODS_HELD_BACK, Fault::CrashAfter, Fault::Unanswered],
        ..BASE
    },
    Mutant {
        name: "a conflict is taken for success",
        answer: |_, sent, answer| match &answer {
            Some((409, _)) if is_status(sent) => Some(sent.as_if_done()),
            _ => answer,
        },
        shown_by: &[Fault::EditBefore, Fault::Conflict],
        ..BASE
    },
    Mutant {
        name: "no answer is taken for success",
        answer: |_, sent, answer| match &answer {
            None if is_status(sent) => Some(sent.as_if_done()),
            _ => answer,
        },
        shown_by: &[Fault::Lost],
        ..BASE
    },
    Mutant {
        name: "a failure is taken for success",
        answer: |_, sent, answer| match &answer {
            Some((500.., _)) if is_status(sent) => Some(sent.as_if_done()),
            _ => answer,
        },
        shown_by: &[Fault::InternalError],
        ..BASE
    },
    Mutant {
        name: "a commit is believed without being made",
        request: |_, sent| {
            if is_status(sent) && sent.body["status"]["phase"] == "RUNNING" {
                sent.path.push_str("?dryRun=All");
            }
        },
        ..BASE
    },
    Mutant {
        name: "Started is true at the commit",
        request: |_, sent| {
            if is_status(sent) && sent.body["status"]["phase"] == "RUNNING" {
                set_condition(sent, "Started", "status", &json!("True"));
            }
        },
        ..BASE
    },
    Mutant {
        name: "a lost pod is said never to have started",
        request: |_, sent| {
            if is_status(sent) && sent.body["status"]["reason"] == "PodLost" {
                sent.body["status"]["reason"] = json!("NeverStarted");
            }
        },
        ..BASE
    },
    Mutant {
        name: "conditions keep the generation of their birth",
        request: |_, sent| {
            if is_status(sent) {
                for type_ in ["Finished", "Complete", "Started"] {
                    set_condition(sent, type_, "observedGeneration", &json!(1));
                }
            }
        },
        ..BASE
    },
    Mutant {
        name: "a rejection is said of a newer spec",
        request: |_, sent| {
            if is_status(sent) && sent.body["status"]["reason"] == "PodRefused" {
                set_condition(sent, "Started", "observedGeneration", &json!(9));
            }
        },
        ..BASE
    },
    Mutant {
        name: "a dry run creates",
        request: |_, sent| {
            if is_new_pod(sent) && sent.query.contains("dryRun=All") {
                sent.path.push_str("?fieldValidation=Strict");
            }
        },
        ..BASE
    },
    Mutant {
        name: "a refused dry run is taken for success",
        answer: |_, sent, answer| match &answer {
            Some((400.., _)) if is_new_pod(sent) && sent.query.contains("dryRun=All") => {
                Some(sent.as_if_done())
            }
            _ => answer,
        },
        ..BASE
    },
    Mutant {
        name: "what a dry run has shown outlives the start",
        request: |_, sent| {
            if is_status(sent) && sent.body["status"]["phase"] == "RUNNING" {
                sent.body["status"]["dryRunGeneration"] = json!(1);
            }
        },
        ..BASE
    },
    Mutant {
        name: "Missed names no cause",
        request: |_, sent| {
            if is_status(sent) && sent.body["status"]["result"] == "Missed" {
                sent.body["status"]["message"] = json!("the command was not started");
            }
        },
        ..BASE
    },
    Mutant {
        name: "an Event calls a failure a success",
        request: |_, sent| {
            if sent.is(&Method::POST, "/events") && sent.body["reason"] == "Failed" {
                sent.body["reason"] = json!("Completed");
            }
        },
        ..BASE
    },
    Mutant {
        name: "an Event says Started before the start",
        request: |_, sent| {
            if sent.is(&Method::POST, "/events") && sent.body["reason"] == "Scheduled" {
                sent.body["reason"] = json!("Started");
            }
        },
        ..BASE
    },
    Mutant {
        name: "whatever a pod waits for is another container",
        request: |_, sent| {
            if is_status(sent) && sent.body["status"]["reason"] == "ContainerCreating" {
                sent.body["status"]["reason"] = json!("OtherContainersRunning");
            }
        },
        ..BASE
    },
    Mutant {
        name: "a pod is said to wait as soon as it is released",
        request: |_, sent| {
            if is_status(sent)
                && sent.body["status"]["phase"] == "RUNNING"
                && sent.body["status"]["reason"].is_null()
                && !sent.body["status"]["startTime"].is_null()
            {
                sent.body["status"]["reason"] = json!("ContainerCreating");
            }
        },
        ..BASE
    },
    Mutant {
        name: "the status never says what a released pod waits for",
        request: |_, sent| {
            if is_status(sent) && sent.body["status"]["reason"] == "OtherContainersRunning" {
                sent.remove("/status", "reason");
            }
        },
        ..BASE
    },
    Mutant {
        name: "trouble in one namespace is trouble in all",
        answer: |server, sent, answer| {
            let other = server.direct().get("ats", OTHER, "c").unwrap_or_default();
            let is_in_trouble = other["status"]["phase"] == "PENDING";
            if is_new_pod(sent) && sent.path.contains(&format!("/{NAMESPACE}/")) && is_in_trouble {
                return None;
            }
            answer
        },
        ..BASE
    },
    Mutant {
        name: "the operator's clock is a second ahead",
        clock: 1,
        ..BASE
    },
    NO_RETRY_AFTER,
];
