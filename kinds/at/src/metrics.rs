//! Metrics over all Ats.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};
use prometheus_client::registry::Registry;

use super::admission::Base;
use super::crd::{Ending, Phase};
use super::decide::Delay;
use wall_clock_controller::reconcile::Key;
use wall_clock_controller::reconcile::key_map::KeyMap;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: &'static str,
}

/// Finished Ats of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndedIn {
    namespace: Arc<str>,
    result: &'static str,
}

/// An At whose pod was released and does not run or end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitingAt {
    namespace: Arc<str>,
    name: Arc<str>,
    reason: Arc<str>,
}

/// The metrics of this kind.
#[derive(Debug)]
pub(crate) struct Metrics {
    lateness: Histogram,
    runs: Family<Ended, Counter>,
    failed: Family<EndedIn, Gauge>,
    pending: Gauge,
    overdue: Gauge,
    waiting: Family<WaitingAt, Gauge>,
    /// The Ats that stand still.
    delays: Mutex<KeyMap<Delay>>,
}

impl Metrics {
    /// Registers the metrics.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            lateness: Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0,
            ]),
            runs: Family::default(),
            failed: Family::default(),
            pending: Gauge::default(),
            overdue: Gauge::default(),
            waiting: Family::default(),
            delays: Mutex::default(),
        };
        // So that rates can be queried before the first run.
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
            "From the instant of an At, or from when its schedule was set if that was later, to the release of its pod",
            this.lateness.clone(),
        );
        registry.register(
            "my_operator_at_runs",
            "Finished Ats, by result",
            this.runs.clone(),
        );
        registry.register(
            "my_operator_at_failed",
            "Finished Ats that did not succeed and have not been deleted, by namespace and result",
            this.failed.clone(),
        );
        registry.register(
            "my_operator_at_pending",
            "Ats that have not started",
            this.pending.clone(),
        );
        registry.register(
            "my_operator_at_overdue",
            "Ats whose command should have started more than 60 s ago and has not",
            this.overdue.clone(),
        );
        registry.register(
            "my_operator_at_waiting",
            "An At that waits after the release of its pod, for this reason",
            this.waiting.clone(),
        );
        this
    }

    /// Counts an At that was created, changed or deleted: its phase before and after, where there is one.
    pub(crate) fn count_phase(&self, before: Option<Phase>, after: Option<Phase>) {
        let pending = |phase: Option<Phase>| i64::from(phase == Some(Phase::Pending));
        self.pending.inc_by(pending(after) - pending(before));
    }

    /// Counts an At whose result before and after a change is this. A namespace without such an At
    /// has no series. The changes of one namespace come from one watch, one after the other.
    pub(crate) fn count_result(&self, key: &Key, before: Option<Ending>, after: Option<Ending>) {
        if before == after {
            return;
        }
        for (result, by) in [(before, -1), (after, 1)] {
            let Some(result) = result.filter(|result| *result != Ending::Succeeded) else {
                continue;
            };
            let ended = EndedIn {
                namespace: key.namespace.clone(),
                result: name(result),
            };
            let others = self.failed.get_or_create(&ended).inc_by(by);
            if others + by == 0 {
                self.failed.remove(&ended);
            }
        }
    }

    /// Records why an At stands still, by its last reconcile; `None` if it does not, or is gone.
    pub(crate) fn set_delay(&self, key: &Key, delay: Option<Delay>) {
        let mut delays = self.delays.lock();
        let before = match &delay {
            Some(delay) => delays.insert(key.clone(), delay.clone()),
            None => delays.remove(key),
        };
        if before != delay {
            self.count_delay(key, before, -1);
            self.count_delay(key, delay, 1);
        }
    }

    fn count_delay(&self, key: &Key, delay: Option<Delay>, by: i64) {
        match delay {
            None => {}
            Some(Delay::Overdue) => {
                self.overdue.inc_by(by);
            }
            Some(Delay::Waiting(reason)) => {
                let (namespace, name) = (key.namespace.clone(), key.name.clone());
                let labels = WaitingAt {
                    namespace,
                    name,
                    reason,
                };
                if by > 0 {
                    self.waiting.get_or_create(&labels).set(1);
                } else {
                    self.waiting.remove(&labels);
                }
            }
        }
    }

    /// The number of overdue Ats.
    #[cfg(test)]
    pub(crate) fn overdue_count(&self) -> i64 {
        self.overdue.get()
    }

    /// Counts the release of an At's pod. A schedule that was past when it was set is late from
    /// then on: before that, it could not have been kept.
    pub(crate) fn observe_lateness(
        &self,
        start: DateTime<Utc>,
        instant: Option<DateTime<Utc>>,
        set: Option<Base>,
    ) {
        let Some(instant) = instant else {
            return;
        };
        let set = set.map(|base| match base {
            Base::Created(set) | Base::Changed(set) => set,
        });
        let due = set.map_or(instant, |set| set.max(instant));
        let late = (start - due).num_milliseconds().max(0);
        // Beyond 49 days it is in the last bucket anyway.
        let late = u32::try_from(late).unwrap_or(u32::MAX);
        self.lateness.observe(f64::from(late) / 1000.0);
    }

    /// Counts a finished At.
    pub(crate) fn count_run(&self, result: Ending) {
        self.ended(result).inc();
    }

    fn ended(&self, result: Ending) -> Counter {
        let result = name(result);
        self.runs.get_or_create(&Ended { result }).clone()
    }
}

