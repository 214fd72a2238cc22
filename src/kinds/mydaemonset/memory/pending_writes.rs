//! Writes that the watches have not shown yet: pods that were created, deleted, adopted or released.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::belief::{Answer, Belief, WATCH_TIMEOUT};
use crate::kinds::mydaemonset::decide::decision::{Claim, Create, Delete};
use crate::kinds::mydaemonset::observe::pod::PodView;

/// The writes by node. A node without one has no entry.
///
/// Invariant: `checks` has exactly one entry for each node in `nodes`, at the earliest time at
/// which one of its beliefs must be checked. [`Self::change`] is the only place that writes both.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    nodes: HashMap<Box<str>, OnNode>,
    checks: BTreeSet<(DateTime<Utc>, Box<str>)>,
}

/// What was done on one node.
#[derive(Debug, Default)]
struct OnNode {
    /// Created pods that the watch has not shown.
    creates: Vec<Creation>,
    /// Deleted pods that the watch still shows unchanged.
    deletes: Vec<Deletion>,
    /// Pods that were adopted or released and are not yet observed so, and until when that is
    /// believed. This belief ends by itself: a wrong end only costs the same call again.
    claims: Vec<(Claim, DateTime<Utc>)>,
}

#[derive(Debug)]
struct Creation {
    pod: Arc<PodView>,
    belief: Belief<Create>,
}

#[derive(Debug)]
struct Deletion {
    pod: String,
    uid: String,
    belief: Belief<Delete>,
}

/// A belief that only the API server can confirm or end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) pod: String,
    /// The UID of the deleted pod; empty for a created one.
    pub(crate) uid: String,
    pub(crate) node: Box<str>,
}

impl OnNode {
    fn next_check(&self) -> Option<DateTime<Utc>> {
        let creates = self.creates.iter().map(|made| made.belief.ask());
        let deletes = self.deletes.iter().map(|gone| gone.belief.ask());
        let claims = self.claims.iter().map(|(_, until)| *until);
        creates.chain(deletes).chain(claims).min()
    }
}

impl PendingWrites {
    fn change(&mut self, node: &str, change: impl FnOnce(&mut OnNode)) {
        let mut on_node = self.nodes.remove(node).unwrap_or_default();
        if let Some(at) = on_node.next_check() {
            self.checks.remove(&(at, node.into()));
        }
        change(&mut on_node);
        if let Some(at) = on_node.next_check() {
            self.checks.insert((at, node.into()));
            self.nodes.insert(node.into(), on_node);
        }
    }

    /// Records a pod that is about to be created. Before the call, since the watch may be faster
    /// than the answer: recorded after it, the pod would be awaited although it was shown.
    pub(super) fn will_create(&mut self, pod: PodView, now: DateTime<Utc>) {
        let node = pod.node.clone();
        self.change(&node, |on_node| {
            let known = on_node.creates.iter_mut().find(|c| c.pod.name == pod.name);
            if let Some(known) = known {
                known.belief.call_begins(now);
            } else {
                let (pod, belief) = (Arc::new(pod), Belief::new(now));
                on_node.creates.push(Creation { pod, belief });
            }
        });
    }

    /// Records the answer to the creation of a pod.
    pub(super) fn create_answered(
        &mut self,
        create: &Create,
        pod: &str,
        answer: Answer,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        self.change(&create.node, |on_node| {
            on_node.creates.retain_mut(|made| {
                let call = || create.clone();
                made.pod.name != pod || made.belief.answered(answer, call, generation, now)
            });
        });
    }

    /// The watch shows a pod, or that it is being deleted: what was believed of it is observed.
    pub(super) fn seen(&mut self, pod: &PodView) {
        self.change(&pod.node, |on_node| {
            on_node.creates.retain(|made| made.pod.name != pod.name);
            if pod.deleting {
                on_node.deletes.retain(|gone| gone.uid != pod.uid);
            }
        });
    }

