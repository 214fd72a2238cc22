//! The views of nodes and pods: what is read of them, and what is kept.
//!
//! The watched structs are lenient (an absent field is empty) and name only the fields that are
//! used; the views are slim, since there is one for each node and pod of the cluster.

use std::collections::BTreeMap;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Serialize};

use super::pod::{ATTEMPT_ANNOTATION, NAME_LABEL, REVISION_LABEL};
use my_operator_runtime::reconcile::raw;

/// A node as it is watched.
#[derive(kube::Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Node")]
#[serde(default)]
pub struct WatchedNode {
    /// The node's metadata, as far as it is used.
    #[serde(deserialize_with = "raw::labelled")]
    pub metadata: ObjectMeta,
    /// The fields of its spec that are used.
    pub spec: WatchedNodeSpec,
    /// The fields of its status that are used.
    pub status: WatchedStatus,
}

/// The fields of a node's spec that are used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchedNodeSpec {
    /// Whether the node is cordoned.
    pub unschedulable: bool,
    /// The node's taints.
    pub taints: Vec<Taint>,
}

/// The fields of a node's or pod's status that are used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchedStatus {
    /// Of a pod: Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
    /// Of a pod: why it is in that phase, such as Evicted.
    pub reason: String,
    /// The conditions.
    pub conditions: Vec<WatchedCondition>,
    /// Of a pod: its ordinary containers.
    pub container_statuses: Vec<WatchedContainer>,
    /// Of a pod: its init containers.
    pub init_container_statuses: Vec<WatchedContainer>,
}

/// A condition of a node or pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchedCondition {
    /// Such as Ready.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// When the status last changed.
    #[serde(deserialize_with = "raw::time")]
    pub last_transition_time: Option<DateTime<Utc>>,
}

/// The state of one container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchedContainer {
    /// How often the kubelet restarted it.
    pub restart_count: i32,
    /// Its state.
    pub state: WatchedState,
}

/// The state of a container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchedState {
    /// It waits, and for what.
    pub waiting: Option<WatchedReason>,
    /// It has ended, and how.
    pub terminated: Option<WatchedReason>,
}

/// Why a container waits or has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchedReason {
    /// CamelCase, such as `CrashLoopBackOff`.
    pub reason: String,
    /// When it ended.
    #[serde(deserialize_with = "raw::time")]
    pub finished_at: Option<DateTime<Utc>>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// A pod as it is watched.
#[derive(kube::Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
#[serde(default)]
pub struct WatchedPod {
    /// The pod's metadata, as far as it is used.
    #[serde(deserialize_with = "raw::metadata")]
    pub metadata: ObjectMeta,
    /// The fields of its spec that are used.
    pub spec: WatchedPodSpec,
    /// The fields of its status that are used.
    pub status: WatchedStatus,
}

/// The fields of a pod's spec that are used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchedPodSpec {
    /// The node that the pod runs on.
    pub node_name: String,
}

/// What the cache holds of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// When the node joined.
    pub created: DateTime<Utc>,
    /// The labels, in order of their keys.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The taints.
    pub taints: Box<[Taint]>,
    /// Whether the node is cordoned and takes no new pods.
    pub cordoned: bool,
    /// Since when the node has not been Ready; `None` while it is.
    pub not_ready_since: Option<DateTime<Utc>>,
    /// When the node is first known to have been Ready; `None` before.
    pub ready_from: Option<DateTime<Utc>>,
}

/// A node that joins is NotReady at first. A node that is first seen NotReady counts as having been
/// Ready before only if its condition changed this long after it joined. A reboot during
/// provisioning is over by then, and no kubelet's clock is wrong by that much.
const JOINING: TimeDelta = TimeDelta::minutes(5);

