//! The calls that a reconcile makes.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::{Request, Response};
use futures::future::Either;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_http::HeaderInjector;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tower::{Layer, Service};
use tracing::{Level, Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::TARGET;

/// The layer of a client whose calls are spans, and have the header `traceparent`, where they are made within a span. Others,
/// such as watches, pass as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls;

impl<S> Layer<S> for Calls {
    type Service = Called<S>;

    fn layer(&self, inner: S) -> Called<S> {
        Called(inner)
    }
}

/// A service with the layer [`Calls`].
#[derive(Clone, Debug)]
pub struct Called<S>(S);

impl<S, A, B> Service<Request<A>> for Called<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future =
        Either<S::Future, Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        if !tracing::enabled!(target: TARGET, Level::TRACE) || Span::current().is_disabled() {
            return Either::Left(self.0.call(request));
        }
        let span = tracing::trace_span!(
            target: TARGET,
            "call",
            otel.name = request.method().as_str(),
            otel.kind = "client",
            otel.status_code = field::Empty,
            http.request.method = request.method().as_str(),
            http.response.status_code = field::Empty,
            // Without the query, which may have a selector of any length.
            url.path = request.uri().path(),
        );
        TraceContextPropagator::new()
            .inject_context(&span.context(), &mut HeaderInjector(request.headers_mut()));
        let answer = self.0.call(request);
        Either::Right(Box::pin(async move {
            let answer = answer.await;
            let status = answer.as_ref().ok().map(Response::status);
            if let Some(status) = status {
                span.record("http.response.status_code", status.as_u16());
            }
            if !status.is_some_and(|status| status.is_success()) {
                span.record("otel.status_code", "ERROR");
            }
            answer
        }))
    }
}
