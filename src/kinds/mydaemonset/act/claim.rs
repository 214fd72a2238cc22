//! Adopts orphaned pods, and releases pods that lost our label.

use super::batch::{Flow, MAX_PODS_PER_PASS, run_batched};
use super::failure::{Failure, Failures};
use super::outcome::{Outcome, is_skipped, report};
use super::ownership::{adopt, is_still_there, release};
use crate::kinds::mydaemonset::decide::decision::Claim;
use crate::kinds::mydaemonset::decide::rollout::in_turn;
use crate::kinds::mydaemonset::memory::backoffs::Step;
use crate::kinds::mydaemonset::observe::pod::WatchedPod;
use crate::kinds::mydaemonset::pass::Pass;
use crate::kinds::mydaemonset::status::{FAILED_ADOPT, FAILED_RELEASE};
use my_operator_runtime::reconcile::Error;

pub(super) async fn claim_pods(pass: &Pass<'_>, claims: &[Claim], outcome: &mut Outcome) {
    if is_skipped(pass, Step::Claim, claims.is_empty()) {
        return;
    }
    let mut may_adopt = false;
    if claims.iter().any(|claim| claim.adopt) {
        may_adopt = match is_still_there(pass).await {
            Ok(is_there) => is_there,
            Err(error) => {
                let failure = Failure::new(error, None, FAILED_ADOPT, &pass.key.name, None);
                report(pass, Step::Claim, Some(failure), false, outcome);
                return;
            }
        };
    }
    let claims = claims.iter().filter(|claim| !claim.adopt || may_adopt);
    let claims: Vec<_> = claims.collect();
    let before = pass.memory().backoffs.failures(Step::Claim);
    let calls: Vec<_> = in_turn(claims.iter(), before)
        .take(MAX_PODS_PER_PASS)
        .map(|claim| async move { (claim, claim_pod(pass, claim).await) })
        .collect();
    let mut failures = Failures::default();
    let mut claimed = 0;
    run_batched(calls, 1, |(claim, result)| {
        let Err(error) = result else {
            claimed += 1;
            return Flow::Faster;
        };
        let failed = if claim.adopt {
            FAILED_ADOPT
        } else {
            FAILED_RELEASE
        };
        let (name, node) = (&claim.pod, Some(claim.node.as_str()));
        failures.add(Failure::new(error, None, failed, name, node))
    })
    .await;
    outcome.claimed += claimed;
    report(pass, Step::Claim, failures.first, claimed > 0, outcome);
}

async fn claim_pod(pass: &Pass<'_>, claim: &Claim) -> Result<(), Error> {
    if claim.adopt {
        adopt::<WatchedPod>(pass, &claim.pod, &claim.uid).await?;
    } else {
        release(pass, &claim.pod, &claim.uid).await?;
    }
    let now = pass.clock();
    pass.memory().nodes.claimed(claim, now);
    Ok(())
}
