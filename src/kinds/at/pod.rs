//! The pod of an At: how it is built, and which fields of a watched pod the operator reads.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::crd::{At, AtSpec};
use crate::kinds::shared::command::escape;
use crate::kinds::shared::template::PodTemplate;
use my_operator_runtime::reconcile::raw;
use my_operator_runtime::reconcile::write::{self, MANAGED_BY, MANAGER};

/// The container that runs the command.
pub const CONTAINER: &str = "at";
/// Suffix of the pod's name after that of the At. The pod's name is fixed, and so acts as a lock:
/// there is never more than one pod of an At.
pub const POD_SUFFIX: &str = "-pod";
/// Prefix of the operator's own labels, annotations and gates.
pub const OWN_PREFIX: &str = "cnat.programming-kubernetes.info/";
/// The label with the UID of the At. A name can be too long for a label.
pub const AT_UID: &str = "cnat.programming-kubernetes.info/at-uid";
/// The annotation with the hash of what the pod was built from.
pub const HASH: &str = "cnat.programming-kubernetes.info/spec-hash";
/// The scheduling gate that every pod is created with. No pod starts before it is removed (Kubernetes' KEP-3521).
pub const GATE: &str = "cnat.programming-kubernetes.info/armed";

/// The At that a pod is for.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// `metadata.name` of the At.
    pub name: &'a str,
    /// `metadata.namespace` of the At.
    pub namespace: &'a str,
    /// `metadata.uid` of the At.
    pub uid: &'a str,
}

/// The name of the pod of an At.
pub fn name(at: &str) -> String {
    format!("{at}{POD_SUFFIX}")
}

/// Hash of everything that determines the pod: the At's UID, and the spec without the fields that
/// only decide about the time (schedule, suspend, starting deadline, ttl). A pod that waits for its
/// release has this hash or is outdated. When to release it is decided at that moment, by the
/// current spec.
pub fn hash(uid: &str, spec: &AtSpec) -> String {
    let template = spec.template.as_ref().map(|template| &template.0);
    let matters = json!([
        uid,
        spec.image,
        spec.command,
        spec.shell,
        template,
        spec.active_deadline_seconds,
    ]);
    let mut text = String::new();
    canonical(&matters, &mut text);
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text) {
        hex.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or_default());
        hex.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or_default());
    }
    hex
}

/// JSON with sorted keys and no whitespace, whatever order the map of `serde_json` keeps.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (key, item) in fields.iter().collect::<BTreeMap<_, _>>() {
                canonical(&Value::from(key.as_str()), out);
                out.push(':');
                canonical(item, out);
                out.push(',');
            }
            out.push('}');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

/// The pod of an At whose spec is defaulted and valid (see [`my_operator_admission::rules::decode_and_validate`]):
/// gated, and otherwise as the template says.
pub fn build(owner: Owner<'_>, spec: &AtSpec) -> Value {
    let none = PodTemplate::default();
    let template = spec.template.as_ref().unwrap_or(&none);
    let mut labels = template.labels().cloned().unwrap_or_default();
    labels.insert(AT_UID.to_owned(), owner.uid.into());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.into());
    let mut annotations = template.annotations().cloned().unwrap_or_default();
    annotations.insert(HASH.to_owned(), hash(owner.uid, spec).into());
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(owner.name),
            "namespace": owner.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [write::controller_reference::<At>(owner.name, owner.uid)],
        },
        "spec": build_spec(template, spec),
    })
}

fn build_spec(template: &PodTemplate, spec: &AtSpec) -> Map<String, Value> {
    let mut fields = template.spec().cloned().unwrap_or_default();
    fields.insert("restartPolicy".to_owned(), "Never".into());
    let mut gates = vec![json!({"name": GATE})];
    gates.append(&mut list(&mut fields, "schedulingGates"));
    fields.insert("schedulingGates".to_owned(), gates.into());
    if let Some(seconds) = spec.active_deadline_seconds {
        fields.insert("activeDeadlineSeconds".to_owned(), seconds.into());
    }
    let mut containers = list(&mut fields, "containers");
    let place = containers.iter().position(|c| c["name"] == CONTAINER);
    if place.is_none() {
        containers.insert(0, json!({"name": CONTAINER}));
    }
    if let Some(Value::Object(container)) = containers.get_mut(place.unwrap_or(0)) {
        complete(container, spec);
    }
    fields.insert("containers".to_owned(), containers.into());
    fields
}

