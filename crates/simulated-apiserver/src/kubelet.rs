//! A small scheduler, kubelet and node controller in one: pods are bound, run and end, on virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::write::{seconds, text};
use crate::{Server, pod};

const SCHEDULER: &str = "system:kube-scheduler";
const KUBELET: &str = "system:node";
const NODE_CONTROLLER: &str = "system:serviceaccount:kube-system:node-controller";
const POD_COLLECTOR: &str = "system:serviceaccount:kube-system:pod-garbage-collector";

/// How long pods of a deleted node are kept (`quarantineTime` of pkg/controller/podgc).
const QUARANTINE: Duration = Duration::from_secs(40);
/// The delay of the taint manager.
const EVICTS_AFTER: Duration = Duration::from_secs(1);
/// The backoff after the first crash of a container; each further crash doubles it.
const BACK_OFF: Duration = Duration::from_secs(10);

/// Annotations of a pod that say how it runs; see [`Run::from_annotations`].
const EXIT_CODE: &str = "simulated-apiserver/exit-code";
const RUNS_SECONDS: &str = "simulated-apiserver/runs-seconds";
const READY_SECONDS: &str = "simulated-apiserver/ready-seconds";

/// How a pod runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// From the binding to the phase Running; None: never, for example because an image cannot be pulled.
    pub starts_after: Option<Duration>,
    /// From there to readiness; None: never.
    pub ready_after: Option<Duration>,
    /// The reason why containers that never start wait, such as `ImagePullBackOff`.
    pub waits: Option<String>,
    /// Why the kubelet rejects the pod, such as `OutOfcpu`.
    pub rejected: Option<String>,
    /// From the start to the end of the containers; None: they run for ever.
    pub runs: Option<Duration>,
    /// How often the containers of a pod that restarts them always crash, right after they were started. Then they run.
    pub crashes: u32,
    /// The exit code of the containers.
    pub exit_code: i32,
    /// The termination message.
    pub message: String,
    /// How long the containers go on after SIGTERM, if the grace period allows.
    pub ends_after: Duration,
}

impl Default for Run {
    /// A server: ready after two seconds, and it ends one second after SIGTERM.
    fn default() -> Self {
        Self {
            starts_after: Some(Duration::from_secs(1)),
            ready_after: Some(Duration::from_secs(1)),
            waits: None,
            rejected: None,
            runs: None,
            crashes: 0,
            exit_code: 0,
            message: String::new(),
            ends_after: Duration::from_secs(1),
        }
    }
}

impl Run {
    /// As the pod's annotations `simulated-apiserver/exit-code`, `.../runs-seconds` and `.../ready-seconds` say. A pod
    /// that is not restarted runs one second if they say nothing.
    pub fn from_annotations(pod: &Value) -> Self {
        let annotation = |name: &str| {
            let value = pod["metadata"]["annotations"][name].as_str()?;
            value.parse::<i32>().ok()
        };
        let duration = |name: &str| {
            let number = annotation(name)?;
            Some(Duration::from_secs(
                u64::try_from(number).unwrap_or_default(),
            ))
        };
        let job = pod["spec"]["restartPolicy"] != "Always";
        let usual = Self::default();
        Self {
            runs: duration(RUNS_SECONDS).or(job.then_some(Duration::from_secs(1))),
            exit_code: annotation(EXIT_CODE).unwrap_or_default(),
            ready_after: duration(READY_SECONDS).or(usual.ready_after),
            ..usual
        }
    }
}

/// The behavior of pods and nodes.
#[derive(Clone)]
pub struct KubeletOptions {
    /// How long the scheduler takes.
    pub binds_after: Duration,
    /// How each pod runs, asked when it is bound.
    pub run: Arc<dyn Fn(&Value) -> Run + Send + Sync>,
    /// From the last report of a node to its condition Ready=Unknown.
    pub unknown_after: Duration,
    /// From there to the deletion of its pods, which stay until the node reports again; None: never.
    pub evicted_after: Option<Duration>,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            binds_after: Duration::from_millis(10),
            run: Arc::new(Run::from_annotations),
            unknown_after: Duration::from_secs(40),
            evicted_after: Some(Duration::from_mins(5)),
        }
    }
}

