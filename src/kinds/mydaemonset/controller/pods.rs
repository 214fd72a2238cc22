//! The calls that change pods.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::stream::FuturesUnordered;
use futures::{StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::api::Patch;
use kube::core::{PartialObjectMeta, Status};
use kube::{Api, Resource};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use super::Settled;
use super::look::Look;
use crate::kinds::mydaemonset::crd::RawMyDaemonSet;
use crate::kinds::mydaemonset::memory::Refused;
use crate::kinds::mydaemonset::pod::{self, Plan};
use crate::kinds::mydaemonset::revision::{self, Content, RevisionView, WatchedRevision};
use crate::kinds::mydaemonset::rollout::{Claim, Create, Decision, Delete, Why};
use crate::kinds::mydaemonset::status::{DELETE_REFUSED, Refusal};
use crate::kinds::mydaemonset::views::{
    PodView, WatchedNode, WatchedPod, controller as controller_of,
};
use crate::reconcile::{Error, call, if_there, read, write};

/// The most pods made, and the most deleted, at one look; the next look follows at once.
const MOST: usize = 500;
/// So many calls for one object are under way at a time.
const CALLS: usize = 32;

/// What came of the calls of one look.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) created: usize,
    pub(super) deleted: Vec<Why>,
    /// How many pods were adopted or released.
    pub(super) claimed: usize,
    /// The API server would not make a pod.
    pub(super) refusal: Option<Refusal>,
    /// Something that another attempt may cure.
    pub(super) error: Option<Error>,
    /// There is more to do, and nothing against it.
    pub(super) more: bool,
}

/// What came of an attempt to make one pod.
enum Made {
    Pod,
    /// Nothing to tell of: it is there, or there is nobody left to make it for.
    Nothing,
    Refused(Refusal),
    Failed(Error),
}