impl NodeView {
    /// The view of a watched node, observed at `now`.
    pub fn of(node: WatchedNode, now: DateTime<Utc>) -> Self {
        let created = utc(node.metadata.creation_timestamp.as_ref()).unwrap_or(now);
        let ready = node.status.conditions.iter().find(|c| c.type_ == "Ready");
        let changed = ready.and_then(|condition| condition.last_transition_time);
        let changed = changed.unwrap_or(created).min(now);
        let is_ready = ready.is_some_and(|condition| condition.status == "True");
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
            labels: labels
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            taints: node.spec.taints.into(),
            cordoned: node.spec.unschedulable,
            not_ready_since,
            ready_from,
        }
    }

    /// The same view with the instants at which the operator itself saw the node become Ready and
    /// NotReady: the node's clock may be wrong. If it is behind, the pods of the node would be
    /// deleted regardless of the limits; if it is ahead, a node that joins would seem to have
    /// failed after it got its pod.
    #[must_use]
    pub fn after(mut self, before: Option<&Self>, now: DateTime<Utc>) -> Self {
        if let Some(before) = before.filter(|before| before.uid == self.uid) {
            if let Some(since) = &mut self.not_ready_since {
                *since = before.not_ready_since.unwrap_or(now);
            }
            let is_ready = self.not_ready_since.is_none();
            // Truncated to a whole second, as the creation of a pod is: otherwise a pod created
            // within that second would seem to be older.
            let seen = is_ready.then(|| now.trunc_subsecs(0));
            self.ready_from = before.ready_from.or(seen);
        }
        self
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self
            .labels
            .binary_search_by(|(name, _)| name.as_ref().cmp(key))
            .ok()?;
        self.labels.get(at).map(|(_, value)| value.as_ref())
    }
}

/// What the cache holds of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodView {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; empty for a created pod that was not observed yet.
    pub uid: String,
    /// The name of the object that controls the pod; for an orphan, the one in our label.
    pub owner: String,
    /// The UID of the object that controls the pod; empty for an orphan.
    pub owner_uid: String,
    /// Whether our label does not name the object that controls the pod: it was removed.
    pub is_released: bool,
    /// `spec.nodeName`.
    pub node: String,
    /// The hash of the revision that the pod was created from.
    pub revision: String,
    /// How many pods of this revision failed before it on this node, in a row.
    pub attempt: u32,
    /// `metadata.creationTimestamp`.
    pub created: DateTime<Utc>,
    /// Whether the pod is being deleted.
    pub deleting: bool,
    /// Since when the pod has been Ready; `None` while it is not.
    pub ready_since: Option<DateTime<Utc>>,
    /// The same by the kubelet's clock, which may be wrong.
    pub ready_by_kubelet: Option<DateTime<Utc>>,
    /// When the pod ended, if it has.
    pub ended: Option<DateTime<Utc>>,
    /// What is wrong with the pod, in a word or two.
    pub trouble: Option<Box<str>>,
    /// The most restarts of any of its containers.
    pub restarts: u32,
    /// `metadata.resourceVersion` of a pod that is not Ready. Others do not need it, and it would
    /// make an event of every change.
    pub version: Option<Box<str>>,
}

/// Reasons of a waiting container that are not part of an ordinary start.
const TROUBLES: &[&str] = &[
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "PreStartHookError",
    "PostStartHookError",
];