/// Runs the pods of a server until it is dropped.
pub struct Kubelet {
    server: Server,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    state: Mutex<Nodes>,
    wake: Notify,
}

/// The nodes that are lost or joining.
#[derive(Clone, Debug, Default)]
struct Nodes {
    /// When each lost node stopped reporting.
    lost: BTreeMap<String, Instant>,
    /// When each joining node gets ready.
    joining: BTreeMap<String, Instant>,
}

impl Shared {
    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.state.lock()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a scheduler and kubelets on the current tokio runtime.
    pub fn kubelet(&self, options: KubeletOptions) -> Kubelet {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wake: Notify::new(),
        });
        let worker = Worker {
            server: self.clone(),
            shared: shared.clone(),
            options,
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            gone: BTreeMap::new(),
        };
        Kubelet {
            server: self.clone(),
            shared,
            task: tokio::spawn(worker.run()),
        }
    }
}

impl Kubelet {
    /// Adds a ready node.
    pub fn add_node(&self, name: &str) {
        self.register(name, &json!({}), "True", &[]);
    }

    /// A node joins: it registers NotReady, with the taints of such a node, and gets ready after that time.
    pub fn join(&self, name: &str, labels: &Value, ready_after: Duration) {
        self.register(name, labels, "False", &[NOT_READY]);
        let at = Instant::now() + ready_after;
        self.shared.nodes().joining.insert(name.to_owned(), at);
        self.shared.wake.notify_one();
    }

    fn register(&self, name: &str, labels: &Value, ready: &str, taints: &[&str]) {
        let now = seconds(self.server.clock().now());
        let reason = if ready == "True" {
            "KubeletReady"
        } else {
            "KubeletNotReady"
        };
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"taints": taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect::<Vec<_>>()},
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": now}]},
        });
        for (key, value) in labels.as_object().into_iter().flatten() {
            node["metadata"]["labels"][key] = value.clone();
        }
        self.shared.nodes().lost.remove(name);
        // If the node exists already, nothing is to be done.
        let _ = self.server.direct_as(KUBELET).create(node);
    }

    /// Removes the machine and its Node object. Its pods stay until they are garbage-collected.
    pub fn remove_node(&self, node: &str) {
        self.shared
            .nodes()
            .lost
            .insert(node.to_owned(), Instant::now());
        // It may be gone already.
        let _ = self
            .server
            .direct_as(NODE_CONTROLLER)
            .delete("Node", "", node);
    }

    /// The node stops reporting. The status of its pods stays, whatever really happens on it.
    pub fn lose(&self, node: &str) {
        self.shared
            .nodes()
            .lost
            .insert(node.to_owned(), Instant::now());
        self.shared.wake.notify_one();
    }

    /// The node reports that it is not ready, for example because its network is down, and so do its pods.
    pub fn fail(&self, node: &str) {
        set_ready(&self.server, node, "False", "KubeletNotReady");
        set_taint(&self.server, node, Some(NOT_READY));
        pods_are_not_ready(&self.server, node);
    }

    /// The node reports again that it is ready, and its pods go on.
    pub fn recover(&self, node: &str) {
        self.shared.nodes().lost.remove(node);
        set_taint(&self.server, node, None);
        set_ready(&self.server, node, "True", "KubeletReady");
        self.shared.wake.notify_one();
    }

    /// Deletes a pod as the node controller, the scheduler or a drain does: with the condition DisruptionTarget.
    pub fn disrupt(&self, namespace: &str, name: &str, reason: &str) {
        disrupt(&self.server, namespace, name, reason);
    }
}

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

fn set_ready(server: &Server, node: &str, status: &str, reason: &str) {
    let now = seconds(server.clock().now());
    // The node may be gone.
    let _ = server
        .direct_as(NODE_CONTROLLER)
        .edit_status("Node", "", node, |node| {
            let more = json!({"reason": reason, "lastTransitionTime": now});
            pod::set_condition(node, "Ready", status, more);
        });
}

