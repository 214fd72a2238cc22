//! DONE: nothing starts any more.

use chrono::{DateTime, Utc};

use super::decision::{BLIND_INTERVAL, Decision, Operation};
use super::end::delete_pod;
use crate::admission::deadline;
use crate::conditions::{FINISHED, GATE_VIOLATED, STARTED};
use crate::observe::{AtView, Observed};
use crate::pod::view::PodView;
use crate::status::StatusBuilder;
use wall_clock_controller::reconcile::condition;
use wall_clock_controller::reconcile::event::Severity;

pub(super) fn decide(mut status: StatusBuilder<'_>, observed: Observed<'_>) -> Decision {
    let (at, now) = (status.at, status.now);
    let ours = observed.pod.filter(|pod| pod.is_of(&at.uid));
    let unused = ours.filter(|pod| pod.gate.is_some() && !pod.deleting);
    let end = time_to_live_end(at).filter(|_| !at.deleting);
    // A rejected deletion of the pod must not delay that of the At, which takes the pod along.
    if let Some(pod) = unused.filter(|_| end.is_none_or(|end| now < end)) {
        return delete_pod(status, observed, pod);
    }
    if at.deleting {
        return Decision::nothing();
    }
    if ours.is_some_and(|pod| was_released_by_another(at, pod)) {
        if !observed.live {
            return Decision::get_live();
        }
        let message = "another client removed the gate of a pod that the operator never released";
        status.set(STARTED, true, GATE_VIOLATED, message);
        status.publish(Severity::Warning, GATE_VIOLATED, "RecordPod", message);
    }
    match end {
        Some(end) if now >= end => Decision {
            operation: Operation::DeleteAt,
            // A finalizer may hold it, and a proxy may answer for the API server.
            next: Some(now + BLIND_INTERVAL),
            ..Decision::nothing()
        },
        end => Decision::wait(status, end),
    }
}

/// Whether another client released this pod, which is not the recorded one, and no status says so yet.
fn was_released_by_another(at: &AtView, pod: &PodView) -> bool {
    let started = condition::get(&at.status.conditions, STARTED);
    pod.gate.is_none()
        && Some(&pod.uid) != at.status.pod_uid.as_ref()
        && started.is_none_or(|c| c.reason != GATE_VIOLATED)
}

/// When ttlSecondsAfterFinished has passed since DONE was written. The end of the command is a time by the clock of a
/// node, which may be behind: the At and the logs of its pod would be gone too early.
pub(super) fn time_to_live_end(at: &AtView) -> Option<DateTime<Utc>> {
    let seconds = at.spec.as_ref().ok()?.ttl_seconds_after_finished?;
    let finished = condition::get(&at.status.conditions, FINISHED);
    let finished = finished.map(|condition| condition.last_transition_time);
    deadline(finished.or(at.status.completion_time)?, seconds)
}
