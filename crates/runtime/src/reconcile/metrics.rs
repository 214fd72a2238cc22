//! Metrics of queues and reconcilers, under controller-runtime's names so that its dashboards work here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};
use prometheus_client::registry::Registry;

/// Label: the reconciler.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Controller {
    controller: &'static str,
}

/// Labels: the reconciler, and the result of a reconcile: success, `requeue_after` or error.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Ended {
    controller: &'static str,
    result: &'static str,
}

/// Labels: the reconciler and the category of an error.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Failed {
    controller: &'static str,
    category: &'static str,
}

/// Labels: the queue, and the reconciler that it belongs to. Both are the same, as in controller-runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Queue {
    name: &'static str,
    controller: &'static str,
}

/// Labels: the resource and the namespace of a watch. An empty namespace means all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Watched {
    resource: String,
    namespace: String,
}

/// The reconciles that run at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InProgress {
    /// How long all of them together have run.
    pub(super) total: Duration,
    /// How long the oldest has run.
    pub(super) longest: Duration,
}

/// Reads what is in progress of a queue; `None` when the queue is gone.
type Read = Box<dyn Fn() -> Option<InProgress> + Send + Sync>;

/// What each scrape reads of the queues, by their names.
#[derive(Clone, Default)]
struct Queues(Arc<Mutex<BTreeMap<&'static str, Read>>>);

/// What a gauge shows of the work in progress.
type Figure = fn(&InProgress) -> Duration;

/// The gauges of work in progress: the name, what it shows, and where that is.
const IN_PROGRESS: [(&str, &str, Figure); 2] = [
    (
        "workqueue_unfinished_work_seconds",
        "How long the running reconciles have taken together, in seconds",
        |work| work.total,
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "How long the longest running reconcile has taken, in seconds",
        |work| work.longest,
    ),
];

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").finish_non_exhaustive()
    }
}

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let queues = self.0.lock();
        // Once, for both gauges.
        let read: Vec<_> = queues
            .iter()
            .filter_map(|(name, read)| Some((*name, read()?)))
            .collect();
        for (metric, help, seconds) in IN_PROGRESS {
            let mut family = encoder.encode_descriptor(metric, help, None, MetricType::Gauge)?;
            for (name, work) in &read {
                let labels = [("name", *name), ("controller", *name)];
                let one = family.encode_family(&labels)?;
                ConstGauge::new(seconds(work).as_secs_f64()).encode(one)?;
            }
        }
        Ok(())
    }
}

type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;

/// All metrics of this module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<Ended, Counter>,
    errors: Family<Controller, Counter>,
    error_categories: Family<Failed, Counter>,
    seconds: Seconds<Controller>,
    active: Family<Controller, Gauge>,
    depth: Family<Queue, Gauge>,
    adds: Family<Queue, Counter>,
    retries: Family<Queue, Counter>,
    waited: Seconds<Queue>,
    worked: Seconds<Queue>,
    queues: Queues,
    watch_failing: Family<Watched, Gauge>,
}

fn histogram() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ])
}

impl Metrics {
    /// Registers the metrics. Two that controller-runtime does not have begin with `manager`, the name of the program:
    /// `my_program` for `my-program`.
    pub fn new(registry: &mut Registry, manager: &str) -> Self {
        let prefix = manager.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let this = Self {
            reconciles: Family::default(),
            errors: Family::default(),
            error_categories: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            active: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(histogram),
            worked: Family::new_with_constructor(histogram),
            queues: Queues::default(),
            watch_failing: Family::default(),
        };
        this.register_reconciles(registry, &prefix);
        this.register_queues(registry);
        registry.register(
            format!("{prefix}_watch_failing"),
            "Watches that fail, by resource and namespace",
            this.watch_failing.clone(),
        );
        this
    }

    fn register_reconciles(&self, registry: &mut Registry, prefix: &str) {
        registry.register(
            "controller_runtime_reconcile",
            "Reconciles by controller and result",
            self.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Failed reconciles by controller",
            self.errors.clone(),
        );
        registry.register(
            format!("{prefix}_reconcile_errors"),
            "Failed reconciles by controller and category of the error",
            self.error_categories.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles",
            self.seconds.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Workers at work",
            self.active.clone(),
        );
    }

    fn register_queues(&self, registry: &mut Registry) {
        registry.register(
            "workqueue_depth",
            "Keys that are due for a reconcile",
            self.depth.clone(),
        );
        registry.register(
            "workqueue_adds",
            "Keys put into the queue",
            self.adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Keys put back after an error",
            self.retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long a key waited for a worker",
            self.waited.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long a worker had a key",
            self.worked.clone(),
        );
        registry.register_collector(Box::new(self.queues.clone()));
    }

    /// How many watches of that resource in that namespace fail.
    pub(super) fn watch_failing(&self, resource: &str, namespace: &str) -> Gauge {
        let watched = Watched {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
        };
        self.watch_failing.get_or_create(&watched).clone()
    }

    /// From now on each scrape reads what is in progress of that reconciler's queue.
    pub(super) fn read_in_progress(
        &self,
        controller: &'static str,
        read: impl Fn() -> Option<InProgress> + Send + Sync + 'static,
    ) {
        self.queues.0.lock().insert(controller, Box::new(read));
    }

    /// The metrics of one reconciler, looked up once.
    pub fn of(&self, controller: &'static str) -> ControllerMetrics {
        let by = Controller { controller };
        let queue = Queue {
            name: controller,
            controller,
        };
        let ended = |result| {
            self.reconciles
                .get_or_create(&Ended { controller, result })
                .clone()
        };
        ControllerMetrics {
            controller,
            success: ended("success"),
            requeue_after: ended("requeue_after"),
            error: ended("error"),
            errors: self.errors.get_or_create(&by).clone(),
            error_categories: self.error_categories.clone(),
            seconds: self.seconds.get_or_create(&by).clone(),
            active: self.active.get_or_create(&by).clone(),
            depth: self.depth.get_or_create(&queue).clone(),
            adds: self.adds.get_or_create(&queue).clone(),
            retries: self.retries.get_or_create(&queue).clone(),
            waited: self.waited.get_or_create(&queue).clone(),
            worked: self.worked.get_or_create(&queue).clone(),
        }
    }
}

/// The metrics of one reconciler and its queue.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    controller: &'static str,
    pub(super) success: Counter,
    pub(super) requeue_after: Counter,
    pub(super) error: Counter,
    pub(super) errors: Counter,
    error_categories: Family<Failed, Counter>,
    pub(super) seconds: Histogram,
    pub(super) active: Gauge,
    pub(super) depth: Gauge,
    pub(super) adds: Counter,
    pub(super) retries: Counter,
    pub(super) waited: Histogram,
    pub(super) worked: Histogram,
}

impl ControllerMetrics {
    pub(super) fn failed(&self, category: &'static str) {
        self.error.inc();
        self.errors.inc();
        let controller = self.controller;
        self.error_categories
            .get_or_create(&Failed {
                controller,
                category,
            })
            .inc();
    }
}
