//! What to do next: a pure function of the nodes, the pods, the spec, the revisions and the time.
//!
//! [`decide`] looks at each node by itself (which pods stay, go, or are missing) and then, for all of
//! them together, at the limits of the roll-out. It asks for nothing that it was not given, so it can
//! be driven by the thousand against a model of a cluster.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, TimeDelta, Utc};

use super::admission::{Amount, ON_DELETE};
use super::crd::MyDaemonSetSpec;
use super::placement::{Fate, Placement};
use super::views::{NodeView, PodView};

/// A node that has been `NotReady` for so long is left out of the limits of a roll-out, which would
/// else never end (kubernetes/kubernetes#117658).
pub const NOT_READY_GRACE: TimeDelta = TimeDelta::seconds(60);
/// The pause between a first failure of a pod and its successor; each further one doubles it.
const FIRST_PAUSE: TimeDelta = TimeDelta::seconds(10);
/// The longest such pause.
const LONGEST_PAUSE: TimeDelta = TimeDelta::minutes(15);
/// A pod that lived so long before it failed does not count as one of a row of failures.
const STEADY: TimeDelta = TimeDelta::minutes(15);
/// A node that fails within this time after it got the newest revision speaks against the revision.
const TRIAL: TimeDelta = TimeDelta::minutes(10);
/// So many restarts of a container within that time are a crash loop.
const CRASH_RESTARTS: u32 = 2;
/// What ails a pod because of its revision, and not by a hiccup.
const FATAL: &[&str] = &[
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
];

/// How a change reaches the nodes: the spec's words as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// People delete pods; the operator only makes the missing ones.
    pub on_delete: bool,
    /// On how many nodes the pod may be unavailable.
    pub max_unavailable: Amount,
    /// On how many nodes the new pod may run next to the old one.
    pub max_surge: Amount,
    /// How many nodes, the last by name, stay as they are.
    pub partition: usize,
    /// Whether the roll-out stands still.
    pub paused: bool,
    /// How long a pod must have been ready to count as available.
    pub min_ready: TimeDelta,
}

impl Strategy {
    /// The strategy of a spec that obeys the rules and has its defaults.
    pub fn of(spec: &MyDaemonSetSpec) -> Self {
        let strategy = spec.update_strategy.clone().unwrap_or_default();
        let rolling = strategy.rolling_update.unwrap_or_default();
        let amount = |value: Option<_>, default| {
            value
                .and_then(|v| Amount::read(&v).ok())
                .unwrap_or(Amount::Nodes(default))
        };
        Self {
            on_delete: strategy.type_.as_deref() == Some(ON_DELETE),
            max_unavailable: amount(rolling.max_unavailable, 1),
            max_surge: amount(rolling.max_surge, 0),
            partition: rolling
                .partition
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or_default(),
            paused: rolling.paused.unwrap_or_default(),
            min_ready: TimeDelta::seconds(spec.min_ready_seconds.unwrap_or_default().into()),
        }
    }
}

/// The revisions that matter to a decision, by the hashes of their content.
#[derive(Clone, Copy, Debug)]
pub struct Revisions<'a> {
    /// The revision of the present spec.
    pub update: &'a str,
    /// Since when it is the newest.
    pub update_since: DateTime<Utc>,
    /// The revision of the last roll-out that reached every node.
    pub current: &'a str,
    /// All revisions whose content is known, with their place in the history.
    pub known: &'a BTreeMap<&'a str, i64>,
}

/// What was last on a node that has no pod now, as far as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// The hash of the pod's revision.
    pub revision: String,
    /// How many pods of this revision have failed there in a row.
    pub attempt: u32,
}

/// All that a decision depends on.
pub struct Observed<'a, N, P> {
    /// Every node of the cluster.
    pub nodes: &'a [N],
    /// The object's pods.
    pub pods: &'a [P],
    /// Where a pod of the present spec belongs.
    pub placement: &'a Placement,
    /// The limits.
    pub strategy: Strategy,
    /// The revisions.
    pub revisions: Revisions<'a>,
    /// What was last on nodes without a pod, by the node's name.
    pub memory: &'a BTreeMap<String, Last>,
    /// Whether this roll-out was stopped because of failing nodes.
    pub auto_paused: bool,
    /// Whether somebody said that this roll-out shall go on in spite of failing nodes.
    pub resumed: bool,
    /// The time.
    pub now: DateTime<Utc>,
}

