//! Nodes: what is read of them, and what is kept.

use std::fmt;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use my_operator_kind::watched::{WatchedStatus, utc};
use wall_clock_controller::reconcile::raw;

/// A node as it is watched.
#[derive(kube::Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Node")]
#[serde(default)]
pub struct WatchedNode {
    /// The node's metadata, as far as it is used.
    #[serde(deserialize_with = "raw::labelled")]
    pub(crate) metadata: ObjectMeta,
    /// The fields of its spec that are used.
    pub(crate) spec: WatchedNodeSpec,
    /// The fields of its status that are used.
    pub(crate) status: WatchedStatus,
}

/// The fields of a node's spec that are used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WatchedNodeSpec {
    /// Whether the node is cordoned.
    pub(crate) unschedulable: bool,
    /// The node's taints.
    pub(crate) taints: Vec<Taint>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub(crate) key: String,
    pub(crate) value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub(crate) effect: String,
}

impl fmt::Display for Taint {
    /// As kubectl writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect)
    }
}

/// The conditions of a node that say that it is out of service at the moment, of those of Kubernetes' KEP-5683. The others
/// do not: until planned maintenance begins, the node serves; and `Drained` may outlast an uncordon.
pub const OUT_OF_SERVICE: [&str; 3] = [
    "DrainInProgress",
    "GracefulNodeShutdownInProgress",
    "MaintenanceInProgress",
];

/// What the cache holds of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// `metadata.name`.
    pub name: String,
    pub(crate) uid: String,
    /// When the node joined.
    pub(crate) created: DateTime<Utc>,
    pub(crate) labels: Labels,
    pub(crate) taints: Box<[Taint]>,
    /// Whether the node is cordoned and takes no new pods.
    pub cordoned: bool,
    /// Whether a condition says that it is being drained, shut down or worked on. Only `True` does.
    pub in_maintenance: bool,
    /// Since when the node has not been Ready; `None` while it is.
    pub not_ready_since: Option<DateTime<Utc>>,
    /// Whether it has not been Ready since it was in maintenance, as far as the operator saw that.
    pub(crate) down_since_maintenance: bool,
    /// When the node is first known to have been Ready; `None` before.
    pub(crate) ready_from: Option<DateTime<Utc>>,
}

/// A node that joins is NotReady at first. A node that is first seen NotReady counts as having been
/// Ready before only if its condition changed this long after it joined. A reboot during
/// provisioning is over by then, and no kubelet's clock is wrong by that much.
const JOINING: TimeDelta = TimeDelta::minutes(5);

impl NodeView {
    /// The view of a watched node, observed at `now`.
    pub fn from_watched(node: WatchedNode, now: DateTime<Utc>) -> Self {
        let created = utc(node.metadata.creation_timestamp.as_ref()).unwrap_or(now);
        let (is_ready, changed) = node.status.ready(created);
        let changed = changed.min(now);
        let is_true = |type_: &str| {
            let condition = node.status.condition(type_);
            condition.is_some_and(|condition| condition.status == "True")
        };
        let in_maintenance = OUT_OF_SERVICE.into_iter().any(is_true);
        let not_ready_since = (!is_ready).then_some(changed);
        let ready_from = if is_ready {
            Some(changed.max(created))
        } else {
            (changed > created + JOINING).then_some(created)
        };
        let labels = node.metadata.labels.unwrap_or_default();
        Self {
            name: node.metadata.name.unwrap_or_default(),
            uid: node.metadata.uid.unwrap_or_default(),
            created,
            labels: labels.iter().collect(),
            taints: node.spec.taints.into(),
            cordoned: node.spec.unschedulable,
            in_maintenance,
            not_ready_since,
            down_since_maintenance: in_maintenance && !is_ready,
            ready_from,
        }
    }

