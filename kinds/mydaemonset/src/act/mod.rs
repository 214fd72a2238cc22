//! The calls of a reconcile pass. Everything that changes the cluster, but for the status, is here.
//!
//! [`revisions`] stores the revision of the current spec before anything else, since pods name it.
//! [`first_look`] has the cache show the orphans that a new object may adopt.
//! [`doubts`] asks about earlier writes that no watch has shown. Then the calls are made that were
//! decided on: [`mod@create`] (one pod in `create_pod`, after a `dry_run`), [`delete`],
//! and [`claim`]. Each step backs off by itself; what fails is in the [`outcome`].
//!
//! A write is recorded in the memory before the call and its answer after it, so that the next
//! decision counts with it although no watch shows it yet.

use std::sync::Arc;

use super::decide::decision::Decision;
use super::pass::Pass;
use super::revision::RevisionView;
use outcome::Outcome;

mod batch;
mod claim;
mod create;
mod create_pod;
mod delete;
pub(crate) mod doubts;
mod dry_run;
mod failure;
pub(crate) mod first_look;
pub(crate) mod outcome;
mod ownership;
pub(crate) mod revisions;

/// Carries out the first part of a decision: creations, and the deletions that are to be repeated before them. Returns
/// whether the other deletions follow.
pub(crate) async fn create(
    pass: &Pass<'_>,
    revisions: &[Arc<RevisionView>],
    decision: &Decision,
    outcome: &mut Outcome,
) -> bool {
    // The decision counts deletions without a definite answer as done: what it creates next to an
    // old pod must not come before they are repeated.
    let deletes_first = !pass.unanswered_deletes().is_empty();
    if deletes_first {
        delete::delete_pods(pass, decision, outcome).await;
    }
    // A node without a pod must not wait for calls about others that hang.
    create::create_pods(pass, revisions, decision, outcome).await;
    !deletes_first && !outcome.decides_anew
}

/// Carries out the rest of it, with those deletions or without them.
pub(crate) async fn finish(
    pass: &Pass<'_>,
    decision: &Decision,
    deletes: bool,
    outcome: &mut Outcome,
) {
    if deletes {
        delete::delete_pods(pass, decision, outcome).await;
    }
    claim::claim_pods(pass, &decision.claim, outcome).await;
    // What was not done because the decision is too old is decided on again.
    outcome.more |= pass.is_late();
    pass.memory().backoffs.pass_ended(outcome.failed);
}
