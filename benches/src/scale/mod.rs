//! Whether the memory of each object, and the work for each event, stay the same from a thousand objects to a million.
//!
//! The operator works on a simulated API server ([`plane`]), which the bench itself serves: only the operator's own
//! process is measured ([`work`]). [`ats`] has many Ats that wait, [`sets`] many pods of
//! MyDaemonSets.
//!
//! The columns are sizes. The first one is the largest, and the others show how many times as much it takes as a tenth of
//! it, and so on: 1 is flat.

mod ats;
mod plane;
mod sets;
mod work;

use anyhow::{Context as _, Result};

use crate::table::{Aim, Column, Figures, Round};
use crate::{Measurement, in_rounds, is_wanted};

/// The columns, and what part of the objects each has.
const COLUMNS: [(&str, usize); 4] = [
    ("all", 1),
    ("a tenth", 10),
    ("a hundredth", 100),
    ("a thousandth", 1_000),
];
/// Flat: within a fifth of each smaller size.
const FLAT: [Aim; 3] = [
    Aim::MostTimes(1.2, "a tenth"),
    Aim::MostTimes(1.2, "a hundredth"),
    Aim::MostTimes(1.2, "a thousandth"),
];
/// Fewer Ats, and fewer nodes, are not measured.
const MIN_ATS: usize = 1_000;
const MIN_NODES: usize = 150;
/// Of fewer Ats the memory is not compared: it varies by half a megabyte between starts.
const MIN_ATS_IN_MEMORY: usize = 10_000;

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    /// How many Ats wait.
    pub(crate) ats: usize,
    /// How many nodes have a pod of each MyDaemonSet.
    pub(crate) nodes: usize,
    /// For how many seconds they are watched waiting.
    pub(crate) rest_seconds: u32,
    /// What is measured; everything when empty.
    pub(crate) only: Vec<Measurement>,
}

/// Measures in that many rounds.
pub(crate) fn bench(plan: &Plan) -> Result<Vec<Round>> {
    in_rounds(plan.rounds, async |round| measure(plan, round).await)
}

async fn measure(plan: &Plan, round: u32) -> Result<Round> {
    let mut columns = Round::new();
    // The small ones first: what fails soon fails there.
    for (column, part) in COLUMNS.into_iter().rev() {
        let mut figures = Figures::default();
        let ats = plan.ats / part;
        if ats >= MIN_ATS && is_wanted(&plan.only, Measurement::Ats) {
            eprintln!("round {round} of {}: {ats} Ats", plan.rounds);
            let flat = [MIN_ATS, MIN_ATS_IN_MEMORY].map(|least| flat(plan.ats, least));
            let measured = ats::measure(ats, plan.rest_seconds, flat, &mut figures).await;
            measured.with_context(|| format!("{ats} Ats"))?;
        }
        let nodes = plan.nodes / part;
        if nodes >= MIN_NODES && is_wanted(&plan.only, Measurement::Sets) {
            eprintln!("round {round} of {}: {nodes} nodes", plan.rounds);
            let flat = flat(plan.nodes, MIN_NODES);
            let measured = sets::measure(nodes, plan.rest_seconds, flat, &mut figures).await;
            measured.with_context(|| format!("{nodes} nodes"))?;
        }
        if !figures.0.is_empty() {
            columns.insert(0, Column::printed(column, figures));
        }
    }
    Ok(columns)
}

/// The aims of a figure that is measured with that many objects, and with parts of them that are no fewer than `least`.
fn flat(most: usize, least: usize) -> &'static [Aim] {
    let parts = COLUMNS.iter().skip(1);
    let measured = parts.filter(|(_, part)| most / part >= least).count();
    FLAT.get(..measured).unwrap_or_default()
}
