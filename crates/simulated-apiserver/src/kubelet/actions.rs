//! What the scheduler, the kubelet and the collector of orphaned pods write about a pod.

use serde_json::{Value, json};

use super::nodes::disrupt;
use crate::pod;
use crate::server::Server;
use crate::write::{seconds, text};

const SCHEDULER: &str = "system:kube-scheduler";
pub(super) const KUBELET: &str = "system:node";
const POD_COLLECTOR: &str = "system:serviceaccount:kube-system:pod-garbage-collector";

/// Writes about one pod. Each may find the pod gone or changed by another client, and then does nothing.
pub(super) struct Actions<'a> {
    server: &'a Server,
    pod: &'a Value,
    time: String,
}

impl<'a> Actions<'a> {
    pub(super) fn new(server: &'a Server, pod: &'a Value) -> Self {
        Self {
            server,
            pod,
            time: seconds(server.clock().now()),
        }
    }

    fn namespace(&self) -> &str {
        text(&self.pod["metadata"], "namespace")
    }

    fn name(&self) -> &str {
        text(&self.pod["metadata"], "name")
    }

    pub(super) fn bind(&self, node: &str) {
        let direct = self.server.direct_as(SCHEDULER);
        let _ = direct.bind(self.namespace(), self.name(), node);
    }

    pub(super) fn report_unschedulable(&self) {
        self.set_status(SCHEDULER, |pod| {
            let more = json!({"reason": "Unschedulable", "message": "0 nodes are available"});
            pod::set_condition(pod, "PodScheduled", "False", more);
        });
    }

    pub(super) fn start(&self, restarts: u32) {
        let time = &self.time;
        self.set_status(KUBELET, |pod| {
            pod["status"]["phase"] = json!("Running");
            pod["status"]["startTime"] = json!(time);
            pod["status"]["podIP"] = json!("10.0.0.1");
            let running = json!({"running": {"startedAt": time}});
            pod["status"]["containerStatuses"] = containers(pod, &running, false, restarts);
            for kind in ["Initialized", "PodReadyToStartContainers"] {
                pod::set_condition(pod, kind, "True", json!({"lastTransitionTime": time}));
            }
            let more = json!({"reason": "ContainersNotReady", "lastTransitionTime": time});
            set_readiness(pod, "False", &more);
        });
    }

    /// The containers wait, and have been restarted that often.
    pub(super) fn wait(&self, reason: &str, restarts: u32) {
        self.set_status(KUBELET, |pod| {
            let waiting = json!({"waiting": {"reason": reason}});
            pod["status"]["containerStatuses"] = containers(pod, &waiting, false, restarts);
        });
    }

    pub(super) fn reject(&self, reason: &str) {
        self.set_status(KUBELET, |pod| {
            pod["status"]["phase"] = json!("Failed");
            pod["status"]["reason"] = json!(reason);
            pod["status"]["message"] = json!("Pod was rejected");
            pod["status"]["startTime"] = json!(self.time);
        });
    }

    pub(super) fn report_ready(&self) {
        self.set_status(KUBELET, |pod| {
            let running = pod["status"]["containerStatuses"][0]["state"].clone();
            let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
            let restarts = restarts.unwrap_or_default().try_into().unwrap_or_default();
            pod["status"]["containerStatuses"] = containers(pod, &running, true, restarts);
            let more = json!({"lastTransitionTime": self.time});
            set_readiness(pod, "True", &more);
        });
    }

    pub(super) fn end(&self, exit_code: i32, reason: &str, message: &str) {
        let succeeded = exit_code == 0;
        self.set_status(KUBELET, |pod| {
            pod["status"]["phase"] = json!(if succeeded { "Succeeded" } else { "Failed" });
            if reason == "DeadlineExceeded" {
                let message = "Pod was active on the node longer than the specified deadline";
                pod["status"]["reason"] = json!(reason);
                pod["status"]["message"] = json!(message);
            }
            let started = pod["status"]["startTime"].clone();
            if !started.is_null() {
                let mut ended = json!({
                    "exitCode": exit_code,
                    "reason": if succeeded { "Completed" } else { "Error" },
                    "startedAt": started,
                    "finishedAt": self.time,
                });
                if !message.is_empty() {
                    ended["message"] = json!(message);
                }
                let ended = json!({"terminated": ended});
                pod["status"]["containerStatuses"] = containers(pod, &ended, false, 0);
            }
            let reason = if succeeded {
                "PodCompleted"
            } else {
                "PodFailed"
            };
            let more = json!({"reason": reason, "lastTransitionTime": self.time});
            set_readiness(pod, "False", &more);
        });
    }

    /// Removes a pod that has ended on its node.
    pub(super) fn remove(&self) {
        self.delete_as(KUBELET);
    }

    /// Removes a pod whose node is gone.
    pub(super) fn collect(&self) {
        self.delete_as(POD_COLLECTOR);
    }

    pub(super) fn evict(&self) {
        let (namespace, name) = (self.namespace(), self.name());
        disrupt(self.server, namespace, name, "DeletionByTaintManager");
    }

    /// A pod that is gone, or has finalizers, needs nothing more.
    fn delete_as(&self, user: &str) {
        let uid = &self.pod["metadata"]["uid"];
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        let direct = self.server.direct_as(user);
        let _ = direct.delete_with("Pod", self.namespace(), self.name(), &options);
    }

    fn set_status(&self, user: &str, change: impl FnOnce(&mut Value)) {
        let direct = self.server.direct_as(user);
        let _ = direct.edit_status("Pod", self.namespace(), self.name(), change);
    }
}

fn set_readiness(pod: &mut Value, status: &str, more: &Value) {
    for kind in ["Ready", "ContainersReady"] {
        pod::set_condition(pod, kind, status, more.clone());
    }
}

/// The status of each container.
fn containers(pod: &Value, state: &Value, ready: bool, restarts: u32) -> Value {
    let containers = pod["spec"]["containers"].as_array();
    let statuses = containers.into_iter().flatten().map(|container| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "",
            "ready": ready, "started": ready, "restartCount": restarts, "state": state,
        })
    });
    Value::Array(statuses.collect())
}
