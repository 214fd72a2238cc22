//! Each cause is injected, and named; nothing that is stored makes the command panic.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, Utc};
use fastrand::Rng;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use my_operator_mydaemonset::cause::Cause;
use my_operator_mydaemonset::names::{FREEZE_ANNOTATION, NAME_LABEL, REVISION_LABEL};
use my_operator_mydaemonset::revision::{Content, RevisionView};
use serde_json::{Value, json};

use super::explain::{Finding, Report, explain};
use super::facts::{Fleet, NodeFacts, PodFacts, Warning};
use super::find;
use super::reason::ADVICE;
use crate::connection::Connection;
use crate::mydaemonset::object::Object;

/// When all that is injected began.
const BEGAN: &str = "2026-01-01T00:00:10Z";
/// What the pods of the newest revision have in place of its hash.
const NEW: &str = "NEW";

fn now() -> DateTime<Utc> {
    time("2026-01-01T01:00:00Z")
}

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// A cluster: at first, of the Ready node `n`, and of an object that is rolled out.
#[derive(Clone, Debug)]
struct Scene {
    spec: Value,
    status: Value,
    annotations: Value,
    is_deleted: bool,
    nodes: Vec<Value>,
    pods: Vec<Value>,
    events: Vec<Value>,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self {
            spec: json!({"image": "nginx:1.29"}),
            status: json!({"observedGeneration": 3, "updateRevision": NEW, "conditions": []}),
            annotations: json!({}),
            is_deleted: false,
            nodes: Vec::new(),
            pods: Vec::new(),
            events: Vec::new(),
        };
        scene.condition("Progressing", "True", "RollingOut", "rolling");
        scene.node("n");
        scene
    }

    /// The scene after a change.
    fn with(change: fn(&mut Self)) -> Self {
        let mut scene = Self::new();
        change(&mut scene);
        scene
    }

    fn node(&mut self, name: &str) {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": BEGAN});
        self.nodes.push(
            json!({"metadata": {"name": name, "creationTimestamp": BEGAN}, "spec": {},
            "status": {"conditions": [ready]}}),
        );
    }

    fn condition(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let conditions = self.status["conditions"].as_array_mut().unwrap();
        conditions.retain(|condition| condition["type"] != type_);
        conditions.push(json!({"type": type_, "status": status, "reason": reason,
            "message": message, "lastTransitionTime": BEGAN}));
    }

    fn outside_window(&mut self) {
        let message = "the next opens at 2";
        self.condition("Progressing", "True", "OutsideWindow", message);
    }

    /// A pod on a node; returned for further changes.
    fn pod(&mut self, node: &str, revision: &str, status: Value) -> &mut Value {
        let name = format!("{node}-{revision}");
        let owner = json!({"apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
            "name": "web", "uid": "u", "controller": true});
        let probe = json!({"tcpSocket": {"port": 80}});
        self.pods.push(json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {NAME_LABEL: "web", REVISION_LABEL: revision}, "ownerReferences": [owner]},
            "spec": {"nodeName": node, "initContainers": [{"name": "init"}],
                "containers": [{"name": "app", "readinessProbe": probe}]},
        }));
        let pod = self.pods.last_mut().unwrap();
        pod["status"] = status;
        pod
    }

    /// A Ready pod of an older revision on `n`.
    fn old(&mut self) -> &mut Value {
        self.pod("n", "old", ready())
    }

    /// A pod of the newest revision on `n`.
    fn new_pod(&mut self, status: Value) -> &mut Value {
        self.pod("n", NEW, status)
    }

    /// A pod of the newest revision that has just been created.
    fn starting(&mut self, node: &str) {
        let pod = self.pod(node, NEW, waiting("ContainerCreating", ""));
        pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:59:50Z");
    }

    fn event(&mut self, reason: &str, message: &str) {
        self.events.push(
            json!({"involvedObject": {"uid": format!("n-{NEW}")}, "type": "Warning",
            "reason": reason, "message": message, "lastTimestamp": BEGAN}),
        );
    }

    /// That a user has frozen the object with this value of the annotation, and that the operator says so.
    fn frozen(&mut self, value: &str) {
        self.annotations = json!({FREEZE_ANNOTATION: value});
        self.status["freeze"] = json!(value);
        self.condition("Frozen", "True", "Frozen", value);
    }

    /// That the API server refuses what the operator wants.
    fn refused(&mut self, reason: &str, message: &str) {
        self.condition("Degraded", "True", reason, message);
    }

    fn taint(&mut self, key: &str, effect: &str) {
        self.nodes[0]["spec"]["taints"] =
            json!([{"key": key, "value": "yes", "effect": effect, "timeAdded": BEGAN}]);
    }

    /// The object with this status.
    fn object(&self, status: &Value) -> Option<Object> {
        let mut raw = json!({
            "apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": 3,
                "annotations": self.annotations},
            "spec": self.spec, "status": status,
        });
        if self.is_deleted {
            raw["metadata"]["deletionTimestamp"] = json!(BEGAN);
        }
        Object::decode(serde_json::from_value(raw).unwrap()).ok()
    }

    /// The newest revision.
    fn revisions(&self) -> Option<Arc<RevisionView>> {
        let content = Content::from_spec(&self.object(&Value::Null)?.spec);
        let content: Value = serde_json::from_str(&content.canonical()).unwrap();
        let owner = json!({"name": "web", "uid": "u", "controller": true});
        let revision = json!({"metadata": {"name": "web-new", "ownerReferences": [owner],
            "creationTimestamp": "2026-01-01T00:30:00Z"}, "data": content, "revision": 2});
        RevisionView::from_json(&revision.to_string()).map(Arc::new)
    }

    fn report(&self, asked: Option<&str>) -> Option<Report> {
        let revision = self.object(&Value::Null)?.revision();
        let dated = |value: &Value| -> Value {
            let text = value.to_string().replace(NEW, &revision);
            serde_json::from_str(&text).unwrap()
        };
        let nodes = self.nodes.iter().map(dated);
        let nodes = nodes.filter_map(|node| NodeFacts::read(node, now()));
        let nodes = nodes.map(|node| (node.view.name.clone(), node)).collect();
        let pods = self.pods.iter().map(dated);
        let pods = pods.filter_map(|pod| PodFacts::read(pod, now())).collect();
        let mut fleet = Fleet {
            nodes: Some(nodes),
            pods,
            revisions: self.revisions().into_iter().collect(),
            ..Fleet::default()
        };
        for event in &self.events {
            if let Some((uid, warning)) = Warning::read(dated(event)) {
                fleet.warnings.entry(uid).or_default().push(warning);
            }
        }
        Some(explain(
            &self.object(&dated(&self.status))?,
            &fleet,
            asked,
            now(),
        ))
    }

    /// What is found out about `n`.
    fn finding(&self) -> Finding {
        let report = self.report(None).unwrap();
        let mut findings = report.findings.into_iter();
        findings.find(|finding| finding.node == "n").unwrap()
    }
}

