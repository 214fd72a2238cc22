//! What the operator knows of an observed pod.

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use super::names::{AT_UID, CONTAINER, GATE, HASH};
use super::object::{PodObject, RawGate, RawSpec};
use crate::conditions::{NOT_SCHEDULED, OTHER_CONTAINERS_RUNNING};
use crate::crd::At;
use crate::message::{head, tail};
use my_operator_kind::watched::{WatchedCondition, WatchedReason, WatchedStatus};

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum PodPhase {
    /// Not all of its containers have been started, or the phase is unknown.
    #[default]
    Pending,
    /// At least one container runs or is about to.
    Running,
    /// All containers ended with exit code 0. Final.
    Succeeded,
    /// All containers ended, or will not be started, and something failed. Final.
    Failed,
}

impl PodPhase {
    fn from_text(phase: &str) -> Self {
        match phase {
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Pending,
        }
    }
}

/// The end of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The name of the container.
    pub(crate) container: String,
    /// An init container.
    pub(crate) init: bool,
    /// The exit code.
    pub(crate) exit_code: i32,
    /// The signal that ended it, if the runtime reports it.
    pub(crate) signal: Option<i32>,
    /// Such as Completed, Error or `OOMKilled`.
    pub(crate) reason: String,
    /// The termination message.
    pub(crate) message: String,
    /// When it ended, by the node's clock.
    pub(crate) finished_at: Option<DateTime<Utc>>,
}

/// What keeps a released pod from running or ending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The scheduler's or the kubelet's reason, such as Unschedulable or `ImagePullBackOff`, or one of ours.
    pub(crate) reason: String,
    /// Their message.
    pub(crate) message: String,
    /// Every pod waits for this for a moment.
    pub(crate) usual: bool,
}

/// The fields of a pod that the operator reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodView {
    /// `metadata.uid`.
    pub(crate) uid: String,
    /// `metadata.resourceVersion`.
    pub(crate) resource_version: String,
    /// The UID of the At that is its controller.
    pub(crate) controller: Option<String>,
    /// The pod is being deleted.
    pub(crate) deleting: bool,
    /// Index of our gate among the scheduling gates; `None` if it was removed.
    pub(crate) gate: Option<usize>,
    /// Hash of what the pod was built from; see [`super::build::hash`].
    pub(crate) hash: Option<String>,
    /// What in the spec could make the command run again. Such a pod is never released.
    pub(crate) may_restart: Option<String>,
    /// The phase.
    pub(crate) phase: PodPhase,
    /// The pod's own reason, such as Evicted, or why it was disrupted from outside, such as
    /// `DeletionByPodGC`.
    pub(crate) reason: String,
    /// The message to that reason.
    pub(crate) message: String,
    /// A node has the pod: it is bound, or its kubelet has reported it. From here on the kubelet
    /// enforces activeDeadlineSeconds.
    pub(crate) bound: bool,
    /// Since when the pod has been scheduled, in whole seconds: it was released before that.
    pub(crate) scheduled: Option<DateTime<Utc>>,
    /// The UID of the At in the label of a pod that lost its owner reference: it has our hash and no
    /// controller.
    pub(crate) stray_of: Option<Box<str>>,
    /// The containers that ended. Sidecars are left out: they are ended when the others have, which
    /// says nothing about the command.
    pub(crate) ended: Vec<Ended>,
    /// What keeps it from running, from ending after its command, or from being reported.
    pub(crate) waiting: Option<Box<Waiting>>,
}

