//! Pods: what is read of them, and what is kept.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::predecessor::Predecessor;
use crate::names::{ATTEMPT_ANNOTATION, NAME_LABEL, PREDECESSOR_ANNOTATION, REVISION_LABEL};
use my_operator_kind::watched::{WatchedContainer, WatchedStatus, controller, utc};
use wall_clock_controller::reconcile::raw;

/// A pod as it is watched.
#[derive(kube::Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
#[serde(default)]
pub struct WatchedPod {
    /// The pod's metadata, as far as it is used.
    #[serde(deserialize_with = "raw::metadata")]
    pub(crate) metadata: ObjectMeta,
    /// The fields of its spec that are used.
    pub(crate) spec: WatchedPodSpec,
    /// The fields of its status that are used.
    pub(crate) status: WatchedStatus,
}

/// The fields of a pod's spec that are used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WatchedPodSpec {
    /// The node that the pod runs on.
    pub(crate) node_name: String,
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
    /// What the node had before, if this pod replaced it in a roll-out.
    pub predecessor: Predecessor,
    /// `metadata.creationTimestamp`.
    pub created: DateTime<Utc>,
    /// Whether the pod is being deleted.
    pub deleting: bool,
    /// Since when the pod has been Ready; `None` while it is not.
    pub ready_since: Option<DateTime<Utc>>,
    /// Since when the pod has not been Ready; `None` while it is.
    pub unready_since: Option<DateTime<Utc>>,
    /// When it became so by the kubelet's clock, which may be wrong.
    pub changed_by_kubelet: DateTime<Utc>,
    /// When the pod ended, if it has.
    pub ended: Option<DateTime<Utc>>,
    /// Whether it was ended from outside: evicted, preempted, or by the shutdown of its node. The node itself said so.
    pub disrupted: bool,
    /// When its init containers were done, and so the images of the others were needed.
    pub initialized: Option<DateTime<Utc>>,
    /// What is wrong with the pod, in a word or two.
    pub trouble: Option<Box<str>>,
    /// The most restarts of any of its containers that crashed.
    pub restarts: u32,
    /// The last restart of any of its containers.
    pub last_restart: Option<Restart>,
    /// `metadata.resourceVersion` of a pod that is not Ready. Others do not need it, and it would
    /// make an event of every change.
    pub version: Option<Box<str>>,
}

/// The last restart of a container in a pod, whatever ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// How many restarts of all containers there were.
    pub count: u64,
    /// When the container ended.
    pub at: DateTime<Utc>,
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
    pub fn from_watched(pod: WatchedPod, now: DateTime<Utc>) -> Self {
        let metadata = pod.metadata;
        let created = utc(metadata.creation_timestamp.as_ref()).unwrap_or(now);
        let text = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key)).cloned()
        };
        let owner = controller(metadata.owner_references.as_deref());
        let label = text(&metadata.labels, NAME_LABEL);
        let (is_ready, changed) = pod.status.ready(created);
        let bounded = |time: DateTime<Utc>| time.max(created).min(now);
        let version = metadata.resource_version.filter(|_| !is_ready);
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
            predecessor: text(&metadata.annotations, PREDECESSOR_ANNOTATION)
                .map(|text| Predecessor::parse(&text))
                .unwrap_or_default(),
            created,
            deleting: metadata.deletion_timestamp.is_some(),
            ready_since: is_ready.then(|| bounded(changed)),
            unready_since: (!is_ready).then(|| bounded(changed)),
            changed_by_kubelet: changed,
            ended: ended(&pod.status, created).map(bounded),
            disrupted: is_disrupted(&pod.status),
            initialized: condition_since(&pod.status, "Initialized", "True").map(|t| t.min(now)),
            trouble: trouble(&pod.status).map(Into::into),
            restarts: restarts(&pod.status),
            last_restart: last_restart(&pod.status, now).map(|restart| Restart {
                at: bounded(restart.at),
                ..restart
            }),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
        }
    }

    /// The same view with the instants that an earlier view already had. While the kubelet's clock
    /// is ahead, its times count as `now`, and each event of the pod would move them: an available
    /// pod would be young again.
    #[must_use]
    pub(crate) fn after(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| before.uid == self.uid) {
            if before.changed_by_kubelet == self.changed_by_kubelet {
                self.ready_since = self
                    .ready_since
                    .and(before.ready_since)
                    .or(self.ready_since);
                self.unready_since = earlier(self.unready_since, before.unready_since);
            }
            self.initialized = earlier(self.initialized, before.initialized);
            let restarts = |pod: &Self| pod.last_restart.map(|restart| restart.count);
            if restarts(before) == restarts(&self) {
                self.last_restart = before.last_restart;
            }
            // A pod that has ended stays ended.
            self.ended = self.ended.and(before.ended).or(self.ended);
        }
        self
    }

    /// Whether the pod has no controller although this operator could have created it.
    pub(crate) fn is_orphan(&self) -> bool {
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

    /// When the pod has been ready for long enough.
    pub(crate) fn available_at(&self, min_ready: TimeDelta) -> Option<DateTime<Utc>> {
        self.ready_since
            .filter(|_| self.is_ready())
            .map(|since| since + min_ready)
    }

    /// Whether the pod has been ready for long enough.
    pub fn is_available(&self, min_ready: TimeDelta, now: DateTime<Utc>) -> bool {
        // A time in the future means that a clock was set back: nothing waits for it.
        let was_set_back = self.ready_since.is_some_and(|since| since > now);
        let at = self.available_at(min_ready);
        at.is_some_and(|at| at <= now || was_set_back)
    }
}

