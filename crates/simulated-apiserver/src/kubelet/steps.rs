//! What the scheduler, the kubelet and the taint manager do next with a pod, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::nodes::{NOT_READY, UNREACHABLE, condition};
use super::options::{KubeletOptions, Run};
use super::scheduling::{is_selected, takes, tolerates};
use crate::pod;
use crate::write::text;

/// The delay of the taint manager.
const EVICTS_AFTER: Duration = Duration::from_secs(1);
/// The backoff after the first crash of a container; each further crash doubles it.
const BACK_OFF: Duration = Duration::from_secs(10);

/// The next action on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
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

/// A step and its time.
pub(super) type Due = (Instant, Step);

/// The first of these steps.
pub(super) fn earliest<const N: usize>(steps: [Option<Due>; N]) -> Option<Due> {
    steps.into_iter().flatten().min_by_key(|(due, _)| *due)
}

/// How far the scheduler and the kubelet are with a pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// When the scheduler could first take it.
    ungated: Option<Instant>,
    pub(super) bound: Option<(Instant, Run)>,
    pub(super) started: Option<Instant>,
    /// How often its containers crashed, and when they did last if they have not been started since.
    pub(super) crashes: u32,
    pub(super) crashed: Option<Instant>,
    /// The kubelet has reported why the containers wait.
    pub(super) waits: bool,
    pub(super) deleted: Option<Instant>,
    /// Since when its node has had a taint that it does not tolerate.
    tainted: Option<Instant>,
    pub(super) unschedulable: bool,
}

impl Progress {
    /// The next action of the scheduler on a pod without a node.
    pub(super) fn next_of_scheduler(
        &mut self,
        pod: &Value,
        nodes: &BTreeMap<String, Value>,
        binds_after: Duration,
        now: Instant,
    ) -> Option<Due> {
        let ours = text(&pod["spec"], "schedulerName") == "default-scheduler";
        if !ours || pod::is_gated(pod) || is_deleting(pod) || has_ended(pod) {
            return None;
        }
        let since = *self.ungated.get_or_insert(now);
        let due = since + binds_after;
        if due > now {
            return Some((due, Step::Unschedulable));
        }
        match nodes.iter().find(|(_, node)| takes(node, pod)) {
            Some((node, _)) => Some((now, Step::Bind(node.clone()))),
            None if self.unschedulable => None,
            None => Some((now, Step::Unschedulable)),
        }
    }

    /// The deletion of a pod that does not tolerate a taint of its node. The taints of a node that is not ready do not
    /// count here: its pods are evicted after a time of their own.
    pub(super) fn next_of_taint_manager(
        &mut self,
        pod: &Value,
        node: Option<&Value>,
        now: Instant,
    ) -> Option<Due> {
        let taints = node.and_then(|node| node["spec"]["taints"].as_array());
        let mut taints = taints.into_iter().flatten();
        let is_evicted = stays(pod)
            && taints.any(|taint| {
                let ready = taint["key"] != UNREACHABLE && taint["key"] != NOT_READY;
                ready && taint["effect"] == "NoExecute" && !tolerates(pod, taint)
            });
        is_evicted.then(|| {
            let since = *self.tainted.get_or_insert(now);
            (since + EVICTS_AFTER, Step::Evict)
        })
    }

    /// The next action of the kubelet on a pod of its node. The Node object may be gone.
    pub(super) fn next_of_kubelet(
        &mut self,
        pod: &Value,
        node: Option<&Value>,
        options: &KubeletOptions,
        now: Instant,
    ) -> Option<Due> {
        let is_new = self.bound.is_none();
        let bound = self.bound.get_or_insert_with(|| (now, (options.run)(pod)));
        let (bound, run) = bound.clone();
        if is_deleting(pod) {
            return Some(self.termination(pod, &run, now));
        }
        if has_ended(pod) {
            return None;
        }
        let fits = node.is_none_or(|node| is_selected(node, pod));
        let rejected = run.rejected.clone();
        let rejected = rejected.or((!fits).then(|| "NodeAffinity".to_owned()));
        if let Some(reason) = rejected.filter(|_| is_new) {
            return Some((now, Step::Reject(reason)));
        }
        let next = match self.started {
            None => self.start(bound, &run),
            Some(started) => {
                let is_ready = |node| condition(node, "Ready") == Some("True");
                let node_is_ready = node.is_none_or(is_ready);
                self.next_of_started(pod, node_is_ready, started, &run)
            }
        };
        earliest([next, active_deadline(pod, bound)])
    }

    /// The end of a pod that is being deleted: after SIGTERM its containers go on for a while.
    fn termination(&mut self, pod: &Value, run: &Run, now: Instant) -> Due {
        let since = *self.deleted.get_or_insert(now);
        if has_ended(pod) || self.started.is_none() {
            return (now, Step::Remove);
        }
        let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
        let grace = Duration::from_secs(grace.unwrap_or_default());
        let step = Step::End {
            exit_code: 143,
            reason: "Error",
        };
        (since + run.ends_after.min(grace), step)
    }

    fn start(&self, bound: Instant, run: &Run) -> Option<Due> {
        match (run.starts_after, &run.waits) {
            (_, Some(_)) if self.waits => None,
            (_, Some(reason)) => {
                let step = Step::Wait(reason.clone());
                Some((bound + Duration::from_secs(1), step))
            }
            (after, None) => after.map(|after| (bound + after, Step::Start)),
        }
    }

    fn next_of_started(
        &self,
        pod: &Value,
        node_is_ready: bool,
        started: Instant,
        run: &Run,
    ) -> Option<Due> {
        if let Some(at) = self.crashed {
            let pause = BACK_OFF * 2_u32.pow(self.crashes.saturating_sub(1).min(5));
            return Some((at + pause, Step::Start));
        }
        if self.crashes < run.crashes {
            return Some((started + Duration::from_secs(1), Step::Crash));
        }
        let is_ready = condition(pod, "Ready") == Some("True") || !node_is_ready;
        let ready = run.ready_after.filter(|_| !is_ready);
        let ready = ready.map(|after| (started + after, Step::Ready));
        let succeeds = run.exit_code == 0;
        let end = Step::End {
            exit_code: run.exit_code,
            reason: if succeeds { "Completed" } else { "Error" },
        };
        let ends = run.runs.map(|runs| (started + runs, end));
        earliest([ends, ready])
    }
}

fn active_deadline(pod: &Value, bound: Instant) -> Option<Due> {
    let seconds = pod["spec"]["activeDeadlineSeconds"].as_u64()?;
    let step = Step::End {
        exit_code: 137,
        reason: "DeadlineExceeded",
    };
    Some((bound + Duration::from_secs(seconds), step))
}

/// Whether the pod neither ends nor has ended.
pub(super) fn stays(pod: &Value) -> bool {
    !is_deleting(pod) && !has_ended(pod)
}

fn is_deleting(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

fn has_ended(pod: &Value) -> bool {
    matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed")
}
