//! What every answer of the API server goes through on its way to the caller.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full, Limited};
use hyper::body::Body;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{counter::Counter, family::Family};
use prometheus_client::registry::Registry;
use tower::{BoxError, Layer, Service};

use super::{pages, rejection};

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Ended {
    code: String,
    method: String,
}

/// Counts calls by method and HTTP status, under client-go's name: `rest_client_requests_total`. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requests: Family<Ended, Counter>,
}

impl Metrics {
    /// Registers the counter. `Metrics::default()` counts, and no registry shows it.
    pub fn new(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register(
            "rest_client_requests",
            "Calls to the API server by method and HTTP status",
            this.requests.clone(),
        );
        this
    }
}

/// The layer of a client that counts the calls, reads at most 64 KiB of a rejection, copies its header `Retry-After`
/// into kube's error, and limits [`pages`]. [`connect`](crate::connect) has it.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    metrics: Metrics,
}

impl Answers {
    /// Counts in `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let metrics = metrics.clone();
        Self { metrics }
    }
}

impl<S> Layer<S> for Answers {
    type Service = Answered<S>;

    fn layer(&self, inner: S) -> Answered<S> {
        let answers = self.clone();
        Answered { inner, answers }
    }
}

/// A service with the layer [`Answers`].
#[derive(Clone, Debug)]
pub struct Answered<S> {
    inner: S,
    answers: Answers,
}

impl<S, A, B> Service<Request<A>> for Answered<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Limited<Either<B, Full<Bytes>>>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let method = request.method().to_string();
        let most = pages::most(request.uri().query().unwrap_or_default());
        let Answers { metrics } = self.answers.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = match &answer {
                Ok(response) => response.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            metrics
                .requests
                .get_or_create(&Ended { code, method })
                .inc();
            let answer = rejection::shorten(answer?).await;
            Ok(answer.map(|body| Limited::new(body, most)))
        })
    }
}