    /// Records a pod that is about to be deleted. Returns whether an earlier attempt had no definite answer.
    pub(super) fn will_delete(&mut self, delete: &Delete, now: DateTime<Utc>) -> bool {
        let mut unanswered = false;
        self.change(&delete.node, |on_node| {
            let mut deletes = on_node.deletes.iter_mut();
            if let Some(known) = deletes.find(|gone| gone.uid == delete.uid) {
                known.belief.call_begins(now);
                unanswered = known.belief.is_unanswered();
            } else {
                on_node.deletes.push(Deletion {
                    pod: delete.pod.clone(),
                    uid: delete.uid.clone(),
                    belief: Belief::new(now),
                });
            }
        });
        unanswered
    }

    /// Records the answer to the deletion of a pod.
    pub(super) fn delete_answered(
        &mut self,
        delete: &Delete,
        answer: Answer,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        self.change(&delete.node, |on_node| {
            on_node.deletes.retain_mut(|gone| {
                let call = || delete.clone();
                gone.uid != delete.uid || gone.belief.answered(answer, call, generation, now)
            });
        });
    }

    /// The watch shows that a pod is gone.
    pub(super) fn gone(&mut self, pod: &PodView) {
        self.change(&pod.node, |on_node| {
            on_node.deletes.retain(|gone| gone.uid != pod.uid);
        });
    }

    /// Whether the operator deleted that pod and the watch has not shown it yet.
    pub(super) fn is_deleted(&self, pod: &PodView) -> bool {
        let on_node = self.nodes.get(pod.node.as_str());
        on_node.is_some_and(|on_node| on_node.deletes.iter().any(|gone| gone.uid == pod.uid))
    }

    /// Records a pod that was adopted or released.
    pub(super) fn claimed(&mut self, claim: &Claim, now: DateTime<Utc>) {
        self.change(&claim.node, |on_node| {
            on_node.claims.push((claim.clone(), now + WATCH_TIMEOUT));
        });
    }

    /// The deletions without a definite answer that are to be repeated for that generation.
    pub(super) fn unanswered_deletes(&self, generation: Option<i64>) -> Vec<Delete> {
        let deletes = self.by_time().flat_map(|on_node| &on_node.deletes);
        let repeat = deletes.filter_map(|gone| gone.belief.repeat(generation));
        repeat.cloned().collect()
    }

    /// The same for creations.
    pub(super) fn unanswered_creates(&self, generation: Option<i64>) -> Vec<Create> {
        let creates = self.by_time().flat_map(|on_node| &on_node.creates);
        let repeat = creates.filter_map(|made| made.belief.repeat(generation));
        repeat.cloned().collect()
    }

    /// Whether an attempt to create that pod had no definite answer.
    pub(super) fn may_exist(&self, create: &Create) -> bool {
        let on_node = self.nodes.get(create.node.as_str());
        let mut creates = on_node.into_iter().flat_map(|on_node| &on_node.creates);
        creates.any(|made| made.pod.revision == create.revision && made.belief.is_unanswered())
    }

    /// The nodes in the order of their next checks.
    fn by_time(&self) -> impl Iterator<Item = &OnNode> {
        let nodes = self.checks.iter();
        nodes.filter_map(|(_, node)| self.nodes.get(node))
    }

    /// The nodes with a belief that must be checked by then.
    fn due(&self, time: DateTime<Utc>) -> Vec<Box<str>> {
        let due = self.checks.iter().take_while(|(at, _)| *at <= time);
        due.map(|(_, node)| node.clone()).collect()
    }

    /// When to ask the API server because the watches did not show what was done.
    pub(super) fn next_check(&self) -> Option<DateTime<Utc>> {
        self.checks.first().map(|(at, _)| *at)
    }

