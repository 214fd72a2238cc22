//! Checks every decision against the promises of docs/mydaemonset/rollout.md, derived from the page
//! alone and not from the code that decides. `pods` are those that the operator knows of: there is
//! no allowance for anything.

use std::cell::OnceCell;
use std::cmp::Reverse;

use super::*;
use crate::decide::observed::Observed;
use crate::decide::placement::Eligibility;

/// Everything that a decision is about.
pub(super) struct Case<'a> {
    pub(super) nodes: &'a [NodeView],
    pub(super) pods: &'a [PodView],
    pub(super) strategy: Strategy,
    pub(super) known: &'a BTreeMap<&'a str, Known>,
    pub(super) update: &'a str,
    /// The revision that failed, if the roll-out goes back from it by itself.
    pub(super) undone: Option<&'a str>,
    pub(super) update_since: DateTime<Utc>,
    pub(super) current: &'a str,
    /// The last pods of nodes without one.
    pub(super) last: &'a BTreeMap<String, Last>,
    /// The nodes that the roll-out was stopped for before this decision, if it was.
    pub(super) was_stopped: Option<&'a [FailedNode]>,
    /// It was resumed in spite of them.
    pub(super) resumed: bool,
    pub(super) freeze: Option<Freeze>,
    pub(super) now: DateTime<Utc>,
    /// The canary that the spec asks for, unless the status says that it is over.
    pub(super) canary: Option<&'a Canary>,
    pub(super) approved: bool,
    /// Whether no window is open, and the pods do not go back.
    pub(super) is_outside: bool,
    /// The canaries that the decision names.
    pub(super) canaries: Option<&'a BTreeSet<String>>,
    /// The zones that come first, if the revision is to reach one after the other.
    pub(super) order: Option<&'a [&'static str]>,
    /// See [`Case::turn`].
    pub(super) turn: OnceCell<Option<(usize, String)>>,
}

/// A promise that was broken.
#[derive(Debug)]
pub(super) struct Fault(pub(super) String);

/// Returns a fault unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(Fault(format!($($words)+)));
        }
    };
}

pub(super) use ensure;

fn is_live(pod: &PodView) -> bool {
    !pod.deleting && pod.ended.is_none()
}

/// Whether a node has the labels that canaries must have.
fn fits(node: &NodeView, canary: &Canary) -> bool {
    let mut labels = canary.selector.iter();
    labels.all(|(key, value)| node.label(key) == Some(value.as_str()))
}

/// Whether an existing pod counts.
fn is_in_place(eligibility: Eligibility) -> bool {
    matches!(
        eligibility,
        Eligibility::Run | Eligibility::Down | Eligibility::Cordoned
    )
}