fn ready() -> Value {
    json!({"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": BEGAN}]})
}

/// The status of a pod with a container in that state.
fn unready(state: &Value) -> Value {
    let container = json!({"name": "app", "ready": false, "started": true, "restartCount": 0,
        "image": "i", "imageID": "", "state": state});
    json!({"phase": "Pending", "containerStatuses": [container],
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": BEGAN}]})
}

fn waiting(reason: &str, message: &str) -> Value {
    unready(&json!({"waiting": {"reason": reason, "message": message}}))
}

fn failed(reason: &str) -> Value {
    json!({"phase": "Failed", "reason": reason, "message": "Pod was rejected"})
}

/// Each cause, and what leads to it.
type Injection = fn(&mut Scene);

const CASES: &[(Cause, Injection)] = &[
    (Cause::NodeGone, |scene| {
        scene.nodes.clear();
        scene.old();
    }),
    (Cause::NodeDeleting, |scene| {
        scene.nodes[0]["metadata"]["deletionTimestamp"] = json!(BEGAN);
        scene.old();
    }),
    (Cause::NodeNotReady, |scene| {
        let ready = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": BEGAN});
        scene.nodes[0]["status"]["conditions"] = json!([ready]);
        scene.old();
    }),
    (Cause::Cordoned, |scene| {
        scene.taint("node.kubernetes.io/unschedulable", "NoSchedule");
        scene.nodes[0]["spec"]["unschedulable"] = json!(true);
        scene.old();
    }),
    // It is being worked on, and so is not Ready.
    (Cause::Maintenance, |scene| {
        let condition = |type_: &str, status: &str, reason: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": "new kernel",
                "lastTransitionTime": BEGAN})
        };
        scene.nodes[0]["status"]["conditions"] = json!([
            condition("Ready", "False", "KubeletNotReady"),
            condition("MaintenancePlanned", "True", "MaintenanceWindow"),
            condition("MaintenanceInProgress", "True", "AdminRequested"),
        ]);
        scene.old();
    }),
    (Cause::TaintNotTolerated, |scene| {
        scene.taint("reserved", "NoSchedule");
        scene.old();
    }),
    (Cause::TaintNotTolerated, |scene| {
        scene.taint("reserved", "NoExecute");
        scene.old();
    }),
    (Cause::NotEligible, |scene| {
        scene.spec["template"] = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
        scene.old();
    }),
    (Cause::ObjectDeleting, |scene| {
        scene.is_deleted = true;
        scene.old();
    }),
    (Cause::Migrating, |scene| {
        scene.condition("Progressing", "True", "Migrating", "changing hands");
        scene.old();
    }),
    (Cause::InvalidSpec, |scene| {
        scene.condition("Accepted", "False", "Invalid", "spec.image: Required value");
        scene.old();
    }),
    (Cause::Unobserved, |scene| {
        scene.status["observedGeneration"] = json!(2);
        scene.old();
    }),
    (Cause::RevisionNotStored, |scene| {
        scene.refused("RevisionRefused", "it cannot be stored");
        scene.old();
    }),
    (Cause::RevisionNotStored, |scene| {
        scene.condition("Progressing", "True", "WaitingForDeletion", "waiting");
        scene.old();
    }),
    (Cause::QuotaExceeded, |scene| {
        scene.refused(
            "FailedCreate",
            "pods \"...\" is forbidden: exceeded quota: few, requested: pods=1",
        );
    }),
    (Cause::WebhookRefused, |scene| {
        scene.refused(
            "PodRefused",
            "admission webhook \"x.example.com\" denied the request: no",
        );
    }),
    (Cause::PolicyRefused, |scene| {
        scene.refused(
            "PodRefused",
            "pods \"...\" is forbidden: violates PodSecurity \"restricted:latest\"",
        );
        // The dry run is refused: no old pod goes.
        scene.old();
    }),
    (Cause::PodRefused, |scene| {
        scene.refused("NameConflict", "the pod exists");
    }),
    (Cause::DeleteRefused, |scene| {
        scene.refused("DeleteRefused", "no");
        scene.old();
    }),
    (Cause::AutoPaused, |scene| {
        scene.condition("Progressing", "False", "AutoPaused", "failed on m (Error)");
        scene.old();
    }),
    (Cause::AutoPaused, |scene| {
        scene.condition("Progressing", "False", "AutoPaused", "failed on m (Error)");
        scene.frozen("since 1");
        scene.old();
    }),
    (Cause::RollingBack, |scene| {
        scene.condition("Progressing", "True", "RollingBack", "the pods go back");
        scene.old();
    }),
    (Cause::DeleteRefused, |scene| {
        scene.condition("Progressing", "True", "RollingBack", "the pods go back");
        scene.refused("DeleteRefused", "no");
        scene.old();
    }),
    (Cause::RolledBack, |scene| {
        scene.condition("Progressing", "False", "RolledBack", "went back");
        scene.old();
    }),
    (Cause::NoEligibleNodes, |scene| {
        scene.condition("Progressing", "False", "NoEligibleNodes", "no node");
        scene.old();
    }),
    (Cause::Frozen, |scene| {
        scene.condition("Progressing", "False", "Frozen", "frozen");
        scene.old();
    }),
    (Cause::Frozen, |scene| {
        // Not everything is held yet, so Progressing has another reason.
        scene.frozen("since 1");
        scene.old();
    }),
    (Cause::Frozen, |scene| {
        scene.condition("Progressing", "True", "RollingBack", "the pods go back");
        scene.frozen("since 1");
        scene.old();
    }),
    (Cause::Frozen, |scene| {
        // The old pod is not deleted beside the new one either.
        scene.frozen("since 1");
        scene.old();
        scene.new_pod(ready());
    }),
    (Cause::Frozen, |scene| scene.frozen("all since 1")),
    (Cause::Frozen, |scene| {
        // The operator has not looked since, or its status has no field for it.
        scene.annotations = json!({FREEZE_ANNOTATION: "since 1"});
        scene.old();
    }),
    (Cause::Frozen, |scene| {
        scene.status["namespaceFreeze"] = json!("all");
        scene.condition("Frozen", "True", "Frozen", "frozen");
    }),
    // Missing pods are made.
    (Cause::Undetermined, |scene| scene.frozen("since 1")),
    (Cause::Canary, |scene| {
        scene.condition("Progressing", "True", "Canary", "soaks on m");
        scene.old();
    }),
    (Cause::QuotaExceeded, |scene| {
        scene.condition("Progressing", "True", "Canary", "soaks on m");
        scene.refused("FailedCreate", "exceeded quota: few, requested: pods=1");
        scene.old();
    }),
    (Cause::WaitingForApproval, |scene| {
        scene.condition("Progressing", "False", "WaitingForApproval", "soaked on m");
        scene.old();
    }),
    (Cause::Paused, |scene| {
        scene.spec["updateStrategy"] = json!({"rollingUpdate": {"paused": true}});
        scene.old();
    }),
    (Cause::OutsideWindow, |scene| {
        scene.outside_window();
        scene.old();
    }),
    (Cause::Partition, |scene| {
        scene.spec["updateStrategy"] = json!({"rollingUpdate": {"partition": 1}});
        scene.outside_window();
        scene.old();
    }),
    (Cause::OnDelete, |scene| {
        scene.spec["updateStrategy"] = json!({"type": "OnDelete"});
        scene.old();
    }),
    (Cause::Partition, |scene| {
        scene.spec["updateStrategy"] = json!({"rollingUpdate": {"partition": 1}});
        scene.old();
    }),
    (Cause::Domain, |scene| {
        let rolling = json!({"topologyKey": "tier", "order": ["test"]});
        scene.spec["updateStrategy"] = json!({"rollingUpdate": rolling});
        scene.status["domain"] = json!("tier test");
        scene.node("m");
        scene.nodes[1]["metadata"]["labels"] = json!({"tier": "test"});
        scene.starting("m");
        scene.old();
    }),
    (Cause::WaitingTurn, |scene| {
        scene.node("m");
        scene.starting("m");
        scene.old();
    }),
    (Cause::WaitingTurn, |scene| {
        // It is a canary itself.
        scene.condition("Progressing", "True", "Canary", "tried on m and n");
        scene.status["canaryNodes"] = json!(["m", "n"]);
        scene.node("m");
        scene.starting("m");
        scene.old();
    }),
    (Cause::WaitingTurn, |scene| {
        // It joined later than the other node, and the operator chose it for what is not seen here.
        scene.spec["updateStrategy"] = json!({"rollingUpdate": {"canary": {"nodes": 1}}});
        scene.condition("Progressing", "True", "Canary", "tried on n");
        scene.status["canaryNodes"] = json!(["n"]);
        scene.nodes[0]["metadata"]["creationTimestamp"] = json!("2026-01-01T00:45:00Z");
        scene.node("m");
        scene.pod("m", "old", ready());
        scene.old();
    }),
    (Cause::Terminating, |scene| {
        let pod = scene.old();
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:20Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    }),
    (Cause::HeldByFinalizer, |scene| {
        let pod = scene.old();
        pod["metadata"]["deletionTimestamp"] = json!(BEGAN);
        pod["metadata"]["finalizers"] = json!(["example.com/keep"]);
    }),
    (Cause::NotEnding, |scene| {
        scene.old()["metadata"]["deletionTimestamp"] = json!(BEGAN);
    }),
    (Cause::Evicted, |scene| {
        let pod = scene.old();
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:20Z");
        pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True",
            "reason": "EvictionByEvictionAPI", "lastTransitionTime": BEGAN}]);
    }),
    (Cause::Evicted, |scene| {
        scene.new_pod(failed("Evicted"));
    }),
    (Cause::ImagePull, |scene| {
        scene.new_pod(waiting("ImagePullBackOff", "no such image: nginx:1.29"));
    }),
    (Cause::ContainerConfig, |scene| {
        scene.new_pod(waiting(
            "CreateContainerConfigError",
            "configmap \"settings\" not found",
        ));
    }),
    (Cause::ContainerConfig, |scene| {
        scene.new_pod(waiting("ContainerCreating", ""));
        scene.event(
            "FailedMount",
            "MountVolume.SetUp failed for volume \"v\" : secret \"key\" not found",
        );
    }),
    (Cause::CrashLoop, |scene| {
        let pod = scene.new_pod(waiting("CrashLoopBackOff", "back-off 5m0s"));
        let container = &mut pod["status"]["containerStatuses"][0];
        container["lastState"] = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
        container["restartCount"] = json!(7);
    }),
    (Cause::CrashLoop, |scene| {
        // Between two crashes, it runs.
        let pod = scene.new_pod(unready(&json!({"running": {}})));
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(7);
    }),
    (Cause::CrashLoop, |scene| {
        scene.new_pod(json!({"phase": "Failed"}));
    }),
    (Cause::CrashLoop, |scene| {
        // Of a pod of an older revision, on a node that is held, too.
        scene.spec["updateStrategy"] = json!({"rollingUpdate": {"paused": true}});
        scene.pod("n", "old", waiting("CrashLoopBackOff", ""));
    }),
    (Cause::ContainerStart, |scene| {
        scene.new_pod(waiting("RunContainerError", "exec: \"ngin\": not found"));
    }),
    (Cause::VolumeMount, |scene| {
        scene.new_pod(waiting("ContainerCreating", ""));
        scene.event("FailedAttachVolume", "Multi-Attach error for volume \"v\"");
    }),
    (Cause::PodSandbox, |scene| {
        scene.new_pod(waiting("ContainerCreating", ""));
        scene.event("FailedCreatePodSandBox", "cni plugin not initialized");
    }),
    (Cause::HostPort, |scene| {
        scene.new_pod(failed("NodePorts"));
    }),
    (Cause::Resources, |scene| {
        scene.new_pod(failed("OutOfcpu"));
    }),
    (Cause::Resources, |scene| {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient memory.", "lastTransitionTime": BEGAN});
        scene.new_pod(json!({"phase": "Pending", "conditions": [condition]}));
    }),
    (Cause::KubeletRefused, |scene| {
        scene.new_pod(failed("UnexpectedAdmissionError"));
    }),
    (Cause::InitContainer, |scene| {
        let pod = scene.new_pod(waiting("PodInitializing", ""));
        pod["status"]["initContainerStatuses"] = json!([{"name": "init", "ready": false,
            "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}}]);
    }),
    (Cause::StartupProbe, |scene| {
        let pod = scene.new_pod(unready(&json!({"running": {}})));
        pod["spec"]["containers"][0]["startupProbe"] = json!({"tcpSocket": {"port": 80}});
        pod["status"]["containerStatuses"][0]["started"] = json!(false);
    }),
    (Cause::ReadinessProbe, |scene| {
        scene.new_pod(unready(&json!({"running": {}})));
        scene.event("Unhealthy", "Readiness probe failed: connection refused");
    }),
    (Cause::ReadinessGate, |scene| {
        let gate = "the status of pod readiness gate \"x\" is not \"True\", but False";
        let pod = scene.new_pod(json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "False", "message": gate, "lastTransitionTime": BEGAN}]}));
        pod["spec"]["readinessGates"] = json!([{"conditionType": "x"}]);
    }),
    (Cause::MinReady, |scene| {
        scene.spec["minReadySeconds"] = json!(7200);
        scene.new_pod(ready());
    }),
    (Cause::Starting, |scene| {
        scene.new_pod(waiting("ContainerCreating", ""));
    }),
    (Cause::NotStarted, |scene| {
        scene.new_pod(json!({"phase": "Pending"}));
    }),
    // Its pod is missing, and nothing says why.
    (Cause::Undetermined, |_| {}),
];

