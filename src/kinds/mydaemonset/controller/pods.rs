//! The calls that change pods.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::NamespaceResourceScope;
use kube::api::Patch;
use kube::core::{ObjectMeta, PartialObjectMeta, Status};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::ParsedSpec;
use super::pass::Reconcile;
use crate::kinds::mydaemonset::crd::RawMyDaemonSet;
use crate::kinds::mydaemonset::memory::{Answer, Doubt, Nature, Problem, Step};
use crate::kinds::mydaemonset::placement::Eligibility;
use crate::kinds::mydaemonset::pod::{self, Plan};
use crate::kinds::mydaemonset::revision::{self, Content, RevisionView, WatchedRevision};
use crate::kinds::mydaemonset::rollout::{Claim, Create, Decision, Delete, DeleteReason};
use crate::kinds::mydaemonset::status::{
    DELETE_REFUSED, FAILED_ADOPT, FAILED_CREATE, FAILED_DELETE, FAILED_RELEASE, LABELS_CHANGED,
    NAME_CONFLICT, POD_REFUSED, Refusal,
};
use crate::kinds::mydaemonset::views::{
    PodView, WatchedNode, WatchedPod, controller as controller_of,
};
use my_operator_runtime::reconcile::{Error, Key, call, if_there, read, write};

/// The maximum number of pods created, and of pods deleted, in one pass; the next pass follows at once.
const MAX_PODS_PER_PASS: usize = 500;
/// How many calls for one object are in flight at a time.
const CALLS: usize = 32;

/// The outcome of the calls of one pass.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) created: usize,
    pub(super) deleted: Vec<DeleteReason>,
    /// How many pods were adopted or released.
    pub(super) claimed: usize,
    /// An error that a retry may fix.
    pub(super) error: Option<Error>,
    /// More is to be done, and nothing prevents it.
    pub(super) more: bool,
    /// A pod could not be created or deleted.
    failed: bool,
}

impl Done {
    /// Adds an error. The one that asks for the longest pause is kept.
    fn fail(&mut self, error: Error) {
        let rank = |error: &Error| (!error.is_conflict(), error.retry_after());
        let before = self.error.as_ref().map(rank);
        if before.is_none_or(|before| before < rank(&error)) {
            self.error = Some(error);
        }
    }
}

/// The outcome of an attempt to delete one pod.
enum Deleted {
    Now,
    /// It must not be deleted, or something else has deleted it.
    Not,
}

/// The outcome of an attempt to create one pod.
enum Made {
    Pod,
    /// Nothing to report: the pod exists, or its object or node is gone.
    Nothing,
    Not(Failure),
}

/// A failed call.
pub(super) struct Failure {
    problem: Problem,
    /// If a retry may fix it.
    error: Option<Error>,
}

impl Failure {
    /// For a call about a pod on a node. `rejected` is its reason if the API server rejects the
    /// call as it is, `failed` otherwise.
    pub(super) fn of(
        error: Error,
        rejected: Option<&'static str>,
        failed: &'static str,
        name: &str,
        node: Option<&str>,
    ) -> Self {
        let code = error.status().map(|status| status.code);
        let (reason, nature) = match (error.refusal(), code, rejected) {
            (Some(_), Some(400..=499), Some(rejected)) => (rejected, Nature::Refused),
            (Some(_), ..) => (failed, Nature::Blocked),
            (None, ..) => (failed, Nature::Failed),
        };
        let problem = Problem {
            refusal: Refusal {
                reason,
                // The same failure of another pod must not change the message.
                message: error.cause().replace(name, "..."),
                node: node.map(str::to_owned),
            },
            nature,
        };
        let error = (nature == Nature::Failed).then_some(error);
        Self { problem, error }
    }

    fn refused(reason: &'static str, message: String, nature: Nature) -> Self {
        let refusal = Refusal {
            reason,
            message,
            node: None,
        };
        Self {
            problem: Problem { refusal, nature },
            error: None,
        }
    }
}