impl PodView {
    /// The view of a pod.
    pub(crate) fn from_object(pod: PodObject) -> Self {
        let PodObject {
            metadata,
            spec,
            mut status,
        } = pod;
        let may_restart = may_restart(&spec);
        let conditions = Conditions::from_list(std::mem::take(&mut status.conditions));
        let mut containers = Containers::take(&mut status, &spec);
        let gates = spec.scheduling_gates.unwrap_or_default();
        let gate = gates.iter().position(|gate| gate.name == GATE);
        // A pod that is being deleted is about to end, whatever its node reports.
        let deleting = metadata.deletion_timestamp.is_some();
        let phase = PodPhase::from_text(&status.phase);
        let silent = phase == PodPhase::Running && !deleting && conditions.is_node_silent();
        let bound =
            spec.node_name.is_some_and(|node| !node.is_empty()) || status.start_time.is_some();
        let unscheduled = conditions.unscheduled;
        let unscheduled = unscheduled.and_then(|condition| unscheduled_wait(condition, &gates));
        let waiting = match phase {
            PodPhase::Succeeded | PodPhase::Failed => None,
            _ if gate.is_some() => None,
            PodPhase::Pending => (containers.outlived())
                .or(unscheduled)
                .or_else(|| Some(containers.unstarted(bound))),
            PodPhase::Running => (containers.outlived()).or_else(|| silent.then(node_not_ready)),
        };
        let started = status.start_time;
        let started = started.and_then(|text| DateTime::parse_from_rfc3339(&text).ok());
        let started = started.map(|time| time.to_utc());
        // A pod that was ended by a kubelet or by the loss of its node has a reason of its own, or
        // that of its disruption (Kubernetes' KEP-3329).
        let (reason, message) = match conditions.disrupted {
            Some(disrupted) if status.reason.is_empty() => (disrupted.reason, disrupted.message),
            _ => (status.reason, status.message),
        };
        let owners = metadata.owner_references.unwrap_or_default();
        let is_controller = |owner: &OwnerReference| owner.controller == Some(true);
        let hash = metadata.annotations.and_then(|mut all| all.remove(HASH));
        let label = metadata.labels.and_then(|mut all| all.remove(AT_UID));
        let is_stray = !owners.iter().any(is_controller) && hash.is_some();
        Self {
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            controller: owners
                .into_iter()
                .find(|owner| is_controller(owner) && owner.kind == At::kind(&()))
                .map(|owner| owner.uid),
            deleting,
            gate,
            hash,
            stray_of: label.filter(|_| is_stray).map(Into::into),
            may_restart,
            phase,
            reason: head(&reason),
            message: head(&message),
            bound,
            scheduled: conditions.scheduled.or(started),
            ended: containers.ended,
            waiting: waiting.map(Box::new),
        }
    }

    /// `metadata.resourceVersion`.
    pub(crate) fn version(&self) -> &str {
        &self.resource_version
    }

    /// Whether this state of the pod is older than that one. Resource versions are increasing
    /// integers (Kubernetes' KEP-5504).
    pub(crate) fn is_older(&self, than: &Self) -> bool {
        let number = |pod: &Self| pod.resource_version.parse::<u64>().ok();
        number(self) < number(than)
    }

    /// Whether what may be done with the pod differs from that state.
    pub(crate) fn is_other_state(&self, than: &Self) -> bool {
        let state = |pod: &Self| (pod.gate.is_some(), pod.phase, pod.deleting, pod.bound);
        state(self) != state(than)
    }

    /// The UID of the At whose pod this is: its controller. A pod that lost both its owner reference and our gate may
    /// run, so it still counts as the run of the At that it was made for.
    pub(crate) fn at_uid(&self) -> Option<&str> {
        let stray = self.stray_of.as_deref().filter(|_| self.gate.is_none());
        self.controller.as_deref().or(stray)
    }

    /// Whether it is the pod of the At with that UID.
    pub(crate) fn is_of(&self, at: &str) -> bool {
        self.at_uid() == Some(at)
    }

    /// The end of the command.
    pub(crate) fn command(&self) -> Option<&Ended> {
        self.ended.iter().find(|ended| ended.is_command())
    }
}

impl Ended {
    fn new(container: String, init: bool, ended: &WatchedReason) -> Self {
        // No more than a result uses: a message may have 4 KiB, and the pods of finished Ats stay.
        let message = ended.message.trim_end();
        Self {
            container,
            init,
            exit_code: ended.exit_code,
            signal: ended.signal.filter(|signal| *signal != 0),
            reason: head(&ended.reason),
            message: if ended.exit_code == 0 {
                head(message)
            } else {
                tail(message)
            },
            finished_at: ended.finished_at,
        }
    }

    fn is_command(&self) -> bool {
        !self.init && self.container == CONTAINER
    }
}

/// The conditions that are read.
#[derive(Default)]
struct Conditions {
    scheduled: Option<DateTime<Utc>>,
    unscheduled: Option<WatchedCondition>,
    disrupted: Option<WatchedCondition>,
    ready: Option<WatchedCondition>,
    containers_ready: Option<WatchedCondition>,
}

