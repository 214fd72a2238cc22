//! RUNNING: a pod is committed, and no other is ever released.

use chrono::{DateTime, Utc};

use super::decision::{BLIND_INTERVAL, Decision, Operation, earliest};
use super::end::{announce_end, delete_pod, end, end_by_deletion, end_of_pod, missed, unknown};
use super::start::is_too_late_to_release;
use crate::admission::deadline;
use crate::conditions::{DEADLINE_EXCEEDED, FAILURE_TARGET, NEVER_STARTED, POD_LOST};
use crate::crd::{Ending, Phase};
use crate::message;
use crate::observe::Observed;
use crate::pod::view::{PodPhase, PodView};
use crate::result::RunResult;
use crate::sightings::LastSeen;
use crate::status::StatusBuilder;

pub(super) fn decide(mut status: StatusBuilder<'_>, observed: Observed<'_>, uid: &str) -> Decision {
    status.next.phase = Some(Phase::Running);
    let Some(pod) = observed.pod.filter(|pod| pod.uid == uid) else {
        return gone(status, observed, uid);
    };
    if let Some(run) = RunResult::from_pod(pod) {
        return end_of_pod(status, observed, pod, &run);
    }
    match pod.gate {
        Some(gate) => committed(status, observed, pod, gate),
        None => released(status, observed, pod),
    }
}

/// The recorded pod still has our gate.
fn committed(
    mut status: StatusBuilder<'_>,
    observed: Observed<'_>,
    pod: &PodView,
    gate: usize,
) -> Decision {
    let (at, now) = (status.at, status.now);
    let too_late = is_too_late_to_release(at, now);
    let early = at.status.scheduled_time.filter(|instant| now < *instant);
    let announced = status.announced_end();
    let ends = pod.deleting || at.deleting || too_late || announced.is_some();
    match announced {
        // A gated pod of an At that has started usually means an outdated cache.
        _ if (ends || at.is_started()) && !observed.live => Decision::get_live(),
        // First, so that no end is recorded next to a start that did not happen.
        _ if at.is_started() && !at.deleting => {
            status.take_back_start();
            Decision::again(status)
        }
        Some(run) if pod.deleting => end(status, &run),
        // Not back to PENDING: another operator may have released it since this read.
        None if pod.deleting => end(status, &unknown(NEVER_STARTED)),
        _ if at.deleting => delete_pod(status, observed, pod),
        Some(run) => end_by_deletion(status, observed, pod, &run),
        None if too_late => announce_end(status, &missed(at, observed.failing)),
        // The clock was set back since the commit, or is another operator's. By a live read only:
        // the pod may have lost the label that our watch selects.
        None if early.is_some() => {
            let blind = observed.live.then(|| now + BLIND_INTERVAL);
            Decision::wait(status, earliest(early, blind))
        }
        // No live read is needed: the patch carries the UID, and the API server rejects it for any
        // other pod of that name.
        None => {
            let uid = pod.uid.clone();
            Decision::perform(Operation::RemoveGate { uid, gate }, status)
        }
    }
}

/// The recorded pod was released and has not ended.
fn released(mut status: StatusBuilder<'_>, observed: Observed<'_>, pod: &PodView) -> Decision {
    let now = status.now;
    status.record_start(observed, Some(pod));
    // The kubelet enforces the deadline of a bound pod, the operator that of a waiting one.
    let waits = pod.phase == PodPhase::Pending && !pod.bound;
    match status.announced_end() {
        Some(run) if run.ending == Ending::Failed && waits => {
            return if pod.deleting {
                end(status, &run)
            } else {
                end_by_deletion(status, observed, pod, &run)
            };
        }
        // It started or was bound after all: the deletion is no longer possible.
        Some(_) => status.unset(FAILURE_TARGET),
        None => {}
    }
    let limit = active_deadline(&status).filter(|_| waits && !pod.deleting);
    match limit {
        Some(limit) if now >= limit && !observed.live => Decision::get_live(),
        Some(limit) if now >= limit => {
            let message = "no node had accepted the pod when activeDeadlineSeconds had passed";
            let run = RunResult::new(Ending::Failed, DEADLINE_EXCEEDED, message);
            announce_end(status, &run)
        }
        limit => await_end(status, observed, pod, limit),
    }
}

/// When activeDeadlineSeconds have passed since the start.
fn active_deadline(status: &StatusBuilder<'_>) -> Option<DateTime<Utc>> {
    let seconds = status.at.spec.as_ref().ok()?.active_deadline_seconds?;
    deadline(status.next.start_time?, seconds)
}

/// Waits for the end of a released pod, and says what it waits for.
fn await_end(
    mut status: StatusBuilder<'_>,
    observed: Observed<'_>,
    pod: &PodView,
    limit: Option<DateTime<Utc>>,
) -> Decision {
    // By a live read only: it may have lost the label that our watch selects.
    let blind = observed.live.then(|| status.now + BLIND_INTERVAL);
    let next = earliest(earliest(limit, blind), status.usual_until(pod));
    if let Some(record) = status.record_due(observed, pod) {
        // The Events need not wait for the record.
        return Decision {
            status: None,
            ..Decision::wait(status, earliest(next, Some(record)))
        };
    }
    if !status.at.deleting {
        status.report_waiting(pod);
    }
    Decision::wait(status, next)
}

/// The recorded pod is not there.
fn gone(status: StatusBuilder<'_>, observed: Observed<'_>, uid: &str) -> Decision {
    let last = observed.last.filter(|last| last.pod.uid == uid);
    if let Some((last, run)) = last.and_then(|last| Some((last, RunResult::from_pod(&last.pod)?))) {
        return end_of_pod(status, observed, &last.pod, &run);
    }
    if status.at.deleting && observed.pod.is_none() {
        return Decision::nothing();
    }
    // A watch that lags shows no pod, too. Unknown is final, so it takes a live read.
    if !observed.live {
        return Decision::get_live();
    }
    lost(status, observed, last)
}

/// No pod shows any more how the run ended: what was seen of it before decides.
///
/// An announced end is final only if the last state of the pod is known. Otherwise the pod may have
/// been released after the announcement, or a node may have accepted it: neither changes the version
/// of the At.
pub(super) fn lost(
    mut status: StatusBuilder<'_>,
    observed: Observed<'_>,
    last: Option<&LastSeen>,
) -> Decision {
    let at = status.at;
    let recorded = at.status.pod_uid.as_ref();
    let was_released = at.is_started()
        || observed
            .released
            .is_some_and(|run| Some(&run.uid) == recorded)
        || last.is_some_and(|last| last.pod.gate.is_none());
    if was_released {
        status.record_start(observed, last.map(|last| &last.pod));
    }
    let known = last.filter(|last| last.certain);
    let announced = status.announced_end().filter(|run| match run.ending {
        Ending::Missed => known.is_some() && !was_released,
        _ => known.is_some_and(|last| !last.pod.bound),
    });
    if let Some(run) = announced {
        return end(status, &run);
    }
    let gated = known.is_some() && !was_released;
    let mut run = unknown(if gated { NEVER_STARTED } else { POD_LOST });
    // Such as an eviction, which marks the pod before deleting it.
    if let Some(last) = last.filter(|last| !last.pod.reason.is_empty()) {
        let (reason, message) = (&last.pod.reason, &last.pod.message);
        let said = format!("{}; last seen: {reason}: {message}", run.message);
        run.message = message::head(&said);
    }
    end(status, &run)
}