/// Replaces the taints that say why a node is not ready.
fn set_taint(server: &Server, node: &str, key: Option<&str>) {
    // The node may be gone.
    let _ = server
        .direct_as(NODE_CONTROLLER)
        .edit("Node", "", node, |node| {
            let taints = node["spec"]["taints"].as_array().cloned();
            let mut taints = taints.unwrap_or_default();
            taints.retain(|taint| taint["key"] != UNREACHABLE && taint["key"] != NOT_READY);
            let effects = ["NoSchedule", "NoExecute"];
            let new = key.map(|key| effects.map(|effect| json!({"key": key, "effect": effect})));
            taints.extend(new.into_iter().flatten());
            node["spec"]["taints"] = json!(taints);
        });
}

/// The pods of a node that is not ready are not ready either.
fn pods_are_not_ready(server: &Server, node: &str) {
    let now = seconds(server.clock().now());
    for pod in server.direct().list("Pod", "") {
        if pod["spec"]["nodeName"] != *node || condition(&pod, "Ready") != Some("True") {
            continue;
        }
        let metadata = &pod["metadata"];
        let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
        // The pod may be gone by now.
        let _ = server
            .direct_as(NODE_CONTROLLER)
            .edit_status("Pod", namespace, name, |pod| {
                pod::set_condition(pod, "Ready", "False", json!({"lastTransitionTime": now}));
            });
    }
}

fn disrupt(server: &Server, namespace: &str, name: &str, reason: &str) {
    let direct = server.direct_as(NODE_CONTROLLER);
    let marked = direct.edit_status("Pod", namespace, name, |pod| {
        let more =
            json!({"reason": reason, "message": "Taint manager: deleting due to NoExecute taint"});
        pod::set_condition(pod, "DisruptionTarget", "True", more);
    });
    if marked.is_ok() {
        // The pod may be gone by now.
        let _ = direct.delete("Pod", namespace, name);
    }
}

/// The state of the scheduler and the kubelet for a pod.
#[derive(Clone, Debug)]
struct Seen {
    /// When the scheduler could first take it.
    ungated: Option<Instant>,
    bound: Option<(Instant, Run)>,
    started: Option<Instant>,
    /// How often its containers crashed, and when they did last if they have not been started since.
    crashes: u32,
    crashed: Option<Instant>,
    /// The kubelet has reported why the containers wait.
    waits: bool,
    deleted: Option<Instant>,
    /// Since when its node has had a taint that it does not tolerate.
    tainted: Option<Instant>,
    unschedulable: bool,
}

/// The next action on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Bind(String),
    Unschedulable,
    Start,
    Wait(String),
    Crash,
    Reject(String),
    Ready,
    End {
        exit_code: i32,
        reason: &'static str,
    },
    Remove,
    Evict,
    Collect,
}

struct Worker {
    server: Server,
    shared: Arc<Shared>,
    options: KubeletOptions,
    /// By UID.
    pods: BTreeMap<String, Seen>,
    /// The current Node objects, by name.
    nodes: BTreeMap<String, Value>,
    /// Since when the Node object of pods has been missing, by node name.
    gone: BTreeMap<String, Instant>,
}

impl Worker {
    async fn run(mut self) {
        let mut seen = 0;
        loop {
            let next = self.work();
            let changed = async {
                tokio::select! {
                    biased;
                    length = self.server.changed(seen) => length,
                    () = self.shared.wake.notified() => seen,
                }
            };
            seen = match next {
                None => changed.await,
                Some(next) => timeout_at(next, changed).await.unwrap_or(seen),
            };
        }
    }