impl Reconcile<'_> {
    /// Carries out the decision.
    pub(super) async fn act(
        &self,
        parsed: &ParsedSpec,
        revisions: &[Arc<RevisionView>],
        decision: &Decision,
        done: &mut Done,
    ) {
        let deletes = self.deletes(parsed, decision);
        self.delete_all(&deletes, done).await;
        self.claim_all(&decision.claim, done).await;
        // One failing call must not block all the others.
        self.create_missing(parsed, revisions, decision, done).await;
        self.release_vanished(done).await;
        let mut memory = self.memory();
        if done.failed {
            memory.failures = memory.failures.wrapping_add(1);
        } else if !memory.has_trouble(Step::Create) && !memory.has_trouble(Step::Delete) {
            memory.failures = 0;
        }
    }

    /// Whether a step is skipped: there is nothing to do, or it failed just now.
    pub(super) fn is_left_out(&self, step: Step, is_idle: bool) -> bool {
        let (generation, now) = (self.object.generation, self.now);
        let mut memory = self.memory();
        if is_idle {
            memory.report(step, None, false, generation, now);
        }
        is_idle || memory.is_backing_off(step, generation, now)
    }

    /// Records the outcome of a step.
    pub(super) fn report(
        &self,
        step: Step,
        failure: Option<Failure>,
        some_done: bool,
        done: &mut Done,
    ) {
        done.failed |= failure.is_some() && matches!(step, Step::Create | Step::Delete);
        let (problem, error) = match failure {
            Some(failure) => (Some(failure.problem), failure.error),
            None => (None, None),
        };
        if let Some(error) = error {
            done.fail(error);
        }
        let (generation, now) = (self.object.generation, self.clock());
        self.memory()
            .report(step, problem, some_done, generation, now);
    }

    /// Asks the API server about changes that no watch has shown in time. Only its answer ends a
    /// belief: if a belief ended by itself, a late deletion would come on top of that of another
    /// node.
    pub(super) async fn ask_about_doubts(&self, done: &mut Done) {
        let doubts = self.memory().doubts(self.now);
        let calls: Vec<_> = doubts
            .iter()
            .take(MAX_PODS_PER_PASS)
            .map(|doubt| async move { (doubt, self.is_so(doubt).await) })
            .collect();
        run_batched(calls, 1, |(doubt, is_so)| match is_so {
            Ok(is_so) => {
                self.memory().resolve(doubt, is_so, self.clock());
                Flow::Faster
            }
            Err(error) => {
                done.fail(error);
                Flow::Stop
            }
        })
        .await;
    }

    /// Whether a deleted pod is gone or being deleted, or a created pod exists.
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

    /// The pods to delete: those that were decided on, and those whose deletion had no definite
    /// answer. These are repeated as long as they are wanted, and take no other place among those
    /// that may be unavailable.
    fn deletes(&self, parsed: &ParsedSpec, decision: &Decision) -> Vec<Delete> {
        let unanswered = self.memory().unanswered_deletes(self.object.generation);
        let is_wanted = |delete: &Delete| match delete.reason {
            DeleteReason::Outdated => !decision.observed.auto_paused,
            DeleteReason::NotEligible => {
                self.eligibility(parsed, &delete.node) == Some(Eligibility::Leave)
            }
            DeleteReason::Excluded => {
                let is_excluded =
                    self.eligibility(parsed, &delete.node) == Some(Eligibility::Leave);
                is_excluded && !decision.observed.auto_paused
            }
            DeleteReason::NodeGone
            | DeleteReason::NodeReplaced
            | DeleteReason::Surplus
            | DeleteReason::Failed => true,
        };
        let unanswered = unanswered.into_iter().filter(is_wanted);
        let decided = decision.delete.iter().cloned();
        // A created pod that was not observed yet has no known UID, and so cannot be deleted.
        let all = unanswered.chain(decided).filter(|d| !d.uid.is_empty());
        let mut all = all.collect();
        self.keep_to_trial(parsed, &mut all);
        all
    }

    /// Where the API server cannot dry-run a pod, one node is the trial: no outdated pod of another
    /// node is deleted before a pod of the newest revision was created.
    fn keep_to_trial(&self, parsed: &ParsedSpec, deletes: &mut Vec<Delete>) {
        let mut memory = self.memory();
        if memory.validated.as_ref() == Some(&parsed.hash) {
            return;
        }
        let Some((_, node)) = memory
            .trial
            .as_mut()
            .filter(|(hash, _)| *hash == parsed.hash)
        else {
            return;
        };
        let runs = |node: &String| self.eligibility(parsed, node) == Some(Eligibility::Run);
        let is_outdated = |delete: &Delete| delete.reason == DeleteReason::Outdated;
        if !node.as_ref().is_some_and(runs) {
            let first = deletes.iter().find(|delete| is_outdated(delete));
            *node = first.map(|delete| delete.node.clone());
        }
        deletes.retain(|delete| match delete.reason {
            DeleteReason::Outdated => node.as_ref() == Some(&delete.node),
            // It cannot be the trial: no pod of the newest revision may run there.
            DeleteReason::Excluded => false,
            _ => true,
        });
    }

    /// The pods to create, in the same way.
    fn creates(&self, parsed: &ParsedSpec, decision: &Decision) -> Vec<Create> {
        let unanswered = self.memory().unanswered_creates(self.object.generation);
        let is_wanted = |create: &Create| {
            let node = self.this.nodes.get(&Key::new("", &create.node));
            let is_it = node.is_some_and(|node| node.uid == create.node_uid);
            let runs = self.eligibility(parsed, &create.node) == Some(Eligibility::Run);
            // Next to an old pod it is a step of the roll-out.
            let surges = self.pods_on(&create.node).iter().any(|pod| pod.is_live());
            is_it && runs && !(surges && decision.observed.auto_paused)
        };
        let unanswered = unanswered.into_iter().filter(is_wanted);
        unanswered.chain(decision.create.iter().cloned()).collect()
    }

    fn eligibility(&self, parsed: &ParsedSpec, node: &str) -> Option<Eligibility> {
        let node = self.this.nodes.get(&Key::new("", node))?;
        Some(parsed.placement.eligibility(&node))
    }

    async fn delete_all(&self, deletes: &[Delete], done: &mut Done) {
        if self.is_left_out(Step::Delete, deletes.is_empty()) {
            return;
        }
        let calls: Vec<_> = deletes
            .iter()
            .take(MAX_PODS_PER_PASS)
            .map(|delete| async move { (delete, self.delete(delete).await) })
            .collect();
        let mut failures = Failures::default();
        run_batched(calls, 1, |(delete, deleted)| {
            match deleted {
                Ok(Deleted::Now) => done.deleted.push(delete.reason),
                Ok(Deleted::Not) => {}
                // The pod has another version than the one that was judged: its event is on its way.
                Err(error) if error.is_conflict() => {
                    done.fail(error);
                    return Flow::Steady;
                }
                Err(error) => {
                    let (rejected, failed) = (Some(DELETE_REFUSED), FAILED_DELETE);
                    let (name, node) = (&delete.pod, Some(delete.node.as_str()));
                    return failures.add(Failure::of(error, rejected, failed, name, node));
                }
            }
            Flow::Faster
        })
        .await;
        done.more |= deletes.len() > MAX_PODS_PER_PASS && !failures.stopped;
        let some_done = !done.deleted.is_empty();
        self.report(Step::Delete, failures.first, some_done, done);
    }

    async fn delete(&self, delete: &Delete) -> Result<Deleted, Error> {
        if delete.reason == DeleteReason::NodeGone && self.node_is_there(&delete.node).await? {
            return Ok(Deleted::Not);
        }
        let was_unanswered = self.memory().will_delete(delete, self.clock());
        let mut params = write::only(&delete.uid, delete.version.as_deref());
        if delete.reason == DeleteReason::NodeGone {
            // No kubelet is left to confirm the end.
            params.grace_period_seconds = Some(0);
        }
        let api = self.api::<WatchedPod>();
        let request = api.delete(&delete.pod, &params);
        let result = call("delete a pod", self.key, request).await.map(drop);
        let is_changed = |error: &Error| delete.version.is_some() && error.is_conflict();
        let is_gone = result
            .as_ref()
            .is_err_and(|error| is_gone(error) && !is_changed(error));
        let answer = match &result {
            Err(error) if is_changed(error) => Answer::Overtaken,
            Err(error) if !is_gone => answer(error),
            _ => Answer::Done,
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

    /// Whether the node exists, by a live read. The pod of a gone node is deleted without a
    /// kubelet's confirmation, so a lagging watch is not enough.
    async fn node_is_there(&self, node: &str) -> Result<bool, Error> {
        let api = Api::<WatchedNode>::all(self.this.context.client.clone());
        let there = if_there(read("read the node", self.key, api.get_metadata(node)).await)?;
        Ok(there.is_some())
    }

    /// Whether this very object exists and is not being deleted, by a live read. Otherwise it must
    /// not adopt: what it adopts would be deleted with it.
    pub(super) async fn is_still_there(&self) -> Result<bool, Error> {
        let api = self.api::<RawMyDaemonSet>();
        let request = api.get_metadata(&self.key.name);
        let there = if_there(read("read the object", self.key, request).await)?;
        Ok(there.is_some_and(|object| {
            object.metadata.uid.as_deref() == Some(&self.object.uid)
                && object.metadata.deletion_timestamp.is_none()
        }))
    }

    async fn claim_all(&self, claims: &[Claim], done: &mut Done) {
        if self.is_left_out(Step::Claim, claims.is_empty()) {
            return;
        }
        let mut may_adopt = false;
        if claims.iter().any(|claim| claim.adopt) {
            may_adopt = match self.is_still_there().await {
                Ok(is_there) => is_there,
                Err(error) => {
                    let failure = Failure::of(error, None, FAILED_ADOPT, &self.key.name, None);
                    self.report(Step::Claim, Some(failure), false, done);
                    return;
                }
            };
        }
        let claims = claims.iter().filter(|claim| !claim.adopt || may_adopt);
        let calls: Vec<_> = claims
            .take(MAX_PODS_PER_PASS)
            .map(|claim| async move { (claim, self.claim(claim).await) })
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
            failures.add(Failure::of(error, None, failed, name, node))
        })
        .await;
        done.claimed += claimed;
        self.report(Step::Claim, failures.first, claimed > 0, done);
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

    /// Releases a pod: the object is no longer its controller.
    async fn release(&self, name: &str, uid: &str) -> Result<(), Error> {
        let references = json!([{"$patch": "delete", "uid": self.object.uid}]);
        self.set_owners::<WatchedPod>("release a pod", name, uid, references)
            .await
    }

    /// Adopts an object: this one becomes its controller.
    pub(super) async fn adopt<K>(&self, name: &str, uid: &str) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let references = json!([self.owner.reference()]);
        self.set_owners::<K>("adopt an orphan", name, uid, references)
            .await
    }

    /// Changes the owner references of that object. A strategic merge leaves those of others alone.
    async fn set_owners<K>(
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

    /// Creates the missing pods, and dry-runs one of the newest revision unless that was rejected just now.
    async fn create_missing(
        &self,
        parsed: &ParsedSpec,
        revisions: &[Arc<RevisionView>],
        decision: &Decision,
        done: &mut Done,
    ) {
        let flowing = std::mem::take(&mut self.memory().flowing);
        let creates = self.creates(parsed, decision);
        let is_idle = creates.is_empty() && decision.dry_run.is_none();
        if self.is_left_out(Step::Create, is_idle) {
            return;
        }
        let window = if flowing { CALLS } else { 1 };
        let mut failure = None;
        if self.memory().relabelled
            && let Some(create) = creates.first()
        {
            // No pod is created only to be deleted again.
            failure = self.dry_run_create(parsed, create).await;
        }
        if failure.is_none() {
            let made = self.create_all(parsed, revisions, &creates, window, done);
            failure = made.await;
        }
        if let (Some(create), None) = (&decision.dry_run, &failure) {
            failure = self.dry_run(parsed, create, done).await;
        }
        self.report(Step::Create, failure, done.created > 0, done);
    }

    /// Creates pods, few at first and more as they succeed, so that a failure of all of them costs
    /// few calls. The first failure ends it.
    async fn create_all(
        &self,
        parsed: &ParsedSpec,
        revisions: &[Arc<RevisionView>],
        creates: &[Create],
        window: usize,
        done: &mut Done,
    ) -> Option<Failure> {
        // After failed attempts another node comes first: what fails for one node alone must not block all the others.
        let skip = self.memory().failures % creates.len().max(1);
        let most = creates.len().min(MAX_PODS_PER_PASS);
        let creates_in_turn = creates.iter().cycle().skip(skip).take(most);
        let calls = creates_in_turn.map(|create| self.create(parsed, revisions, create));
        let calls: Vec<_> = calls.collect();
        let mut failure = None;
        run_batched(calls, window, |made| match made {
            Made::Pod => {
                done.created += 1;
                Flow::Faster
            }
            Made::Nothing => Flow::Steady,
            Made::Not(first) => {
                failure.get_or_insert(first);
                Flow::Stop
            }
        })
        .await;
        let flows = failure.is_none() && creates.len() > most && done.created > 0;
        done.more |= flows;
        self.memory().flowing = flows;
        failure
    }

    /// The content of a revision in its canonical form; `None` if the revision does not exist.
    async fn content(
        &self,
        parsed: &ParsedSpec,
        revisions: &[Arc<RevisionView>],
        hash: &str,
    ) -> Result<Option<Arc<str>>, Error> {
        if hash == parsed.hash {
            return Ok(Some(parsed.canonical.clone()));
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

    /// The name and the JSON of a pod to create.
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
        parsed: &ParsedSpec,
        revisions: &[Arc<RevisionView>],
        create: &Create,
    ) -> Made {
        let content = self.content(parsed, revisions, &create.revision).await;
        let (name, body) = match content {
            Ok(Some(content)) => self.build(create, &content),
            Ok(None) => return Made::Nothing,
            Err(error) => {
                let (revision, node) = (&create.revision, Some(create.node.as_str()));
                return Made::Not(Failure::of(error, None, FAILED_CREATE, revision, node));
            }
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
        let request = write::create::<WatchedPod, WatchedPod>(client, &self.key.namespace, body);
        let (answer, made) = match call("create a pod", self.key, request).await {
            Ok(pod) if self.is_shown(&pod.metadata) => (Answer::Done, Made::Pod),
            Ok(pod) => self.delete_unlabelled(create, &pod.metadata).await,
            Err(error) if is_already_there(&error) => {
                self.already_there(create, &name, error).await
            }
            Err(error) => {
                let answer = answer(&error);
                (answer, Made::Not(not_made(error, &name, &create.node)))
            }
        };
        let generation = self.object.generation;
        let mut memory = self.memory();
        memory.create_answered(create, &name, answer, generation, self.clock());
        if matches!(made, Made::Pod) {
            memory.relabelled = false;
            if create.revision == parsed.hash {
                memory.validated = Some(create.revision.clone());
            }
        }
        drop(memory);
        made
    }

    /// Deletes a pod whose labels an admission webhook replaced: no watch would show it, so it would stay unmanaged.
    async fn delete_unlabelled(&self, create: &Create, metadata: &ObjectMeta) -> (Answer, Made) {
        self.memory().relabelled = true;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (name, uid) = (text(&metadata.name), text(&metadata.uid));
        let api = self.api::<WatchedPod>();
        let params = write::only(&uid, None);
        let request = api.delete(&name, &params);
        let deleted = done_or_gone(call("delete a pod", self.key, request).await.map(drop));
        let failure = match deleted {
            Ok(()) => self.labels_changed(),
            Err(error) => not_made(error, &name, &create.node),
        };
        (Answer::Refused, Made::Not(failure))
    }

    fn labels_changed(&self) -> Failure {
        let (managed_by, manager) = (write::MANAGED_BY, write::MANAGER);
        let (label, name) = (pod::NAME_LABEL, self.owner.name);
        Failure::refused(
            LABELS_CHANGED,
            format!(
                "an admission webhook changes the labels of new pods: {managed_by} must stay {manager}, and {label} {name}"
            ),
            Nature::Refused,
        )
    }

    /// A pod of that name exists: ours, which the watch will show, or a foreign one, which includes
    /// one that lost our labels.
    async fn already_there(&self, create: &Create, name: &str, conflict: Error) -> (Answer, Made) {
        let api = self.api::<WatchedPod>();
        let there = if_there(read("read a pod", self.key, api.get_metadata(name)).await);
        let failed = |error| Made::Not(not_made(error, name, &create.node));
        let made = match there {
            Ok(Some(pod)) if self.is_ours(&pod.metadata) => {
                let is_shown = self.is_shown(&pod.metadata);
                if !is_shown && self.memory().may_be_made(create) {
                    // It never had our labels.
                    return self.delete_unlabelled(create, &pod.metadata).await;
                }
                match self.release_unlabelled(&pod).await {
                    Ok(true) => taken(name),
                    Ok(false) if label(&pod, pod::REVISION_LABEL) != Some(&create.revision) => {
                        taken(name)
                    }
                    Ok(false) => return (Answer::Done, Made::Nothing),
                    Err(error) => failed(error),
                }
            }
            // It has just been deleted, and no watch shows that.
            Ok(None) => failed(conflict),
            Ok(Some(_)) => taken(name),
            Err(error) => failed(error),
        };
        (Answer::Refused, made)
    }

    fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        let owner = controller_of(metadata.owner_references.as_deref());
        owner.is_some_and(|owner| owner.uid == self.object.uid)
    }

    /// Whether our watch shows a pod with these labels.
    pub(super) fn is_shown(&self, metadata: &ObjectMeta) -> bool {
        let labels = metadata.labels.as_ref();
        let is = |key, value| {
            let label = labels.and_then(|labels| labels.get(key));
            label.map(String::as_str) == Some(value)
        };
        is(write::MANAGED_BY, write::MANAGER) && is(pod::NAME_LABEL, self.owner.name)
    }

    /// Releases a pod of this object that the watch does not show because it lacks our labels.
    /// Returns whether it is one.
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

    /// Releases the pods that the watch no longer shows and that still exist, without our labels.
    async fn release_vanished(&self, done: &mut Done) {
        let vanished: Vec<Claim> = self.memory().vanished.values().cloned().collect();
        if self.is_left_out(Step::Release, vanished.is_empty()) {
            return;
        }
        let calls: Vec<_> = vanished
            .iter()
            .take(MAX_PODS_PER_PASS)
            .map(|claim| async move { (claim, self.release_vanished_pod(claim).await) })
            .collect();
        let mut failures = Failures::default();
        let mut some_done = false;
        run_batched(calls, 1, |(claim, released)| match released {
            Ok(released) => {
                self.memory().vanished.remove(&claim.uid);
                done.claimed += usize::from(released);
                some_done = true;
                Flow::Faster
            }
            Err(error) => {
                let (name, node) = (&claim.pod, Some(claim.node.as_str()));
                failures.add(Failure::of(error, None, FAILED_RELEASE, name, node))
            }
        })
        .await;
        done.more |= vanished.len() > MAX_PODS_PER_PASS && failures.first.is_none();
        self.report(Step::Release, failures.first, some_done, done);
    }

    async fn release_vanished_pod(&self, gone: &Claim) -> Result<bool, Error> {
        let api = self.api::<WatchedPod>();
        let there = if_there(read("read a pod", self.key, api.get_metadata(&gone.pod)).await)?;
        match there {
            Some(pod) if pod.metadata.uid.as_deref() == Some(&gone.uid) => {
                self.release_unlabelled(&pod).await
            }
            _ => Ok(false),
        }
    }

    /// The time of a call, which may be long after the pass began.
    pub(super) fn clock(&self) -> DateTime<Utc> {
        (self.this.context.clock)()
    }

    /// Dry-runs a pod of the newest revision.
    async fn dry_run(
        &self,
        parsed: &ParsedSpec,
        create: &Create,
        done: &mut Done,
    ) -> Option<Failure> {
        let failure = self.dry_run_create(parsed, create).await;
        if failure.is_none() {
            done.more = true;
        }
        failure
    }

    /// Dry-runs the creation of a pod, and records if the API server accepts it.
    async fn dry_run_create(&self, parsed: &ParsedSpec, create: &Create) -> Option<Failure> {
        let newest = Create {
            revision: parsed.hash.clone(),
            ..create.clone()
        };
        let (name, body) = self.build(&newest, &parsed.canonical);
        let client = &self.this.context.client;
        let namespace = &self.key.namespace;
        let request = write::would_create::<WatchedPod, WatchedPod>(client, namespace, body);
        let failure = match call("try to create a pod", self.key, request).await {
            Ok(pod) if !self.is_shown(&pod.metadata) => Some(self.labels_changed()),
            Ok(_) => None,
            Err(error) if is_already_there(&error) => None,
            // The old pod frees its place in the quota.
            Err(error) if is_over_quota(&error) => None,
            Err(error) if has_no_dry_run(&error) => {
                let mut memory = self.memory();
                if memory
                    .trial
                    .as_ref()
                    .is_none_or(|(hash, _)| *hash != parsed.hash)
                {
                    memory.trial = Some((parsed.hash.clone(), None));
                }
                return None;
            }
            Err(error) => Some(not_made(error, &name, &create.node)),
        };
        if failure.is_none() {
            self.memory().validated = Some(parsed.hash.clone());
        }
        failure
    }
}

/// The failures of one step over many pods.
#[derive(Default)]
struct Failures {
    first: Option<Failure>,
    stopped: bool,
}

impl Failures {
    /// Adds a failure. A rejection of one pod may not apply to others; a failure that a retry may
    /// fix would meet them as well. The error with the longest pause is kept.
    fn add(&mut self, failure: Failure) -> Flow {
        let stops = failure.error.is_some();
        self.stopped |= stops;
        let pause = |failure: &Failure| {
            let error = failure.error.as_ref();
            error.map(|error| error.retry_after().unwrap_or_default())
        };
        if self
            .first
            .as_ref()
            .is_none_or(|first| pause(first) < pause(&failure))
        {
            self.first = Some(failure);
        }
        if stops { Flow::Stop } else { Flow::Steady }
    }
}

fn label<'a>(pod: &'a PartialObjectMeta<WatchedPod>, key: &str) -> Option<&'a str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

