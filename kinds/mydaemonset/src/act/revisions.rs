//! Stores the revision of the current spec, and deletes old ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Resource as _;
use kube::api::Patch;
use kube::core::ObjectMeta;
use serde_json::json;

use super::failure::{Failure, done_or_gone, is_already_there};
use super::outcome::{Outcome, is_skipped, report};
use super::ownership::{is_shown, is_still_there, set_owner};
use crate::crd::MyDaemonSet;
use crate::decide::rollout::RolloutState;
use crate::memory::backoffs::Step;
use crate::pass::Pass;
use crate::revision::{self, Place, RevisionView, WatchedRevision};
use crate::status::{FAILED_ADOPT, FAILED_PRUNE};
use my_operator_kind::manager::{MANAGER, patch_params};
use my_operator_kind::watched::controller;
use wall_clock_controller::reconcile::{Error, call, read, write};

/// The outcome of storing the revision of the current spec.
pub(crate) enum Ensured {
    /// The object's revisions, the current spec's among them and the newest.
    Stored(Vec<Arc<RevisionView>>),
    /// The object's revisions. The current spec's cannot be stored, or not be made the newest.
    NotStored(Vec<Arc<RevisionView>>),
    /// The revision of that name belongs to a deleted object and is being deleted.
    Waiting(String),
}

/// The outcome of creating one revision.
enum Created {
    Revision(RevisionView),
    /// Another object has its name, with the reason. A user has to act.
    Conflict(String),
    /// The revision of that name belongs to a deleted object and is being deleted.
    Waiting(String),
}

/// The object's revisions, the current spec's among them and the newest: it is created, or made
/// the newest, if it is not. Orphans are adopted. A failure of either must not block the pods of
/// the revisions that are there.
pub(crate) async fn ensure_revision(pass: &Pass<'_>, outcome: &mut Outcome) -> Ensured {
    let hash = &pass.spec.hash;
    let mut known = pass.revisions();
    known.extend(adopt_revisions(pass, outcome).await);
    let last = pass.memory().stored.last_other(hash);
    let place = Place::after(known.iter().chain(&last).map(AsRef::as_ref), hash);
    let at = known.iter().position(|r| r.hash == *hash);
    // The highest number may occur more than once, after a manual edit.
    let is_newest = at.is_some_and(|at| known[at].number >= place.number - 1);
    if is_skipped(pass, Step::Store, is_newest) {
        return if is_newest {
            Ensured::Stored(known)
        } else {
            Ensured::NotStored(known)
        };
    }
    let stored = match at {
        Some(at) => renew_revision(pass, &known[at], place, None)
            .await
            .map(Created::Revision),
        None => create_revision(pass, place).await,
    };
    let (ensured, failure) = match stored {
        Ok(Created::Revision(revision)) => {
            let (revision, now) = (Arc::new(revision), pass.clock());
            let mut memory = pass.memory();
            memory.stored.record(revision.clone(), now);
            memory.acceptance.forget(hash);
            memory.rollout = None;
            known.retain(|known| known.hash != *hash);
            known.push(revision);
            (Ensured::Stored(known), None)
        }
        Ok(Created::Waiting(name)) => (Ensured::Waiting(name), None),
        Ok(Created::Conflict(reason)) => {
            let failure = Failure::revision_conflict(reason);
            (Ensured::NotStored(known), Some(failure))
        }
        Err(error) => {
            if let Some(at) = at.filter(|_| error.is_not_found()) {
                // The watch has not shown yet that a user deleted it.
                pass.memory().stored.forget(&known[at].uid);
            }
            let name = revision::name(&pass.key.name, hash);
            let failure = Failure::not_stored(error, &name);
            (Ensured::NotStored(known), Some(failure))
        }
    };
    let some_done = failure.is_none();
    report(pass, Step::Store, failure, some_done, outcome);
    ensured
}

/// Adopts the orphaned revisions of this name, and returns them.
async fn adopt_revisions(pass: &Pass<'_>, outcome: &mut Outcome) -> Vec<Arc<RevisionView>> {
    let orphans = pass.caches.orphaned_revisions(pass.key);
    if is_skipped(pass, Step::Adopt, orphans.is_empty()) {
        return Vec::new();
    }
    let (mut adopted, mut failure) = (Vec::new(), None);
    for orphan in orphans {
        match adopt_if_there(pass, &orphan).await {
            Ok(true) => adopted.push(orphan),
            Ok(false) => break,
            Err(error) => {
                failure = Some(Failure::new(error, None, FAILED_ADOPT, &orphan.name, None));
                break;
            }
        }
    }
    report(pass, Step::Adopt, failure, !adopted.is_empty(), outcome);
    adopted
}

/// Adopts a revision if the object still exists. Returns whether it does.
async fn adopt_if_there(pass: &Pass<'_>, orphan: &RevisionView) -> Result<bool, Error> {
    let is_there = is_still_there(pass).await?;
    if is_there {
        set_owner::<WatchedRevision>(pass, true, &orphan.name, &orphan.uid).await?;
    }
    Ok(is_there)
}

async fn create_revision(pass: &Pass<'_>, place: Place<'_>) -> Result<Created, Error> {
    let Some(canonical) = &pass.spec.canonical else {
        // The next pass knows that it is gone, and does not go back to it.
        let name = revision::name(&pass.key.name, &pass.spec.hash);
        let reason = format!("the ControllerRevision {name} is gone: there is no way back to it");
        return Ok(Created::Conflict(reason));
    };
    let cause = pass.object.cause.as_deref();
    let body = match revision::body(&pass.owner(), canonical, cause, place) {
        Ok(body) => body,
        Err(error) => return Ok(Created::Conflict(error.to_string())),
    };
    let (client, namespace) = (&pass.context.client, &pass.key.namespace);
    let request =
        write::create::<WatchedRevision, WatchedRevision>(client, namespace, body, MANAGER);
    match call("create the revision", pass.key, request).await {
        Ok(made) => Ok(Created::Revision(RevisionView::from_watched(made))),
        Err(error) if is_already_there(&error) => take_revision(pass, place, error).await,
        Err(error) => Err(error),
    }
}