#[test]
fn each_injected_cause_is_named_with_what_to_do() {
    for (cause, change) in CASES {
        let finding = Scene::with(*change).finding();
        assert_eq!(finding.reason.cause, *cause, "{finding:?}");
        let words = ["NAME", "NODE", "POD"];
        let advice = &finding.advice;
        assert!(!advice.is_empty(), "{finding:?}");
        assert!(!words.iter().any(|word| advice.contains(word)), "{advice}");
    }
    let injected: BTreeSet<String> = CASES
        .iter()
        .map(|(cause, _)| format!("{cause:?}"))
        .collect();
    let listed = ADVICE.lines().filter_map(|line| line.split_once(": "));
    let listed: BTreeSet<String> = listed.map(|(cause, _)| cause.to_owned()).collect();
    assert_eq!(injected, listed);
    assert_eq!(listed.len(), ADVICE.lines().count(), "one is listed twice");
    let page = include_str!("../../../../docs/kubectl/mydaemonset.md");
    for cause in listed {
        assert!(page.contains(&format!("`{cause}`")), "{cause}");
    }
}

#[test]
fn a_cause_has_the_words_and_the_instant_of_what_shows_it() {
    let began = Some(time(BEGAN));
    for (cause, since, words) in [
        (
            Cause::NodeNotReady,
            began,
            "NodeStatusUnknown: Kubelet stopped posting node status.",
        ),
        (Cause::Cordoned, began, ""),
        (
            Cause::Maintenance,
            began,
            "MaintenanceInProgress: AdminRequested: new kernel",
        ),
        (Cause::TaintNotTolerated, began, "reserved=yes:NoSchedule"),
        (
            Cause::NotEligible,
            None,
            "nodeSelector disk=ssd: the node has no label disk",
        ),
        (Cause::Unobserved, None, ""),
        (Cause::AutoPaused, began, "failed on m (Error)"),
        (Cause::RollingBack, began, "the pods go back"),
        (Cause::OutsideWindow, began, "the next opens at 2"),
        (Cause::Partition, None, "partition 1"),
        (Cause::Domain, None, "tier test first"),
        (Cause::WaitingTurn, None, "maxUnavailable 1 first: m"),
        (Cause::Terminating, Some(time("2026-01-01T00:59:50Z")), ""),
        (Cause::HeldByFinalizer, began, "example.com/keep"),
        (Cause::Evicted, began, "EvictionByEvictionAPI"),
        (
            Cause::ImagePull,
            began,
            "container app: ImagePullBackOff: no such image: nginx:1.29",
        ),
        (
            Cause::CrashLoop,
            began,
            "container app ended with exit code 3 (Error), restarts: 7",
        ),
        (
            Cause::ReadinessProbe,
            began,
            "Readiness probe failed: connection refused",
        ),
        (Cause::MinReady, began, ""),
    ] {
        let (_, change) = CASES.iter().find(|(of, _)| *of == cause).unwrap();
        let reason = Scene::with(*change).finding().reason;
        assert_eq!(
            (reason.since, reason.message.as_str()),
            (since, words),
            "{cause:?}"
        );
    }
}

