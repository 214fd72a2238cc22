#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bounds;
pub mod faults;
pub mod json;
pub mod judge;
#[cfg(feature = "router")]
#[cfg_attr(not(feature = "metrics"), path = "no_metrics.rs")]
pub mod metrics;
pub mod names;
pub mod patch;
pub mod review;
#[cfg(feature = "router")]
pub mod router;
pub mod rules;
mod size;
pub mod text;

#[cfg(all(test, feature = "router"))]
mod tests;