impl PodView {
    /// The view of a watched pod, observed at `now`.
    ///
    /// Times written by a kubelet count as `now` at the latest: its clock may be ahead, and nothing
    /// must wait for it (kubernetes/kubernetes#77203). They count as the pod's creation at the
    /// earliest: with a clock behind, every pause would be over before it began.
    pub fn of(pod: WatchedPod, now: DateTime<Utc>) -> Self {
        let metadata = pod.metadata;
        let created = utc(metadata.creation_timestamp.as_ref()).unwrap_or(now);
        let text = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key)).cloned()
        };
        let owner = controller(metadata.owner_references.as_deref());
        let label = text(&metadata.labels, NAME_LABEL);
        let ready_by_kubelet = ready_since(&pod.status, created);
        let version = metadata
            .resource_version
            .filter(|_| ready_by_kubelet.is_none());
        Self {
            version: version.map(Into::into),
            is_released: owner.is_some_and(|o| label.as_deref() != Some(o.name.as_str())),
            owner: owner.map(|o| o.name.clone()).or(label).unwrap_or_default(),
            owner_uid: owner.map(|o| o.uid.clone()).unwrap_or_default(),
            node: pod.spec.node_name,
            revision: text(&metadata.labels, REVISION_LABEL).unwrap_or_default(),
            attempt: text(&metadata.annotations, ATTEMPT_ANNOTATION)
                .and_then(|n| n.parse().ok())
                .unwrap_or_default(),
            created,
            deleting: metadata.deletion_timestamp.is_some(),
            ready_since: ready_by_kubelet.map(|t| t.max(created).min(now)),
            ready_by_kubelet,
            ended: ended(&pod.status, created).map(|t| t.max(created).min(now)),
            trouble: trouble(&pod.status).map(Into::into),
            restarts: restarts(&pod.status),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
        }
    }

    /// The same view with the instants that an earlier view already had. While the kubelet's clock
    /// is ahead, its times count as `now`, and each event of the pod would move them: an available
    /// pod would be young again.
    #[must_use]
    pub fn after(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| before.uid == self.uid) {
            if before.ready_by_kubelet == self.ready_by_kubelet {
                self.ready_since = before.ready_since;
            }
            // A pod that has ended stays ended.
            self.ended = self.ended.and(before.ended).or(self.ended);
        }
        self
    }

    /// Whether the pod has no controller although this operator could have created it.
    pub fn is_orphan(&self) -> bool {
        let may_be_ours = !self.revision.is_empty() && !self.node.is_empty();
        self.owner_uid.is_empty() && !self.uid.is_empty() && may_be_ours
    }

    /// Whether the pod is neither being deleted nor ended.
    pub fn is_live(&self) -> bool {
        !self.deleting && self.ended.is_none()
    }

    /// Whether the pod is Ready.
    pub fn is_ready(&self) -> bool {
        self.is_live() && self.ready_since.is_some()
    }
}

/// The owner reference of the controller, of which an object has at most one.
pub fn controller(references: Option<&[OwnerReference]>) -> Option<&OwnerReference> {
    references?.iter().find(|r| r.controller == Some(true))
}

/// Converts a time of the API.
pub fn utc(time: Option<&Time>) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(time?.0.as_second(), 0)
}

fn containers(status: &WatchedStatus) -> impl Iterator<Item = &WatchedContainer> {
    status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
}

fn ready_since(status: &WatchedStatus, created: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready")?;
    (ready.status == "True").then(|| ready.last_transition_time.unwrap_or(created))
}

/// When a pod ended: the latest instant in its status.
fn ended(status: &WatchedStatus, created: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if !matches!(status.phase.as_str(), "Failed" | "Succeeded") {
        return None;
    }
    let finished = containers(status).filter_map(|c| c.state.terminated.as_ref()?.finished_at);
    let changed = status
        .conditions
        .iter()
        .filter_map(|c| c.last_transition_time);
    Some(finished.chain(changed).max().unwrap_or(created))
}

fn trouble(status: &WatchedStatus) -> Option<String> {
    match status.phase.as_str() {
        "Failed" if status.reason.is_empty() => {
            let ended = containers(status).filter_map(|c| c.state.terminated.as_ref());
            let reasons = ended.map(|t| t.reason.as_str());
            let why = reasons
                .into_iter()
                .find(|reason| !reason.is_empty() && *reason != "Completed");
            Some(why.unwrap_or("Failed").to_owned())
        }
        "Failed" => Some(status.reason.clone()),
        "Succeeded" => Some("Completed".to_owned()),
        _ => containers(status)
            .filter_map(|c| c.state.waiting.as_ref())
            .map(|waiting| waiting.reason.as_str())
            .find(|reason| TROUBLES.contains(reason))
            .or_else(|| is_restarting(status).then_some("Restarting"))
            .map(str::to_owned),
    }
}

