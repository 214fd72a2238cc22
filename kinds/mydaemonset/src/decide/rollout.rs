//! All nodes together: the verdicts on each, their sums, and the limits of the roll-out.
//!
//! The state depends only on what was [put](RolloutState::put) and on the input: a test compares
//! every state that was changed step by step with one that was built from scratch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::candidates::{Candidate, choose};
use super::decision::{Decision, Delete, DeleteReason};
use super::domains::{Tally, Turn};
use super::input::RolloutInput;
use super::node::flags::{NodeFlag, NodeFlags, Verdict};
use super::node::judge::NOT_READY;
use super::node::{NodeState, OnNode, Stance};
use super::observed::{ByCause, Named, Observed, OnCanary, WaitsFor};
use super::placement::Obstacle;
use super::strategy::Strategy;
use super::window::Gate;
use crate::crd::FailedNode;

/// How many nodes that a roll-out was stopped for are in the status.
const MAX_FAILED_NODES: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct RolloutState {
    entries: BTreeMap<Arc<str>, Entry>,
    /// Nodes that changed since they were last judged.
    stale: BTreeSet<Arc<str>>,
    /// When a verdict expires by time alone.
    timers: BTreeSet<(DateTime<Utc>, Arc<str>)>,
    /// How many nodes have each flag.
    counts: [usize; NodeFlag::COUNT],
    /// The nodes with each of the first flags.
    names: [BTreeSet<Arc<str>>; NodeFlag::NAMED],
    /// How many nodes wait for what.
    waits_for: BTreeMap<WaitsFor, usize>,
    /// How many nodes lose their pod to the newest revision, by the reason. Does not depend on what is held.
    excluded: BTreeMap<Obstacle, usize>,
    /// The input that the verdicts depend on.
    input_key: InputKey,
    held: Held,
    /// When the last decision was made.
    decided_at: DateTime<Utc>,
}

/// A node, what is on it, and what is thought of it.
#[derive(Debug, Default)]
struct Entry {
    on_node: OnNode,
    verdict: Verdict,
}

/// The part of the input that every verdict depends on.
#[derive(Clone, Debug, Default, PartialEq)]
struct InputKey {
    strategy: Option<Strategy>,
    update: String,
    update_since: DateTime<Utc>,
    current: String,
    known: BTreeMap<String, i64>,
    grace: TimeDelta,
    stored: bool,
    /// For how long the newest revision is to soak, while it is on its canaries.
    soak: Option<TimeDelta>,
}

impl InputKey {
    fn from_input(input: &RolloutInput<'_>) -> Self {
        let revisions = &input.revisions;
        let known = revisions.known.iter();
        Self {
            strategy: Some(input.strategy),
            update: revisions.update.to_owned(),
            update_since: revisions.update_since,
            current: revisions.current.to_owned(),
            known: known
                .map(|(hash, known)| ((*hash).to_owned(), known.number))
                .collect(),
            grace: input.grace,
            stored: input.revisions.stored,
            soak: input.canary().map(|canary| canary.soak),
        }
    }
}

/// Which nodes stay on their revision.
#[derive(Clone, Debug, Default, PartialEq)]
struct Held {
    all: bool,
    /// All of them, because no window is open.
    outside: bool,
    /// All of them, because the newest revision failed.
    auto_paused: bool,
    /// This node and those after it, by name.
    from: Option<Arc<str>>,
    /// All nodes but these, while the newest revision is on its canaries.
    canaries: Option<BTreeSet<Arc<str>>>,
    /// The nodes of the domains after this one.
    turn: Option<Turn>,
}

impl Held {
    fn is_partitioned(&self, name: &str) -> bool {
        self.from.as_deref().is_some_and(|from| name >= from)
    }

    /// Whether the node stays because of its name or its part in the canary.
    fn has_name(&self, name: &str) -> bool {
        let canaries = self.canaries.as_ref();
        self.is_partitioned(name) || canaries.is_some_and(|canaries| !canaries.contains(name))
    }

