//! Logs, metrics, traces and probes of a process. Nothing here knows what they are about.

pub mod access;
pub mod logs;
pub mod metrics;
pub mod probes;
pub mod traces;
