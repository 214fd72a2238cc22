//! WIP

pub mod admission;
pub mod crd;
pub mod placement;
pub mod pod;
pub mod revision;
pub mod rollout;
pub mod views;