fn taken(name: &str) -> Made {
    let message = format!(
        "the pod {name} is there and is not this object's, or its labels were changed; delete it"
    );
    Made::Not(Failure::refused(NAME_CONFLICT, message, Nature::Refused))
}

/// An object that is gone or was replaced by a namesake counts as deleted.
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

/// What an error says about the call.
fn answer(error: &Error) -> Answer {
    if error.is_definite() {
        Answer::Refused
    } else {
        Answer::Unknown
    }
}

/// How to continue after a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// With one more call at a time.
    Faster,
    /// As before.
    Steady,
    /// Start no other call. Calls in flight are awaited: a dropped one may be carried out all the same.
    Stop,
}

/// Makes calls, starting with that many in parallel.
async fn run_batched<C: Future>(
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

/// Whether a quota is exhausted. The API shows that only by these words.
fn is_over_quota(error: &Error) -> bool {
    let status = error.status();
    status.is_some_and(|status| status.code == 403 && status.message.contains("exceeded quota"))
}

/// Whether an admission webhook has no dry run (k8s.io/apiserver, `NewDryRunUnsupportedErr`). The
/// API shows that only by these words.
fn has_no_dry_run(error: &Error) -> bool {
    let status = error.status();
    status.is_some_and(|s| s.code == 400 && s.message.contains("does not support dry run"))
}

/// Why a pod was not created.
fn not_made(error: Error, pod: &str, node: &str) -> Failure {
    let status = error.status();
    let details = status.and_then(|status| status.details.as_ref());
    let mut causes = details.into_iter().flat_map(|details| &details.causes);
    let is_ending = causes.any(|cause| cause.reason == "NamespaceTerminating");
    let mut failure = Failure::of(error, Some(POD_REFUSED), FAILED_CREATE, pod, Some(node));
    if is_ending {
        // The object is deleted, too.
        failure.problem.nature = Nature::Expected;
    }
    failure
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn failure(code: u16, message: &str) -> Failure {
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
        not_made(error, "n1-abc", "n1")
    }

    #[test]
    fn a_rejection_is_no_failure() {
        let quota = r#"pods "n1-abc" is forbidden: exceeded quota"#;
        let webhook = "Internal error occurred: failed calling webhook";
        for (code, words, reason, nature) in [
            (400, quota, "PodRefused", Nature::Refused),
            (403, quota, "PodRefused", Nature::Refused),
            (422, quota, "PodRefused", Nature::Refused),
            (500, webhook, "FailedCreate", Nature::Blocked),
            (404, quota, "FailedCreate", Nature::Failed),
            (429, quota, "FailedCreate", Nature::Failed),
            (500, quota, "FailedCreate", Nature::Failed),
            (503, quota, "FailedCreate", Nature::Failed),
        ] {
            let Failure { problem, error } = failure(code, words);
            assert_eq!((problem.refusal.reason, problem.nature), (reason, nature));
            assert_eq!(error.is_some(), nature == Nature::Failed, "{code}");
            assert_eq!(problem.refusal.message, words.replace("n1-abc", "..."));
        }
    }
}
