//! The cost of starting Ats and of waiting Ats, compared with a client that makes the same writes and nothing else,
//! with built-in Jobs, and with a small controller-runtime At that writes no status before it creates the pod.
//!
//! Every measurement has a fresh plane of its own. [`burst`] has many Ats due at one instant, [`beside`] the same beside
//! others whose calls hang, [`idle`] many that wait, and [`late`] a few, one after the other, on an idle system.

mod beside;
mod burst;
mod idle;
mod late;
mod writes;

use anyhow::{Context as _, Result};

pub(crate) use writes::at;

use crate::operator::Operator;
use crate::table::{Column, Figures, Round};
use crate::{Measurement, in_rounds, is_wanted};

/// This operator.
const OURS: &str = "my-operator";
/// A client that does nothing but the writes of the protocol, 32 at a time.
const BARE: &str = "bare client";
/// Jobs of the controller manager.
const JOBS: &str = "Jobs";
/// `peers/controller-runtime/at` with its default of one worker.
const PEER_1: &str = "controller-runtime, 1 worker";
/// The same with ten.
const PEER_10: &str = "controller-runtime, 10 workers";

/// The first of them.
const OPERATOR: Operator = Operator::Ours("at");

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How often, in turns. What waits is measured in the first round only: it hardly varies.
    pub(crate) rounds: u32,
    /// How many are due at one instant.
    pub(crate) due: usize,
    /// How many wait.
    pub(crate) pending: usize,
    /// How many have calls that hang, beside those that are due. Measured in the first round only.
    pub(crate) hanging: usize,
    /// For how many seconds they are watched waiting.
    pub(crate) idle_seconds: u32,
    /// How many start alone.
    pub(crate) single: u32,
    /// What is measured; everything when empty.
    pub(crate) only: Vec<Measurement>,
}

/// The operator of a column, if it is one.
fn operator(column: &str) -> Option<Operator> {
    match column {
        OURS => Some(OPERATOR),
        PEER_1 => Some(Operator::Peer("at", "--workers=1")),
        PEER_10 => Some(Operator::Peer("at", "--workers=10")),
        _ => None,
    }
}

/// Measures in that many rounds.
pub(crate) fn bench(plan: &Plan) -> Result<Vec<Round>> {
    in_rounds(plan.rounds, async |round| measure(plan, round).await)
}

async fn measure(plan: &Plan, round: u32) -> Result<Round> {
    let mut columns = Round::new();
    for name in [OURS, BARE, JOBS, PEER_1, PEER_10] {
        let mut figures = Figures::default();
        let operator = operator(name);
        let progress = |what: &str| eprintln!("round {round} of {}: {what}, {name}", plan.rounds);
        let failed = |what: &str| format!("{what}, {name}");
        if is_wanted(&plan.only, Measurement::Burst) {
            progress("burst");
            let measured = burst::measure(name, plan.due, &mut figures).await;
            measured.with_context(|| failed("burst"))?;
        }
        if name == OURS && is_wanted(&plan.only, Measurement::Beside) && round == 1 {
            progress("beside calls that hang");
            let measured = beside::measure(plan.due, plan.hanging, &mut figures).await;
            measured.with_context(|| failed("beside calls that hang"))?;
        }
        if let Some(operator) = operator.filter(|_| name != PEER_10) {
            if is_wanted(&plan.only, Measurement::Idle) && round == 1 {
                progress("waiting");
                let measured =
                    idle::measure(operator, plan.pending, plan.idle_seconds, &mut figures).await;
                measured.with_context(|| failed("waiting"))?;
            }
            if is_wanted(&plan.only, Measurement::Late) {
                progress("lateness");
                let measured = late::measure(operator, plan.single, &mut figures).await;
                measured.with_context(|| failed("lateness"))?;
            }
        }
        columns.push(Column::printed(name, figures));
    }
    Ok(columns)
}
