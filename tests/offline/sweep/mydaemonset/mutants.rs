//! Operators of MyDaemonSets with a bug.

use axum::http::Method;
use serde_json::{Value, json};

use super::PREDECESSOR;
use crate::sweep::faults::Fault;
use crate::sweep::mutants::{BASE, Mutant, NO_RETRY_AFTER, Sent, conditions};

fn is_status(sent: &Sent) -> bool {
    sent.is(&Method::PATCH, "/status")
}

fn is_new_pod(sent: &Sent) -> bool {
    sent.is(&Method::POST, "/pods") && !is_trial(sent)
}

fn is_trial(sent: &Sent) -> bool {
    sent.is(&Method::POST, "/pods") && sent.query.contains("dryRun=All")
}

fn is_deletion(sent: &Sent) -> bool {
    sent.is_on(&Method::DELETE, "pods")
}

/// What the operator reads of objects of that resource, changed.
fn read(path: &str, answer: &mut Value, resource: &str, change: fn(&mut Value)) {
    if !path.ends_with(&format!("/{resource}")) {
        return;
    }
    match answer.get_mut("items").and_then(Value::as_array_mut) {
        Some(items) => items.iter_mut().for_each(change),
        None => change(&mut answer["object"]),
    }
}

fn all_true(object: &mut Value) {
    for condition in conditions(object) {
        condition["status"] = json!("True");
    }
}

/// Takes the annotation away that freezes.
fn thaw(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove("apps.zhongmingmao.io/freeze");
    }
}

/// A limit of the roll-out as the operator reads it.
fn limit(set: &mut Value, name: &str, value: Value) {
    if set["spec"]["updateStrategy"]["rollingUpdate"].is_object() {
        set["spec"]["updateStrategy"]["rollingUpdate"][name] = value;
    }
}

/// A setting of the canary as the operator reads it.
fn canary(set: &mut Value, name: &str, value: Value) {
    let canary = &mut set["spec"]["updateStrategy"]["rollingUpdate"]["canary"];
    if canary.is_object() {
        canary[name] = value;
    }
}