/// The earlier of two instants, if the first is known.
fn earlier(now: Option<DateTime<Utc>>, before: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    now.map(|now| before.map_or(now, |before| before.min(now)))
}

fn containers(status: &WatchedStatus) -> impl Iterator<Item = &WatchedContainer> {
    status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
}

/// Since when a condition has had that status, if it has.
fn condition_since(status: &WatchedStatus, type_: &str, value: &str) -> Option<DateTime<Utc>> {
    let condition = status.condition(type_)?;
    condition
        .last_transition_time
        .filter(|_| condition.status == value)
}

/// Reasons of a Failed pod that its kubelet gives for what it did to the pod, not for what the pod did
/// (pkg/kubelet: `eviction`, `nodeshutdown`, `preemption`). A kubelet that is too old, or ends too fast, leaves out the
/// condition DisruptionTarget.
const DISRUPTIONS: &[&str] = &["Evicted", "Preempting", "NodeShutdown", "Terminated"];

fn is_disrupted(status: &WatchedStatus) -> bool {
    let condition = status.condition("DisruptionTarget");
    condition.is_some_and(|c| c.status == "True") || DISRUPTIONS.contains(&status.reason.as_str())
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

/// A container that keeps crashing runs in between, without having recovered.
fn is_restarting(status: &WatchedStatus) -> bool {
    let ready = status.condition("Ready");
    restarts(status) > 1 && ready.is_none_or(|c| c.status != "True")
}

/// Exit codes of a container that its kubelet ended: for a resize in place, a reboot of the node, a failed probe.
const ENDED_BY_KUBELET: [i32; 2] = [137, 143];

fn restarts(status: &WatchedStatus) -> u32 {
    // A container that fails its probe comes into CrashLoopBackOff all the same.
    let has_crashed = |c: &&WatchedContainer| {
        let last = c.last_state.terminated.as_ref();
        last.is_none_or(|last| {
            last.reason == "OOMKilled" || !ENDED_BY_KUBELET.contains(&last.exit_code)
        })
    };
    containers(status)
        .filter(has_crashed)
        .map(|c| u32::try_from(c.restart_count).unwrap_or_default())
        .max()
        .unwrap_or_default()
}

/// The last restart of any container. One of which the status does not say when it was counts as seen just now.
fn last_restart(status: &WatchedStatus, now: DateTime<Utc>) -> Option<Restart> {
    let restarted = || containers(status).filter(|c| c.restart_count > 0);
    let ended = |c: &WatchedContainer| c.last_state.terminated.as_ref()?.finished_at;
    let at = restarted().map(|c| ended(c).unwrap_or(now)).max()?;
    let counts = restarted().map(|c| u64::try_from(c.restart_count).unwrap_or_default());
    Some(Restart {
        count: counts.sum(),
        at,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use my_operator_retained as retained;
    use serde_json::{Value, json};

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn pod(value: Value, now: i64) -> PodView {
        PodView::from_watched(serde_json::from_value(value).unwrap(), at(now))
    }

    #[test]
    fn a_kubelets_clock_that_is_ahead_does_not_restart_min_ready_seconds() {
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
    fn a_kubelets_clock_that_is_ahead_does_not_make_a_failing_pod_young_again() {
        let seen = |is_ready: &str, changed: &str, now| {
            let view = json!({"metadata": {"uid": "u", "creationTimestamp": "1970-01-01T00:00:10Z"},
                "status": {"conditions": [
                    {"type": "Initialized", "status": "True", "lastTransitionTime": changed},
                    {"type": "Ready", "status": is_ready, "lastTransitionTime": changed}]}});
            pod(view, now)
        };
        let ahead = "1970-01-01T00:03:20Z";
        let first = seen("False", ahead, 30);
        for now in [40, 100, 300] {
            assert_eq!(seen("False", ahead, now).after(Some(&first)), first);
        }
        let ready = seen("True", ahead, 40).after(Some(&first));
        assert_eq!(
            (ready.ready_since, ready.unready_since),
            (Some(at(40)), None)
        );
        // It was Ready in between.
        let again = seen("False", "1970-01-01T00:03:30Z", 50).after(Some(&first));
        assert_eq!(again.unready_since, Some(at(50)));
    }

    #[test]
    fn a_kubelets_clock_that_is_behind_does_not_shorten_a_pause() {
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
                changed_by_kubelet: at(30),
                restarts: 2,
                // The status does not say when.
                last_restart: Some(Restart {
                    count: 2,
                    at: at(100)
                }),
                ..PodView::default()
            }
        );
    }

    #[test]
    fn the_last_restart_of_a_container_is_read_whatever_ended_it() {
        let seen = |counts: [i32; 2], now| {
            let ended = |reason: &str, at: &str| json!({"terminated": {"reason": reason, "exitCode": 143, "finishedAt": at}});
            let view = json!({"metadata": {"uid": "u", "creationTimestamp": "1970-01-01T00:00:10Z"},
                "status": {"phase": "Running",
                "containerStatuses": [{"restartCount": counts[0], "lastState": ended("Error", "1970-01-01T00:00:50Z")}],
                "initContainerStatuses": [{"restartCount": counts[1], "lastState": ended("Error", "1970-01-01T00:03:20Z")}]}});
            pod(view, now)
        };
        let last = |count, second| {
            let at = at(second);
            Some(Restart { count, at })
        };
        assert_eq!(seen([0, 0], 100).last_restart, None);
        assert_eq!(seen([2, 0], 100).last_restart, last(2, 50));
        // The kubelet's clock is ahead: no event of the pod moves the instant.
        let first = seen([2, 1], 100);
        assert_eq!(first.last_restart, last(3, 100));
        let later = seen([2, 1], 150).after(Some(&first));
        assert_eq!(later.last_restart, last(3, 100));
        let again = seen([2, 2], 150).after(Some(&first));
        assert_eq!(again.last_restart, last(4, 150));
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
    fn a_cached_pod_takes_little_more_memory_than_its_text() {
        let pod = serde_json::json!({
            "metadata": {"name": "p", "uid": "u", "labels": {NAME_LABEL: "x", REVISION_LABEL: "r"},
                "annotations": {ATTEMPT_ANNOTATION: "1", PREDECESSOR_ANNOTATION: "Available"},
                "ownerReferences": [{"apiVersion": "v", "kind": "k", "name": "x", "uid": "o", "controller": true}]},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": "Pending", "reason": "r", "message": "m",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [{"name": "c", "restartCount": 1,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}}]},
        });
        let now = DateTime::from_timestamp(1_000, 0).unwrap();
        retained::check(&pod, |pod| PodView::from_watched(pod, now));
    }
}