/// The value of the label `result`.
fn name(result: Ending) -> &'static str {
    match result {
        Ending::Succeeded => "Succeeded",
        Ending::Failed => "Failed",
        Ending::Missed => "Missed",
        Ending::Unknown => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn the_metrics_cover_phases_lateness_and_results() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.count_phase(None, Some(Phase::Pending));
        metrics.count_phase(None, Some(Phase::Pending));
        metrics.count_phase(None, Some(Phase::Done));
        metrics.count_phase(Some(Phase::Pending), Some(Phase::Running));
        metrics.count_phase(Some(Phase::Running), None);
        let second = |n: i64| DateTime::from_timestamp(1_800_000_000 + n, 0).unwrap();
        let start = second(0) + TimeDelta::milliseconds(20);
        let created = |at| Some(Base::Created(second(at)));
        metrics.observe_lateness(start, Some(second(0)), created(-3600));
        // Its instant was an hour past when it was created.
        metrics.observe_lateness(start, Some(second(-3600)), created(0));
        metrics.observe_lateness(start, None, None);
        metrics.count_run(Ending::Missed);
        let waiting = |reason: &str| Some(Delay::Waiting(reason.into()));
        for (name, delay) in [
            ("a", Some(Delay::Overdue)),
            ("b", Some(Delay::Overdue)),
            ("b", Some(Delay::Overdue)),
            ("a", None),
            ("c", None),
            ("d", waiting("Unschedulable")),
            ("d", waiting("ContainerCreating")),
            ("e", waiting("Unschedulable")),
            ("e", None),
        ] {
            metrics.set_delay(&Key::new("ns", name), delay);
        }
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        for line in [
            "my_operator_at_pending 1",
            "my_operator_at_overdue 1",
            "my_operator_at_waiting{namespace=\"ns\",name=\"d\",reason=\"ContainerCreating\"} 1",
            "my_operator_at_lateness_seconds_count 2",
            "my_operator_at_lateness_seconds_sum 0.04",
            "my_operator_at_runs_total{result=\"Missed\"} 1",
            "my_operator_at_runs_total{result=\"Failed\"} 0",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("Unschedulable"), "{page}");
    }

    #[test]
    fn ats_that_did_not_succeed_count_until_they_are_deleted() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let page = |registry: &Registry| {
            let mut page = String::new();
            prometheus_client::encoding::text::encode(&mut page, registry).unwrap();
            let name = "my_operator_at_failed{";
            let lines = page.lines().filter_map(|line| line.strip_prefix(name));
            let mut lines: Vec<_> = lines.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let (a, b) = (Key::new("a", "x"), Key::new("b", "x"));
        for (key, result) in [
            (&a, Ending::Failed),
            (&a, Ending::Failed),
            (&a, Ending::Missed),
            (&b, Ending::Unknown),
            (&b, Ending::Succeeded),
        ] {
            metrics.count_result(key, None, Some(result));
            // A later event of the same At, such as one of its labels.
            metrics.count_result(key, Some(result), Some(result));
        }
        let all = [
            "namespace=\"a\",result=\"Failed\"} 2",
            "namespace=\"a\",result=\"Missed\"} 1",
            "namespace=\"b\",result=\"Unknown\"} 1",
        ];
        assert_eq!(page(&registry), all);
        metrics.count_result(&a, Some(Ending::Failed), None);
        metrics.count_result(&a, Some(Ending::Missed), None);
        metrics.count_result(&b, Some(Ending::Unknown), None);
        metrics.count_result(&b, Some(Ending::Succeeded), None);
        let left = ["namespace=\"a\",result=\"Failed\"} 1"];
        assert_eq!(page(&registry), left);
    }
}
