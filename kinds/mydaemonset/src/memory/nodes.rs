//! What is remembered of nodes: what was done on them and no watch has shown yet, and their last pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::belief::{Answer, Belief, WATCH_TIMEOUT};
use crate::decide::decision::{Claim, Create, Delete, DeleteReason};
use crate::decide::freeze::Freeze;
use crate::decide::input::Last;
use crate::observe::pod::PodView;

/// The nodes that changed, and what is remembered of them.
#[derive(Debug, Default)]
pub(crate) struct NodeMemory {
    /// Nodes that changed since the last decision.
    changed: BTreeSet<Box<str>>,
    nodes: BTreeMap<Box<str>, Remembered>,
}

/// What is remembered of one node.
#[derive(Debug, Default, PartialEq)]
struct Remembered {
    /// What was done there and is not yet observed.
    writes: Vec<Write>,
    /// Pods that were adopted or released and are not yet observed so, and until when that is
    /// believed. This belief ends by itself: a wrong end only costs the same call again.
    claims: Vec<(Claim, DateTime<Utc>)>,
    /// The last pod on a node that has none now. Ends when its successor was created, when a pod runs there, or when no
    /// pod may be there. A restart of the operator loses it: then a held node gets the revision of the last finished
    /// roll-out, and the count of failures starts again.
    last: Option<Last>,
    /// Since when the node is gone while its pods are there. A short absence does not count: the node
    /// may register again while its containers run.
    gone_since: Option<DateTime<Utc>>,
}

/// A write that only the watch or the API server can confirm or deny.
#[derive(Debug, PartialEq)]
struct Write {
    pod: Written,
    belief: Belief,
}

/// A created pod as the watch will show it, or a deleted one that it still shows unchanged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Written {
    Created(Arc<PodView>),
    Deleted(Delete),
}

impl Written {
    pub(crate) fn node(&self) -> &str {
        match self {
            Self::Created(pod) => &pod.node,
            Self::Deleted(delete) => &delete.node,
        }
    }

    /// The name of the pod, and the UID of a deleted one.
    pub(crate) fn id(&self) -> (&str, &str) {
        match self {
            Self::Created(pod) => (&pod.name, ""),
            Self::Deleted(delete) => (&delete.pod, &delete.uid),
        }
    }
}

impl Remembered {
    fn next_check(&self) -> Option<DateTime<Utc>> {
        let writes = self.writes.iter().map(|write| write.belief.ask());
        let claims = self.claims.iter().map(|(_, until)| *until);
        writes.chain(claims).min()
    }

    fn deletes(&self, pod: &PodView) -> bool {
        let mut writes = self.writes.iter();
        writes.any(|write| matches!(&write.pod, Written::Deleted(gone) if gone.uid == pod.uid))
    }
}

impl NodeMemory {
    /// Records that a node changed: the next decision looks at it again.
    pub(crate) fn touch(&mut self, node: &str) {
        if !self.changed.contains(node) {
            self.changed.insert(node.into());
        }
    }

    /// Changes what is remembered of a node, which the next decision then looks at.
    fn change<T>(&mut self, node: &str, change: impl FnOnce(&mut Remembered) -> T) -> T {
        self.touch(node);
        self.change_silently(node, change)
    }

    fn change_silently<T>(&mut self, node: &str, change: impl FnOnce(&mut Remembered) -> T) -> T {
        let on_node = self.nodes.entry(node.into()).or_default();
        let result = change(on_node);
        if *on_node == Remembered::default() {
            self.nodes.remove(node);
        }
        result
    }

    /// The clock was set, forward by that much or back. Nothing waits for its old time to come again.
    pub(super) fn clock_was_set(&mut self, forward: TimeDelta, now: DateTime<Utc>) {
        for (node, on_node) in &mut self.nodes {
            self.changed.insert(node.clone());
            on_node.claims.clear();
            let since = on_node.gone_since;
            on_node.gone_since = since.map(|since| (since + forward).min(now));
            for write in &mut on_node.writes {
                write.belief.rebase(forward, now);
            }
        }
    }

    /// The nodes that changed since the last call. Ends the claims whose time is over.
    pub(super) fn take_changed(&mut self, now: DateTime<Utc>) -> BTreeSet<Box<str>> {
        self.nodes.retain(|node, on_node| {
            if on_node.next_check().is_some_and(|at| at <= now) {
                self.changed.insert(node.clone());
                on_node.claims.retain(|(_, until)| *until > now);
            }
            *on_node != Remembered::default()
        });
        std::mem::take(&mut self.changed)
    }

