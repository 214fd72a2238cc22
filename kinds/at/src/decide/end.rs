//! Ends of an At, and the deletions that an end takes.

use super::decision::{Decision, Operation, PodVersion};
use crate::conditions::{
    COMMITTED, NEVER_STARTED, POD_ALTERED, RECONCILING, STARTED, SUSPENDED, TOO_LATE,
};
use crate::crd::{Ending, Phase};
use crate::observe::{AtView, FailedCall, Observed};
use crate::pod::view::PodView;
use crate::result::RunResult;
use crate::status::StatusBuilder;
use wall_clock_controller::reconcile::condition;

/// Ends the At.
pub(super) fn end(mut status: StatusBuilder<'_>, run: &RunResult) -> Decision {
    status.end(run);
    Decision::again(status)
}

/// Ends the At without a start.
pub(super) fn end_missed(status: StatusBuilder<'_>, observed: Observed<'_>) -> Decision {
    let missed = missed(status.at, observed.failing);
    end(status, &missed)
}

/// The pod ended, or was last seen ended. A gated pod can be set to Failed, too, and has not run.
pub(super) fn end_of_pod(
    mut status: StatusBuilder<'_>,
    observed: Observed<'_>,
    pod: &PodView,
    run: &RunResult,
) -> Decision {
    if pod.gate.is_none() {
        status.record_start(observed, Some(pod));
    } else if status.at.is_started() {
        status.take_back_start();
    }
    end(status, run)
}

/// Records how the At will end, before its pod is deleted for it.
///
/// In this order, because after the deletion nothing shows why the pod is gone: a failed status
/// write or a crash would turn Missed into Unknown. The write carries the resource version that was
/// read, so an outdated view of the At decides nothing.
pub(super) fn announce_end(mut status: StatusBuilder<'_>, run: &RunResult) -> Decision {
    status.announce_end(run);
    Decision::again(status)
}

/// Deletes the pod that has not run, and ends as was announced. By a live read, whose resource
/// version the deletion carries: a pod that was bound or released since is not deleted.
pub(super) fn end_by_deletion(
    status: StatusBuilder<'_>,
    observed: Observed<'_>,
    pod: &PodView,
    run: &RunResult,
) -> Decision {
    if !observed.live {
        return Decision::get_live();
    }
    Decision {
        operation: Operation::DeletePod(PodVersion::from_pod(pod)),
        ..end(status, run)
    }
}

/// Records that this pod is never to be committed, before it is deleted.
///
/// In this order, because the write fails for an operator with an outdated view of the At: it would
/// otherwise delete a pod that another operator has committed. And a deletion that arrives late
/// meets a pod that no operator has committed since.
pub(super) fn discard(mut status: StatusBuilder<'_>, pod: &PodView) -> Decision {
    // What kept earlier attempts from it is over, and says nothing of the spec as it is now.
    status.unset(STARTED);
    status.unset(RECONCILING);
    status.clear_reason();
    status.next.discarded_pod_uid = Some(pod.uid.clone());
    Decision::again(status)
}

/// Deletes a pod that was altered on its way to the API server, and reports that.
pub(super) fn delete_altered(
    mut status: StatusBuilder<'_>,
    observed: Observed<'_>,
    pod: &PodView,
    alteration: &str,
) -> Decision {
    let message = format!("the pod was altered while it was created{alteration}");
    status.report_start_blocked(POD_ALTERED, &message);
    delete_pod(status, observed, pod)
}

/// Deletes a pod that has never run. On a live read only: the deletion carries its resource
/// version, and that of a cached pod may be older than its release.
pub(super) fn delete_pod(
    status: StatusBuilder<'_>,
    observed: Observed<'_>,
    pod: &PodView,
) -> Decision {
    let at = status.at;
    if !observed.live {
        return Decision::get_live();
    }
    // With backoff: otherwise a client that spoils pods would make us create them without end.
    let is_uncommitted = at.phase() == Phase::Pending && at.status.pod_uid.is_none();
    // An At that is being deleted needs no status or Events.
    let decision = if at.deleting {
        Decision::nothing()
    } else {
        Decision::wait(status, None)
    };
    Decision {
        operation: Operation::DeletePod(PodVersion::from_pod(pod)),
        again: !is_uncommitted,
        retry: is_uncommitted,
        ..decision
    }
}

/// The result of a command that was not started in time. It keeps what prevented the start.
pub(super) fn missed(at: &AtView, failing: Option<&FailedCall>) -> RunResult {
    let mut message = "the command was not started: more than startingDeadlineSeconds had passed since its instant".to_owned();
    let kept = condition::get(&at.status.conditions, STARTED)
        .filter(|c| c.status == "False" && ![SUSPENDED, COMMITTED].contains(&c.reason.as_str()));
    let kept = kept.map(|kept| (kept.reason.as_str(), &kept.message));
    // The status need not have said so: one failure is ordinary.
    let failing = || failing.map(|failed| (failed.reason(), &failed.message));
    if let Some((reason, cause)) = kept.or_else(failing) {
        message = format!("{message}; what kept it: {reason}: {cause}");
    }
    RunResult::new(Ending::Missed, TOO_LATE, &message)
}

/// The result of a command whose end was not seen, and of one that was never started.
pub(super) fn unknown(reason: &str) -> RunResult {
    let message = if reason == NEVER_STARTED {
        "the pod was deleted before it was released: the command did not run, and is not run again"
    } else {
        "the pod is gone and its end was not seen: the command may have run, and is not run again"
    };
    RunResult::new(Ending::Unknown, reason, message)
}
