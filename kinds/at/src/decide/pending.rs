//! PENDING: nothing has started, and no pod is committed.

use super::decision::{BLIND_INTERVAL, Decision, Operation, earliest};
use super::end::{delete_altered, delete_pod, discard, end_missed};
use super::start::{Start, too_late_from};
use super::trial::wait_and_try;
use crate::conditions::{
    INVALID, NAME_CONFLICT, NEVER_DUE, POD_TERMINATING, RECONCILING, STARTED, SUSPENDED,
};
use crate::observe::{AtView, Observed};
use crate::pod::build;
use crate::pod::names::{HASH, pod_name};
use crate::pod::view::PodView;
use crate::status::StatusBuilder;
use admission_rules::faults::join;
use wall_clock_controller::reconcile::condition;
use wall_clock_controller::reconcile::event::Severity;

pub(super) fn decide(mut status: StatusBuilder<'_>, observed: Observed<'_>) -> Decision {
    let (at, now) = (status.at, status.now);
    let ours = observed.pod.filter(|pod| pod.is_of(&at.uid));
    if at.deleting {
        return match ours {
            Some(pod) if pod.gate.is_some() && !pod.deleting => delete_pod(status, observed, pod),
            _ => Decision::nothing(),
        };
    }
    let start = Start::check(at, now);
    // A pod that was seen without our gate and is gone: the watches need not have shown its end.
    if let Some(run) = observed.released
        && ours.is_none_or(|pod| pod.uid != run.uid)
    {
        if !observed.live {
            return Decision::get_live();
        }
        status.adopt_as_run(&run.uid, observed, None);
        return Decision::again(status);
    }
    match ours {
        // Whatever follows from a pod of ours follows from its latest state. A cached one may have
        // been released, changed or deleted since.
        Some(_) if !observed.live => Decision::get_live(),
        // It may have run, so it is the run, even if the At was not to start.
        Some(pod) if pod.gate.is_none() => {
            status.adopt_as_run(&pod.uid, observed, Some(pod));
            Decision::again(status)
        }
        // An uncommitted pod never runs, so it need not be gone: a finalizer may hold it, and a
        // policy may reject its deletion.
        Some(_) if start == Start::TooLate => end_missed(status, observed),
        Some(pod) if pod.deleting => await_deletion(status, observed, start),
        Some(pod) => commit_or_discard(status, observed, pod, start),
        None if start == Start::Allowed => create(status, observed),
        None => wait_to_start(status, observed, start),
    }
}

/// A gated pod of ours is being deleted: it never runs, but it occupies the name.
fn await_deletion(mut status: StatusBuilder<'_>, observed: Observed<'_>, start: Start) -> Decision {
    let at = status.at;
    // The watch shows when it is gone, unless another client removed our label.
    let blind = Some(status.now + BLIND_INTERVAL);
    if start != Start::Allowed {
        let decision = wait_to_start(status, observed, start);
        let next = earliest(decision.next, blind);
        return Decision { next, ..decision };
    }
    let message = format!(
        "the pod {} of an earlier attempt is still being deleted; the command starts when it is gone",
        pod_name(&at.key.name)
    );
    status.report_start_blocked(POD_TERMINATING, &message);
    Decision::wait(status, earliest(blind, too_late_from(at)))
}

/// A gated pod of ours, by a live read. The commit is the write of its UID with the resource version
/// of the At that was read: an operator with an outdated view of the At commits nothing.
fn commit_or_discard(
    mut status: StatusBuilder<'_>,
    observed: Observed<'_>,
    pod: &PodView,
    start: Start,
) -> Decision {
    if let Some(alteration) = alteration(pod, start) {
        return delete_altered(status, observed, pod, &alteration);
    }
    if status.is_discarded(pod) {
        return delete_pod(status, observed, pod);
    }
    if start == Start::Allowed && is_current(pod, status.at) {
        status.commit(pod);
        return Decision::again(status);
    }
    discard(status, pod)
}

