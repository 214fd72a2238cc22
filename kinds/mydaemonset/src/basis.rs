//! What a decision is based on as far as it follows from stored objects: the same for the controller and for a client that
//! asks [`why`](super::why).

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::crd::MyDaemonSetStatus;
use crate::decide::input::{Known, Revisions, RolloutInput};
use crate::decide::placement::Placement;
use crate::decide::rollout::RolloutState;
use crate::decide::undo;
use crate::decide::window;
use crate::object::ParsedSpec;
use crate::revision::RevisionView;
use crate::status::{needs_no_canary, was_completed};

/// The default of `--node-not-ready-grace`.
pub(crate) const GRACE: TimeDelta = TimeDelta::seconds(60);

/// The input of a decision as far as it follows from the spec, or what takes its place, and the status before.
pub(crate) fn input<'a>(
    spec: &'a ParsedSpec,
    before: &MyDaemonSetStatus,
    placement: &'a Placement,
    revisions: Revisions<'a>,
    now: DateTime<Utc>,
) -> RolloutInput<'a> {
    let (canary, domains) = (spec.canary.as_ref(), spec.domains.as_ref());
    RolloutInput {
        placement,
        strategy: spec.strategy,
        revisions,
        grace: GRACE,
        failures: 0,
        validated: true,
        stopped_for: None,
        resumed: false,
        freeze: None,
        now,
        canary: canary.filter(|_| !needs_no_canary(before, &spec.hash)),
        approved: false,
        gate: window::gate(&spec.windows, revisions.goes_back(), now),
        domains: domains.filter(|_| !was_completed(before, &spec.hash)),
    }
}

/// The revisions of a roll-out to the one of that hash, which is stored, and of which no other is undone.
pub(crate) fn revisions<'a>(
    update: &'a str,
    current: &'a str,
    known: &'a BTreeMap<&'a str, Known>,
    stored: &[Arc<RevisionView>],
) -> Revisions<'a> {
    let newest = stored.iter().find(|it| it.hash == update);
    Revisions {
        update,
        stored: true,
        update_since: newest.map(|it| it.since).unwrap_or_default(),
        current,
        known,
        undone: None,
        returns: newest.is_some_and(|it| it.again),
    }
}

/// The stored revisions by their hashes, with the placement by which each counts.
pub(crate) fn known(
    revisions: &[Arc<RevisionView>],
    placement: impl Fn(&RevisionView) -> Arc<Placement>,
) -> BTreeMap<&str, Known> {
    let known = revisions.iter().map(|revision| {
        let known = Known {
            number: revision.number,
            placement: placement(revision),
        };
        (revision.hash.as_str(), known)
    });
    known.collect()
}

/// The revision that the pods go back to, should `written`, that of the spec, fail: none if it is not stored any more.
pub(crate) fn undo_target<'a>(
    before: &MyDaemonSetStatus,
    written: &str,
    revisions: &'a [Arc<RevisionView>],
) -> Option<&'a Arc<RevisionView>> {
    let target = undo::target(&before.complete_revisions, written)?;
    revisions.iter().find(|it| it.hash == target)
}

/// The revision of the last roll-out that was completed.
pub(crate) fn current_revision(
    before: &MyDaemonSetStatus,
    state: &RolloutState,
    known: &BTreeMap<&str, Known>,
    update: &str,
) -> String {
    // An object without a status may have adopted pods.
    let adopted = || {
        let others = state.revisions().filter(|hash| *hash != update);
        others.max_by_key(|hash| known.get(hash).map(|known| known.number))
    };
    let current = before.current_revision.as_deref().or_else(adopted);
    current.unwrap_or(update).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_leads_to_the_last_other_revision_that_was_completed_and_is_kept() {
        let before = |complete: &[&str]| MyDaemonSetStatus {
            complete_revisions: complete.iter().map(ToString::to_string).collect(),
            ..MyDaemonSetStatus::default()
        };
        let kept = |hashes: &[&str]| -> Vec<Arc<RevisionView>> {
            let revision = |hash: &&str| RevisionView {
                hash: hash.to_string(),
                ..RevisionView::default()
            };
            hashes.iter().map(revision).map(Arc::new).collect()
        };
        let target = |complete: &[&str], written: &str, hashes: &[&str]| {
            let revisions = kept(hashes);
            let target = undo_target(&before(complete), written, &revisions);
            target.map(|target| target.hash.clone())
        };
        let (complete, all) = (["c", "b"], ["new", "c", "b"]);
        assert_eq!(target(&complete, "new", &all).as_deref(), Some("c"));
        assert_eq!(target(&complete, "c", &all).as_deref(), Some("b"));
        assert_eq!(target(&complete, "new", &["new", "b"]), None);
        assert_eq!(target(&[], "new", &all), None);
    }
}
