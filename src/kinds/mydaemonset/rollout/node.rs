//! One node by itself: what is the case there, and what it needs whatever happens on the others.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Claim, Create, Decision, Delete, Last, Terms, Why, pause};
use crate::kinds::mydaemonset::placement::Fate;
use crate::kinds::mydaemonset::views::{NodeView, PodView};

/// A pod that lived so long before it failed does not count as one of a row of failures.
const STEADY: TimeDelta = TimeDelta::minutes(15);
/// A node that fails within this time after it got the newest revision speaks against the revision.
const TRIAL: TimeDelta = TimeDelta::minutes(10);
/// Times of creation are whole seconds.
const WHOLE_SECOND: TimeDelta = TimeDelta::seconds(1);
/// So many restarts of a container within that time are a crash loop.
const CRASH_RESTARTS: u32 = 2;
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
pub(super) enum Mark {
    /// It has something to do that asks no limit.
    Acting,
    /// Its old pod may be deleted within the limit.
    Replaceable,
    /// It may get the new pod beside the old one within the limit.
    Surgeable,
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
}

impl Mark {
    /// How many there are.
    pub(super) const COUNT: usize = Self::Surging as usize + 1;
    /// How many of them have their nodes named.
    pub(super) const NAMED: usize = Self::Waiting as usize + 1;
}

/// A set of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(u32);

impl Marks {
    fn set(&mut self, mark: Mark, holds: bool) {
        self.0 |= u32::from(holds) << mark as u32;
    }

    pub(super) fn has(self, mark: Mark) -> bool {
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
    pub(super) marks: Marks,
    /// What ails its pod.
    pub(super) trouble: Option<Box<str>>,
    /// When time alone changes the verdict.
    pub(super) until: Option<DateTime<Utc>>,
}

/// One node and the object's pods on it.
pub(super) struct Slot<'a> {
    name: &'a str,
    /// None when the node is gone.
    node: Option<&'a NodeView>,
    fate: Fate,
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
    /// Pods that are to become the object's, or to be so no more.
    claims: Vec<Claim>,
    /// What was last on the node.
    last: Option<&'a Last>,
    /// The roll-out does not touch the node.
    held: bool,
    /// The node has been `NotReady` for so long that the limits leave it out.
    lost: bool,
}

impl<'a> Slot<'a> {
    /// `held` is whether the roll-out leaves the node out for the sake of a pause or the partition.
    pub(super) fn new(
        name: &'a str,
        node: Option<&'a NodeView>,
        pods: impl Iterator<Item = &'a PodView>,
        last: Option<&'a Last>,
        held: bool,
        terms: &Terms<'_>,
    ) -> Self {
        let fate = node.map_or(Fate::Leave, |node| terms.placement.fate(node));
        let mut slot = Self {
            name,
            node,
            fate,
            new: None,
            old: None,
            surplus: Vec::new(),
            ended: Vec::new(),
            leaving: Vec::new(),
            claims: Vec::new(),
            last,
            held: false,
            lost: node
                .and_then(|node| node.not_ready_since)
                .is_some_and(|since| since + terms.grace <= terms.now),
        };
        slot.held = held || !slot.reachable();
        let mut running: Vec<&PodView> = Vec::new();
        for pod in pods {
            if pod.is_released && !pod.deleting {
                slot.claims.push(Claim::release(pod));
                continue;
            }
            if pod.is_orphan() {
                if pod.deleting {
                    continue;
                }
                slot.claims.push(Claim::adopt(pod));
            }
            if pod.deleting {
                slot.leaving.push(pod);
            } else if pod.ended.is_some() {
                slot.ended.push(pod);
            } else {
                running.push(pod);
            }
        }
        // The best first: ready, of the later revision, the older one.
        running.sort_by_key(|pod| {
            let number = terms.revisions.known.get(pod.revision.as_str()).copied();
            let rank = std::cmp::Reverse((pod.is_ready(), number));
            (rank, pod.created, pod.name.as_str())
        });
        for pod in running {
            let is_new = pod.revision == terms.revisions.update;
            let place = if is_new { &mut slot.new } else { &mut slot.old };
            if place.is_none() {
                *place = Some(pod);
            } else {
                slot.surplus.push(pod);
            }
        }
        slot
    }

    fn has_pods(&self) -> bool {
        self.stays() || !self.leaving.is_empty()
    }

    /// Whether there is a pod that nobody has deleted yet.
    fn stays(&self) -> bool {
        self.new.is_some() || self.old.is_some() || !self.ended.is_empty()
    }

    /// Whether the node should have a pod. One that takes no new pods counts while it has one.
    fn desired(&self) -> bool {
        match self.fate {
            Fate::Run => true,
            Fate::Down | Fate::Cordoned => self.has_pods(),
            Fate::Keep | Fate::Leave => false,
        }
    }

    /// Whether the roll-out may touch the node at all.
    fn reachable(&self) -> bool {
        matches!(self.fate, Fate::Run | Fate::Down)
    }

