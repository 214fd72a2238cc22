//! The calls that change pods.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::stream::FuturesUnordered;
use futures::{StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::api::Patch;
use kube::core::{ObjectMeta, PartialObjectMeta, Status};
use kube::{Api, Resource};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use super::Settled;
use super::look::Look;
use crate::kinds::mydaemonset::crd::RawMyDaemonSet;
use crate::kinds::mydaemonset::memory::{Answer, Doubt, Refused};
use crate::kinds::mydaemonset::placement::Fate;
use crate::kinds::mydaemonset::pod::{self, Plan};
use crate::kinds::mydaemonset::revision::{self, Content, RevisionView, WatchedRevision};
use crate::kinds::mydaemonset::rollout::{Claim, Create, Decision, Delete, Why};
use crate::kinds::mydaemonset::status::{DELETE_REFUSED, Refusal};
use crate::kinds::mydaemonset::views::{
    PodView, WatchedNode, WatchedPod, controller as controller_of,
};
use crate::reconcile::{Error, Key, call, if_there, read, write};

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

impl Done {
    /// Takes in an error. The one that asks for the longest pause counts.
    fn fail(&mut self, error: Error) {
        let rank = |error: &Error| (!error.is_conflict(), error.retry_after());
        let before = self.error.as_ref().map(rank);
        if before.is_none_or(|before| before < rank(&error)) {
            self.error = Some(error);
        }
    }
}

/// What came of an attempt to delete one pod.
enum Deleted {
    Now,
    /// There is a reason not to, or something else has done it.
    Not,
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
        let deletes = self.deletes(settled, decision);
        self.delete_all(&deletes, &mut done).await;
        let vanished = std::mem::take(&mut self.memory().vanished);
        for claimed in [
            self.claim_all(&decision.claim, &mut done).await,
            self.release_all(vanished, &mut done).await,
        ] {
            if let Err(error) = claimed {
                done.fail(error);
            }
        }
        // One call that fails must not keep all the others waiting.
        let made = self.make(settled, revisions, decision).await;
        done.created = made.created;
        done.more |= made.more;
        done.refusal = made.refusal.or(done.refusal);
        if let Some(error) = made.error {
            done.fail(error);
        }
        let mut memory = self.memory();
        memory.in_vain = match (&done.refusal, &done.error) {
            (None, None) => 0,
            _ => memory.in_vain.wrapping_add(1),
        };
        drop(memory);
        done
    }

    /// Asks the API server about what was done and what no watch has shown in time. Only its answer ends a belief: were
    /// one to end by itself, a late deletion would come on top of that of another node.
    pub(super) async fn ask_about_doubts(&self) -> Result<(), Error> {
        let doubts = self.memory().doubts(self.now);
        let calls: Vec<_> = doubts
            .iter()
            .take(MOST)
            .map(|doubt| async move { (doubt, self.is_so(doubt).await) })
            .collect();
        let mut result = Ok(());
        in_turns(calls, CALLS, |(doubt, is_so)| match is_so {
            Ok(is_so) => {
                self.memory().resolve(doubt, is_so, self.clock());
                Flow::Steady
            }
            Err(error) => {
                result = Err(error);
                Flow::Stop
            }
        })
        .await;
        result
    }

    /// Whether a pod that was deleted is gone or going, or one that was made is there.
    async fn is_so(&self, doubt: &Doubt) -> Result<bool, Error> {
        let api = self.api::<WatchedPod>();
        let request = api.get_metadata(&doubt.pod);
        let there = if_there(read("read a pod", self.key, request).await)?;
        let Some(metadata) = there.map(|pod| pod.metadata) else {
            return Ok(!doubt.uid.is_empty());
        };
        if doubt.uid.is_empty() {
            return Ok(self.is_shown(&metadata) && self.is_ours(&metadata));
        }
        let is_it = metadata.uid.as_deref() == Some(&doubt.uid);
        Ok(!is_it || metadata.deletion_timestamp.is_some())
    }

    /// The pods to delete: those that were decided on, and those whose deletion had no definite answer. That is repeated
    /// as long as it is wanted, and takes no other place among those that may be unavailable.
    fn deletes(&self, settled: &Settled, decision: &Decision) -> Vec<Delete> {
        let unanswered = self.memory().unanswered_deletes(self.object.generation);
        let is_wanted = |delete: &Delete| match delete.why {
            Why::Outdated => !decision.facts.auto_paused,
            Why::NotEligible => self.fate(settled, &delete.node) == Some(Fate::Leave),
            Why::Excluded => {
                let is_excluded = self.fate(settled, &delete.node) == Some(Fate::Leave);
                is_excluded && !decision.facts.auto_paused
            }
            Why::NodeGone | Why::NodeReplaced | Why::Surplus | Why::Failed => true,
        };
        let unanswered = unanswered.into_iter().filter(is_wanted);
        let decided = decision.delete.iter().cloned();
        // A pod that was made but not seen yet cannot be named by its UID, and so not be deleted.
        let all = unanswered.chain(decided).filter(|d| !d.uid.is_empty());
        all.collect()
    }

    /// The pods to make, in the same way.
    fn creates(&self, settled: &Settled, decision: &Decision) -> Vec<Create> {
        let unanswered = self.memory().unanswered_creates(self.object.generation);
        let is_wanted = |create: &Create| {
            let node = self.this.nodes.get(&Key::new("", &create.node));
            let is_it = node.is_some_and(|node| node.uid == create.node_uid);
            let runs = self.fate(settled, &create.node) == Some(Fate::Run);
            // Beside an old pod it is a step of the roll-out.
            let surges = self.pods_on(&create.node).iter().any(|pod| pod.is_live());
            is_it && runs && !(surges && decision.facts.auto_paused)
        };
        let unanswered = unanswered.into_iter().filter(is_wanted);
        unanswered.chain(decision.create.iter().cloned()).collect()
    }

    fn fate(&self, settled: &Settled, node: &str) -> Option<Fate> {
        let node = self.this.nodes.get(&Key::new("", node))?;
        Some(settled.placement.fate(&node))
    }

    async fn delete_all(&self, deletes: &[Delete], done: &mut Done) {
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
        let calls: Vec<_> = deletes
            .iter()
            .take(MOST)
            .map(|delete| async move { (delete, self.delete(delete).await) })
            .collect();
        let mut stopped = false;
        in_turns(calls, 1, |(delete, deleted)| {
            let error = match deleted {
                Ok(Deleted::Now) => {
                    done.deleted.push(delete.why);
                    return Flow::Faster;
                }
                Ok(Deleted::Not) => return Flow::Faster,
                Err(error) => error,
            };
            let status = error.status();
            if let Some(status) = status.filter(|s| matches!(s.code, 403 | 422)) {
                // Its pause is that of a refusal, and not that of an error.
                done.refusal.get_or_insert(Refusal {
                    reason: DELETE_REFUSED,
                    message: status.message.replace(&delete.pod, "..."),
                    node: Some(delete.node.clone()),
                });
                return Flow::Steady;
            }
            let is_conflict = error.is_conflict();
            done.fail(error);
            if is_conflict {
                return Flow::Steady;
            }
            // The others would only meet the same.
            stopped = true;
            Flow::Stop
        })
        .await;
        done.more = deletes.len() > MOST && !stopped;
        if let Some(refusal) = done.refusal.take() {
            let some = !done.deleted.is_empty();
            let refused = Refused::after(undeleted, refusal, some, generation, self.clock());
            done.refusal = Some(refused.refusal.clone());
            self.memory().undeleted = Some(refused);
        }
    }

    async fn delete(&self, delete: &Delete) -> Result<Deleted, Error> {
        if delete.why == Why::NodeGone && self.node_is_there(&delete.node).await? {
            return Ok(Deleted::Not);
        }
        let was_unanswered = self.memory().will_delete(delete, self.clock());
        let mut params = write::only(&delete.uid, None);
        if delete.why == Why::NodeGone {
            // No kubelet is left that would confirm the end.
            params.grace_period_seconds = Some(0);
        }
        let api = self.api::<WatchedPod>();
        let request = api.delete(&delete.pod, &params);
        let result = call("delete a pod", self.key, request).await.map(drop);
        let is_gone = result.as_ref().is_err_and(is_gone);
        let answer = match &result {
            _ if is_gone => Answer::Done,
            other => answer(other),
        };
        let generation = self.object.generation;
        self.memory()
            .delete_answered(delete, answer, generation, self.clock());
        match result {
            // Something else deleted it, unless it was an earlier attempt of ours.
            _ if is_gone && !was_unanswered => Ok(Deleted::Not),
            _ if is_gone => Ok(Deleted::Now),
            other => other.map(|()| Deleted::Now),
        }
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
        let creates = self.creates(settled, decision);
        if !creates.is_empty() || decision.prove.is_some() {
            if let Some(refused) = refused.filter(|r| r.holds(generation, self.now)) {
                done.refusal = Some(refused.refusal);
                return done;
            }
            let window = if flowing { CALLS } else { 1 };
            self.create_all(settled, revisions, &creates, window, &mut done)
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
        window: usize,
        done: &mut Done,
    ) {
        // After attempts in vain another node comes first: what fails for one node alone must not
        // keep all the others waiting.
        let skip = self.memory().in_vain % creates.len().max(1);
        let most = creates.len().min(MOST);
        let creates_in_turn = creates.iter().cycle().skip(skip).take(most);
        let calls = creates_in_turn.map(|create| self.create(settled, revisions, create));
        let calls: Vec<_> = calls.collect();
        let mut well = true;
        in_turns(calls, window, |made| {
            match made {
                Made::Pod => {
                    done.created += 1;
                    return Flow::Faster;
                }
                Made::Nothing => return Flow::Steady,
                Made::Refused(refusal) => {
                    done.refusal.get_or_insert(refusal);
                }
                Made::Failed(error) => done.fail(error),
            }
            well = false;
            Flow::Stop
        })
        .await;
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
        let result = call("create a pod", self.key, request).await.map(drop);
        let (answer, made) = match result {
            Err(error) if is_already_there(&error) => {
                self.already_there(create, &name, error).await
            }
            result => {
                let answer = answer(&result);
                let made = result.err().map(|e| judge(e, &name, &create.node));
                (answer, made.unwrap_or(Made::Pod))
            }
        };
        let generation = self.object.generation;
        let mut memory = self.memory();
        memory.create_answered(create, &name, answer, generation, self.clock());
        if matches!(made, Made::Pod) && create.revision == settled.hash {
            memory.proven = Some(create.revision.clone());
        }
        drop(memory);
        made
    }

    /// A pod of that name is there: ours, which the watch will show, or a stranger's, be it that
    /// somebody took our labels from it and thereby the pod.
    async fn already_there(&self, create: &Create, name: &str, conflict: Error) -> (Answer, Made) {
        let api = self.api::<WatchedPod>();
        let there = if_there(read("read a pod", self.key, api.get_metadata(name)).await);
        let made = match there {
            Ok(Some(pod)) if self.is_ours(&pod.metadata) => {
                match self.release_unlabelled(&pod).await {
                    Ok(true) => taken(name),
                    Ok(false) if label(&pod, pod::REVISION_LABEL) != Some(&create.revision) => {
                        taken(name)
                    }
                    Ok(false) => return (Answer::Done, Made::Nothing),
                    Err(error) => Made::Failed(error),
                }
            }
            // It has just gone; no watch will tell.
            Ok(None) => Made::Failed(conflict),
            Ok(Some(_)) => taken(name),
            Err(error) => Made::Failed(error),
        };
        (Answer::Refused, made)
    }

    fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        let owner = controller_of(metadata.owner_references.as_deref());
        owner.is_some_and(|owner| owner.uid == self.object.uid)
    }

    /// Whether our watch shows a pod with these labels.
    fn is_shown(&self, metadata: &ObjectMeta) -> bool {
        let labels = metadata.labels.as_ref();
        let is = |key, value| {
            let label = labels.and_then(|labels| labels.get(key));
            label.map(String::as_str) == Some(value)
        };
        is(write::MANAGED_BY, write::MANAGER) && is(pod::NAME_LABEL, self.owner.name)
    }

    /// Releases a pod of this object that the watch does not show, for want of our labels. Whether
    /// it is one.
    async fn release_unlabelled<'a>(
        &self,
        pod: &'a PartialObjectMeta<WatchedPod>,
    ) -> Result<bool, Error> {
        if self.is_shown(&pod.metadata) {
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
            Made::Failed(error) => done.fail(error),
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
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}

/// Whether a call about an object of that UID found none, or another one of its name.
fn is_gone(error: &Error) -> bool {
    matches!(error.category(), "NotFound" | "Conflict")
}

/// What an answer says of the call.
fn answer(result: &Result<(), Error>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(error) if error.is_definite() => Answer::Refused,
        Err(_) => Answer::Unknown,
    }
}

/// How to go on after a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// With one more at a time.
    Faster,
    /// As before.
    Steady,
    /// No other call is begun. Those that are under way are waited for: what is dropped may be done all the same.
    Stop,
}

/// Makes calls, at most so many at a time at first.
async fn in_turns<C: Future>(
    calls: Vec<C>,
    mut window: usize,
    mut ended: impl FnMut(C::Output) -> Flow,
) {
    let mut waiting = calls.into_iter();
    let mut under_way = FuturesUnordered::new();
    let mut stopped = false;
    loop {
        while !stopped && under_way.len() < window {
            let Some(call) = waiting.next() else {
                break;
            };
            under_way.push(call);
        }
        let Some(output) = under_way.next().await else {
            return;
        };
        match ended(output) {
            Flow::Faster => window = (window + 1).min(CALLS),
            Flow::Steady => {}
            Flow::Stop => stopped = true,
        }
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