    /// The beliefs that the watches should have confirmed by now.
    pub(super) fn doubts(&self, now: DateTime<Utc>) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for node in self.due(now) {
            let Some(on_node) = self.nodes.get(&node) else {
                continue;
            };
            let creates = on_node.creates.iter();
            let creates = creates.filter(|made| made.belief.ask() <= now);
            let creates = creates.map(|made| (&made.pod.name, ""));
            let deletes = on_node.deletes.iter();
            let deletes = deletes.filter(|gone| gone.belief.ask() <= now);
            let deletes = deletes.map(|gone| (&gone.pod, gone.uid.as_str()));
            doubts.extend(creates.chain(deletes).map(|(pod, uid)| Doubt {
                pod: pod.clone(),
                uid: uid.to_owned(),
                node: node.clone(),
            }));
        }
        doubts
    }

    /// Applies the API server's answer to a doubt: either what was believed is true, and the watch
    /// will show it, or it is not.
    pub(super) fn resolve(&mut self, doubt: &Doubt, is_so: bool, now: DateTime<Utc>) {
        let ask = is_so.then_some(now + WATCH_TIMEOUT);
        self.change(&doubt.node, |on_node| {
            if doubt.uid.is_empty() {
                let creates = &mut on_node.creates;
                creates.retain_mut(|made| made.pod.name != doubt.pod || made.belief.confirm(ask));
            } else {
                let deletes = &mut on_node.deletes;
                deletes.retain_mut(|gone| gone.uid != doubt.uid || gone.belief.confirm(ask));
            }
        });
    }

    /// The pods of a node as the watch will soon show them: those in the cache, plus what was done
    /// since. `owner_uid` is that of the object, for pods that it adopted.
    pub(super) fn overlay(
        &self,
        owner_uid: &str,
        node: &str,
        mut pods: Vec<Arc<PodView>>,
    ) -> Vec<Arc<PodView>> {
        let Some(on_node) = self.nodes.get(node) else {
            return pods;
        };
        pods.retain_mut(|pod| {
            if !pod.deleting && on_node.deletes.iter().any(|gone| gone.uid == pod.uid) {
                Arc::make_mut(pod).deleting = true;
            }
            let claims = on_node.claims.iter().map(|(claim, _)| claim);
            match claims.rev().find(|claim| claim.uid == pod.uid) {
                Some(claim) if claim.adopt && pod.is_orphan() => {
                    owner_uid.clone_into(&mut Arc::make_mut(pod).owner_uid);
                    true
                }
                Some(claim) => claim.adopt,
                None => true,
            }
        });
        let seen = |made: &PodView| pods.iter().any(|pod| pod.name == made.name);
        let made = on_node.creates.iter().map(|made| &made.pod);
        let unseen: Vec<_> = made.filter(|made| !seen(made)).cloned().collect();
        pods.extend(unseen);
        pods
    }

    /// The revisions of created pods.
    pub(super) fn revisions(&self) -> impl Iterator<Item = &str> {
        let creates = self.nodes.values().flat_map(|on_node| &on_node.creates);
        creates.map(|made| made.pod.revision.as_str())
    }

    /// Ends the beliefs in adoptions and releases whose time is over. Returns the nodes with
    /// anything that must be checked by now.
    pub(super) fn expire_claims(&mut self, now: DateTime<Utc>) -> Vec<Box<str>> {
        let due = self.due(now);
        for node in &due {
            self.change(node, |on_node| {
                on_node.claims.retain(|(_, until)| *until > now);
            });
        }
        due
    }

    /// The clock was set back: nothing waits for its old time to come again. Returns the nodes.
    pub(super) fn rebase(&mut self, now: DateTime<Utc>) -> Vec<Box<str>> {
        let all = self.due(DateTime::<Utc>::MAX_UTC);
        for node in &all {
            self.change(node, |on_node| {
                on_node.claims.clear();
                for made in &mut on_node.creates {
                    made.belief.rebase(now);
                }
                for gone in &mut on_node.deletes {
                    gone.belief.rebase(now);
                }
            });
        }
        all
    }

    /// Forgets a node that is gone, with its pods.
    pub(super) fn forget(&mut self, node: &str) {
        self.change(node, |on_node| *on_node = OnNode::default());
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.checks.is_empty()
    }
}
