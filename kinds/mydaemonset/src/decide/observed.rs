//! What is observed of all nodes together, for the status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::placement::Obstacle;
use super::window::Gate;
use crate::cause::Cause;
use crate::crd::FailedNode;

/// How many nodes a message names. The others are counted.
const NAMED: usize = 5;

/// Why the roll-out does not reach a node that is cordoned.
pub(crate) const CORDONED: &str = "cordoned";
/// The same for one whose conditions say that it is out of service, cordoned or not.
pub(crate) const IN_MAINTENANCE: &str = "maintenance";

/// The first of some nodes, by name, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// The first ones, each with its text.
    pub(crate) first: Vec<String>,
    /// How many there are.
    pub(crate) count: usize,
}

impl Named {
    /// These nodes, with `text` for each of the first.
    pub(crate) fn new<T>(
        nodes: impl ExactSizeIterator<Item = T>,
        text: impl Fn(T) -> String,
    ) -> Self {
        let count = nodes.len();
        let first = nodes.take(NAMED).map(text).collect();
        Self { first, count }
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The first of some nodes, by name, each behind its cause, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByCause {
    /// The names of the first ones, by their cause.
    pub(crate) first: BTreeMap<Box<str>, Vec<String>>,
    /// How many there are.
    pub(crate) count: usize,
}

impl ByCause {
    /// These nodes, with the cause of each of the first.
    pub(crate) fn new<T: Copy + ToString>(
        nodes: impl ExactSizeIterator<Item = T>,
        cause: impl Fn(T) -> Box<str>,
    ) -> Self {
        let count = nodes.len();
        let mut first: BTreeMap<Box<str>, Vec<String>> = BTreeMap::new();
        for node in nodes.take(NAMED) {
            let names = first.entry(cause(node)).or_default();
            names.push(node.to_string());
        }
        Self { first, count }
    }
}

impl std::fmt::Display for ByCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let groups = self.first.iter();
        let groups = groups.map(|(cause, nodes)| format!("{cause}: {}", nodes.join(", ")));
        f.write_str(&groups.collect::<Vec<_>>().join("; "))?;
        let named: usize = self.first.values().map(Vec::len).sum();
        match self.count - named {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// What a node waits for, as far as it shows by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitsFor {
    /// What is wrong with it or its pod.
    Own(Cause),
    /// What holds the nodes that the roll-out leaves as they are.
    Hold,
    /// The same or, if that does not hold it for longer, the partition.
    Partition,
    /// The same or, if that does not hold all of them, another domain.
    Domain,
    /// The nodes before it.
    Turn,
    /// A step of the operator that comes next: a pod to make.
    Step,
    /// The same: an older pod to delete beside a new one.
    Deletion,
}

/// A canary that the newest revision has not passed, or that ends now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnCanary {
    /// The canaries.
    pub(crate) nodes: BTreeSet<Arc<str>>,
    /// Those of them without an available pod of the revision, or with an old pod beside it, and why.
    pub(crate) missing: Named,
    /// Until when the revision must stay available on all of them without a restart; `None` while it is not.
    pub(crate) soaks_until: Option<DateTime<Utc>>,
    /// Whether it did.
    pub(crate) soaked: bool,
    /// Whether it is over: the other nodes get the revision as soon as the status says so.
    pub(crate) passed: bool,
    /// Whether the partition holds every node that is left.
    pub(crate) is_partitioned: bool,
}

/// The domain that a roll-out is in, one of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InDomain {
    /// Its name, such as `zone b`.
    pub(crate) name: String,
    /// Its nodes with a pod of the newest revision.
    pub(crate) updated: usize,
    /// Its nodes that should have a pod.
    pub(crate) nodes: usize,
}

impl std::fmt::Display for InDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} of {})", self.name, self.updated, self.nodes)
    }
}

/// What is observed, for the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// Nodes that should have a pod.
    pub(crate) desired: usize,
    /// Those of them that have one.
    pub(crate) current: usize,
    /// Nodes that have a pod and should have none.
    pub(crate) misscheduled: usize,
    /// Nodes with a ready pod.
    pub(crate) ready: usize,
    /// Nodes with a pod of the newest revision.
    pub(crate) updated: usize,
    /// Nodes with a pod that has been ready for long enough.
    pub(crate) available: usize,
    /// How many nodes may be without an available pod.
    pub(crate) max_unavailable: usize,
    /// Nodes that the roll-out waits for, with an available pod of the newest revision and no other.
    pub(crate) done: usize,
    /// Nodes that should have such a pod and no other, and do not, reachable or not.
    pub(crate) left: usize,
    /// Nodes with an available pod of the newest revision and no other, whether or not the roll-out waits for them.
    pub(crate) reached: usize,
    /// Nodes that a pod of the newest revision belongs on, or that keep a pod, and that do not have it so; and why. The
    /// roll-out may be complete all the same.
    pub(crate) unreached: ByCause,
    /// How many of these wait for what.
    pub(crate) waits_for: BTreeMap<WaitsFor, usize>,
    /// Nodes that wait for the newest revision.
    pub(crate) outdated: usize,
    /// Those of them that the roll-out does not touch: partition, pause, `OnDelete`, cordons, maintenance.
    pub(crate) held: usize,
    /// Nodes that should have an available pod and have none.
    pub(crate) unavailable: Named,
    /// Nodes that the roll-out has begun with and waits for: they can be reached, nothing holds them,
    /// and they do not yet have an available pod of the newest revision.
    pub(crate) waiting: Named,
    /// Nodes with a failing pod, and its failure.
    pub(crate) failing: Named,
    /// The nodes that the roll-out is stopped for.
    pub(crate) stopped_for: Vec<FailedNode>,
    /// How many nodes failed soon after they got the newest revision.
    pub(crate) failed: usize,
    /// How many nodes lose their pod to the newest revision, by the reason.
    pub(crate) excluded: BTreeMap<Obstacle, usize>,
    /// Whether the roll-out stands because these are all: no node is eligible for the newest revision.
    pub(crate) no_node: bool,
    /// Nodes without an available pod of the newest revision that the roll-out does not wait for, and why not.
    pub(crate) left_out: Named,
    /// Nodes that have a pod of the revision that the roll-out goes back from.
    pub(crate) undone: usize,
    /// Whether the roll-out is stopped because of failing nodes.
    pub(crate) auto_paused: bool,
    /// Whether every node that the roll-out waits for has an available pod of the newest revision and no other.
    pub(crate) complete: bool,
    /// The canary that comes before the other nodes.
    pub(crate) canary: Option<OnCanary>,
    /// Whether steps may begin, as long as nodes are left that wait for nothing else.
    pub(crate) gate: Gate,
    /// The domain whose nodes get the newest revision now, while those of others wait.
    pub(crate) domain: Option<InDomain>,
}

impl Observed {
    /// How many nodes lose their pod to the newest revision.
    pub(crate) fn excluded_nodes(&self) -> usize {
        self.excluded.values().sum()
    }
}
