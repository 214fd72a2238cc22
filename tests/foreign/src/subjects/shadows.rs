//! bottlerocket-os/bottlerocket-update-operator, its controller: it leads a node through the states of an update by the
//! spec of its BottlerocketShadow, and an agent on the node, which is played here, follows in the status.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use simulated_apiserver::{ChangeKind, History, Resource, Server};

use super::{NAMESPACE, Stage, Subject};
use crate::faults::Fault;

pub struct Shadows;

const PLURAL: &str = "bottlerocketshadows";
const NODES: [&str; 3] = ["n1", "n2", "n3"];
const INTERFACE: &str = "bottlerocket.aws/updater-interface-version";

impl Subject for Shadows {
    fn name(&self) -> &'static str {
        "brupop"
    }

    fn register(&self, server: &Server) {
        let kind = Resource::custom(
            "brupop.bottlerocket.aws",
            "v2",
            "BottlerocketShadow",
            PLURAL,
        );
        server.register(kind);
    }

    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        &[("MY_NODE_NAME", "n3"), ("MAX_CONCURRENT_UPDATE", "1")]
    }

    fn object(&self) -> (&'static str, &'static str) {
        (PLURAL, "brs-n1")
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::HeldBack(PLURAL), Fault::HeldBack("nodes")]
    }

    fn stages(&self) -> &'static [Stage] {
        &[
            Stage {
                name: "updated",
                act: create,
                seconds: 120,
            },
            Stage {
                name: "removed",
                act: remove,
                seconds: 60,
            },
        ]
    }

    /// The agents: each reaches the state that the spec asks for.
    fn others(&self, server: &Server) {
        let agent = server.direct_as("agent");
        for shadow in agent.list(PLURAL, NAMESPACE) {
            let (wanted, status) = (&shadow["spec"]["state"], &shadow["status"]);
            if status.is_null() || status["current_state"] == *wanted {
                continue;
            }
            let mut change = json!({"status": {"current_state": wanted}});
            if wanted == "RebootedIntoUpdate" {
                change["status"]["current_version"] = status["target_version"].clone();
            }
            let name = shadow["metadata"]["name"].as_str().unwrap_or_default();
            let _ = agent.patch_status(PLURAL, NAMESPACE, name, &change);
        }
    }

    fn trim(&self, object: &mut Value) {
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("state_transition_timestamp");
        }
    }

    /// `MAX_CONCURRENT_UPDATE`: active is what is not Idle, or not in the state of its spec.
    fn judge(&self, history: &History) -> Vec<String> {
        let mut active: BTreeMap<&str, bool> = BTreeMap::new();
        for version in history.versions.iter().filter(|v| v.resource == PLURAL) {
            let (wanted, status) = (
                &version.object()["spec"]["state"],
                &version.object()["status"],
            );
            let now = version.kind != ChangeKind::Deleted
                && !status.is_null()
                && (status["current_state"] != "Idle" || status["current_state"] != *wanted);
            active.insert(&version.name, now);
            let names: Vec<&str> = active
                .iter()
                .filter(|(_, is)| **is)
                .map(|(name, _)| *name)
                .collect();
            if names.len() > 1 {
                let at = version.elapsed;
                return vec![format!(
                    "at {at:.1?} more nodes are updated than MAX_CONCURRENT_UPDATE: {names:?}"
                )];
            }
        }
        Vec::new()
    }
}

fn create(server: &Server) {
    let direct = server.direct();
    for name in NODES {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {INTERFACE: "2.0.0"}}});
        let uid = direct.create(node).unwrap_or_default()["metadata"]["uid"].clone();
        let shadow = format!("brs-{name}");
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
        let _ = direct.create(json!({
            "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
            "metadata": {"name": shadow, "namespace": NAMESPACE, "ownerReferences": [owner]},
            "spec": {"state": "Idle", "state_transition_timestamp": null, "version": null},
        }));
        let status = json!({"status": {"current_version": "1.0.0", "target_version": "1.1.0",
            "current_state": "Idle", "crash_count": 0}});
        let _ = server
            .direct_as("agent")
            .patch_status(PLURAL, NAMESPACE, &shadow, &status);
    }
}

/// The operator is taken off the nodes.
fn remove(server: &Server) {
    for name in NODES {
        let _ = server.direct().patch(
            "nodes",
            "",
            name,
            &json!({"metadata": {"labels": {INTERFACE: null}}}),
        );
    }
}