    /// Whether the node stays because another domain comes before its own, unless the roll-out has already taken its pod.
    fn is_later(&self, on_node: &OnNode, update: &str) -> bool {
        let turn = self.turn.as_ref().zip(on_node.node.as_deref());
        let last = on_node.last.as_deref();
        let is_taken = last.is_some_and(|last| last.outdated_by.as_deref() == Some(update));
        let mut pods = on_node.pods.iter();
        let is_begun = is_taken && pods.all(|pod| pod.deleting || pod.revision == update);
        turn.is_some_and(|(turn, node)| turn.precedes(node)) && !is_begun
    }

    fn stance(&self, name: &str, on_node: &OnNode, input: &RolloutInput<'_>) -> Stance {
        let has_name = self.has_name(name);
        let is_later = !has_name && self.is_later(on_node, input.revisions.update);
        let partition = self.is_partitioned(name).then_some(WaitsFor::Partition);
        Stance {
            held: self.all || self.outside || has_name || is_later,
            holds: partition.or(is_later.then_some(WaitsFor::Domain)),
            auto_paused: self.auto_paused,
        }
    }
}

/// Why the roll-out goes no further until a user acts.
#[derive(Clone, Copy)]
struct Stop {
    /// Nodes fail.
    auto_paused: bool,
    /// No node is eligible for the newest revision.
    no_node: bool,
}

/// The limits as numbers of nodes.
struct Limits {
    unavailable: usize,
    surge: usize,
}

impl Limits {
    fn new(strategy: &Strategy, desired: usize) -> Self {
        let unavailable = strategy.max_unavailable.scaled(desired);
        let surge = strategy.max_surge.scaled(desired);
        Self {
            // The rules reject two zeros: such a roll-out could do nothing.
            unavailable: unavailable.max(usize::from(surge == 0)),
            surge,
        }
    }
}

/// The items, after that many failed attempts: each begins with another item, so that one that
/// always fails does not block the others.
pub(crate) fn in_turn<I>(items: I, failures: usize) -> impl Iterator<Item = I::Item>
where
    I: ExactSizeIterator + Clone,
{
    let count = items.len();
    items.cycle().skip(failures % count.max(1)).take(count)
}

/// Counts one node less with what it had before, and one more with what it has.
fn move_one<K: Copy + Ord>(counts: &mut BTreeMap<K, usize>, before: Option<K>, after: Option<K>) {
    if let Some(after) = after {
        *counts.entry(after).or_default() += 1;
    }
    if let Some(before) = before {
        let count = counts.entry(before).or_default();
        *count -= 1;
        if *count == 0 {
            counts.remove(&before);
        }
    }
}

impl RolloutState {
    /// An empty state for that revision.
    pub(crate) fn new(update: &str) -> Self {
        let input_key = InputKey {
            update: update.to_owned(),
            ..InputKey::default()
        };
        Self {
            input_key,
            ..Self::default()
        }
    }

    /// The state of these nodes, which are judged with the first decision.
    pub(crate) fn of(update: &str, nodes: &BTreeMap<Arc<str>, OnNode>) -> Self {
        let entries = nodes.iter().map(|(name, on_node)| {
            let entry = Entry {
                on_node: on_node.clone(),
                verdict: Verdict::default(),
            };
            (name.clone(), entry)
        });
        Self {
            entries: entries.collect(),
            ..Self::new(update)
        }
    }

    /// Whether the state is for that revision. Each revision has its own placement, and nodes
    /// without a pod that must not have one are not kept.
    pub(crate) fn is_for(&self, update: &str) -> bool {
        self.input_key.update == update
    }

    /// Sets what is on a node.
    pub(crate) fn put(&mut self, name: &str, on_node: OnNode) {
        let known = self.entries.get_key_value(name);
        let known = known.map(|(name, _)| name.clone());
        if known.is_none() && on_node.node.is_none() && on_node.pods.is_empty() {
            return;
        }
        let name = known.unwrap_or_else(|| name.into());
        self.entries.entry(name.clone()).or_default().on_node = on_node;
        self.stale.insert(name);
    }

