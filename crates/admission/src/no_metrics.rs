//! In place of the metrics, without the feature `metrics`: nothing is counted.
#![allow(clippy::unused_self)]

use std::time::Instant;

use super::faults::Fault;

/// Counts nothing: the feature `metrics` is off.
#[derive(Clone, Debug, Default)]
pub struct Metrics(());

impl Metrics {
    pub(crate) fn of(&self, _path: &str, _kind: &str) -> WebhookMetrics {
        WebhookMetrics
    }
}

#[derive(Debug)]
pub(crate) struct WebhookMetrics;

impl WebhookMetrics {
    pub(crate) fn begin(&self) -> InFlight {
        InFlight(Instant::now())
    }

    pub(crate) fn refused(&self, _faults: &[Fault]) {}
}

#[derive(Debug)]
pub(crate) struct InFlight(Instant);

impl InFlight {
    pub(crate) fn start(&self) -> Instant {
        self.0
    }

    pub(crate) fn answered(self, _code: u16) {}
}
