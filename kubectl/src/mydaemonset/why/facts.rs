//! What is known of the nodes, the pods and their Events: as much of each object as a cause needs, whatever is stored.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use my_operator_kind::watched::utc;
use my_operator_mydaemonset::observe::node::{NodeView, OUT_OF_SERVICE, WatchedNode};
use my_operator_mydaemonset::observe::pod::{PodView, WatchedPod};
use serde::Deserialize as _;
use serde_json::Value;

/// Everything that a cause is found from, besides the object.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// By name. `None` if the user may not list nodes: then only those with a pod are known.
    pub(super) nodes: Option<BTreeMap<String, NodeFacts>>,
    pub(super) pods: Vec<PodFacts>,
    /// By the UID of the pod.
    pub(super) warnings: BTreeMap<String, Vec<Warning>>,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub(super) view: NodeView,
    /// Since when it is being deleted.
    pub(super) deleting: Option<DateTime<Utc>>,
    pub(super) taints: Vec<Taint>,
    /// What its condition Ready says.
    pub(super) ready: String,
    /// Since when it is out of service, and the message of the condition that says so.
    pub(super) maintenance: Option<(Option<DateTime<Utc>>, String)>,
}

impl NodeFacts {
    /// `None` if it is not a node. One that cannot be read in full has only its view.
    pub(super) fn read(object: Value, now: DateTime<Utc>) -> Option<Self> {
        let view = NodeView::from_watched(WatchedNode::deserialize(&object).ok()?, now);
        let node: Node = serde_json::from_value(object).unwrap_or_default();
        let conditions = node.status.and_then(|status| status.conditions);
        let conditions = conditions.unwrap_or_default();
        let ready = conditions.iter().find(|it| it.type_ == "Ready");
        let words =
            ready.map(|ready| joined([None, ready.reason.as_ref(), ready.message.as_ref()]));
        let mut others = conditions.iter().filter(|it| it.status == "True");
        let maintenance = others.find(|it| OUT_OF_SERVICE.contains(&it.type_.as_str()));
        let maintenance = maintenance.map(|it| {
            let words = [Some(&it.type_), it.reason.as_ref(), it.message.as_ref()];
            (utc(it.last_transition_time.as_ref()), joined(words))
        });
        Some(Self {
            view,
            deleting: utc(node.metadata.deletion_timestamp.as_ref()),
            taints: node.spec.and_then(|spec| spec.taints).unwrap_or_default(),
            ready: words.unwrap_or_default(),
            maintenance,
        })
    }
}

/// The words that there are.
fn joined(words: [Option<&String>; 3]) -> String {
    let words = words.into_iter().flatten().map(String::as_str);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(": ")
}

/// A pod.
#[derive(Clone, Debug)]
pub(super) struct PodFacts {
    pub(super) view: PodView,
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
    pub(super) fn read(event: &Value) -> Option<(String, Self)> {
        let text = |at: &str| event.pointer(at).and_then(Value::as_str);
        let times = [
            "/series/lastObservedTime",
            "/lastTimestamp",
            "/eventTime",
            "/firstTimestamp",
        ];
        let at = times.into_iter().filter_map(text).find_map(|text| {
            let time = DateTime::parse_from_rfc3339(text).ok()?;
            Some(time.with_timezone(&Utc))
        });
        let warning = Self {
            reason: text("/reason")?.to_owned(),
            message: text("/message").unwrap_or_default().to_owned(),
            at,
        };
        Some((text("/involvedObject/uid")?.to_owned(), warning))
    }
}
