//! One node by itself: its pods, sorted by what can be done with them, and which revision it is to
//! have. [`plan`] says what it needs whatever happens on the others, [`judge`] what counts.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::decision::{Claim, Create, Delete, DeleteReason};
use super::input::{Last, RolloutInput};
use super::observed::WaitsFor;
use super::placement::{Eligibility, Obstacle};
use crate::observe::node::NodeView;
use crate::observe::pod::PodView;
use crate::observe::predecessor::Predecessor;

pub(crate) mod flags;
pub(super) mod judge;
pub(super) mod plan;
mod pods;

use pods::{crashes_from, is_available, is_steady};

/// What the roll-out as a whole means for a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stance {
    /// A pause, an auto-pause, the partition, another domain or a closed window keeps it on its revision.
    pub(super) held: bool,
    /// Which of these it is, if not all nodes are held by the same: the partition, or another domain.
    pub(super) holds: Option<WaitsFor>,
    /// The roll-out was stopped because of failing nodes.
    pub(super) auto_paused: bool,
}

/// One node and the object's pods on it.
#[derive(Default)]
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
    /// Admission keeps pods of the newest revision from it.
    barred: bool,
    /// Why the newest revision removes a pod whose own revision allows it here.
    excluded: Option<Obstacle>,
    /// The older revision that a missing pod is created from.
    keeps: Option<&'a str>,
    /// See [`flags::NodeFlag::Behind`].
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
    /// Pods to adopt or release.
    claims: Vec<Claim>,
    /// The last pod on the node.
    last: Option<&'a Last>,
    stance: Stance,
    /// The newest revision.
    update: &'a str,
    /// The limits leave the node out: it is in maintenance, or has been `NotReady` for long.
    lost: bool,
    /// When the limits leave it out too, unless it is served: it was unavailable before its turn, so waiting for it
    /// protects nothing. `None` if it is served, or the roll-out itself may have made it unavailable.
    patience_ends: Option<DateTime<Utc>>,
}

/// A node and what is on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OnNode {
    /// `None` if the node is gone.
    pub(crate) node: Option<Arc<NodeView>>,
    /// Since when the node is gone.
    pub(crate) gone_since: Option<DateTime<Utc>>,
    /// The object's pods there.
    pub(crate) pods: Vec<Arc<PodView>>,
    /// The last pod on the node, as far as it is remembered.
    pub(crate) last: Option<Box<Last>>,
}