/// A pod to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// The node's name.
    pub node: String,
    /// The node's UID.
    pub node_uid: String,
    /// The hash of the revision.
    pub revision: String,
    /// How many pods of this revision failed there before, in a row.
    pub attempt: u32,
}

/// Why a pod is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The pod may not run on its node.
    NotEligible,
    /// Its node is gone.
    NodeGone,
    /// Another pod of ours on the node is the one that stays.
    Surplus,
    /// It failed, and its pause is over.
    Failed,
    /// It is of an older revision.
    Outdated,
}

impl Why {
    /// The reason in a word or two, for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotEligible => "no longer eligible",
            Self::NodeGone => "node gone",
            Self::Surplus => "surplus",
            Self::Failed => "failed",
            Self::Outdated => "outdated",
        }
    }
}

/// A pod to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// The node's name.
    pub node: String,
    /// Why it goes.
    pub why: Why,
    /// What to remember of the node until its next pod is made.
    pub last: Last,
}

/// What is the case, for the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nodes that should have a pod.
    pub desired: usize,
    /// Those of them that have one.
    pub current: usize,
    /// Nodes that have a pod and should have none.
    pub misscheduled: usize,
    /// Nodes with a ready pod.
    pub ready: usize,
    /// Nodes with a pod of the newest revision.
    pub updated: usize,
    /// Nodes with a pod that has been ready for long enough.
    pub available: usize,
    /// How many nodes may be without an available pod.
    pub max_unavailable: usize,
    /// Nodes that wait for the newest revision.
    pub outdated: usize,
    /// Those of them that the roll-out does not touch: partition, pause, `OnDelete`, cordons.
    pub held: usize,
    /// Nodes whose pod ails, and what ails it.
    pub failing: Vec<(String, String)>,
    /// Nodes that failed soon after they got the newest revision.
    pub culprits: Vec<String>,
    /// Whether the roll-out stands still because of failing nodes.
    pub auto_paused: bool,
    /// Whether every node that can be reached has an available pod of the newest revision.
    pub complete: bool,
}

/// What to do, and when to look again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Pods to make, in the order of their nodes' names.
    pub create: Vec<Create>,
    /// Pods to delete.
    pub delete: Vec<Delete>,
    /// When time alone will change the decision.
    pub next: Option<DateTime<Utc>>,
    /// For the status.
    pub facts: Facts,
}

impl Decision {
    fn look_again(&mut self, at: DateTime<Utc>) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// How long a failed pod is kept: 10 s, doubled for each failure before, to 15 min.
pub fn pause(attempt: u32) -> TimeDelta {
    // 2^7 times the first pause is beyond the longest one.
    (FIRST_PAUSE * 2_i32.pow(attempt.min(7))).min(LONGEST_PAUSE)
}

/// One node and the object's pods on it.
struct Slot<'a> {
    node: &'a NodeView,
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
    /// The roll-out does not touch the node.
    held: bool,
    /// The node has been `NotReady` for so long that the limits leave it out.
    lost: bool,
}

