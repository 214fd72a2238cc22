//! The revisions of an object, as `ControllerRevision` objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::TimeDelta;
use kube::Resource as _;
use kube::api::Patch;
use serde_json::json;

use super::pass::Reconcile;
use super::pods::{Done, Failure, done_or_gone, is_already_there};
use super::{ParsedSpec, of_owner};
use crate::kinds::mydaemonset::crd::MyDaemonSet;
use crate::kinds::mydaemonset::memory::Step;
use crate::kinds::mydaemonset::revision::{self, RevisionView, WatchedRevision};
use crate::kinds::mydaemonset::rollout::state::RolloutState;
use crate::kinds::mydaemonset::status::{FAILED_ADOPT, FAILED_PRUNE};
use crate::kinds::mydaemonset::views::controller;
use my_operator_runtime::reconcile::{Error, call, read, write};

/// A revision that the watch has not shown within this time is read again.
const STORED_FOR: TimeDelta = TimeDelta::seconds(60);

/// The outcome of storing the revision of the current spec.
pub(super) enum Ensured {
    /// The object's revisions, the current spec's among them and the newest.
    Known(Vec<Arc<RevisionView>>),
    /// It cannot be stored, with the reason.
    Conflict(String),
    /// The revision of a deleted object has its name and is being deleted.
    Waiting(String),
}

