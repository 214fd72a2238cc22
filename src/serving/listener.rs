//! Accepts connections, admits as many as allowed, and sees them off at the end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::connection::{Connections, guarded};
use super::counters::{Counters, Rejection};
use super::{Limits, Shutdown};

/// How long to wait after the system refused to accept: without a pause, a process that is out of
/// file descriptors would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` over TLS until `shutdown.stop`, then finishes what is in work and returns.
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
    run(
        listener,
        Some(TlsAcceptor::from(tls)),
        router,
        limits,
        shutdown,
        counters,
    )
    .await;
}

/// Serves `router` without TLS until `stop`: for probes and metrics.
pub async fn serve_plain(listener: TcpListener, router: Router, stop: CancellationToken) {
    let limits = Limits {
        connections: 100,
        drain: Duration::from_secs(1),
        ..Limits::default()
    };
    let shutdown = Shutdown {
        draining: stop.clone(),
        stop,
    };
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
    let room = Arc::new(Semaphore::new(limits.connections));
    let stop = shutdown.stop.clone();
    let router = guarded(router);
    let connections = Arc::new(Connections {
        tls,
        router,
        limits,
        shutdown,
        counters: counters.clone(),
    });
    // The set owns the connections: none outlives this future.
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = open.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _peer)) => stream,
            Err(error) => {
                pause_after(&error, &counters).await;
                continue;
            }
        };
        let Ok(place) = room.clone().try_acquire_owned() else {
            counters.reject(Rejection::OverCapacity);
            continue;
        };
        let connections = connections.clone();
        open.spawn(async move {
            connections.handle(prepared(stream)).await;
            drop(place);
        });
    }
    drop(listener);
    drain(open, limits.drain).await;
}

/// Small answers must not wait for more to send.
fn prepared(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection went away at once");
    }
    stream
}

async fn pause_after(error: &io::Error, counters: &Counters) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    // These tell of one peer that went away before its turn, and nothing about the listener.
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
async fn drain(mut open: JoinSet<()>, deadline: Duration) {
    let ended = tokio::time::timeout(deadline, async {
        while open.join_next().await.is_some() {}
    });
    if ended.await.is_err() {
        tracing::warn!(
            connections = open.len(),
            "connections cut at the end of the drain time"
        );
    }
}
