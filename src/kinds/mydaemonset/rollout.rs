//! What to do next: a pure function of the nodes, the pods, the spec, the revisions and the time.
//!
//! [`node`] judges each node by itself: which pods stay, go, or are missing, and what counts. A
//! [`state::RolloutState`] keeps the verdicts and their sums, so that a change of one node costs
//! work for that node alone, and applies the limits of the roll-out to all of them together. Both
//! depend only on their input, so tests can drive them by the thousand against a model of a
//! cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::admission::{Amount, ON_DELETE};
use super::crd::MyDaemonSetSpec;
use super::placement::Placement;
use super::views::PodView;

mod node;
pub mod state;

/// The pause between the first failure of a pod and its successor. Each further failure doubles it.
const FIRST_PAUSE: TimeDelta = TimeDelta::seconds(10);
/// The longest such pause.
const MAX_PAUSE: TimeDelta = TimeDelta::minutes(15);
/// How many nodes a message names. The others are counted.
const NAMED: usize = 5;

/// How a change reaches the nodes: the spec's strategy as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Users delete pods; the operator only creates the missing ones.
    pub on_delete: bool,
    /// On how many nodes the pod may be unavailable.
    pub max_unavailable: Amount,
    /// On how many nodes the new pod may run next to the old one.
    pub max_surge: Amount,
    /// How many nodes, the last by name, stay as they are.
    pub partition: usize,
    /// Whether the roll-out is paused.
    pub paused: bool,
    /// How long a pod must have been ready to count as available.
    pub min_ready: TimeDelta,
}

impl Strategy {
    /// The strategy of a valid, defaulted spec.
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
    /// The revision of the current spec.
    pub update: &'a str,
    /// Since when it is the newest.
    pub update_since: DateTime<Utc>,
    /// The revision of the last roll-out that reached every node.
    pub current: &'a str,
    /// All revisions whose content is known.
    pub known: &'a BTreeMap<&'a str, Known>,
}

/// What is known of a revision. Everything except its number follows from its hash.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Its number in the history: the newest has the highest.
    pub number: i64,
    /// Which nodes its pods belong on.
    pub placement: Arc<Placement>,
}

/// The last pod of a node that has none now, as far as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// The hash of the pod's revision.
    pub revision: String,
    /// How many pods of this revision have failed there in a row.
    pub attempt: u32,
    /// The operator deleted the pod because a newer revision excludes the node: while the roll-out
    /// is held, the node does not get it again.
    pub excluded: bool,
}

/// Input of a decision, besides the nodes and their pods.
#[derive(Clone, Copy, Debug)]
pub struct RolloutInput<'a> {
    /// Which nodes a pod of the current spec belongs on.
    pub placement: &'a Placement,
    /// The limits.
    pub strategy: Strategy,
    /// The revisions.
    pub revisions: Revisions<'a>,
    /// A node that has been `NotReady` for this long is left out of the limits of a roll-out, which
    /// otherwise would never end (kubernetes/kubernetes#117658).
    pub grace: TimeDelta,
    /// How many reconciles in a row ended with something that could not be done.
    pub failures: usize,
    /// Whether the API server is known to accept a pod of the newest revision.
    pub validated: bool,
    /// Whether this roll-out was stopped because of failing nodes.
    pub auto_paused: bool,
    /// Whether a user resumed this roll-out in spite of failing nodes.
    pub resumed: bool,
    /// The time.
    pub now: DateTime<Utc>,
}

/// A pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// The node's name.
    pub node: String,
    /// The node's UID.
    pub node_uid: String,
    /// The hash of the revision.
    pub revision: String,
    /// How many pods of this revision failed there in a row before.
    pub attempt: u32,
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeleteReason {
    /// The pod may not run on its node.
    NotEligible,
    /// Its node is gone.
    NodeGone,
    /// Another pod of ours stays on the node.
    Surplus,
    /// It failed, and its backoff is over.
    Failed,
    /// It is of an older revision.
    Outdated,
    /// It may run on its node, but a pod of the newest revision may not.
    Excluded,
    /// It was created for another node of the same name.
    NodeReplaced,
}

