//! What to do next: a pure function of the nodes, the pods, the spec, the revisions and the time.
//!
//! [`placement`] says which nodes the pods of a template belong on. [`node`] judges each node by itself: which pods
//! stay, go, or are missing, and what counts. A [`rollout::RolloutState`] keeps the verdicts and their sums, so that a
//! change of one node costs work for that node alone, and applies the limits of the [`strategy`] to all of them together;
//! a [`canary`], on nodes that [`candidates`] chooses, comes before, and [`domains`] come one after the
//! other. [`undo`] says which revision takes the place of one that failed, whose roll-out is like any other. [`freeze`] is
//! what a user forbids, and [`window`] says when steps may begin. Nothing here makes a call or reads a clock, so tests can
//! drive the decisions by the thousand against a model of a cluster.
//!
//! [`input`] goes in; a [`decision`] and what was [`observed`] come out.

pub(super) mod canary;
mod candidates;
pub(super) mod decision;
pub(super) mod domains;
pub mod freeze;
pub(super) mod input;
pub(crate) mod node;
pub(super) mod observed;
pub mod placement;
pub(super) mod rollout;
pub mod strategy;
pub(super) mod undo;
pub(super) mod window;

#[cfg(test)]
mod tests;