impl Conditions {
    fn from_list(list: Vec<WatchedCondition>) -> Self {
        let mut this = Self::default();
        for condition in list {
            match condition.type_.as_str() {
                "PodScheduled" if condition.status == "True" => {
                    this.scheduled = condition.last_transition_time;
                }
                "PodScheduled" => this.unscheduled = Some(condition),
                "DisruptionTarget" if condition.status == "True" => {
                    this.disrupted = Some(condition);
                }
                "Ready" => this.ready = Some(condition),
                "ContainersReady" => this.containers_ready = Some(condition),
                _ => {}
            }
        }
        this
    }

    /// Whether the node of a running pod has gone silent. The node lifecycle controller then sets
    /// Ready to False and changes nothing else (`MarkPodsNotReady`), while a kubelet derives Ready
    /// from `ContainersReady` and the readiness gates, and gives a reason.
    fn is_node_silent(&self) -> bool {
        let is_unready = |c: &WatchedCondition| c.status == "False" && c.reason.is_empty();
        self.ready.as_ref().is_some_and(is_unready)
            && self
                .containers_ready
                .as_ref()
                .is_some_and(|c| c.status == "True")
    }
}

/// What the status says of the containers.
#[derive(Default)]
struct Containers {
    ended: Vec<Ended>,
    /// The first that may wait forever.
    blocked: Option<Waiting>,
    /// An init container has not ended.
    initializing: bool,
    /// The command runs.
    runs: bool,
    /// The names of those beside the command that have not ended.
    others: Vec<String>,
}

impl Containers {
    fn take(status: &mut WatchedStatus, spec: &RawSpec) -> Self {
        let init_containers = spec.init_containers.as_deref().unwrap_or_default();
        let is_sidecar = |name: &str| {
            let mut all = init_containers.iter();
            all.any(|c| c.name == name && c.restart_policy.as_deref() == Some("Always"))
        };
        let mut this = Self::default();
        for (init, list) in [
            (false, std::mem::take(&mut status.container_statuses)),
            (true, std::mem::take(&mut status.init_container_statuses)),
        ] {
            for status in list {
                let state = status.state;
                let blocked = state.waiting.as_ref().and_then(blocking_wait);
                this.blocked = this.blocked.or(blocked);
                if init && is_sidecar(&status.name) {
                    continue;
                }
                match state.terminated {
                    Some(ended) => {
                        // Most pods have one container, and there may be a million pods that have ended.
                        this.ended.reserve_exact(1);
                        this.ended.push(Ended::new(status.name, init, &ended));
                    }
                    None if init => this.initializing = true,
                    None if status.name != CONTAINER => this.others.push(status.name),
                    None => this.runs = state.running.is_some(),
                }
            }
        }
        this
    }

    /// What a pod waits for whose command has ended.
    fn outlived(&mut self) -> Option<Waiting> {
        let command = self.ended.iter().find(|ended| ended.is_command())?;
        let others = match self.others.as_slice() {
            [] => return None,
            others => others.join(", "),
        };
        let ended = format!(
            "container {CONTAINER} ended with exit code {}",
            command.exit_code
        );
        Some(match self.blocked.take() {
            // It cannot even be started.
            Some(blocked) => Waiting {
                message: head(&format!("{ended}; {others}: {}", blocked.message)),
                ..blocked
            },
            None => Waiting {
                reason: OTHER_CONTAINERS_RUNNING.to_owned(),
                message: head(&format!("{ended}; the pod waits for the end of: {others}")),
                usual: true,
            },
        })
    }

    /// What a pod waits for whose containers have not all been started.
    fn unstarted(&mut self, bound: bool) -> Waiting {
        if let Some(blocked) = self.blocked.take() {
            return blocked;
        }
        let (reason, message) = match (bound, self.initializing) {
            (false, _) => (
                NOT_SCHEDULED,
                "no scheduler has looked at the pod: check its schedulerName, and whether that scheduler works",
            ),
            (true, true) => (
                "PodInitializing",
                "an init container has not ended, or cannot be started; the Events of the pod say more",
            ),
            (true, false) if self.runs => (
                "ContainerCreating",
                "the command runs, and its node has not started another container of the pod; the Events of the pod say why",
            ),
            (true, false) => (
                "ContainerCreating",
                "its node has not started the containers of the pod; the Events of the pod say why, such as a volume that cannot be mounted",
            ),
        };
        Waiting {
            reason: reason.to_owned(),
            message: message.to_owned(),
            usual: true,
        }
    }
}