impl DeleteReason {
    /// The reason in a word or two, for Events.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotEligible => "no longer eligible",
            Self::NodeGone => "node gone",
            Self::Surplus => "surplus",
            Self::Failed => "failed",
            Self::Outdated => "outdated",
            Self::Excluded => "excluded by the new revision",
            Self::NodeReplaced => "node replaced",
        }
    }

    /// Whether it is deleted for the newest revision, which the API server must accept before.
    fn is_due_to_revision(self) -> bool {
        matches!(self, Self::Outdated | Self::Excluded)
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
    /// The reason.
    pub reason: DeleteReason,
    /// What to remember of the node until its next pod is created.
    pub last: Last,
    /// The pod's `resourceVersion`, where the deletion is right only for the observed state: a pod
    /// that is not Ready is deleted regardless of the limits, and may be Ready by now.
    pub version: Option<String>,
}

/// A pod to adopt or release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// The node's name.
    pub node: String,
    /// Adopt if true, release otherwise.
    pub adopt: bool,
}

impl Claim {
    /// For a pod without a controller that has our labels.
    fn adopt(pod: &PodView) -> Self {
        Self {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            adopt: true,
        }
    }

    /// For a pod that lost our label.
    pub fn release(pod: &PodView) -> Self {
        Self {
            adopt: false,
            ..Self::adopt(pod)
        }
    }
}

/// The first of some nodes, by name, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The first ones, each with its text.
    pub first: Vec<String>,
    /// How many there are.
    pub count: usize,
}

impl Named {
    /// These nodes, with `text` for each of the first.
    pub fn of<T>(nodes: impl ExactSizeIterator<Item = T>, text: impl Fn(T) -> String) -> Self {
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

/// The nodes that lose their pod to the newest revision, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Their labels do not match its node selector.
    pub by_selector: usize,
    /// They match no term of its required node affinity.
    pub by_affinity: usize,
    /// It does not tolerate their `NoExecute` taints.
    pub by_taint: usize,
}

impl Excluded {
    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.by_selector + self.by_affinity + self.by_taint
    }
}

/// What is observed, for the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
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
    /// Nodes that should have an available pod and have none.
    pub unavailable: Named,
    /// Nodes that the roll-out has begun with and waits for: they can be reached, nothing holds them,
    /// and they do not yet have an available pod of the newest revision.
    pub waiting: Named,
    /// Nodes with a failing pod, and its failure.
    pub failing: Named,
    /// Nodes that failed soon after they got the newest revision, and how.
    pub failed_canaries: Named,
    /// Nodes that lose their pod to the newest revision.
    pub excluded: Excluded,
    /// Nodes without an available pod of the newest revision that the roll-out does not wait for, and why not.
    pub left_out: Named,
    /// Whether the roll-out is stopped because of failing nodes.
    pub auto_paused: bool,
    /// Whether every node that the roll-out waits for has an available pod of the newest revision and no other.
    pub complete: bool,
}

/// What to do, and when to decide again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Pods to create, in the order of their nodes' names.
    pub create: Vec<Create>,
    /// Pods to delete.
    pub delete: Vec<Delete>,
    /// Pods to adopt or release.
    pub claim: Vec<Claim>,
    /// A pod for a dry run, before a pod is deleted for the newest revision: a template that the
    /// API server rejects must cost no pod. Its node need not be one that the pod may run on.
    pub dry_run: Option<Create>,
    /// When time alone will change the decision.
    pub next: Option<DateTime<Utc>>,
    /// For the status.
    pub observed: Observed,
}

impl Decision {
    fn requeue_at(&mut self, at: DateTime<Utc>) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// How long a failed pod is kept: 10 s, doubled for each failure before, up to 15 min.
pub fn pause(attempt: u32) -> TimeDelta {
    // 2^7 times the first pause is above the maximum.
    (FIRST_PAUSE * 2_i32.pow(attempt.min(7))).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests;
