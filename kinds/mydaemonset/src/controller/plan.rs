//! Brings what is observed and what is remembered to the decision.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::basis::{self, current_revision, input, known};
use crate::crd::{FailedNode, MyDaemonSetStatus};
use crate::decide::decision::Decision;
use crate::decide::input::{Revisions, RolloutInput};
use crate::decide::node::OnNode;
use crate::decide::placement::{Eligibility, Placement};
use crate::decide::rollout::RolloutState;
use crate::decide::window::Gate;
use crate::memory::Memory;
use crate::pass::Pass;
use crate::revision::RevisionView;

/// What to do, and what else follows from the same observations.
pub(super) struct Plan {
    pub(super) decision: Decision,
    /// The revision of the last roll-out that was completed: this one, if it is so now.
    pub(super) current: String,
    /// Whether steps may begin.
    pub(super) gate: Gate,
}

/// Decides what to do, from the nodes that changed since the last pass. The roll-out was stopped for those nodes, if it was.
pub(super) fn plan(
    pass: &Pass<'_>,
    revisions: &[Arc<RevisionView>],
    stored: bool,
    before: &MyDaemonSetStatus,
    stopped_for: Option<&[FailedNode]>,
) -> Plan {
    let spec = pass.spec;
    let update = spec.hash.as_str();
    let mut memory = pass.memory();
    memory
        .acceptance
        .retain(|hash| hash == update || revisions.iter().any(|r| r.hash == hash));
    let known = known(revisions, |revision| {
        let placement = &revision.placement;
        let placement = memory.acceptance.placement(&revision.hash, placement);
        placement.clone()
    });
    let placement = memory.acceptance.placement(update, &spec.placement).clone();
    let (mut state, changed) = take_state(pass, &mut memory);
    let idle = put_changed(pass, &mut memory, &placement, &mut state, changed);
    let current = current_revision(before, &state, &known, update);
    let revisions = Revisions {
        stored,
        undone: pass.undone(),
        ..basis::revisions(update, &current, &known, revisions)
    };
    let input = RolloutInput {
        grace: pass.node_not_ready_grace,
        failures: memory.backoffs.turn(),
        validated: memory.acceptance.is_validated(update),
        stopped_for,
        resumed: pass.object.resume.as_deref() == Some(update),
        freeze: pass.frozen(),
        approved: pass.object.approve.as_deref() == Some(update),
        ..input(spec, before, &placement, revisions, pass.now)
    };
    let gate = input.gate;
    let decision = state.decide(&input);
    memory.rollout = Some(state);
    // Where nothing is held, no node gets its own revision again. Without this, it would be
    // remembered as long as the node exists.
    let strategy = &spec.strategy;
    let observed = &decision.observed;
    let comes_first = observed.canary.is_some() || observed.domain.is_some();
    // A window closes and opens by itself, for ever.
    let is_outside = gate.is_closed && !observed.complete;
    let waits = pass.frozen().is_some() || comes_first || is_outside;
    let is_held = strategy.paused || strategy.partition > 0 || !stored || waits;
    let is_stopped = observed.auto_paused || observed.no_node;
    if !is_held && !is_stopped {
        for node in idle {
            memory.nodes.forget_last(&node);
        }
    }
    let current = if decision.observed.complete {
        update.to_owned()
    } else {
        current
    };
    Plan {
        decision,
        current,
        gate,
    }
}

/// The verdicts of the last decision, and the nodes that changed since. For another revision all
/// nodes count as changed: its placement may concern others.
fn take_state(pass: &Pass<'_>, memory: &mut Memory) -> (RolloutState, BTreeSet<Box<str>>) {
    let changed = memory.take_changed(pass.now);
    match memory.rollout.take() {
        Some(state) if state.is_for(&pass.spec.hash) => (state, changed),
        _ => {
            let mut every_node = pass.caches.every_node(pass.key, &pass.object.uid);
            // Those that are gone are forgotten.
            every_node.extend(changed);
            (RolloutState::new(&pass.spec.hash), every_node)
        }
    }
}

/// Puts the changed nodes with their pods into the state. Returns those that have no pod and must
/// not have one by the current spec.
fn put_changed(
    pass: &Pass<'_>,
    memory: &mut Memory,
    placement: &Placement,
    state: &mut RolloutState,
    changed: BTreeSet<Box<str>>,
) -> Vec<Box<str>> {
    let mut idle = Vec::new();
    let nodes = &mut memory.nodes;
    // Pods without a node belong to the scheduler: ours are created with one, but a backup may
    // restore a copy without it.
    for name in changed.into_iter().filter(|name| !name.is_empty()) {
        let node = pass.caches.node(&name);
        let pods = nodes.overlay(&pass.object.uid, &name, pass.pods_on(&name));
        if node.is_none() && pods.is_empty() {
            nodes.forget_node(&name);
        }
        nodes.forget_last_where_one_runs(&name, &pods, &pass.spec.hash);
        let is_gone = node.is_none() && !pods.is_empty();
        let gone_since = nodes.gone_since(&name, is_gone, pass.now);
        let may_run = node
            .as_deref()
            .is_some_and(|node| placement.eligibility(node) != Eligibility::Leave);
        if pods.is_empty() && !may_run {
            idle.push(name.clone());
        }
        let on_node = OnNode {
            node,
            gone_since,
            pods,
            last: nodes.last(&name).cloned().map(Box::new),
        };
        state.put(&name, on_node);
    }
    idle
}