impl<'a> Slot<'a> {
    fn new(
        node: &'a NodeView,
        fate: Fate,
        pods: &[&'a PodView],
        revisions: &Revisions<'_>,
        now: DateTime<Utc>,
    ) -> Self {
        let is_new = |pod: &PodView| pod.revision == revisions.update;
        let mut running: Vec<&PodView> = pods.iter().copied().filter(|p| p.is_live()).collect();
        // The best first: ready, of the later revision, the older one.
        running.sort_by_key(|pod| {
            let number = revisions.known.get(pod.revision.as_str()).copied();
            let rank = std::cmp::Reverse((pod.is_ready(), number));
            (rank, pod.created, pod.name.as_str())
        });
        let new = running.iter().copied().find(|p| is_new(p));
        let old = running.iter().copied().find(|p| !is_new(p));
        let kept = |pod: &PodView| {
            [new, old]
                .into_iter()
                .flatten()
                .any(|k| std::ptr::eq(k, pod))
        };
        Self {
            node,
            fate,
            new,
            old,
            surplus: running.iter().copied().filter(|p| !kept(p)).collect(),
            ended: pods
                .iter()
                .copied()
                .filter(|p| !p.deleting && p.ended.is_some())
                .collect(),
            leaving: pods.iter().copied().filter(|p| p.deleting).collect(),
            held: false,
            lost: node
                .not_ready_since
                .is_some_and(|since| since + NOT_READY_GRACE <= now),
        }
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
    fn served(&self, is_available: impl Fn(&PodView) -> bool) -> bool {
        self.new.is_some_and(is_available) || self.old.is_some_and(PodView::is_ready)
    }

    /// Whether the pod is the only one of ours on the node: two at most during a surge.
    fn is_alone(&self, pod: &PodView) -> bool {
        let others = self.ended.len() + self.leaving.len() + self.surplus.len();
        others == 0 && self.new.is_none_or(|new| std::ptr::eq(new, pod))
    }

    fn delete(&self, pod: &PodView, why: Why) -> Delete {
        Delete {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: self.node.name.clone(),
            why,
            last: Last {
                revision: pod.revision.clone(),
                attempt: pod.attempt,
            },
        }
    }
}

/// Decides what to do next. See the module.
pub fn decide<N: Borrow<NodeView>, P: Borrow<PodView>>(observed: &Observed<'_, N, P>) -> Decision {
    let mut decision = Decision::default();
    let mut slots = slots(observed, &mut decision);
    let desired = slots.iter().filter(|slot| slot.desired()).count();
    let limits = Limits::of(&observed.strategy, desired);
    decision.facts = facts(observed, &slots, &limits);
    decision.facts.culprits = culprits(observed, &slots);
    let tripped = decision.facts.culprits.len() >= limits.unavailable.max(1);
    let under_way = observed.revisions.update != observed.revisions.current
        && decision.facts.outdated > 0
        && !observed.strategy.on_delete;
    decision.facts.auto_paused =
        under_way && !observed.resumed && (observed.auto_paused || tripped);
    hold(observed, &mut slots, desired, decision.facts.auto_paused);
    decision.facts.held = slots
        .iter()
        .filter(|slot| is_outdated(slot) && (slot.held || observed.strategy.on_delete))
        .count();
    for slot in &slots {
        settle_node(observed, slot, &mut decision);
    }
    roll(observed, &slots, &limits, &mut decision);
    watch_clock(observed, &slots, &mut decision);
    decision
}

/// The limits as numbers of nodes.
struct Limits {
    unavailable: usize,
    surge: usize,
}

impl Limits {
    fn of(strategy: &Strategy, desired: usize) -> Self {
        let unavailable = strategy.max_unavailable.of(desired);
        let surge = strategy.max_surge.of(desired);
        Self {
            // The rules refuse two zeros; a roll-out that can do nothing helps nobody.
            unavailable: if unavailable == 0 && surge == 0 {
                1
            } else {
                unavailable
            },
            surge,
        }
    }
}

/// The nodes in the order of their names, each with its pods. Pods of nodes that are gone are
/// deleted.
fn slots<'a, N: Borrow<NodeView>, P: Borrow<PodView>>(
    observed: &Observed<'a, N, P>,
    decision: &mut Decision,
) -> Vec<Slot<'a>> {
    let mut by_node: HashMap<&str, Vec<&PodView>> = HashMap::new();
    for pod in observed.pods {
        let pod = pod.borrow();
        by_node.entry(pod.node.as_str()).or_default().push(pod);
    }
    let mut nodes: Vec<&NodeView> = observed.nodes.iter().map(Borrow::borrow).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let slots = nodes
        .into_iter()
        .map(|node| {
            let pods = by_node.remove(node.name.as_str()).unwrap_or_default();
            let fate = observed.placement.fate(node);
            Slot::new(node, fate, &pods, &observed.revisions, observed.now)
        })
        .collect();
    let mut strays: Vec<&PodView> = by_node.into_values().flatten().collect();
    strays.retain(|pod| !pod.deleting);
    strays.sort_by(|a, b| a.name.cmp(&b.name));
    decision.delete.extend(strays.into_iter().map(|pod| Delete {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        node: pod.node.clone(),
        why: Why::NodeGone,
        last: Last {
            revision: pod.revision.clone(),
            attempt: 0,
        },
    }));
    slots
}