impl Case<'_> {
    /// The first promise that a decision breaks.
    pub(super) fn check(&self, decision: &Decision) -> Result<(), Fault> {
        let (limit, surge) = self.limits();
        let observed = &decision.observed;
        ensure!(
            observed.max_unavailable == limit,
            "maxUnavailable is {limit}"
        );
        self.check_canary(observed)?;
        let must_stop = self.must_stop(limit);
        ensure!(
            observed.auto_paused == must_stop,
            "whether it stops: {must_stop}"
        );
        for failed in &observed.stopped_for {
            let known = self.was_stopped.unwrap_or_default().contains(failed);
            let is_there = self.nodes.iter().any(|node| node.name == failed.name);
            ensure!(known || is_there, "stopped for {failed:?}, which is gone");
        }
        ensure!(
            observed.no_node == self.has_no_node(),
            "whether it stands for want of a node"
        );
        let stopped = observed.auto_paused;
        self.check_freeze(decision)?;
        // Two old pods of one node may go at once: it counts once.
        let mut paid = BTreeSet::new();
        let mut removed = BTreeSet::new();
        let mut tried = BTreeSet::new();
        for delete in &decision.delete {
            let pays = self.check_delete(delete, decision, stopped, surge)?;
            if pays {
                paid.insert(&delete.node);
                removed.extend((delete.reason == DeleteReason::Excluded).then_some(&delete.node));
            }
            // Where a surge was begun under another strategy, the newest revision is there, and only the older one serves.
            let depends_on_it = pays || !self.has_new(&delete.node);
            let is_step = delete.reason == DeleteReason::Outdated && depends_on_it;
            tried.extend(is_step.then_some(&delete.node));
        }
        let unproven = self.unproven(stopped);
        let proofs = if surge > 0 { surge } else { limit.max(1) };
        ensure!(
            tried.is_empty() || unproven + tried.len() <= proofs,
            "{tried:?} depend on the newest revision while {unproven} nodes have not proven it, limit {proofs}"
        );
        let unserved = self.unserved(stopped);
        let total = unserved + paid.len();
        // Nothing replaces a pod that is only removed.
        let most = if removed.is_empty() {
            limit
        } else {
            limit.max(1)
        };
        ensure!(
            paid.is_empty() || total <= most,
            "{paid:?} lose a serving pod while {unserved} nodes are unavailable, limit {limit}"
        );
        ensure!(
            surge > 0
                || total >= limit
                || unproven + tried.len() >= proofs
                || !self.is_idle(decision, stopped),
            "a node waits while {total} nodes are unavailable, limit {limit}"
        );
        let mut surges = 0;
        let mut steps = &paid | &tried;
        for create in &decision.create {
            let begins = self.check_create(create, stopped, surge)?;
            surges += usize::from(begins);
            steps.extend(begins.then_some(&create.node));
        }
        self.check_domains(&steps)?;
        let surging = self
            .nodes
            .iter()
            .filter(|node| self.is_surging(node, stopped));
        let surging = surging.count();
        ensure!(
            surges == 0 || surging + surges <= surge,
            "{surges} surges begin beside {surging}, limit {surge}"
        );
        if observed.complete {
            self.check_complete(stopped)?;
        }
        Ok(())
    }

    /// While nodes of two domains are to get the newest revision and could, only those of the first one are worked on.
    fn check_domains(&self, steps: &BTreeSet<&String>) -> Result<(), Fault> {
        let could = |node: &&NodeView| {
            let takes_pods = self.eligibility(self.update, node) == Eligibility::Run
                && node.not_ready_since.is_none()
                && !node.in_maintenance;
            takes_pods && self.is_behind(node) && !self.is_partitioned(node)
        };
        let first = self.nodes.iter().filter(could);
        let first = first.map(|node| self.domain(node)).min();
        for node in self.nodes.iter().filter(|node| steps.contains(&node.name)) {
            let comes_later = first.is_some_and(|first| self.domain(node) > first);
            ensure!(
                !self.goes_by_domain() || !comes_later,
                "{} before {first:?}",
                node.name
            );
        }
        Ok(())
    }

    /// A freeze keeps what runs, and if it is of everything, changes no pod at all.
    fn check_freeze(&self, decision: &Decision) -> Result<(), Fault> {
        let is_over = |delete: &Delete| {
            let pod = self.pods.iter().find(|pod| pod.uid == delete.uid);
            let is_there = self.nodes.iter().any(|node| node.name == delete.node);
            !is_there || pod.is_some_and(|pod| pod.ended.is_some())
        };
        let all = self.freeze == Some(Freeze::All);
        let keeps = self.freeze.is_none() || decision.delete.iter().all(is_over);
        ensure!(keeps, "a pod that runs goes in spite of a freeze");
        let none = decision.delete.is_empty() && decision.create.is_empty();
        ensure!(!all || none, "a pod changes in spite of a freeze");
        Ok(())
    }

    /// Whether a deletion removes a serving pod, which the limit has to allow.
    fn check_delete(
        &self,
        delete: &Delete,
        decision: &Decision,
        stopped: bool,
        surge: usize,
    ) -> Result<bool, Fault> {
        let named = |pod: &&PodView| pod.name == delete.pod && pod.uid == delete.uid;
        let Some(pod) = self.pods.iter().find(named) else {
            return Err(Fault(format!("{} is not there", delete.pod)));
        };
        ensure!(!pod.deleting, "{} is being deleted already", pod.name);
        let Some(node) = self.nodes.iter().find(|node| node.name == pod.node) else {
            return Ok(false);
        };
        let (newest, own) = (
            self.eligibility(self.update, node),
            self.eligibility(&pod.revision, node),
        );
        let is_new = pod.revision == self.update;
        let held = self.is_held(node, stopped);
        // The node is the reason: neither this revision nor its own may run there.
        if own == Eligibility::Leave && (newest == Eligibility::Leave || held) {
            return Ok(false);
        }
        let excluded = newest == Eligibility::Leave && !is_new;
        let eligibility = self.effective(node, stopped);
        let is_left_alone = matches!(eligibility, Eligibility::Keep | Eligibility::Cordoned);
        ensure!(
            !is_left_alone || excluded,
            "{} is on a node that is left alone",
            pod.name
        );
        if let Some(ended) = pod.ended {
            let waits = ended + TimeDelta::seconds(10) > self.now;
            let goes_early = waits && is_new && !self.on(node).any(is_live);
            ensure!(!goes_early, "{} goes before its pause is over", pod.name);
            return Ok(false);
        }
        let goes = |pod: &PodView| decision.delete.iter().any(|other| other.pod == pod.name);
        let mut others = self.on(node).filter(|other| {
            is_live(other)
                && other.name != pod.name
                && (other.revision == self.update) == is_new
                && !goes(other)
        });
        if others.any(|other| pod.ready_since.is_none() || other.ready_since.is_some()) {
            return Ok(false);
        }
        ensure!(!is_new, "{} is of the newest revision", pod.name);
        ensure!(
            node.not_ready_since.is_none(),
            "{} is on a node that is not Ready",
            pod.name
        );
        ensure!(
            !node.in_maintenance,
            "{} is on a node in maintenance",
            pod.name
        );
        if !excluded && self.on(node).any(|other| self.is_available(other)) {
            return Ok(false);
        }
        ensure!(!held, "{} is of a held node", pod.name);
        ensure!(!self.strategy.on_delete, "{}: OnDelete", pod.name);
        if pod.ready_since.is_none() {
            return Ok(false);
        }
        ensure!(
            excluded || eligibility == Eligibility::Run,
            "{} is on a node that is down",
            pod.name
        );
        ensure!(
            excluded || surge == 0,
            "{} goes before its successor",
            pod.name
        );
        Ok(true)
    }

    /// Whether a pod is created next to an old one, which the limit has to allow.
    fn check_create(&self, create: &Create, stopped: bool, surge: usize) -> Result<bool, Fault> {
        let name = &create.node;
        let Some(node) = self.nodes.iter().find(|node| node.name == *name) else {
            return Err(Fault(format!("{name} is gone")));
        };
        ensure!(
            self.eligibility(&create.revision, node) == Eligibility::Run,
            "{name} takes no pods of this revision"
        );
        let is_new = create.revision == self.update;
        let kept = self.kept(node, stopped);
        let keeps = kept.filter(|_| !self.strategy.on_delete && self.is_kept_back(node, stopped));
        let right = keeps.unwrap_or(self.update);
        // A pod that has ended and is kept by a finalizer only blocks one of its name.
        let is_over =
            |pod: &&PodView| pod.deleting && pod.ended.is_some() && pod.revision != create.revision;
        let pods: Vec<&PodView> = self.on(node).filter(|pod| !is_over(pod)).collect();
        let [old] = pods[..] else {
            ensure!(pods.is_empty(), "{name} has two pods");
            ensure!(
                create.revision == right,
                "{name} gets {create:?} and not {right}"
            );
            return Ok(false);
        };
        let serves = is_live(old) && old.ready_since.is_some();
        ensure!(serves && old.revision != self.update, "{name} has a pod");
        let held = self.is_held(node, stopped);
        let rolls = !held && !self.strategy.on_delete && !self.is_lost(node);
        ensure!(rolls && is_new && surge > 0, "no surge on {name}");
        Ok(true)
    }

    /// Whether a node could get the newest revision if only the limit allowed it.
    fn is_idle(&self, decision: &Decision, stopped: bool) -> bool {
        let waits = |node: &&NodeView| {
            let is_old = |pod: &PodView| pod.revision != self.update;
            let mut pods = self.on(node).filter(|pod| is_live(pod) && is_old(pod));
            let serves = pods.any(|pod| pod.ready_since.is_some());
            let goes = decision
                .delete
                .iter()
                .any(|delete| delete.node == node.name);
            let may = self.is_behind(node) && !self.is_held(node, stopped);
            let fit = self.eligibility(self.update, node) == Eligibility::Run
                && node.not_ready_since.is_none()
                && !node.in_maintenance;
            serves && may && fit && !goes
        };
        !self.strategy.on_delete && self.nodes.iter().any(|node| waits(&node))
    }

    fn check_complete(&self, stopped: bool) -> Result<(), Fault> {
        ensure!(!stopped, "it is stopped");
        ensure!(!self.is_on_canary(), "it has not passed its canary");
        let is_old = |pod: &PodView| pod.revision != self.update && pod.ended.is_none();
        let done = |node: &NodeView| {
            !self.on(node).any(is_old) && self.on(node).any(|pod| self.is_available(pod))
        };
        let dark = self.dark(stopped);
        let desired = |node: &&NodeView| self.is_desired(node, stopped);
        let waited_for = |node: &&NodeView| {
            let eligibility = self.effective(node, stopped);
            let touched = matches!(eligibility, Eligibility::Run | Eligibility::Down)
                || self.is_excluded(node);
            let forgiven = dark.contains(&node.name) && self.is_forgiven(node);
            touched && !self.is_lost(node) && !forgiven
        };
        let nodes = || self.nodes.iter().filter(desired);
        for node in nodes().filter(waited_for) {
            ensure!(done(node), "complete without {}", node.name);
        }
        let some = nodes().filter(waited_for).any(done);
        ensure!(some || nodes().all(done), "complete without any node");
        Ok(())
    }

    fn on<'a>(&'a self, node: &'a NodeView) -> impl Iterator<Item = &'a PodView> {
        self.pods.iter().filter(|pod| pod.node == node.name)
    }

    fn eligibility(&self, revision: &str, node: &NodeView) -> Eligibility {
        let known = self.known.get(revision);
        known.map_or(Eligibility::Leave, |known| {
            known.placement.eligibility(node)
        })
    }

    /// The older revision that a pod on the node has: of several, that of the pod that would stay.
    fn older<'a>(&'a self, node: &'a NodeView) -> Option<&'a str> {
        let pods = self.on(node).filter(|pod| pod.revision != self.update);
        let rank = |pod: &&PodView| {
            let number = self
                .known
                .get(pod.revision.as_str())
                .map(|known| known.number);
            let order = match (pod.deleting, pod.ended) {
                (false, None) => 2,
                (false, Some(_)) => 1,
                (true, _) => 0,
            };
            let young = Reverse(pod.created);
            let ready = order == 2 && pod.ready_since.is_some();
            // Among those that have ended, the first one found counts.
            let ranked = (order == 2).then_some((number, young));
            (order, ready, ranked)
        };
        let mut best: Option<&PodView> = None;
        for pod in pods {
            if best.is_none_or(|best| rank(&pod) > rank(&best)) {
                best = Some(pod);
            }
        }
        best.map(|pod| pod.revision.as_str())
    }

    /// Whether the newest revision removes a pod that its own would keep.
    fn is_excluded(&self, node: &NodeView) -> bool {
        let own = self.older(node).map(|own| self.eligibility(own, node));
        self.eligibility(self.update, node) == Eligibility::Leave
            && own.is_some_and(|own| own != Eligibility::Leave)
    }

    /// Whether the node came after the newest revision. If it came within the same second, nothing
    /// is known unless it had a pod of another revision.
    fn joined(&self, node: &NodeView) -> bool {
        let later = node.created > self.update_since;
        later || (node.created == self.update_since && !self.had_another(node))
    }

    fn had_another(&self, node: &NodeView) -> bool {
        let last = self.last.get(&node.name);
        last.is_some_and(|last| last.revision != self.update)
    }

    /// The older revision that a missing pod is created from while the node is held.
    fn kept(&self, node: &NodeView, stopped: bool) -> Option<&str> {
        let newest = self.eligibility(self.update, node);
        let doubted = stopped || self.is_on_canary();
        if self.on(node).next().is_some()
            || (self.joined(node) && !(doubted && newest == Eligibility::Run))
        {
            return None;
        }
        let last = self.last.get(&node.name);
        let kept = match last.filter(|last| self.known.contains_key(last.revision.as_str())) {
            Some(last) if last.excluded => None,
            // Completed without it.
            Some(_) if newest != Eligibility::Run && self.update == self.current => None,
            Some(last) => Some(last.revision.as_str()),
            None if newest == Eligibility::Leave => None,
            // A revision that is not known is that of a migrated DaemonSet.
            None if self.known.contains_key(self.current) || !doubted => Some(self.current),
            None => {
                let older = self.known.iter().filter(|(hash, _)| **hash != self.update);
                let previous = older.max_by_key(|(_, known)| known.number);
                previous.map(|(hash, _)| *hash)
            }
        };
        kept.filter(|kept| *kept != self.update && self.eligibility(kept, node) == Eligibility::Run)
    }

    /// Whether the node is still to get the newest revision, or to lose its pod to it.
    fn is_behind(&self, node: &NodeView) -> bool {
        let is_new = |pod: &PodView| !pod.deleting && pod.revision == self.update;
        if self.on(node).any(is_new) {
            return false;
        }
        if self.older(node).is_some() {
            return is_in_place(self.eligibility(self.update, node)) || self.is_excluded(node);
        }
        let had_older = self.is_on_canary() && self.had_another(node);
        (had_older || !self.joined(node)) && self.kept(node, false).is_some()
    }

    /// Of which zone a node is, and when that comes: first those that the order has, then others by name, then the nodes
    /// without one.
    fn domain<'b>(&self, node: &'b NodeView) -> (usize, &'b str) {
        let order = self.order.unwrap_or_default();
        match node.label("zone") {
            Some(zone) => {
                let place = order.iter().position(|first| *first == zone);
                (place.unwrap_or(100), zone)
            }
            None => (101, ""),
        }
    }

    /// Not the way back, nor before the canary is over.
    fn goes_by_domain(&self) -> bool {
        let is_rolled_out = self.update != self.current && !self.strategy.on_delete;
        self.order.is_some() && is_rolled_out && !self.is_on_canary()
    }

    /// The domain whose nodes may get the newest revision: the first one that is not finished, if any node is left for the
    /// roll-out to reach.
    fn turn(&self) -> Option<(usize, &str)> {
        let turn = self.turn.get_or_init(|| {
            let open = self.nodes.iter().filter(|node| self.is_open(node));
            let open: Vec<&NodeView> = open.collect();
            let is_left = open.iter().any(|node| self.is_behind(node));
            let first = open.into_iter().map(|node| self.domain(node)).min();
            let first = first.filter(|_| is_left && self.goes_by_domain());
            first.map(|(place, zone)| (place, zone.to_owned()))
        });
        turn.as_ref().map(|(place, zone)| (*place, zone.as_str()))
    }

    /// Whether a node of that domain is still to get the newest revision.
    pub(super) fn is_turn_behind(&self) -> bool {
        let mut nodes = self.open_in_turn();
        nodes.any(|node| self.is_behind(node))
    }

    fn open_in_turn(&self) -> impl Iterator<Item = &NodeView> {
        let nodes = self.nodes.iter().filter(move |node| self.is_open(node));
        nodes.filter(move |node| self.turn() == Some(self.domain(node)))
    }

    /// Whether its domain is not finished because of the node: a roll-out may touch it, and it does not have an available
    /// pod of the newest revision and no other. Not so if it joined, is held by the partition, is in maintenance, has been
    /// NotReady for a minute, or has the newest revision and was unavailable long before that; nor if the newest revision
    /// fails there, and a user has the roll-out go on in spite of that.
    fn is_open(&self, node: &NodeView) -> bool {
        let is_excluded = self.is_excluded(node);
        let newest = self.eligibility(self.update, node);
        let own = self.older(node).map(|own| self.eligibility(own, node));
        let eligibility = own.filter(|_| is_excluded).unwrap_or(newest);
        let touched = matches!(eligibility, Eligibility::Run | Eligibility::Down) || is_excluded;
        let is_old = |pod: &PodView| pod.revision != self.update && pod.ended.is_none();
        let done = node.not_ready_since.is_none()
            && !self.on(node).any(is_old)
            && self.on(node).any(|pod| self.is_available(pod));
        if !touched || done || self.is_lost(node) {
            return false;
        }
        if self.is_behind(node) {
            return !self.is_partitioned(node);
        }
        let counts = match eligibility {
            Eligibility::Run | Eligibility::Down => true,
            Eligibility::Cordoned => self.on(node).next().is_some(),
            Eligibility::Keep | Eligibility::Leave => false,
        };
        let dark = counts && node.ready_from.is_some() && !self.is_served(node);
        let is_accepted = self.resumed && self.fails(node);
        !(self.joined(node) || is_accepted || dark && self.is_forgiven(node))
    }

    /// Whether a pod of the newest revision that replaced an available one has ended, crashes, or was not Ready in time.
    fn fails(&self, node: &NodeView) -> bool {
        self.on(node).any(|pod| {
            let of_new = !pod.deleting && pod.revision == self.update;
            let deadline = pod.created + self.strategy.progress_deadline;
            let late = pod.unready_since.is_some_and(|since| since <= deadline);
            let fails = pod.ended.is_some() || pod.restarts > 1 || (late && self.now >= deadline);
            of_new && pod.predecessor == Predecessor::Available && fails
        })
    }

    /// Whether the node is of a domain that waits for another one, and its old pod was not taken before.
    fn is_later(&self, node: &NodeView) -> bool {
        let last = self.last.get(&node.name);
        let is_taken = last.is_some_and(|last| last.outdated_by.as_deref() == Some(self.update));
        let is_gone = |pod: &PodView| pod.deleting || pod.revision == self.update;
        let is_begun = is_taken && self.on(node).all(is_gone);
        self.turn().is_some_and(|turn| self.domain(node) > turn) && !is_begun
    }

    /// Every node under `paused`, an auto-pause or outside the windows, the last by name under `partition`, those of later
    /// domains, and all but the canaries.
    fn is_kept_back(&self, node: &NodeView, stopped: bool) -> bool {
        let waits = self
            .canaries
            .is_some_and(|canaries| !canaries.contains(&node.name));
        let stops = stopped || self.has_no_node() || self.freeze.is_some();
        let waits = waits || self.is_outside || self.is_later(node);
        self.strategy.paused || stops || waits || self.is_partitioned(node)
    }

    fn is_partitioned(&self, node: &NodeView) -> bool {
        let behind = self.nodes.iter().filter(|other| self.is_behind(other));
        let later = behind.filter(|other| other.name > node.name).count();
        self.is_behind(node) && later < self.strategy.partition
    }

    /// Whether the newest revision has to pass a canary.
    fn is_on_canary(&self) -> bool {
        self.canary.is_some() && self.update != self.current && !self.strategy.on_delete
    }

    /// Before the canary is over, only so many nodes get the revision, and those that have it stay canaries.
    fn check_canary(&self, all: &Observed) -> Result<(), Fault> {
        let observed = all.canary.as_ref();
        let on_canary = self.canary.filter(|_| self.is_on_canary());
        ensure!(
            observed.is_some() == on_canary.is_some(),
            "a canary: {observed:?}, and not {on_canary:?}"
        );
        let (Some(canary), Some(observed), Some(canaries)) = (on_canary, observed, self.canaries)
        else {
            return Ok(());
        };
        let counted = self.nodes.iter().filter(|node| self.is_counted(node));
        let most = match canary.nodes {
            Amount::Nodes(nodes) => nodes as usize,
            Amount::Percent(percent) => (counted.count() * percent as usize).div_ceil(100).max(1),
        };
        ensure!(canaries.len() <= most, "{canaries:?} are more than {most}");
        let is_canary = |node: &&NodeView| canaries.contains(&node.name);
        let chosen: Vec<&NodeView> = self.nodes.iter().filter(is_canary).collect();
        ensure!(
            chosen.len() == canaries.len(),
            "{canaries:?} are not all there"
        );
        for node in &chosen {
            ensure!(
                self.had_new(node) || self.may_be_canary(node, canary),
                "{} cannot be a canary",
                node.name
            );
        }
        let is_full = chosen.len() == most;
        let all_had = chosen.iter().all(|node| self.had_new(node));
        for node in self.nodes.iter().filter(|node| !is_canary(node)) {
            let stays = self.has_new(&node.name)
                && fits(node, canary)
                && self.eligibility(self.update, node) != Eligibility::Leave;
            ensure!(
                !stays || (is_full && all_had),
                "{} has the revision, and is not one of {canaries:?}",
                node.name
            );
            ensure!(
                is_full || !self.may_be_canary(node, canary),
                "{} could be a canary beside {canaries:?}",
                node.name
            );
        }
        let soaked = chosen.iter().all(|node| self.has_soaked(node, canary));
        let none_is_behind = !self.nodes.iter().any(|node| self.is_behind(node));
        let proven = all.done > 0 || all.left == 0;
        let takes = |node: &NodeView| is_in_place(self.eligibility(self.update, node));
        let none_takes_it = self.resumed && !self.nodes.iter().any(takes);
        let none_waits = chosen.is_empty() && ((none_is_behind && proven) || none_takes_it);
        let by_itself = soaked && !chosen.is_empty() && !canary.manual;
        let passes = !self.stands(all) && (self.approved || none_waits || by_itself);
        ensure!(observed.passed == passes, "whether it passes: {passes}");
        Ok(())
    }

    /// Whether no node may get the newest revision, whatever its canaries show.
    fn stands(&self, observed: &Observed) -> bool {
        observed.auto_paused || observed.no_node || self.freeze.is_some()
    }

    /// Whether the node has or had a pod of the newest revision.
    fn had_new(&self, node: &NodeView) -> bool {
        let last = self.last.get(&node.name);
        let is_last = last.is_some_and(|last| last.revision == self.update);
        self.on(node).any(|pod| pod.revision == self.update) || is_last
    }

    /// Whether the node is to get the newest revision, and a roll-out could bring it there now.
    fn may_be_canary(&self, node: &NodeView, canary: &Canary) -> bool {
        let takes_pods = self.eligibility(self.update, node) == Eligibility::Run
            && node.not_ready_since.is_none()
            && !node.in_maintenance;
        let is_free = self.is_behind(node) && !self.is_partitioned(node);
        takes_pods && is_free && fits(node, canary)
    }

    /// Whether the revision has been available on the node, and no other there, for the soak time without a restart.
    fn has_soaked(&self, node: &NodeView, canary: &Canary) -> bool {
        let is_old = |pod: &PodView| pod.revision != self.update && pod.ended.is_none();
        let has_soaked = |pod: &PodView| {
            let restarted = pod.last_restart.map(|restart| restart.at);
            let since = pod.ready_since.max(restarted);
            let silent = node
                .not_ready_since
                .is_some_and(|since| since >= pod.created);
            let soak = canary.soak + self.strategy.min_ready;
            self.is_available(pod) && !silent && since.is_some_and(|at| self.now - at >= soak)
        };
        !self.on(node).any(is_old) && self.on(node).any(has_soaked)
    }

    /// Whether the newest revision has no place anywhere, and would take pods from where their own revision has one. Then
    /// it takes none.
    fn has_no_node(&self) -> bool {
        let takes = |node: &NodeView| is_in_place(self.eligibility(self.update, node));
        let loses = |node: &NodeView| {
            let is_old = |pod: &PodView| is_live(pod) && pod.revision != self.update;
            self.is_excluded(node) && self.on(node).any(is_old)
        };
        let none = !self.nodes.iter().any(takes) && self.nodes.iter().any(loses);
        none && !self.resumed && !self.strategy.on_delete
    }

    fn is_held(&self, node: &NodeView, stopped: bool) -> bool {
        self.is_kept_back(node, stopped)
    }

    /// The node's eligibility by the newest revision, or by the one that it keeps.
    fn effective(&self, node: &NodeView, stopped: bool) -> Eligibility {
        let newest = self.eligibility(self.update, node);
        let held = self.is_kept_back(node, stopped);
        match self.older(node) {
            Some(own) if (held && self.is_behind(node)) || self.is_excluded(node) => {
                self.eligibility(own, node)
            }
            None if held && !self.strategy.on_delete && self.kept(node, stopped).is_some() => {
                Eligibility::Run
            }
            _ => newest,
        }
    }

    fn is_desired(&self, node: &NodeView, stopped: bool) -> bool {
        match self.effective(node, stopped) {
            Eligibility::Run => true,
            Eligibility::Down | Eligibility::Cordoned => self.on(node).next().is_some(),
            Eligibility::Keep | Eligibility::Leave => false,
        }
    }

    /// Whether a percentage refers to it.
    fn is_counted(&self, node: &NodeView) -> bool {
        let has_pods = self.on(node).next().is_some();
        let newest = match self.eligibility(self.update, node) {
            Eligibility::Run => true,
            Eligibility::Down | Eligibility::Cordoned => has_pods,
            Eligibility::Keep | Eligibility::Leave => false,
        };
        newest || self.is_excluded(node)
    }

    fn is_lost(&self, node: &NodeView) -> bool {
        let since = node.not_ready_since;
        node.in_maintenance || since.is_some_and(|since| self.now - since >= TimeDelta::seconds(60))
    }

    fn is_left_out(&self, node: &NodeView) -> bool {
        self.is_lost(node) || self.is_forgiven(node)
    }

    /// A node that was unavailable before, for ten minutes of this roll-out.
    fn is_forgiven(&self, node: &NodeView) -> bool {
        let stays = |pod: &&PodView| !pod.deleting;
        let newest = |pod: &&PodView| pod.revision == self.update;
        let new = self.on(node).filter(stays).filter(newest);
        let new = new.max_by_key(|pod| (pod.ended.is_none(), pod.ready_since.is_some()));
        let since = if let Some(new) = new {
            let before = match new.predecessor {
                Predecessor::Available => None,
                Predecessor::Unavailable(since) => Some(since),
                Predecessor::Unknown => Some(new.created),
            };
            // It was Ready when the time was over, and is no more.
            let again = [new.unready_since, node.not_ready_since]
                .into_iter()
                .flatten()
                .max();
            let again =
                again.filter(|at| *at - new.created > TimeDelta::minutes(10) && new.restarts < 2);
            before.map(|before| again.unwrap_or(before))
        } else {
            let mut live = self
                .on(node)
                .filter(stays)
                .filter(|pod| pod.ended.is_none());
            let mut ended = self.on(node).filter(stays);
            live.next()
                .map_or_else(|| ended.find_map(|pod| pod.ended), |old| old.unready_since)
        };
        let since = since.map(|since| since.max(self.update_since));
        since.is_some_and(|since| self.now - since >= TimeDelta::minutes(10))
    }

    fn has_new(&self, node: &str) -> bool {
        let mut pods = self
            .pods
            .iter()
            .filter(|pod| pod.node == node && !pod.deleting);
        pods.any(|pod| pod.revision == self.update)
    }

    /// How many nodes have a pod of the newest revision that is not available, or are about to get it.
    fn unproven(&self, stopped: bool) -> usize {
        let dark = self.dark(stopped);
        let under_way = |node: &&NodeView| {
            let none = self.on(node).all(|pod| pod.deleting);
            dark.contains(&node.name)
                && !self.is_left_out(node)
                && (self.has_new(&node.name) || none)
        };
        self.nodes.iter().filter(under_way).count()
    }

    /// `maxUnavailable` and `maxSurge` in nodes: of the domain whose turn it is, if there are several.
    pub(super) fn limits(&self) -> (usize, usize) {
        let is_of_turn = |node: &&NodeView| {
            let turn = self.turn();
            turn.is_none_or(|turn| self.domain(node) == turn)
        };
        let counted = self.nodes.iter().filter(is_of_turn);
        let counted = counted.filter(|node| self.is_counted(node)).count();
        let nodes = |amount: Amount| match amount {
            Amount::Nodes(nodes) => nodes as usize,
            Amount::Percent(percent) => (counted * percent as usize).div_ceil(100),
        };
        let surge = nodes(self.strategy.max_surge);
        match nodes(self.strategy.max_unavailable) {
            0 if surge == 0 => (1, 0),
            unavailable => (unavailable, surge),
        }
    }

    /// A pod of the newest revision that has been Ready for `minReadySeconds`.
    fn is_available(&self, pod: &PodView) -> bool {
        let min_ready = self.strategy.min_ready;
        let is_new = is_live(pod) && pod.revision == self.update;
        is_new
            && pod
                .ready_since
                .is_some_and(|since| self.now - since >= min_ready)
    }

    /// The nodes that should serve and do not, whether or not the limit counts them.
    pub(super) fn dark(&self, stopped: bool) -> BTreeSet<String> {
        let nodes = self.nodes.iter().filter(|node| self.counts(node, stopped));
        let dark = nodes.filter(|node| !self.is_served(node));
        dark.map(|node| node.name.clone()).collect()
    }

    fn is_served(&self, node: &NodeView) -> bool {
        let serves = |pod: &PodView| {
            let is_old = is_live(pod) && pod.revision != self.update;
            let silent = node
                .not_ready_since
                .is_some_and(|since| since >= pod.created);
            (self.is_available(pod) && !silent) || (is_old && pod.ready_since.is_some())
        };
        self.on(node).any(serves)
    }

    /// Whether the node should serve, or served before it went down.
    fn counts(&self, node: &NodeView, stopped: bool) -> bool {
        let is_down = self.effective(node, stopped) == Eligibility::Down;
        let was_ready = node.ready_from.is_some();
        was_ready && (self.is_desired(node, stopped) || is_down) && !self.is_lost(node)
    }

    /// How many nodes are unavailable.
    fn unserved(&self, stopped: bool) -> usize {
        let dark = self.dark(stopped);
        dark.difference(&self.left_out(stopped)).count()
    }

    /// The nodes that the limits leave out.
    pub(super) fn left_out(&self, stopped: bool) -> BTreeSet<String> {
        let left_out = |node: &&NodeView| self.is_left_out(node) || !self.counts(node, stopped);
        let nodes = self.nodes.iter().filter(left_out);
        nodes.map(|node| node.name.clone()).collect()
    }

    fn is_surging(&self, node: &NodeView, stopped: bool) -> bool {
        let old = |pod: &PodView| is_live(pod) && pod.revision != self.update;
        let touched = matches!(
            self.effective(node, stopped),
            Eligibility::Run | Eligibility::Down
        );
        let new = |pod: &PodView| pod.revision == self.update;
        touched && !self.is_lost(node) && self.on(node).any(old) && self.on(node).any(new)
    }

    /// Whether the roll-out must stop: enough nodes count against the newest revision, or it was stopped before.
    fn must_stop(&self, limit: usize) -> bool {
        let own = TimeDelta::minutes(10);
        let soaked = |canary: &Canary| {
            self.strategy.progress_deadline + self.strategy.min_ready + canary.soak
        };
        let canary = self.canary.filter(|_| self.is_on_canary());
        let window = canary.map_or(own, |canary| own.max(soaked(canary)));
        let soon = |pod: &PodView, at: DateTime<Utc>| at <= pod.created + window;
        let fails = |node: &NodeView, pod: &PodView| {
            let served = pod.predecessor == Predecessor::Available;
            // Creation timestamps are truncated to whole seconds.
            let after = pod.created + TimeDelta::seconds(1);
            let silent = node
                .not_ready_since
                .filter(|since| *since >= after && soon(pod, *since));
            let went_down = silent.is_some_and(|since| self.now - since >= TimeDelta::seconds(15));
            let went_down = went_down && node.ready_from.is_some();
            let ended = pod.ended.is_some_and(|at| soon(pod, at));
            let crashes = is_live(pod) && pod.restarts > 1 && soon(pod, self.now);
            let deadline = pod.created + TimeDelta::minutes(10);
            let late = is_live(pod) && pod.unready_since.is_some_and(|since| since <= deadline);
            let late = late && self.now >= deadline && node.not_ready_since.is_none();
            let of_new = !pod.deleting && pod.revision == self.update;
            of_new && served && (ended || crashes || went_down || late)
        };
        let touched = |node: &&NodeView| {
            // A node with a pod of the newest revision keeps no other.
            let newest = self.eligibility(self.update, node);
            let own = self.older(node).map(|own| self.eligibility(own, node));
            let eligibility = own.filter(|_| self.is_excluded(node)).unwrap_or(newest);
            matches!(eligibility, Eligibility::Run | Eligibility::Down) && !node.in_maintenance
        };
        let fails = |node: &NodeView| touched(&node) && self.on(node).any(|pod| fails(node, pod));
        // If nothing else is left in a domain, the next one would wait for ever.
        // One that is not Ready is left out within a minute.
        let lasts = |node: &NodeView| node.not_ready_since.is_none() && fails(node);
        let is_stuck = self.turn().is_some() && self.open_in_turn().all(lasts);
        let failing = self.nodes.iter().filter(|node| fails(node));
        // A canary that fails is enough.
        let limit = self.canaries.map_or(limit, |_| 1);
        let enough = is_stuck || failing.count() >= limit.max(1);
        let is_left = self.nodes.iter().any(|node| self.is_behind(node));
        let stops = enough && is_left && !self.strategy.on_delete;
        let was_stopped = self.was_stopped.is_some_and(|failed| {
            let is_gone = |name: &str| self.nodes.iter().all(|node| node.name != name);
            let left = failed
                .iter()
                .filter(|f| f.reason != "NotReady" || !is_gone(&f.name));
            left.count() >= limit.max(1).min(failed.len())
        });
        let may_stop = self.update != self.current || self.undone.is_some();
        (stops || was_stopped) && may_stop && !self.resumed
    }
}