/// Every mutant.
pub const ALL: &[Mutant] = &[
    Mutant {
        name: "any pod of the name is deleted",
        request: |_, sent| {
            if is_deletion(sent) {
                sent.remove("", "preconditions");
            }
        },
        shown_by: &[Fault::RecreateBefore],
        ..BASE
    },
    Mutant {
        name: "the name is no lock",
        request: |_, sent| {
            if is_new_pod(sent) {
                let name = sent.body["metadata"]["name"].take();
                let base = format!("{}-", name.as_str().unwrap_or_default());
                sent.body["metadata"]["generateName"] = json!(base);
            }
        },
        shown_by: &[Fault::Unanswered, Fault::Late],
        ..BASE
    },
    Mutant {
        name: "maxUnavailable is one more",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                limit(set, "maxUnavailable", json!(2));
            });
        },
        ..BASE
    },
    Mutant {
        name: "the partition is not read",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                limit(set, "partition", json!(0));
            });
        },
        ..BASE
    },
    Mutant {
        name: "a pause is not read",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                limit(set, "paused", json!(false));
            });
        },
        ..BASE
    },
    Mutant {
        name: "the windows are not read",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                limit(set, "windows", json!(null));
            });
        },
        ..BASE
    },
    Mutant {
        name: "there is one canary more",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                canary(set, "nodes", json!(2));
            });
        },
        ..BASE
    },
    Mutant {
        name: "the soak is not read",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                canary(set, "soakSeconds", json!(0));
            });
        },
        ..BASE
    },
    Mutant {
        name: "the domains are not read",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                limit(set, "topologyKey", Value::Null);
                limit(set, "order", Value::Null);
            });
        },
        ..BASE
    },
    Mutant {
        name: "the order of the domains is not read",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                limit(set, "order", Value::Null);
            });
        },
        ..BASE
    },
    Mutant {
        name: "there are no canaries of what is undone when it fails",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                let rolling = &mut set["spec"]["updateStrategy"]["rollingUpdate"];
                if rolling["onFailure"] == "Undo" {
                    rolling["canary"] = Value::Null;
                }
            });
        },
        ..BASE
    },
    Mutant {
        name: "what passed its canary and failed need not pass it again",
        request: |_, sent| {
            if is_status(sent) && sent.body["status"]["failedRevisions"].is_array() {
                sent.remove("/status", "promotedRevision");
            }
        },
        ..BASE
    },
    Mutant {
        name: "the status does not name the canaries",
        request: |_, sent| {
            if is_status(sent) {
                sent.remove("/status", "canaryNodes");
            }
        },
        ..BASE
    },
    Mutant {
        name: "the status does not count what nodes wait for",
        request: |_, sent| {
            if is_status(sent) {
                sent.remove("/status", "waiting");
            }
        },
        ..BASE
    },
    Mutant {
        name: "a freeze is not read",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", thaw);
        },
        ..BASE
    },
    Mutant {
        name: "a freeze of the namespace is not read",
        read: |path, answer| {
            read(path, answer, "namespaces", thaw);
        },
        ..BASE
    },
    Mutant {
        name: "every pod looks ready",
        read: |path, answer| {
            read(path, answer, "pods", all_true);
        },
        ..BASE
    },
    Mutant {
        name: "the end of a pod is not noticed",
        read: |path, answer| {
            if path.ends_with("/pods") && answer["type"] == "DELETED" {
                answer["type"] = json!("MODIFIED");
            }
        },
        ..BASE
    },
    Mutant {
        name: "a cordon is not seen",
        read: |path, answer| {
            read(path, answer, "nodes", |node| {
                node["spec"]["unschedulable"] = json!(false);
            });
        },
        ..BASE
    },
    Mutant {
        name: "maintenance is not seen",
        read: |path, answer| {
            read(path, answer, "nodes", |node| {
                for condition in conditions(node) {
                    if condition["type"] == "MaintenanceInProgress" {
                        condition["status"] = json!("False");
                    }
                }
            });
        },
        ..BASE
    },
    Mutant {
        name: "every node seems to have served the older revision",
        read: |path, answer| {
            read(path, answer, "pods", |pod| {
                if pod["metadata"]["annotations"].is_object() {
                    pod["metadata"]["annotations"][PREDECESSOR] = json!("available");
                }
            });
        },
        ..BASE
    },
    Mutant {
        name: "what a node was like before is not stored",
        request: |_, sent| {
            if is_new_pod(sent) {
                sent.remove("/metadata/annotations", PREDECESSOR);
            }
        },
        ..BASE
    },
    Mutant {
        name: "a disruption is not seen",
        read: |path, answer| {
            read(path, answer, "pods", |pod| {
                if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
                    conditions.retain(|condition| condition["type"] != "DisruptionTarget");
                }
            });
        },
        ..BASE
    },
    Mutant {
        name: "every node looks ready",
        read: |path, answer| {
            read(path, answer, "nodes", |node| {
                all_true(node);
                if let Some(taints) = node["spec"]["taints"].as_array_mut() {
                    taints.retain(|taint| taint["key"] != "node.kubernetes.io/not-ready");
                }
            });
        },
        ..BASE
    },
    Mutant {
        name: "a stop names no node",
        request: |_, sent| {
            if is_status(sent) {
                sent.remove("/status", "failedNodes");
            }
        },
        ..BASE
    },
    Mutant {
        name: "that a revision failed is not stored",
        request: |_, sent| {
            if is_status(sent) {
                sent.remove("/status", "failedRevisions");
            }
        },
        ..BASE
    },
    Mutant {
        name: "what is to follow a failure is not read",
        read: |path, answer| {
            read(path, answer, "mydaemonsets", |set| {
                limit(set, "onFailure", json!("Pause"));
            });
        },
        ..BASE
    },
    Mutant {
        name: "Complete does not name the nodes that are left out",
        request: |_, sent| {
            for condition in conditions(&mut sent.body) {
                if condition["reason"] == "Complete" {
                    condition["message"] = json!("the newest revision has reached every node");
                }
            }
        },
        ..BASE
    },
    Mutant {
        name: "Complete is said at once",
        request: |_, sent| {
            for condition in conditions(&mut sent.body) {
                if condition["reason"] == "RollingOut" {
                    condition["reason"] = json!("Complete");
                    condition["status"] = json!("False");
                }
            }
        },
        ..BASE
    },
    Mutant {
        name: "one pod too many is counted",
        request: |_, sent| {
            let status = &mut sent.body["status"];
            if let Some(updated) = status["updatedNumberScheduled"].as_i64() {
                status["updatedNumberScheduled"] = json!(updated + 1);
            }
        },
        ..BASE
    },
    Mutant {
        name: "the observed generation is that of the birth",
        request: |_, sent| {
            if is_status(sent) {
                sent.body["status"]["observedGeneration"] = json!(1);
            }
        },
        ..BASE
    },
    Mutant {
        name: "the trial always succeeds",
        answer: |_, sent, answer| {
            if is_trial(sent) {
                Some((201, sent.body.clone()))
            } else {
                answer
            }
        },
        ..BASE
    },
    Mutant {
        name: "a failed deletion is taken for success",
        answer: |_, sent, answer| match &answer {
            Some((500.., _)) if is_deletion(sent) => Some((200, json!({"kind": "Status"}))),
            _ => answer,
        },
        shown_by: &[Fault::InternalError],
        ..BASE
    },
    Mutant {
        name: "the operator's clock is ten seconds ahead",
        clock: 10,
        ..BASE
    },
    NO_RETRY_AFTER,
];
