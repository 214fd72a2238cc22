//! What a decision is based on, besides the nodes and their pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::canary::Canary;
use super::domains::Domains;
use super::freeze::Freeze;
use super::placement::Placement;
use super::strategy::Strategy;
use super::window::Gate;
use crate::crd::FailedNode;
use crate::observe::predecessor::Predecessor;

/// The revisions that matter to a decision, by the hashes of their content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Revisions<'a> {
    /// The revision of the current spec, or the one that takes its place because it failed.
    pub(crate) update: &'a str,
    /// Whether it is stored as the newest. Until then every node stays on the revision that it has,
    /// since the store is what a held node's next pod is made of.
    pub(crate) stored: bool,
    /// Since when it is the newest: the first time by the API server's clock, which may differ from the operator's.
    pub(crate) update_since: DateTime<Utc>,
    /// The revision of the last roll-out that was completed.
    pub(crate) current: &'a str,
    /// All revisions whose content is known.
    pub(crate) known: &'a BTreeMap<&'a str, Known>,
    /// The revision of the spec, if it failed and this roll-out goes back from it by itself. No verdict on a node depends
    /// on that.
    pub(crate) undone: Option<&'a str>,
    /// Whether the newest revision was the newest once before.
    pub(crate) returns: bool,
}

impl<'a> Revisions<'a> {
    /// The newest one before the revision of the current spec.
    pub(crate) fn previous(&self) -> Option<&'a str> {
        let older = self.known.iter().filter(|(hash, _)| **hash != self.update);
        older
            .max_by_key(|(_, known)| known.number)
            .map(|(hash, _)| *hash)
    }

    /// Whether a user goes back to the revision of the last completed roll-out. Nothing stops that. A roll-out that goes
    /// back by itself is another: no user looks on.
    pub(crate) fn is_way_out(&self) -> bool {
        self.is_at_current() && self.undone.is_none()
    }

    /// Whether the newest revision is that of the last completed roll-out.
    pub(crate) fn is_at_current(&self) -> bool {
        self.update == self.current
    }

    /// Whether the pods go back from a revision whose roll-out was not completed, by themselves or because a user wants it.
    /// Nodes that get the current revision late, after a roll-out that went forward, do not.
    pub(crate) fn goes_back(&self) -> bool {
        self.undone.is_some() || (self.is_way_out() && self.returns)
    }
}

/// What is known of a revision. Everything except its number follows from its hash.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    /// Its number in the history: the newest has the highest.
    pub(crate) number: i64,
    /// Which nodes its pods belong on.
    pub(crate) placement: Arc<Placement>,
}

/// The last pod of a node that has none now, as far as it is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    /// The hash of the pod's revision.
    pub(crate) revision: String,
    /// How many pods of this revision have failed there in a row.
    pub(crate) attempt: u32,
    /// The operator deleted the pod because a newer revision excludes the node: while the roll-out
    /// is held, the node does not get it again.
    pub(crate) excluded: bool,
    /// The newer revision that the operator deleted the pod for: the node gets that one, even if another domain comes first
    /// by now.
    pub(crate) outdated_by: Option<Box<str>>,
    /// What a pod of a newer revision replaces.
    pub(crate) was: Predecessor,
    /// What it replaced itself, and so does its successor of the same revision.
    pub(crate) predecessor: Predecessor,
}

/// Input of a decision, besides the nodes and their pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RolloutInput<'a> {
    /// Which nodes a pod of the current spec belongs on.
    pub(crate) placement: &'a Placement,
    pub(crate) strategy: Strategy,
    pub(crate) revisions: Revisions<'a>,
    /// A node that has been `NotReady` for this long is left out of the limits of a roll-out, which
    /// otherwise would never end (kubernetes/kubernetes#117658).
    pub(crate) grace: TimeDelta,
    /// How many reconciles in a row ended with something that could not be done.
    pub(crate) failures: usize,
    /// Whether the API server is known to accept a pod of the newest revision.
    pub(crate) validated: bool,
    /// The nodes that this roll-out was stopped for, if it was.
    pub(crate) stopped_for: Option<&'a [FailedNode]>,
    /// Whether a user resumed this roll-out in spite of failing nodes.
    pub(crate) resumed: bool,
    /// What a user has frozen.
    pub(crate) freeze: Option<Freeze>,
    pub(crate) now: DateTime<Utc>,
    /// The canary that the spec asks for, unless the status says that the newest revision needs none.
    pub(crate) canary: Option<&'a Canary>,
    /// Whether a user ended the canary of the newest revision.
    pub(crate) approved: bool,
    /// Whether steps may begin.
    pub(crate) gate: Gate,
    /// The domains that the spec asks for, unless the newest revision has been on all of them before.
    pub(crate) domains: Option<&'a Arc<Domains>>,
}

impl<'a> RolloutInput<'a> {
    /// The canary that the newest revision has to pass before more nodes get it. The revision of the last completed
    /// roll-out has none: an undo must not wait.
    pub(crate) fn canary(&self) -> Option<&'a Canary> {
        self.canary.filter(|_| self.is_rolled_out())
    }

    /// The domains that it is to reach one after the other, once it has passed its canary. An undo must not wait for them
    /// either.
    pub(crate) fn domains(&self) -> Option<&'a Arc<Domains>> {
        let is_next = self.is_rolled_out() && self.canary.is_none();
        self.domains.filter(|_| is_next)
    }

    /// Whether a user has the roll-out go on in spite of nodes that fail.
    pub(super) fn accepts_failures(&self) -> bool {
        self.resumed || self.strategy.auto_pause.is_none()
    }

    /// Whether the newest revision is to take the place of another one.
    fn is_rolled_out(&self) -> bool {
        let revisions = &self.revisions;
        let is_new = revisions.stored && !revisions.is_at_current();
        is_new && !self.strategy.on_delete
    }
}
