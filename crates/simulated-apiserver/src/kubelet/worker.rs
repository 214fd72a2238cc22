//! Runs the scheduler, the kubelets and the node controller: everything that is due, then a pause until the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::actions::Actions;
use super::nodes::{Shared, UNREACHABLE, is_ready, pods_are_not_ready, set_ready, set_taint};
use super::options::KubeletOptions;
use super::scheduling::tolerates;
use super::steps::{Due, Progress, Step, earliest, stays};
use crate::server::Server;
use crate::write::text;

/// How long pods of a deleted node are kept (`quarantineTime` of pkg/controller/podgc).
const QUARANTINE: Duration = Duration::from_secs(40);

pub(super) struct Worker {
    server: Server,
    shared: Arc<Shared>,
    options: KubeletOptions,
    /// By UID.
    pods: BTreeMap<String, Progress>,
    /// The current Node objects, by name.
    nodes: BTreeMap<String, Value>,
    /// Since when the Node object of pods has been missing, by node name.
    gone: BTreeMap<String, Instant>,
}

impl Worker {
    pub(super) fn new(server: Server, shared: Arc<Shared>, options: KubeletOptions) -> Self {
        Self {
            server,
            shared,
            options,
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            gone: BTreeMap::new(),
        }
    }

    pub(super) async fn run(mut self) {
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
        let joined = nodes.joining.iter().filter(|(_, at)| **at <= now);
        let joined: Vec<String> = joined.map(|(node, _)| node.clone()).collect();
        nodes.joining.retain(|_, at| *at > now);
        let (lost, joining) = (nodes.lost.clone(), nodes.joining.clone());
        drop(nodes);
        for node in joined {
            set_taint(&self.server, &node, None);
            set_ready(&self.server, &node, "True", "KubeletReady");
        }
        let due = |since: Instant| since + self.options.unknown_after;
        for (node, since) in &lost {
            if due(*since) <= now && is_ready(&self.server, node) {
                set_ready(&self.server, node, "Unknown", "NodeStatusUnknown");
                set_taint(&self.server, node, Some(UNREACHABLE));
                pods_are_not_ready(&self.server, |pod| pod["spec"]["nodeName"] == **node);
            }
        }
        let lost = lost.values().map(|since| due(*since));
        let next = lost.chain(joining.into_values()).filter(|due| *due > now);
        next.min()
    }

    /// The next action on a pod, and its time.
    fn next(&mut self, pod: &Value, now: Instant) -> Option<Due> {
        let uid = text(&pod["metadata"], "uid");
        let progress = self.pods.entry(uid.to_owned()).or_default();
        let name = text(&pod["spec"], "nodeName");
        if name.is_empty() {
            let binds_after = self.options.binds_after;
            return progress.next_of_scheduler(pod, &self.nodes, binds_after, now);
        }
        let node = self.nodes.get(name);
        let collected = node.is_none().then(|| {
            let since = *self.gone.entry(name.to_owned()).or_insert(now);
            (since + QUARANTINE, Step::Collect)
        });
        let nodes = self.shared.nodes();
        if let Some(since) = nodes.lost.get(name) {
            let taint = json!({"key": UNREACHABLE, "effect": "NoExecute"});
            let evicted = self.options.evicted_after;
            let evicted = evicted.filter(|_| stays(pod) && !tolerates(pod, &taint));
            let evicted = evicted.map(|after| *since + self.options.unknown_after + after);
            let evicted = evicted.map(|at| (at, Step::Evict));
            return collected.or(evicted);
        }
        let evicted = progress.next_of_taint_manager(pod, node, now);
        let next = progress.next_of_kubelet(pod, node, &self.options, now);
        let next = next.filter(|(_, step)| !nodes.probes_fail || *step != Step::Ready);
        earliest([next, collected, evicted])
    }

    fn perform(&mut self, pod: &Value, step: &Step, now: Instant) {
        let uid = text(&pod["metadata"], "uid");
        let progress = self.pods.entry(uid.to_owned()).or_default();
        let actions = Actions::new(&self.server, pod);
        match step {
            Step::Bind(node) => {
                progress.unschedulable = false;
                actions.bind(node);
            }
            Step::Unschedulable => {
                progress.unschedulable = true;
                actions.report_unschedulable();
            }
            Step::Start => {
                (progress.started, progress.crashed) = (Some(now), None);
                actions.start(progress.crashes);
            }
            Step::Wait(reason) => {
                progress.waits = true;
                actions.wait(reason, 0);
            }
            Step::Crash => {
                actions.wait("CrashLoopBackOff", progress.crashes);
                progress.crashes += 1;
                progress.crashed = Some(now);
            }
            Step::Reject(reason) => actions.reject(reason),
            Step::Ready => actions.report_ready(),
            Step::End { exit_code, reason } => {
                let run = progress.bound.as_ref();
                let message = run.map_or("", |(_, run)| &run.message);
                actions.end(*exit_code, reason, message);
            }
            Step::Remove => {
                actions.remove();
                progress.deleted = None;
            }
            Step::Evict => actions.evict(),
            Step::Collect => actions.collect(),
        }
    }
}
