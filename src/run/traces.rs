//! The connection to the collector of traces.

use std::sync::Arc;

use anyhow::Context as _;
use axum::body::{self, Bytes};
use axum::http::uri::PathAndQuery;
use axum::http::{Request, Response, Uri};
use futures::FutureExt as _;
use kube::client::Body;
use kube::{Client, Config};

use crate::manifests::PREFIX;
use my_operator_telemetry::traces::{Send, Settings, Traces};
use resilient_kube_client as client;

/// The longest answer of a collector: it is empty, or says what was wrong.
const MAX_ANSWER: usize = 64 * 1024;

/// Sends traces where the standard variables say, within a runtime of tokio. None if they name no collector.
///
/// # Errors
/// When a variable has a value that cannot be followed, which the message names.
pub fn start(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Traces>> {
    let Some(settings) = Settings::read(variable)? else {
        return Ok(None);
    };
    let send = connect(&settings)?;
    Traces::start(&settings, PREFIX, env!("CARGO_PKG_VERSION"), send).map(Some)
}

/// Connections of their own, with the TLS and the proxies of those to the API server.
fn connect(settings: &Settings) -> anyhow::Result<Send> {
    // Requests have the path.
    let mut server = settings.endpoint.clone().into_parts();
    server.path_and_query = Some(PathAndQuery::from_static("/"));
    let mut config = Config::new(Uri::from_parts(server)?);
    // The image has no authorities of a system to fall back to, and plain HTTP needs none.
    let needs_none = settings.endpoint.scheme_str() == Some("http");
    if needs_none || settings.certificate.is_some() {
        config.root_cert = Some(Vec::new());
    }
    config.root_cert_file.clone_from(&settings.certificate);
    config.proxy_url = client::choose_proxy(&settings.endpoint, None)?;
    let builder = client::builder(&config, client::tcp())
        .context("cannot send traces (https needs a file with the CA of the collector in OTEL_EXPORTER_OTLP_CERTIFICATE)")?;
    let client = builder.build();
    Ok(Arc::new(move |request| {
        post(client.clone(), request).boxed()
    }))
}

async fn post(client: Client, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
    let answer = client.send(request.map(Body::from)).await;
    let (parts, body) = answer
        .map_err(|error| anyhow::anyhow!(client::explain(&error)))?
        .into_parts();
    let body = body::to_bytes(body::Body::new(body), MAX_ANSWER).await;
    Ok(Response::from_parts(
        parts,
        body.context("its answer cannot be read")?,
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, Instant};

    use axum::Router;
    use axum::routing::post;
    use chrono::{DateTime, TimeDelta, Utc};
    use k8s_openapi::api::core::v1::ConfigMap;
    use my_operator_telemetry::traces::{Calls, TARGET, with_parents};
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Of;
    use opentelemetry_proto::tonic::trace::v1::Span;
    use parking_lot::Mutex;
    use prost::Message as _;
    use resilient_kube_client::clock;
    use serde_json::json;
    use simulated_apiserver::{Options, Server};
    use tokio::net::TcpListener;
    use tokio::time::{sleep, timeout};
    use tower::util::MapRequestLayer;
    use tower::{Layer as _, ServiceExt as _};
    use tracing::subscriber::{DefaultGuard, set_default};
    use tracing_subscriber::layer::SubscriberExt as _;
    use wall_clock_controller::reconcile::{
        Action, Context, Controller, Error, Key, Reconciler, call, write,
    };

    use super::*;

    /// That of the API server's request.
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    /// Traces to that collector, and the spans of this thread until the guard is dropped.
    fn started(url: &str) -> (Traces, DefaultGuard) {
        let traces = start(|name| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(url.to_owned()),
            "OTEL_EXPORTER_OTLP_TIMEOUT" => Some("60000".to_owned()),
            _ => None,
        });
        let traces = traces.unwrap().unwrap();
        let guard = set_default(tracing_subscriber::registry().with(traces.layer()));
        (traces, guard)
    }

    /// A collector of this test's own, and what it gets.
    async fn collector() -> (String, Arc<Mutex<Vec<Span>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let got = spans.clone();
        let take = async move |body: Bytes| {
            let batch = ExportTraceServiceRequest::decode(body).unwrap();
            let scopes = batch
                .resource_spans
                .into_iter()
                .flat_map(|it| it.scope_spans);
            got.lock().extend(scopes.flat_map(|scope| scope.spans));
        };
        let router = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (url, spans)
    }

    fn hex(bytes: &[u8]) -> String {
        let bytes = bytes.iter().map(|byte| format!("{byte:02x}"));
        bytes.collect::<Vec<_>>().concat()
    }

    /// The attributes in the order of their names, as `name=value`.
    fn attributes(span: &Span) -> Vec<String> {
        let mut all: Vec<_> = span
            .attributes
            .iter()
            .map(|one| match one.value.clone().unwrap().value.unwrap() {
                Of::StringValue(text) => format!("{}={text}", one.key),
                Of::BoolValue(flag) => format!("{}={flag}", one.key),
                Of::IntValue(number) => format!("{}={number}", one.key),
                other => format!("{}={other:?}", one.key),
            })
            .collect();
        all.sort();
        all
    }

    /// Sends a review that is refused.
    async fn review(name: &str, traceparent: Option<&str>) {
        let admission = crate::kinds::of_name("at").unwrap().admission;
        let path = admission.path("validate");
        let kind = (admission.resource)();
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u-1",
            "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "namespace": "team",
            "operation": "CREATE",
            "dryRun": true,
            "userInfo": {"username": "jane"},
            "object": {"metadata": {"name": name}, "spec": {"command": "secret"}},
        }});
        let mut request = Request::post(path).header("content-type", "application/json");
        if let Some(parent) = traceparent {
            request = request.header("traceparent", parent);
        }
        let router = admission_rules::router::router(
            &[admission],
            &clock::system(),
            &admission_rules::metrics::Metrics::default(),
        );
        let request = request.body(body::Body::from(review.to_string())).unwrap();
        let answer = with_parents(router).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
    }

    #[tokio::test]
    async fn a_review_is_a_span_below_that_of_the_api_server() {
        let (url, spans) = collector().await;
        let (traces, _guard) = started(&url);
        let sampled = format!("00-{TRACE}-{PARENT}-01");
        review("a", Some(&sampled)).await;
        review("not-sampled", Some(&format!("00-{TRACE}-{PARENT}-00"))).await;
        review("malformed", Some("00-x-y-01")).await;
        review("without", None).await;
        traces.end().await;
        let spans = spans.lock();
        let named = |name: &str| {
            let name = format!("name={name}");
            let mut all = spans.iter();
            all.find(|span| attributes(span).contains(&name))
        };
        let span = named("a").unwrap();
        assert_eq!(span.name, "CREATE At");
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(hex(&span.parent_span_id), PARENT);
        assert_eq!(
            attributes(span),
            [
                "allowed=false",
                "dry_run=true",
                "http.response.status_code=200",
                "kind=At",
                "name=a",
                "namespace=team",
                "operation=CREATE",
                "uid=u-1",
                "webhook=/validate-cnat-programming-kubernetes-info-v1alpha1-at",
            ]
        );
        assert!(named("not-sampled").is_none());
        for alone in ["malformed", "without"] {
            let span = named(alone).unwrap();
            assert!(span.parent_span_id.is_empty(), "{span:?}");
            assert_ne!(hex(&span.trace_id), TRACE);
        }
        assert_eq!(spans.len(), 3);
    }

    /// Creates a ConfigMap, and comes again an hour later.
    struct Copies(Client);

    impl Reconciler for Copies {
        async fn reconcile(&self, key: &Key, now: DateTime<Utc>) -> Result<Action, Error> {
            let copy = json!({"metadata": {"name": format!("{}-copy", key.name)}});
            let body = copy.to_string().into_bytes();
            let create = write::create::<ConfigMap, ConfigMap>(&self.0, &key.namespace, body, "x");
            call("create the copy", key, create).await?;
            Ok(Action::at(Some(now + TimeDelta::hours(1))))
        }
    }

    /// Reconciles a key in a namespace that is there and one in a namespace that is not, and returns the headers
    /// `traceparent` that the API server got.
    async fn reconcile() -> Vec<String> {
        let headers = Arc::<Mutex<Vec<Option<String>>>>::default();
        let got = headers.clone();
        let keep = MapRequestLayer::new(move |request: Request<Body>| {
            let header = request.headers().get("traceparent");
            let header = header.map(|value| value.to_str().unwrap().to_owned());
            got.lock().push(header);
            request
        });
        let server = Server::new(Options::default());
        let service = Calls.layer(keep.layer(server.service("copies")));
        let client = Client::new(service, "default");
        let (context, _events) = Context::new(client.clone(), clock::system(), "copies");
        let controller = Controller::new("copies", &context);
        controller.queue().add(Key::new("default", "a"));
        controller.queue().add(Key::new("nowhere", "b"));
        let stop = context.stop.clone();
        let running = tokio::spawn(controller.run(Arc::new(Copies(client))));
        let called = async {
            while headers.lock().len() < 2 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_mins(1), called).await.unwrap();
        // It lets the keys be finished.
        stop.cancel();
        running.await.unwrap().unwrap();
        let headers = headers.lock();
        headers.iter().flatten().cloned().collect()
    }

    #[tokio::test]
    async fn a_reconcile_is_a_span_and_its_calls_are_below_it() {
        assert_eq!(reconcile().await, [""; 0], "nothing is configured");
        let (url, spans) = collector().await;
        let (traces, guard) = started(&url);
        let headers = reconcile().await;
        drop(guard);
        traces.end().await;
        let spans = spans.lock();
        let with = |name: &str, text: &str| {
            let mut all = spans.iter().filter(|span| span.name == name);
            all.find(|span| attributes(span).iter().any(|one| one == text))
        };
        let done = with("reconcile copies", "name=a").unwrap();
        let shown = attributes(done);
        assert!(
            shown.contains(&"outcome=reconciled".to_owned()),
            "{shown:?}"
        );
        assert!(shown.contains(&"namespace=default".to_owned()), "{shown:?}");
        assert!(
            shown.iter().any(|one| one.starts_with("next=")),
            "{shown:?}"
        );
        let failed = with("reconcile copies", "name=b").unwrap();
        let shown = attributes(failed);
        assert!(shown.contains(&"outcome=error".to_owned()), "{shown:?}");
        assert_eq!(failed.status.clone().unwrap().code, 2);
        for (reconcile, text, status) in [
            (
                done,
                "url.path=/api/v1/namespaces/default/configmaps",
                "201",
            ),
            (
                failed,
                "url.path=/api/v1/namespaces/nowhere/configmaps",
                "404",
            ),
        ] {
            let call = with("POST", text).unwrap();
            let status = format!("http.response.status_code={status}");
            assert!(attributes(call).contains(&status), "{call:?}");
            assert_eq!(call.parent_span_id, reconcile.span_id);
            let sent = format!("00-{}-{}-01", hex(&call.trace_id), hex(&call.span_id));
            assert!(headers.contains(&sent), "{headers:?}");
        }
    }

    #[tokio::test]
    async fn a_collector_that_never_answers_holds_up_nothing() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (traces, _guard) = started(&format!("http://{}", silent.local_addr().unwrap()));
        let start = Instant::now();
        // More than the queue has.
        for _ in 0..10_000 {
            tracing::trace_span!(target: TARGET, "span").in_scope(|| {});
        }
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
        let start = Instant::now();
        traces.end().await;
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}