/// Takes a list out of the fields; empty if there is none.
fn list(fields: &mut Map<String, Value>, key: &str) -> Vec<Value> {
    match fields.remove(key) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Makes the container run the command.
fn complete(container: &mut Map<String, Value>, spec: &AtSpec) {
    let lacks = |container: &Map<String, Value>, key: &str| {
        let value = container.get(key).and_then(Value::as_str);
        value.is_none_or(str::is_empty)
    };
    if lacks(container, "image") {
        container.insert("image".to_owned(), json!(spec.image));
    }
    // Without a message of its own, the end of the output explains a failure best.
    if lacks(container, "terminationMessagePolicy") {
        container.insert(
            "terminationMessagePolicy".to_owned(),
            "FallbackToLogsOnError".into(),
        );
    }
    let mut command = spec.shell.clone().unwrap_or_default();
    command.push(escape(spec.command.as_deref().unwrap_or_default()));
    container.insert("command".to_owned(), command.into());
}

/// A pod as it is watched: the fields that the operator reads.
#[derive(Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = Pod)]
pub struct PodObject {
    /// The fields of the object's metadata that are read.
    #[serde(deserialize_with = "raw::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: RawStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    node_name: Option<String>,
    restart_policy: Option<String>,
    scheduling_gates: Option<Vec<RawGate>>,
    containers: Option<Vec<RawContainer>>,
    init_containers: Option<Vec<RawContainer>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct RawGate {
    name: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainer {
    name: String,
    restart_policy: Option<String>,
    restart_policy_rules: Option<Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawStatus {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    start_time: Option<Instant>,
    conditions: Option<Vec<RawCondition>>,
    init_container_statuses: Option<Vec<RawContainerStatus>>,
    container_statuses: Option<Vec<RawContainerStatus>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct RawCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    #[serde(rename = "lastTransitionTime")]
    since: Option<Instant>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct RawContainerStatus {
    name: String,
    state: Option<RawState>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct RawState {
    waiting: Option<RawWaiting>,
    terminated: Option<RawTerminated>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct RawWaiting {
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTerminated {
    #[serde(default)]
    exit_code: i32,
    signal: Option<i32>,
    reason: Option<String>,
    message: Option<String>,
    finished_at: Option<Instant>,
}

/// A time in the status of a pod; `None` if it is malformed. The API server accepts
/// 9999-12-31T23:59:59-01:00 and returns it as a time of the year 10000, which no parser here
/// accepts: an error would block the watch of all other pods.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Instant(Option<DateTime<Utc>>);

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let text = String::deserialize(reader)?;
        let time = DateTime::parse_from_rfc3339(&text).ok();
        // Times in the API are whole seconds.
        Ok(Self(time.and_then(|time| {
            DateTime::from_timestamp(time.timestamp(), 0)
        })))
    }
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PodPhase {
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
    /// Whether the pod can do nothing more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The end of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The name of the container.
    pub container: String,
    /// An init container.
    pub init: bool,
    /// The exit code.
    pub exit_code: i32,
    /// The signal that ended it, if the runtime reports it.
    pub signal: Option<i32>,
    /// Such as Completed, Error or `OOMKilled`.
    pub reason: String,
    /// The termination message.
    pub message: String,
    /// When it ended, by the node's clock.
    pub finished_at: Option<DateTime<Utc>>,
}

/// What keeps a released pod from running.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The scheduler's or the kubelet's reason, such as Unschedulable or `ImagePullBackOff`.
    pub reason: String,
    /// Their message.
    pub message: String,
}

/// The fields of a pod that the operator reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// The UID and the name of the At that is its controller.
    pub controller: Option<(String, String)>,
    /// The pod is being deleted.
    pub deleting: bool,
    /// Index of our gate among the scheduling gates; `None` if it was removed.
    pub gate: Option<usize>,
    /// Hash of what the pod was built from; see [`hash`].
    pub hash: Option<String>,
    /// What in the spec could make the command run again. Such a pod is never released.
    pub may_restart: Option<String>,
    /// The phase.
    pub phase: PodPhase,
    /// The pod's own reason, such as Evicted, or why it was disrupted from outside, such as
    /// `DeletionByPodGC`.
    pub reason: String,
    /// The message to that reason.
    pub message: String,
    /// A node has the pod: it is bound, or its kubelet has reported it. From here on the kubelet
    /// enforces activeDeadlineSeconds.
    pub bound: bool,
    /// Since when the pod has been scheduled, in whole seconds: it was released before that.
    pub scheduled: Option<DateTime<Utc>>,
    /// The UID of the At in the label of a pod that lost its owner reference: it has our hash and
    /// our gate, and no controller.
    pub stray_of: Option<Box<str>>,
    /// The containers that ended. Sidecars are left out: they are ended when the others have, which
    /// says nothing about the command.
    pub ended: Vec<Ended>,
    /// What keeps it from running, or from being reported, beyond the usual time.
    pub waiting: Option<Box<Waiting>>,
}

impl PodView {
    /// The view of a pod.
    pub fn of(pod: PodObject) -> Self {
        let PodObject {
            metadata,
            spec,
            status,
        } = pod;
        let may_restart = may_restart(&spec);
        let init_containers = spec.init_containers.unwrap_or_default();
        let is_sidecar = |name: &str| {
            let mut all = init_containers.iter();
            all.any(|c| c.name == name && c.restart_policy.as_deref() == Some("Always"))
        };
        let gates = spec.scheduling_gates.unwrap_or_default();
        let mut ended = Vec::new();
        // In a running pod, a waiting container is a sidecar, which does not concern the command.
        let pending = matches!(status.phase.as_deref(), None | Some("Pending"));
        let running = status.phase.as_deref() == Some("Running");
        let (mut waiting, mut disrupted, mut scheduled) = (None, None, None);
        let (mut ready, mut containers_ready) = (None, None);
        for condition in status.conditions.into_iter().flatten() {
            match condition.type_.as_str() {
                "PodScheduled" if condition.status == "True" => {
                    scheduled = condition.since.and_then(|since| since.0);
                }
                "PodScheduled" => waiting = unscheduled(condition, &gates),
                "DisruptionTarget" if condition.status == "True" => disrupted = Some(condition),
                "Ready" => ready = Some(condition),
                "ContainersReady" => containers_ready = Some(condition),
                _ => {}
            }
        }
        let started = status.start_time.and_then(|time| time.0);
        // A pod that was ended by a kubelet or by the loss of its node has a reason of its own, or
        // that of its disruption (Kubernetes' KEP-3329).
        let (reason, message) = match (status.reason.filter(|r| !r.is_empty()), disrupted) {
            (None, Some(disrupted)) => (disrupted.reason, disrupted.message),
            (reason, _) => (reason, status.message),
        };
        for (init, list) in [
            (false, status.container_statuses),
            (true, status.init_container_statuses),
        ] {
            for mut status in list.unwrap_or_default() {
                let state = status.state.as_mut();
                let blocked = state.and_then(|state| blocking_wait(state.waiting.take()?));
                waiting = waiting.or(blocked);
                if !(init && is_sidecar(&status.name)) {
                    ended.extend(ended_of(status, init));
                }
            }
        }
        // A pod that is being deleted is about to end, whatever its node reports.
        let deleting = metadata.deletion_timestamp.is_some();
        let silent = running && !deleting && is_silent(ready.as_ref(), containers_ready.as_ref());
        let owners = metadata.owner_references.unwrap_or_default();
        let gate = gates.iter().position(|gate| gate.name == GATE);
        let hash = metadata.annotations.and_then(|mut all| all.remove(HASH));
        let label = metadata.labels.and_then(|mut all| all.remove(AT_UID));
        let owned = owners.iter().any(|owner| owner.controller == Some(true));
        let stray_of = label.filter(|_| !owned && gate.is_some() && hash.is_some());
        Self {
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            controller: owners
                .into_iter()
                .find(|owner| owner.controller == Some(true) && owner.kind == At::kind(&()))
                .map(|owner| (owner.uid, owner.name)),
            deleting,
            gate,
            hash,
            stray_of: stray_of.map(Into::into),
            may_restart,
            phase: match status.phase.as_deref() {
                Some("Running") => PodPhase::Running,
                Some("Succeeded") => PodPhase::Succeeded,
                Some("Failed") => PodPhase::Failed,
                _ => PodPhase::Pending,
            },
            reason: reason.unwrap_or_default(),
            message: message.unwrap_or_default(),
            bound: spec.node_name.is_some_and(|node| !node.is_empty())
                || status.start_time.is_some(),
            scheduled: scheduled.or(started),
            ended,
            waiting: waiting
                .filter(|_| pending)
                .or_else(|| silent.then(node_not_ready))
                .map(Box::new),
        }
    }

    /// `metadata.resourceVersion`.
    pub fn version(&self) -> &str {
        &self.resource_version
    }

    /// Whether this state of the pod is older than that one. Resource versions are increasing
    /// integers (Kubernetes' KEP-5504).
    pub fn is_older(&self, than: &Self) -> bool {
        let number = |pod: &Self| pod.resource_version.parse::<u64>().ok();
        number(self) < number(than)
    }

    /// Whether the At with that UID is the controller of the pod.
    pub fn is_of(&self, at: &str) -> bool {
        self.controller.as_ref().is_some_and(|(uid, _)| uid == at)
    }
}

/// A pod that the scheduler finds no node for, or ignores because of another client's gates.
fn unscheduled(condition: RawCondition, gates: &[RawGate]) -> Option<Waiting> {
    let message = match condition.reason.as_deref()? {
        "Unschedulable" => condition.message.unwrap_or_default(),
        // The condition may be older than the removal of our gate.
        "SchedulingGated" if !gates.is_empty() && gates.iter().all(|gate| gate.name != GATE) => {
            let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
            format!(
                "waits for others to remove their gates: {}",
                names.join(", ")
            )
        }
        _ => return None,
    };
    (condition.status == "False").then(|| Waiting {
        reason: condition.reason.unwrap_or_default(),
        message,
    })
}

/// Whether the node of a running pod has gone silent. The node lifecycle controller then sets Ready
/// to False and changes nothing else (`MarkPodsNotReady`), while a kubelet derives Ready from
/// `ContainersReady` and the readiness gates, and gives a reason.
fn is_silent(ready: Option<&RawCondition>, containers: Option<&RawCondition>) -> bool {
    let unexplained = |c: &RawCondition| c.reason.as_deref().unwrap_or_default().is_empty();
    ready.is_some_and(|c| c.status == "False" && unexplained(c))
        && containers.is_some_and(|c| c.status == "True")
}

fn node_not_ready() -> Waiting {
    Waiting {
        reason: "NodeNotReady".to_owned(),
        message: "the node of the pod does not report: whether the command still runs is not known"
            .to_owned(),
    }
}

/// A container that may wait forever.
fn blocking_wait(waiting: RawWaiting) -> Option<Waiting> {
    let reason = match waiting.reason?.as_str() {
        // Every container waits for these.
        "ContainerCreating" | "PodInitializing" | "" => return None,
        // The kubelet alternates between the two.
        "ErrImagePull" => "ImagePullBackOff".to_owned(),
        other => other.to_owned(),
    };
    Some(Waiting {
        reason,
        message: waiting.message.unwrap_or_default(),
    })
}

fn ended_of(status: RawContainerStatus, init: bool) -> Option<Ended> {
    let ended = status.state?.terminated?;
    Some(Ended {
        container: status.name,
        init,
        exit_code: ended.exit_code,
        signal: ended.signal.filter(|signal| *signal != 0),
        reason: ended.reason.unwrap_or_default(),
        message: ended.message.unwrap_or_default(),
        finished_at: ended.finished_at.and_then(|time| time.0),
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
    use my_operator_rounds::{lengths, proptest_config};
    use proptest::prelude::*;

    use super::*;
    use crate::kinds::at::admission::AtRules;
    use my_operator_admission::rules::Rules;

    const OWNER: Owner<'_> = Owner {
        name: "a",
        namespace: "ns",
        uid: "at-1",
    };

    fn spec(fields: Value) -> AtSpec {
        let mut spec: AtSpec = serde_json::from_value(fields).unwrap();
        AtRules::default(&mut spec);
        spec
    }

    fn built(fields: Value) -> Value {
        build(OWNER, &spec(fields))
    }

    /// The view of a built pod as if the API server had stored it.
    fn view(pod: Value) -> PodView {
        PodView::of(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn what_a_pod_waits_for_is_read_from_its_conditions_and_containers() {
        let scheduled = |status: &str, reason: &str| {
            json!({"conditions": [{"type": "PodScheduled", "status": status, "reason": reason,
                                   "message": "0/3 nodes are available"}]})
        };
        let container = |list: &str, reason: &str| json!({list: [{"name": "at", "state": {"waiting": {"reason": reason, "message": "m"}}}]});
        for (status, reason) in [
            (json!({}), None),
            (scheduled("True", ""), None),
            (scheduled("False", "SchedulingGated"), None),
            (scheduled("False", "Unschedulable"), Some("Unschedulable")),
            (container("containerStatuses", "ContainerCreating"), None),
            (container("containerStatuses", "PodInitializing"), None),
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
                json!({"containerStatuses": [{"name": "at", "state": {"waiting": {}}}]}),
                None,
            ),
            (
                json!({"containerStatuses": [{"name": "at", "state": {"running": {}}}]}),
                None,
            ),
        ] {
            let mut pod = json!({"metadata": {"name": "a-pod"}, "spec": {}, "status": status});
            let found = view(pod.clone()).waiting.map(|waiting| waiting.reason);
            assert_eq!(found.as_deref(), reason, "{status}");
            pod["status"]["phase"] = "Running".into();
            assert_eq!(view(pod).waiting, None);
        }
    }

    #[test]
    fn the_pod_of_a_plain_at() {
        let spec = spec(json!({"schedule": "now", "command": "echo YAY"}));
        let hash = hash("at-1", &spec);
        assert_eq!(
            build(OWNER, &spec),
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "a-pod",
                    "namespace": "ns",
                    "labels": {
                        "app.kubernetes.io/managed-by": "my-operator",
                        "cnat.programming-kubernetes.info/at-uid": "at-1",
                    },
                    "annotations": {"cnat.programming-kubernetes.info/spec-hash": hash},
                    "ownerReferences": [{
                        "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
                        "kind": "At", "name": "a", "uid": "at-1",
                        "controller": true, "blockOwnerDeletion": true,
                    }],
                },
                "spec": {
                    "restartPolicy": "Never",
                    "schedulingGates": [{"name": "cnat.programming-kubernetes.info/armed"}],
                    "containers": [{
                        "name": "at", "image": "bash:5.3",
                        "command": ["bash", "-c", "echo YAY"],
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                    }],
                },
            })
        );
    }

    #[test]
    fn a_template_reaches_the_pod_as_it_was_written() {
        let pod = built(json!({
            "command": "echo $HOME $(X) $$", "shell": ["sh", "-c"], "activeDeadlineSeconds": 9,
            "template": {
                "metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}},
                "spec": {
                    "madeUpField": {"deep": [1, 2.50, null]},
                    "schedulingGates": [{"name": "example.com/quota"}],
                    "containers": [
                        {"name": "log", "image": "l:1", "args": ["$(KEPT)"]},
                        {"name": "at", "image": "own:1", "terminationMessagePolicy": "File", "other": true},
                    ],
                },
            },
        }));
        assert_eq!(pod["metadata"]["labels"]["team"], "x");
        assert_eq!(pod["metadata"]["annotations"]["note"], "y");
        let spec = &pod["spec"];
        assert_eq!(spec["madeUpField"], json!({"deep": [1, 2.50, null]}));
        assert_eq!(
            spec["schedulingGates"],
            json!([{"name": GATE}, {"name": "example.com/quota"}])
        );
        assert_eq!(spec["activeDeadlineSeconds"], 9);
        assert_eq!(
            spec["containers"],
            json!([
                {"name": "log", "image": "l:1", "args": ["$(KEPT)"]},
                {"name": "at", "image": "own:1", "terminationMessagePolicy": "File", "other": true,
                 "command": ["sh", "-c", "echo $$HOME $$(X) $$$$"]},
            ])
        );
    }

    #[test]
    fn a_container_for_the_command_is_added_in_first_place() {
        let pod = built(
            json!({"command": "x", "template": {"spec": {"containers": [{"name": "log", "image": "l:1"}]}}}),
        );
        let names: Vec<_> = pod["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| &c["name"])
            .collect();
        assert_eq!(names, ["at", "log"]);
    }

    #[test]
    fn an_empty_image_in_the_template_is_none() {
        for image in [json!(null), json!("")] {
            let pod = built(json!({"command": "x", "image": "i:1",
                "template": {"spec": {"containers": [{"name": "at", "image": image}]}}}));
            assert_eq!(pod["spec"]["containers"][0]["image"], "i:1");
        }
    }

    #[test]
    fn the_hash_follows_what_makes_the_pod_and_nothing_else() {
        let base = json!({"schedule": "now", "command": "x", "template": {"spec": {"a": 1, "b": {"c": [], "d": 2}}}});
        let with = |fields: Value| {
            let mut all = base.as_object().unwrap().clone();
            all.extend(fields.as_object().unwrap().clone());
            hash("u", &spec(Value::Object(all)))
        };
        let first = with(json!({}));
        assert_eq!(first.len(), 64);
        for same in [
            json!({"schedule": "now + 1 day"}),
            json!({"suspend": true}),
            json!({"startingDeadlineSeconds": 1}),
            json!({"template": {"spec": {"b": {"d": 2, "c": []}, "a": 1}}}),
        ] {
            assert_eq!(with(same.clone()), first, "{same}");
        }
        for other in [
            json!({"command": "y"}),
            json!({"image": "y"}),
            json!({"shell": ["y"]}),
            json!({"template": {}}),
            json!({"template": {"spec": {"a": 1, "b": {"c": [], "d": "2"}}}}),
            json!({"activeDeadlineSeconds": 1}),
        ] {
            assert_ne!(with(other.clone()), first, "{other}");
        }
        assert_ne!(hash("v", &spec(base)), first);
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
    fn whatever_could_run_the_command_again_is_seen() {
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
                        "message": "m", "finishedAt": "2026-04-12T10:00:05Z"}}},
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
        assert_eq!(of(Value::Null, "True"), by_gc);
        assert_eq!(of(json!(""), "True"), by_gc);
        assert_eq!(of(Value::Null, "False"), words("", "own words"));
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
    fn a_pod_is_its_nodes_from_the_binding_on() {
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
    fn a_gated_pod_of_ours_without_an_owner_is_a_stray() {
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
            stray(&|pod| pod["spec"]["schedulingGates"] = json!([])),
            None
        );
        assert_eq!(
            stray(&|pod| pod["metadata"]["annotations"] = json!({})),
            None
        );
        assert_eq!(stray(&|pod| pod["metadata"]["labels"] = json!({})), None);
    }

    #[test]
    fn a_running_pod_that_only_the_node_controller_calls_unready_is_on_a_silent_node() {
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
            view.waiting.map(|waiting| waiting.message)
        };
        assert_eq!(waiting(&[GATE, "other.io/gate"]), None);
        assert_eq!(waiting(&[]), None);
        assert_eq!(
            waiting(&["other.io/gate"]).as_deref(),
            Some("waits for others to remove their gates: other.io/gate")
        );
    }

    #[test]
    fn the_end_of_a_sidecar_says_nothing() {
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

    /// Kubernetes' rule, as in k8s.io/kubernetes/third_party/forked/golang/expansion/expand.go.
    fn expand(input: &[u8], mapping: &dyn Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut checkpoint = 0;
        let mut cursor = 0;
        while cursor < input.len() {
            if input[cursor] == b'$' && cursor + 1 < input.len() {
                out.extend_from_slice(&input[checkpoint..cursor]);
                let (read, is_variable, advance) = variable_name(&input[cursor + 1..]);
                out.extend(if is_variable { mapping(&read) } else { read });
                cursor += advance;
                checkpoint = cursor + 1;
            }
            cursor += 1;
        }
        out.extend_from_slice(&input[checkpoint..]);
        out
    }

    fn variable_name(input: &[u8]) -> (Vec<u8>, bool, usize) {
        match input[0] {
            b'$' => (b"$".to_vec(), false, 1),
            b'(' => match input.iter().position(|b| *b == b')') {
                Some(end) => (input[1..end].to_vec(), true, end + 1),
                None => (b"$(".to_vec(), false, 1),
            },
            // Go's string(byte) is the UTF-8 text of the character with that number.
            other => (format!("${}", char::from(other)).into_bytes(), false, 1),
        }
    }

    fn arrives(text: &str) -> Vec<u8> {
        expand(escape(text).as_bytes(), &|_| b"EXPANDED".to_vec())
    }

    #[test]
    fn the_ported_rule_expands_as_kubernetes_does() {
        let mapping = |name: &[u8]| [b"<", name, b">"].concat();
        for (text, expanded) in [
            ("$(A) $$(A) $A $", "<A> $(A) $A $"),
            ("$(A", "$(A"),
            ("$$$(A)", "$<A>"),
            ("$$$$", "$$"),
        ] {
            assert_eq!(
                expand(text.as_bytes(), &mapping),
                expanded.as_bytes(),
                "{text}"
            );
        }
    }

    proptest! {
        #![proptest_config(proptest_config(lengths::texts()))]

        #[test]
        fn every_command_arrives_as_it_was_written(text in "[$()A-Z ä\n]{0,24}") {
            prop_assert_eq!(arrives(&text), text.as_bytes());
        }

        #[test]
        fn any_text_arrives_as_it_was_written(text in any::<String>()) {
            prop_assert_eq!(arrives(&text), text.as_bytes());
        }
    }
}
