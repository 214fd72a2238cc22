//! Accepts connections, admits as many as allowed, and drains them at shutdown.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::answer::Requests;
use super::connection::Connections;
use super::counters::{Counters, Rejection};
use super::limits::Limits;
use super::permits::Permits;
use super::shutdown::Shutdown;

/// The pause after a failed accept. Without it, a process that is out of file descriptors would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` over TLS until `shutdown.stop`, then finishes the requests in flight and returns.
///
/// The router is given complete bodies. (axum's own limit of 2 MiB still holds for its extractors.)
///
/// Dropping the future cuts every connection.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    limits: Limits,
    shutdown: Shutdown,
    counters: Arc<Counters>,
) {
    let tls = Some(TlsAcceptor::from(tls));
    run(listener, tls, router, limits, shutdown, counters).await;
}

/// Serves `router` without TLS until `stop`: for probes and metrics.
pub async fn serve_plain(listener: TcpListener, router: Router, stop: CancellationToken) {
    let shutdown = Shutdown {
        draining: stop.clone(),
        stop,
    };
    let limits = Limits::of_pages();
    run(listener, None, router, limits, shutdown, Arc::default()).await;
}

async fn run(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    shutdown: Shutdown,
    counters: Arc<Counters>,
) {
    let (stop, deadline) = (shutdown.stop.clone(), limits.drain);
    let permits = Permits::new(&limits, &counters);
    let connections = Arc::new(Connections {
        tls,
        requests: Requests::new(router, &limits),
        limits,
        shutdown,
        counters: counters.clone(),
    });
    // The set owns the connections: none outlives this future.
    let mut open = JoinSet::new();
    // Nothing here waits for a peer: each connection gets a task of its own at once.
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = open.join_next() => {
                report(ended, &counters);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Without a permit, the stream is dropped, and that closes it.
                let Some(permit) = Permits::admit(&permits, peer) else {
                    continue;
                };
                let (id, connections) = (permit.id(), connections.clone());
                let handle = open.spawn(async move { connections.handle(stream, permit).await });
                permits.attach(id, handle);
            }
            Err(error) => pause_after(&error, &counters).await,
        }
    }
    drop(listener);
    drain(open, deadline, &counters).await;
}

/// Handlers' panics are caught where they are called; this one would be the listener's own.
fn report(ended: Result<(), JoinError>, counters: &Counters) {
    if let Err(error) = ended
        && error.is_panic()
    {
        counters.panics().inc();
        tracing::error!(%error, "a connection's task panicked");
    }
}

async fn pause_after(error: &io::Error, counters: &Counters) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    // These errors concern one peer that disconnected before it was accepted, not the listener.
    if matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    ) {
        return;
    }
    counters.reject(Rejection::AcceptFailed);
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Waits until every connection has ended, or cuts the rest.
async fn drain(mut open: JoinSet<()>, deadline: Duration, counters: &Counters) {
    let all = tokio::time::timeout(deadline, async {
        while let Some(ended) = open.join_next().await {
            report(ended, counters);
        }
    });
    if all.await.is_err() {
        tracing::warn!(
            connections = open.len(),
            "connections cut at the end of the drain time"
        );
    }
}
