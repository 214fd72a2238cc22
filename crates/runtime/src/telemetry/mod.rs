//! Logs, metrics and probes of the operator.

pub mod access;
pub mod logs;
pub mod metrics;
pub mod probes;