    /// Does everything that is due, and returns when the next is.
    fn work(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut earliest = self.update_nodes(now);
        let named = |node: Value| (text(&node["metadata"], "name").to_owned(), node);
        let nodes = self.server.direct().list("Node", "");
        self.nodes = nodes.into_iter().map(named).collect();
        self.gone.retain(|node, _| !self.nodes.contains_key(node));
        let pods = self.server.direct().list("Pod", "");
        let uid = |pod: &Value| text(&pod["metadata"], "uid").to_owned();
        let there: BTreeSet<String> = pods.iter().map(uid).collect();
        self.pods.retain(|uid, _| there.contains(uid));
        for mut pod in pods {
            while let Some((due, step)) = self.next(&pod, now) {
                if due > now {
                    earliest = Some(earliest.map_or(due, |earliest| earliest.min(due)));
                    break;
                }
                self.perform(&pod, &step, now);
                let metadata = &pod["metadata"];
                let again = self.server.direct().get(
                    "Pod",
                    text(metadata, "namespace"),
                    text(metadata, "name"),
                );
                match again.filter(|again| again["metadata"]["uid"] == metadata["uid"]) {
                    Some(again) => pod = again,
                    None => break,
                }
            }
        }
        earliest
    }

    /// Marks lost nodes and those that have joined, and returns when the next is due.
    fn update_nodes(&mut self, now: Instant) -> Option<Instant> {
        let mut nodes = self.shared.nodes();
        let joined = nodes.joining.extract_if(.., |_, at| *at <= now);
        let joined: Vec<String> = joined.map(|(node, _)| node).collect();
        let (lost, joining) = (nodes.lost.clone(), nodes.joining.clone());
        drop(nodes);
        for node in joined {
            set_taint(&self.server, &node, None);
            set_ready(&self.server, &node, "True", "KubeletReady");
        }
        let due = |since: Instant| since + self.options.unknown_after;
        for (node, since) in &lost {
            if due(*since) <= now && ready(&self.server, node) {
                set_ready(&self.server, node, "Unknown", "NodeStatusUnknown");
                set_taint(&self.server, node, Some(UNREACHABLE));
                pods_are_not_ready(&self.server, node);
            }
        }
        let lost = lost.values().map(|since| due(*since));
        let next = lost.chain(joining.into_values()).filter(|due| *due > now);
        next.min()
    }

    /// The next action on a pod, and its time.
    fn next(&mut self, pod: &Value, now: Instant) -> Option<(Instant, Step)> {
        let seen = self
            .pods
            .entry(text(&pod["metadata"], "uid").to_owned())
            .or_insert(Seen {
                ungated: None,
                bound: None,
                started: None,
                crashes: 0,
                crashed: None,
                waits: false,
                deleted: None,
                tainted: None,
                unschedulable: false,
            });
        let deleting = !pod["metadata"]["deletionTimestamp"].is_null();
        let node = text(&pod["spec"], "nodeName").to_owned();
        if node.is_empty() {
            let ours = text(&pod["spec"], "schedulerName") == "default-scheduler";
            if !ours || pod::is_gated(pod) || deleting || has_ended(pod) {
                return None;
            }
            let since = *seen.ungated.get_or_insert(now);
            let due = since + self.options.binds_after;
            if due > now {
                return Some((due, Step::Unschedulable));
            }
            return match self.nodes.iter().find(|(_, node)| takes(node, pod)) {
                Some((node, _)) => Some((now, Step::Bind(node.clone()))),
                None if seen.unschedulable => None,
                None => Some((now, Step::Unschedulable)),
            };
        }
        let place = self.nodes.get(&node);
        let collected = place.is_none().then(|| {
            let since = *self.gone.entry(node.clone()).or_insert(now);
            (since + QUARANTINE, Step::Collect)
        });
        let stays = !deleting && !has_ended(pod);
        if let Some(since) = self.shared.nodes().lost.get(&node) {
            let taint = json!({"key": UNREACHABLE, "effect": "NoExecute"});
            let evicted = self.options.evicted_after;
            let evicted = evicted.filter(|_| stays && !tolerates(pod, &taint));
            let evicted = evicted.map(|after| *since + self.options.unknown_after + after);
            let evicted = evicted.map(|at| (at, Step::Evict));
            return collected.or(evicted);
        }
        let mut taints = place
            .and_then(|place| place["spec"]["taints"].as_array())
            .into_iter()
            .flatten();
        let is_evicted = stays
            && taints.any(|taint| {
                let ready = taint["key"] != UNREACHABLE && taint["key"] != NOT_READY;
                ready && taint["effect"] == "NoExecute" && !tolerates(pod, taint)
            });
        let evicted = is_evicted.then(|| {
            let since = *seen.tainted.get_or_insert(now);
            (since + EVICTS_AFTER, Step::Evict)
        });
        let next = self.next_of_kubelet(pod, now);
        [next, collected, evicted]
            .into_iter()
            .flatten()
            .min_by_key(|(due, _)| *due)
    }