/// A pod that the scheduler finds no node for, or ignores because of another client's gates.
fn unscheduled_wait(condition: WatchedCondition, gates: &[RawGate]) -> Option<Waiting> {
    let message = match condition.reason.as_str() {
        // The condition may be older than the removal of our gate.
        "SchedulingGated" if !gates.is_empty() && gates.iter().all(|gate| gate.name != GATE) => {
            let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
            format!(
                "waits for other scheduling gates to be removed: {}",
                names.join(", ")
            )
        }
        "" | "SchedulingGated" => return None,
        // Unschedulable, SchedulerError, or the reason of another scheduler.
        _ => condition.message,
    };
    (condition.status == "False").then(|| Waiting {
        reason: condition.reason,
        message: head(&message),
        usual: false,
    })
}

fn node_not_ready() -> Waiting {
    Waiting {
        reason: "NodeNotReady".to_owned(),
        message: "the node of the pod does not report: whether the command still runs is not known"
            .to_owned(),
        usual: false,
    }
}

/// A container that may wait forever.
fn blocking_wait(waiting: &WatchedReason) -> Option<Waiting> {
    let reason = match waiting.reason.as_str() {
        // Every container waits for these, usually not for long.
        "ContainerCreating" | "PodInitializing" | "" => return None,
        // The kubelet alternates between the two.
        "ErrImagePull" => "ImagePullBackOff".to_owned(),
        other => head(other),
    };
    Some(Waiting {
        reason,
        message: head(&waiting.message),
        usual: false,
    })
}