/// Marks the nodes that stay on their revision: all of them, or as many as the partition says, the
/// last by name.
fn hold<N, P>(
    observed: &Observed<'_, N, P>,
    slots: &mut [Slot<'_>],
    desired: usize,
    auto_paused: bool,
) {
    let all = observed.strategy.paused || auto_paused;
    let first_held = desired.saturating_sub(observed.strategy.partition);
    let mut nth = 0;
    for slot in slots {
        let partitioned = slot.desired() && nth >= first_held;
        nth += usize::from(slot.desired());
        slot.held = all || partitioned || !slot.reachable();
    }
}

fn is_outdated(slot: &Slot<'_>) -> bool {
    slot.desired() && slot.new.is_none() && slot.old.is_some()
}

/// Whether a pod has been ready for long enough.
fn available_at(pod: &PodView, min_ready: TimeDelta) -> Option<DateTime<Utc>> {
    pod.ready_since
        .filter(|_| pod.is_ready())
        .map(|since| since + min_ready)
}

fn is_available<N, P>(observed: &Observed<'_, N, P>, pod: &PodView) -> bool {
    available_at(pod, observed.strategy.min_ready).is_some_and(|at| at <= observed.now)
}

fn facts<N, P>(observed: &Observed<'_, N, P>, slots: &[Slot<'_>], limits: &Limits) -> Facts {
    let available = |pod: &PodView| is_available(observed, pod);
    let mut facts = Facts {
        max_unavailable: limits.unavailable,
        complete: true,
        ..Facts::default()
    };
    for slot in slots {
        let running = || [slot.new, slot.old].into_iter().flatten();
        if !slot.desired() {
            facts.misscheduled += usize::from(slot.stays());
            continue;
        }
        let update = observed.revisions.update;
        let ended_new = slot.ended.iter().any(|p| p.revision == update);
        facts.desired += 1;
        facts.current += usize::from(slot.stays());
        facts.ready += usize::from(running().any(PodView::is_ready));
        facts.updated += usize::from(slot.new.is_some() || ended_new);
        facts.available += usize::from(running().any(available));
        facts.outdated += usize::from(is_outdated(slot));
        if slot.reachable() && !slot.lost {
            facts.complete &= slot.old.is_none() && slot.new.is_some_and(available);
        }
        let mut ailing = running().chain(slot.ended.iter().copied());
        if let Some(trouble) = ailing.find_map(|p| p.trouble.as_deref()) {
            facts
                .failing
                .push((slot.node.name.clone(), trouble.to_owned()));
        }
    }
    facts
}

/// The nodes that failed soon after they got the newest revision.
fn culprits<N, P>(observed: &Observed<'_, N, P>, slots: &[Slot<'_>]) -> Vec<String> {
    let speaks_against = |slot: &Slot<'_>| {
        let update = observed.revisions.update;
        let new = slot.ended.iter().copied().chain(slot.new);
        let mut new = new.filter(|p| p.revision == update);
        new.any(|pod| {
            let trial = |at: DateTime<Utc>| at >= pod.created && at <= pod.created + TRIAL;
            let crashed = pod.trouble.as_deref().is_some_and(|t| FATAL.contains(&t))
                || pod.restarts >= CRASH_RESTARTS;
            let lost_since = slot.node.not_ready_since;
            pod.ended.is_some_and(trial)
                || (crashed && trial(observed.now))
                || lost_since.is_some_and(trial)
        })
    };
    slots
        .iter()
        .filter(|slot| slot.reachable() && speaks_against(slot))
        .map(|slot| slot.node.name.clone())
        .collect()
}

/// What a node needs whatever the limits of the roll-out: pods that must not be there go, a missing
/// one is made, a failed one is made again after its pause.
fn settle_node<N, P>(observed: &Observed<'_, N, P>, slot: &Slot<'_>, decision: &mut Decision) {
    match slot.fate {
        Fate::Leave => {
            let pods = [slot.new, slot.old].into_iter().flatten();
            let pods = pods.chain(slot.surplus.iter().copied());
            for pod in pods.chain(slot.ended.iter().copied()) {
                decision.delete.push(slot.delete(pod, Why::NotEligible));
            }
            return;
        }
        // Nothing could take the place of a pod that goes.
        Fate::Keep | Fate::Cordoned => return,
        Fate::Run | Fate::Down => {}
    }
    for pod in &slot.surplus {
        decision.delete.push(slot.delete(pod, Why::Surplus));
    }
    for pod in &slot.ended {
        settle_ended(observed, slot, pod, decision);
    }
    if !slot.has_pods() && slot.fate == Fate::Run {
        decision.create.push(missing(observed, slot));
    }
}

