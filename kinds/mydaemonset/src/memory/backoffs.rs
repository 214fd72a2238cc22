//! The backoff of each step of a pass, and what is reported of its failures.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::status::Refusal;
use resilient_kube_client::backoff::Exponential;

/// The pauses after the API server rejected a pod.
const PAUSES: Exponential = Exponential {
    first: Duration::from_secs(1),
    max: Duration::from_mins(1),
};

/// A step of a pass. Each backs off by itself, so that a rejection of one does not block the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// The revision of the spec is created, or made the newest.
    Store,
    /// Pods are created, or dry-run.
    Create,
    /// Pods are deleted.
    Delete,
    /// Pods are adopted or released.
    Claim,
    /// Revisions are adopted.
    Adopt,
    /// Superfluous revisions are deleted.
    Prune,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// The API server rejects the call as it is. Reported at once.
    Refused,
    /// A user has to fix it, or it heals by itself. Reported from the second failure in a row.
    Blocked,
    /// A retry may succeed. The queue makes the pause. Reported from the second failure in a row.
    Failed,
    /// Not reported.
    Expected,
}

/// A failure of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// What is reported.
    pub(crate) refusal: Refusal,
    /// When it is reported.
    pub(crate) nature: Nature,
}

/// A problem, and when to try again.
#[derive(Clone, Debug, PartialEq)]
struct Trouble {
    problem: Problem,
    /// Failures in a row without any success: the pause doubles with each.
    count: u32,
    /// When to try again.
    next: DateTime<Utc>,
    /// The `metadata.generation` that failed: a new one is tried at once.
    generation: Option<i64>,
}

impl Trouble {
    /// The trouble after an earlier one. The pause grows while nothing can be done.
    fn after(
        before: Option<Self>,
        mut problem: Problem,
        some_done: bool,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) -> Self {
        let before = before.filter(|before| before.generation == generation);
        let count = match &before {
            Some(before) if !some_done => before.count.saturating_add(1),
            _ => 0,
        };
        // The same message for another pod is not a change.
        let known = before.map(|before| before.problem.refusal);
        let same = |known: &Refusal| {
            (known.reason, &known.message) == (problem.refusal.reason, &problem.refusal.message)
        };
        if let Some(known) = known.filter(same) {
            problem.refusal = known;
        }
        let pause = match problem.nature {
            Nature::Failed => Duration::ZERO,
            _ => PAUSES.after(count),
        };
        Self {
            problem,
            count,
            next: now + pause,
            generation,
        }
    }

    fn is_reported(&self) -> bool {
        match self.problem.nature {
            Nature::Refused => true,
            Nature::Blocked | Nature::Failed => self.count > 0,
            Nature::Expected => false,
        }
    }
}

/// The steps whose last attempt failed. A step without an entry has succeeded, or had nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Backoffs {
    troubles: BTreeMap<Step, Trouble>,
    /// How many passes in a row ended with a pod that could not be created or deleted.
    failed_passes: usize,
}

impl Backoffs {
    /// Records the outcome of a step: a problem, or none.
    pub(crate) fn record(
        &mut self,
        step: Step,
        problem: Option<Problem>,
        some_done: bool,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        let before = self.troubles.remove(&step);
        if let Some(problem) = problem {
            let trouble = Trouble::after(before, problem, some_done, generation, now);
            self.troubles.insert(step, trouble);
        }
    }

    /// Whether a step has to wait for the end of its pause. A new spec is tried at once.
    pub(crate) fn is_backing_off(
        &self,
        step: Step,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) -> bool {
        let trouble = self.troubles.get(&step);
        trouble.is_some_and(|t| t.generation == generation && t.next > now)
    }

    /// When the first of the pauses ends.
    pub(crate) fn next_end(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let ends = self.troubles.values().map(|trouble| trouble.next);
        ends.filter(|next| *next > now).min()
    }

    /// How many attempts of a step failed in a row.
    pub(crate) fn failures(&self, step: Step) -> usize {
        let trouble = self.troubles.get(&step);
        trouble.map_or(0, |trouble| trouble.count as usize + 1)
    }

    pub(super) fn has_failed(&self, step: Step) -> bool {
        self.troubles.contains_key(&step)
    }

