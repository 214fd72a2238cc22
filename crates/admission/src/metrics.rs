//! Metrics of the webhooks, under controller-runtime's names.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};
use prometheus_client::registry::Registry;

use super::faults::Fault;

/// How many fields of a kind have a series of their own; the others count as [`OTHER`]. The name of a field can contain
/// user input (the key of a label), and the number of series must be bounded.
const MAX_FIELDS: usize = 100;

/// The label of every field after the first [`MAX_FIELDS`].
const OTHER: &str = "other";

/// The path of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Webhook {
    webhook: String,
}

/// The path of a webhook and the HTTP status of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Answered {
    webhook: String,
    code: u16,
}

/// A field of a kind, by which faults are counted. List indices and map keys are `[*]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Refused {
    kind: String,
    field: String,
}

/// Counts and times reviews, for [`router`](crate::router::router). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    faults: Family<Refused, Counter>,
    requests: Family<Answered, Counter>,
    latency: Family<Webhook, Histogram, fn() -> Histogram>,
    in_flight: Family<Webhook, Gauge>,
}

impl Default for Metrics {
    /// Metrics that no registry shows.
    fn default() -> Self {
        Self {
            requests: Family::default(),
            latency: Family::new_with_constructor(|| {
                Histogram::new([
                    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5,
                    1.0, 5.0, 10.0,
                ])
            }),
            in_flight: Family::default(),
            faults: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics; with the feature `metrics`. `faults` is the name of the counter of faults for which
    /// objects were rejected, by kind and field, such as `example_admission_faults`; the other metrics have the names
    /// of controller-runtime. `Metrics::default()` counts, and no registry shows it.
    pub fn new(registry: &mut Registry, faults: &str) -> Self {
        let this = Self::default();
        registry.register(
            "controller_runtime_webhook_requests",
            "Admission requests by webhook and HTTP status",
            this.requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_latency_seconds",
            "How long an admission request took",
            this.latency.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Admission requests being answered",
            this.in_flight.clone(),
        );
        registry.register(
            faults,
            "Faults for which objects were refused, by kind and field",
            this.faults.clone(),
        );
        this
    }

    /// The metrics of the webhook at that path, which reviews objects of that kind.
    pub(crate) fn of(&self, path: &str, kind: &str) -> WebhookMetrics {
        let by = Webhook {
            webhook: path.to_owned(),
        };
        let this = WebhookMetrics {
            path: path.to_owned(),
            kind: kind.to_owned(),
            latency: self.latency.get_or_create(&by).clone(),
            in_flight: self.in_flight.get_or_create(&by).clone(),
            ok: Counter::default(),
            requests: self.requests.clone(),
            faults: self.faults.clone(),
            fields: Arc::default(),
        };
        // So that the rate of failures can be queried before the first one.
        this.answered(400);
        this.answered(500);
        let ok = this.answered(OK);
        WebhookMetrics { ok, ..this }
    }
}

const OK: u16 = 200;

/// The metrics of one webhook, looked up once.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    path: String,
    kind: String,
    latency: Histogram,
    in_flight: Gauge,
    ok: Counter,
    requests: Family<Answered, Counter>,
    faults: Family<Refused, Counter>,
    fields: Arc<Mutex<HashSet<String>>>,
}

impl WebhookMetrics {
    /// Counts a request that arrives. If the guard is dropped before the answer, the request counts as our failure.
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight {
            webhook: self,
            start: Instant::now(),
            code: 500,
        }
    }

    /// Counts the faults for which an object was rejected.
    pub(crate) fn refused(&self, faults: &[Fault]) {
        for fault in faults {
            let kind = self.kind.clone();
            let field = self.known(fault.path());
            self.faults.get_or_create(&Refused { kind, field }).inc();
        }
    }

    fn known(&self, field: String) -> String {
        let mut fields = self.fields.lock();
        if fields.contains(&field) {
            return field;
        }
        if fields.len() == MAX_FIELDS {
            return OTHER.to_owned();
        }
        fields.insert(field.clone());
        field
    }

    fn answered(&self, code: u16) -> Counter {
        let webhook = self.path.clone();
        self.requests
            .get_or_create(&Answered { webhook, code })
            .clone()
    }
}

/// A request in flight. It is counted even if it ends by a panic.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    webhook: &'a WebhookMetrics,
    start: Instant,
    code: u16,
}

impl InFlight<'_> {
    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    /// It was answered with this HTTP status.
    pub(crate) fn answered(mut self, code: u16) {
        self.code = code;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let webhook = self.webhook;
        webhook.in_flight.dec();
        webhook.latency.observe(self.start.elapsed().as_secs_f64());
        if self.code == OK {
            webhook.ok.inc();
        } else {
            webhook.answered(self.code).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn webhook() -> (Registry, WebhookMetrics) {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry, "webhook_faults");
        let webhook = metrics.of("/validate-x", "X");
        (registry, webhook)
    }

    fn page(registry: &Registry) -> String {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, registry).unwrap();
        page
    }

    #[test]
    fn a_request_that_panics_is_counted_and_no_longer_in_flight() {
        let (registry, webhook) = webhook();
        webhook.begin().answered(200);
        webhook.begin().answered(415);
        let panicking = webhook.clone();
        let panicked = std::thread::spawn(move || {
            let _in_flight = panicking.begin();
            std::panic::resume_unwind(Box::new("quietly"));
        });
        assert!(panicked.join().is_err());
        let page = page(&registry);
        for line in [
            "controller_runtime_webhook_requests_in_flight{webhook=\"/validate-x\"} 0",
            "controller_runtime_webhook_requests_total{webhook=\"/validate-x\",code=\"200\"} 1",
            "controller_runtime_webhook_requests_total{webhook=\"/validate-x\",code=\"400\"} 0",
            "controller_runtime_webhook_requests_total{webhook=\"/validate-x\",code=\"415\"} 1",
            "controller_runtime_webhook_requests_total{webhook=\"/validate-x\",code=\"500\"} 1",
            "controller_runtime_webhook_latency_seconds_count{webhook=\"/validate-x\"} 3",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn faults_are_counted_by_field_and_the_fields_do_not_grow_without_end() {
        let (registry, webhook) = webhook();
        webhook.refused(&[
            Fault::required("spec.containers[0].image", ""),
            Fault::required("spec.containers[17].image", ""),
        ]);
        for key in 0..1000 {
            // A key that looks like a path.
            let key = format!("0].x{key}[1");
            webhook.refused(&[Fault::required("spec.labels", "").at_key(&key)]);
        }
        for i in 0..1000 {
            webhook.refused(&[Fault::required(format!("spec.labels.key-{i}"), "")]);
        }
        let page = page(&registry);
        let of = |field: &str| {
            let start = format!("webhook_faults_total{{kind=\"X\",field=\"{field}\"}} ");
            let line = page.lines().find_map(|line| line.strip_prefix(&start));
            line.and_then(|figure| figure.parse::<usize>().ok())
        };
        assert_eq!(of("spec.containers[*].image"), Some(2));
        assert_eq!(of("spec.labels[*]"), Some(1000));
        assert_eq!(of("spec.labels.key-5"), Some(1));
        assert_eq!(of(OTHER), Some(1000 - (MAX_FIELDS - 2)));
        assert_eq!(
            page.matches("webhook_faults_total{").count(),
            MAX_FIELDS + 1
        );
    }
}
