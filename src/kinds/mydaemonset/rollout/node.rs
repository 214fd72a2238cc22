//! One node by itself: its state, and what it needs whatever happens on the others.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Claim, Create, Decision, Delete, DeleteReason, Last, RolloutInput, pause};
use crate::kinds::mydaemonset::placement::{Eligibility, Obstacle};
use crate::kinds::mydaemonset::pod;
use crate::kinds::mydaemonset::views::{NodeView, PodView};

/// A pod that lived this long before it failed does not count as one of several failures in a row.
const STEADY: TimeDelta = TimeDelta::minutes(15);
/// A node that fails within this time after it got the newest revision counts against the revision.
const TRIAL: TimeDelta = TimeDelta::minutes(10);
/// For this long after a new revision came, nodes that were unserved before count within the limits.
const UNSERVED_GRACE: TimeDelta = TimeDelta::minutes(10);
/// Creation timestamps are whole seconds.
const WHOLE_SECOND: TimeDelta = TimeDelta::seconds(1);
/// This many restarts of a container are a crash loop.
const CRASH_RESTARTS: u32 = 2;
/// How long the pods of a node that is gone stay: the node may register again, and its containers
/// run meanwhile. As in the cluster's own collector (pkg/controller/podgc, quarantineTime).
const QUARANTINE: TimeDelta = TimeDelta::seconds(40);
/// Failures of a pod that point at its revision.
const FATAL: &[&str] = &[
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
];

/// Flags of a node. The nodes with one of the first flags are named or acted on; for the others
/// only the number matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeFlag {
    /// It has something to do regardless of the limits.
    Acting,
    /// Its old pod may be deleted within the limit.
    Replaceable,
    /// It may get the new pod next to the old one within the limit.
    Surgeable,
    /// The newest revision excludes it: its pod may be deleted within the limit.
    Removable,
    /// It is still to get the newest revision, or to lose its pod to it. The last of these by name are the partition.
    Behind,
    /// It should serve and does not, whether or not the limit counts it.
    Dark,
    /// It should have an available pod of the newest revision, and the roll-out does not wait for it.
    LeftOut,
    /// It should have an available pod and has none.
    Unavailable,
    /// Its pod is failing.
    Failing,
    /// It failed soon after it got the newest revision.
    FailedCanary,
    /// The roll-out waits for it: it has begun there and is incomplete.
    Waiting,
    /// It should have a pod.
    Desired,
    /// A percentage refers to these nodes. Does not depend on what is held, so that a limit that
    /// holds nodes does not depend on itself.
    Base,
    /// It should have a pod and has one.
    Current,
    /// It has a pod and should have none.
    Misscheduled,
    /// Its pod is ready.
    Ready,
    /// Its pod is of the newest revision.
    Updated,
    /// Its pod has been ready for `minReadySeconds`.
    Available,
    /// It is reachable and has no available pod of the newest revision, or an old one next to it.
    Incomplete,
    /// It is reachable and has an available pod of the newest revision and no other.
    Done,
    /// It should have an available pod of the newest revision and no other, and does not, reachable or not.
    Left,
    /// It only has a pod of an older revision.
    Outdated,
    /// The same, and the roll-out does not touch it.
    HeldBack,
    /// The limit of the roll-out counts it as unavailable.
    Unserved,
    /// It has an old pod, and a new one that is not available yet.
    Surging,
    /// It has an old pod that the newest revision excludes by its node selector.
    ExcludedBySelector,
    /// The same by its node affinity.
    ExcludedByAffinity,
    /// The same by a taint that it does not tolerate.
    ExcludedByTaint,
}

impl NodeFlag {
    /// How many flags there are.
    pub(super) const COUNT: usize = Self::ExcludedByTaint as usize + 1;
    /// How many of them have their nodes named.
    pub(super) const NAMED: usize = Self::Waiting as usize + 1;
}

/// A set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFlags(u32);

impl NodeFlags {
    fn set(&mut self, flag: NodeFlag, holds: bool) {
        self.0 |= u32::from(holds) << flag as u32;
    }

    pub(super) fn has(self, flag: NodeFlag) -> bool {
        self.has_nth(flag as usize)
    }