impl<'a> NodeState<'a> {
    pub(super) fn new(
        name: &'a str,
        on_node: &'a OnNode,
        stance: Stance,
        input: &RolloutInput<'a>,
    ) -> Self {
        let node = on_node.node.as_deref();
        let is_lost = node
            .and_then(|node| node.not_ready_since)
            .is_some_and(|since| since + input.grace <= input.now);
        let mut node_state = NodeState {
            name,
            node,
            gone_since: on_node.gone_since,
            last: on_node.last.as_deref(),
            stance,
            update: input.revisions.update,
            lost: is_lost || node.is_some_and(|node| node.in_maintenance),
            ..NodeState::default()
        };
        node_state.sort(on_node.pods.iter().map(AsRef::as_ref), input);
        if let Some(node) = node {
            node_state.place(node, input);
        }
        let since = node_state.unavailable_since(input);
        let since = since.map(|since| since.max(input.revisions.update_since));
        node_state.patience_ends = since.map(|since| since + input.strategy.progress_deadline);
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
            // One that is being deleted cannot be adopted, but it is on its node all the same.
            if pod.is_orphan() && !pod.deleting {
                self.claims.push(Claim::adopt(pod));
            }
            if pod.deleting {
                self.leaving.push(pod);
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
        self.barred = input.placement.is_barred(node);
        if let Some(old) = old {
            // Without its revision nothing proves that the node is the reason, so the limits apply.
            let own = eligibility(old).unwrap_or(match newest {
                Eligibility::Leave => Eligibility::Run,
                newest => newest,
            });
            self.excluded = obstacle.filter(|_| own != Eligibility::Leave);
            let counts = newest.is_in_place() || self.excluded.is_some();
            self.behind = !has_new && counts;
            // Admission that bars the newest revision says nothing about the pod's own, until the roll-out is completed.
            let is_barred = self.barred && !has_new && !revisions.is_at_current();
            let stays = self.stance.held && (self.behind || is_barred);
            if self.excluded.is_some() || stays {
                self.eligibility = own;
            }
            if stays && !input.strategy.on_delete {
                self.keeps = Some(old).filter(|old| revisions.known.contains_key(old));
            }
        } else if !self.has_pods()
            && let Some(kept) = self.kept(node, newest, input)
            && let Some(known) = revisions.known.get(kept)
            && let own = known.placement.eligibility(node)
            && (own == Eligibility::Run || known.placement.is_barred(node))
        {
            // During a canary a node that joins gets the revision before. If it is to be a canary, it stays one after that
            // pod was deleted for it.
            let had_older = input.canary().is_some() && self.had_another(input);
            self.behind = had_older || !self.joined(node, input);
            if self.stance.held && !input.strategy.on_delete {
                self.eligibility = own;
                self.keeps = Some(kept);
            }
        }
    }

    /// Whether the node joined after the newest revision came, and so never had a pod of another
    /// one. A revision that is not stored has not come yet. Both times are truncated to whole
    /// seconds: if they are equal, a node that is known to have had a pod of another revision was
    /// there before.
    fn joined(&self, node: &NodeView, input: &RolloutInput<'_>) -> bool {
        let since = input.revisions.update_since;
        let is_later = node.created > since || (node.created == since && !self.had_another(input));
        input.revisions.stored && is_later
    }

    /// Whether the last pod here is known to have been of another revision than the newest.
    fn had_another(&self, input: &RolloutInput<'_>) -> bool {
        let update = input.revisions.update;
        self.last.is_some_and(|last| last.revision != update)
    }

    /// The older revision that a node without a pod gets while it is held: the one that it had.
    /// Under an auto-pause, a node that joins gets the previous one, since the newest was just
    /// found bad; and during a canary, since it was not found good yet.
    fn kept(
        &self,
        node: &NodeView,
        newest: Eligibility,
        input: &RolloutInput<'a>,
    ) -> Option<&'a str> {
        let revisions = &input.revisions;
        let joins = self.joined(node, input);
        let is_doubted = self.stance.auto_paused || input.canary().is_some();
        if joins && !(is_doubted && newest == Eligibility::Run) {
            return None;
        }
        let is_known = |hash: &&str| revisions.known.contains_key(hash);
        let last = self.last.filter(|last| is_known(&last.revision.as_str()));
        // Where a roll-out that is completed makes no pod, a window that closes or a pause that comes later does not either.
        let is_over = newest != Eligibility::Run && revisions.is_at_current();
        let kept = match last {
            Some(last) => Some(last.revision.as_str()).filter(|_| !last.excluded && !is_over),
            // It may well have lost its pod to the newest revision.
            None if newest == Eligibility::Leave && input.revisions.stored => None,
            None => Some(revisions.current).filter(is_known).or_else(|| {
                // After a migration, nothing is known of the revision of the pods: any other is better than one that fails.
                revisions.previous().filter(|_| is_doubted)
            }),
        };
        kept.filter(|kept| *kept != revisions.update)
    }

    fn has_pods(&self) -> bool {
        self.stays() || !self.leaving.is_empty()
    }

    /// Whether there is a pod that is not being deleted.
    fn stays(&self) -> bool {
        self.new.is_some() || self.old.is_some() || !self.ended.is_empty()
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
        self.new.is_some_and(|new| self.is_proven(new, input))
            || self.old.is_some_and(PodView::is_ready)
    }

