//! Whether a command may start now, and until when it may.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::admission::{deadline, past};
use crate::crd::{AtSpec, Phase};
use crate::observe::AtView;
use crate::sightings::Released;

/// A busy cluster does not explain a start that is later than this.
const OVERDUE_AFTER: TimeDelta = TimeDelta::seconds(60);

/// Why an At stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    /// Its command should have started more than a minute ago.
    Overdue,
    /// Its pod was released, and its status gives this reason why it does not run or end, or is not known.
    Waiting(Arc<str>),
}

/// Whether a command may start now, and what prevents it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Allowed,
    Invalid,
    Suspended,
    /// Not before that instant; `None` is never.
    NotDue(Option<DateTime<Utc>>),
    TooLate,
}

impl Start {
    pub(super) fn check(at: &AtView, now: DateTime<Utc>) -> Self {
        let Ok(spec) = &at.spec else {
            return Self::Invalid;
        };
        if spec.suspend == Some(true) {
            return Self::Suspended;
        }
        match at.instant() {
            None => Self::NotDue(None),
            Some(instant) if now < instant => Self::NotDue(Some(instant)),
            Some(instant) if is_too_late(spec, instant, now) => Self::TooLate,
            Some(_) => Self::Allowed,
        }
    }
}

pub(super) fn is_too_late(spec: &AtSpec, instant: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    let limit = spec.starting_deadline_seconds;
    limit.is_some_and(|seconds| past(instant, seconds, now))
}

/// Whether the deadline of a committed pod has passed: the operator was away between commit and
/// release.
pub(super) fn is_too_late_to_release(at: &AtView, now: DateTime<Utc>) -> bool {
    match (&at.spec, at.status.scheduled_time) {
        (Ok(spec), Some(instant)) => is_too_late(spec, instant, now),
        _ => false,
    }
}

/// The first moment at which a start would be too late.
pub(super) fn too_late_from(at: &AtView) -> Option<DateTime<Utc>> {
    too_late_after(at, at.instant()?)
}

/// The first moment at which the release of a committed pod would be too late, by the schedule at the commit.
pub(super) fn too_late_to_release_from(at: &AtView) -> Option<DateTime<Utc>> {
    too_late_after(at, at.status.scheduled_time?)
}

/// The first moment at which the next start, or the release of a committed pod, would be too late. None: nothing is left to
/// start, or any time will do.
pub(crate) fn too_late_at(at: &AtView) -> Option<DateTime<Utc>> {
    match at.phase() {
        Phase::Done => None,
        Phase::Pending if at.status.pod_uid.is_none() => too_late_from(at),
        // Once the end is announced, only the deletion is left.
        _ if at.is_started() || at.is_end_announced() => None,
        _ => too_late_to_release_from(at),
    }
}

fn too_late_after(at: &AtView, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let seconds = at.spec.as_ref().ok()?.starting_deadline_seconds?;
    deadline(instant, seconds)?.checked_add_signed(TimeDelta::milliseconds(1))
}

/// Why an At stands still: its command should have started more than a minute ago, but the pod is rejected, the name is
/// taken, or the release fails; or its pod was released and does not run or end.
pub(crate) fn delay(at: &AtView, released: Option<&Released>, now: DateTime<Utc>) -> Option<Delay> {
    let is_due_for_long = |instant: Option<DateTime<Utc>>| {
        instant.is_some_and(|instant| instant + OVERDUE_AFTER <= now)
    };
    // An At whose end is announced waits for the deletion of its pod, not for a start.
    let ends = || at.deleting || at.is_end_announced();
    // In this order, because nearly every reconcile is of an At that is not that late.
    match at.phase() {
        Phase::Running if at.is_started() => {
            let reason = at.status.reason.as_deref().filter(|_| !ends());
            reason.map(|reason| Delay::Waiting(reason.into()))
        }
        Phase::Running => {
            let seen = released.is_some_and(|r| Some(&r.uid) == at.status.pod_uid.as_ref());
            let is_late = is_due_for_long(at.status.scheduled_time) && !seen && !ends();
            is_late.then_some(Delay::Overdue)
        }
        Phase::Pending => {
            let is_late = is_due_for_long(at.instant()) && !at.deleting;
            let is_late = is_late && Start::check(at, now) == Start::Allowed;
            is_late.then_some(Delay::Overdue)
        }
        Phase::Done => None,
    }
}
