//! What the operator tells of itself: logs, metrics, probes.

pub mod access;
pub mod logs;
pub mod metrics;
pub mod probes;
