//! The objects that are rolled out, and the writes that the bench makes.

use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::plane::{NAMESPACE, PODS, Plane, Stored, at_once, node};

/// What the pods of a fresh object run.
pub(super) const IMAGE: &str = "nginx:stable-alpine3.17";
/// What they run after the change.
pub(super) const CHANGED: &str = "nginx:stable-alpine3.18";
/// Of how many nodes the pod may be gone during a change.
const MAX_UNAVAILABLE: &str = "10%";

/// What every daemon tolerates.
const TOLERATIONS: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];

/// Which kind is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    MyDaemonSet,
    DaemonSet,
}

impl Kind {
    /// Where its objects are.
    fn folder(self) -> &'static str {
        match self {
            Self::MyDaemonSet => {
                "/apis/apps.zhongmingmao.io/v1beta1/namespaces/default/mydaemonsets"
            }
            Self::DaemonSet => "/apis/apps/v1/namespaces/default/daemonsets",
        }
    }

    fn spec(self, name: &str, image: &str) -> Value {
        let strategy = json!({
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": MAX_UNAVAILABLE},
        });
        match self {
            Self::MyDaemonSet => json!({"image": image, "updateStrategy": strategy}),
            Self::DaemonSet => json!({
                "selector": {"matchLabels": {"set": name}},
                "template": {
                    "metadata": {"labels": {"set": name}},
                    "spec": {"containers": [{"name": "app", "image": image}]},
                },
                "updateStrategy": strategy,
            }),
        }
    }
}

/// Whether the status of that generation shows a ready pod on each of `nodes` nodes, and no other pod.
pub(super) fn is_right(object: &Value, generation: i64, nodes: usize) -> bool {
    let status = &object["status"];
    let all = |field: &str| status[field] == nodes;
    status["observedGeneration"] == generation
        && all("desiredNumberScheduled")
        && all("updatedNumberScheduled")
        && all("numberReady")
        && all("numberAvailable")
}

impl Plane {
    /// Creates an object.
    pub(super) async fn create_set(&self, kind: Kind, name: &str) -> Result<Stored> {
        let (api_version, kind_name) = match kind {
            Kind::MyDaemonSet => ("apps.zhongmingmao.io/v1beta1", "MyDaemonSet"),
            Kind::DaemonSet => ("apps/v1", "DaemonSet"),
        };
        let set = json!({
            "apiVersion": api_version,
            "kind": kind_name,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": kind.spec(name, IMAGE),
        });
        self.post(kind.folder(), &set).await
    }

    /// Gives it another image.
    pub(super) async fn change_set(&self, kind: Kind, name: &str) -> Result<()> {
        let path = format!("{}/{name}", kind.folder());
        let change = json!({"spec": kind.spec(name, CHANGED)});
        let type_ = "application/merge-patch+json";
        self.call("PATCH", &path, type_, &change).await?;
        Ok(())
    }

    /// Waits in the background until its status is right.
    pub(super) async fn watch_status(
        &self,
        kind: Kind,
        name: &str,
        generation: i64,
        nodes: usize,
    ) -> Result<JoinHandle<Result<DateTime<Utc>>>> {
        let right = move |object: &Value| is_right(object, generation, nodes);
        self.watch_one(kind.folder(), name, right).await
    }

    /// Creates the pods of an object as this operator does, and nothing else.
    pub(super) async fn create_pods(&self, owner: &Stored, count: usize) -> Result<()> {
        at_once(count, |number| self.create_pod(owner, node(number + 1))).await?;
        Ok(())
    }

    async fn create_pod(&self, owner: &Stored, node: String) -> Result<()> {
        let (name, uid) = (&owner.metadata.name, &owner.metadata.uid);
        let tolerate = |(key, effect): (&str, &str)| {
            let key = format!("node.kubernetes.io/{key}");
            json!({"key": key, "operator": "Exists", "effect": effect})
        };
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": format!("{node}-0123456789"),
                "namespace": NAMESPACE,
                "labels": {
                    "app.kubernetes.io/managed-by": "my-operator",
                    "apps.zhongmingmao.io/mydaemonset": name,
                    "apps.zhongmingmao.io/revision": "0123456789",
                },
                "annotations": {"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"},
                "ownerReferences": [{
                    "apiVersion": "apps.zhongmingmao.io/v1beta1",
                    "kind": "MyDaemonSet",
                    "name": name,
                    "uid": uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "app", "image": IMAGE}],
                "tolerations": TOLERATIONS.map(tolerate),
            },
        });
        let create = format!("{PODS}?fieldManager=bare&fieldValidation=Strict");
        self.post(&create, &pod).await?;
        Ok(())
    }

    /// Sends `count` heartbeats of the nodes in turn, `rate` per second.
    pub(super) async fn beat(&self, nodes: usize, count: usize, rate: u32) -> Result<()> {
        let begin = Instant::now();
        let first = Utc::now();
        at_once(count, |number| async move {
            let due = Duration::from_secs(1) * u32::try_from(number)? / rate;
            tokio::time::sleep_until(begin + due).await;
            // The API stores whole seconds. A heartbeat must differ from the one before.
            let round = i64::try_from(number / nodes)?;
            let now = (first + TimeDelta::seconds(round))
                .to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            let beat =
                json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": now}]}});
            let path = format!("/api/v1/nodes/{}/status", node(number % nodes + 1));
            let type_ = "application/strategic-merge-patch+json";
            self.call("PATCH", &path, type_, &beat).await
        })
        .await?;
        Ok(())
    }
}