    /// Whether the limits of the roll-out see the node as served. Of an old pod no more is asked
    /// than that it is Ready: were its age asked for, a change soon after a change would find all
    /// old pods unavailable and replace every one of them at once.
    fn served(&self, terms: &Terms<'_>) -> bool {
        self.new.is_some_and(|new| is_available(new, terms))
            || self.old.is_some_and(PodView::is_ready)
    }

    /// Whether the old pod is the only one of ours on the node: two at most during a surge.
    fn is_alone(&self) -> bool {
        let others = self.ended.len() + self.leaving.len() + self.surplus.len();
        others == 0 && self.new.is_none()
    }

    fn running(&self) -> impl Iterator<Item = &'a PodView> {
        [self.new, self.old].into_iter().flatten()
    }

    fn is_outdated(&self) -> bool {
        self.desired() && self.new.is_none() && self.old.is_some()
    }

    /// Whether the newest revision is available on the node and nothing of another is left.
    fn is_done(&self, terms: &Terms<'_>) -> bool {
        let leaves = |pod: &&PodView| pod.ended.is_none() && pod.revision != terms.revisions.update;
        let is_new = self.new.is_some_and(|new| is_available(new, terms));
        is_new && self.old.is_none() && !self.leaving.iter().any(leaves)
    }

    /// Whether a new pod is there or on its way beside the old one.
    fn is_surging(&self, terms: &Terms<'_>) -> bool {
        let is_new = |pod: &&&PodView| pod.revision == terms.revisions.update;
        let others = self.ended.iter().chain(&self.leaving);
        self.old.is_some() && (self.new.is_some() || others.filter(is_new).count() > 0)
    }

    /// Whether the roll-out leaves the old pod where it is.
    fn holds_old(&self, terms: &Terms<'_>) -> bool {
        self.held || terms.strategy.on_delete
    }

    /// The old pod, where the roll-out may delete it as soon as the limits allow. On a node that is
    /// down it stays: nothing could be made in its place.
    fn replaceable(&self, terms: &Terms<'_>) -> Option<&'a PodView> {
        let old = self.old.filter(|_| self.fate == Fate::Run)?;
        (!self.holds_old(terms) && !self.goes_freely(old, terms)).then_some(old)
    }

    /// Whether the limits have no say in the end of the old pod.
    fn goes_freely(&self, old: &PodView, terms: &Terms<'_>) -> bool {
        // The end of a surge, also of one that was paused or whose limit was taken away meanwhile.
        let outlived = self.new.is_some_and(|new| is_available(new, terms));
        let serves_nobody = !old.is_ready() || self.lost;
        outlived || (serves_nobody && !self.holds_old(terms))
    }

    /// The deletion of the old pod that the limits allow.
    pub(super) fn replace(&self, terms: &Terms<'_>) -> Option<Delete> {
        let old = self.replaceable(terms)?;
        Some(self.delete(old, Why::Outdated))
    }

    /// The pod of the newest revision on this node.
    pub(super) fn updated(&self, terms: &Terms<'_>) -> Create {
        self.create(terms.revisions.update)
    }

    /// What is the case.
    pub(super) fn judge(&self, terms: &Terms<'_>) -> Verdict {
        let mut needs = Decision::default();
        self.settle(terms, &mut needs);
        let mut marks = Marks::default();
        let claimed = !needs.claim.is_empty();
        let acts = !needs.create.is_empty() || !needs.delete.is_empty() || claimed;
        marks.set(Mark::Acting, acts);
        let replaceable = !claimed && self.replaceable(terms).is_some();
        marks.set(Mark::Replaceable, replaceable);
        marks.set(Mark::Surgeable, replaceable && self.is_alone());
        marks.set(Mark::Surging, self.is_surging(terms));
        marks.set(Mark::Culprit, self.reachable() && self.is_culprit(terms));
        // A node that went down still counts when it has lost its pod: else each that goes down for a
        // moment would let the roll-out take one more.
        let counts = !self.lost && (self.desired() || self.fate == Fate::Down);
        marks.set(Mark::Unserved, counts && !self.served(terms));
        let in_reach = self.reachable() && !self.lost;
        let done = self.is_done(terms);
        marks.set(Mark::Done, in_reach && done);
        marks.set(
            Mark::Left,
            (self.desired() || self.fate == Fate::Down) && !done,
        );
        let mut trouble = None;
        if self.desired() {
            let available = self.running().any(|pod| is_available(pod, terms));
            let update = terms.revisions.update;
            let ended_new = self.ended.iter().any(|p| p.revision == update);
            let outdated = self.is_outdated();
            let held = self.held || (terms.strategy.on_delete && self.old.is_some());
            marks.set(Mark::Desired, true);
            marks.set(Mark::Current, self.stays());
            marks.set(Mark::Ready, self.running().any(PodView::is_ready));
            marks.set(Mark::Updated, self.new.is_some() || ended_new);
            marks.set(Mark::Available, available);
            marks.set(Mark::Unavailable, !available);
            marks.set(Mark::Outdated, outdated);
            marks.set(Mark::HeldBack, outdated && held);
            if in_reach && !done {
                marks.set(Mark::Incomplete, true);
                let begun = self.new.is_some() || ended_new || !self.served(terms);
                // A surge that has begun goes on to its end, also where the node is held.
                let surging =
                    self.new.is_some() && (self.old.is_some() || !self.leaving.is_empty());
                marks.set(Mark::Waiting, surging || (!held && begun));
            }
            let mut ailing = self.running().chain(self.ended.iter().copied());
            trouble = ailing.find_map(|pod| pod.trouble.clone());
            marks.set(Mark::Failing, trouble.is_some());
        } else {
            marks.set(Mark::Misscheduled, self.node.is_some() && self.stays());
        }
        Verdict {
            marks,
            trouble,
            until: self.until(terms).chain(needs.next).min(),
        }
    }

    /// The instants to come at which time alone changes something.
    fn until(&self, terms: &Terms<'_>) -> impl Iterator<Item = DateTime<Utc>> {
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
        let now = terms.now;
        let times: Vec<_> = available.chain(lost).chain(trial).collect();
        times.into_iter().filter(move |at| *at > now)
    }

    /// Whether the node failed soon after it got the newest revision. A node that has not been Ready before it got its
    /// pod says nothing about the revision: a node that joins is NotReady, and its first pods may well crash.
    fn is_culprit(&self, terms: &Terms<'_>) -> bool {
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
    pub(super) fn settle(&self, terms: &Terms<'_>, decision: &mut Decision) {
        if !self.claims.is_empty() {
            // Nothing is done with a pod before it is known whose it is.
            decision.claim.extend(self.claims.iter().cloned());
            return;
        }
        match self.fate {
            Fate::Leave => {
                let why = if self.node.is_some() {
                    Why::NotEligible
                } else {
                    Why::NodeGone
                };
                let pods = self.running().chain(self.surplus.iter().copied());
                for pod in pods.chain(self.ended.iter().copied()) {
                    decision.delete.push(self.delete(pod, why));
                }
                return;
            }
            // Nothing could take the place of a pod that goes.
            Fate::Keep | Fate::Cordoned => return,
            Fate::Run | Fate::Down => {}
        }
        for pod in &self.surplus {
            decision.delete.push(self.delete(pod, Why::Surplus));
        }
        for pod in &self.ended {
            self.settle_ended(pod, terms, decision);
        }
        if let Some(old) = self.old.filter(|old| self.goes_freely(old, terms)) {
            decision.delete.push(self.delete(old, Why::Outdated));
        }
        if !self.has_pods() && self.fate == Fate::Run {
            decision.create.push(self.missing(terms));
        }
    }

    /// A pod that has ended stays until its pause is over: its status is what people look for, and
    /// the memory of the failure. One that the roll-out would replace anyway goes at once.
    fn settle_ended(&self, pod: &PodView, terms: &Terms<'_>, decision: &mut Decision) {
        let Some(ended) = pod.ended else {
            return;
        };
        let update = terms.revisions.update;
        let outlived = self.new.is_some() || (self.old.is_some() && pod.revision != update);
        let replaced = pod.revision != update && !self.held && !terms.strategy.on_delete;
        if outlived || replaced {
            let why = if outlived {
                Why::Surplus
            } else {
                Why::Outdated
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
        let mut delete = self.delete(pod, Why::Failed);
        delete.last.attempt = attempt.saturating_add(1);
        decision.delete.push(delete);
    }

    /// The pod that a node without one gets. A held node gets its revision again, a node that
    /// joined after the newest revision came never had another.
    fn missing(&self, terms: &Terms<'_>) -> Create {
        let revisions = &terms.revisions;
        let its_own = || {
            let last = self.last.map(|last| last.revision.as_str());
            last.into_iter()
                .chain([revisions.current])
                .find(|hash| revisions.known.contains_key(hash))
        };
        let old = self.held && !terms.strategy.on_delete;
        let joined_before = self
            .node
            .is_some_and(|node| node.created <= revisions.update_since);
        let revision = match its_own() {
            Some(own) if old && joined_before => own,
            _ => revisions.update,
        };
        self.create(revision)
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

    fn delete(&self, pod: &PodView, why: Why) -> Delete {
        Delete {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: self.name.to_owned(),
            why,
            last: Last {
                revision: pod.revision.clone(),
                attempt: pod.attempt,
            },
        }
    }
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

fn is_available(pod: &PodView, terms: &Terms<'_>) -> bool {
    // An instant still to come tells of a clock that was set back: nothing waits for it.
    let was_set_back = pod.ready_since.is_some_and(|since| since > terms.now);
    let at = available_at(pod, terms.strategy.min_ready);
    at.is_some_and(|at| at <= terms.now || was_set_back)
}
