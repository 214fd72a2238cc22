//! What a fake node is: a Node object without a machine.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::fake_kubelet::NODE_ANNOTATION;

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
    /// [`Cluster::set_node_ready`](crate::Cluster::set_node_ready).
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
    pub(crate) fn object(&self) -> Node {
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