    /// Records a write that is about to be made. Before the call, since the watch may be faster than the answer:
    /// recorded after it, the pod would be awaited although it was shown. Returns whether an earlier attempt at it had
    /// no definite answer.
    pub(crate) fn begins(&mut self, pod: Written, now: DateTime<Utc>) -> bool {
        let node = pod.node().to_owned();
        self.change(&node, |on_node| {
            if let Written::Deleted(delete) = &pod
                // A node that is gone gets no successor. One that registers again under its name is another.
                && delete.reason != DeleteReason::NodeGone
            {
                on_node.last = Some(delete.last.clone());
            }
            let mut writes = on_node.writes.iter_mut();
            if let Some(known) = writes.find(|write| write.pod.id() == pod.id()) {
                known.belief.call_begins(now);
                return known.belief.is_unanswered();
            }
            let belief = Belief::new(now);
            on_node.writes.push(Write { pod, belief });
            false
        })
    }

    /// Records the answer to a write.
    pub(crate) fn answered(
        &mut self,
        pod: &Written,
        answer: Answer,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        self.change(pod.node(), |on_node| {
            on_node.writes.retain_mut(|write| {
                write.pod.id() != pod.id() || write.belief.answered(answer, generation, now)
            });
            if answer == Answer::Done && matches!(pod, Written::Created(_)) {
                // The pod before it no longer matters.
                on_node.last = None;
            }
        });
    }

    /// Records a pod that was adopted or released.
    pub(crate) fn claimed(&mut self, claim: &Claim, now: DateTime<Utc>) {
        self.change(&claim.node, |on_node| {
            on_node.claims.push((claim.clone(), now + WATCH_TIMEOUT));
        });
    }

    /// The watch shows a pod, or that it is being deleted: what was believed of it is observed.
    pub(crate) fn seen(&mut self, pod: &PodView) {
        self.change(&pod.node, |on_node| {
            on_node.writes.retain(|write| match &write.pod {
                Written::Created(made) => made.name != pod.name,
                Written::Deleted(gone) => gone.uid != pod.uid || !pod.deleting,
            });
        });
    }

    /// The watch shows that a pod is gone. The operator's own record of a deletion of the same
    /// revision says more of it, such as the count of failures, and stays.
    pub(crate) fn gone(&mut self, pod: &PodView) {
        self.change(&pod.node, |on_node| {
            on_node.writes.retain(|write| write.pod.id().1 != pod.uid);
            let known = on_node.last.as_ref();
            if known.is_none_or(|last| last.revision != pod.revision) {
                let revision = pod.revision.clone();
                on_node.last = Some(Last {
                    revision,
                    ..Last::default()
                });
            }
        });
    }

    /// Whether the operator deleted that pod and the watch has not shown it yet.
    pub(super) fn is_deleted(&self, pod: &PodView) -> bool {
        let on_node = self.nodes.get(pod.node.as_str());
        on_node.is_some_and(|on_node| on_node.deletes(pod))
    }

    /// The writes of which that is true, the one that is checked first first: one that is repeated
    /// goes to the end, and so blocks no other.
    fn writes(&self, which: impl Fn(&Belief) -> bool) -> Vec<Written> {
        let writes = self.nodes.values().flat_map(|on_node| &on_node.writes);
        let mut writes: Vec<_> = writes.filter(|write| which(&write.belief)).collect();
        writes.sort_by_key(|write| write.belief.ask());
        writes.into_iter().map(|write| write.pod.clone()).collect()
    }

    /// The deletions without a definite answer that are to be repeated for that generation.
    pub(crate) fn unanswered_deletes(&self, generation: Option<i64>) -> Vec<Delete> {
        let writes = self.writes(|belief| belief.is_repeated_for(generation));
        let deletes = writes.into_iter().filter_map(|write| match write {
            Written::Deleted(delete) => Some(delete),
            Written::Created(_) => None,
        });
        deletes.collect()
    }

    /// The same for creations.
    pub(crate) fn unanswered_creates(&self, generation: Option<i64>) -> Vec<Create> {
        let writes = self.writes(|belief| belief.is_repeated_for(generation));
        let creates = writes.iter().filter_map(|write| match write {
            Written::Created(pod) => Some(Create::of(pod)),
            Written::Deleted(_) => None,
        });
        creates.collect()
    }