impl Look<'_> {
    /// Does what was decided.
    pub(super) async fn act(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        decision: &Decision,
    ) -> Done {
        let mut done = Done::default();
        self.delete_all(&decision.delete, &mut done).await;
        let vanished = std::mem::take(&mut self.memory().vanished);
        for claimed in [
            self.claim_all(&decision.claim, &mut done).await,
            self.release_all(vanished, &mut done).await,
        ] {
            if let Err(error) = claimed {
                done.error.get_or_insert(error);
            }
        }
        // One call that fails must not keep all the others waiting.
        let made = self.make(settled, revisions, decision).await;
        done.created = made.created;
        done.more |= made.more;
        done.refusal = made.refusal.or(done.refusal);
        done.error = made.error.or(done.error);
        let mut memory = self.memory();
        memory.in_vain = match (&done.refusal, &done.error) {
            (None, None) => 0,
            _ => memory.in_vain.wrapping_add(1),
        };
        drop(memory);
        done
    }

    async fn delete_all(&self, deletes: &[Delete], done: &mut Done) {
        // A pod that was made but not seen yet cannot be named by its UID, and so not be deleted.
        let deletes: Vec<&Delete> = deletes.iter().filter(|d| !d.uid.is_empty()).collect();
        let generation = self.object.generation;
        let undeleted = self.memory().undeleted.take();
        if deletes.is_empty() {
            return;
        }
        if let Some(refused) = undeleted.clone().filter(|r| r.holds(generation, self.now)) {
            done.refusal = Some(refused.refusal);
            self.memory().undeleted = undeleted;
            return;
        }
        done.more = deletes.len() > MOST;
        let calls: Vec<_> = deletes
            .into_iter()
            .take(MOST)
            .map(|delete| async move { (delete, self.delete(delete).await) })
            .collect();
        let mut calls = stream::iter(calls).buffer_unordered(CALLS);
        while let Some((delete, deleted)) = calls.next().await {
            match deleted {
                Ok(true) => done.deleted.push(delete.why),
                Ok(false) => {}
                Err(error) => {
                    let status = error.status();
                    if let Some(status) = status.filter(|s| matches!(s.code, 403 | 422)) {
                        // Its pause is that of a refusal, and not that of an error.
                        done.refusal.get_or_insert(Refusal {
                            reason: DELETE_REFUSED,
                            message: status.message.replace(&delete.pod, "..."),
                            node: Some(delete.node.clone()),
                        });
                        continue;
                    }
                    let unanswered = status.is_none();
                    done.error.get_or_insert(error);
                    if unanswered {
                        // The others would only wait in vain too.
                        break;
                    }
                }
            }
        }
        if let Some(refusal) = done.refusal.take() {
            let some = !done.deleted.is_empty();
            let refused = Refused::after(undeleted, refusal, some, generation, self.clock());
            done.refusal = Some(refused.refusal.clone());
            self.memory().undeleted = Some(refused);
        }
    }

    /// Deletes a pod; false when there is a reason not to.
    async fn delete(&self, delete: &Delete) -> Result<bool, Error> {
        if delete.why == Why::NodeGone && self.node_is_there(&delete.node).await? {
            return Ok(false);
        }
        self.memory().will_delete(delete, self.clock());
        let mut params = write::only(&delete.uid, None);
        if delete.why == Why::NodeGone {
            // No kubelet is left that would confirm the end.
            params.grace_period_seconds = Some(0);
        }
        let api = self.api::<WatchedPod>();
        let request = api.delete(&delete.pod, &params);
        let deleted = done_or_gone(call("delete a pod", self.key, request).await.map(drop));
        // One that timed out may have been done all the same: it is believed in until patience ends.
        if deleted
            .as_ref()
            .is_err_and(|error| error.status().is_some())
        {
            self.memory().not_deleted(delete);
        }
        deleted.map(|()| true)
    }

    /// Whether the API server itself still knows the node. A pod of a node that is gone is deleted
    /// without a kubelet's word, so a watch that lags is not enough to go by.
    async fn node_is_there(&self, node: &str) -> Result<bool, Error> {
        let api = Api::<WatchedNode>::all(self.this.context.client.clone());
        let there = if_there(read("read the node", self.key, api.get_metadata(node)).await)?;
        Ok(there.is_some())
    }

    /// Whether the API server itself still knows this very object and nobody deletes it: only then
    /// may it adopt, or what it adopts would be deleted with it.
    pub(super) async fn is_still_there(&self) -> Result<bool, Error> {
        let api = self.api::<RawMyDaemonSet>();
        let request = api.get_metadata(&self.key.name);
        let there = if_there(read("read the object", self.key, request).await)?;
        Ok(there.is_some_and(|object| {
            object.metadata.uid.as_deref() == Some(&self.object.uid)
                && object.metadata.deletion_timestamp.is_none()
        }))
    }

    async fn claim_all(&self, claims: &[Claim], done: &mut Done) -> Result<(), Error> {
        let adopts = claims.iter().any(|claim| claim.adopt);
        let may_adopt = adopts && self.is_still_there().await?;
        let claims = claims.iter().filter(|claim| !claim.adopt || may_adopt);
        let calls: Vec<_> = claims.map(|claim| self.claim(claim)).collect();
        let mut calls = stream::iter(calls).buffer_unordered(CALLS);
        let mut result = Ok(());
        while let Some(claimed) = calls.next().await {
            match claimed {
                Ok(()) => done.claimed += 1,
                Err(error) => result = Err(error),
            }
        }
        result
    }

    async fn claim(&self, claim: &Claim) -> Result<(), Error> {
        if claim.adopt {
            self.adopt::<WatchedPod>(&claim.pod, &claim.uid).await?;
        } else {
            self.release(&claim.pod, &claim.uid).await?;
        }
        self.memory().claimed(claim, self.clock());
        Ok(())
    }

    /// Makes the object the controller of a pod no more.
    async fn release(&self, name: &str, uid: &str) -> Result<(), Error> {
        let references = json!([{"$patch": "delete", "uid": self.object.uid}]);
        self.refer::<WatchedPod>("release a pod", name, uid, references)
            .await
    }

    /// Makes the object the controller of another one.
    pub(super) async fn adopt<K>(&self, name: &str, uid: &str) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let references = json!([self.owner.reference()]);
        self.refer::<K>("adopt an orphan", name, uid, references)
            .await
    }

    /// Changes the owner references of this very object. A strategic merge leaves those of others
    /// alone.
    async fn refer<K>(
        &self,
        step: &'static str,
        name: &str,
        uid: &str,
        references: serde_json::Value,
    ) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let patch = json!({"metadata": {"uid": uid, "ownerReferences": references}});
        let params = write::patch_params();
        let api = self.api::<K>();
        let patch = Patch::Strategic(&patch);
        let request = api.patch_metadata(name, &params, &patch);
        done_or_gone(call(step, self.key, request).await.map(drop))
    }

    /// Makes the missing pods, and asks whether one of the newest revision would be taken; unless
    /// that was refused just now.
    async fn make(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        decision: &Decision,
    ) -> Done {
        let mut done = Done::default();
        let generation = self.object.generation;
        let refused = self.memory().refused.clone();
        let flowing = std::mem::take(&mut self.memory().flowing);
        if !decision.create.is_empty() || decision.prove.is_some() {
            if let Some(refused) = refused.filter(|r| r.holds(generation, self.now)) {
                done.refusal = Some(refused.refusal);
                return done;
            }
            let window = if flowing { CALLS } else { 1 };
            self.create_all(settled, revisions, &decision.create, window, &mut done)
                .await;
            if let Some(create) = &decision.prove {
                self.prove(settled, create, &mut done).await;
            }
        }
        let mut memory = self.memory();
        let before = memory.refused.take();
        if let Some(refusal) = done.refusal.take() {
            let some = done.created > 0;
            let refused = Refused::after(before, refusal, some, generation, self.clock());
            done.refusal = Some(refused.refusal.clone());
            memory.refused = Some(refused);
        }
        drop(memory);
        done
    }

    /// Makes pods, few at first and more as they are taken, so that a fault that befalls all of them
    /// costs few calls. The first fault ends it.
    async fn create_all(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        creates: &[Create],
        mut window: usize,
        done: &mut Done,
    ) {
        // After attempts in vain another node comes first: what fails for one node alone must not
        // keep all the others waiting.
        let skip = self.memory().in_vain % creates.len().max(1);
        let most = creates.len().min(MOST);
        let mut queue = creates.iter().cycle().skip(skip).take(most);
        let mut calls = FuturesUnordered::new();
        loop {
            let well = done.refusal.is_none() && done.error.is_none();
            while well && calls.len() < window {
                let Some(create) = queue.next() else {
                    break;
                };
                calls.push(self.create(settled, revisions, create));
            }
            match calls.next().await {
                None => break,
                Some(Made::Pod) => {
                    done.created += 1;
                    window = (window + 1).min(CALLS);
                }
                Some(Made::Nothing) => {}
                Some(Made::Refused(refusal)) => {
                    done.refusal.get_or_insert(refusal);
                }
                Some(Made::Failed(error)) => {
                    done.error.get_or_insert(error);
                }
            }
        }
        drop(calls);
        let well = done.refusal.is_none() && done.error.is_none();
        done.more = well && creates.len() > most && done.created > 0;
        self.memory().flowing = done.more;
    }

    /// The content of a revision in its canonical form; `None` when there is no such revision, or no
    /// more.
    async fn content(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        hash: &str,
    ) -> Result<Option<Arc<str>>, Error> {
        if hash == settled.hash {
            return Ok(Some(settled.canonical.clone()));
        }
        let Some(revision) = revisions.iter().find(|r| r.hash == hash) else {
            return Ok(None);
        };
        // One reader at a time: the pods of a pass are mostly of one revision.
        let mut last = self.old_content.lock().await;
        if let Some((kept, content)) = &*last
            && *kept == hash
        {
            return Ok(Some(content.clone()));
        }
        let api = self.api::<WatchedRevision>();
        let there = if_there(read("read a revision", self.key, api.get(&revision.name)).await)?;
        let content = there.and_then(|there| there.canonical());
        let content = content.filter(|content| revision::hash(content) == hash);
        let content: Option<Arc<str>> = content.map(Into::into);
        *last = content.clone().map(|content| (hash.to_owned(), content));
        Ok(content)
    }

    /// The name of a pod to make, and its JSON.
    fn build(&self, create: &Create, content: &str) -> (String, Vec<u8>) {
        let plan = Plan {
            owner: self.owner,
            node: &create.node,
            node_uid: &create.node_uid,
            revision: &create.revision,
            attempt: create.attempt,
        };
        let name = pod::name(plan.node, plan.node_uid, self.owner.uid, plan.revision);
        let content = Content::read(content).unwrap_or_default();
        (name, pod::build(&plan, &content).to_string().into_bytes())
    }

    async fn create(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        create: &Create,
    ) -> Made {
        let content = self.content(settled, revisions, &create.revision).await;
        let (name, body) = match content {
            Ok(Some(content)) => self.build(create, &content),
            Ok(None) => return Made::Nothing,
            Err(error) => return Made::Failed(error),
        };
        let expected = PodView {
            name: name.clone(),
            owner: self.key.name.to_string(),
            owner_uid: self.object.uid.clone(),
            node: create.node.clone(),
            revision: create.revision.clone(),
            attempt: create.attempt,
            created: self.now,
            ..PodView::default()
        };
        self.memory().will_create(expected, self.clock());
        let client = &self.this.context.client;
        let request = write::create::<WatchedPod, IgnoredAny>(client, &self.key.namespace, body);
        match call("create a pod", self.key, request).await {
            Ok(_) => {
                let mut memory = self.memory();
                memory.created(&create.node);
                if create.revision == settled.hash {
                    memory.proven = Some(create.revision.clone());
                }
                Made::Pod
            }
            // It may have been made all the same: believe in it until patience ends.
            Err(error @ Error::Timeout { .. }) => Made::Failed(error),
            Err(error) if is_already_there(&error) => {
                self.already_there(create, &name, error).await
            }
            Err(error) => {
                self.memory().seen(&create.node, &name);
                judge(error, &name, &create.node)
            }
        }
    }

    /// A pod of that name is there: ours, which the watch will show, or a stranger's, be it that
    /// somebody took our labels from it and thereby the pod.
    async fn already_there(&self, create: &Create, name: &str, conflict: Error) -> Made {
        let api = self.api::<WatchedPod>();
        let there = if_there(read("read a pod", self.key, api.get_metadata(name)).await);
        let is_ours = |pod: &PartialObjectMeta<WatchedPod>| {
            let owner = controller_of(pod.metadata.owner_references.as_deref());
            owner.is_some_and(|owner| owner.uid == self.object.uid)
        };
        let made = match there {
            Ok(Some(pod)) if is_ours(&pod) => match self.release_unlabelled(&pod).await {
                Ok(true) => taken(name),
                Ok(false) if label(&pod, pod::REVISION_LABEL) != Some(&create.revision) => {
                    taken(name)
                }
                Ok(false) => return Made::Nothing,
                Err(error) => Made::Failed(error),
            },
            // It has just gone; no watch will tell.
            Ok(None) => Made::Failed(conflict),
            Ok(Some(_)) => taken(name),
            Err(error) => Made::Failed(error),
        };
        self.memory().seen(&create.node, name);
        made
    }

    /// Releases a pod of this object that the watch does not show, for want of our labels. Whether
    /// it is one.
    async fn release_unlabelled<'a>(
        &self,
        pod: &'a PartialObjectMeta<WatchedPod>,
    ) -> Result<bool, Error> {
        let is_shown = label(pod, write::MANAGED_BY) == Some(write::MANAGER)
            && label(pod, pod::NAME_LABEL) == Some(self.owner.name);
        if is_shown {
            return Ok(false);
        }
        let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
        self.release(text(&pod.metadata.name), text(&pod.metadata.uid))
            .await?;
        Ok(true)
    }

    /// Releases those of the pods that are there still, and without our labels.
    async fn release_all(&self, vanished: Vec<Claim>, done: &mut Done) -> Result<(), Error> {
        let api = self.api::<WatchedPod>();
        let mut result = Ok(());
        for gone in vanished {
            let there = if_there(read("read a pod", self.key, api.get_metadata(&gone.pod)).await);
            let released = match there {
                Ok(Some(pod)) if pod.metadata.uid.as_deref() == Some(&gone.uid) => {
                    self.release_unlabelled(&pod).await
                }
                other => other.map(|_| false),
            };
            match released {
                Ok(released) => done.claimed += usize::from(released),
                Err(error) => {
                    self.memory().vanished.push(gone);
                    result = Err(error);
                }
            }
        }
        result
    }

    /// The time of a call, which may come long after the look began.
    fn clock(&self) -> DateTime<Utc> {
        (self.this.context.clock)()
    }

    /// Asks whether a pod of the newest revision would be taken.
    async fn prove(&self, settled: &Settled, create: &Create, done: &mut Done) {
        let (name, body) = self.build(create, &settled.canonical);
        let client = &self.this.context.client;
        let request = write::would_create::<WatchedPod>(client, &self.key.namespace, body);
        let made = match call("try to create a pod", self.key, request).await {
            Ok(()) => Made::Pod,
            Err(error) if is_already_there(&error) => Made::Pod,
            // The old pod's place in it becomes free.
            Err(error) if is_over_quota(&error) => Made::Pod,
            Err(error) => judge(error, &name, &create.node),
        };
        match made {
            Made::Pod => {
                self.memory().proven = Some(settled.hash.clone());
                done.more = true;
            }
            Made::Nothing => {}
            Made::Refused(refusal) => {
                done.refusal.get_or_insert(refusal);
            }
            Made::Failed(error) => {
                done.error.get_or_insert(error);
            }
        }
    }
}