    /// The next action of the kubelet on a pod of its node.
    fn next_of_kubelet(&mut self, pod: &Value, now: Instant) -> Option<(Instant, Step)> {
        let deleting = !pod["metadata"]["deletionTimestamp"].is_null();
        let place = self.nodes.get(text(&pod["spec"], "nodeName"));
        let node_is_ready = place.is_none_or(|node| condition(node, "Ready") == Some("True"));
        let seen = self.pods.get_mut(text(&pod["metadata"], "uid"))?;
        let run = &self.options.run;
        let is_new = seen.bound.is_none();
        let (bound, run) = seen.bound.get_or_insert_with(|| (now, run(pod))).clone();
        if deleting {
            let since = *seen.deleted.get_or_insert(now);
            let grace = pod["metadata"]["deletionGracePeriodSeconds"]
                .as_u64()
                .unwrap_or_default();
            let ends = since + run.ends_after.min(Duration::from_secs(grace));
            if has_ended(pod) || seen.started.is_none() {
                return Some((now, Step::Remove));
            }
            return Some((
                ends,
                Step::End {
                    exit_code: 143,
                    reason: "Error",
                },
            ));
        }
        if has_ended(pod) {
            return None;
        }
        let fits = place.is_none_or(|node| is_selected(node, pod));
        let rejected = run.rejected.or((!fits).then(|| "NodeAffinity".to_owned()));
        if let Some(reason) = rejected.filter(|_| is_new) {
            return Some((now, Step::Reject(reason)));
        }
        let deadline = pod["spec"]["activeDeadlineSeconds"].as_u64();
        let deadline = deadline.map(|deadline| {
            let step = Step::End {
                exit_code: 137,
                reason: "DeadlineExceeded",
            };
            (bound + Duration::from_secs(deadline), step)
        });
        let next = match seen.started {
            None => match (run.starts_after, run.waits) {
                (_, Some(_)) if seen.waits => None,
                (_, Some(reason)) => Some((bound + Duration::from_secs(1), Step::Wait(reason))),
                (after, None) => after.map(|after| (bound + after, Step::Start)),
            },
            Some(_) if let Some(at) = seen.crashed => {
                let pause = BACK_OFF * 2_u32.pow(seen.crashes.saturating_sub(1).min(5));
                Some((at + pause, Step::Start))
            }
            Some(started) if seen.crashes < run.crashes => {
                Some((started + Duration::from_secs(1), Step::Crash))
            }
            Some(started) => {
                let is_ready = condition(pod, "Ready") == Some("True") || !node_is_ready;
                let ready = run.ready_after.filter(|_| !is_ready);
                let ready = ready.map(|after| (started + after, Step::Ready));
                let ends = run.runs.map(|runs| {
                    let reason = if run.exit_code == 0 {
                        "Completed"
                    } else {
                        "Error"
                    };
                    (
                        started + runs,
                        Step::End {
                            exit_code: run.exit_code,
                            reason,
                        },
                    )
                });
                [ends, ready]
                    .into_iter()
                    .flatten()
                    .min_by_key(|(due, _)| *due)
            }
        };
        [next, deadline]
            .into_iter()
            .flatten()
            .min_by_key(|(due, _)| *due)
    }

