//! What is remembered of nodes and of the object's pods on them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::belief::Answer;
use super::last_pods::LastPods;
use super::pending_writes::{Doubt, PendingWrites};
use crate::kinds::mydaemonset::decide::decision::{Claim, Create, Delete, DeleteReason};
use crate::kinds::mydaemonset::decide::input::Last;
use crate::kinds::mydaemonset::observe::pod::PodView;

/// The nodes that changed, what was done on them and is not yet observed, and their last pods.
///
/// Whatever is recorded of a node marks it as changed, so that the next decision looks at it again.
#[derive(Debug, Default)]
pub(crate) struct NodeMemory {
    /// Nodes that changed since the last decision.
    changed: BTreeSet<Box<str>>,
    pending: PendingWrites,
    last: LastPods,
    /// Since when nodes are gone that still have pods. A short absence is no end: the node may
    /// register again while its containers run.
    gone_since: HashMap<Box<str>, DateTime<Utc>>,
    /// When the changes were last taken.
    taken_at: DateTime<Utc>,
}

impl NodeMemory {
    /// Records that a node changed.
    pub(crate) fn touch(&mut self, node: &str) {
        if !self.changed.contains(node) {
            self.changed.insert(node.into());
        }
    }

    /// Whether the clock was set back since the changes were last taken.
    pub(super) fn was_set_back(&self, now: DateTime<Utc>) -> bool {
        now < self.taken_at
    }

    /// The nodes that changed since the last call.
    pub(super) fn take_changed(&mut self, now: DateTime<Utc>) -> BTreeSet<Box<str>> {
        let was_set_back = self.was_set_back(now);
        let rebased = was_set_back.then(|| self.pending.rebase(now));
        self.taken_at = now;
        let expired = self.pending.expire_claims(now);
        self.changed.extend(rebased.into_iter().flatten());
        self.changed.extend(expired);
        std::mem::take(&mut self.changed)
    }

    /// Records a pod that is about to be created.
    pub(crate) fn will_create(&mut self, pod: PodView, now: DateTime<Utc>) {
        self.touch(&pod.node);
        self.pending.will_create(pod, now);
    }

    /// Records the answer to the creation of a pod.
    pub(crate) fn create_answered(
        &mut self,
        create: &Create,
        pod: &str,
        answer: Answer,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        self.touch(&create.node);
        self.pending
            .create_answered(create, pod, answer, generation, now);
        if answer == Answer::Done {
            // The pod before it no longer matters.
            self.last.forget(&create.node);
        }
    }

    /// Records a pod that is about to be deleted. Returns whether an earlier attempt had no definite answer.
    pub(crate) fn will_delete(&mut self, delete: &Delete, now: DateTime<Utc>) -> bool {
        self.touch(&delete.node);
        // A node that is gone gets no successor. One that registers again under its name is another.
        if delete.reason != DeleteReason::NodeGone {
            self.last.deleted(&delete.node, &delete.last);
        }
        self.pending.will_delete(delete, now)
    }

    /// Records the answer to the deletion of a pod.
    pub(crate) fn delete_answered(
        &mut self,
        delete: &Delete,
        answer: Answer,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        self.touch(&delete.node);
        self.pending
            .delete_answered(delete, answer, generation, now);
    }

    /// Records a pod that was adopted or released.
    pub(crate) fn claimed(&mut self, claim: &Claim, now: DateTime<Utc>) {
        self.touch(&claim.node);
        self.pending.claimed(claim, now);
    }

    /// The watch shows a pod, or that it is being deleted.
    pub(crate) fn seen(&mut self, pod: &PodView) {
        self.touch(&pod.node);
        self.pending.seen(pod);
    }

    /// Records that a pod is gone, for its successor.
    pub(crate) fn gone(&mut self, pod: &PodView) {
        self.touch(&pod.node);
        self.pending.gone(pod);
        self.last.gone(&pod.node, &pod.revision);
    }

    /// Whether the operator deleted that pod and the watch has not shown it yet.
    pub(super) fn is_deleted(&self, pod: &PodView) -> bool {
        self.pending.is_deleted(pod)
    }

    /// The deletions without a definite answer that are to be repeated for that generation.
    pub(crate) fn unanswered_deletes(&self, generation: Option<i64>) -> Vec<Delete> {
        self.pending.unanswered_deletes(generation)
    }

    /// The same for creations.
    pub(crate) fn unanswered_creates(&self, generation: Option<i64>) -> Vec<Create> {
        self.pending.unanswered_creates(generation)
    }

    /// Whether an attempt to create that pod had no definite answer.
    pub(crate) fn may_exist(&self, create: &Create) -> bool {
        self.pending.may_exist(create)
    }

    /// The beliefs that the watches should have confirmed by now.
    pub(crate) fn doubts(&self, now: DateTime<Utc>) -> Vec<Doubt> {
        self.pending.doubts(now)
    }

    /// Applies the API server's answer to a doubt.
    pub(crate) fn resolve(&mut self, doubt: &Doubt, is_so: bool, now: DateTime<Utc>) {
        self.touch(&doubt.node);
        self.pending.resolve(doubt, is_so, now);
    }

    /// When to ask the API server because the watches did not show what was done.
    pub(crate) fn next_check(&self) -> Option<DateTime<Utc>> {
        self.pending.next_check()
    }

    /// The pods of a node as the watch will soon show them: those in the cache, plus what was done
    /// since. `owner_uid` is that of the object.
    pub(crate) fn overlay(
        &self,
        owner_uid: &str,
        node: &str,
        pods: Vec<Arc<PodView>>,
    ) -> Vec<Arc<PodView>> {
        self.pending.overlay(owner_uid, node, pods)
    }

    /// The last pod on a node, as far as it is remembered.
    pub(crate) fn last(&self, node: &str) -> Option<&Last> {
        self.last.get(node)
    }

    /// Forgets the last pod on a node where one runs.
    pub(crate) fn forget_last_where_one_runs(&mut self, node: &str, pods: &[Arc<PodView>]) {
        let runs = |pod: &Arc<PodView>| pod.is_live() && !pod.uid.is_empty();
        if pods.iter().any(runs) && self.last.forget(node) {
            self.touch(node);
        }
    }

    /// Forgets the last pod on a node where no pod may be. That changes no decision.
    pub(crate) fn forget_last(&mut self, node: &str) {
        if self.last.forget(node) {
            self.changed.remove(node);
        }
    }

    /// Forgets a node that is gone, with its pods.
    pub(crate) fn forget_node(&mut self, node: &str) {
        self.pending.forget(node);
        self.last.forget(node);
        self.gone_since.remove(node);
        self.changed.remove(node);
    }

    /// The revisions of the last pods on nodes, and of the pods created there.
    pub(crate) fn revisions(&self) -> impl Iterator<Item = &str> {
        self.last.revisions().chain(self.pending.revisions())
    }

    /// Since when a node is gone whose pods are still there; until they are gone too, or it is back.
    pub(crate) fn gone_since(
        &mut self,
        node: &str,
        is_gone: bool,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        if !is_gone {
            self.gone_since.remove(node);
            return None;
        }
        let since = self.gone_since.entry(node.into()).or_insert(now);
        // After the clock was set back, the time starts again.
        *since = (*since).min(now);
        Some(*since)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.last.is_empty() && self.gone_since.is_empty()
    }
}
