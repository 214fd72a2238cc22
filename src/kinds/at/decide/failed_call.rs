//! What the status says of a failed call about the pod, and when to try again.

use chrono::{DateTime, Utc};

use super::decision::{Decision, earliest};
use super::start::{too_late_at, too_late_from};
use crate::kinds::at::crd::Phase;
use crate::kinds::at::observe::{AtView, Call, FailedCall};
use crate::kinds::at::status::StatusBuilder;
use my_operator_runtime::reconcile::event::Severity;

/// A failure that may heal by itself is reported from this many in a row on. A single one is
/// ordinary, and a retry usually succeeds before anyone reads about it.
const REPORTED_FROM: u32 = 2;

/// The call of the last decision failed. Nothing else is decided now: what it was to change may
/// have changed or not, so the next pass observes first.
pub(super) fn decide(at: &AtView, failed: FailedCall<'_>, now: DateTime<Utc>) -> Decision {
    let is_rejected = failed.refused && failed.call != Call::Read;
    if !is_rejected && failed.failures < REPORTED_FROM {
        return Decision::nothing();
    }
    let FailedCall {
        message,
        not_before,
        ..
    } = failed;
    let reason = failed.reason();
    let mut status = StatusBuilder::new(at, now);
    match at.phase() {
        _ if at.deleting => {}
        // The search for the last state of a pod begins at the version of the announcement. Another
        // write would hide the deletion.
        _ if failed.call == Call::Read && at.is_end_announced() => return Decision::nothing(),
        // The result stays. Only the deletion is retried.
        Phase::Done if failed.failures == 1 => {
            status.publish(Severity::Warning, reason, "DeletePod", message);
        }
        Phase::Done => {}
        // Retries word the same failure in many ways: the first message stays.
        _ if !failed.refused && at.status.reason.as_deref() == Some(reason) => {}
        Phase::Pending if at.status.pod_uid.is_none() => {
            status.report_start_blocked(reason, message);
            return Decision::wait(status, earliest(not_before, too_late_from(at)));
        }
        Phase::Pending | Phase::Running => {
            status.next.phase = Some(Phase::Running);
            status.report_blocked(reason, message);
        }
    }
    let deadline = too_late_at(at).filter(|deadline| *deadline > now);
    Decision::wait(status, earliest(not_before, deadline))
}

impl FailedCall<'_> {
    /// The reason of the condition and the Event. A call is *refused* by the API server, a policy,
    /// a quota or a webhook; it *fails* in any other way: no answer in time, 429, a server error.
    fn reason(&self) -> &'static str {
        match (self.call, self.refused) {
            (Call::Create, true) => "PodRefused",
            (Call::Create, false) => "CreateFailed",
            (Call::Release, true) => "ReleaseRefused",
            (Call::Release, false) => "ReleaseFailed",
            (Call::Delete, true) => "DeleteRefused",
            (Call::Delete, false) => "DeleteFailed",
            (Call::Read, true) => "ReadRefused",
            (Call::Read, false) => "ReadFailed",
        }
    }
}