    fn perform(&mut self, pod: &Value, step: &Step, now: Instant) {
        let metadata = &pod["metadata"];
        let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
        let time = seconds(self.server.clock().now());
        let seen = self.pods.get_mut(text(metadata, "uid"));
        let message = seen.as_ref().and_then(|seen| seen.bound.as_ref());
        let message = message
            .map(|(_, run)| run.message.clone())
            .unwrap_or_default();
        match step {
            Step::Bind(node) => {
                if let Some(seen) = seen {
                    seen.unschedulable = false;
                }
                // Another client may have deleted it meanwhile.
                let _ = self.server.direct_as(SCHEDULER).bind(namespace, name, node);
            }
            Step::Unschedulable => {
                if let Some(seen) = seen {
                    seen.unschedulable = true;
                }
                self.set_status(pod, SCHEDULER, |pod| {
                    let more = json!({"reason": "Unschedulable", "message": "0 nodes are available"});
                    pod::set_condition(pod, "PodScheduled", "False", more);
                });
            }
            Step::Start => {
                let mut restarts = 0;
                if let Some(seen) = seen {
                    seen.started = Some(now);
                    seen.crashed = None;
                    restarts = seen.crashes;
                }
                self.set_status(pod, KUBELET, |pod| {
                    pod["status"]["phase"] = json!("Running");
                    pod["status"]["startTime"] = json!(time);
                    pod["status"]["podIP"] = json!("10.0.0.1");
                    let running = json!({"running": {"startedAt": time}});
                    pod["status"]["containerStatuses"] = containers(pod, &running, false, restarts);
                    for kind in ["Initialized", "PodReadyToStartContainers"] {
                        pod::set_condition(pod, kind, "True", json!({"lastTransitionTime": time}));
                    }
                    for kind in ["Ready", "ContainersReady"] {
                        let more = json!({"reason": "ContainersNotReady", "lastTransitionTime": time});
                        pod::set_condition(pod, kind, "False", more);
                    }
                });
            }
            Step::Wait(reason) => {
                if let Some(seen) = seen {
                    seen.waits = true;
                }
                self.set_status(pod, KUBELET, |pod| {
                    let waiting = json!({"waiting": {"reason": reason}});
                    pod["status"]["containerStatuses"] = containers(pod, &waiting, false, 0);
                });
            }
            Step::Crash => {
                let mut restarts = 0;
                if let Some(seen) = seen {
                    restarts = seen.crashes;
                    seen.crashes += 1;
                    seen.crashed = Some(now);
                }
                self.set_status(pod, KUBELET, |pod| {
                    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
                    pod["status"]["containerStatuses"] = containers(pod, &waiting, false, restarts);
                });
            }
            Step::Reject(reason) => self.set_status(pod, KUBELET, |pod| {
                pod["status"]["phase"] = json!("Failed");
                pod["status"]["reason"] = json!(reason);
                pod["status"]["message"] = json!("Pod was rejected");
                pod["status"]["startTime"] = json!(time);
            }),
            Step::Ready => self.set_status(pod, KUBELET, |pod| {
                let running = pod["status"]["containerStatuses"][0]["state"].clone();
                let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
                let restarts = restarts.unwrap_or_default().try_into().unwrap_or_default();
                pod["status"]["containerStatuses"] = containers(pod, &running, true, restarts);
                for kind in ["Ready", "ContainersReady"] {
                    pod::set_condition(pod, kind, "True", json!({"lastTransitionTime": time}));
                }
            }),
            Step::End { exit_code, reason } => self.set_status(pod, KUBELET, |pod| {
                let succeeded = *exit_code == 0;
                pod["status"]["phase"] = json!(if succeeded { "Succeeded" } else { "Failed" });
                if *reason == "DeadlineExceeded" {
                    pod["status"]["reason"] = json!(reason);
                    pod["status"]["message"] = json!("Pod was active on the node longer than the specified deadline");
                }
                let started = pod["status"]["startTime"].clone();
                if !started.is_null() {
                    let mut ended = json!({
                        "exitCode": exit_code,
                        "reason": if succeeded { "Completed" } else { "Error" },
                        "startedAt": started,
                        "finishedAt": time,
                    });
                    if !message.is_empty() {
                        ended["message"] = json!(message);
                    }
                    let ended = json!({"terminated": ended});
                    pod["status"]["containerStatuses"] = containers(pod, &ended, false, 0);
                }
                for kind in ["Ready", "ContainersReady"] {
                    let more = json!({"reason": if succeeded { "PodCompleted" } else { "PodFailed" }, "lastTransitionTime": time});
                    pod::set_condition(pod, kind, "False", more);
                }
            }),
            Step::Remove => {
                let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}});
                // A pod that is gone, or has finalizers, needs nothing more.
                let _ = self.server.direct_as(KUBELET).delete_with("Pod", namespace, name, &options);
                if let Some(seen) = self.pods.get_mut(text(metadata, "uid")) {
                    seen.deleted = None;
                }
            }
            Step::Evict => disrupt(&self.server, namespace, name, "DeletionByTaintManager"),
            Step::Collect => {
                let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}});
                // A pod that is gone, or has finalizers, needs nothing more.
                let _ = self.server.direct_as(POD_COLLECTOR).delete_with("Pod", namespace, name, &options);
            }
        }
    }

    fn set_status(&self, pod: &Value, user: &str, change: impl FnOnce(&mut Value)) {
        let metadata = &pod["metadata"];
        let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
        // The pod may be gone by now.
        let _ = self
            .server
            .direct_as(user)
            .edit_status("Pod", namespace, name, change);
    }
}

