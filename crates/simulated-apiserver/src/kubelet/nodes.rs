//! Nodes: which are lost or joining, and what the node controller writes about them and their pods.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::pod;
use crate::server::Server;
use crate::write::{seconds, text};

const NODE_CONTROLLER: &str = "system:serviceaccount:kube-system:node-controller";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What the handle and the worker share.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<Nodes>,
    pub(super) wake: Notify,
}

/// The nodes that are lost or joining.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// When each lost node stopped reporting.
    pub(super) lost: BTreeMap<String, Instant>,
    /// When each joining node gets ready.
    pub(super) joining: BTreeMap<String, Instant>,
    /// Whether no pod passes its readiness probe.
    pub(super) probes_fail: bool,
}

impl Shared {
    pub(super) fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.state.lock()
    }
}

pub(super) fn set_ready(server: &Server, node: &str, status: &str, reason: &str) {
    let now = seconds(server.clock().now());
    // The node may be gone.
    let _ = server
        .direct_as(NODE_CONTROLLER)
        .edit_status("Node", "", node, |node| {
            let more = json!({"reason": reason, "lastTransitionTime": now});
            pod::set_condition(node, "Ready", status, more);
        });
}

/// Replaces the taints that say why a node is not ready.
pub(super) fn set_taint(server: &Server, node: &str, key: Option<&str>) {
    // The node may be gone.
    let _ = server
        .direct_as(NODE_CONTROLLER)
        .edit("Node", "", node, |node| {
            let taints = node["spec"]["taints"].as_array().cloned();
            let mut taints = taints.unwrap_or_default();
            taints.retain(|taint| taint["key"] != UNREACHABLE && taint["key"] != NOT_READY);
            let effects = ["NoSchedule", "NoExecute"];
            let new = key.map(|key| effects.map(|effect| json!({"key": key, "effect": effect})));
            taints.extend(new.into_iter().flatten());
            node["spec"]["taints"] = json!(taints);
        });
}

/// These pods are not ready any more.
pub(super) fn pods_are_not_ready(server: &Server, concerns: impl Fn(&Value) -> bool) {
    let now = seconds(server.clock().now());
    for pod in server.direct().list("Pod", "") {
        if !concerns(&pod) || condition(&pod, "Ready") != Some("True") {
            continue;
        }
        let metadata = &pod["metadata"];
        let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
        // The pod may be gone by now.
        let _ = server
            .direct_as(NODE_CONTROLLER)
            .edit_status("Pod", namespace, name, |pod| {
                pod::set_condition(pod, "Ready", "False", json!({"lastTransitionTime": now}));
            });
    }
}

pub(super) fn disrupt(server: &Server, namespace: &str, name: &str, reason: &str) {
    let direct = server.direct_as(NODE_CONTROLLER);
    let marked = direct.edit_status("Pod", namespace, name, |pod| {
        let more =
            json!({"reason": reason, "message": "Taint manager: deleting due to NoExecute taint"});
        pod::set_condition(pod, "DisruptionTarget", "True", more);
    });
    if marked.is_ok() {
        // The pod may be gone by now.
        let _ = direct.delete("Pod", namespace, name);
    }
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind)?;
    found["status"].as_str()
}

pub(super) fn is_ready(server: &Server, node: &str) -> bool {
    let node = server.direct().get("Node", "", node);
    node.is_some_and(|node| condition(&node, "Ready") == Some("True"))
}

/// Deletes a Node object.
pub(super) fn delete(server: &Server, node: &str) {
    // It may be gone already.
    let _ = server.direct_as(NODE_CONTROLLER).delete("Node", "", node);
}
