//! The result of a decision: pods to create, delete, adopt and release.

use chrono::{DateTime, Utc};

use super::freeze::Freeze;
use super::input::Last;
use super::observed::Observed;
use crate::observe::pod::PodView;
use crate::observe::predecessor::Predecessor;

/// A pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) node: String,
    /// The hash of the revision.
    pub(crate) revision: String,
    /// How many pods of this revision failed there in a row before.
    pub(crate) attempt: u32,
    /// What the node had before.
    pub(crate) predecessor: Predecessor,
}

impl Create {
    /// The creation of that pod.
    pub(crate) fn of(pod: &PodView) -> Self {
        Self {
            node: pod.node.clone(),
            revision: pod.revision.clone(),
            attempt: pod.attempt,
            predecessor: pod.predecessor,
        }
    }
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DeleteReason {
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
}

impl DeleteReason {
    /// The reason in a word or two, for Events.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NotEligible => "no longer eligible",
            Self::NodeGone => "node gone",
            Self::Surplus => "surplus",
            Self::Failed => "failed",
            Self::Outdated => "outdated",
            Self::Excluded => "excluded by the new revision",
        }
    }

    /// Whether it is deleted for the newest revision, which the API server must accept before.
    pub(crate) fn is_due_to_revision(self) -> bool {
        matches!(self, Self::Outdated | Self::Excluded)
    }

    /// Whether a pod may be deleted for it while that is frozen: it does not run any more.
    pub(crate) fn is_allowed(self, freeze: Freeze) -> bool {
        freeze == Freeze::Deletions && matches!(self, Self::Failed | Self::NodeGone)
    }
}

/// A pod to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delete {
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) node: String,
    pub(crate) reason: DeleteReason,
    /// What to remember of the node until its next pod is created.
    pub(crate) last: Last,
    /// The pod's `resourceVersion`, where the deletion is right only for the observed state: a pod
    /// that is not Ready is deleted regardless of the limits, and may be Ready by now.
    pub(crate) version: Option<String>,
}

/// A pod to adopt or release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) node: String,
    /// Adopt if true, release otherwise.
    pub(crate) adopt: bool,
}

impl Claim {
    /// For a pod without a controller that has our labels.
    pub(crate) fn adopt(pod: &PodView) -> Self {
        Self {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            adopt: true,
        }
    }

    /// For a pod that lost our label.
    pub(crate) fn release(pod: &PodView) -> Self {
        Self {
            adopt: false,
            ..Self::adopt(pod)
        }
    }
}

/// What to do, and when to decide again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Pods to create, in the order of their nodes' names.
    pub(crate) create: Vec<Create>,
    /// Pods to delete.
    pub(crate) delete: Vec<Delete>,
    /// Pods to adopt or release.
    pub(crate) claim: Vec<Claim>,
    /// A pod for a dry run, before a pod is deleted for the newest revision: a template that the
    /// API server rejects must cost no pod. Its node need not be one that the pod may run on.
    pub(crate) dry_run: Option<Create>,
    /// When time alone will change the decision.
    pub(crate) next: Option<DateTime<Utc>>,
    /// For the status.
    pub(crate) observed: Observed,
}

impl Decision {
    pub(crate) fn requeue_at(&mut self, at: DateTime<Utc>) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Takes out what a user has frozen.
    pub(super) fn restrict(&mut self, freeze: Freeze) {
        self.delete
            .retain(|delete| delete.reason.is_allowed(freeze));
        if freeze == Freeze::All {
            self.create.clear();
        }
    }
}