#[test]
fn the_pod_that_is_to_go_is_the_older_one() {
    let mut scene = Scene::new();
    scene.refused("DeleteRefused", "no");
    scene.new_pod(ready());
    scene.old();
    for _ in 0..2 {
        let reason = scene.finding().reason;
        let pod = reason.pod.as_deref();
        assert_eq!((reason.cause, pod), (Cause::DeleteRefused, Some("n-old")));
        scene.pods.reverse();
    }
}

#[test]
fn a_freeze_that_is_not_acknowledged_has_no_date() {
    let scene = Scene::with(|scene| {
        scene.frozen("since 1");
        scene.condition("Frozen", "False", "Waiting", "calls were sent before");
        scene.old();
    });
    let reason = scene.finding().reason;
    assert_eq!(
        (reason.cause, reason.since, reason.message.as_str()),
        (Cause::Frozen, None, "")
    );
}

#[test]
fn a_node_with_an_available_pod_of_the_newest_revision_has_no_cause() {
    let mut scene = Scene::new();
    scene.new_pod(ready());
    let report = scene.report(None).unwrap();
    assert_eq!((report.findings.len(), report.done), (0, 1));
    // Not while an older one is leaving.
    scene.old()["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:20Z");
    assert_eq!(scene.finding().reason.cause, Cause::Terminating);
    assert!(!scene.report(Some("m")).unwrap().is_known);
}