/// A pod that has ended stays until its pause is over: its status is what people look for, and the
/// memory of the failure. One that the roll-out would replace anyway goes at once.
fn settle_ended<N, P>(
    observed: &Observed<'_, N, P>,
    slot: &Slot<'_>,
    pod: &PodView,
    decision: &mut Decision,
) {
    let Some(ended) = pod.ended else {
        return;
    };
    let update = observed.revisions.update;
    let outlived = slot.new.is_some() || (slot.old.is_some() && pod.revision != update);
    let replaced = pod.revision != update && !slot.held;
    if outlived || replaced {
        let why = if outlived {
            Why::Surplus
        } else {
            Why::Outdated
        };
        decision.delete.push(slot.delete(pod, why));
        return;
    }
    // A pod that did its work for long and then failed is no part of a row of failures.
    let attempt = if ended - pod.created >= STEADY {
        0
    } else {
        pod.attempt
    };
    let due = ended + pause(attempt);
    if due > observed.now {
        decision.look_again(due);
        return;
    }
    let mut delete = slot.delete(pod, Why::Failed);
    delete.last.attempt = attempt.saturating_add(1);
    decision.delete.push(delete);
}

/// The pod that a node without one gets. A held node gets its revision again, a node that joined
/// after the newest revision came never had another.
fn missing<N, P>(observed: &Observed<'_, N, P>, slot: &Slot<'_>) -> Create {
    let revisions = &observed.revisions;
    let last = observed.memory.get(&slot.node.name);
    let its_own = || {
        let last = last.map(|last| last.revision.as_str());
        last.into_iter()
            .chain([revisions.current])
            .find(|hash| revisions.known.contains_key(hash))
    };
    let old = slot.held && !observed.strategy.on_delete;
    let revision = match its_own() {
        Some(own) if old && slot.node.created <= revisions.update_since => own,
        _ => revisions.update,
    };
    create(slot, revision, last)
}

fn create(slot: &Slot<'_>, revision: &str, last: Option<&Last>) -> Create {
    Create {
        node: slot.node.name.clone(),
        node_uid: slot.node.uid.clone(),
        revision: revision.to_owned(),
        attempt: last
            .filter(|last| last.revision == revision)
            .map_or(0, |last| last.attempt),
    }
}

/// Replaces old pods by new ones within the limits.
fn roll<N, P>(
    observed: &Observed<'_, N, P>,
    slots: &[Slot<'_>],
    limits: &Limits,
    decision: &mut Decision,
) {
    let available = |pod: &PodView| is_available(observed, pod);
    let unavailable = slots
        .iter()
        .filter(|slot| slot.desired() && !slot.lost && !slot.served(available))
        .count();
    let mut may_go = limits.unavailable.saturating_sub(unavailable);
    let is_new = |pod: &&&PodView| pod.revision == observed.revisions.update;
    let has_new = |slot: &Slot<'_>| {
        let others = slot.ended.iter().chain(&slot.leaving);
        slot.new.is_some() || others.filter(is_new).count() > 0
    };
    let surging = slots
        .iter()
        .filter(|slot| slot.old.is_some() && has_new(slot))
        .count();
    let mut may_surge = limits.surge.saturating_sub(surging);
    for slot in slots {
        let Some(old) = slot.old.filter(|_| slot.reachable()) else {
            continue;
        };
        let held = slot.held || observed.strategy.on_delete;
        // The end of a surge, also of one that was paused or whose limit was taken away meanwhile.
        let outlived = slot.new.is_some_and(available);
        let serves_nobody = !old.is_ready() || slot.lost;
        if outlived || (serves_nobody && !held) {
            decision.delete.push(slot.delete(old, Why::Outdated));
        } else if held {
            // Its pod stays.
        } else if limits.surge == 0 {
            if may_go > 0 {
                may_go -= 1;
                decision.delete.push(slot.delete(old, Why::Outdated));
            }
        } else if may_surge > 0 && slot.fate == Fate::Run && slot.is_alone(old) {
            may_surge -= 1;
            let last = observed.memory.get(&slot.node.name);
            let create = create(slot, observed.revisions.update, last);
            decision.create.push(create);
        }
    }
}

/// When time alone changes something: a pod has been ready for long enough, or a node silent.
fn watch_clock<N, P>(observed: &Observed<'_, N, P>, slots: &[Slot<'_>], decision: &mut Decision) {
    let rolling = !decision.facts.complete;
    for slot in slots.iter().filter(|slot| slot.desired()) {
        let running = [slot.new, slot.old].into_iter().flatten();
        let ready = running.filter_map(|pod| available_at(pod, observed.strategy.min_ready));
        let lost = slot
            .node
            .not_ready_since
            .filter(|_| rolling)
            .map(|since| since + NOT_READY_GRACE);
        for at in ready.chain(lost).filter(|at| *at > observed.now) {
            decision.look_again(at);
        }
    }
}

#[cfg(test)]
mod tests;