/// What could make the command run again: another client's mutating webhook may have added it
/// (Kubernetes' KEP-753 and KEP-5307 give containers restart policies of their own).
fn may_restart(spec: &RawSpec) -> Option<String> {
    if spec.restart_policy.as_deref() != Some("Never") {
        return Some("spec.restartPolicy is not Never".to_owned());
    }
    for (init, list) in [(false, &spec.containers), (true, &spec.init_containers)] {
        for container in list.iter().flatten() {
            let policy = container.restart_policy.as_deref();
            let sidecar = init && policy == Some("Always");
            if policy.is_some() && !sidecar {
                return Some(format!("container {} has a restartPolicy", container.name));
            }
            if container.restart_policy_rules.is_some() {
                return Some(format!(
                    "container {} has restartPolicyRules",
                    container.name
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::{Value, json};

    use super::*;
    use crate::message::MAX_MESSAGE_LEN;
    use crate::pod::build::tests::{OWNER, built, spec};
    use crate::pod::build::{build, hash};
    use my_operator_retained as retained;

    /// The view of a built pod as if the API server had stored it.
    fn view(pod: Value) -> PodView {
        PodView::from_object(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn what_a_pod_waits_for_is_read_from_its_conditions_and_containers() {
        let scheduled = |status: &str, reason: &str| {
            json!({"conditions": [{"type": "PodScheduled", "status": status, "reason": reason,
                                   "message": "0/3 nodes are available"}]})
        };
        let started = |mut status: Value| {
            status["startTime"] = "2026-04-12T10:00:00Z".into();
            status
        };
        let container = |list: &str, reason: &str| {
            started(
                json!({list: [{"name": "at", "state": {"waiting": {"reason": reason, "message": "m"}}}]}),
            )
        };
        for (status, reason) in [
            (json!({}), Some("NotScheduled")),
            (scheduled("True", ""), Some("NotScheduled")),
            (scheduled("False", "SchedulingGated"), Some("NotScheduled")),
            (started(json!({})), Some("ContainerCreating")),
            (
                started(
                    json!({"initContainerStatuses": [{"name": "setup", "state": {"running": {}}}]}),
                ),
                Some("PodInitializing"),
            ),
            (scheduled("False", "Unschedulable"), Some("Unschedulable")),
            (scheduled("False", "SchedulerError"), Some("SchedulerError")),
            (
                container("containerStatuses", "ContainerCreating"),
                Some("ContainerCreating"),
            ),
            (
                container("containerStatuses", "PodInitializing"),
                Some("ContainerCreating"),
            ),
            (
                container("containerStatuses", "ErrImagePull"),
                Some("ImagePullBackOff"),
            ),
            (
                container("containerStatuses", "ImagePullBackOff"),
                Some("ImagePullBackOff"),
            ),
            (
                container("initContainerStatuses", "CreateContainerConfigError"),
                Some("CreateContainerConfigError"),
            ),
            (
                started(json!({"containerStatuses": [{"name": "at", "state": {"waiting": {}}}]})),
                Some("ContainerCreating"),
            ),
        ] {
            let mut pod = json!({"metadata": {"name": "a-pod"}, "spec": {}, "status": status});
            let found = view(pod.clone()).waiting;
            let usual = ["NotScheduled", "ContainerCreating", "PodInitializing"];
            let found = found.map(|found| (found.reason.clone(), found.usual));
            let expected = reason.map(|reason| (reason.to_owned(), usual.contains(&reason)));
            assert_eq!(found, expected, "{status}");
            pod["status"]["phase"] = "Running".into();
            assert_eq!(view(pod.clone()).waiting, None);
            pod["status"]["phase"] = "Pending".into();
            pod["spec"]["schedulingGates"] = json!([{"name": GATE}]);
            assert_eq!(view(pod).waiting, None);
        }
    }

    #[test]
    fn a_command_that_is_outlived_by_other_containers_is_what_a_pod_waits_after() {
        let pod = |phase: &str, state: Value| {
            view(json!({"metadata": {"name": "a-pod"},
                "spec": {"containers": [{"name": "at"}, {"name": "log"}],
                    "initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
                "status": {"phase": phase,
                    "initContainerStatuses": [{"name": "proxy", "state": {"running": {}}}],
                    "containerStatuses": [
                        {"name": "at", "state": {"terminated": {"exitCode": 3}}},
                        {"name": "log", "state": state}]}}))
            .waiting
            .map(|waiting| (waiting.reason, waiting.message))
        };
        let outlived = Some((
            "OtherContainersRunning".to_owned(),
            "container at ended with exit code 3; the pod waits for the end of: log".to_owned(),
        ));
        assert_eq!(pod("Running", json!({"running": {}})), outlived);
        let unpulled = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no image"}});
        let blocked = Some((
            "ImagePullBackOff".to_owned(),
            "container at ended with exit code 3; log: no image".to_owned(),
        ));
        assert_eq!(pod("Pending", unpulled), blocked);
        let ended = json!({"terminated": {"exitCode": 0}});
        assert_eq!(pod("Running", ended.clone()), None);
        assert_eq!(pod("Failed", ended), None);
    }

    #[test]
    fn no_text_is_longer_than_a_status_keeps() {
        let long = "x".repeat(5_000);
        for (code, end) in [(0, "x..."), (1, "xx")] {
            let view = view(json!({"metadata": {"name": "a-pod"}, "status": {
                "phase": "Failed", "reason": long, "message": long,
                "containerStatuses": [{"name": "at", "state": {"terminated":
                    {"exitCode": code, "reason": long, "message": long}}}]}}));
            let ended = &view.ended[0];
            for text in [&view.reason, &view.message, &ended.reason, &ended.message] {
                assert!(text.len() <= MAX_MESSAGE_LEN, "{}", text.len());
            }
            assert!(ended.message.ends_with(end), "{}", ended.message);
        }
    }

    #[test]
    fn the_view_of_a_built_pod_is_gated_ours_and_unaltered() {
        let spec = spec(json!({"command": "x", "template": {"spec": {
            "initContainers": [{"name": "proxy", "image": "p:1", "restartPolicy": "Always"}]}}}));
        let view = view(build(OWNER, &spec));
        assert!(view.is_of("at-1") && !view.is_of("at-2"));
        assert_eq!(view.gate, Some(0));
        assert_eq!(view.hash, Some(hash("at-1", &spec)));
        assert_eq!(view.may_restart, None);
        assert_eq!(view.phase, PodPhase::Pending);
        assert!(!view.deleting && !view.bound);
    }

    #[test]
    fn whatever_could_run_the_command_again_is_detected() {
        let change = |path: &str, value: Value| {
            let mut pod = built(json!({"command": "x", "template": {"spec": {
                "initContainers": [{"name": "i", "image": "p:1"}]}}}));
            let (parent, key) = path.rsplit_once('/').unwrap();
            let parent = pod.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            parent.insert(key.to_owned(), value);
            view(pod).may_restart
        };
        for (path, value) in [
            ("/spec/restartPolicy", json!("OnFailure")),
            ("/spec/restartPolicy", json!(null)),
            ("/spec/containers/0/restartPolicy", json!("Always")),
            (
                "/spec/containers/0/restartPolicyRules",
                json!([{"action": "Restart"}]),
            ),
            ("/spec/initContainers/0/restartPolicy", json!("OnFailure")),
            ("/spec/initContainers/0/restartPolicyRules", json!([])),
        ] {
            assert!(change(path, value.clone()).is_some(), "{path} {value}");
        }
        assert_eq!(
            change("/spec/initContainers/0/restartPolicy", json!("Always")),
            None
        );
    }

    #[test]
    fn the_end_of_containers_is_read() {
        let view = view(json!({
            "metadata": {"name": "a-pod", "uid": "p", "resourceVersion": "7", "deletionTimestamp": "2026-04-12T10:00:00Z"},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "at"}]},
            "status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory", "startTime": "2026-04-12T10:00:00Z",
                "containerStatuses": [
                    {"name": "at", "state": {"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled",
                        "message": "m\n", "finishedAt": "2026-04-12T10:00:05Z"}}},
                    {"name": "b", "state": {"running": {}}}]},
        }));
        assert!(view.deleting && view.bound && view.gate.is_none());
        assert_eq!(
            (view.phase, view.reason.as_str()),
            (PodPhase::Failed, "Evicted")
        );
        assert_eq!(view.ended.len(), 1);
        let ended = &view.ended[0];
        assert_eq!(
            (ended.exit_code, ended.signal, ended.reason.as_str()),
            (137, Some(9), "OOMKilled")
        );
        assert_eq!(ended.message, "m");
        assert_eq!(ended.finished_at.unwrap().timestamp(), 1_775_988_005);
    }

    #[test]
    fn a_disruption_is_the_reason_of_a_pod_that_has_none() {
        let of = |reason: Value, disrupted: &str| {
            let view = view(
                json!({"metadata": {"name": "a-pod"}, "status": {"phase": "Failed", "reason": reason,
                "message": "own words", "conditions": [{"type": "DisruptionTarget", "status": disrupted,
                    "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"}]}}),
            );
            (view.reason, view.message)
        };
        let words = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
        let by_gc = words("DeletionByPodGC", "PodGC: node no longer exists");
        assert_eq!(of(json!(""), "True"), by_gc);
        assert_eq!(of(json!(""), "False"), words("", "own words"));
        assert_eq!(of(json!("Evicted"), "True"), words("Evicted", "own words"));
    }

    #[test]
    fn a_malformed_time_does_not_block_the_watch() {
        // As the API server returns 9999-12-31T23:59:59-01:00.
        let far = "10000-01-01T00:59:59Z";
        let view = view(json!({
            "metadata": {"name": "a-pod"},
            "status": {"phase": "Failed", "startTime": far,
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": far}],
                "containerStatuses": [{"name": "at", "state": {"terminated": {"exitCode": 3, "finishedAt": far}}}]},
        }));
        assert!(view.bound);
        assert_eq!((view.scheduled, view.ended[0].finished_at), (None, None));
        assert_eq!(view.ended[0].exit_code, 3);
    }

    #[test]
    fn a_pod_is_bound_once_it_has_a_node_or_a_start_time() {
        let bound = |spec: Value, status: Value| {
            let view = view(json!({"metadata": {"name": "a-pod"}, "spec": spec, "status": status}));
            (view.bound, view.scheduled.map(|time| time.timestamp()))
        };
        let scheduled = json!({"conditions": [{"type": "PodScheduled", "status": "True",
            "lastTransitionTime": "2026-04-12T10:00:00Z"}]});
        assert_eq!(bound(json!({}), json!({})), (false, None));
        assert_eq!(bound(json!({"nodeName": ""}), json!({})), (false, None));
        assert_eq!(bound(json!({"nodeName": "n"}), json!({})), (true, None));
        assert_eq!(
            bound(json!({"nodeName": "n"}), scheduled),
            (true, Some(1_775_988_000))
        );
        assert_eq!(
            bound(json!({}), json!({"startTime": "2026-04-12T10:00:05Z"})),
            (true, Some(1_775_988_005))
        );
    }

    #[test]
    fn a_pod_of_ours_without_an_owner_is_a_stray() {
        let stray = |change: &dyn Fn(&mut Value)| {
            let mut pod = build(OWNER, &spec(json!({"command": "x"})));
            pod["metadata"]["ownerReferences"] = json!([]);
            change(&mut pod);
            view(pod).stray_of
        };
        assert_eq!(stray(&|_| ()).as_deref(), Some("at-1"));
        let other =
            json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": true}]);
        assert_eq!(
            stray(&|pod| pod["metadata"]["ownerReferences"] = other.clone()),
            None
        );
        assert_eq!(
            stray(&|pod| pod["metadata"]["annotations"] = json!({})),
            None
        );
        assert_eq!(stray(&|pod| pod["metadata"]["labels"] = json!({})), None);
    }

    #[test]
    fn a_pod_that_only_the_node_controller_marks_unready_is_on_a_silent_node() {
        let waiting = |ready: Value, containers: &str, phase: &str| {
            let view = view(
                json!({"metadata": {"name": "a-pod"}, "status": {"phase": phase,
                "conditions": [ready, {"type": "ContainersReady", "status": containers}]}}),
            );
            view.waiting.map(|waiting| waiting.reason)
        };
        let bare = json!({"type": "Ready", "status": "False"});
        assert_eq!(
            waiting(bare.clone(), "True", "Running").as_deref(),
            Some("NodeNotReady")
        );
        assert_eq!(waiting(bare.clone(), "False", "Running"), None);
        assert_eq!(waiting(bare, "True", "Succeeded"), None);
        let gates = json!({"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"});
        assert_eq!(waiting(gates, "True", "Running"), None);
        let ready = json!({"type": "Ready", "status": "True"});
        assert_eq!(waiting(ready, "True", "Running"), None);
    }

    #[test]
    fn a_released_pod_waits_for_the_gates_of_others() {
        let waiting = |gates: &[&str]| {
            let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
            let conditions =
                json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
            let view = view(
                json!({"metadata": {"name": "a-pod"}, "spec": {"schedulingGates": gates},
                "status": {"conditions": conditions}}),
            );
            let waiting = view.waiting.filter(|waiting| !waiting.usual);
            waiting.map(|waiting| waiting.message)
        };
        assert_eq!(waiting(&[GATE, "other.io/gate"]), None);
        assert_eq!(waiting(&[]), None);
        assert_eq!(
            waiting(&["other.io/gate"]).as_deref(),
            Some("waits for other scheduling gates to be removed: other.io/gate")
        );
    }

    #[test]
    fn the_end_of_a_sidecar_is_ignored() {
        let ended = |code: i32| json!({"terminated": {"exitCode": code}});
        let view = view(json!({
            "metadata": {"name": "a-pod"},
            "spec": {"containers": [{"name": "at"}],
                "initContainers": [{"name": "proxy", "restartPolicy": "Always"}, {"name": "setup"}]},
            "status": {"phase": "Failed", "initContainerStatuses": [
                {"name": "proxy", "state": ended(143)}, {"name": "setup", "state": ended(2)}]},
        }));
        let names: Vec<&str> = view.ended.iter().map(|e| e.container.as_str()).collect();
        assert_eq!(names, ["setup"]);
    }

    #[test]
    fn a_cached_pod_takes_little_more_memory_than_its_text() {
        let pod = serde_json::json!({
            "metadata": {"name": "a-p", "uid": "u", "labels": {"a": "b"}, "annotations": {"a": "b"}},
            "spec": {"containers": [{"name": "c"}], "schedulingGates": [{"name": GATE}, {"name": "other"}]},
            "status": {"phase": "Pending", "reason": "r", "message": "m",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"}],
                "containerStatuses": [
                    {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "m"}}},
                    {"name": "d", "state": {"terminated": {"exitCode": 3, "reason": "r", "message": "m"}}}]},
        });
        retained::check(&pod, PodView::from_object);
    }
}
