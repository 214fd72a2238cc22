//! What is counted of all Ats together.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};
use prometheus_client::registry::Registry;

use super::crd::{AtStatus, Ending, Phase};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: &'static str,
}

/// Every figure of this kind.
#[derive(Debug)]
pub struct Metrics {
    lateness: Histogram,
    runs: Family<Ended, Counter>,
    pending: Gauge,
}

impl Metrics {
    /// Registers the figures.
    pub fn new(registry: &mut Registry) -> Self {
        let this = Self {
            lateness: Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0,
            ]),
            runs: Family::default(),
            pending: Gauge::default(),
        };
        // Rates can be asked for before there was a run.
        for result in [
            Ending::Succeeded,
            Ending::Failed,
            Ending::Missed,
            Ending::Unknown,
        ] {
            this.ended(result);
        }
        registry.register(
            "my_operator_at_lateness_seconds",
            "From the instant of an At to the release of its pod",
            this.lateness.clone(),
        );
        registry.register(
            "my_operator_at_runs",
            "Ats that are over, by result",
            this.runs.clone(),
        );
        registry.register(
            "my_operator_at_pending",
            "Ats that have not started",
            this.pending.clone(),
        );
        this
    }

    /// An At came, changed or went: its phase before and after, as far as there was or is one.
    pub fn changed(&self, before: Option<Phase>, after: Option<Phase>) {
        let pending = |phase: Option<Phase>| i64::from(phase == Some(Phase::Pending));
        self.pending.inc_by(pending(after) - pending(before));
    }

    /// The pod of an At with that status was released.
    pub fn released(&self, status: &AtStatus) {
        let late = status
            .lateness_milliseconds
            .and_then(|ms| u32::try_from(ms).ok());
        if let Some(ms) = late {
            self.lateness.observe(f64::from(ms) / 1000.0);
        }
    }

    /// An At is over.
    pub fn over(&self, result: Ending) {
        self.ended(result).inc();
    }

    fn ended(&self, result: Ending) -> Counter {
        let result = match result {
            Ending::Succeeded => "Succeeded",
            Ending::Failed => "Failed",
            Ending::Missed => "Missed",
            Ending::Unknown => "Unknown",
        };
        self.runs.get_or_create(&Ended { result }).clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_page_tells_what_waits_how_late_and_with_what_result() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.changed(None, Some(Phase::Pending));
        metrics.changed(None, Some(Phase::Pending));
        metrics.changed(None, Some(Phase::Done));
        metrics.changed(Some(Phase::Pending), Some(Phase::Running));
        metrics.changed(Some(Phase::Running), None);
        metrics.released(&AtStatus {
            lateness_milliseconds: Some(20),
            ..AtStatus::default()
        });
        metrics.released(&AtStatus::default());
        metrics.over(Ending::Missed);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        for line in [
            "my_operator_at_pending 1",
            "my_operator_at_lateness_seconds_count 1",
            "my_operator_at_lateness_seconds_sum 0.02",
            "my_operator_at_runs_total{result=\"Missed\"} 1",
            "my_operator_at_runs_total{result=\"Failed\"} 0",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