    /// The revisions of the existing pods, one for each.
    pub(crate) fn revisions(&self) -> impl Iterator<Item = &str> {
        let pods = self.entries.values().flat_map(|entry| &entry.on_node.pods);
        pods.map(|pod| pod.revision.as_str())
    }

    /// Decides what to do next.
    pub(crate) fn decide(&mut self, input: &RolloutInput<'_>) -> Decision {
        let mut input = *input;
        // Otherwise a node would wait for the newest revision once its pod is gone.
        input.strategy.on_delete &= input.revisions.stored;
        let input = &input;
        let input_key = InputKey::from_input(input);
        // A verdict only looks forward in time from the decision that made it.
        if input_key != self.input_key || input.now < self.decided_at {
            self.input_key = input_key;
            self.judge_all(input);
        } else {
            self.judge_stale(input);
        }
        self.decided_at = input.now;
        // None of these flags depends on what is held.
        let (turn, tally) = self.turn(input).unzip();
        let base = tally.map_or(self.count(NodeFlag::Base), |tally| tally.nodes);
        let limits = Limits::new(&input.strategy, base);
        let canaries = self.canaries(input);
        let is_stuck = tally.is_some_and(Tally::is_stuck);
        let stop = Stop {
            auto_paused: self.is_auto_paused(&limits, canaries.as_ref(), is_stuck, input),
            no_node: self.has_no_node(input),
        };
        self.update_held(stop, canaries, turn, input);
        let mut decision = Decision {
            observed: self.observe(&limits, stop, input),
            next: self.timers.first().map(|(at, _)| *at),
            ..Decision::default()
        };
        if let Some(at) = decision.observed.gate.until {
            decision.requeue_at(at);
        }
        let turn = self.held.turn.as_ref().zip(tally);
        decision.observed.domain = turn.map(|(turn, tally)| turn.observed(tally));
        self.soak(stop, input, &mut decision);
        for name in &self.names[NodeFlag::Acting as usize] {
            if let Some(node_state) = self.node_state(name, input) {
                node_state.plan(input, &mut decision);
            }
        }
        self.roll(&limits, input, &mut decision);
        self.dry_run(input, &mut decision);
        if !input.revisions.stored {
            let known = input.revisions.known;
            decision
                .create
                .retain(|create| known.contains_key(create.revision.as_str()));
        }
        if let Some(freeze) = input.freeze {
            decision.restrict(freeze);
        }
        decision
    }

    /// The verdict of the last decision on a node, unless no pod is there and none belongs there.
    pub(crate) fn verdict(&self, name: &str) -> Option<&Verdict> {
        self.entries.get(name).map(|entry| &entry.verdict)
    }

    fn count(&self, flag: NodeFlag) -> usize {
        self.counts[flag as usize]
    }

