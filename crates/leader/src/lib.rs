#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod candidate;
#[cfg(feature = "client")]
mod client;
mod decision;
mod elector;
mod fence;
mod lease;
mod periods;
mod rivals;
#[cfg(test)]
mod simulation;

pub use elector::{Elector, IsRival, OnProblem, Settings, Term};
pub use fence::{Fence, Fenced};
pub use periods::{Periods, PeriodsError};
