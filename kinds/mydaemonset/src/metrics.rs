//! The metrics of each `MyDaemonSet`, and those over all of them.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};
use prometheus_client::registry::Registry;

use super::crd::MyDaemonSetStatus;
use super::status::{is_frozen, is_rolling, paused, stands};
use wall_clock_controller::reconcile::Key;

/// A roll-out that stands, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Paused {
    namespace: Arc<str>,
    name: Arc<str>,
    reason: &'static str,
}

/// A number of nodes, or a yes, in the status.
type Count = fn(&MyDaemonSetStatus) -> Option<i32>;

/// The gauges of each object: the name, what it shows, and where that is.
const COUNTS: [(&str, &str, Count); 6] = [
    (
        "my_operator_mydaemonset_desired",
        "Nodes that should have a pod",
        |status| status.desired_number_scheduled,
    ),
    (
        "my_operator_mydaemonset_ready",
        "Nodes that should have a pod and have one that is ready",
        |status| status.number_ready,
    ),
    (
        "my_operator_mydaemonset_updated",
        "Nodes that should have a pod and have one of the newest revision",
        |status| status.updated_number_scheduled,
    ),
    (
        "my_operator_mydaemonset_unavailable",
        "Nodes that should have a pod and have no available one",
        |status| status.number_unavailable,
    ),
    (
        "my_operator_mydaemonset_rolling",
        "1 while a roll-out is under way",
        |status| Some(i32::from(is_rolling(status))),
    ),
    (
        "my_operator_mydaemonset_frozen",
        "1 while a user has frozen the object or its namespace",
        |status| Some(i32::from(is_frozen(status))),
    ),
];

/// The metrics of this kind.
#[derive(Debug)]
pub(crate) struct Metrics {
    counts: [Family<Key, Gauge>; COUNTS.len()],
    paused: Family<Paused, Gauge>,
    pub(crate) rollout_duration: Histogram,
    pub(crate) failed_pods: Counter,
    pub(crate) auto_pauses: Counter,
}