    /// Whether a pod of the newest revision is available. On a node that has gone NotReady since it
    /// is not, whatever its last status says.
    fn is_proven(&self, new: &PodView, input: &RolloutInput<'_>) -> bool {
        let silent_since = self.silent_since();
        is_available(new, input) && silent_since.is_none_or(|since| since < new.created)
    }

    /// When the newest revision will have been available for that long on this node without a restart, and no pod of another
    /// be there; `None` while it is not available.
    pub(super) fn soaked_at(
        &self,
        soak: TimeDelta,
        input: &RolloutInput<'_>,
    ) -> Option<DateTime<Utc>> {
        let new = self.new.filter(|new| self.is_proven(new, input))?;
        // A container may restart so fast that the pod stays Ready.
        let restarted = new.last_restart.map(|restart| restart.at);
        let since = new.ready_since.max(restarted)?;
        let is_alone = self.is_done(input);
        is_alone.then(|| since + input.strategy.min_ready + soak)
    }

    /// Since when the node has been unavailable for another reason than this roll-out, as far as
    /// its pods show it.
    fn unavailable_since(&self, input: &RolloutInput<'_>) -> Option<DateTime<Utc>> {
        if let Some(new) = self.newest_pod() {
            // One that became unready after the deadline has served in between.
            let failed = new.unready_since.max(self.silent_since());
            let served = |at: &DateTime<Utc>| *at > new.created + input.strategy.progress_deadline;
            let failed = failed.filter(|at| served(at) && crashes_from(new).is_none());
            return match new.predecessor {
                Predecessor::Available => None,
                Predecessor::Unavailable(since) => failed.or(Some(since)),
                Predecessor::Unknown => failed.or(Some(new.created)),
            };
        }
        let ended = || self.ended.first().and_then(|pod| pod.ended);
        self.old.map_or_else(ended, |old| old.unready_since)
    }

