//! One node by itself: what is the case there, and what it needs whatever happens on the others.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Claim, Create, Decision, Delete, DeleteReason, Last, RolloutInput, pause};
use crate::kinds::mydaemonset::placement::{Eligibility, Obstacle};
use crate::kinds::mydaemonset::pod;
use crate::kinds::mydaemonset::views::{NodeView, PodView};

/// A pod that lived so long before it failed does not count as one of a row of failures.
const STEADY: TimeDelta = TimeDelta::minutes(15);
/// A node that fails within this time after it got the newest revision speaks against the revision.
const TRIAL: TimeDelta = TimeDelta::minutes(10);
/// For so long after a new revision came, nodes that were unserved before count within the limits.
const UNSERVED_GRACE: TimeDelta = TimeDelta::minutes(10);
/// Times of creation are whole seconds.
const WHOLE_SECOND: TimeDelta = TimeDelta::seconds(1);
/// So many restarts of a container within that time are a crash loop.
const CRASH_RESTARTS: u32 = 2;
/// The pods of a node that is gone stay for so long: the node may register again, and its containers run meanwhile. As
/// with the cluster's own collector (pkg/controller/podgc, quarantineTime).
const QUARANTINE: TimeDelta = TimeDelta::seconds(40);
/// What ails a pod because of its revision, and not by a hiccup.
const FATAL: &[&str] = &[
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
];

/// What is the case on a node. The first ones are those whose nodes are named or acted on; of the
/// others only the number matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeFlag {
    /// It has something to do that asks no limit.
    Acting,
    /// Its old pod may be deleted within the limit.
    Replaceable,
    /// It may get the new pod beside the old one within the limit.
    Surgeable,
    /// The newest revision excludes it: its pod may be deleted within the limit.
    Removable,
    /// It is still to get the newest revision, or to lose its pod to it: of these, the last by name are the partition.
    Behind,
    /// It should serve and does not, whether the limit counts it or not.
    Dark,
    /// It should have an available pod of the newest revision, and the roll-out does not wait for it.
    LeftOut,
    /// It should have an available pod and has none.
    Unavailable,
    /// Its pod ails.
    Failing,
    /// It failed soon after it got the newest revision.
    Culprit,
    /// The roll-out waits for it: it is incomplete, and was begun with.
    Waiting,
    /// It should have a pod.
    Desired,
    /// It is one of the nodes that a percentage is of: whatever is held, so that a limit that holds nodes does not
    /// depend on itself.
    Base,
    /// It should have a pod and has one.
    Current,
    /// It has a pod and should have none.
    Misscheduled,
    /// Its pod is ready.
    Ready,
    /// Its pod is of the newest revision.
    Updated,
    /// Its pod has been ready for long enough.
    Available,
    /// It can be reached and has no available pod of the newest revision, or an old one beside it.
    Incomplete,
    /// It can be reached and has an available pod of the newest revision and no other.
    Done,
    /// It should have an available pod of the newest revision and no other, and does not, be it reached or not.
    Left,
    /// It has a pod of an older revision alone.
    Outdated,
    /// The same, and the roll-out does not touch it.
    HeldBack,
    /// The limit of the roll-out counts it as unavailable.
    Unserved,
    /// It has an old pod and, on its way, a new one.
    Surging,
    /// It has an old pod that the newest revision excludes by its node selector.
    ExcludedBySelector,
    /// The same by its node affinity.
    ExcludedByAffinity,
    /// The same by a taint that it does not tolerate.
    ExcludedByTaint,
}

impl NodeFlag {
    /// How many there are.
    pub(super) const COUNT: usize = Self::ExcludedByTaint as usize + 1;
    /// How many of them have their nodes named.
    pub(super) const NAMED: usize = Self::Waiting as usize + 1;
}

/// A set of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFlags(u32);

impl NodeFlags {
    fn set(&mut self, mark: NodeFlag, holds: bool) {
        self.0 |= u32::from(holds) << mark as u32;
    }

    pub(super) fn has(self, mark: NodeFlag) -> bool {
        self.has_nth(mark as usize)
    }

    pub(super) fn has_nth(self, nth: usize) -> bool {
        self.0 >> nth & 1 == 1
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What was found of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) marks: NodeFlags,
    /// What ails its pod.
    pub(super) trouble: Option<Box<str>>,
    /// When time alone changes the verdict.
    pub(super) until: Option<DateTime<Utc>>,
}

