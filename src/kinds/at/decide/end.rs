//! Ends of an At, and the deletions that an end takes.

use super::decision::{Decision, Operation, PodVersion, earliest};
use super::start::too_late_from;
use crate::kinds::at::conditions::{
    COMMITTED, NEVER_STARTED, POD_ALTERED, STARTED, SUSPENDED, TOO_LATE,
};
use crate::kinds::at::crd::Ending;
use crate::kinds::at::observe::{AtView, Observed};
use crate::kinds::at::pod::view::PodView;
use crate::kinds::at::result::{self, RunResult};
use crate::kinds::at::status::StatusBuilder;
use my_operator_runtime::reconcile::condition;

/// Ends the At.
pub(super) fn end(mut status: StatusBuilder<'_>, run: &RunResult) -> Decision {
    status.end(run);
    Decision::again(status)
}

/// Ends the At without a start.
pub(super) fn end_missed(status: StatusBuilder<'_>) -> Decision {
    let missed = missed(status.at);
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
    if let Some(not_before) = observed.not_before.filter(|time| *time > status.now) {
        let unchanged = StatusBuilder::new(status.at, status.now);
        return Decision::wait(unchanged, Some(not_before));
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
    let (at, now) = (status.at, status.now);
    if let Some(not_before) = observed.not_before.filter(|time| *time > now) {
        // The last attempt failed, and the status says so.
        let too_late = too_late_from(at).filter(|late| *late > now);
        return Decision {
            next: earliest(Some(not_before), too_late),
            ..Decision::nothing()
        };
    }
    if !observed.live {
        return Decision::get_live();
    }
    // An At that is being deleted needs no status or Events.
    let decision = if at.deleting {
        Decision::nothing()
    } else {
        Decision::wait(status, None)
    };
    Decision {
        operation: Operation::DeletePod(PodVersion::from_pod(pod)),
        again: true,
        ..decision
    }
}

/// The result of a command that was not started in time. It keeps what prevented the start.
pub(super) fn missed(at: &AtView) -> RunResult {
    let mut message = "the command was not started: more than startingDeadlineSeconds had passed since its instant".to_owned();
    let kept = condition::get(&at.status.conditions, STARTED)
        .filter(|c| c.status == "False" && ![SUSPENDED, COMMITTED].contains(&c.reason.as_str()));
    if let Some(kept) = kept {
        message = format!("{message}; what kept it: {}: {}", kept.reason, kept.message);
    }
    RunResult::new(Ending::Missed, TOO_LATE, &result::head(&message))
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