    /// The pod of the newest revision, running or ended.
    fn newest_pod(&self) -> Option<&'a PodView> {
        let ended = || self.ended.iter().find(|pod| !self.is_old(pod)).copied();
        self.new.or_else(ended)
    }

    fn is_old(&self, pod: &PodView) -> bool {
        pod.revision != self.update
    }

    /// Whether the node is Ready and not in maintenance. A pod is not deleted for a roll-out on one that is not Ready:
    /// nothing could follow it, and its containers go on until the kubelet is back.
    fn is_up(&self) -> bool {
        self.node.is_some() && self.silent_since().is_none() && !self.in_maintenance()
    }

    /// Whether a condition of the node says that it is out of service.
    fn in_maintenance(&self) -> bool {
        self.node.is_some_and(|node| node.in_maintenance)
    }

    /// Since when the node has not been Ready, if it is not.
    fn silent_since(&self) -> Option<DateTime<Utc>> {
        self.node?.not_ready_since
    }

    /// Whether the new pod can be created next to the old one: two at most during a surge.
    fn is_alone(&self, input: &RolloutInput<'_>) -> bool {
        let others = self.ended.len() + self.surplus.len();
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

    /// Whether the roll-out may reach the node, whose stance is that nothing else holds it. While the node is lost, nothing
    /// waits for that.
    pub(super) fn is_free(&self) -> bool {
        !self.is_held() && !self.lost
    }

    /// Whether the same is so, but for its being lost, of a node that keeps an old pod meanwhile.
    pub(super) fn is_given_up(&self) -> bool {
        !self.is_held() && self.lost && self.is_outdated()
    }

    fn is_outdated(&self) -> bool {
        self.desired() && self.new.is_none() && self.old.is_some()
    }

    /// Whether the newest revision is available on the node and no pod of another is left.
    fn is_done(&self, input: &RolloutInput<'_>) -> bool {
        let runs = |pod: &&PodView| pod.ended.is_none() && pod.revision != input.revisions.update;
        let is_new = self.new.is_some_and(|new| is_available(new, input));
        is_new && self.old.is_none() && !self.leaving.iter().any(runs)
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

    /// The old pod, if it serves and the roll-out may replace it as soon as the limits allow.
    fn replaceable(&self, input: &RolloutInput<'_>) -> Option<&'a PodView> {
        let is_fit = self.eligibility == Eligibility::Run && self.excluded.is_none();
        let serves = |old: &&PodView| is_fit && old.is_ready();
        self.limited_old(input).filter(serves)
    }

    /// The old pod that does not serve, if the roll-out may replace or remove it as soon as the
    /// revision has been proven on enough other nodes.
    fn broken(&self, input: &RolloutInput<'_>) -> Option<&'a PodView> {
        let is_fit = self.eligibility == Eligibility::Run || self.excluded.is_some();
        let fails = |old: &&PodView| is_fit && !old.is_ready();
        self.limited_old(input).filter(fails)
    }

    /// The old pod, if it serves, the newest revision excludes the node, and the limits decide when it goes.
    fn removable(&self, input: &RolloutInput<'_>) -> Option<&'a PodView> {
        let serves = |old: &&PodView| self.excluded.is_some() && old.is_ready();
        self.limited_old(input).filter(serves)
    }

    fn limited_old(&self, input: &RolloutInput<'_>) -> Option<&'a PodView> {
        // One that has ended, until its pause is over: then it is made again in any case. Where none follows, it goes at once.
        let pauses = |pod: &&PodView| {
            let pause = pod
                .ended
                .and_then(|ended| plan::pause_ends(pod, ended, input));
            self.is_old(pod) && pause.is_some()
        };
        let ended = || self.ended.iter().copied().find(pauses);
        let is_succeeded = self.new.is_none() && self.excluded.is_none();
        let old = self.old.or_else(|| ended().filter(|_| is_succeeded))?;
        let may_go = self.claims.is_empty() && self.is_up() && !self.keeps_old(input);
        (may_go && !self.ignores_limits(old, input)).then_some(old)
    }

    /// Whether the old pod may be deleted regardless of the limits: the end of a surge, including
    /// one that was paused or whose limit was removed meanwhile; or a pod that serves no more next
    /// to a new one.
    fn ignores_limits(&self, old: &PodView, input: &RolloutInput<'_>) -> bool {
        self.new.is_some_and(|new| {
            let outlived = self.excluded.is_none() && self.is_proven(new, input);
            let useless = !old.is_ready() && !self.keeps_old(input);
            self.is_up() && (outlived || useless)
        })
    }

    /// The deletion of the old pod that the limits allow.
    pub(super) fn replace(&self, input: &RolloutInput<'_>) -> Option<Delete> {
        let old = self.limited_old(input)?;
        let mut delete = self.delete(old, self.delete_reason());
        delete.last.was = evidence(old, input);
        Some(delete)
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
        let mut create = self.create(input.revisions.update);
        if let Some(old) = self.old {
            create.predecessor = evidence(old, input);
        }
        create
    }
}

/// What an old pod is to its successor.
fn evidence(old: &PodView, input: &RolloutInput<'_>) -> Predecessor {
    if (old.is_ready() && is_steady(old, input)) || is_failed_try(old, input) {
        return Predecessor::Available;
    }
    let since = old.unready_since.or(old.ended).unwrap_or(input.now);
    Predecessor::Unavailable(since.min(input.now))
}

/// Whether an old pod took the place of an available one in a roll-out that was never completed, and did not work. Its
/// successor is then what takes that place: if one bad revision follows another, the second one must not find the node
/// excused because of the first, and go on to nodes that serve.
fn is_failed_try(old: &PodView, input: &RolloutInput<'_>) -> bool {
    let revisions = &input.revisions;
    let never_completed = old.revision != revisions.current && !revisions.is_way_out();
    let by = old.created + input.strategy.progress_deadline;
    let down = old.unready_since.or(old.ended);
    let never_served = crashes_from(old).is_some() || down.is_some_and(|since| since <= by);
    let failed = never_served && !old.disrupted;
    old.predecessor == Predecessor::Available && never_completed && failed
}
