//! The outcome of the calls of one pass.

use std::collections::BTreeMap;

use super::failure::Failure;
use crate::decide::decision::DeleteReason;
use crate::memory::backoffs::Step;
use crate::pass::Pass;
use wall_clock_controller::reconcile::Error;

/// What was done in one pass, and what is left.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) created: usize,
    pub(crate) deleted: BTreeMap<DeleteReason, usize>,
    /// How many pods were adopted or released.
    pub(crate) claimed: usize,
    /// An error that a retry may fix.
    pub(crate) error: Option<Error>,
    /// More is to be done, and nothing prevents it.
    pub(crate) more: bool,
    /// A dry run showed that pods belong on other nodes than was known: nothing else is done or said by this decision.
    pub(crate) decides_anew: bool,
    /// A pod could not be created or deleted.
    pub(super) failed: bool,
}

impl Outcome {
    /// Adds an error. The one that asks for the longest pause is kept.
    pub(super) fn fail(&mut self, error: Error) {
        let rank = |error: &Error| (!error.is_conflict(), error.retry_after());
        let before = self.error.as_ref().map(rank);
        if before.is_none_or(|before| before < rank(&error)) {
            self.error = Some(error);
        }
    }
}

/// Whether a step is skipped: there is nothing to do, it failed just now, or the object asks for something else by now.
pub(super) fn is_skipped(pass: &Pass<'_>, step: Step, is_idle: bool) -> bool {
    let is_outdated = pass.is_outdated();
    let (generation, now) = (pass.object.generation, pass.now);
    let backoffs = &mut pass.memory().backoffs;
    if is_idle {
        backoffs.record(step, None, false, generation, now);
    }
    is_idle || is_outdated || backoffs.is_backing_off(step, generation, now)
}

/// Records the outcome of a step.
pub(super) fn report(
    pass: &Pass<'_>,
    step: Step,
    failure: Option<Failure>,
    some_done: bool,
    outcome: &mut Outcome,
) {
    outcome.failed |= failure.is_some() && matches!(step, Step::Create | Step::Delete);
    let parts = failure.map(|failure| (failure.problem, failure.error));
    let (problem, error) = parts.unzip();
    if let Some(error) = error.flatten() {
        outcome.fail(error);
    }
    let (generation, now) = (pass.object.generation, pass.clock());
    let backoffs = &mut pass.memory().backoffs;
    backoffs.record(step, problem, some_done, generation, now);
}
