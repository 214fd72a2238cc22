//! What the status says of a failed call about the pod.

use chrono::{DateTime, TimeDelta, Utc};

use super::decision::Decision;
use super::done::time_to_live_end;
use crate::conditions::POD_REFUSED;
use crate::crd::Phase;
use crate::message::head;
use crate::observe::{AtView, Call, FailedCall};
use crate::status::StatusBuilder;
use wall_clock_controller::reconcile::event::{self, Severity};

/// The pause after repeated rejections of the deletion of a finished At: there may be thousands of them, and none is
/// urgent.
const DELETED_AT_INTERVAL: TimeDelta = TimeDelta::hours(1);

/// The call of the last decision failed. Nothing else is decided now: what it was to change may
/// have changed or not, so the next pass observes first.
///
/// A failure that may heal by itself is reported when the attempt before failed, too. A single one is
/// ordinary, and a retry usually succeeds before anyone reads about it.
pub(super) fn decide(at: &AtView, failed: &FailedCall, now: DateTime<Utc>) -> Decision {
    let is_rejected = failed.refused && failed.call != Call::Read;
    if !is_rejected && !failed.again {
        return Decision::nothing();
    }
    let (reason, message) = (failed.reason(), &failed.message);
    let mut status = StatusBuilder::new(at, now);
    let is_uncommitted = at.phase() == Phase::Pending && at.status.pod_uid.is_none();
    match at.phase() {
        _ if at.deleting => {}
        // The search for the last state of a pod begins at the version of the announcement. Another
        // write would hide the deletion.
        _ if failed.call == Call::Read && at.is_end_announced() => return Decision::nothing(),
        // The result stays.
        Phase::Done => {
            if !failed.again {
                let action = match failed.call {
                    Call::DeleteAt => "DeleteAt",
                    _ => "DeletePod",
                };
                status.publish(Severity::Warning, reason, action, message);
            }
            return if failed.call == Call::DeleteAt && failed.again {
                Decision::wait(status, Some(now + DELETED_AT_INTERVAL))
            } else {
                Decision {
                    next: time_to_live_end(at),
                    ..Decision::retry(status)
                }
            };
        }
        // Retries word the same failure in many ways, and a quota gives its figures: the first message stays.
        _ if at.status.reason.as_deref() == Some(reason)
            && !at.is_refused_early()
            && (!failed.refused || says_the_same(at, message)) =>
        {
            if is_uncommitted {
                status.next.scheduled_time = at.instant();
            }
        }
        Phase::Pending if is_uncommitted => {
            status.report_start_blocked(reason, message);
        }
        Phase::Pending | Phase::Running => {
            status.next.phase = Some(Phase::Running);
            status.report_blocked(reason, message);
        }
    }
    Decision::retry(status)
}

/// Whether the status has that message, except for its numbers.
fn says_the_same(at: &AtView, message: &str) -> bool {
    let said = at.status.message.as_deref();
    said.is_some_and(|said| event::is_alike(said, &head(message)))
}

impl FailedCall {
    /// The reason of the condition and the Event. A call is *refused* by the API server, a policy,
    /// a quota or a webhook; it *fails* in any other way: no answer in time, 429, a server error.
    pub(super) fn reason(&self) -> &'static str {
        match (self.call, self.refused) {
            (Call::Create, true) => POD_REFUSED,
            (Call::Create, false) => "CreateFailed",
            (Call::Release, true) => "ReleaseRefused",
            (Call::Release, false) => "ReleaseFailed",
            (Call::Delete | Call::DeleteAt, true) => "DeleteRefused",
            (Call::Delete | Call::DeleteAt, false) => "DeleteFailed",
            (Call::Read, true) => "ReadRefused",
            (Call::Read, false) => "ReadFailed",
        }
    }
}
