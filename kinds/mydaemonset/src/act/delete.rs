//! Deletes pods.

use kube::Api;

use super::batch::{Flow, MAX_PODS_PER_PASS, run_batched};
use super::failure::{Failure, add, answer, is_gone};
use super::outcome::{Outcome, is_skipped, report};
use crate::decide::decision::{Decision, Delete, DeleteReason};
use crate::decide::placement::Eligibility;
use crate::decide::rollout::in_turn;
use crate::memory::backoffs::Step;
use crate::memory::belief::Answer;
use crate::memory::nodes::Written;
use crate::names::CONTROLLER;
use crate::observe::node::WatchedNode;
use crate::observe::pod::WatchedPod;
use crate::pass::Pass;
use crate::status::{DELETE_REFUSED, FAILED_DELETE};
use wall_clock_controller::reconcile::{Error, call, if_there, read, write};

/// Deletes the pods that were decided on, and repeats deletions without a definite answer.
pub(super) async fn delete_pods(pass: &Pass<'_>, decision: &Decision, outcome: &mut Outcome) {
    let deletes = deletes(pass, decision);
    if is_skipped(pass, Step::Delete, deletes.is_empty()) {
        return;
    }
    let calls = deletes.iter();
    let calls = calls.map(|delete| async move { (delete, delete_pod(pass, delete).await) });
    let mut failure = None;
    run_batched(calls, |(delete, deleted)| {
        match deleted {
            Ok(true) => {
                *outcome.deleted.entry(delete.reason).or_default() += 1;
                log_step(pass, delete);
            }
            Ok(false) => {}
            // The pod has another version than the one that was judged: its event is on its way.
            Err(error) if error.is_conflict() => {
                outcome.fail(error);
                return Flow::Steady;
            }
            Err(error) => {
                let (rejected, failed) = (Some(DELETE_REFUSED), FAILED_DELETE);
                let (name, node) = (&delete.pod, Some(delete.node.as_str()));
                let failed = Failure::new(error, rejected, failed, name, node);
                return add(&mut failure, failed);
            }
        }
        Flow::Faster
    })
    .await;
    outcome.more |= deletes.len() > MAX_PODS_PER_PASS && failure.is_none();
    let some_done = !outcome.deleted.is_empty();
    report(pass, Step::Delete, failure, some_done, outcome);
}

/// A step of a roll-out, for the log: the Events only count them.
fn log_step(pass: &Pass<'_>, delete: &Delete) {
    if delete.reason.is_due_to_revision() {
        let (namespace, name) = (&*pass.key.namespace, &*pass.key.name);
        let (node, pod, revision) = (&delete.node, &delete.pod, &delete.last.revision);
        let why = delete.reason.text();
        tracing::info!(
            controller = CONTROLLER,
            namespace,
            name,
            node,
            pod,
            revision,
            why,
            "the roll-out deleted a pod"
        );
    }
}

/// The pods to delete: those whose deletion had no definite answer, and those that were decided
/// on. The former are repeated as long as they are wanted, and take no other place among those
/// that may be unavailable.
fn deletes(pass: &Pass<'_>, decision: &Decision) -> Vec<Delete> {
    let stands = pass.stands(decision);
    let must_leave = |node: &str| pass.eligibility(node) == Some(Eligibility::Leave);
    let is_wanted = |delete: &Delete| match delete.reason {
        // One that was sent before the pods went back may be of the revision that they go back to.
        DeleteReason::Outdated => !stands && delete.last.revision != pass.spec.hash,
        DeleteReason::NotEligible => must_leave(&delete.node),
        DeleteReason::Excluded => must_leave(&delete.node) && !stands && !decision.observed.no_node,
        DeleteReason::NodeGone | DeleteReason::Surplus | DeleteReason::Failed => true,
    };
    let freeze = pass.frozen();
    let may_go = |delete: &Delete| freeze.is_none_or(|freeze| delete.reason.is_allowed(freeze));
    let unanswered = pass.unanswered_deletes().into_iter().filter(is_wanted);
    let unanswered = unanswered.filter(may_go);
    let failures = pass.memory().backoffs.failures(Step::Delete);
    let decided = in_turn(decision.delete.iter(), failures).cloned();
    // A created pod that was not observed yet has no known UID, and so cannot be deleted.
    let all = unanswered.chain(decided);
    all.filter(|delete| !delete.uid.is_empty()).collect()
}

/// Whether the roll-out is to leave the node alone by now: the pass may have begun many calls ago. A deletion that has been
/// sent before is to have an answer all the same.
fn is_spared(pass: &Pass<'_>, delete: &Delete) -> bool {
    let is_rolled_out = delete.reason == DeleteReason::Outdated && delete.version.is_none();
    is_rolled_out && pass.is_left_alone(&delete.node) && {
        let mut sent = pass.unanswered_deletes().into_iter();
        sent.all(|other| other.uid != delete.uid)
    }
}

/// Returns whether the pod was deleted: maybe it must not be, or something else did that.
async fn delete_pod(pass: &Pass<'_>, delete: &Delete) -> Result<bool, Error> {
    let is_step = delete.reason.is_due_to_revision();
    // By now, the node may be to keep its pod.
    if pass.is_late() || !pass.may_go_on(is_step) || is_spared(pass, delete) {
        return Ok(false);
    }
    let _limited = is_step.then(|| pass.context.limited.token());
    if delete.reason == DeleteReason::NodeGone && node_is_there(pass, &delete.node).await? {
        return Ok(false);
    }
    // Before the call: a deletion without an answer may still be carried out, and must count.
    let now = pass.clock();
    let written = Written::Deleted(delete.clone());
    let was_unanswered = pass.memory().nodes.begins(written.clone(), now);
    // With the UID, so that a namesake stays. With the version where only the observed state
    // justifies the deletion: a pod that was not Ready may be Ready by now.
    let mut params = write::only(&delete.uid, delete.version.as_deref());
    if delete.reason == DeleteReason::NodeGone {
        // No kubelet is left to confirm the end.
        params.grace_period_seconds = Some(0);
    }
    let api = pass.api::<WatchedPod>();
    let request = api.delete(&delete.pod, &params);
    let result = call("delete a pod", pass.key, request).await.map(drop);
    let is_changed = |error: &Error| delete.version.is_some() && error.is_conflict();
    let is_gone = result
        .as_ref()
        .is_err_and(|error| is_gone(error) && !is_changed(error));
    let answer = match &result {
        Err(error) if is_changed(error) => Answer::Overtaken,
        Err(error) if !is_gone => answer(error),
        _ => Answer::Done,
    };
    let (generation, now) = (pass.object.generation, pass.clock());
    let nodes = &mut pass.memory().nodes;
    nodes.answered(&written, answer, generation, now);
    match result {
        // Something else deleted it, unless it was an earlier attempt of ours.
        _ if is_gone => Ok(was_unanswered),
        other => other.map(|()| true),
    }
}

/// Whether the node exists, by a live read. The pod of a gone node is deleted without a
/// kubelet's confirmation, so a lagging watch is not enough.
async fn node_is_there(pass: &Pass<'_>, node: &str) -> Result<bool, Error> {
    let api = Api::<WatchedNode>::all(pass.context.client.clone());
    let there = if_there(read("read the node", pass.key, api.get_metadata(node)).await)?;
    Ok(there.is_some())
}
