//! Creates the missing pods.

use std::sync::Arc;

use super::batch::{Flow, MAX_PODS_PER_PASS, run_batched};
use super::create_pod::{Made, PodCreator, surges};
use super::dry_run::dry_run;
use super::failure::Failure;
use super::outcome::{Outcome, is_skipped, report};
use crate::kinds::mydaemonset::decide::decision::{Create, Decision};
use crate::kinds::mydaemonset::decide::placement::Eligibility;
use crate::kinds::mydaemonset::decide::rollout::in_turn;
use crate::kinds::mydaemonset::memory::backoffs::Step;
use crate::kinds::mydaemonset::pass::Pass;
use crate::kinds::mydaemonset::revision::RevisionView;

/// Creates the missing pods, and dry-runs one of the newest revision unless a pod was rejected just now.
pub(super) async fn create_pods(
    pass: &Pass<'_>,
    revisions: &[Arc<RevisionView>],
    decision: &Decision,
    outcome: &mut Outcome,
) {
    let creates = creates(pass, decision);
    let is_idle = creates.is_empty() && decision.dry_run.is_none();
    if is_skipped(pass, Step::Create, is_idle) {
        return;
    }
    let mut failure = None;
    let must_check_labels = pass.memory().acceptance.must_check_labels();
    if must_check_labels && let Some(create) = creates.first() {
        // No pod is created only to be deleted again.
        failure = dry_run(pass, create).await;
    }
    if failure.is_none() {
        let creator = PodCreator::new(pass, revisions);
        failure = create_all(&creator, &creates, outcome).await;
    }
    if let (Some(create), None) = (&decision.dry_run, &failure) {
        failure = dry_run(pass, create).await;
        // The deletions that waited for it follow at once.
        outcome.more |= failure.is_none();
    }
    let some_done = outcome.created > 0;
    report(pass, Step::Create, failure, some_done, outcome);
}

/// The pods to create: those that were decided on, and those whose creation had no definite answer,
/// as long as they are wanted.
fn creates(pass: &Pass<'_>, decision: &Decision) -> Vec<Create> {
    let unanswered = pass
        .memory()
        .nodes
        .unanswered_creates(pass.object.generation);
    let is_wanted = |create: &Create| {
        let runs = pass.eligibility(&create.node) == Some(Eligibility::Run);
        runs && !(surges(pass, create) && decision.observed.auto_paused)
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
    let creates_in_turn = in_turn(creates.iter(), failures).take(MAX_PODS_PER_PASS);
    let calls = creates_in_turn.map(|create| creator.create(create));
    let calls: Vec<_> = calls.collect();
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
