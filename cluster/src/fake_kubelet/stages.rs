//! The pure part of the fake kubelet: its next action for an object, and the status that it then reports.
//!
//! The statuses of a started pod and of a node, and the idea of stages, come from kustomize/stage/{node,pod}/fast of
//! sigs.k8s.io/kwok v0.8.0 (Copyright The Kubernetes Authors, Apache-2.0) and were changed. The annotations are listed
//! in the README.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Node, Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The address of every fake node. It is one of RFC 5737, which no machine has.
pub(super) const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The type of the address at which the API server finds the fake kubelet: the first that it looks for. Nothing else
/// reads addresses of this type, so that those of nodes and pods stay what they are, addresses that lead nowhere.
pub(crate) const KUBELET_ADDRESS_TYPE: &str = "InternalDNS";

/// The annotation of fake nodes, and its value.
pub(crate) const NODE_ANNOTATION: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

/// What programs and kernel of a fake node report as their version.
const VERSION: &str = "fake";

/// The termination message of a pod that ends without an annotation `message`: its exit code is not a command's.
const NOTHING_RAN: &str = "a fake node: nothing ran";

/// How long a pod runs that ends by itself and has no annotation `run-seconds`.
const DEFAULT_RUN: Duration = Duration::from_secs(1);

/// How long a pod that is deleted with a grace period of 0 may stay before it is deleted again.
pub(super) const DELETE_AGAIN: Duration = Duration::from_secs(5);

/// The next thing to do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) action: Action,
    /// How long the object must have been unchanged before.
    pub(super) after: Duration,
}

/// What the fake kubelet does with an object. All but `Delete` write its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Makes a new node Ready.
    Initialize,
    /// Writes down where the fake kubelet listens, of a node that it did not make Ready, or after a restart elsewhere.
    Announce,
    /// Makes a pod Running, and Ready or not.
    Start { ready: bool },
    /// Makes a pod Failed.
    Fail,
    /// Ends a pod with its exit code.
    Complete,
    /// Ends a deleted pod that a finalizer keeps. A kubelet stops the containers before the object is gone.
    Stop,
    /// Deletes a pod with a grace period of 0.
    Delete,
}

impl Action {
    fn at_once(self) -> Step {
        self.after(Duration::ZERO)
    }

    fn after(self, after: Duration) -> Step {
        Step {
            action: self,
            after,
        }
    }
}

/// Whether the fake kubelet plays the kubelet of this node.
pub(super) fn is_fake(node: &Node) -> bool {
    let annotations = node.metadata.annotations.iter().flatten();
    annotations
        .into_iter()
        .any(|(key, value)| (key.as_str(), value.as_str()) == NODE_ANNOTATION)
}

/// The next action for a fake node; the fake kubelet listens at `endpoint`. The conditions of a node that was Ready
/// before are not changed: a test may have made it not Ready.
pub(super) fn next_of_node(node: &Node, endpoint: SocketAddr) -> Option<Step> {
    let status = node.status.iter();
    let initialized = status
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| {
            // With this reason the node controller marks a node whose kubelet never reported.
            let never_updated = condition.reason.as_deref() == Some("NodeStatusNeverUpdated");
            condition.type_ == "Ready" && !never_updated
        });
    if !initialized {
        return Some(Action::Initialize.at_once());
    }
    (!announces(node, endpoint)).then(|| Action::Announce.at_once())
}

/// Whether the API server finds the fake kubelet of this node.
fn announces(node: &Node, endpoint: SocketAddr) -> bool {
    let Some(status) = &node.status else {
        return false;
    };
    let kubelet = status.daemon_endpoints.as_ref();
    let kubelet = kubelet.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref());
    let mut addresses = status.addresses.iter().flatten();
    let address = addresses.find(|address| address.type_ == KUBELET_ADDRESS_TYPE);
    kubelet.is_some_and(|kubelet| kubelet.port == i32::from(endpoint.port()))
        && address.is_some_and(|found| found.address == endpoint.ip().to_string())
}

