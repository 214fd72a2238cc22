//! The revisions of an object, as `ControllerRevision` objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::Patch;

use super::look::Look;
use super::pods::{done_or_gone, is_already_there};
use super::{Settled, of_owner};
use crate::kinds::mydaemonset::revision::{self, RevisionView, WatchedRevision};
use crate::kinds::mydaemonset::rollout::board::Board;
use crate::reconcile::{Error, call, read, write};

impl Look<'_> {
    /// The object's revisions, that of the present spec among them and the newest: it is made, or
    /// made the newest, where it is not. Those that nobody controls any more are adopted; the error,
    /// where that fails, is no reason to keep the pods waiting.
    pub(super) async fn revisions(
        &self,
        settled: &Settled,
    ) -> Result<(Vec<Arc<RevisionView>>, Option<Error>), Error> {
        let mut left = None;
        let mut known = self.this.revisions.find(&self.object.uid);
        let orphans = of_owner(&self.key.name, "");
        let orphans = self.this.revisions.find_with_keys(&orphans);
        for (key, orphan) in orphans {
            if key.namespace != self.key.namespace || !self.is_still_there().await? {
                continue;
            }
            let adopted = self.adopt::<WatchedRevision>(&orphan.name, &orphan.uid);
            match adopted.await {
                Ok(()) => known.push(orphan),
                Err(error) => left = Some(error),
            }
        }
        let at = known.iter().position(|r| r.hash == settled.hash);
        let number = revision::next_number(known.iter().map(AsRef::as_ref));
        let ensured = match at {
            // The last number of all may stand more than once, if somebody edits it.
            Some(at) if known[at].number >= number - 1 => return Ok((known, left)),
            Some(at) => {
                let old = known.swap_remove(at);
                self.renew_revision(&old.name, &old.uid, number).await?
            }
            None => self.create_revision(settled, number).await?,
        };
        known.push(Arc::new(ensured));
        Ok((known, left))
    }

    async fn create_revision(&self, settled: &Settled, number: i64) -> Result<RevisionView, Error> {
        let unreadable = |reason: String| Error::Unreadable {
            object: self.key.clone(),
            reason,
        };
        let body = revision::body(&self.owner, &settled.canonical, number, self.now)
            .map_err(|e| unreadable(e.to_string()))?;
        let client = &self.this.context.client;
        let namespace = &self.key.namespace;
        let request = write::create::<WatchedRevision, WatchedRevision>(client, namespace, body);
        let made = call("create the revision", self.key, request).await;
        let conflict = match made {
            Ok(made) => return Ok(RevisionView::of(made)),
            Err(error) if is_already_there(&error) => error,
            Err(error) => {
                let status = error.status().filter(|s| matches!(s.code, 403 | 422));
                let refused = status.map(|s| format!("it cannot be stored: {}", s.message));
                return Err(refused.map_or(error, unreadable));
            }
        };
        // It is there: not seen yet, left behind by a namesake of this object, or a stranger's.
        let name = revision::name(self.owner.name, &settled.hash);
        let api = self.api::<WatchedRevision>();
        let there = read("read the revision", self.key, api.get(&name)).await?;
        let view = RevisionView::of(there);
        let free = view.owner_uid.is_empty() || view.owner_uid == self.object.uid;
        if view.hash != settled.hash || !free {
            return Err(unreadable(format!(
                "the ControllerRevision {name} holds something else, or is another object's; delete it"
            )));
        }
        if view.owner_uid == self.object.uid && view.number == number {
            return Ok(view);
        }
        if view.owner_uid.is_empty() && !self.is_still_there().await? {
            return Err(conflict);
        }
        self.renew_revision(&name, &view.uid, number.max(view.number))
            .await
    }

    async fn renew_revision(
        &self,
        name: &str,
        uid: &str,
        number: i64,
    ) -> Result<RevisionView, Error> {
        let api = self.api::<WatchedRevision>();
        let patch = revision::patch(&self.owner, uid, number, self.now);
        let params = write::patch_params();
        // Owner references of others stay.
        let patch = Patch::Strategic(&patch);
        let request = api.patch(name, &params, &patch);
        let patched = call("renew the revision", self.key, request).await?;
        Ok(RevisionView::of(patched))
    }

    /// Deletes revisions beyond the history's limit that nothing uses any more.
    pub(super) async fn prune(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        current: &str,
    ) -> Result<(), Error> {
        // Not even were none of them used.
        if revisions.len() <= settled.history {
            return Ok(());
        }
        let used: BTreeSet<String> = {
            let memory = self.memory();
            let on_nodes = memory.board.iter().flat_map(Board::revisions);
            [current, &settled.hash]
                .into_iter()
                .chain(on_nodes)
                .chain(memory.revisions())
                .map(str::to_owned)
                .collect()
        };
        let views: Vec<&RevisionView> = revisions.iter().map(AsRef::as_ref).collect();
        let api = self.api::<WatchedRevision>();
        for old in revision::superfluous(&views, &used, settled.history) {
            let params = write::only(&old.uid, None);
            let request = api.delete(&old.name, &params);
            let deleted = call("delete an old revision", self.key, request).await;
            done_or_gone(deleted.map(drop))?;
        }
        Ok(())
    }
}
