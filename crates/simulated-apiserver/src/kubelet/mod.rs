//! A small scheduler, kubelet and node controller in one: pods are bound, run and end, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::server::Server;
use crate::write::seconds;

mod actions;
mod nodes;
mod options;
mod scheduling;
mod steps;
mod worker;

use actions::KUBELET;
use nodes::{NOT_READY, Shared};
pub use options::{KubeletOptions, Run};
pub use scheduling::{is_selected, tolerates};
use worker::Worker;

/// Schedules and runs the pods of a server until it is dropped, on the nodes that were added.
pub struct Kubelet {
    server: Server,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a scheduler and kubelets on the current tokio runtime. There is no node yet; see [`Kubelet::add_node`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn kubelet(&self, options: KubeletOptions) -> Kubelet {
        let shared = Arc::new(Shared::default());
        let worker = Worker::new(self.clone(), shared.clone(), options);
        Kubelet {
            server: self.clone(),
            shared,
            task: tokio::spawn(worker.run()),
        }
    }
}

impl Kubelet {
    /// Adds a ready node.
    pub fn add_node(&self, name: &str) {
        self.register(name, &json!({}), "True", &[]);
    }

    /// A node joins: it registers NotReady, with the taint of such a node, and becomes ready after that time.
    pub fn join(&self, name: &str, labels: &Value, ready_after: Duration) {
        self.register(name, labels, "False", &[NOT_READY]);
        let at = Instant::now() + ready_after;
        self.shared.nodes().joining.insert(name.to_owned(), at);
        self.shared.wake.notify_one();
    }

    fn register(&self, name: &str, labels: &Value, ready: &str, taints: &[&str]) {
        let now = seconds(self.server.clock().now());
        let reason = if ready == "True" {
            "KubeletReady"
        } else {
            "KubeletNotReady"
        };
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"taints": taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect::<Vec<_>>()},
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": now}]},
        });
        for (key, value) in labels.as_object().into_iter().flatten() {
            node["metadata"]["labels"][key] = value.clone();
        }
        self.shared.nodes().lost.remove(name);
        // If the node exists already, nothing is to be done.
        let _ = self.server.direct_as(KUBELET).create(node);
    }

    /// Removes the machine and its Node object. Its pods stay until they are garbage-collected.
    pub fn remove_node(&self, node: &str) {
        self.shared
            .nodes()
            .lost
            .insert(node.to_owned(), Instant::now());
        nodes::delete(&self.server, node);
    }

    /// The node stops reporting. The status of its pods stays, whatever really happens on it.
    pub fn lose(&self, node: &str) {
        self.shared
            .nodes()
            .lost
            .insert(node.to_owned(), Instant::now());
        self.shared.wake.notify_one();
    }

    /// The node reports that it is not ready, for example because its network is down, and so do its pods.
    pub fn fail(&self, node: &str) {
        nodes::set_ready(&self.server, node, "False", "KubeletNotReady");
        nodes::set_taint(&self.server, node, Some(NOT_READY));
        nodes::pods_are_not_ready(&self.server, |pod| pod["spec"]["nodeName"] == *node);
    }

    /// The node reports again that it is ready, and its pods go on.
    pub fn recover(&self, node: &str) {
        self.shared.nodes().lost.remove(node);
        nodes::set_taint(&self.server, node, None);
        nodes::set_ready(&self.server, node, "True", "KubeletReady");
        self.shared.wake.notify_one();
    }

    /// All readiness probes fail, for example because each asks the same backend.
    pub fn fail_probes(&self) {
        self.shared.nodes().probes_fail = true;
        nodes::pods_are_not_ready(&self.server, |_| true);
    }

    /// They pass again.
    pub fn pass_probes(&self) {
        self.shared.nodes().probes_fail = false;
        self.shared.wake.notify_one();
    }

    /// Deletes a pod as the node controller, the scheduler or a drain does: with the condition DisruptionTarget, and
    /// that reason in it, such as `PreemptionByScheduler`.
    pub fn disrupt(&self, namespace: &str, name: &str, reason: &str) {
        nodes::disrupt(&self.server, namespace, name, reason);
    }
}
