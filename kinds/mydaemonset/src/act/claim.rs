//! Adopts orphaned pods, and releases pods that lost our labels.

use super::batch::{Flow, MAX_PODS_PER_PASS, run_batched};
use super::failure::{Failure, add};
use super::outcome::{Outcome, is_skipped, report};
use super::ownership::{is_still_there, release_unlabelled, set_owner};
use crate::decide::decision::Claim;
use crate::decide::rollout::in_turn;
use crate::memory::backoffs::Step;
use crate::observe::pod::WatchedPod;
use crate::pass::Pass;
use crate::status::{FAILED_ADOPT, FAILED_RELEASE};
use wall_clock_controller::reconcile::{Error, if_there, read};

/// Adopts and releases the pods that were decided on, and releases those that the watch no longer
/// shows and that still exist, without our labels.
pub(super) async fn claim_pods(pass: &Pass<'_>, decided: &[Claim], outcome: &mut Outcome) {
    let vanished: Vec<Claim> = pass.memory().vanished.values().cloned().collect();
    let mut claims: Vec<&Claim> = decided.iter().chain(&vanished).collect();
    if is_skipped(pass, Step::Claim, claims.is_empty()) {
        return;
    }
    if claims.iter().any(|claim| claim.adopt) {
        match is_still_there(pass).await {
            Ok(is_there) => claims.retain(|claim| !claim.adopt || is_there),
            Err(error) => {
                let failure = Failure::new(error, None, FAILED_ADOPT, &pass.key.name, None);
                report(pass, Step::Claim, Some(failure), false, outcome);
                return;
            }
        }
    }
    let before = pass.memory().backoffs.failures(Step::Claim);
    let calls = in_turn(claims.iter(), before);
    let calls = calls.map(|claim| async move { (claim, claim_pod(pass, claim).await) });
    let mut failure = None;
    let mut some_done = false;
    run_batched(calls, |(claim, result)| match result {
        Ok(is_changed) => {
            outcome.claimed += usize::from(is_changed);
            some_done = true;
            Flow::Faster
        }
        Err(error) => {
            let failed = if claim.adopt {
                FAILED_ADOPT
            } else {
                FAILED_RELEASE
            };
            let (name, node) = (&claim.pod, Some(claim.node.as_str()));
            add(&mut failure, Failure::new(error, None, failed, name, node))
        }
    })
    .await;
    outcome.more |= claims.len() > MAX_PODS_PER_PASS && failure.is_none();
    report(pass, Step::Claim, failure, some_done, outcome);
}

/// Returns whether the owner of the pod was changed.
async fn claim_pod(pass: &Pass<'_>, claim: &Claim) -> Result<bool, Error> {
    let is_changed = if claim.adopt {
        set_owner::<WatchedPod>(pass, true, &claim.pod, &claim.uid).await?;
        true
    } else {
        release_if_there(pass, claim).await?
    };
    let now = pass.clock();
    let memory = &mut pass.memory();
    // The watch shows a vanished pod again only with our labels: then it is an orphan, and nothing hides it.
    if memory.vanished.remove(&claim.uid).is_none() && is_changed {
        memory.nodes.claimed(claim, now);
    }
    Ok(is_changed)
}

/// Releases a pod if it exists without our labels. Returns whether it did.
async fn release_if_there(pass: &Pass<'_>, claim: &Claim) -> Result<bool, Error> {
    let api = pass.api::<WatchedPod>();
    let request = api.get_metadata(&claim.pod);
    let there = if_there(read("read a pod", pass.key, request).await)?;
    match there {
        Some(pod) if pod.metadata.uid.as_deref() == Some(&claim.uid) => {
            release_unlabelled(pass, &pod.metadata).await
        }
        _ => Ok(false),
    }
}
