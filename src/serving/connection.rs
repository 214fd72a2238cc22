//! One connection, from the handshake to its end.

use std::any::Any;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Limited;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::DeadlineBody;

use super::counters::{Counters, Rejection};
use super::{Limits, Shutdown};

/// What all connections of a listener share.
pub(super) struct Connections {
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) shutdown: Shutdown,
    pub(super) counters: Arc<Counters>,
}

/// `router` with panics kept to the request that they happen in.
pub(super) fn guarded(router: Router) -> Router {
    router
        .layer(CatchPanicLayer::custom(panicked))
        // axum's own limit (2 MiB) is below what an update of a large object takes; ours is in `answer`.
        .layer(DefaultBodyLimit::disable())
}

// The layer's signature wants the box.
#[allow(clippy::needless_pass_by_value)]
fn panicked(panic: Box<dyn Any + Send>) -> Response<Body> {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(panic = message, "a request handler panicked");
    failure(
        StatusCode::INTERNAL_SERVER_ERROR,
        "{\"error\":\"internal error\"}\n",
    )
}

fn failure(status: StatusCode, line: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(line));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl Connections {
    /// Serves one connection to its end.
    pub(super) async fn handle(&self, stream: TcpStream) {
        self.counters.accept();
        let _open = Open(&self.counters);
        let Some(tls) = &self.tls else {
            return self.speak(stream).await;
        };
        let handshake = tokio::select! {
            // Nothing was asked yet, so nothing is lost.
            () = self.shutdown.stop.cancelled() => return,
            handshake = tokio::time::timeout(self.limits.handshake, tls.accept(stream)) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => self.speak(stream).await,
            // Port probes and scanners are no errors of ours: counted, not logged.
            Ok(Err(error)) => {
                self.counters.reject(Rejection::HandshakeFailed);
                tracing::debug!(%error, "TLS handshake failed");
            }
            Err(_) => {
                self.counters.reject(Rejection::HandshakeTimeout);
                tracing::debug!("TLS handshake timed out");
            }
        }
    }

    /// Answers requests until either side has enough.
    async fn speak(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let asked = AtomicBool::new(false);
        let service = service_fn(|request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            self.answer(request)
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.limits.idle)
                .serve_connection(TokioIo::new(stream), service)
        );
        let mut first_request = pin!(tokio::time::sleep(self.limits.first_request));
        let (mut watching, mut stopping) = (true, false);
        let result = loop {
            tokio::select! {
                result = connection.as_mut() => break result,
                () = &mut first_request, if watching => {
                    if !asked.load(Ordering::Relaxed) {
                        self.counters.reject(Rejection::FirstRequestTimeout);
                        return;
                    }
                    watching = false;
                }
                () = self.shutdown.stop.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "connection ended");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        // A body that says beforehand that it is too large is not read; one that does not say fails
        // while it is read, as does one that takes too long.
        let mut response = if request.body().size_hint().lower() > self.limits.body_bytes as u64 {
            failure(
                StatusCode::PAYLOAD_TOO_LARGE,
                "{\"error\":\"request body too large\"}\n",
            )
        } else {
            let request = request.map(|body| {
                let body = Limited::new(body, self.limits.body_bytes);
                Body::new(DeadlineBody::new(self.limits.body, body))
            });
            self.router.clone().oneshot(request).await?
        };
        if self.shutdown.draining.is_cancelled() {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }
}

/// Counts the end of a connection however it comes, an aborted task included.
struct Open<'a>(&'a Counters);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
