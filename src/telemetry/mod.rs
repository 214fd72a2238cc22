//! What the operator tells of itself: logs, metrics, probes.

pub mod logs;
pub mod metrics;
pub mod probes;
