//! Asks the API server whether it would accept a pod of the newest revision.

use super::failure::{Failure, is_already_there};
use super::ownership::is_shown;
use crate::kinds::mydaemonset::decide::decision::Create;
use crate::kinds::mydaemonset::observe::pod::WatchedPod;
use crate::kinds::mydaemonset::pass::Pass;
use crate::kinds::mydaemonset::pod;
use my_operator_runtime::reconcile::{Error, call, write};

/// Dry-runs the creation of a pod of the newest revision on a node, and records if the API server
/// accepts it.
pub(super) async fn dry_run(pass: &Pass<'_>, create: &Create) -> Option<Failure> {
    let newest = Create {
        revision: pass.spec.hash.clone(),
        ..create.clone()
    };
    let (name, body) = pod::request(pass.owner(), &newest, &pass.spec.canonical);
    let (client, namespace) = (&pass.context.client, &pass.key.namespace);
    let request = write::would_create::<WatchedPod, WatchedPod>(client, namespace, body);
    let failure = match call("try to create a pod", pass.key, request).await {
        Ok(pod) if !is_shown(pass, &pod.metadata) => Some(Failure::labels_changed(&pass.key.name)),
        Ok(_) => None,
        Err(error) if is_already_there(&error) => None,
        // The old pod frees its place in the quota.
        Err(error) if is_over_quota(&error) => None,
        Err(error) => Some(Failure::not_created(error, &name, &create.node)),
    };
    if failure.is_none() {
        pass.memory().acceptance.accepted(&pass.spec.hash);
    }
    failure
}

/// Whether a quota is exhausted. The API shows that only by these words.
fn is_over_quota(error: &Error) -> bool {
    let status = error.status();
    status.is_some_and(|status| status.code == 403 && status.message.contains("exceeded quota"))
}
