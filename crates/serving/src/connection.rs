//! One connection, from the handshake to its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::answer::{self, Requests};
use super::client_certificates;
use super::counters::{Counters, Rejection};
use super::limits::Limits;
use super::permits::Permit;
use super::shutdown::Shutdown;
use super::turns::Turns;
use super::writes::TimedWrites;

/// The longest head of a request, and how much of a body is read at once. A head of the API server's
/// is below 1 kB, and a TLS record holds at most 16 KiB; hyper's own 400 KiB, times every connection
/// that sends nothing but a head, would be more than a pod has.
const BUFFER: usize = 16 * 1024;

/// Handshakes of one network that are ready to be computed, a quarter of a millisecond each: as many as threads compute
/// at once (see `--worker-threads`). Another network's handshake comes after these, not after hundreds.
const HANDSHAKES: usize = 4;

/// What all connections of a listener share.
pub(super) struct Connections {
    tls: Option<TlsAcceptor>,
    requests: Requests,
    handshakes: Arc<Turns>,
    pub(super) limits: Limits,
    shutdown: Shutdown,
    pub(super) counters: Arc<Counters>,
}

impl Connections {
    pub(super) fn new(
        tls: Option<TlsAcceptor>,
        router: Router,
        limits: Limits,
        shutdown: Shutdown,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            tls,
            requests: Requests::new(router, &limits),
            handshakes: Turns::new(HANDSHAKES),
            limits,
            shutdown,
            counters: counters.clone(),
        }
    }

    /// Serves one connection to its end.
    pub(super) async fn handle(&self, stream: TcpStream, permit: Permit) {
        // Small answers must not wait for more data (Nagle's algorithm).
        let ready = stream.set_nodelay(true);
        // From the runtime that accepted it to this one.
        let moved = ready.and_then(|()| TcpStream::from_std(stream.into_std()?));
        let stream = match moved {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(%error, "a connection went away at once"),
        };
        let Some(tls) = &self.tls else {
            return Box::pin(self.speak(stream, &permit)).await;
        };
        let handshake = async {
            // In boxes, and only once something came, so that a silent peer costs next to nothing.
            stream.peek(&mut [0]).await?;
            let accepting = tls.accept(stream);
            let accepting = self.handshakes.each_step(permit.source(), accepting);
            let mut stream = Box::pin(accepting).await?;
            // As much as hyper: rustls' own 64 KiB of unsent records would be on top of that, for each connection.
            stream.get_mut().1.set_buffer_limit(Some(BUFFER));
            Ok(stream)
        };
        let handshake = tokio::select! {
            // No request was sent yet, so nothing is lost.
            () = self.shutdown.stop.cancelled() => return,
            handshake = tokio::time::timeout(self.limits.handshake, handshake) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => Box::pin(self.speak(stream, &permit)).await,
            // Port probes and scanners are not errors: they are counted, not logged.
            Ok(Err(error)) => {
                self.counters
                    .reject(if client_certificates::is_to_blame(&error) {
                        Rejection::ClientCertificate
                    } else {
                        Rejection::HandshakeFailed
                    });
                tracing::debug!(%error, "TLS handshake failed");
            }
            Err(_) => {
                self.counters.reject(Rejection::HandshakeTimeout);
                tracing::debug!("TLS handshake timed out");
            }
        }
    }

    /// Answers requests until either side closes the connection.
    async fn speak(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send, permit: &Permit) {
        let waiting = Waiting::new();
        let service = service_fn(async |request: Request<Incoming>| {
            waiting.end();
            permit.begin_request();
            let mut response = (self.requests)
                .answer(request, permit.source(), &self.limits, &self.counters)
                .await;
            if self.shutdown.draining.is_cancelled() {
                answer::close(&mut response);
            }
            permit.end_request(response.status().is_success());
            waiting.begin();
            Ok::<_, Infallible>(response)
        });
        let stream = TimedWrites::new(stream, self.limits.write, &self.counters);
        let mut connection = pin!(
            http1::Builder::new()
                .max_buf_size(BUFFER)
                .serve_connection(TokioIo::new(stream), service)
        );
        // Hyper has a time-out for heads, too, but makes a timer for each request, and knows no other
        // limit for the first. This one alarm is only ever moved when it goes off.
        let mut alarm = pin!(tokio::time::sleep(self.limits.first_request));
        let mut stopping = false;
        let result = loop {
            tokio::select! {
                result = connection.as_mut() => break result,
                () = &mut alarm => match waiting.deadline(&self.limits) {
                    Some(deadline) if deadline <= Instant::now() => {
                        if waiting.for_the_first() {
                            self.counters.reject(Rejection::FirstRequestTimeout);
                        }
                        return;
                    }
                    Some(deadline) => alarm.as_mut().reset(deadline),
                    // A request is in flight: the next wait has not begun.
                    None => alarm.as_mut().reset(Instant::now() + self.limits.idle),
                },
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
}

/// Since when a connection has been waiting for the head of a request, if it is.
struct Waiting {
    start: Instant,
    /// Milliseconds from the start, or one of the two marks below.
    since: AtomicU64,
}

impl Waiting {
    const FOR_THE_FIRST: u64 = 0;
    const IN_WORK: u64 = u64::MAX;

    fn new() -> Self {
        Self {
            start: Instant::now(),
            since: AtomicU64::new(Self::FOR_THE_FIRST),
        }
    }

    fn begin(&self) {
        let since = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        let since = since.max(Self::FOR_THE_FIRST + 1);
        self.since.store(since, Ordering::Relaxed);
    }

    fn end(&self) {
        self.since.store(Self::IN_WORK, Ordering::Relaxed);
    }

    fn for_the_first(&self) -> bool {
        self.since.load(Ordering::Relaxed) == Self::FOR_THE_FIRST
    }

    /// The deadline of the wait. None: it does not wait.
    fn deadline(&self, limits: &Limits) -> Option<Instant> {
        match self.since.load(Ordering::Relaxed) {
            Self::IN_WORK => None,
            Self::FOR_THE_FIRST => Some(self.start + limits.first_request),
            since => Some(self.start + Duration::from_millis(since) + limits.idle),
        }
    }
}
