//! Asks the API server whether it would accept a pod of the newest revision.

use std::sync::Arc;

use super::failure::{Failure, is_already_there};
use super::ownership::is_shown;
use super::revisions::note_demands;
use crate::kinds::mydaemonset::decide::decision::Create;
use crate::kinds::mydaemonset::observe::pod::{AdmittedPod, WatchedPod};
use crate::kinds::mydaemonset::pass::Pass;
use crate::kinds::mydaemonset::pod;
use crate::kinds::mydaemonset::revision::RevisionView;
use my_operator_runtime::reconcile::{Error, call, write};

/// Dry-runs the creation of a pod of the newest revision on a node, and records if the API server
/// accepts it.
pub(super) async fn dry_run(
    pass: &Pass<'_>,
    revisions: &[Arc<RevisionView>],
    create: &Create,
) -> Option<Failure> {
    let newest = Create {
        revision: pass.spec.hash.clone(),
        ..create.clone()
    };
    let (name, body) = pod::request(pass.owner(), &newest, &pass.spec.canonical);
    let (client, namespace) = (&pass.context.client, &pass.key.namespace);
    let request = write::would_create::<WatchedPod, AdmittedPod>(client, namespace, body);
    let failure = match call("try to create a pod", pass.key, request).await {
        Ok(pod) if !is_shown(pass, &pod.metadata) => Some(Failure::labels_changed(&pass.key.name)),
        Ok(pod) => match note_demands(pass, revisions, &newest.revision, &pod.demands).await {
            Ok(false) => None,
            // Pods belong on other nodes. The revision's event brings the next decision, and another dry run.
            Ok(true) => return None,
            Err(error) => Some(Failure::not_created(error, &name, &create.node)),
        },
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