    /// Whether a call without a definite answer may still be carried out, of those that a freeze forbids.
    pub(crate) fn may_break(&self, freeze: Freeze) -> bool {
        let forbids = |pod: &Written| match pod {
            Written::Created(_) => freeze == Freeze::All,
            Written::Deleted(delete) => !delete.reason.is_allowed(freeze),
        };
        let mut writes = self.nodes.values().flat_map(|on_node| &on_node.writes);
        writes.any(|write| write.belief.is_unanswered() && forbids(&write.pod))
    }

    /// The writes that the watches should have shown by now.
    pub(crate) fn doubts(&self, now: DateTime<Utc>) -> Vec<Written> {
        self.writes(|belief| belief.ask() <= now)
    }

    /// Applies the API server's answer to a doubt: either what was believed is true, and the watch
    /// will show it, or it is not.
    pub(crate) fn resolve(&mut self, doubt: &Written, is_so: bool, now: DateTime<Utc>) {
        self.change(doubt.node(), |on_node| {
            on_node.writes.retain_mut(|write| {
                let is_it = write.pod.id() == doubt.id();
                if is_it && is_so {
                    write.belief.confirm(now);
                }
                !is_it || is_so
            });
        });
    }

    /// When to ask the API server because the watches did not show what was done.
    pub(crate) fn next_check(&self) -> Option<DateTime<Utc>> {
        self.nodes.values().filter_map(Remembered::next_check).min()
    }

    /// The pods of a node as the watch will soon show them: those in the cache, plus what was done
    /// since. `owner_uid` is that of the object, for pods that it adopted.
    pub(crate) fn overlay(
        &self,
        owner_uid: &str,
        node: &str,
        mut pods: Vec<Arc<PodView>>,
    ) -> Vec<Arc<PodView>> {
        let Some(on_node) = self.nodes.get(node) else {
            return pods;
        };
        pods.retain_mut(|pod| {
            if !pod.deleting && on_node.deletes(pod) {
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
        for write in &on_node.writes {
            if let Written::Created(made) = &write.pod
                && pods.iter().all(|pod| pod.name != made.name)
            {
                pods.push(made.clone());
            }
        }
        pods
    }

    /// The last pod on a node, as far as it is remembered.
    pub(crate) fn last(&self, node: &str) -> Option<&Last> {
        self.nodes.get(node)?.last.as_ref()
    }

    /// Forgets the last pod on a node where one runs. If it is the new one of a surge that failed, the one that runs beside
    /// it is not a successor.
    pub(crate) fn forget_last_where_one_runs(
        &mut self,
        node: &str,
        pods: &[Arc<PodView>],
        update: &str,
    ) {
        let Some(last) = self.last(node) else { return };
        let succeeds = |pod: &PodView| last.revision != update || pod.revision == update;
        let runs = |pod: &Arc<PodView>| pod.is_live() && !pod.uid.is_empty() && succeeds(pod);
        if pods.iter().any(runs) {
            self.change(node, |on_node| on_node.last = None);
        }
    }

    /// Forgets the last pod on a node where no pod may be. That changes no decision.
    pub(crate) fn forget_last(&mut self, node: &str) {
        if self.last(node).is_some() {
            self.change_silently(node, |on_node| on_node.last = None);
            self.changed.remove(node);
        }
    }

    /// Forgets a node that is gone, with its pods.
    pub(crate) fn forget_node(&mut self, node: &str) {
        self.nodes.remove(node);
        self.changed.remove(node);
    }

    /// The revisions of the last pods on nodes, and of the pods created there.
    pub(crate) fn revisions(&self) -> impl Iterator<Item = &str> {
        self.nodes.values().flat_map(|on_node| {
            let made = on_node.writes.iter().filter_map(|write| match &write.pod {
                Written::Created(pod) => Some(pod.revision.as_str()),
                Written::Deleted(_) => None,
            });
            let last = on_node.last.iter().map(|last| last.revision.as_str());
            made.chain(last)
        })
    }

    /// Since when a node is gone whose pods are still there; until they are gone too, or it is back.
    pub(crate) fn gone_since(
        &mut self,
        node: &str,
        is_gone: bool,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let known = self.nodes.get(node).and_then(|on_node| on_node.gone_since);
        // After the clock was set back, the time starts again.
        let since = is_gone.then(|| known.map_or(now, |since| since.min(now)));
        if since != known {
            self.change_silently(node, |on_node| on_node.gone_since = since);
        }
        since
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}