/// A revision of that name exists: not observed yet, without its labels, left behind by an
/// earlier object of this name, or foreign.
async fn take_revision(
    pass: &Pass<'_>,
    mut place: Place<'_>,
    conflict: Error,
) -> Result<Created, Error> {
    let name = revision::name(&pass.key.name, &pass.spec.hash);
    let api = pass.api::<WatchedRevision>();
    let there = read("read the revision", pass.key, api.get(&name)).await?;
    let metadata = there.metadata.clone();
    let view = RevisionView::from_watched(there);
    let is_equal = view.hash == pass.spec.hash;
    let is_ours = view.owner_uid == pass.object.uid;
    if is_equal && is_ours && view.number == place.number && is_shown(pass, &metadata) {
        return Ok(Created::Revision(view));
    }
    let is_left_behind = is_left_behind(pass, &metadata);
    if !is_ours && !view.owner_uid.is_empty() && !is_left_behind {
        let reason = format!("the ControllerRevision {name} belongs to another object; delete it");
        return Ok(Created::Conflict(reason));
    }
    if is_left_behind && !is_equal || metadata.deletion_timestamp.is_some() && !is_ours {
        return Ok(Created::Waiting(name));
    }
    if !is_equal {
        let reason = format!("the ControllerRevision {name} has different content; delete it");
        return Ok(Created::Conflict(reason));
    }
    if !is_ours && !is_still_there(pass).await? {
        return Err(conflict);
    }
    place.number = place.number.max(view.number);
    let left_by = is_left_behind.then_some((view.owner_uid.as_str(), metadata.resource_version));
    let renewed = renew_revision(pass, &view, place, left_by).await?;
    Ok(Created::Revision(renewed))
}

/// Whether a revision belongs to an earlier object of this name. That one is gone if this one still
/// exists, and its revision would be deleted too.
fn is_left_behind(pass: &Pass<'_>, metadata: &ObjectMeta) -> bool {
    let owner = controller(metadata.owner_references.as_deref());
    owner.is_some_and(|owner| {
        let is_kind = owner.kind == MyDaemonSet::kind(&());
        is_kind && *owner.name == *pass.key.name && owner.uid != pass.object.uid
    })
}

/// Makes a revision the newest one, and this object its controller: instead of that of the
/// given UID, if it still has that version.
async fn renew_revision(
    pass: &Pass<'_>,
    old: &RevisionView,
    place: Place<'_>,
    left_by: Option<(&str, Option<String>)>,
) -> Result<RevisionView, Error> {
    let api = pass.api::<WatchedRevision>();
    // With the UID as a precondition: a namesake may hold something else.
    let mut patch = revision::patch(&pass.owner(), &old.uid, place, pass.now);
    if let Some((owner, version)) = left_by {
        let metadata = &mut patch["metadata"];
        metadata["resourceVersion"] = json!(version);
        if let Some(references) = metadata["ownerReferences"].as_array_mut() {
            references.push(json!({"$patch": "delete", "uid": owner}));
        }
    }
    let params = patch_params();
    // Owner references of others stay.
    let patch = Patch::Strategic(&patch);
    let request = api.patch(&old.name, &params, &patch);
    let patched = call("renew the revision", pass.key, request).await?;
    Ok(RevisionView::from_watched(patched))
}

/// Deletes revisions beyond the history limit that are no longer used.
pub(crate) async fn prune_revisions(
    pass: &Pass<'_>,
    revisions: &[Arc<RevisionView>],
    current: &str,
    complete: &[String],
    outcome: &mut Outcome,
) {
    // Not even if none of them were used.
    if revisions.len() <= pass.spec.history {
        is_skipped(pass, Step::Prune, true);
        return;
    }
    let used = used_revisions(pass, current);
    let views: Vec<&RevisionView> = revisions.iter().map(AsRef::as_ref).collect();
    let superfluous = revision::superfluous(&views, &used, complete, pass.spec.history);
    if is_skipped(pass, Step::Prune, superfluous.is_empty()) {
        return;
    }
    let api = pass.api::<WatchedRevision>();
    let (mut some_done, mut failure) = (false, None);
    for old in superfluous {
        // With the UID: a revision that was stored again under this name may be in use.
        let params = write::only(&old.uid, None);
        let request = api.delete(&old.name, &params);
        let deleted = call("delete an old revision", pass.key, request).await;
        if let Err(error) = done_or_gone(deleted.map(drop)) {
            failure = Some(Failure::new(error, None, FAILED_PRUNE, &old.name, None));
            break;
        }
        pass.memory().stored.forget(&old.uid);
        some_done = true;
    }
    report(pass, Step::Prune, failure, some_done, outcome);
}

/// The revisions of the spec, of pods, and of nodes that may get a pod of theirs again.
fn used_revisions(pass: &Pass<'_>, current: &str) -> BTreeSet<String> {
    let memory = pass.memory();
    let on_nodes = memory.rollout.iter().flat_map(RolloutState::revisions);
    [current, &pass.spec.hash]
        .into_iter()
        .chain(pass.undone())
        .chain(on_nodes)
        .chain(memory.nodes.revisions())
        .map(str::to_owned)
        .collect()
}