#[test]
fn a_node_where_no_pod_belongs_is_explained_when_asked_for() {
    let scene = Scene::with(|scene| scene.taint("reserved", "NoSchedule"));
    let report = scene.report(None).unwrap();
    assert_eq!((report.findings.len(), report.ineligible), (0, 1));
    let report = scene.report(Some("n")).unwrap();
    let causes: Vec<Cause> = report.findings.iter().map(|it| it.reason.cause).collect();
    assert_eq!(
        (causes, report.is_known),
        (vec![Cause::TaintNotTolerated], true)
    );
}

#[test]
fn a_partition_holds_the_last_nodes_that_are_behind() {
    let scene = Scene::with(|scene| {
        scene.spec["updateStrategy"] = json!({"rollingUpdate": {"partition": 2}});
        for node in ["a", "b", "o"] {
            scene.node(node);
            scene.pod(node, if node == "o" { NEW } else { "old" }, ready());
        }
        scene.old();
    });
    let findings = scene.report(None).unwrap().findings;
    let causes: Vec<(&str, Cause)> = findings
        .iter()
        .map(|finding| (finding.node.as_str(), finding.reason.cause))
        .collect();
    assert_eq!(
        causes,
        [
            ("a", Cause::WaitingTurn),
            ("b", Cause::Partition),
            ("n", Cause::Partition)
        ]
    );
}