/// The next action for a pod that is bound to a fake node.
pub(super) fn next_of_pod(pod: &Pod) -> Option<Step> {
    if pod.metadata.deletion_timestamp.is_some() {
        return next_of_deleted(pod);
    }
    let policy = pod.spec.as_ref()?.restart_policy.as_deref();
    let wanted_phase = annotation(pod, "phase");
    let fails = match wanted_phase {
        Some("Failed") => true,
        Some("Pending") => false,
        _ => policy == Some("Always") && has_failing_image(pod),
    };
    let ready = annotation(pod, "ready") != Some("false");
    match phase(pod) {
        "Pending" | "Running" if fails => Some(Action::Fail.at_once()),
        "Pending" if wanted_phase != Some("Pending") => Some(Action::Start { ready }.at_once()),
        "Running" if ready != is_ready(pod) => {
            (wanted_phase != Some("Pending")).then(|| Action::Start { ready }.at_once())
        }
        "Running" if matches!(policy, Some("Never" | "OnFailure")) => {
            let held = annotation(pod, "exit-code") == Some("hold");
            (!held).then(|| Action::Complete.after(run_time(pod)))
        }
        _ => None,
    }
}

fn next_of_deleted(pod: &Pod) -> Option<Step> {
    let kept = pod.metadata.finalizers.iter().flatten().next().is_some();
    let grace = pod.metadata.deletion_grace_period_seconds;
    match phase(pod) {
        "Pending" | "Running" if kept => Some(Action::Stop.at_once()),
        // A kubelet deletes a pod whose containers have ended, whether a finalizer keeps it or not: it then goes with
        // its last finalizer.
        "Succeeded" | "Failed" if grace != Some(0) => Some(Action::Delete.at_once()),
        _ if kept => None,
        _ if grace > Some(0) => Some(Action::Delete.at_once()),
        // The API server removes such a pod by itself, in two writes. The second may not come when the API server is
        // busy or its client goes away; a kubelet ends that.
        _ if grace == Some(0) => Some(Action::Delete.after(DELETE_AGAIN)),
        _ => None,
    }
}

/// The conditions of a node, each with its status, reason and message.
const NODE_CONDITIONS: [(&str, &str, &str, &str); 5] = [
    (
        "Ready",
        "True",
        "KubeletReady",
        "kubelet is posting ready status",
    ),
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    (
        "DiskPressure",
        "False",
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ),
    (
        "PIDPressure",
        "False",
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ),
    (
        "NetworkUnavailable",
        "False",
        "RouteCreated",
        "RouteController created a route",
    ),
];

/// The status that `action` reports of a node; the fake kubelet listens at `endpoint`.
pub(super) fn status_of_node(
    node: &Node,
    action: Action,
    endpoint: SocketAddr,
    now: Timestamp,
) -> Value {
    let address = json!({"type": KUBELET_ADDRESS_TYPE, "address": endpoint.ip()});
    let endpoints = json!({"kubeletEndpoint": {"Port": endpoint.port()}});
    if action == Action::Announce {
        return json!({"addresses": [address], "daemonEndpoints": endpoints});
    }
    let created = node.metadata.creation_timestamp.as_ref();
    let since = time(created.map_or(now, |created| created.0));
    let conditions = NODE_CONDITIONS.map(|(type_, status, reason, message)| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time(now), "lastTransitionTime": since,
        })
    });
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "500"});
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let capacity = status.and_then(|status| status.capacity.as_ref());
    json!({
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": NODE_ADDRESS},
            {"type": "Hostname", "address": node.metadata.name},
            address,
        ],
        "daemonEndpoints": endpoints,
        "allocatable": allocatable.map_or_else(|| resources.clone(), |given| json!(given)),
        "capacity": capacity.map_or_else(|| resources.clone(), |given| json!(given)),
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux",
            "kubeletVersion": VERSION, "kubeProxyVersion": VERSION, "kernelVersion": VERSION,
            "containerRuntimeVersion": VERSION, "osImage": "",
            "bootID": "", "machineID": "", "systemUUID": "",
        },
        "phase": "Running",
    })
}