/// A container that keeps crashing runs in between, which is no recovery.
fn is_restarting(status: &WatchedStatus) -> bool {
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
    restarts(status) > 1 && ready.is_none_or(|c| c.status != "True")
}

fn restarts(status: &WatchedStatus) -> u32 {
    containers(status)
        .map(|c| u32::try_from(c.restart_count).unwrap_or_default())
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn node(value: Value, now: i64) -> NodeView {
        NodeView::of(serde_json::from_value(value).unwrap(), at(now))
    }

    fn pod(value: Value, now: i64) -> PodView {
        PodView::of(serde_json::from_value(value).unwrap(), at(now))
    }

    #[test]
    fn a_heartbeat_changes_nothing_in_the_view_of_a_node() {
        let with = |beat: &str| {
            json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": beat,
                                "creationTimestamp": "1970-01-01T00:00:10Z",
                                "labels": {"b": "2", "a": "1"}},
                   "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "podCIDR": "x"},
                   "status": {"conditions": [{"type": "Ready", "status": "True",
                              "lastHeartbeatTime": beat, "lastTransitionTime": "1970-01-01T00:00:20Z"}]}})
        };
        let first = node(with("1970-01-01T00:01:00Z"), 100);
        assert_eq!(first, node(with("1970-01-01T00:02:00Z"), 200));
        assert_eq!((first.label("a"), first.label("c")), (Some("1"), None));
        assert_eq!(first.not_ready_since, None);
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
    fn a_node_fell_silent_when_the_operator_saw_it_whatever_the_nodes_clock_says() {
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

    #[test]
    fn a_clock_that_is_ahead_makes_no_pod_young_again() {
        let seen = |changed: &str, phase: &str, now| {
            let view = json!({"metadata": {"uid": "u", "creationTimestamp": "1970-01-01T00:00:10Z"},
                "status": {"phase": phase, "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": changed}]}});
            pod(view, now)
        };
        let ahead = "1970-01-01T00:03:20Z";
        let first = seen(ahead, "Running", 30);
        for now in [40, 100, 300] {
            let later = seen(ahead, "Running", now).after(Some(&first));
            assert_eq!(later, first);
        }
        // It was not Ready in between.
        let again = seen("1970-01-01T00:03:30Z", "Running", 40).after(Some(&first));
        assert_eq!(again.ready_since, Some(at(40)));
        let ended = seen(ahead, "Failed", 50).after(Some(&first));
        assert_eq!(ended.ended, Some(at(50)));
        assert_eq!(
            seen(ahead, "Failed", 60).after(Some(&ended)).ended,
            Some(at(50))
        );
        let namesake = PodView {
            uid: "v".into(),
            ..first
        };
        let other = seen(ahead, "Running", 40).after(Some(&namesake));
        assert_eq!(other.ready_since, Some(at(40)));
    }

    #[test]
    fn a_nodes_clock_that_is_behind_ends_no_pause() {
        let status = |phase: &str| {
            json!({"metadata": {"creationTimestamp": "1970-01-01T00:01:00Z"}, "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:05Z"}]}})
        };
        assert_eq!(pod(status("Running"), 100).ready_since, Some(at(60)));
        assert_eq!(pod(status("Failed"), 100).ended, Some(at(60)));
    }

    #[test]
    fn a_running_pod_is_read() {
        let view = pod(
            json!({"metadata": {"name": "n-x", "uid": "u", "creationTimestamp": "1970-01-01T00:00:10Z",
                    "labels": {"apps.zhongmingmao.io/revision": "abc", "apps.zhongmingmao.io/mydaemonset": "o"},
                    "annotations": {"apps.zhongmingmao.io/attempt": "3"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "no", "uid": "no"},
                        {"apiVersion": "v1", "kind": "X", "name": "o", "uid": "ou", "controller": true}]},
                   "spec": {"nodeName": "n", "containers": []},
                   "status": {"phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:30Z"}],
                    "containerStatuses": [{"restartCount": 2, "state": {"running": {}}}]}}),
            100,
        );
        assert_eq!(
            view,
            PodView {
                name: "n-x".into(),
                uid: "u".into(),
                owner: "o".into(),
                owner_uid: "ou".into(),
                node: "n".into(),
                revision: "abc".into(),
                attempt: 3,
                created: at(10),
                ready_since: Some(at(30)),
                ready_by_kubelet: Some(at(30)),
                restarts: 2,
                ..PodView::default()
            }
        );
    }

    #[test]
    fn a_pod_without_a_controller_is_an_orphan_and_one_without_our_label_is_released() {
        let owned = json!([{"apiVersion": "v1", "kind": "X", "name": "o", "uid": "ou", "controller": true}]);
        let seen = |label: &str, owners: Value, node: &str, revision: &str| {
            let labels = json!({
                "apps.zhongmingmao.io/mydaemonset": label,
                "apps.zhongmingmao.io/revision": revision,
            });
            let metadata =
                json!({"name": "n-x", "uid": "u", "ownerReferences": owners, "labels": labels});
            let view = pod(
                json!({"metadata": metadata, "spec": {"nodeName": node}}),
                100,
            );
            assert_eq!(view.owner, "o");
            (view.is_orphan(), view.is_released)
        };
        assert_eq!(seen("o", owned.clone(), "n", "r"), (false, false));
        assert_eq!(seen("other", owned, "n", "r"), (false, true));
        assert_eq!(seen("o", json!([]), "n", "r"), (true, false));
        // A user's own pod with our labels.
        assert_eq!(seen("o", json!([]), "", "r"), (false, false));
        assert_eq!(seen("o", json!([]), "n", ""), (false, false));
    }

    #[test]
    fn the_end_and_the_trouble_of_a_pod_are_read() {
        let evicted = pod(
            json!({"status": {"phase": "Failed", "reason": "Evicted"}}),
            100,
        );
        assert_eq!(evicted.trouble.as_deref(), Some("Evicted"));
        assert_eq!(evicted.ended, Some(at(100)), "no time is recorded");
        let crashed = pod(
            json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:10Z"},
                   "status": {"phase": "Failed", "containerStatuses": [
                    {"state": {"terminated": {"reason": "Completed", "finishedAt": "1970-01-01T00:00:30Z"}}},
                    {"state": {"terminated": {"reason": "OOMKilled", "finishedAt": "1970-01-01T00:00:40Z"}}}]}}),
            100,
        );
        assert_eq!(crashed.trouble.as_deref(), Some("OOMKilled"));
        assert_eq!(crashed.ended, Some(at(40)));
        let waiting = |reason: &str| {
            pod(
                json!({"status": {"phase": "Running", "containerStatuses": [
                    {"state": {"waiting": {"reason": reason}}}]}}),
                100,
            )
        };
        assert_eq!(
            waiting("CrashLoopBackOff").trouble.as_deref(),
            Some("CrashLoopBackOff")
        );
        assert_eq!(waiting("ContainerCreating").trouble, None);
        let between = pod(
            json!({"status": {"phase": "Running", "containerStatuses": [{"restartCount": 2}]}}),
            100,
        );
        assert_eq!(between.trouble.as_deref(), Some("Restarting"));
        assert!(waiting("CrashLoopBackOff").ended.is_none());
    }

    #[test]
    fn a_time_in_the_year_10000_does_not_block_the_watch() {
        let far = "10000-01-01T00:59:59Z";
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": far});
        let node = json!({"metadata": {"name": "n"}, "status": {"conditions": [condition]}});
        serde_json::from_str::<WatchedNode>(&node.to_string()).unwrap();
        let ended = json!({"state": {"terminated": {"reason": "Error", "finishedAt": far}}});
        let pod = json!({"metadata": {"name": "p"},
            "status": {"conditions": [condition], "containerStatuses": [ended], "startTime": far}});
        serde_json::from_str::<WatchedPod>(&pod.to_string()).unwrap();
    }
}