    pub(super) fn has_nth(self, nth: usize) -> bool {
        self.0 >> nth & 1 == 1
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The verdict on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) flags: NodeFlags,
    /// What is wrong with its pod.
    pub(super) trouble: Option<Box<str>>,
    /// When the verdict expires by time alone.
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
    /// `None` if the node is gone.
    node: Option<&'a NodeView>,
    /// Since when the node is gone.
    gone_since: Option<DateTime<Utc>>,
    /// By the placement of the newest revision; for a node that keeps an older one, by the placement of that.
    eligibility: Eligibility,
    /// By the placement of the newest revision.
    newest: Eligibility,
    /// Why the newest revision removes a pod whose own revision allows it here.
    excluded: Option<Obstacle>,
    /// The older revision that a missing pod is created from.
    keeps: Option<&'a str>,
    /// See [`NodeFlag::Behind`].
    behind: bool,
    /// The running pod of the newest revision.
    new: Option<&'a PodView>,
    /// The running pod of an older revision.
    old: Option<&'a PodView>,
    /// Running pods besides those two.
    surplus: Vec<&'a PodView>,
    /// Pods that have ended.
    ended: Vec<&'a PodView>,
    /// Pods that are being deleted.
    leaving: Vec<&'a PodView>,
    /// Pods that were created for another node of the same name.
    foreign: Vec<&'a PodView>,
    /// Pods to adopt or release.
    claims: Vec<Claim>,
    /// The last pod on the node.
    last: Option<&'a Last>,
    stance: Stance,
    /// The node has been `NotReady` for so long that the limits leave it out.
    lost: bool,
    /// It was unserved before the roll-out began, long ago: as long as it is, the limits leave it out too.
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
        input: &RolloutInput<'a>,
    ) -> Self {
        let is_lost = node
            .and_then(|node| node.not_ready_since)
            .is_some_and(|since| since + input.grace <= input.now);
        let patient_until = input.revisions.update_since + UNSERVED_GRACE;
        let mut node_state = NodeState {
            name,
            node,
            gone_since,
            eligibility: Eligibility::Leave,
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
            forgiven: stance.was_dark && patient_until <= input.now,
        };
        node_state.sort(pods, input);
        if let Some(node) = node {
            node_state.place(node, input);
        }
        node_state
    }

    /// Sorts the pods by what can be done with them.
    fn sort(&mut self, pods: impl Iterator<Item = &'a PodView>, input: &RolloutInput<'a>) {
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
        // The best first: ready, then of the later revision, then the older one.
        running.sort_by_key(|pod| {
            let known = input.revisions.known.get(pod.revision.as_str());
            let number = known.map(|known| known.number);
            let rank = std::cmp::Reverse((pod.is_ready(), number));
            (rank, pod.created, pod.name.as_str())
        });
        for pod in running {
            let is_new = pod.revision == input.revisions.update;
            let place = if is_new { &mut self.new } else { &mut self.old };
            if place.is_none() {
                *place = Some(pod);
            } else {
                self.surplus.push(pod);
            }
        }
    }

    /// Determines which revision the node is to have, and by whose placement it is eligible.
    fn place(&mut self, node: &'a NodeView, input: &RolloutInput<'a>) {
        let revisions = &input.revisions;
        let newest = input.placement.eligibility(node);
        let obstacle = input.placement.obstacle(node);
        let eligibility = |revision: &str| {
            let known = revisions.known.get(revision);
            known.map(|known| known.placement.eligibility(node))
        };
        let is_old = |pod: &&PodView| pod.revision != revisions.update;
        let mut old = self.old.iter().chain(&self.ended).chain(&self.leaving);
        let old = old.find(|pod| is_old(pod)).map(|pod| pod.revision.as_str());
        let has_new = self.new.is_some() || !self.ended.iter().all(is_old);
        (self.eligibility, self.newest) = (newest, newest);
        if let Some(old) = old {
            // Without its revision nothing proves that the node is the reason, so the limits apply.
            let own = eligibility(old).unwrap_or(match newest {
                Eligibility::Leave => Eligibility::Run,
                newest => newest,
            });
            self.excluded = obstacle.filter(|_| own != Eligibility::Leave);
            let in_place = |eligibility| {
                matches!(
                    eligibility,
                    Eligibility::Run | Eligibility::Down | Eligibility::Cordoned
                )
            };
            let counts = in_place(newest) || in_place(own) || self.excluded.is_some();
            self.behind = !has_new && counts;
            let stays = self.stance.held && self.behind;
            if self.excluded.is_some() || stays {
                self.eligibility = own;
            }
            if stays && !input.strategy.on_delete {
                self.keeps = Some(old).filter(|old| revisions.known.contains_key(old));
            }
        } else if !self.has_pods()
            && let Some(kept) = self.kept(node, newest, input)
            && eligibility(kept) == Some(Eligibility::Run)
        {
            self.behind = !self.joined(node, input);
            if self.stance.held && !input.strategy.on_delete {
                self.eligibility = Eligibility::Run;
                self.keeps = Some(kept);
            }
        }
    }

    /// Whether the node joined after the newest revision came, and so never had a pod of another
    /// one. Both times are truncated to whole seconds: if they are equal, a node that is known to
    /// have had a pod of another revision was there before.
    fn joined(&self, node: &NodeView, input: &RolloutInput<'_>) -> bool {
        let since = input.revisions.update_since;
        let had_another = |last: &Last| last.revision != input.revisions.update;
        node.created > since || (node.created == since && !self.last.is_some_and(had_another))
    }

    /// The older revision that a node without a pod gets while it is held: the one that it had.
    /// Under an auto-pause, a node that joins gets the previous one, since the newest was just
    /// found bad.
    fn kept(
        &self,
        node: &NodeView,
        newest: Eligibility,
        input: &RolloutInput<'a>,
    ) -> Option<&'a str> {
        let revisions = &input.revisions;
        let joins = self.joined(node, input);
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

    /// Whether there is a pod that is not being deleted.
    fn stays(&self) -> bool {
        self.new.is_some()
            || self.old.is_some()
            || !self.ended.is_empty()
            || !self.foreign.is_empty()
    }

    /// Whether the node should have a pod. A node that takes no new pods counts while it has one.
    fn desired(&self) -> bool {
        self.counts(self.eligibility)
    }

    fn counts(&self, eligibility: Eligibility) -> bool {
        match eligibility {
            Eligibility::Run => true,
            Eligibility::Down | Eligibility::Cordoned => self.has_pods(),
            Eligibility::Keep | Eligibility::Leave => false,
        }
    }

    /// Whether the roll-out may touch the node at all.
    fn reachable(&self) -> bool {
        matches!(self.eligibility, Eligibility::Run | Eligibility::Down)
    }

    /// Whether the limits of the roll-out count the node as served. An old pod only has to be
    /// Ready: if its age counted, a change soon after a change would find all old pods unavailable
    /// and replace all of them at once.
    fn served(&self, input: &RolloutInput<'_>) -> bool {
        self.new.is_some_and(|new| is_available(new, input))
            || self.old.is_some_and(PodView::is_ready)
    }

    /// Whether the new pod can be created next to the old one: two at most during a surge.
    fn is_alone(&self, input: &RolloutInput<'_>) -> bool {
        let others = self.ended.len() + self.foreign.len() + self.surplus.len();
        others == 0 && self.new.is_none() && !self.blocks_creation(input.revisions.update)
    }

    /// Whether a pod that is being deleted blocks the creation of another. One that has ended and
    /// is kept by a finalizer does not, as for a `DaemonSet`; but a pod of the same revision would
    /// have the same name.
    fn blocks_creation(&self, revision: &str) -> bool {
        let blocks_creation = |pod: &&PodView| pod.ended.is_none() || pod.revision == revision;
        self.leaving.iter().any(blocks_creation)
    }

    fn running(&self) -> impl Iterator<Item = &'a PodView> {
        [self.new, self.old].into_iter().flatten()
    }

    fn is_outdated(&self) -> bool {
        self.desired() && self.new.is_none() && self.old.is_some()
    }

    /// Whether the newest revision is available on the node and no pod of another is left.
    fn is_done(&self, input: &RolloutInput<'_>) -> bool {
        let runs = |pod: &&PodView| pod.ended.is_none() && pod.revision != input.revisions.update;
        let is_new = self.new.is_some_and(|new| is_available(new, input));
        // Pods of another node are about to be deleted.
        let mut going = self.leaving.iter().chain(&self.foreign);
        is_new && self.old.is_none() && !going.any(runs)
    }

    /// Whether a new pod exists or is about to exist next to the old one.
    fn is_surging(&self, input: &RolloutInput<'_>) -> bool {
        let is_new = |pod: &&&PodView| pod.revision == input.revisions.update;
        let others = self.ended.iter().chain(&self.leaving);
        self.old.is_some() && (self.new.is_some() || others.filter(is_new).count() > 0)
    }

    /// Whether the roll-out leaves the node as it is. An excluded node only loses its pod, so a
    /// cordon or a taint against a successor is not a reason.
    fn is_held(&self) -> bool {
        self.stance.held || !(self.reachable() || self.excluded.is_some())
    }

    /// Whether the roll-out leaves the old pod in place.
    fn keeps_old(&self, input: &RolloutInput<'_>) -> bool {
        self.is_held() || input.strategy.on_delete
    }

    /// The old pod, if the roll-out may replace it as soon as the limits allow. On a node that is
    /// down it stays: no successor could be created.
    fn replaceable(&self, input: &RolloutInput<'_>) -> Option<&'a PodView> {
        let is_fit = self.eligibility == Eligibility::Run && self.excluded.is_none();
        self.limited_old(input).filter(|_| is_fit)
    }

    /// The old pod, if the newest revision excludes the node and the limits decide when it goes.
    fn removable(&self, input: &RolloutInput<'_>) -> Option<&'a PodView> {
        self.limited_old(input).filter(|_| self.excluded.is_some())
    }

    fn limited_old(&self, input: &RolloutInput<'_>) -> Option<&'a PodView> {
        let old = self.old.filter(|_| self.claims.is_empty())?;
        (!self.keeps_old(input) && !self.ignores_limits(old, input)).then_some(old)
    }

    /// Whether the old pod may be deleted regardless of the limits.
    fn ignores_limits(&self, old: &PodView, input: &RolloutInput<'_>) -> bool {
        // The end of a surge, including one that was paused or whose limit was removed meanwhile.
        let outlived = self.new.is_some_and(|new| is_available(new, input));
        let outlived = outlived && self.excluded.is_none();
        let is_unserved = !old.is_ready() || self.lost;
        outlived || (is_unserved && !self.keeps_old(input))
    }

    /// The deletion of the old pod that the limits allow.
    pub(super) fn replace(&self, input: &RolloutInput<'_>) -> Option<Delete> {
        let old = self.limited_old(input)?;
        Some(self.delete(old, self.delete_reason()))
    }

    /// Why an old pod is deleted.
    fn delete_reason(&self) -> DeleteReason {
        match self.excluded {
            Some(_) => DeleteReason::Excluded,
            None => DeleteReason::Outdated,
        }
    }

    /// The pod of the newest revision on this node.
    pub(super) fn updated(&self, input: &RolloutInput<'_>) -> Create {
        self.create(input.revisions.update)
    }

    /// The verdict on this node.
    pub(super) fn judge(&self, input: &RolloutInput<'_>) -> Verdict {
        let mut needs = Decision::default();
        self.plan(input, &mut needs);
        let mut flags = NodeFlags::default();
        let claimed = !needs.claim.is_empty();
        let acts = !needs.create.is_empty() || !needs.delete.is_empty() || claimed;
        flags.set(NodeFlag::Acting, acts);
        let replaceable = self.replaceable(input).is_some();
        flags.set(NodeFlag::Replaceable, replaceable);
        flags.set(NodeFlag::Surgeable, replaceable && self.is_alone(input));
        flags.set(NodeFlag::Removable, self.removable(input).is_some());
        flags.set(NodeFlag::Behind, self.behind);
        let base = self.excluded.is_some() || self.counts(self.newest);
        flags.set(NodeFlag::Base, base);
        // A surge that is stuck because of its node frees its place for another one.
        let surging = self.reachable() && self.is_surging(input);
        flags.set(NodeFlag::Surging, surging);
        let excluded = self.excluded.filter(|_| self.old.is_some());
        let by = |obstacle| excluded == Some(obstacle);
        flags.set(NodeFlag::ExcludedBySelector, by(Obstacle::NodeSelector));
        flags.set(NodeFlag::ExcludedByAffinity, by(Obstacle::NodeAffinity));
        flags.set(NodeFlag::ExcludedByTaint, by(Obstacle::Taint));
        flags.set(
            NodeFlag::FailedCanary,
            self.reachable() && self.is_failed_canary(input),
        );
        // A node that went down still counts when it has lost its pod: otherwise each node that
        // goes down for a moment would let the roll-out take one more.
        let counts = !self.lost && (self.desired() || self.eligibility == Eligibility::Down);
        let dark = counts && !self.served(input);
        flags.set(NodeFlag::Dark, dark);
        flags.set(NodeFlag::Unserved, dark && !self.forgiven);
        let left_out = self.lost || (dark && self.forgiven);
        let touched = self.reachable() || self.excluded.is_some();
        let waited_for = touched && !left_out;
        let done = self.is_done(input);
        let desired = self.desired() || self.excluded.is_some();
        flags.set(NodeFlag::Done, waited_for && desired && done);
        flags.set(
            NodeFlag::Left,
            (desired || self.eligibility == Eligibility::Down) && !done,
        );
        flags.set(NodeFlag::LeftOut, desired && touched && left_out && !done);
        flags.set(NodeFlag::Incomplete, desired && waited_for && !done);
        let mut trouble = None;
        if self.desired() {
            let available = self.running().any(|pod| is_available(pod, input));
            let update = input.revisions.update;
            let ended_new = self.ended.iter().any(|p| p.revision == update);
            let outdated = self.is_outdated();
            let held = self.is_held() || (input.strategy.on_delete && self.old.is_some());
            flags.set(NodeFlag::Desired, true);
            flags.set(NodeFlag::Current, self.stays());
            flags.set(NodeFlag::Ready, self.running().any(PodView::is_ready));
            flags.set(NodeFlag::Updated, self.new.is_some() || ended_new);
            flags.set(NodeFlag::Available, available);
            flags.set(NodeFlag::Unavailable, !available);
            flags.set(NodeFlag::Outdated, outdated);
            flags.set(NodeFlag::HeldBack, outdated && held);
            if waited_for && !done {
                let begun = self.new.is_some() || ended_new || !self.served(input);
                // A surge that has begun continues to its end, also where the node is held.
                let surging =
                    self.new.is_some() && (self.old.is_some() || !self.leaving.is_empty());
                flags.set(NodeFlag::Waiting, surging || (!held && begun));
            }
            let mut ailing = self.running().chain(self.ended.iter().copied());
            trouble = ailing.find_map(|pod| pod.trouble.clone());
            flags.set(NodeFlag::Failing, trouble.is_some());
        } else {
            flags.set(NodeFlag::Misscheduled, self.node.is_some() && self.stays());
        }
        Verdict {
            flags,
            trouble,
            until: self.until(dark, input).chain(needs.next).min(),
        }
    }

    /// Future instants at which time alone changes the verdict.
    fn until(&self, dark: bool, input: &RolloutInput<'_>) -> impl Iterator<Item = DateTime<Utc>> {
        let available = self
            .running()
            .filter_map(|pod| available_at(pod, input.strategy.min_ready));
        let lost = self
            .node
            .and_then(|node| node.not_ready_since)
            .map(|since| since + input.grace);
        // The last instant of the trial is part of it.
        let trial = self
            .new
            .filter(|pod| is_crashing(pod))
            .map(|pod| pod.created + TRIAL + TimeDelta::milliseconds(1));
        let patience = input.revisions.update_since + UNSERVED_GRACE;
        let patience = (dark && self.stance.was_dark).then_some(patience);
        let now = input.now;
        let times: Vec<_> = available.chain(lost).chain(trial).chain(patience).collect();
        times.into_iter().filter(move |at| *at > now)
    }

    /// Whether the node failed soon after it got the newest revision. A node that was not Ready
    /// before it got its pod says nothing about the revision: a node that joins is NotReady, and
    /// its first pods may well crash.
    fn is_failed_canary(&self, input: &RolloutInput<'_>) -> bool {
        let Some(node) = self.node else {
            return false;
        };
        let new = self.ended.iter().copied().chain(self.new);
        let mut new = new.filter(|pod| pod.revision == input.revisions.update);
        new.any(|pod| {
            let trial = |at: DateTime<Utc>| at <= pod.created + TRIAL;
            // The API server truncates the creation time to a whole second: within that second, the
            // node may have gone NotReady before the pod existed.
            let went_down = |since| since >= pod.created + WHOLE_SECOND && trial(since);
            let fails = pod.ended.is_some_and(trial)
                || (is_crashing(pod) && trial(input.now))
                || node.not_ready_since.is_some_and(went_down);
            fails && node.ready_from.is_some_and(|from| from <= pod.created)
        })
    }

    /// Plans what the node needs regardless of the limits of the roll-out: pods that must not exist
    /// are deleted, a missing one is created, a failed one is replaced after its backoff.
    pub(super) fn plan(&self, input: &RolloutInput<'_>, decision: &mut Decision) {
        if !self.claims.is_empty() {
            // Nothing is done with a pod before its owner is known.
            decision.claim.extend(self.claims.iter().cloned());
            return;
        }
        match self.eligibility {
            Eligibility::Leave => {
                let reason = if self.node.is_some() {
                    DeleteReason::NotEligible
                } else {
                    DeleteReason::NodeGone
                };
                let due = self.gone_since.map(|since| since + QUARANTINE);
                if let Some(due) = due.filter(|due| *due > input.now) {
                    decision.requeue_at(due);
                    return;
                }
                let others = self.surplus.iter().chain(&self.ended);
                let pods = self.running().chain(others.copied());
                let pods = pods.filter(|pod| !self.may_stay(pod, input));
                for pod in pods.chain(self.foreign.iter().copied()) {
                    decision.delete.push(self.delete(pod, reason));
                }
                return;
            }
            // A pod that is deleted could not be replaced.
            Eligibility::Keep | Eligibility::Cordoned
                if self.excluded.is_none() || self.keeps_old(input) =>
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
        // A pod of the newest revision was created here, so the node has changed since.
        let excludes =
            |pod: &PodView| self.excluded.is_some() && pod.revision == input.revisions.update;
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
                self.plan_ended(pod, input, decision);
            }
        }
        if let Some(old) = self.old.filter(|old| self.ignores_limits(old, input)) {
            decision.delete.push(self.delete(old, self.delete_reason()));
        }
        let (missing, eligibility) = match self.keeps {
            Some(kept) => (kept, self.eligibility),
            None => (input.revisions.update, self.newest),
        };
        let is_free = !self.stays() && !self.blocks_creation(missing);
        if is_free && eligibility == Eligibility::Run {
            decision.create.push(self.create(missing));
        }
    }

    /// Whether the revision of an old pod allows it here, though that of a better one, which is to go, does not.
    fn may_stay(&self, pod: &PodView, input: &RolloutInput<'_>) -> bool {
        let known = input.revisions.known.get(pod.revision.as_str());
        let eligibility = self.node.zip(known);
        let eligibility = eligibility.map(|(node, known)| known.placement.eligibility(node));
        pod.revision != input.revisions.update
            && eligibility.is_some_and(|eligibility| eligibility != Eligibility::Leave)
    }

    /// A pod that has ended stays until its backoff is over: users look at its status, and it
    /// records the failure. One that the roll-out would replace anyway is deleted at once.
    fn plan_ended(&self, pod: &PodView, input: &RolloutInput<'_>, decision: &mut Decision) {
        let Some(ended) = pod.ended else {
            return;
        };
        let update = input.revisions.update;
        let outlived = self.new.is_some() || (self.old.is_some() && pod.revision != update);
        let replaced = pod.revision != update && !self.keeps_old(input);
        if outlived || replaced {
            let reason = if outlived {
                DeleteReason::Surplus
            } else {
                self.delete_reason()
            };
            decision.delete.push(self.delete(pod, reason));
            return;
        }
        // A pod that ran for long and then failed starts a new count of failures.
        let attempt = if ended - pod.created >= STEADY {
            0
        } else {
            pod.attempt
        };
        let due = ended + pause(attempt);
        // An end in the future means that a clock was set back: nothing waits for it.
        if due > input.now && ended <= input.now {
            decision.requeue_at(due);
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

    fn delete(&self, pod: &PodView, reason: DeleteReason) -> Delete {
        Delete {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: self.name.to_owned(),
            reason,
            last: Last {
                revision: pod.revision.clone(),
                attempt: pod.attempt,
                excluded: reason == DeleteReason::Excluded,
            },
            version: pod
                .version
                .as_deref()
                .filter(|_| reason.is_due_to_revision())
                .map(str::to_owned),
        }
    }
}

/// Whether the pod was created for a node that is gone and whose name another node has now. The
/// name of an adopted pod was built with the UID of another object, so the name alone does not say.
fn is_foreign(pod: &PodView, node: &NodeView) -> bool {
    let name = || pod::name(&node.name, &node.uid, &pod.owner_uid, &pod.revision);
    pod.created < node.created && pod.name != name()
}

/// Whether the pod is failing in a way that points at its revision.
fn is_crashing(pod: &PodView) -> bool {
    pod.trouble.as_deref().is_some_and(|t| FATAL.contains(&t)) || pod.restarts >= CRASH_RESTARTS
}

/// When a pod has been ready for long enough.
fn available_at(pod: &PodView, min_ready: TimeDelta) -> Option<DateTime<Utc>> {
    pod.ready_since
        .filter(|_| pod.is_ready())
        .map(|since| since + min_ready)
}

fn is_available(pod: &PodView, input: &RolloutInput<'_>) -> bool {
    // A time in the future means that a clock was set back: nothing waits for it.
    let was_set_back = pod.ready_since.is_some_and(|since| since > input.now);
    let at = available_at(pod, input.strategy.min_ready);
    at.is_some_and(|at| at <= input.now || was_set_back)
}