fn has_ended(pod: &Value) -> bool {
    matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind)?;
    found["status"].as_str()
}

fn ready(server: &Server, node: &str) -> bool {
    let node = server.direct().get("Node", "", node);
    node.is_some_and(|node| condition(&node, "Ready") == Some("True"))
}

/// The status of each container.
fn containers(pod: &Value, state: &Value, ready: bool, restarts: u32) -> Value {
    let containers = pod["spec"]["containers"].as_array();
    let statuses = containers.into_iter().flatten().map(|container| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "",
            "ready": ready, "started": ready, "restartCount": restarts, "state": state,
        })
    });
    Value::Array(statuses.collect())
}

/// Whether the scheduler binds a pod to a node.
fn takes(node: &Value, pod: &Value) -> bool {
    let unschedulable = node["spec"]["unschedulable"] == true;
    let cordon = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut taints = taints.chain(unschedulable.then_some(&cordon));
    let not_ready = condition(node, "Ready") != Some("True");
    is_selected(node, pod)
        && !not_ready
        && taints.all(|taint| taint["effect"] == "PreferNoSchedule" || tolerates(pod, taint))
}

/// Whether the node matches the pod's node selector and required affinity.
pub fn is_selected(node: &Value, pod: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let selected = pod["spec"]["nodeSelector"].as_object();
    let selected = selected
        .into_iter()
        .flatten()
        .all(|(key, value)| labels[key] == *value);
    let affinity =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = affinity["nodeSelectorTerms"].as_array();
    let term_holds = |term: &Value| {
        let holds = |list: &str, value: &dyn Fn(&str) -> Value| {
            let requirements = term[list].as_array().into_iter().flatten();
            requirements
                .clone()
                .all(|r| requirement_holds(r, &value(text(r, "key"))))
        };
        holds("matchExpressions", &|key| labels[key].clone())
            && holds("matchFields", &|_| node["metadata"]["name"].clone())
    };
    selected && terms.is_none_or(|terms| terms.iter().any(term_holds))
}

fn requirement_holds(requirement: &Value, value: &Value) -> bool {
    let listed = requirement["values"]
        .as_array()
        .is_some_and(|values| values.contains(value));
    match text(requirement, "operator") {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => !value.is_null(),
        "DoesNotExist" => value.is_null(),
        _ => false,
    }
}

/// Whether the pod tolerates a taint.
pub fn tolerates(pod: &Value, taint: &Value) -> bool {
    let tolerations = pod["spec"]["tolerations"].as_array().into_iter().flatten();
    tolerations.clone().any(|toleration| {
        let absent_or =
            |field: &str| toleration[field].is_null() || toleration[field] == taint[field];
        let value =
            toleration["operator"] == "Exists" || text(toleration, "value") == text(taint, "value");
        absent_or("effect") && absent_or("key") && value
    })
}
