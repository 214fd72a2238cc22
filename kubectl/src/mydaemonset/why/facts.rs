//! What is known of the nodes, the pods and their Events: as much of each object as a cause needs, whatever is stored.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::{Event, Node, NodeCondition, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use my_operator_kind::watched::utc;
use my_operator_mydaemonset::observe::node::{NodeView, WatchedNode};
use my_operator_mydaemonset::observe::pod::{PodView, WatchedPod};
use my_operator_mydaemonset::revision::RevisionView;
use my_operator_mydaemonset::why::Seen;
use serde::Deserialize as _;
use serde_json::Value;

use crate::connection::Failure;
use crate::mydaemonset::object::Object;

/// Everything that a cause is found from, besides the object.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// By name. `None` if the user may not list nodes: then only those with a pod are known.
    pub(super) nodes: Option<BTreeMap<String, NodeFacts>>,
    pub(super) pods: Vec<PodFacts>,
    pub(super) revisions: Vec<Arc<RevisionView>>,
    /// By the UID of the pod.
    pub(super) warnings: BTreeMap<String, Vec<Warning>>,
    /// The kinds of objects that the user may not list, and the answer.
    pub(super) missing: Vec<(Cow<'static, str>, Failure)>,
}

impl Fleet {
    pub(crate) fn lacks(&self, kind: &str) -> bool {
        self.missing.iter().any(|(missing, _)| missing == kind)
    }

    /// The fleet, if the user may list pods.
    pub(crate) fn with_pods(mut self) -> Result<Self, Failure> {
        match self.missing.iter().position(|(kind, _)| kind == "pods") {
            Some(at) => Err(self.missing.swap_remove(at).1),
            None => Ok(self),
        }
    }

    /// What the causes are found from.
    pub(crate) fn seen<'a>(&self, object: &'a Object) -> Seen<'a> {
        let nodes = self.nodes.as_ref().map(BTreeMap::values);
        object.seen(
            nodes.map(|nodes| nodes.map(|node| node.view.clone()).collect()),
            self.pods.iter().map(|pod| pod.view.clone()).collect(),
            self.revisions.clone(),
        )
    }
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub(super) view: Arc<NodeView>,
    /// Since when it is being deleted.
    pub(super) deleting: Option<DateTime<Utc>>,
    pub(super) taints: Vec<Taint>,
    pub(super) conditions: Vec<NodeCondition>,
}

impl NodeFacts {
    /// `None` if it is not a node. One that cannot be read in full has only its view.
    pub(super) fn read(object: Value, now: DateTime<Utc>) -> Option<Self> {
        let view = NodeView::from_watched(WatchedNode::deserialize(&object).ok()?, now);
        let node: Node = serde_json::from_value(object).unwrap_or_default();
        let conditions = node.status.and_then(|status| status.conditions);
        Some(Self {
            view: Arc::new(view),
            deleting: utc(node.metadata.deletion_timestamp.as_ref()),
            taints: node.spec.and_then(|spec| spec.taints).unwrap_or_default(),
            conditions: conditions.unwrap_or_default(),
        })
    }
}

/// A pod.
#[derive(Clone, Debug)]
pub(super) struct PodFacts {
    pub(super) view: Arc<PodView>,
    /// All of it, unless it is Ready: then there is nothing to explain.
    pub(super) full: Option<Box<Pod>>,
}

impl PodFacts {
    /// `None` if it is not a pod. One that cannot be read in full has only its view.
    pub(super) fn read(object: Value, now: DateTime<Utc>) -> Option<Self> {
        let view = PodView::from_watched(WatchedPod::deserialize(&object).ok()?, now);
        let full = if view.is_ready() {
            None
        } else {
            serde_json::from_value(object).ok().map(Box::new)
        };
        let view = Arc::new(view);
        Some(Self { view, full })
    }
}

/// A Warning Event of a pod.
#[derive(Clone, Debug)]
pub(super) struct Warning {
    pub(super) reason: String,
    pub(super) message: String,
    /// When it was seen last.
    pub(super) at: Option<DateTime<Utc>>,
}

impl Warning {
    /// The UID of the object that an Event is about, and what it says.
    pub(super) fn read(event: Value) -> Option<(String, Self)> {
        let event: Event = serde_json::from_value(event).ok()?;
        let last = event.series.and_then(|series| series.last_observed_time);
        let last = last.or(event.event_time).map(|time| Time(time.0));
        let warning = Self {
            reason: event.reason?,
            message: event.message.unwrap_or_default(),
            at: utc(event.last_timestamp.or(last).as_ref()),
        };
        Some((event.involved_object.uid?, warning))
    }
}