/// What the roll-out as a whole means for a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stance {
    /// A pause, an auto-pause or the partition keeps it on its revision.
    pub(super) held: bool,
    /// The roll-out was stopped because of failing nodes.
    pub(super) auto_paused: bool,
    /// It was unserved before the roll-out began, and has been ever since.
    pub(super) was_dark: bool,
}

/// One node and the object's pods on it.
pub(super) struct NodeState<'a> {
    name: &'a str,
    /// None when the node is gone.
    node: Option<&'a NodeView>,
    /// Since when.
    gone_since: Option<DateTime<Utc>>,
    /// By the demands of the newest revision; of a node that keeps an older one, by the demands of that.
    fate: Eligibility,
    /// By the demands of the newest revision.
    newest: Eligibility,
    /// Why the newest revision takes away a pod whose own revision would keep it here.
    excluded: Option<Obstacle>,
    /// The older revision that a missing pod is made of.
    keeps: Option<&'a str>,
    /// See [`NodeFlag::Behind`].
    behind: bool,
    /// The running pod of the newest revision.
    new: Option<&'a PodView>,
    /// The running pod of an older revision.
    old: Option<&'a PodView>,
    /// Running pods beside those two.
    surplus: Vec<&'a PodView>,
    /// Pods that have ended.
    ended: Vec<&'a PodView>,
    /// Pods that are being deleted.
    leaving: Vec<&'a PodView>,
    /// Pods that were made for another node of the same name.
    foreign: Vec<&'a PodView>,
    /// Pods that are to become the object's, or to be so no more.
    claims: Vec<Claim>,
    /// What was last on the node.
    last: Option<&'a Last>,
    stance: Stance,
    /// The node has been `NotReady` for so long that the limits leave it out.
    lost: bool,
    /// It was unserved before the roll-out began, and that is long ago: as long as it is, it is left out too.
    forgiven: bool,
}

impl<'a> NodeState<'a> {
    pub(super) fn new(
        name: &'a str,
        node: Option<&'a NodeView>,
        gone_since: Option<DateTime<Utc>>,
        pods: impl Iterator<Item = &'a PodView>,
        last: Option<&'a Last>,
        stance: Stance,
        terms: &RolloutInput<'a>,
    ) -> Self {
        let is_lost = node
            .and_then(|node| node.not_ready_since)
            .is_some_and(|since| since + terms.grace <= terms.now);
        let patient_until = terms.revisions.update_since + UNSERVED_GRACE;
        let mut slot = NodeState {
            name,
            node,
            gone_since,
            fate: Eligibility::Leave,
            newest: Eligibility::Leave,
            excluded: None,
            keeps: None,
            behind: false,
            new: None,
            old: None,
            surplus: Vec::new(),
            ended: Vec::new(),
            leaving: Vec::new(),
            foreign: Vec::new(),
            claims: Vec::new(),
            last,
            stance,
            lost: is_lost,
            forgiven: stance.was_dark && patient_until <= terms.now,
        };
        slot.sort(pods, terms);
        if let Some(node) = node {
            slot.place(node, terms);
        }
        slot
    }

    /// Sorts the pods by what can be done with them.
    fn sort(&mut self, pods: impl Iterator<Item = &'a PodView>, terms: &RolloutInput<'a>) {
        let mut running: Vec<&PodView> = Vec::new();
        for pod in pods {
            if pod.is_released && !pod.deleting {
                self.claims.push(Claim::release(pod));
                continue;
            }
            if pod.is_orphan() {
                if pod.deleting {
                    continue;
                }
                self.claims.push(Claim::adopt(pod));
            }
            if pod.deleting {
                self.leaving.push(pod);
            } else if self.node.is_some_and(|node| is_foreign(pod, node)) {
                self.foreign.push(pod);
            } else if pod.ended.is_some() {
                self.ended.push(pod);
            } else {
                running.push(pod);
            }
        }
        // The best first: ready, of the later revision, the older one.
        running.sort_by_key(|pod| {
            let known = terms.revisions.known.get(pod.revision.as_str());
            let number = known.map(|known| known.number);
            let rank = std::cmp::Reverse((pod.is_ready(), number));
            (rank, pod.created, pod.name.as_str())
        });
        for pod in running {
            let is_new = pod.revision == terms.revisions.update;
            let place = if is_new { &mut self.new } else { &mut self.old };
            if place.is_none() {
                *place = Some(pod);
            } else {
                self.surplus.push(pod);
            }
        }
    }