#[test]
fn the_unmet_requirement_of_an_affinity_is_named() {
    let has = |key: &str| json!({"key": key, "operator": "Exists"});
    let zone = json!({"key": "zone", "operator": "In", "values": ["a", "b"]});
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["m"]});
    for (terms, words) in [
        (
            json!([{"matchExpressions": [has("disk"), zone]}]),
            "node affinity zone In [a,b]: the node has zone=c",
        ),
        (
            json!([{"matchFields": [name]}]),
            "node affinity metadata.name In [m]: the node has the name n",
        ),
        (
            json!([{"matchExpressions": [has("gpu")]}, {"matchExpressions": [zone]}]),
            "none of the 2 terms of the node affinity; of the first, node affinity gpu Exists []: the node has no label gpu",
        ),
        (
            json!([]),
            "the node affinity has no term, and so fits no node",
        ),
    ] {
        let mut scene = Scene::new();
        scene.nodes[0]["metadata"]["labels"] = json!({"disk": "ssd", "zone": "c"});
        scene.spec["template"] = json!({"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}});
        scene.old();
        let reason = scene.finding().reason;
        assert_eq!(
            (reason.cause, reason.message.as_str()),
            (Cause::NotEligible, words)
        );
    }
}

#[tokio::test]
async fn a_node_that_joins_between_the_reads_is_not_gone() {
    let mut scene = Scene::with(|scene| {
        scene.old();
    });
    let revision = scene.object(&Value::Null).unwrap().revision();
    scene.status["updateRevision"] = json!(revision);
    let object = scene.object(&scene.status).unwrap();
    // The node is there from the moment on at which the pods are listed.
    let has_joined = AtomicBool::new(false);
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path();
        let items = if path.ends_with("/pods") {
            has_joined.store(true, Ordering::Relaxed);
            scene.pods.clone()
        } else if path.ends_with("/nodes") && has_joined.load(Ordering::Relaxed) {
            scene.nodes.clone()
        } else {
            Vec::new()
        };
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
        let answer = Response::new(Body::from(list.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = Connection {
        client: Client::new(service, "shop"),
        namespace: "shop".to_owned(),
        server: "server:6443".to_owned(),
    };
    let (report, fleet) = find(&connection, &object, None).await.unwrap();
    let causes: Vec<Cause> = report.findings.iter().map(|it| it.reason.cause).collect();
    assert!(fleet.missing.is_empty());
    assert_eq!(causes, [Cause::WaitingTurn]);
}

/// Replaces some of the values by others that a client may store, or that no client may.
fn spoil(value: &mut Value, rng: &mut Rng) {
    if rng.u8(..30) == 0 {
        let others = [
            Value::Null,
            json!(i64::MIN),
            json!(i64::MAX),
            json!(2_147_483_647),
            json!(true),
            json!(""),
            json!("\u{202e}\u{1b}[2J\n"),
            json!("10000-01-01T00:59:59Z"),
            json!("0000-01-01T00:00:00Z"),
            json!("9999-12-31T23:59:59Z"),
            json!([]),
            json!([{}]),
            json!({}),
            json!(NEW),
        ];
        *value = others[rng.usize(..others.len())].clone();
        return;
    }
    match value {
        Value::Array(items) => {
            if rng.u8(..10) == 0 {
                items.extend(items.clone());
            }
            for item in items {
                spoil(item, rng);
            }
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                spoil(field, rng);
            }
        }
        _ => {}
    }
}

#[test]
fn no_stored_object_makes_it_panic() {
    let mut found = 0;
    for seed in 0..3_000 {
        let mut rng = Rng::with_seed(seed);
        let mut scene = Scene::new();
        for _ in 0..rng.usize(1..4) {
            let (_, change) = CASES[rng.usize(..CASES.len())];
            // One may be about a node that another has taken away.
            if scene.nodes.is_empty() {
                scene.node("n");
            }
            change(&mut scene);
        }
        let parts = [&mut scene.nodes, &mut scene.pods, &mut scene.events];
        for value in parts.into_iter().flatten() {
            spoil(value, &mut rng);
        }
        spoil(&mut scene.spec, &mut rng);
        spoil(&mut scene.status, &mut rng);
        for asked in [None, Some("n")] {
            let report = catch_unwind(AssertUnwindSafe(|| scene.report(asked)));
            assert!(report.is_ok(), "seed {seed}: {scene:?}");
            let report = report.ok().flatten().unwrap_or_default();
            for finding in &report.findings {
                assert!(!finding.advice.is_empty(), "seed {seed}: {finding:?}");
            }
            found += report.findings.len();
        }
    }
    assert!(found > 1_000, "{found} causes");
}
