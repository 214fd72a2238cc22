//! Releases the pods that the watch no longer shows because they lost our labels.

use super::batch::{Flow, MAX_PODS_PER_PASS, run_batched};
use super::failure::{Failure, Failures};
use super::outcome::{Outcome, is_skipped, report};
use super::ownership::release_unlabelled;
use crate::kinds::mydaemonset::decide::decision::Claim;
use crate::kinds::mydaemonset::decide::rollout::in_turn;
use crate::kinds::mydaemonset::memory::backoffs::Step;
use crate::kinds::mydaemonset::observe::pod::WatchedPod;
use crate::kinds::mydaemonset::pass::Pass;
use crate::kinds::mydaemonset::status::FAILED_RELEASE;
use my_operator_runtime::reconcile::{Error, if_there, read};

/// Releases the pods that the watch no longer shows and that still exist, without our labels.
pub(super) async fn release_vanished(pass: &Pass<'_>, outcome: &mut Outcome) {
    let vanished = pass.memory().vanished.claims();
    if is_skipped(pass, Step::Release, vanished.is_empty()) {
        return;
    }
    let before = pass.memory().backoffs.failures(Step::Release);
    let calls: Vec<_> = in_turn(vanished.iter(), before)
        .take(MAX_PODS_PER_PASS)
        .map(|claim| async move { (claim, release_if_there(pass, claim).await) })
        .collect();
    let mut failures = Failures::default();
    let mut some_done = false;
    run_batched(calls, 1, |(claim, released)| match released {
        Ok(released) => {
            pass.memory().vanished.settled(&claim.uid);
            outcome.claimed += usize::from(released);
            some_done = true;
            Flow::Faster
        }
        Err(error) => {
            let (name, node) = (&claim.pod, Some(claim.node.as_str()));
            failures.add(Failure::new(error, None, FAILED_RELEASE, name, node))
        }
    })
    .await;
    outcome.more |= vanished.len() > MAX_PODS_PER_PASS && failures.first.is_none();
    report(pass, Step::Release, failures.first, some_done, outcome);
}

/// Releases a pod if it exists without our labels. Returns whether it did.
async fn release_if_there(pass: &Pass<'_>, vanished: &Claim) -> Result<bool, Error> {
    let api = pass.api::<WatchedPod>();
    let request = api.get_metadata(&vanished.pod);
    let there = if_there(read("read a pod", pass.key, request).await)?;
    match there {
        Some(pod) if pod.metadata.uid.as_deref() == Some(&vanished.uid) => {
            release_unlabelled(pass, &pod.metadata).await
        }
        _ => Ok(false),
    }
}