    /// Finds out which revision the node is to have, and by whose demands it is eligible.
    fn place(&mut self, node: &'a NodeView, terms: &RolloutInput<'a>) {
        let revisions = &terms.revisions;
        let newest = terms.placement.fate(node);
        let obstacle = terms.placement.obstacle(node);
        let fate = |revision: &str| {
            let known = revisions.known.get(revision);
            known.map(|known| known.placement.fate(node))
        };
        let is_old = |pod: &&PodView| pod.revision != revisions.update;
        let mut old = self.old.iter().chain(&self.ended).chain(&self.leaving);
        let old = old.find(|pod| is_old(pod)).map(|pod| pod.revision.as_str());
        let has_new = self.new.is_some() || !self.ended.iter().all(is_old);
        (self.fate, self.newest) = (newest, newest);
        if let Some(old) = old {
            // Without its revision, nothing says that the node is the reason, so the limits apply.
            let own = fate(old).unwrap_or(match newest {
                Eligibility::Leave => Eligibility::Run,
                newest => newest,
            });
            self.excluded = obstacle.filter(|_| own != Eligibility::Leave);
            let in_place = |fate| {
                matches!(
                    fate,
                    Eligibility::Run | Eligibility::Down | Eligibility::Cordoned
                )
            };
            let counts = in_place(newest) || in_place(own) || self.excluded.is_some();
            self.behind = !has_new && counts;
            let stays = self.stance.held && self.behind;
            if self.excluded.is_some() || stays {
                self.fate = own;
            }
            if stays && !terms.strategy.on_delete {
                self.keeps = Some(old).filter(|old| revisions.known.contains_key(old));
            }
        } else if !self.has_pods()
            && let Some(kept) = self.kept(node, newest, terms)
            && fate(kept) == Some(Eligibility::Run)
        {
            self.behind = !self.joined(node, terms);
            if self.stance.held && !terms.strategy.on_delete {
                self.fate = Eligibility::Run;
                self.keeps = Some(kept);
            }
        }
    }

    /// Whether the node joined after the newest revision came. It never had a pod of another then. Both times are cut
    /// to whole seconds: of those that are equal, a node that is known to have had a pod of another was there before.
    fn joined(&self, node: &NodeView, terms: &RolloutInput<'_>) -> bool {
        let since = terms.revisions.update_since;
        let had_another = |last: &Last| last.revision != terms.revisions.update;
        node.created > since || (node.created == since && !self.last.is_some_and(had_another))
    }