    /// The same view with the instants at which the operator itself saw the node become Ready and
    /// NotReady: the node's clock may be wrong. If it is behind, the pods of the node would be
    /// deleted regardless of the limits; if it is ahead, a node that joins would seem to have
    /// failed after it got its pod. And with what it went down for: a node that is rebooted may be
    /// Ready some time after its maintenance is over.
    #[must_use]
    pub(crate) fn after(mut self, before: Option<&Self>, now: DateTime<Utc>) -> Self {
        if let Some(before) = before.filter(|before| before.uid == self.uid) {
            if let Some(since) = &mut self.not_ready_since {
                *since = before.not_ready_since.unwrap_or(now);
            }
            let is_ready = self.not_ready_since.is_none();
            self.down_since_maintenance |= before.down_since_maintenance && !is_ready;
            // Truncated to a whole second, as the creation of a pod is: otherwise a pod created
            // within that second would seem to be older.
            let seen = is_ready.then(|| now.trunc_subsecs(0));
            self.ready_from = before.ready_from.or(seen);
        }
        self
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }
}

/// The labels of a node as one text with a line `key=value` for each: a node has twenty to thirty, and as many texts of
/// their own would take twice the memory. Neither a key nor a value can have one of these two characters in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Labels(Box<str>);

impl Labels {
    fn get(&self, key: &str) -> Option<&str> {
        let mut lines = self.0.split_terminator('\n');
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let mut text = String::new();
        for (key, value) in labels {
            text.extend([key.as_ref(), "=", value.as_ref(), "\n"]);
        }
        Self(text.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn node(value: Value, now: i64) -> NodeView {
        NodeView::from_watched(serde_json::from_value(value).unwrap(), at(now))
    }

    #[test]
    fn a_heartbeat_changes_nothing_in_the_view_of_a_node() {
        let with = |beat: &str| {
            json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": beat,
                                "creationTimestamp": "1970-01-01T00:00:10Z",
                                "labels": {"ab": "2", "a": "1"}},
                   "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "podCIDR": "x"},
                   "status": {"conditions": [{"type": "Ready", "status": "True",
                              "lastHeartbeatTime": beat, "lastTransitionTime": "1970-01-01T00:00:20Z"}]}})
        };
        let first = node(with("1970-01-01T00:01:00Z"), 100);
        assert_eq!(first, node(with("1970-01-01T00:02:00Z"), 200));
        let labels = ["a", "ab", "b", "abc", ""].map(|key| first.label(key));
        assert_eq!(labels, [Some("1"), Some("2"), None, None, None]);
        assert_eq!(first.not_ready_since, None);
    }

    #[test]
    fn a_node_is_in_maintenance_while_a_condition_says_so() {
        let with = |type_: &str, status: &str| {
            let conditions =
                json!([{"type": "Ready", "status": "True"}, {"type": type_, "status": status}]);
            node(json!({"status": {"conditions": conditions}}), 100).in_maintenance
        };
        for type_ in [
            "DrainInProgress",
            "MaintenanceInProgress",
            "GracefulNodeShutdownInProgress",
        ] {
            assert!(with(type_, "True"), "{type_}");
            assert!(!with(type_, "False"), "{type_}");
            assert!(!with(type_, "Unknown"), "{type_}");
        }
        for type_ in ["MaintenancePlanned", "Drained", "MemoryPressure"] {
            assert!(!with(type_, "True"), "{type_}");
        }
    }

    #[test]
    fn a_node_that_went_down_in_maintenance_is_down_for_that_until_it_is_ready() {
        let seen = |ready: &str, maintained: &str, before: Option<&NodeView>| {
            let conditions = json!([{"type": "Ready", "status": ready},
                {"type": "MaintenanceInProgress", "status": maintained}]);
            let value = json!({"metadata": {"uid": "u"}, "status": {"conditions": conditions}});
            node(value, 100).after(before, at(100))
        };
        let drained = seen("True", "True", None);
        assert!(!drained.down_since_maintenance);
        let down = seen("False", "True", Some(&drained));
        let boots = seen("False", "False", Some(&down));
        let boots = seen("Unknown", "False", Some(&boots));
        assert!(down.down_since_maintenance && boots.down_since_maintenance);
        let up = seen("True", "False", Some(&boots));
        let fails = seen("False", "False", Some(&up));
        assert!(!up.down_since_maintenance && !fails.down_since_maintenance);
    }

    #[test]
    fn a_node_is_not_ready_since_its_condition_says_so_or_since_it_joined() {
        let condition = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:10Z"}, "status": {"conditions": [
            {"type": "Ready", "status": "Unknown", "lastTransitionTime": "1970-01-01T00:00:50Z"}]}});
        assert_eq!(node(condition.clone(), 100).not_ready_since, Some(at(50)));
        // A clock ahead of ours.
        assert_eq!(node(condition, 40).not_ready_since, Some(at(40)));
        let bare = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:10Z"}});
        assert_eq!(node(bare, 100).not_ready_since, Some(at(10)));
    }

    #[test]
    fn not_ready_counts_from_when_the_operator_saw_it_not_from_the_nodes_clock() {
        let silent = |since: i64| NodeView {
            uid: "u".into(),
            not_ready_since: Some(at(since)),
            ..NodeView::default()
        };
        let well = NodeView {
            not_ready_since: None,
            ready_from: Some(at(5)),
            ..silent(0)
        };
        let since = |before: Option<&NodeView>| silent(20).after(before, at(100)).not_ready_since;
        assert_eq!(since(None), Some(at(20)), "nothing better is known");
        assert_eq!(since(Some(&well)), Some(at(100)));
        assert_eq!(since(Some(&silent(60))), Some(at(60)));
        let namesake = NodeView {
            uid: "v".into(),
            ..well.clone()
        };
        assert_eq!(since(Some(&namesake)), Some(at(20)));
        let recovered = NodeView {
            ready_from: Some(at(100)),
            ..well.clone()
        };
        assert_eq!(well.after(Some(&silent(60)), at(100)), recovered);
    }

    #[test]
    fn a_node_is_known_to_have_been_ready_once_it_was_seen_so() {
        let with = |status: &str, changed: &str, now| {
            let view = json!({"metadata": {"uid": "u", "creationTimestamp": "1970-01-01T00:00:10Z"},
                "status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": changed}]}});
            node(view, now)
        };
        let soon = "1970-01-01T00:00:10Z";
        let joining = with("False", soon, 11);
        assert_eq!(joining.ready_from, None);
        // A kubelet died, or was restarted, before the node was ever Ready.
        assert_eq!(with("Unknown", "1970-01-01T00:01:00Z", 99).ready_from, None);
        assert_eq!(with("False", "1970-01-01T00:05:10Z", 999).ready_from, None);
        // After a restart of the operator, only the node's own report is left.
        let late = with("False", "1970-01-01T00:05:11Z", 999);
        assert_eq!(late.ready_from, Some(at(10)));
        let ready = with("True", "1970-01-01T00:00:30Z", 40);
        assert_eq!(ready.ready_from, Some(at(30)));
        assert_eq!(
            with("True", "1970-01-01T00:00:30Z", 20).ready_from,
            Some(at(20))
        );
        // What the operator saw itself takes precedence.
        let seen = ready.clone().after(Some(&joining), at(50));
        assert_eq!(seen.ready_from, Some(at(50)));
        let within = at(50) + TimeDelta::milliseconds(900);
        assert_eq!(ready.clone().after(Some(&joining), within), seen);
        let failed = with("Unknown", "1970-01-01T00:01:00Z", 70).after(Some(&seen), at(70));
        assert_eq!(failed.ready_from, Some(at(50)));
        assert_eq!(failed.not_ready_since, Some(at(70)));
        assert_eq!(late.clone().after(Some(&joining), at(70)).ready_from, None);
    }
}
