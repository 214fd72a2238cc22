//! OpenTelemetry traces, sent to a collector with OTLP over HTTP. Off unless the standard variables name one.
//!
//! Spans are those of `tracing` whose target is [`TARGET`], at its level TRACE: where nothing is sent, each costs the load of
//! one number. Logs do not show them.

mod calls;
mod collector;
mod settings;

use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use opentelemetry::KeyValue;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{FutureExt as _, TracerProvider as _};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};

pub use calls::Calls;
pub use collector::Send;
pub use settings::Settings;

/// The target of the spans.
pub const TARGET: &str = "otel::tracing";

/// How long the last spans may take to be sent at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// What `tracing` hands spans to.
pub type SpanLayer = Box<dyn Layer<Registry> + std::marker::Send + Sync>;

/// Sends spans in batches, from a thread and a queue of 2,048 of their own: while the queue is full, spans are dropped.
#[derive(Clone, Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends with `send`, within a runtime of tokio. `service` and `version` are what the variables may replace.
    ///
    /// # Errors
    /// When a variable that the library reads is malformed.
    pub fn start(
        settings: &Settings,
        service: &'static str,
        version: &'static str,
        send: Send,
    ) -> anyhow::Result<Self> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(settings.endpoint.to_string())
            .with_timeout(settings.timeout)
            .with_http_client(collector::Collector::new(settings, send))
            .build()
            .context("cannot send traces")?;
        let resource = Resource::builder_empty()
            .with_service_name(service)
            .with_attribute(KeyValue::new("service.version", version))
            .with_attributes(
                settings
                    .host
                    .clone()
                    .map(|host| KeyValue::new("host.name", host)),
            )
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_detector(Box::new(EnvResourceDetector::new()));
        let resource = match &settings.service {
            Some(name) => resource.with_service_name(name.clone()),
            None => resource,
        };
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_batch_exporter(exporter);
        Ok(Self(provider.build()))
    }

    /// The layer for [`logs::start`](crate::logs::start).
    pub fn layer(&self) -> SpanLayer {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer(env!("CARGO_PKG_NAME")))
            // Where in the code a span is made says nothing to users.
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(Targets::new().with_target(TARGET, LevelFilter::TRACE))
            .boxed()
    }

    /// Sends what is left, for at most two seconds.
    pub async fn end(self) {
        let ended =
            tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(FLUSH_TIMEOUT));
        if let Ok(Err(error)) = ended.await {
            tracing::debug!(%error, "the last traces are lost");
        }
    }
}

/// The router whose spans have the parent that the request names in the header `traceparent`.
pub fn with_parents(router: Router) -> Router {
    router.layer(from_fn(with_parent))
}

async fn with_parent(mut request: Request, next: Next) -> Response {
    // It would be kept with each span in the queue, and any caller may send 16 KiB.
    request.headers_mut().remove("tracestate");
    // A malformed header is as good as none.
    let parent = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
    next.run(request).with_context(parent).await
}
