//! Metrics of the webhooks, under controller-runtime's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};
use prometheus_client::registry::Registry;

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

/// Every figure of this room. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Answered, Counter>,
    latency: Family<Webhook, Histogram, fn() -> Histogram>,
    in_flight: Family<Webhook, Gauge>,
}

impl Metrics {
    /// Registers the figures.
    pub fn new(registry: &mut Registry) -> Self {
        let this = Self {
            requests: Family::default(),
            latency: Family::new_with_constructor(|| {
                Histogram::new([
                    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5,
                    1.0, 5.0, 10.0,
                ])
            }),
            in_flight: Family::default(),
        };
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
        this
    }

    /// The figures of one webhook, looked up once.
    pub fn of(&self, path: &str) -> WebhookMetrics {
        let by = Webhook {
            webhook: path.to_owned(),
        };
        let code = |code| {
            let webhook = path.to_owned();
            self.requests
                .get_or_create(&Answered { webhook, code })
                .clone()
        };
        WebhookMetrics {
            latency: self.latency.get_or_create(&by).clone(),
            in_flight: self.in_flight.get_or_create(&by).clone(),
            ok: code(200),
            bad: code(400),
        }
    }
}

/// The figures of one webhook.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    pub(super) latency: Histogram,
    pub(super) in_flight: Gauge,
    pub(super) ok: Counter,
    pub(super) bad: Counter,
}
