//! Fake nodes: Node objects without a machine, for the fake kubelet.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fake_kubelet::NODE_ANNOTATION;
use crate::{Cluster, Error};

/// A node without a machine: 64 processors, 256 GiB of memory and a capacity of 500 pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakeNode {
    /// Its name.
    pub name: String,
    /// Labels besides `kubernetes.io/hostname`, `kubernetes.io/os` and `kubernetes.io/arch`, which every node has.
    pub labels: BTreeMap<String, String>,
    /// Taints as key, value and effect.
    pub taints: Vec<(String, String, String)>,
    /// Whether it is born cordoned.
    pub unschedulable: bool,
    /// Whether it is born as a kubelet registers it, before its network is there: not ready. It stays so until
    /// [`Cluster::set_node_ready`].
    pub not_ready: bool,
}

impl FakeNode {
    /// A node with nothing special.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds a taint; `effect` is `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[must_use]
    pub fn taint(
        mut self,
        key: impl Into<String>,
        value: impl Into<String>,
        effect: impl Into<String>,
    ) -> Self {
        self.taints.push((key.into(), value.into(), effect.into()));
        self
    }

    /// Cordons it from birth.
    #[must_use]
    pub fn unschedulable(mut self) -> Self {
        self.unschedulable = true;
        self
    }

    /// Lets it be born not ready.
    #[must_use]
    pub fn not_ready(mut self) -> Self {
        self.not_ready = true;
        self
    }

    /// The Node object, with the annotation that hands it to the fake kubelet.
    fn object(&self) -> Node {
        let mut labels = self.labels.clone();
        for (key, value) in [
            ("hostname", self.name.as_str()),
            ("os", "linux"),
            ("arch", "amd64"),
        ] {
            labels
                .entry(format!("kubernetes.io/{key}"))
                .or_insert_with(|| value.to_owned());
        }
        let taints = self.taints.iter().map(|(key, value, effect)| Taint {
            key: key.clone(),
            value: Some(value.clone()).filter(|value| !value.is_empty()),
            effect: effect.clone(),
            ..Taint::default()
        });
        let (key, value) = NODE_ANNOTATION;
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                annotations: Some([(key.to_owned(), value.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(taints.collect()),
                unschedulable: self.unschedulable.then_some(true),
                ..NodeSpec::default()
            }),
            status: self.not_ready.then(|| NodeStatus {
                conditions: Some(vec![NodeCondition {
                    type_: "Ready".to_owned(),
                    status: "False".to_owned(),
                    reason: Some("KubeletNotReady".to_owned()),
                    last_transition_time: Some(Time(Timestamp::now())),
                    ..NodeCondition::default()
                }]),
                ..NodeStatus::default()
            }),
        }
    }
}

impl Cluster {
    /// Adds a fake node; returns when it is ready and the taints that every node is born with are gone, or at once when
    /// it is born not ready.
    pub async fn add_node(&self, node: FakeNode) -> Result<(), Error> {
        self.add_nodes(&[node]).await
    }

    /// Adds fake nodes, thousands if need be; returns when all are ready, as with [`Cluster::add_node`].
    pub async fn add_nodes(&self, nodes: &[FakeNode]) -> Result<(), Error> {
        let api: &Api<Node> = &Api::all(self.client().await?);
        let create = |node: &FakeNode| {
            let (name, object) = (node.name.clone(), node.object());
            async move {
                let created = api.create(&PostParams::default(), &object).await;
                created.map_err(Error::api(format!("create node {name}")))?;
                Ok(())
            }
        };
        let settle = |node: &FakeNode| {
            let (name, unschedulable) = (node.name.clone(), node.unschedulable);
            async move {
                let what = format!("node {name} to be ready");
                let name = name.as_str();
                let poll = || async move {
                    let found = api
                        .get(name)
                        .await
                        .map_err(Error::api(format!("read node {name}")))?;
                    let settled = is_ready(&found)
                        && !has_taint(&found, "node.kubernetes.io/not-ready")
                        && has_taint(&found, "node.kubernetes.io/unschedulable") == unschedulable;
                    Ok(settled.then_some(()))
                };
                self.wait_for(&what, poll).await
            }
        };
        at_once(nodes.iter().map(create)).await?;
        let ready = nodes.iter().filter(|node| !node.not_ready);
        at_once(ready.map(settle)).await
    }

    /// Removes a node; returns when the object is gone. Its pods are left to the pod garbage collector, as ever.
    pub async fn remove_node(&self, name: &str) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        nodes
            .delete(name, &DeleteParams::default())
            .await
            .map_err(Error::api(format!("delete node {name}")))?;
        self.wait_for(&format!("node {name} to be gone"), || async {
            let found = nodes
                .get_opt(name)
                .await
                .map_err(Error::api(format!("read node {name}")))?;
            Ok(found.is_none().then_some(()))
        })
        .await
    }

    /// Makes a fake node ready or not ready; returns when the node controller has set the taint that goes with it.
    pub async fn set_node_ready(&self, name: &str, ready: bool) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        let (status, reason) = if ready {
            ("True", "KubeletReady")
        } else {
            ("False", "KubeletNotReady")
        };
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": reason}]}});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .map_err(Error::api(format!("change node {name}")))?;
        self.wait_for(
            &format!("the taints of node {name} to follow its condition"),
            || async {
                let found = nodes
                    .get(name)
                    .await
                    .map_err(Error::api(format!("read node {name}")))?;
                Ok((has_taint(&found, "node.kubernetes.io/not-ready") != ready).then_some(()))
            },
        )
        .await
    }
}

/// How many calls are in flight at a time.
const IN_FLIGHT: usize = 32;

async fn at_once<F>(calls: impl Iterator<Item = F>) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let calls = futures::stream::iter(calls).buffer_unordered(IN_FLIGHT);
    calls.try_collect().await
}

pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == key)
}