/// The status that `action` reports of a pod; `address` is for a pod that starts without one.
pub(super) fn status_of_pod(pod: &Pod, action: Action, address: Ipv4Addr, now: Timestamp) -> Value {
    let started = status(pod).and_then(|status| status.start_time.as_ref());
    let times = Times {
        started: time(started.map_or(now, |started| started.0)),
        now: time(now),
    };
    // An empty one stands for none.
    let message = annotation(pod, "message").unwrap_or(NOTHING_RAN);
    let message = Some(message).filter(|message| !message.is_empty());
    match action {
        Action::Start { ready } => started_status(pod, ready, address, &times),
        Action::Fail => ended_status(pod, 1, message, "PodFailed", &times),
        Action::Complete => {
            let code = annotation(pod, "exit-code").and_then(|code| code.parse().ok());
            let code = code.unwrap_or(0);
            let reason = if code == 0 {
                "PodCompleted"
            } else {
                "PodFailed"
            };
            ended_status(pod, code, message, reason, &times)
        }
        // 128 and the number of SIGTERM.
        Action::Stop => ended_status(pod, 143, None, "PodFailed", &times),
        Action::Initialize | Action::Announce | Action::Delete => Value::Null,
    }
}

/// Times of a status, as the API has them: cut to the second.
struct Times {
    started: String,
    now: String,
}

fn started_status(pod: &Pod, ready: bool, address: Ipv4Addr, times: &Times) -> Value {
    let (truth, reason) = if ready {
        // Not absent: the patch would leave the reason of before.
        ("True", "")
    } else {
        ("False", "ContainersNotReady")
    };
    let mut conditions = vec![
        condition("Initialized", "True", "", &times.started),
        condition("Ready", truth, reason, &times.now),
        condition("ContainersReady", truth, reason, &times.now),
    ];
    let spec = pod.spec.as_ref();
    let gates = spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten());
    conditions.extend(gates.map(|gate| condition(&gate.condition_type, "True", "", &times.now)));

    let running = json!({"running": {"startedAt": times.started}});
    let ran = json!({"terminated": {
        "exitCode": 0, "reason": "Completed", "startedAt": times.started, "finishedAt": times.started,
    }});
    let containers = containers(pod).map(|container| {
        json!({
            "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
            "ready": ready, "started": true, "state": running,
        })
    });
    let init_containers = spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let init_containers = init_containers.map(|container| {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        json!({
            "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
            "ready": true, "started": is_sidecar.then_some(true),
            "state": if is_sidecar { &running } else { &ran },
        })
    });
    let mut status = json!({
        "phase": "Running",
        "startTime": times.started,
        "conditions": conditions,
        "containerStatuses": containers.collect::<Vec<_>>(),
        "initContainerStatuses": init_containers.collect::<Vec<_>>(),
        "hostIP": NODE_ADDRESS,
        "hostIPs": [{"ip": NODE_ADDRESS}],
    });
    if pod_address(pod).is_none() {
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{"ip": address}]);
    }
    status
}

fn ended_status(pod: &Pod, code: i32, message: Option<&str>, reason: &str, times: &Times) -> Value {
    let containers = containers(pod).map(|container| {
        json!({
            "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
            "ready": false, "started": false,
            "state": {"terminated": {
                "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
                "message": message, "startedAt": times.started, "finishedAt": times.now,
            }},
        })
    });
    json!({
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "startTime": times.started,
        "conditions": [
            condition("Initialized", "True", "PodCompleted", &times.started),
            condition("Ready", "False", reason, &times.now),
            condition("ContainersReady", "False", reason, &times.now),
        ],
        "containerStatuses": containers.collect::<Vec<_>>(),
    })
}