impl Reconcile<'_> {
    /// The object's revisions, the current spec's among them and the newest: it is created, or made
    /// the newest, if it is not. Orphans are adopted; a failure of that must not block the pods.
    pub(super) async fn revisions(
        &self,
        parsed: &ParsedSpec,
        done: &mut Done,
    ) -> Result<Ensured, Error> {
        let mut known = self.this.revisions.find(&self.object.uid);
        known.extend(self.adopt_revisions(done).await);
        let stored = self.memory().stored.clone();
        // A revision of an earlier spec, which the watch may not show yet, however long ago it was stored.
        let mut last = None;
        match stored {
            Some((stored, _)) if stored.hash != parsed.hash => last = Some(stored),
            // Stored a moment ago, and not shown yet. A watch never shows one whose labels are removed again and again.
            Some((stored, until))
                if until > self.now && known.iter().all(|known| known.name != stored.name) =>
            {
                known.push(stored);
            }
            _ => {}
        }
        let at = known.iter().position(|r| r.hash == parsed.hash);
        let number = revision::next_number(known.iter().chain(&last).map(AsRef::as_ref));
        let ensured = match at {
            // The highest number may occur more than once, after a manual edit.
            Some(at) if known[at].number >= number - 1 => return Ok(Ensured::Known(known)),
            Some(at) => {
                let old = known.swap_remove(at);
                self.renew_revision(&old.name, &old.uid, number, None)
                    .await?
            }
            None => match self.create_revision(parsed, number).await? {
                Ok(created) => created,
                Err(other) => return Ok(other),
            },
        };
        let ensured = Arc::new(ensured);
        self.memory().stored = Some((ensured.clone(), self.clock() + STORED_FOR));
        known.push(ensured);
        Ok(Ensured::Known(known))
    }

    /// Adopts the orphaned revisions of this name, and returns them.
    async fn adopt_revisions(&self, done: &mut Done) -> Vec<Arc<RevisionView>> {
        let mut orphans = self
            .this
            .revisions
            .find_with_keys(&of_owner(&self.key.name, ""));
        orphans.retain(|(key, _)| key.namespace == self.key.namespace);
        if self.is_left_out(Step::Adopt, orphans.is_empty()) {
            return Vec::new();
        }
        let (mut adopted, mut failure) = (Vec::new(), None);
        for (_, orphan) in orphans {
            let adopt = async {
                if self.is_still_there().await? {
                    self.adopt::<WatchedRevision>(&orphan.name, &orphan.uid)
                        .await?;
                    return Ok(true);
                }
                Ok(false)
            };
            match adopt.await {
                Ok(true) => adopted.push(orphan),
                Ok(false) => break,
                Err(error) => {
                    failure = Some(Failure::of(error, None, FAILED_ADOPT, &orphan.name, None));
                    break;
                }
            }
        }
        self.report(Step::Adopt, failure, !adopted.is_empty(), done);
        adopted
    }

    async fn create_revision(
        &self,
        parsed: &ParsedSpec,
        number: i64,
    ) -> Result<Result<RevisionView, Ensured>, Error> {
        let conflict = |reason: String| Ok(Err(Ensured::Conflict(reason)));
        let body = match revision::body(&self.owner, &parsed.canonical, number, self.now) {
            Ok(body) => body,
            Err(error) => return conflict(error.to_string()),
        };
        let client = &self.this.context.client;
        let namespace = &self.key.namespace;
        let request = write::create::<WatchedRevision, WatchedRevision>(client, namespace, body);
        match call("create the revision", self.key, request).await {
            Ok(made) => Ok(Ok(RevisionView::of(made))),
            Err(error) if is_already_there(&error) => {
                self.take_revision(parsed, number, error).await
            }
            Err(error) => match error.status().filter(|s| matches!(s.code, 403 | 422)) {
                Some(status) => conflict(format!("it cannot be stored: {}", status.message)),
                None => Err(error),
            },
        }
    }

    /// A revision of that name exists: not observed yet, without its labels, left behind by an
    /// earlier object of this name, or foreign.
    async fn take_revision(
        &self,
        parsed: &ParsedSpec,
        number: i64,
        conflict: Error,
    ) -> Result<Result<RevisionView, Ensured>, Error> {
        let name = revision::name(self.owner.name, &parsed.hash);
        let api = self.api::<WatchedRevision>();
        let there = read("read the revision", self.key, api.get(&name)).await?;
        let metadata = there.metadata.clone();
        let view = RevisionView::of(there);
        let is_equal = view.hash == parsed.hash;
        let is_ours = view.owner_uid == self.object.uid;
        if is_equal && is_ours && view.number == number && self.is_shown(&metadata) {
            return Ok(Ok(view));
        }
        // An object of this name with another UID is gone if this one still exists: its revision would be deleted too.
        let owner = controller(metadata.owner_references.as_deref());
        let is_left_behind = owner.is_some_and(|owner| {
            let is_kind = owner.kind == MyDaemonSet::kind(&());
            is_kind && owner.name == self.owner.name && owner.uid != self.object.uid
        });
        if !is_ours && !view.owner_uid.is_empty() && !is_left_behind {
            let reason = format!("the ControllerRevision {name} is another object's; delete it");
            return Ok(Err(Ensured::Conflict(reason)));
        }
        if is_left_behind && !is_equal || metadata.deletion_timestamp.is_some() && !is_ours {
            return Ok(Err(Ensured::Waiting(name)));
        }
        if !is_equal {
            let reason = format!("the ControllerRevision {name} holds something else; delete it");
            return Ok(Err(Ensured::Conflict(reason)));
        }
        if !is_ours && !self.is_still_there().await? {
            return Err(conflict);
        }
        let number = number.max(view.number);
        let left_by =
            is_left_behind.then_some((view.owner_uid.as_str(), metadata.resource_version));
        let renewed = self.renew_revision(&name, &view.uid, number, left_by);
        renewed.await.map(Ok)
    }

    /// Makes a revision the newest one, and this object its controller: instead of that of the
    /// given UID, if it still has that version.
    async fn renew_revision(
        &self,
        name: &str,
        uid: &str,
        number: i64,
        left_by: Option<(&str, Option<String>)>,
    ) -> Result<RevisionView, Error> {
        let api = self.api::<WatchedRevision>();
        let mut patch = revision::patch(&self.owner, uid, number, self.now);
        if let Some((owner, version)) = left_by {
            let metadata = &mut patch["metadata"];
            metadata["resourceVersion"] = json!(version);
            if let Some(references) = metadata["ownerReferences"].as_array_mut() {
                references.push(json!({"$patch": "delete", "uid": owner}));
            }
        }
        let params = write::patch_params();
        // Owner references of others stay.
        let patch = Patch::Strategic(&patch);
        let request = api.patch(name, &params, &patch);
        let patched = call("renew the revision", self.key, request).await?;
        Ok(RevisionView::of(patched))
    }

    /// Deletes revisions beyond the history limit that are no longer used.
    pub(super) async fn prune(
        &self,
        parsed: &ParsedSpec,
        revisions: &[Arc<RevisionView>],
        current: &str,
        done: &mut Done,
    ) {
        // Not even if none of them were used.
        if revisions.len() <= parsed.history {
            self.is_left_out(Step::Prune, true);
            return;
        }
        let used: BTreeSet<String> = {
            let memory = self.memory();
            let on_nodes = memory
                .rollout_state
                .iter()
                .flat_map(RolloutState::revisions);
            [current, &parsed.hash]
                .into_iter()
                .chain(on_nodes)
                .chain(memory.revisions())
                .map(str::to_owned)
                .collect()
        };
        let views: Vec<&RevisionView> = revisions.iter().map(AsRef::as_ref).collect();
        let superfluous = revision::superfluous(&views, &used, parsed.history);
        if self.is_left_out(Step::Prune, superfluous.is_empty()) {
            return;
        }
        let api = self.api::<WatchedRevision>();
        let (mut some_done, mut failure) = (false, None);
        for old in superfluous {
            let params = write::only(&old.uid, None);
            let request = api.delete(&old.name, &params);
            let deleted = call("delete an old revision", self.key, request).await;
            if let Err(error) = done_or_gone(deleted.map(drop)) {
                failure = Some(Failure::of(error, None, FAILED_PRUNE, &old.name, None));
                break;
            }
            some_done = true;
        }
        self.report(Step::Prune, failure, some_done, done);
    }
}