/// What a foreign webhook did to a gated pod of ours that it must not, as the rest of a sentence.
fn alteration(pod: &PodView, start: Start) -> Option<String> {
    match &pod.may_restart {
        Some(message) => Some(format!(" and could run twice: {message}")),
        None if pod.hash.is_none() && start == Start::Allowed => {
            Some(format!(": its annotation {HASH} was removed"))
        }
        None => None,
    }
}

/// Whether the pod was made from the spec as it is now.
pub(super) fn is_current(pod: &PodView, at: &AtView) -> bool {
    let hash = at.spec.as_ref().ok().map(|spec| build::hash(&at.uid, spec));
    hash.is_some() && pod.hash == hash
}

/// Creates the pod, or removes what blocks its name: it is time, and there is no pod of ours.
fn create(mut status: StatusBuilder<'_>, observed: Observed<'_>) -> Decision {
    let at = status.at;
    let is_gated = |pod: &&PodView| pod.gate.is_some() && !pod.deleting;
    let stray = observed.pod.filter(|pod| observed.live && is_gated(pod));
    if let Some((pod, uid)) = stray.and_then(|pod| Some((pod, pod.stray_of.as_deref()?))) {
        // It is gated and marked as created for an At of this name, so it has never run, and no
        // operator will release it: it only blocks the name.
        return if uid == at.uid {
            let alteration = ": its owner reference was removed";
            delete_altered(status, observed, pod, alteration)
        } else {
            delete_pod(status, observed, pod)
        };
    }
    if observed.pod.is_some() && observed.live {
        let message = format!(
            "a pod named {} exists and is not of this At; the command starts when it is gone",
            pod_name(&at.key.name)
        );
        status.report_start_blocked(NAME_CONFLICT, &message);
        // No watch shows its end.
        return Decision::retry(status);
    }
    let had_conflict = condition::get(&at.status.conditions, STARTED)
        .is_some_and(|c| c.reason == NAME_CONFLICT && c.status == "False");
    match &at.spec {
        // Where there was a foreign pod, read live before trying.
        _ if !observed.live && (observed.pod.is_some() || had_conflict) => Decision::get_live(),
        // No live read is needed: if the cache missed a pod, the name is taken and the create fails.
        Ok(spec) => Decision {
            operation: Operation::Create(build::build(at.owner(), spec)),
            again: true,
            ..Decision::nothing()
        },
        Err(_) => Decision::nothing(),
    }
}

/// Nothing may start now, and there is no pod of ours that could.
fn wait_to_start(mut status: StatusBuilder<'_>, observed: Observed<'_>, start: Start) -> Decision {
    let at = status.at;
    status.next.scheduled_time = at.instant();
    status.unset(RECONCILING);
    status.clear_reason();
    if !matches!(start, Start::NotDue(Some(_))) {
        status.forget_trial();
    }
    match start {
        Start::Suspended => {
            let message = "spec.suspend holds the start back";
            status.set_reason(SUSPENDED, message);
            status.set(STARTED, false, SUSPENDED, message);
            Decision::wait(status, None)
        }
        Start::TooLate => end_missed(status, observed),
        Start::NotDue(None) => {
            status.unset(STARTED);
            let message = "the instant lies beyond the year 9999: the command never starts";
            status.set_reason(NEVER_DUE, message);
            Decision::wait(status, None)
        }
        Start::NotDue(Some(instant)) => {
            status.unset(STARTED);
            if at.status.scheduled_time != Some(instant) || !at.is_accepted() {
                let note = format!(
                    "the command is to start at {}",
                    instant.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
                );
                status.publish(Severity::Normal, "Scheduled", "Schedule", &note);
            }
            wait_and_try(status, observed, instant)
        }
        Start::Invalid | Start::Allowed => {
            if let Err(faults) = &at.spec {
                status.set_reason(INVALID, &join(faults));
            }
            status.unset(STARTED);
            Decision::wait(status, None)
        }
    }
}