impl Metrics {
    /// Registers the metrics.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            counts: Default::default(),
            paused: Family::default(),
            // From a second to a day.
            rollout_duration: Histogram::new([
                1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0,
                21_600.0, 43_200.0, 86_400.0,
            ]),
            failed_pods: Counter::default(),
            auto_pauses: Counter::default(),
        };
        for ((name, help, _), family) in COUNTS.into_iter().zip(&this.counts) {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "my_operator_mydaemonset_paused",
            "1 while the roll-out stands and nodes are left, by the reason",
            this.paused.clone(),
        );
        registry.register(
            "my_operator_mydaemonset_rollout_duration_seconds",
            "From a new revision to the end of its roll-out",
            this.rollout_duration.clone(),
        );
        registry.register(
            "my_operator_mydaemonset_failed_pods",
            "Failed pods that were deleted and recreated",
            this.failed_pods.clone(),
        );
        registry.register(
            "my_operator_mydaemonset_auto_pauses",
            "Roll-outs that stopped by themselves because nodes failed",
            this.auto_pauses.clone(),
        );
        this
    }

    /// Sets the metrics of an object from its current status.
    pub(crate) fn status(&self, key: &Key, status: &MyDaemonSetStatus) {
        for ((.., count), family) in COUNTS.into_iter().zip(&self.counts) {
            let count = count(status).unwrap_or_default();
            family.get_or_create(key).set(count.into());
        }
        self.set_paused(key, paused(status));
    }

    /// Shows that the roll-out of an object stands for that reason and no other, or for none.
    pub(crate) fn set_paused(&self, key: &Key, reason: Option<&str>) {
        for known in stands() {
            let labels = Paused {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                reason: known,
            };
            if reason == Some(known) {
                self.paused.get_or_create(&labels).set(1);
            } else {
                self.paused.remove(&labels);
            }
        }
    }

    /// Removes the metrics of a deleted object.
    pub(crate) fn forget(&self, key: &Key) {
        for family in &self.counts {
            family.remove(key);
        }
        self.set_paused(key, None);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    fn page(registry: &Registry) -> String {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, registry).unwrap();
        page
    }

    #[test]
    fn the_metrics_cover_each_object_and_all_roll_outs() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        // So that rates can be queried before anything happened.
        for line in [
            "my_operator_mydaemonset_rollout_duration_seconds_count 0",
            "my_operator_mydaemonset_failed_pods_total 0",
            "my_operator_mydaemonset_auto_pauses_total 0",
        ] {
            let page = page(&registry);
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        let status = MyDaemonSetStatus {
            desired_number_scheduled: Some(7),
            number_ready: Some(5),
            updated_number_scheduled: Some(4),
            number_unavailable: Some(3),
            ..MyDaemonSetStatus::default()
        };
        metrics.status(&Key::new("ns", "web"), &MyDaemonSetStatus::default());
        metrics.status(&Key::new("ns", "web"), &status);
        metrics.rollout_duration.observe(90.0);
        metrics.failed_pods.inc_by(2);
        metrics.failed_pods.inc();
        metrics.auto_pauses.inc();
        for line in [
            "my_operator_mydaemonset_desired{namespace=\"ns\",name=\"web\"} 7",
            "my_operator_mydaemonset_ready{namespace=\"ns\",name=\"web\"} 5",
            "my_operator_mydaemonset_updated{namespace=\"ns\",name=\"web\"} 4",
            "my_operator_mydaemonset_unavailable{namespace=\"ns\",name=\"web\"} 3",
            "my_operator_mydaemonset_rollout_duration_seconds_sum 90.0",
            "my_operator_mydaemonset_rollout_duration_seconds_bucket{le=\"60.0\"} 0",
            "my_operator_mydaemonset_rollout_duration_seconds_bucket{le=\"150.0\"} 1",
            "my_operator_mydaemonset_failed_pods_total 3",
            "my_operator_mydaemonset_auto_pauses_total 1",
        ] {
            let page = page(&registry);
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn a_deleted_object_has_no_metrics() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        for name in ["stays", "goes"] {
            metrics.status(&Key::new("ns", name), &MyDaemonSetStatus::default());
        }
        metrics.set_paused(&Key::new("ns", "goes"), Some("Paused"));
        metrics.forget(&Key::new("ns", "goes"));
        metrics.forget(&Key::new("ns", "never-was"));
        let page = page(&registry);
        assert!(!page.contains("goes"), "{page}");
        assert_eq!(
            page.matches("name=\"stays\"} 0").count(),
            COUNTS.len(),
            "{page}"
        );
    }

    #[test]
    fn a_roll_out_stands_for_one_reason_at_a_time() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let lines = |registry: &Registry| {
            let page = page(registry);
            let lines = page
                .lines()
                .filter(|line| line.starts_with("my_operator_mydaemonset_paused{"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let key = Key::new("ns", "web");
        for (reason, expected) in [
            (Some("Paused"), vec!["Paused"]),
            (Some("AutoPaused"), vec!["AutoPaused"]),
            (Some("Complete"), vec![]),
            (Some("Cordoned"), vec!["Cordoned"]),
            (Some("Maintenance"), vec!["Maintenance"]),
            (None, vec![]),
        ] {
            metrics.set_paused(&key, reason);
            let expected: Vec<_> = expected
                .into_iter()
                .map(|reason| {
                    format!("my_operator_mydaemonset_paused{{namespace=\"ns\",name=\"web\",reason=\"{reason}\"}} 1")
                })
                .collect();
            assert_eq!(lines(&registry), expected);
        }
    }

    #[test]
    fn the_docs_list_every_metric_with_its_type() {
        const DOCS: &str = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/operations/metrics.md"
        ));
        let documented: BTreeSet<(String, &str)> = DOCS
            .lines()
            .filter_map(|line| {
                line.strip_prefix("- `my_operator_mydaemonset_")?
                    .split_once("` (")
            })
            .map(|(name, rest)| (name.to_owned(), rest.split([';', ')']).next().unwrap()))
            .collect();
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.status(&Key::new("ns", "web"), &MyDaemonSetStatus::default());
        metrics.set_paused(&Key::new("ns", "web"), stands().next());
        let page = page(&registry);
        let there: BTreeSet<(String, &str)> = page
            .lines()
            .filter_map(|line| {
                line.strip_prefix("# TYPE my_operator_mydaemonset_")?
                    .split_once(' ')
            })
            .map(|(name, kind)| match kind {
                "counter" => (format!("{name}_total"), kind),
                _ => (name.to_owned(), kind),
            })
            .collect();
        assert_eq!(documented, there);
    }
}