fn condition(type_: &str, status: &str, reason: &str, since: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "lastTransitionTime": since})
}

/// The address of a pod, if it has one.
pub(super) fn pod_address(pod: &Pod) -> Option<Ipv4Addr> {
    status(pod)?.pod_ip.as_deref()?.parse().ok()
}

/// How long a pod runs that ends by itself.
fn run_time(pod: &Pod) -> Duration {
    annotation(pod, "run-seconds")
        .and_then(|seconds| seconds.parse().ok())
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .unwrap_or(DEFAULT_RUN)
}

/// The value of one of our annotations.
fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    let value = annotations.get(&format!("kwok.my-operator.dev/{name}"))?;
    Some(value.as_str())
}

fn has_failing_image(pod: &Pod) -> bool {
    containers(pod)
        .filter_map(|container| container.image.as_deref())
        .any(|image| image.contains("fail"))
}

fn is_ready(pod: &Pod) -> bool {
    let status = status(pod).into_iter();
    status
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn phase(pod: &Pod) -> &str {
    let phase = status(pod).and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

fn status(pod: &Pod) -> Option<&PodStatus> {
    pod.status.as_ref()
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers)
}

fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use k8s_openapi::api::core::v1::{Node, NodeStatus, Pod};
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{
        Action, NOTHING_RAN, Step, next_of_node, next_of_pod, status_of_node, status_of_pod,
    };

    const START: Option<Step> = step(Action::Start { ready: true }, 0);
    const START_UNREADY: Option<Step> = step(Action::Start { ready: false }, 0);
    const FAIL: Option<Step> = step(Action::Fail, 0);
    const COMPLETE: Option<Step> = step(Action::Complete, 1000);
    const STOP: Option<Step> = step(Action::Stop, 0);
    const DELETE: Option<Step> = step(Action::Delete, 0);
    const DELETE_AGAIN: Option<Step> = step(Action::Delete, 5000);

    #[expect(clippy::unnecessary_wraps, reason = "compared with an option")]
    const fn step(action: Action, milliseconds: u64) -> Option<Step> {
        Some(Step {
            action,
            after: Duration::from_millis(milliseconds),
        })
    }

    /// A pod in a phase, Ready or not, with these of our annotations (`key=value`).
    fn pod(policy: &str, phase: &str, ready: bool, annotations: &[&str]) -> Pod {
        let annotations = annotations.iter().map(|pair| {
            let (key, value) = pair.split_once('=').unwrap();
            (format!("kwok.my-operator.dev/{key}"), json!(value))
        });
        let ready = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": "pod", "annotations": annotations.collect::<serde_json::Map<_, _>>()},
            "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "busybox:1"}]},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_starts_ends_and_fails_as_its_annotations_say() {
        for (policy, phase, ready, annotations, expected) in [
            ("Always", "Pending", false, &[][..], START),
            ("Never", "Pending", false, &[], START),
            ("Always", "Pending", false, &["ready=false"], START_UNREADY),
            ("Always", "Pending", false, &["ready=no"], START),
            ("Always", "Pending", false, &["phase=Pending"], None),
            ("Always", "Pending", false, &["phase=Failed"], FAIL),
            ("Never", "Pending", false, &["phase=Failed"], FAIL),
            ("Always", "Running", true, &[], None),
            ("Always", "Running", true, &["ready=false"], START_UNREADY),
            ("Always", "Running", false, &["ready=false"], None),
            ("Always", "Running", false, &[], START),
            ("Always", "Running", false, &["phase=Pending"], None),
            ("Always", "Running", true, &["phase=Failed"], FAIL),
            ("Always", "Running", true, &["exit-code=3"], None),
            ("Never", "Running", true, &[], COMPLETE),
            ("OnFailure", "Running", true, &["exit-code=3"], COMPLETE),
            ("Never", "Running", true, &["exit-code=hold"], None),
            ("Never", "Running", true, &["phase=Failed"], FAIL),
            ("Never", "Running", false, &[], START),
            ("Never", "Running", false, &["ready=false"], COMPLETE),
            (
                "Never",
                "Running",
                true,
                &["run-seconds=2.5"],
                step(Action::Complete, 2500),
            ),
            (
                "Never",
                "Running",
                true,
                &["run-seconds=0"],
                step(Action::Complete, 0),
            ),
            ("Never", "Running", true, &["run-seconds=-1"], COMPLETE),
            ("Never", "Running", true, &["run-seconds=soon"], COMPLETE),
            ("Never", "Succeeded", false, &[], None),
            ("Never", "Failed", false, &["phase=Failed"], None),
            ("Always", "Unknown", true, &[], None),
        ] {
            let pod = pod(policy, phase, ready, annotations);
            let found = next_of_pod(&pod);
            assert_eq!(found, expected, "{policy} {phase} {ready} {annotations:?}");
        }
    }

    #[test]
    fn a_long_running_pod_with_a_failing_image_fails() {
        for (policy, annotations, expected) in [
            ("Always", &[][..], FAIL),
            ("Always", &["phase=Pending"], None),
            ("Never", &[], START),
        ] {
            let mut pod = pod(policy, "Pending", false, annotations);
            pod.spec.as_mut().unwrap().containers[0].image = Some("example.org/fail:1".to_owned());
            assert_eq!(next_of_pod(&pod), expected, "{policy} {annotations:?}");
        }
    }

    #[test]
    fn a_deleted_pod_is_stopped_if_a_finalizer_keeps_it_and_deleted_otherwise() {
        for (phase, finalizers, grace, expected) in [
            ("Pending", 0, 30, DELETE),
            ("Running", 0, 30, DELETE),
            ("Running", 0, 1, DELETE),
            ("Failed", 0, 30, DELETE),
            ("Running", 0, 0, DELETE_AGAIN),
            ("Succeeded", 0, 0, DELETE_AGAIN),
            ("Pending", 1, 30, STOP),
            ("Running", 1, 30, STOP),
            ("Running", 1, 0, STOP),
            ("Failed", 1, 30, DELETE),
            ("Succeeded", 1, 30, DELETE),
            ("Failed", 1, 0, None),
        ] {
            let mut pod = pod("Never", phase, true, &["phase=Failed"]);
            pod.metadata.deletion_timestamp = Some(serde_json::from_value(json!(NOW)).unwrap());
            pod.metadata.deletion_grace_period_seconds = Some(grace);
            pod.metadata.finalizers = (finalizers > 0).then(|| vec!["example.org/keep".to_owned()]);
            assert_eq!(next_of_pod(&pod), expected, "{phase} {finalizers} {grace}");
        }
    }

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn status(pod: &Pod, action: Action) -> Value {
        status_of_pod(pod, action, [10, 244, 1, 0].into(), NOW.parse().unwrap())
    }

    #[test]
    fn a_started_pod_keeps_its_address_and_has_its_readiness_gates() {
        let mut pod = pod("Always", "Pending", false, &[]);
        let gate = json!([{"conditionType": "example.org/gate"}]);
        pod.spec.as_mut().unwrap().readiness_gates = serde_json::from_value(gate).unwrap();
        let started = status(&pod, Action::Start { ready: true });
        assert_eq!(started["podIP"], json!("10.244.1.0"));
        assert_eq!(started["hostIP"], json!("192.0.2.1"));
        assert_eq!(started["startTime"], json!(NOW));
        let types = started["conditions"].as_array().unwrap().iter();
        let types: Vec<_> = types.map(|condition| condition["type"].as_str()).collect();
        let gate = Some("example.org/gate");
        assert_eq!(
            types,
            [
                Some("Initialized"),
                Some("Ready"),
                Some("ContainersReady"),
                gate
            ]
        );

        pod.status.as_mut().unwrap().pod_ip = Some("10.244.9.9".to_owned());
        assert_eq!(
            status(&pod, Action::Start { ready: true })["podIP"],
            Value::Null
        );
        let unready = status(&pod, Action::Start { ready: false });
        assert_eq!(unready["containerStatuses"][0]["ready"], json!(false));
        assert_eq!(unready["phase"], json!("Running"));
    }

    #[test]
    fn an_ended_pod_reports_exit_code_and_message() {
        let nothing_ran = json!(NOTHING_RAN);
        for (annotations, action, phase, code, message) in [
            (
                &[][..],
                Action::Complete,
                "Succeeded",
                0,
                nothing_ran.clone(),
            ),
            (&["message="], Action::Complete, "Succeeded", 0, Value::Null),
            (
                &["exit-code=3", "message=no"],
                Action::Complete,
                "Failed",
                3,
                json!("no"),
            ),
            (
                &["exit-code=x"],
                Action::Complete,
                "Succeeded",
                0,
                nothing_ran.clone(),
            ),
            (&[], Action::Fail, "Failed", 1, nothing_ran),
            (&["message=no"], Action::Fail, "Failed", 1, json!("no")),
            (&["message=no"], Action::Stop, "Failed", 143, Value::Null),
        ] {
            let status = status(&pod("Never", "Running", true, annotations), action);
            let end = &status["containerStatuses"][0]["state"]["terminated"];
            assert_eq!(status["phase"], json!(phase), "{status}");
            assert_eq!(
                (&end["exitCode"], &end["message"]),
                (&json!(code), &message),
                "{status}"
            );
        }
    }

    #[test]
    fn a_node_becomes_ready_once() {
        let endpoint = "127.0.0.1:20000".parse().unwrap();
        let mut node: Node = serde_json::from_value(json!({"metadata": {"name": "node"}})).unwrap();
        assert_eq!(next_of_node(&node, endpoint), step(Action::Initialize, 0));
        let now = Timestamp::UNIX_EPOCH;
        let status = status_of_node(&node, Action::Initialize, endpoint, now);
        assert_eq!(status["allocatable"]["pods"], json!("500"));
        node.status = serde_json::from_value(status).unwrap();
        assert_eq!(next_of_node(&node, endpoint), None);
        let conditions = |status: &str, reason: &str| {
            let ready = json!([{"type": "Ready", "status": status, "reason": reason}]);
            serde_json::from_value(ready).unwrap()
        };
        node.status.as_mut().unwrap().conditions = conditions("False", "KubeletNotReady");
        let next = next_of_node(&node, endpoint);
        assert_eq!(next, None, "a test made it not Ready");
        node.status.as_mut().unwrap().conditions = conditions("Unknown", "NodeStatusNeverUpdated");
        assert_eq!(next_of_node(&node, endpoint), step(Action::Initialize, 0));
    }

    #[test]
    fn a_node_says_where_its_kubelet_listens_and_where_it_listens_now() {
        // As a test makes one that is born not Ready.
        let born = json!({"metadata": {"name": "node"},
            "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]}});
        let mut node: Node = serde_json::from_value(born).unwrap();
        for endpoint in ["127.0.0.1:20000", "127.0.0.1:20001", "[::1]:20001"] {
            let endpoint = endpoint.parse().unwrap();
            assert_eq!(next_of_node(&node, endpoint), step(Action::Announce, 0));
            let announced =
                status_of_node(&node, Action::Announce, endpoint, Timestamp::UNIX_EPOCH);
            assert_eq!(announced["conditions"], Value::Null, "left alone");
            let announced: NodeStatus = serde_json::from_value(announced).unwrap();
            let status = node.status.as_mut().unwrap();
            status.addresses = announced.addresses;
            status.daemon_endpoints = announced.daemon_endpoints;
            assert_eq!(next_of_node(&node, endpoint), None);
        }
    }
}