    fn node_state<'a>(
        &'a self,
        name: &'a Arc<str>,
        input: &RolloutInput<'a>,
    ) -> Option<NodeState<'a>> {
        let entry = self.entries.get(name)?;
        let stance = self.held.stance(name, &entry.on_node, input);
        Some(NodeState::new(name, &entry.on_node, stance, input))
    }

    fn judge_all(&mut self, input: &RolloutInput<'_>) {
        // Filled in order, the nodes of the tree are half full; collected, all are full.
        self.entries = std::mem::take(&mut self.entries).into_iter().collect();
        self.stale = self.entries.keys().cloned().collect();
        self.judge_stale(input);
    }

    /// Judges the nodes that changed, and those whose verdict has expired.
    fn judge_stale(&mut self, input: &RolloutInput<'_>) {
        while let Some((at, name)) = self.timers.first()
            && *at <= input.now
        {
            self.stale.insert(name.clone());
            self.timers.pop_first();
        }
        for name in std::mem::take(&mut self.stale) {
            let Some(entry) = self.entries.get_mut(&name) else {
                continue;
            };
            let stance = self.held.stance(&name, &entry.on_node, input);
            let verdict = NodeState::new(&name, &entry.on_node, stance, input).judge(input);
            let (flags, waits_for) = (verdict.flags, verdict.waits_for);
            let excluded = verdict.excluded;
            let before = std::mem::replace(&mut entry.verdict, verdict);
            let mut until = entry.verdict.until;
            // What becomes of a node that the roll-out was stopped for decides whether it stays so.
            let stopped_for = input.stopped_for.unwrap_or_default();
            let is_named = stopped_for.iter().any(|failed| failed.name == *name);
            if flags.is_empty() && entry.on_node.pods.is_empty() && !is_named {
                self.entries.remove(&name);
                until = None;
            }
            if before.until != until {
                if let Some(at) = before.until {
                    self.timers.remove(&(at, name.clone()));
                }
                self.timers.extend(until.map(|at| (at, name.clone())));
            }
            self.recount(&name, before.flags, flags);
            move_one(&mut self.waits_for, before.waits_for, waits_for);
            move_one(&mut self.excluded, before.excluded, excluded);
        }
    }

    fn recount(&mut self, name: &Arc<str>, before: NodeFlags, after: NodeFlags) {
        for (nth, count) in self.counts.iter_mut().enumerate() {
            let names = self.names.get_mut(nth);
            match (before.has_nth(nth), after.has_nth(nth)) {
                (false, true) => {
                    *count += 1;
                    names.map(|names| names.insert(name.clone()));
                }
                (true, false) => {
                    *count -= 1;
                    names.map(|names| names.remove(name));
                }
                _ => {}
            }
        }
    }

    /// The nodes that get the newest revision before all others, if a canary comes first.
    fn canaries(&self, input: &RolloutInput<'_>) -> Option<BTreeSet<Arc<str>>> {
        let canary = input.canary()?;
        let from = self.boundary(input.strategy.partition);
        let candidates = self.entries.iter().filter_map(|(name, entry)| {
            let is_behind = entry.verdict.flags.has_nth(NodeFlag::Behind as usize);
            let is_free = is_behind && from.as_ref().is_none_or(|from| name < from);
            Candidate::new(name, &entry.on_node, is_free, canary, input)
        });
        let count = canary.nodes.scaled(self.count(NodeFlag::Base)).max(1);
        Some(choose(candidates.collect(), count))
    }

    /// The domain whose turn it is, and what its nodes come to; `None` where there are no domains, or no node is left for the
    /// newest revision to reach.
    fn turn(&self, input: &RolloutInput<'_>) -> Option<(Turn, Tally)> {
        let is_left = self.count(NodeFlag::Behind) > 0;
        let domains = input.domains().filter(|_| is_left)?;
        let from = self.boundary(input.strategy.partition);
        let nodes = self.entries.iter().filter_map(|(name, entry)| {
            let node = entry.on_node.node.as_deref()?;
            let has = |flag: NodeFlag| entry.verdict.flags.has_nth(flag as usize);
            let is_ready = node.not_ready_since.is_none();
            let is_done = has(NodeFlag::Done) && is_ready;
            let is_open = !is_done && {
                let is_free = from.as_ref().is_none_or(|from| name < from);
                let node_state = NodeState::new(name, &entry.on_node, Stance::default(), input);
                node_state.is_open(is_free, input)
            };
            let tally = Tally {
                nodes: has(NodeFlag::Base).into(),
                updated: (has(NodeFlag::Base) && has(NodeFlag::Updated)).into(),
                open: is_open.into(),
                behind: (is_open && has(NodeFlag::Behind)).into(),
                // One that is not Ready is back soon, or left out.
                failed: (is_open && is_ready && has(NodeFlag::FailedCanary)).into(),
            };
            Some((node, tally))
        });
        Turn::first(domains, nodes)
    }

    /// Observes how far the newest revision is on its canaries.
    fn soak(&self, stop: Stop, input: &RolloutInput<'_>, decision: &mut Decision) {
        let (Some(canary), Some(nodes)) = (input.canary(), &self.held.canaries) else {
            return;
        };
        let soaked_at = |name: &Arc<str>| {
            let node_state = self.node_state(name, input)?;
            node_state.soaked_at(canary.soak, input)
        };
        let missing: BTreeSet<&Arc<str>> = nodes
            .iter()
            .filter(|name| soaked_at(name).is_none())
            .collect();
        let lacking = |name: &Arc<str>| {
            let node_state = self.node_state(name, input);
            let why = node_state.map(|node_state| node_state.why_unreached(input));
            format!("{name} ({})", why.unwrap_or_default())
        };
        let until = nodes.iter().filter_map(soaked_at).max();
        let soaks_until = until.filter(|_| missing.is_empty());
        // Where every node has the revision, or none should, nothing is left to protect. That none takes pods at the moment
        // does not prove it, unless a user resumed the roll-out in spite of that.
        let proven = self.count(NodeFlag::Done) > 0 || self.count(NodeFlag::Left) == 0;
        let none_is_behind = self.count(NodeFlag::Behind) == 0 && proven;
        let is_needless =
            nodes.is_empty() && (none_is_behind || (input.resumed && !self.takes_pods(input)));
        let stands = stop.auto_paused || stop.no_node || input.freeze.is_some();
        let soaked = is_needless || soaks_until.is_some_and(|until| until <= input.now);
        let first_behind = self.names[NodeFlag::Behind as usize].first();
        let partition = self.held.from.as_ref();
        let on_canary = OnCanary {
            nodes: nodes.clone(),
            missing: Named::new(missing.into_iter(), lacking),
            soaks_until,
            soaked,
            passed: !stands && (input.approved || (soaked && !canary.manual) || is_needless),
            is_partitioned: nodes.is_empty() && partition.is_some() && partition == first_behind,
        };
        if let Some(until) = soaks_until.filter(|_| !on_canary.soaked) {
            decision.requeue_at(until);
        }
        decision.observed.canary = Some(on_canary);
    }

    /// Whether the roll-out is stopped because of failing nodes. Only a new revision or a
    /// resumption ends that: cordons, taints, lost nodes and `OnDelete` hide the nodes that it was
    /// stopped for, and they come back. Except for nodes that went NotReady and were deleted: they
    /// left the cluster, and say nothing about the revision.
    fn is_auto_paused(
        &self,
        limits: &Limits,
        canaries: Option<&BTreeSet<Arc<str>>>,
        is_stuck: bool,
        input: &RolloutInput<'_>,
    ) -> bool {
        let revisions = &input.revisions;
        let Some(auto_pause) = input.strategy.auto_pause else {
            return false;
        };
        if revisions.is_way_out() || input.resumed {
            return false;
        }
        let most = match canaries {
            // With one that fails, the revision does not pass: there is nothing to wait for.
            Some(canaries) => auto_pause.max_failures.unwrap_or(1).min(canaries.len()),
            None => auto_pause.max_failures.unwrap_or(limits.unavailable),
        };
        let most = most.max(1);
        // Otherwise the next domain would wait for ever, and nothing would say so.
        let is_stuck = is_stuck && auto_pause.max_failures.is_none();
        let tripped = (is_stuck || self.count(NodeFlag::FailedCanary) >= most)
            && self.count(NodeFlag::Behind) > 0
            && !input.strategy.on_delete;
        let stands = input.stopped_for.is_some_and(|stopped_for| {
            let left = stopped_for
                .iter()
                .filter(|failed| self.still_speaks(failed));
            left.count() >= most.min(stopped_for.len())
        });
        tripped || stands
    }

    /// Whether the newest revision would take every pod away: no node is eligible for it, and pods run where their own
    /// revision allows them. That is a typo rather than a wish, and costs a whole fleet. It is not so where the nodes are
    /// what changed: then the pods' own revision does not allow them either. Neither where a user resumes the roll-out, nor
    /// under `OnDelete`, which takes no pod away.
    fn has_no_node(&self, input: &RolloutInput<'_>) -> bool {
        if self.excluded.is_empty() || input.resumed || input.strategy.on_delete {
            return false;
        }
        !self.takes_pods(input)
    }

    /// Whether the newest revision has a place on any node.
    fn takes_pods(&self, input: &RolloutInput<'_>) -> bool {
        let takes_them = |entry: &Entry| {
            let node = entry.on_node.node.as_deref();
            node.is_some_and(|node| input.placement.eligibility(node).is_in_place())
        };
        self.entries.values().any(takes_them)
    }

    /// Whether a node that the roll-out was stopped for still speaks against the revision.
    fn still_speaks(&self, failed: &FailedNode) -> bool {
        let entry = self.entries.get(failed.name.as_str());
        failed.reason != NOT_READY || entry.is_some_and(|entry| entry.on_node.node.is_some())
    }

    /// The nodes that the roll-out is stopped for: those that it was stopped for, or those that fail now.
    fn stopped_for(&self, input: &RolloutInput<'_>) -> Vec<FailedNode> {
        let known = input.stopped_for.unwrap_or_default().iter();
        let known: Vec<_> = known
            .filter(|failed| self.still_speaks(failed))
            .cloned()
            .collect();
        if !known.is_empty() {
            return known;
        }
        let failing = self.names[NodeFlag::FailedCanary as usize].iter();
        let failing = failing.take(MAX_FAILED_NODES).filter_map(|name| {
            let failure = self.entries.get(name)?.verdict.failure.as_deref()?;
            Some(FailedNode {
                name: name.to_string(),
                reason: failure.to_owned(),
            })
        });
        failing.collect()
    }

    /// Sets the nodes that stay on their revision: all of them, all but the canaries, those of later domains, or as many as
    /// the partition says. Judges again those for which that changed.
    fn update_held(
        &mut self,
        stop: Stop,
        canaries: Option<BTreeSet<Arc<str>>>,
        turn: Option<Turn>,
        input: &RolloutInput<'_>,
    ) {
        let stops = stop.auto_paused || stop.no_node || input.freeze.is_some();
        let held = Held {
            all: input.strategy.paused || stops || !input.revisions.stored,
            outside: input.gate.is_closed,
            auto_paused: stop.auto_paused,
            from: self.boundary(input.strategy.partition),
            canaries,
            turn,
        };
        if held == self.held {
            return;
        }
        let before = std::mem::replace(&mut self.held, held);
        let after = &self.held;
        let rest = |held: &Held| Held {
            from: None,
            ..held.clone()
        };
        let is_same = rest(&before) == rest(after);
        let between = match (&before.from, &after.from) {
            (Some(a), Some(b)) if is_same => (Bound::Included(a.min(b)), Bound::Excluded(a.max(b))),
            _ => (Bound::Unbounded, Bound::Unbounded),
        };
        let changed = self.entries.range::<Arc<str>, _>(between);
        self.stale = changed.map(|(name, _)| name.clone()).collect();
        self.judge_stale(input);
    }

    /// The first node of the partition, which is the last nodes by name of those that do not have the newest revision. A
    /// node that joins gets the newest revision, and so releases none of them. Whether a node is behind does not depend on
    /// what is held.
    fn boundary(&self, partition: usize) -> Option<Arc<str>> {
        let behind = &self.names[NodeFlag::Behind as usize];
        let nth = partition.checked_sub(1)?;
        behind.iter().nth_back(nth).or(behind.first()).cloned()
    }

    fn observe(&self, limits: &Limits, stop: Stop, input: &RolloutInput<'_>) -> Observed {
        let auto_paused = stop.auto_paused;
        let named = |flag: NodeFlag, text: &dyn Fn(&Arc<str>) -> String| {
            Named::new(self.names[flag as usize].iter(), text)
        };
        let name = |name: &Arc<str>| name.to_string();
        // What is wrong with its pod; otherwise with the node, or the state of the pod between two revisions.
        let with_cause = |name: &Arc<str>| {
            let entry = self.entries.get(name);
            let trouble = entry.and_then(|entry| entry.verdict.trouble.as_deref());
            let node = entry.and_then(|entry| entry.on_node.node.as_ref());
            let silent = node.is_some_and(|node| node.not_ready_since.is_some());
            let other = if silent { NOT_READY } else { "Restarting" };
            format!("{name} ({})", trouble.unwrap_or(other))
        };
        let why = |name: &Arc<str>| {
            let node_state = self.node_state(name, input);
            let why = node_state.map(|node_state| node_state.why_unreached(input));
            why.unwrap_or_default()
        };
        let left_out = |name: &Arc<str>| format!("{name} ({})", why(name));
        // kubectl's word for a pod that is being deleted.
        let with_state = |name: &Arc<str>| {
            let entry = self.entries.get(name);
            let leaves =
                entry.is_some_and(|entry| entry.on_node.pods.iter().any(|pod| pod.deleting));
            if leaves {
                format!("{name} (Terminating)")
            } else {
                name.to_string()
            }
        };
        let gate = self.gate(input);
        Observed {
            desired: self.count(NodeFlag::Desired),
            current: self.count(NodeFlag::Current),
            misscheduled: self.count(NodeFlag::Misscheduled),
            ready: self.count(NodeFlag::Ready),
            updated: self.count(NodeFlag::Updated),
            available: self.count(NodeFlag::Available),
            max_unavailable: limits.unavailable,
            done: self.count(NodeFlag::Done),
            left: self.count(NodeFlag::Left),
            reached: self.count(NodeFlag::Reached),
            unreached: ByCause::new(self.names[NodeFlag::Unreached as usize].iter(), why),
            waits_for: self.waits_for.clone(),
            outdated: self.count(NodeFlag::Outdated),
            held: self.held_back(gate, input),
            unavailable: named(NodeFlag::Unavailable, &name),
            waiting: named(NodeFlag::Waiting, &with_state),
            failing: named(NodeFlag::Failing, &with_cause),
            stopped_for: if auto_paused {
                self.stopped_for(input)
            } else {
                Vec::new()
            },
            failed: self.count(NodeFlag::FailedCanary),
            excluded: self.excluded.clone(),
            no_node: stop.no_node,
            left_out: named(NodeFlag::LeftOut, &left_out),
            undone: self.left_with(input.revisions.undone),
            auto_paused,
            complete: !auto_paused
                && input.revisions.stored
                && input.canary().is_none()
                && self.is_complete(),
            canary: None,
            gate,
            domain: None,
        }
    }

    /// The nodes that are behind and that no partition, canary or other domain holds, as if nothing else held them.
    fn unplaced<'a>(&'a self, input: &RolloutInput<'a>) -> impl Iterator<Item = NodeState<'a>> {
        let behind = self.names[NodeFlag::Behind as usize].iter();
        behind.filter_map(move |name| {
            let on_node = &self.entries.get(name)?.on_node;
            let is_later = self.held.is_later(on_node, input.revisions.update);
            if is_later || self.held.has_name(name) {
                return None;
            }
            Some(NodeState::new(name, on_node, Stance::default(), input))
        })
    }

    /// Whether steps may begin, if there is a node that waits for nothing else.
    fn gate(&self, input: &RolloutInput<'_>) -> Gate {
        let is_asked_for = input.gate != Gate::default();
        if is_asked_for && self.unplaced(input).any(|node| node.is_free()) {
            input.gate
        } else {
            Gate::default()
        }
    }

    /// How many nodes wait for the newest revision, and something holds them. That a window is closed is nothing to those
    /// that the roll-out does not wait for: otherwise it would not be complete as soon as one closes.
    fn held_back(&self, gate: Gate, input: &RolloutInput<'_>) -> usize {
        let held = self.count(NodeFlag::HeldBack);
        if self.held.outside && !self.held.all && !gate.is_closed {
            let given_up = self.unplaced(input).filter(NodeState::is_given_up);
            held.saturating_sub(given_up.count())
        } else {
            held
        }
    }

    /// How many nodes that should have a pod have one that runs of the revision that the roll-out goes back from. The
    /// roll-out has not reached any of them.
    fn left_with(&self, undone: Option<&str>) -> usize {
        let Some(undone) = undone else {
            return 0;
        };
        let has_it = |name: &&Arc<str>| {
            let entry = self.entries.get(*name);
            entry.is_some_and(|entry| {
                let mut pods = entry.on_node.pods.iter();
                let is_desired = entry.verdict.flags.has_nth(NodeFlag::Desired as usize);
                is_desired && pods.any(|pod| pod.revision == undone && pod.is_live())
            })
        };
        let unreached = self.names[NodeFlag::Unreached as usize].iter();
        unreached.filter(has_it).count()
    }

    /// Whether every node that the roll-out waits for has an available pod of the newest revision
    /// and no other. If there is no such node, because all are lost or cordoned, the others decide:
    /// otherwise the roll-out would end without any proof that the revision works, and all of them
    /// would get it at once when they are back.
    fn is_complete(&self) -> bool {
        self.count(NodeFlag::Incomplete) == 0
            && (self.count(NodeFlag::Done) > 0 || self.count(NodeFlag::Left) == 0)
    }

    /// Replaces old pods by new ones within the limits, then removes those whose nodes the newest
    /// revision excludes. These go last: by then the revision has been tried on the nodes that get
    /// it.
    fn roll(&self, limits: &Limits, input: &RolloutInput<'_>, decision: &mut Decision) {
        // In the order of names. After failed attempts the order starts at another node, so that a
        // node that cannot be changed does not block the others.
        let node_states = |flag: NodeFlag, most: usize| {
            let names = &self.names[flag as usize];
            let turns = in_turn(names.iter(), input.failures).take(most);
            turns.filter_map(|name| self.node_state(name, input))
        };
        let unserved = self.count(NodeFlag::Unserved);
        // Nothing outruns its proof, whatever state the old pods are in (kubernetes/kubernetes#123232).
        let surging = self.count(NodeFlag::Surging);
        let most_unproven = if limits.surge == 0 {
            limits.unavailable.max(1)
        } else {
            limits.surge.saturating_sub(surging)
        };
        let mut may_prove = most_unproven.saturating_sub(self.count(NodeFlag::Unproven));
        let deletes = |flag, most| {
            let node_states = node_states(flag, most);
            node_states.filter_map(|node_state| node_state.replace(input))
        };
        // What does not serve goes first, since nothing is lost with it.
        let broken = decision.delete.len();
        // Nodes that were unavailable before prove nothing by failing. But where none has proven the revision, it is not
        // put on more of them at a time either: all may wait for the same backend.
        let on_trial = match self.count(NodeFlag::Done) {
            0 => self.count(NodeFlag::OnTrial),
            _ => 0,
        };
        let may_try = may_prove.saturating_sub(on_trial);
        decision.delete.extend(deletes(NodeFlag::Broken, may_try));
        let to_prove = |delete: &&Delete| delete.reason == DeleteReason::Outdated;
        may_prove -= decision.delete[broken..].iter().filter(to_prove).count();
        let before = decision.delete.len();
        if limits.surge == 0 {
            let may_go = limits.unavailable.saturating_sub(unserved).min(may_prove);
            decision
                .delete
                .extend(deletes(NodeFlag::Replaceable, may_go));
        } else {
            let surging = node_states(NodeFlag::Surgeable, may_prove);
            decision
                .create
                .extend(surging.map(|node_state| node_state.updated(input)));
        }
        // No surge replaces a pod that is only removed, so maxUnavailable 0 cannot be kept.
        let may_go = limits.unavailable.max(1);
        let replaced = decision.delete.len() - before;
        let may_go = may_go.saturating_sub(unserved + replaced);
        decision.delete.extend(deletes(NodeFlag::Removable, may_go));
    }

    /// Asks for a dry run: no pod is deleted for the newest revision before the API server is known
    /// to accept a pod of it. A node that the revision excludes will do, since the API server does
    /// not check where a pod may run.
    fn dry_run(&self, input: &RolloutInput<'_>, decision: &mut Decision) {
        if input.validated {
            return;
        }
        let is_due = |delete: &Delete| delete.reason.is_due_to_revision();
        let Some(first) = decision.delete.iter().find(|delete| is_due(delete)) else {
            return;
        };
        let entry = self.entries.get_key_value(first.node.as_str());
        decision.dry_run =
            entry.and_then(|(name, _)| Some(self.node_state(name, input)?.updated(input)));
        decision.delete.retain(|delete| !is_due(delete));
    }
}