fn label<'a>(pod: &'a PartialObjectMeta<WatchedPod>, key: &str) -> Option<&'a str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

fn taken(name: &str) -> Made {
    Made::Refused(Refusal {
        reason: "NameConflict",
        message: format!(
            "the pod {name} is there and is not this object's, or its labels were changed; delete it"
        ),
        node: None,
    })
}

/// What is gone, or has a namesake in its place, is as good as deleted.
pub(super) fn done_or_gone(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if matches!(error.category(), "NotFound" | "Conflict") => Ok(()),
        other => other,
    }
}

pub(super) fn is_already_there(error: &Error) -> bool {
    error.status().is_some_and(Status::is_already_exists)
}

/// Whether a quota has no room. The API gives no other sign of it than these words.
fn is_over_quota(error: &Error) -> bool {
    let status = error.status();
    status.is_some_and(|status| status.code == 403 && status.message.contains("exceeded quota"))
}

/// Whether the API server refuses the pod as it is, or something else went wrong.
fn judge(error: Error, pod: &str, node: &str) -> Made {
    let Some(status) = error.status() else {
        return Made::Failed(error);
    };
    let causes = status.details.as_ref().map(|d| d.causes.as_slice());
    let ending = causes
        .unwrap_or_default()
        .iter()
        .any(|cause| cause.reason == "NamespaceTerminating");
    match status.code {
        403 if ending => Made::Nothing,
        400 | 403 | 422 => Made::Refused(Refusal {
            reason: "PodRefused",
            // The same refusal for another node is no news.
            message: status.message.replace(pod, "..."),
            node: Some(node.to_owned()),
        }),
        _ => Made::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::reconcile::Key;

    fn refused(code: u16, message: &str) -> Made {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        let error = Error::Api {
            step: "create a pod",
            object: Key::new("ns", "x"),
            source: Box::new(kube::Error::Api(Box::new(status))),
        };
        judge(error, "n1-abc", "n1")
    }

    #[test]
    fn a_refusal_is_told_apart_from_a_failure() {
        let quota = r#"pods "n1-abc" is forbidden: exceeded quota"#;
        for code in [400, 403, 422] {
            match refused(code, quota) {
                Made::Refused(refusal) => {
                    assert_eq!(refusal.reason, "PodRefused");
                    assert_eq!(
                        refusal.message,
                        r#"pods "..." is forbidden: exceeded quota"#
                    );
                }
                _ => panic!("{code}"),
            }
        }
        for code in [404, 409, 429, 500, 503] {
            assert!(matches!(refused(code, quota), Made::Failed(_)), "{code}");
        }
    }
}
