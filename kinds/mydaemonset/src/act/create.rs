//! Creates the missing pods.

use std::sync::Arc;

use super::batch::{Flow, MAX_PODS_PER_PASS, run_batched};
use super::create_pod::{Made, PodCreator, surges};
use super::dry_run::dry_run;
use super::failure::Failure;
use super::outcome::{Outcome, is_skipped, report};
use crate::decide::decision::{Create, Decision};
use crate::decide::freeze::Freeze;
use crate::decide::placement::Eligibility;
use crate::decide::rollout::in_turn;
use crate::memory::backoffs::Step;
use crate::pass::Pass;
use crate::revision::RevisionView;

/// Creates the missing pods of each revision once a dry run has shown where they belong, and makes the dry run that
/// deletions wait for.
pub(super) async fn create_pods(
    pass: &Pass<'_>,
    revisions: &[Arc<RevisionView>],
    decision: &Decision,
    outcome: &mut Outcome,
) {
    let mut creates = creates(pass, decision);
    let is_idle = creates.is_empty() && decision.dry_run.is_none();
    if is_skipped(pass, Step::Create, is_idle) {
        return;
    }
    let creator = PodCreator::new(pass, revisions);
    let mut failure = None;
    // A pod of a revision that is known must not wait for a dry run of another, which may hang.
    creates.sort_by_cached_key(|create| (creator.must_ask(create), create.revision.clone()));
    for creates in creates.chunk_by(|a, b| a.revision == b.revision) {
        let failed = ask_and_create(&creator, creates, outcome).await;
        failure = failure.or(failed);
    }
    if let Some(create) = &decision.dry_run {
        let is_validated = || pass.memory().acceptance.is_validated(&create.revision);
        if failure.is_none() && !is_validated() {
            let failed = dry_run(&creator, create, outcome).await;
            failure = failure.or(failed.err());
        }
        // The deletions that waited for it follow at once.
        outcome.more |= is_validated();
    }
    let some_done = outcome.created > 0;
    report(pass, Step::Create, failure, some_done, outcome);
}

/// Creates pods of one revision. With what a dry run of one of them shows, pods may belong elsewhere.
async fn ask_and_create(
    creator: &PodCreator<'_>,
    creates: &[Create],
    outcome: &mut Outcome,
) -> Option<Failure> {
    let failures = creator.pass().memory().backoffs.turn();
    let mut in_turn = in_turn(creates.iter(), failures);
    if let Some(create) = in_turn.next()
        && creator.must_ask(create)
    {
        match dry_run(creator, create, outcome).await {
            Ok(true) => return None,
            Err(failure) if !failure.is_about_dry_runs() => return Some(failure),
            _ => {}
        }
    }
    create_all(creator, creates, outcome).await
}

/// The pods to create: those that were decided on, and those whose creation had no definite answer,
/// as long as they are wanted.
fn creates(pass: &Pass<'_>, decision: &Decision) -> Vec<Create> {
    let unanswered = pass
        .memory()
        .nodes
        .unanswered_creates(pass.object.generation);
    let freeze = pass.frozen();
    let is_wanted = |create: &Create| {
        let runs = pass.eligibility(&create.node) == Some(Eligibility::Run);
        let is_undone = pass.undone() == Some(create.revision.as_str());
        let stands = pass.stands(decision) || freeze.is_some();
        let is_stopped = freeze == Some(Freeze::All) || (stands && surges(pass, create));
        runs && !is_undone && !is_stopped
    };
    let unanswered = unanswered.into_iter().filter(is_wanted);
    unanswered.chain(decision.create.iter().cloned()).collect()
}

/// Creates pods, few at first and more as they succeed, so that a failure of all of them costs
/// few calls. The first failure ends it.
async fn create_all(
    creator: &PodCreator<'_>,
    creates: &[Create],
    outcome: &mut Outcome,
) -> Option<Failure> {
    let pass = creator.pass();
    let failures = pass.memory().backoffs.turn();
    let calls = in_turn(creates.iter(), failures).map(|create| creator.create(create));
    let mut failure = None;
    run_batched(calls, |made| match made {
        Made::Pod => {
            outcome.created += 1;
            Flow::Faster
        }
        Made::Nothing => Flow::Steady,
        Made::Not(first) => {
            failure.get_or_insert(first);
            Flow::Stop
        }
    })
    .await;
    let some_left = creates.len() > MAX_PODS_PER_PASS;
    outcome.more |= failure.is_none() && some_left && outcome.created > 0;
    failure
}