    /// The older revision that a node without a pod gets while it is held: the one that it had. Under an auto-pause, a
    /// node that joins gets the one before, since the newest was just found bad.
    fn kept(
        &self,
        node: &NodeView,
        newest: Eligibility,
        terms: &RolloutInput<'a>,
    ) -> Option<&'a str> {
        let revisions = &terms.revisions;
        let joins = self.joined(node, terms);
        if joins && !(self.stance.auto_paused && newest == Eligibility::Run) {
            return None;
        }
        let is_known = |hash: &&str| revisions.known.contains_key(hash);
        let last = self.last.filter(|last| is_known(&last.revision.as_str()));
        let kept = match last {
            Some(last) => Some(last.revision.as_str()).filter(|_| !last.excluded),
            // It may well have lost its pod to the newest revision.
            None if newest == Eligibility::Leave => None,
            None => Some(revisions.current).filter(is_known),
        };
        kept.filter(|kept| *kept != revisions.update)
    }

    fn has_pods(&self) -> bool {
        self.stays() || !self.leaving.is_empty()
    }

    /// Whether there is a pod that is not being deleted yet.
    fn stays(&self) -> bool {
        self.new.is_some()
            || self.old.is_some()
            || !self.ended.is_empty()
            || !self.foreign.is_empty()
    }

    /// Whether the node should have a pod. One that takes no new pods counts while it has one.
    fn desired(&self) -> bool {
        self.counts(self.fate)
    }

    fn counts(&self, fate: Eligibility) -> bool {
        match fate {
            Eligibility::Run => true,
            Eligibility::Down | Eligibility::Cordoned => self.has_pods(),
            Eligibility::Keep | Eligibility::Leave => false,
        }
    }

    /// Whether the roll-out may touch the node at all.
    fn reachable(&self) -> bool {
        matches!(self.fate, Eligibility::Run | Eligibility::Down)
    }

    /// Whether the limits of the roll-out see the node as served. Of an old pod no more is asked
    /// than that it is Ready: were its age asked for, a change soon after a change would find all
    /// old pods unavailable and replace every one of them at once.
    fn served(&self, terms: &RolloutInput<'_>) -> bool {
        self.new.is_some_and(|new| is_available(new, terms))
            || self.old.is_some_and(PodView::is_ready)
    }

    /// Whether the new pod can be made beside the old one: two at most during a surge.
    fn is_alone(&self, terms: &RolloutInput<'_>) -> bool {
        let others = self.ended.len() + self.foreign.len() + self.surplus.len();
        others == 0 && self.new.is_none() && !self.is_in_the_way(terms.revisions.update)
    }

    /// Whether a pod that is being deleted keeps another from being made. One that has ended and stays because of a
    /// finalizer does not, as for a `DaemonSet`; but a pod of the same revision would have the same name.
    fn is_in_the_way(&self, revision: &str) -> bool {
        let is_in_the_way = |pod: &&PodView| pod.ended.is_none() || pod.revision == revision;
        self.leaving.iter().any(is_in_the_way)
    }

    fn running(&self) -> impl Iterator<Item = &'a PodView> {
        [self.new, self.old].into_iter().flatten()
    }

    fn is_outdated(&self) -> bool {
        self.desired() && self.new.is_none() && self.old.is_some()
    }

    /// Whether the newest revision is available on the node and nothing of another is left.
    fn is_done(&self, terms: &RolloutInput<'_>) -> bool {
        let runs = |pod: &&PodView| pod.ended.is_none() && pod.revision != terms.revisions.update;
        let is_new = self.new.is_some_and(|new| is_available(new, terms));
        // Pods of another node are about to be deleted.
        let mut going = self.leaving.iter().chain(&self.foreign);
        is_new && self.old.is_none() && !going.any(runs)
    }

    /// Whether a new pod is there or on its way beside the old one.
    fn is_surging(&self, terms: &RolloutInput<'_>) -> bool {
        let is_new = |pod: &&&PodView| pod.revision == terms.revisions.update;
        let others = self.ended.iter().chain(&self.leaving);
        self.old.is_some() && (self.new.is_some() || others.filter(is_new).count() > 0)
    }

    /// Whether the roll-out leaves the node as it is. An excluded node only loses its pod, so a cordon or a taint that
    /// would keep a successor away is no reason to.
    fn is_held(&self) -> bool {
        self.stance.held || !(self.reachable() || self.excluded.is_some())
    }

    /// Whether the roll-out leaves the old pod where it is.
    fn holds_old(&self, terms: &RolloutInput<'_>) -> bool {
        self.is_held() || terms.strategy.on_delete
    }

    /// The old pod, where the roll-out may replace it as soon as the limits allow. On a node that is
    /// down it stays: nothing could be made in its place.
    fn replaceable(&self, terms: &RolloutInput<'_>) -> Option<&'a PodView> {
        let is_fit = self.fate == Eligibility::Run && self.excluded.is_none();
        self.expendable(terms).filter(|_| is_fit)
    }

    /// The old pod, where the newest revision excludes the node and the limits decide when it goes.
    fn removable(&self, terms: &RolloutInput<'_>) -> Option<&'a PodView> {
        self.expendable(terms).filter(|_| self.excluded.is_some())
    }

    fn expendable(&self, terms: &RolloutInput<'_>) -> Option<&'a PodView> {
        let old = self.old.filter(|_| self.claims.is_empty())?;
        (!self.holds_old(terms) && !self.goes_freely(old, terms)).then_some(old)
    }

    /// Whether the limits have no say in the end of the old pod.
    fn goes_freely(&self, old: &PodView, terms: &RolloutInput<'_>) -> bool {
        // The end of a surge, also of one that was paused or whose limit was taken away meanwhile.
        let outlived = self.new.is_some_and(|new| is_available(new, terms));
        let outlived = outlived && self.excluded.is_none();
        let serves_nobody = !old.is_ready() || self.lost;
        outlived || (serves_nobody && !self.holds_old(terms))
    }

    /// The deletion of the old pod that the limits allow.
    pub(super) fn replace(&self, terms: &RolloutInput<'_>) -> Option<Delete> {
        let old = self.expendable(terms)?;
        Some(self.delete(old, self.why_old()))
    }

    /// Why an old pod goes.
    fn why_old(&self) -> DeleteReason {
        match self.excluded {
            Some(_) => DeleteReason::Excluded,
            None => DeleteReason::Outdated,
        }
    }

    /// The pod of the newest revision on this node.
    pub(super) fn updated(&self, terms: &RolloutInput<'_>) -> Create {
        self.create(terms.revisions.update)
    }

    /// What is the case.
    pub(super) fn judge(&self, terms: &RolloutInput<'_>) -> Verdict {
        let mut needs = Decision::default();
        self.settle(terms, &mut needs);
        let mut marks = NodeFlags::default();
        let claimed = !needs.claim.is_empty();
        let acts = !needs.create.is_empty() || !needs.delete.is_empty() || claimed;
        marks.set(NodeFlag::Acting, acts);
        let replaceable = self.replaceable(terms).is_some();
        marks.set(NodeFlag::Replaceable, replaceable);
        marks.set(NodeFlag::Surgeable, replaceable && self.is_alone(terms));
        marks.set(NodeFlag::Removable, self.removable(terms).is_some());
        marks.set(NodeFlag::Behind, self.behind);
        let base = self.excluded.is_some() || self.counts(self.newest);
        marks.set(NodeFlag::Base, base);
        // A surge that stands still because of its node leaves its place to another one.
        let surging = self.reachable() && self.is_surging(terms);
        marks.set(NodeFlag::Surging, surging);
        let excluded = self.excluded.filter(|_| self.old.is_some());
        let by = |obstacle| excluded == Some(obstacle);
        marks.set(NodeFlag::ExcludedBySelector, by(Obstacle::NodeSelector));
        marks.set(NodeFlag::ExcludedByAffinity, by(Obstacle::NodeAffinity));
        marks.set(NodeFlag::ExcludedByTaint, by(Obstacle::Taint));
        marks.set(
            NodeFlag::Culprit,
            self.reachable() && self.is_culprit(terms),
        );
        // A node that went down still counts when it has lost its pod: else each that goes down for a
        // moment would let the roll-out take one more.
        let counts = !self.lost && (self.desired() || self.fate == Eligibility::Down);
        let dark = counts && !self.served(terms);
        marks.set(NodeFlag::Dark, dark);
        marks.set(NodeFlag::Unserved, dark && !self.forgiven);
        let left_out = self.lost || (dark && self.forgiven);
        let touched = self.reachable() || self.excluded.is_some();
        let waited_for = touched && !left_out;
        let done = self.is_done(terms);
        let desired = self.desired() || self.excluded.is_some();
        marks.set(NodeFlag::Done, waited_for && desired && done);
        marks.set(
            NodeFlag::Left,
            (desired || self.fate == Eligibility::Down) && !done,
        );
        marks.set(NodeFlag::LeftOut, desired && touched && left_out && !done);
        marks.set(NodeFlag::Incomplete, desired && waited_for && !done);
        let mut trouble = None;
        if self.desired() {
            let available = self.running().any(|pod| is_available(pod, terms));
            let update = terms.revisions.update;
            let ended_new = self.ended.iter().any(|p| p.revision == update);
            let outdated = self.is_outdated();
            let held = self.is_held() || (terms.strategy.on_delete && self.old.is_some());
            marks.set(NodeFlag::Desired, true);
            marks.set(NodeFlag::Current, self.stays());
            marks.set(NodeFlag::Ready, self.running().any(PodView::is_ready));
            marks.set(NodeFlag::Updated, self.new.is_some() || ended_new);
            marks.set(NodeFlag::Available, available);
            marks.set(NodeFlag::Unavailable, !available);
            marks.set(NodeFlag::Outdated, outdated);
            marks.set(NodeFlag::HeldBack, outdated && held);
            if waited_for && !done {
                let begun = self.new.is_some() || ended_new || !self.served(terms);
                // A surge that has begun goes on to its end, also where the node is held.
                let surging =
                    self.new.is_some() && (self.old.is_some() || !self.leaving.is_empty());
                marks.set(NodeFlag::Waiting, surging || (!held && begun));
            }
            let mut ailing = self.running().chain(self.ended.iter().copied());
            trouble = ailing.find_map(|pod| pod.trouble.clone());
            marks.set(NodeFlag::Failing, trouble.is_some());
        } else {
            marks.set(NodeFlag::Misscheduled, self.node.is_some() && self.stays());
        }
        Verdict {
            marks,
            trouble,
            until: self.until(dark, terms).chain(needs.next).min(),
        }
    }

    /// The instants to come at which time alone changes something.
    fn until(&self, dark: bool, terms: &RolloutInput<'_>) -> impl Iterator<Item = DateTime<Utc>> {
        let available = self
            .running()
            .filter_map(|pod| available_at(pod, terms.strategy.min_ready));
        let lost = self
            .node
            .and_then(|node| node.not_ready_since)
            .map(|since| since + terms.grace);
        // The trial's last instant still is one of it.
        let trial = self
            .new
            .filter(|pod| is_crashing(pod))
            .map(|pod| pod.created + TRIAL + TimeDelta::milliseconds(1));
        let patience = terms.revisions.update_since + UNSERVED_GRACE;
        let patience = (dark && self.stance.was_dark).then_some(patience);
        let now = terms.now;
        let times: Vec<_> = available.chain(lost).chain(trial).chain(patience).collect();
        times.into_iter().filter(move |at| *at > now)
    }

    /// Whether the node failed soon after it got the newest revision. A node that has not been Ready before it got its
    /// pod says nothing about the revision: a node that joins is NotReady, and its first pods may well crash.
    fn is_culprit(&self, terms: &RolloutInput<'_>) -> bool {
        let Some(node) = self.node else {
            return false;
        };
        let new = self.ended.iter().copied().chain(self.new);
        let mut new = new.filter(|pod| pod.revision == terms.revisions.update);
        new.any(|pod| {
            let trial = |at: DateTime<Utc>| at <= pod.created + TRIAL;
            // The API server cuts the time of creation to a whole second: within that second, the node may have gone
            // NotReady before the pod was there.
            let went_down = |since| since >= pod.created + WHOLE_SECOND && trial(since);
            let fails = pod.ended.is_some_and(trial)
                || (is_crashing(pod) && trial(terms.now))
                || node.not_ready_since.is_some_and(went_down);
            fails && node.ready_from.is_some_and(|from| from <= pod.created)
        })
    }

    /// What the node needs whatever the limits of the roll-out: pods that must not be there go, a
    /// missing one is made, a failed one is made again after its pause.
    pub(super) fn settle(&self, terms: &RolloutInput<'_>, decision: &mut Decision) {
        if !self.claims.is_empty() {
            // Nothing is done with a pod before it is known whose it is.
            decision.claim.extend(self.claims.iter().cloned());
            return;
        }
        match self.fate {
            Eligibility::Leave => {
                let why = if self.node.is_some() {
                    DeleteReason::NotEligible
                } else {
                    DeleteReason::NodeGone
                };
                let due = self.gone_since.map(|since| since + QUARANTINE);
                if let Some(due) = due.filter(|due| *due > terms.now) {
                    decision.look_again(due);
                    return;
                }
                let others = self.surplus.iter().chain(&self.ended);
                let pods = self.running().chain(others.copied());
                let pods = pods.filter(|pod| !self.may_stay(pod, terms));
                for pod in pods.chain(self.foreign.iter().copied()) {
                    decision.delete.push(self.delete(pod, why));
                }
                return;
            }
            // Nothing could take the place of a pod that goes.
            Eligibility::Keep | Eligibility::Cordoned
                if self.excluded.is_none() || self.holds_old(terms) =>
            {
                return;
            }
            _ => {}
        }
        for pod in &self.foreign {
            decision
                .delete
                .push(self.delete(pod, DeleteReason::NodeReplaced));
        }
        for pod in &self.surplus {
            decision
                .delete
                .push(self.delete(pod, DeleteReason::Surplus));
        }
        // A pod of the newest revision was made here, so the node has changed since.
        let excludes =
            |pod: &PodView| self.excluded.is_some() && pod.revision == terms.revisions.update;
        if let Some(new) = self.new.filter(|new| excludes(new)) {
            decision
                .delete
                .push(self.delete(new, DeleteReason::NotEligible));
        }
        for pod in &self.ended {
            if excludes(pod) {
                decision
                    .delete
                    .push(self.delete(pod, DeleteReason::NotEligible));
            } else {
                self.settle_ended(pod, terms, decision);
            }
        }
        if let Some(old) = self.old.filter(|old| self.goes_freely(old, terms)) {
            decision.delete.push(self.delete(old, self.why_old()));
        }
        let (missing, fate) = match self.keeps {
            Some(kept) => (kept, self.fate),
            None => (terms.revisions.update, self.newest),
        };
        let is_free = !self.stays() && !self.is_in_the_way(missing);
        if is_free && fate == Eligibility::Run {
            decision.create.push(self.create(missing));
        }
    }

    /// Whether the revision of an old pod lets it run here, though that of a better one, which is to go, does not.
    fn may_stay(&self, pod: &PodView, terms: &RolloutInput<'_>) -> bool {
        let known = terms.revisions.known.get(pod.revision.as_str());
        let fate = self.node.zip(known);
        let fate = fate.map(|(node, known)| known.placement.fate(node));
        pod.revision != terms.revisions.update
            && fate.is_some_and(|fate| fate != Eligibility::Leave)
    }

    /// A pod that has ended stays until its pause is over: its status is what people look for, and
    /// the memory of the failure. One that the roll-out would replace anyway goes at once.
    fn settle_ended(&self, pod: &PodView, terms: &RolloutInput<'_>, decision: &mut Decision) {
        let Some(ended) = pod.ended else {
            return;
        };
        let update = terms.revisions.update;
        let outlived = self.new.is_some() || (self.old.is_some() && pod.revision != update);
        let replaced = pod.revision != update && !self.holds_old(terms);
        if outlived || replaced {
            let why = if outlived {
                DeleteReason::Surplus
            } else {
                self.why_old()
            };
            decision.delete.push(self.delete(pod, why));
            return;
        }
        // A pod that did its work for long and then failed is no part of a row of failures.
        let attempt = if ended - pod.created >= STEADY {
            0
        } else {
            pod.attempt
        };
        let due = ended + pause(attempt);
        // An end still to come tells of a clock that was set back: nothing waits for it.
        if due > terms.now && ended <= terms.now {
            decision.look_again(due);
            return;
        }
        let mut delete = self.delete(pod, DeleteReason::Failed);
        delete.last.attempt = attempt.saturating_add(1);
        decision.delete.push(delete);
    }

    fn create(&self, revision: &str) -> Create {
        Create {
            node: self.name.to_owned(),
            node_uid: self.node.map(|node| node.uid.clone()).unwrap_or_default(),
            revision: revision.to_owned(),
            attempt: self
                .last
                .filter(|last| last.revision == revision)
                .map_or(0, |last| last.attempt),
        }
    }

    fn delete(&self, pod: &PodView, why: DeleteReason) -> Delete {
        Delete {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: self.name.to_owned(),
            why,
            last: Last {
                revision: pod.revision.clone(),
                attempt: pod.attempt,
                excluded: why == DeleteReason::Excluded,
            },
            version: pod
                .version
                .as_deref()
                .filter(|_| why.is_due_to_revision())
                .map(str::to_owned),
        }
    }
}

/// Whether the pod was made for a node that is gone, and whose name another one has taken since. An adopted pod has a
/// name that was made with the UID of another object, so the name alone does not say.
fn is_foreign(pod: &PodView, node: &NodeView) -> bool {
    let name = || pod::name(&node.name, &node.uid, &pod.owner_uid, &pod.revision);
    pod.created < node.created && pod.name != name()
}

/// Whether it ails in a way that the revision is to blame for.
fn is_crashing(pod: &PodView) -> bool {
    pod.trouble.as_deref().is_some_and(|t| FATAL.contains(&t)) || pod.restarts >= CRASH_RESTARTS
}

/// When a pod has been ready for long enough.
fn available_at(pod: &PodView, min_ready: TimeDelta) -> Option<DateTime<Utc>> {
    pod.ready_since
        .filter(|_| pod.is_ready())
        .map(|since| since + min_ready)
}

fn is_available(pod: &PodView, terms: &RolloutInput<'_>) -> bool {
    // An instant still to come tells of a clock that was set back: nothing waits for it.
    let was_set_back = pod.ready_since.is_some_and(|since| since > terms.now);
    let at = available_at(pod, terms.strategy.min_ready);
    at.is_some_and(|at| at <= terms.now || was_set_back)
}
