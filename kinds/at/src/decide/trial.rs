//! The dry run of a pod that is not due yet, so that a mistake in it shows while there is time to correct it.
//!
//! It only ever changes what the status of a waiting At says. The start does not wait for it and does not ask what it has
//! shown: it is made early, takes seconds at most, and is not counted as an attempt.

use chrono::{DateTime, TimeDelta, Utc};

use super::decision::{Decision, Operation, earliest};
use crate::conditions::POD_ACCEPTED;
use crate::observe::Observed;
use crate::pod::build;
use crate::status::StatusBuilder;
use crate::trial::{MAX_PAUSE, Trial};
use wall_clock_controller::reconcile::condition;

/// A start is urgent from so long before: its key must not wait for its turn when it is due. Nor for a dry run, so from then
/// on none is made.
pub(crate) const URGENT_BEFORE: TimeDelta = TimeDelta::minutes(1);
/// The pause after the status write that makes the key one that is not urgent. Usually the watch shows that write earlier.
const AFTER_WRITE: TimeDelta = TimeDelta::seconds(1);

/// Waits for that instant, reports what the last dry run has shown, and makes one where none has.
pub(super) fn wait_and_try(
    mut status: StatusBuilder<'_>,
    observed: Observed<'_>,
    instant: DateTime<Utc>,
) -> Decision {
    let (at, now) = (status.at, status.now);
    // From then on nothing is written either: a write may get no answer for longer.
    let is_early = now + URGENT_BEFORE < instant;
    let is_of_spec = |trial: &&Trial| trial.generation == at.generation;
    let trial = observed.trial.filter(is_of_spec).filter(|_| is_early);
    status.report_trial(trial.map(|trial| &trial.verdict));
    let next = next_trial(&status, observed, trial).filter(|_| is_early);
    match &at.spec {
        // After the status, so that it neither waits for a webhook that does not answer nor is urgent.
        Ok(spec) if next.is_some_and(|next| next <= now) && !status.is_changed() => Decision {
            operation: Operation::DryRun(build::build(at.owner(), spec)),
            again: true,
            ..Decision::nothing()
        },
        _ => {
            let next = next.map(|next| next.max(now + AFTER_WRITE));
            Decision::wait(status, earliest(Some(instant), next))
        }
    }
}

/// When the next dry run is to be made, if any. One that succeeded is in the status, and is not repeated for the same spec:
/// a hundred thousand Ats may wait when an operator starts.
fn next_trial(
    status: &StatusBuilder<'_>,
    observed: Observed<'_>,
    trial: Option<&Trial>,
) -> Option<DateTime<Utc>> {
    if observed.pod.is_some() {
        // It would be answered that the name is taken.
        return None;
    }
    let (since, next) = match trial {
        _ if status.next.dry_run_generation.is_some() => return None,
        Some(trial) => (trial.made_at, trial.not_before),
        // Refused when an earlier process tried it.
        None if condition::get(&status.next.conditions, POD_ACCEPTED).is_some() => {
            let start = observed.process_start;
            (start, start + MAX_PAUSE)
        }
        None => return Some(status.now),
    };
    // The clock was set back: nothing waits for its old time to come again.
    let is_pause = since <= status.now;
    Some(if is_pause { next } else { status.now })
}