    /// The failure to report: that of the first step.
    pub(crate) fn reported(&self) -> Option<&Refusal> {
        let mut reported = self.troubles.values().filter(|t| t.is_reported());
        reported.next().map(|trouble| &trouble.problem.refusal)
    }

    /// Records the end of a pass, in which a pod could not be created or deleted or not.
    pub(crate) fn pass_ended(&mut self, failed: bool) {
        if failed {
            self.failed_passes = self.failed_passes.wrapping_add(1);
        } else if !self.has_failed(Step::Create) && !self.has_failed(Step::Delete) {
            // A pass in which a step only waited for the end of its pause proves nothing.
            self.failed_passes = 0;
        }
    }

    /// How many nodes to skip when pods are created or deleted in turn: with each failed pass
    /// another node comes first, so that one that cannot be changed does not block the others.
    pub(crate) fn turn(&self) -> usize {
        self.failed_passes
    }

    /// The clock was set back: nothing waits for its old time to come again.
    pub(super) fn forget_pauses(&mut self) {
        self.troubles.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn problem(nature: Nature) -> Problem {
        Problem {
            refusal: Refusal {
                reason: "PodRefused",
                node: None,
                message: "quota".into(),
            },
            nature,
        }
    }

    #[test]
    fn repeated_rejections_pause_a_minute_at_most() {
        let mut backoffs = Backoffs::default();
        for attempt in 0..40 {
            backoffs.record(
                Step::Create,
                Some(problem(Nature::Refused)),
                false,
                Some(1),
                at(0),
            );
            let trouble = &backoffs.troubles[&Step::Create];
            assert_eq!(trouble.count, attempt);
            assert!(trouble.next <= at(60));
        }
    }

    #[test]
    fn the_pause_after_rejections_grows_while_no_pod_can_be_created() {
        let mut backoffs = Backoffs::default();
        let mut refuse = |some_made, generation, now| {
            let refused = Some(problem(Nature::Refused));
            backoffs.record(Step::Create, refused, some_made, Some(generation), at(now));
            assert!(backoffs.is_backing_off(Step::Create, Some(generation), at(now)));
            assert!(!backoffs.is_backing_off(Step::Create, Some(generation + 1), at(now)));
            assert!(!backoffs.is_backing_off(Step::Delete, Some(generation), at(now)));
            (backoffs.next_end(at(now)).unwrap() - at(now)).num_seconds()
        };
        let pauses: Vec<_> = (0..9).map(|_| refuse(false, 1, 0)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(refuse(true, 1, 0), 1);
        assert_eq!(refuse(false, 1, 0), 2);
        assert_eq!(refuse(false, 2, 0), 1);
    }

    #[test]
    fn a_rejection_is_reported_at_once_and_a_failure_from_the_second_time() {
        for (nature, first, second) in [
            (Nature::Refused, true, true),
            (Nature::Blocked, false, true),
            (Nature::Failed, false, true),
            (Nature::Expected, false, false),
        ] {
            let mut backoffs = Backoffs::default();
            let mut fail = |some_done| {
                backoffs.record(
                    Step::Prune,
                    Some(problem(nature)),
                    some_done,
                    Some(1),
                    at(0),
                );
                backoffs.reported().is_some()
            };
            assert_eq!((fail(false), fail(false)), (first, second), "{nature:?}");
            // A step with any progress is not blocked.
            assert_eq!(fail(true), nature == Nature::Refused);
            backoffs.record(Step::Prune, None, false, Some(1), at(0));
            assert!(!backoffs.has_failed(Step::Prune) && backoffs.reported().is_none());
        }
    }

    #[test]
    fn each_failed_pass_begins_with_another_node() {
        let mut backoffs = Backoffs::default();
        backoffs.record(
            Step::Create,
            Some(problem(Nature::Refused)),
            false,
            Some(1),
            at(0),
        );
        backoffs.pass_ended(true);
        backoffs.pass_ended(true);
        assert_eq!(backoffs.turn(), 2);
        // The step waited for the end of its pause.
        backoffs.pass_ended(false);
        assert_eq!(backoffs.turn(), 2);
        backoffs.record(Step::Create, None, true, Some(1), at(2));
        backoffs.pass_ended(false);
        assert_eq!(backoffs.turn(), 0);
    }
}
