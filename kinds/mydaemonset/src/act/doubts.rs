//! Live reads about writes that no watch has shown in time.

use super::batch::{Flow, run_batched};
use super::outcome::Outcome;
use super::ownership::{is_ours, is_shown};
use crate::memory::nodes::Written;
use crate::observe::pod::WatchedPod;
use crate::pass::Pass;
use wall_clock_controller::reconcile::{Error, if_there, read};

/// Asks the API server about changes that no watch has shown in time. Only its answer ends a
/// belief: if a belief ended by itself, a late deletion would come on top of that of another
/// node.
pub(crate) async fn resolve_doubts(pass: &Pass<'_>, outcome: &mut Outcome) {
    let doubts = pass.memory().nodes.doubts(pass.now);
    let calls = doubts
        .iter()
        .map(|doubt| async move { (doubt, is_so(pass, doubt).await) });
    run_batched(calls, |(doubt, is_so)| match is_so {
        Ok(is_so) => {
            let now = pass.clock();
            pass.memory().nodes.resolve(doubt, is_so, now);
            Flow::Faster
        }
        Err(error) => {
            outcome.fail(error);
            Flow::Stop
        }
    })
    .await;
}

/// Whether a deleted pod is gone or being deleted, or a created pod exists.
async fn is_so(pass: &Pass<'_>, doubt: &Written) -> Result<bool, Error> {
    let (name, uid) = doubt.id();
    let is_deletion = matches!(doubt, Written::Deleted(_));
    let api = pass.api::<WatchedPod>();
    let request = api.get_metadata(name);
    let there = if_there(read("read a pod", pass.key, request).await)?;
    let Some(metadata) = there.map(|pod| pod.metadata) else {
        return Ok(is_deletion);
    };
    if !is_deletion {
        return Ok(is_shown(pass, &metadata) && is_ours(pass, &metadata));
    }
    let is_it = metadata.uid.as_deref() == Some(uid);
    Ok(!is_it || metadata.deletion_timestamp.is_some())
}
