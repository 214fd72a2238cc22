//! The cost of MyDaemonSets, compared with a client that creates the same pods and nothing else, with the built-in
//! DaemonSet, and with a small controller-runtime MyDaemonSet.
//!
//! Every measurement has a fresh plane of its own. [`rollout`] rolls one out to many nodes and changes its image,
//! [`memory`] measures the cost of nodes, their heartbeats and pods, and [`rest`] has many with nothing to do. [`view`]
//! measures what a user's view of a roll-out costs.

mod memory;
mod rest;
mod rollout;
mod view;
mod writes;

use anyhow::{Context as _, Result};

use crate::operator::Operator;
use crate::table::{Column, Figures, Round};
use crate::{Measurement, in_rounds, is_wanted};

/// This operator.
const OURS: &str = "my-operator";
/// A client that does nothing but create the pods, 32 at a time.
const BARE: &str = "bare client";
/// The DaemonSet controller and the scheduler with 2,000 calls a second.
const RAISED: &str = "DaemonSet, limits raised";
/// The DaemonSet controller with the limits that it has by default, on fewer nodes.
const DEFAULTS: &str = "DaemonSet, default limits";
/// `peers/controller-runtime/mydaemonset`, which creates one pod at a time.
const PEER_1: &str = "controller-runtime, 1 at a time";
/// The same with 32.
const PEER_32: &str = "controller-runtime, 32 at a time";

/// The first of them.
const OPERATOR: Operator = Operator::Ours("mydaemonset");

/// The operator of a column, if it is one.
fn operator(column: &str) -> Option<Operator> {
    match column {
        OURS => Some(OPERATOR),
        PEER_1 => Some(Operator::Peer("mydaemonset", "--creates=1")),
        PEER_32 => Some(Operator::Peer("mydaemonset", "--creates=32")),
        _ => None,
    }
}

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How often, in turns. Memory, rest and view are measured in the first round only: they hardly vary.
    pub(crate) rounds: u32,
    /// How many nodes there are.
    pub(crate) nodes: usize,
    /// How many there are for the DaemonSet controller with its default limits.
    pub(crate) few_nodes: usize,
    /// How many MyDaemonSets are at rest.
    pub(crate) sets: usize,
    /// On how many nodes.
    pub(crate) rest_nodes: usize,
    /// For how many seconds they are watched resting.
    pub(crate) rest_seconds: u32,
    /// For how many seconds nodes send heartbeats.
    pub(crate) beat_seconds: u32,
    /// What is measured; everything when empty.
    pub(crate) only: Vec<Measurement>,
}

/// Measures in that many rounds.
pub(crate) fn bench(plan: &Plan) -> Result<Vec<Round>> {
    in_rounds(plan.rounds, async |round| measure(plan, round).await)
}

async fn measure(plan: &Plan, round: u32) -> Result<Round> {
    let mut columns = Round::new();
    for name in [OURS, BARE, RAISED, DEFAULTS, PEER_1, PEER_32] {
        let mut figures = Figures::default();
        let progress = |what: &str| eprintln!("round {round} of {}: {what}, {name}", plan.rounds);
        let failed = |what: &str| format!("{what}, {name}");
        if is_wanted(&plan.only, Measurement::Rollout) {
            progress("roll-out");
            let measured = rollout::measure(name, plan, &mut figures).await;
            measured.with_context(|| failed("roll-out"))?;
        }
        if let Some(operator) = operator(name).filter(|_| name != PEER_32 && round == 1) {
            if is_wanted(&plan.only, Measurement::Memory) {
                progress("memory");
                let measured = memory::measure(operator, plan, &mut figures).await;
                measured.with_context(|| failed("memory"))?;
            }
            if is_wanted(&plan.only, Measurement::Rest) {
                progress("rest");
                let measured = rest::measure(operator, plan, &mut figures).await;
                measured.with_context(|| failed("rest"))?;
            }
        }
        if is_wanted(&plan.only, Measurement::View) && name == OURS && round == 1 {
            progress("view");
            let measured = view::measure(plan, &mut figures).await;
            measured.with_context(|| failed("view"))?;
        }
        columns.push(Column::printed(name, figures));
    }
    Ok(columns)
}
