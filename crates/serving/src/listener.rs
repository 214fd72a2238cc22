//! Accepts connections, admits as many as allowed, and drains them at shutdown.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::connection::Connections;
use super::counters::{Counters, Rejection};
use super::limits::Limits;
use super::permits::Permits;
use super::shutdown::Shutdown;

/// The pause after a failed accept. Without it, a process that is out of file descriptors would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` over TLS until `shutdown.stop`, then finishes the requests in flight and returns. `listener` is that
/// of [`bind`](fn@crate::bind), or any other.
///
/// The router is given complete bodies. (axum's own limit of 2 MiB still holds for its extractors.)
///
/// Dropping the future cuts every connection.
///
/// # Errors
/// When the system cannot start a thread, or watch the listener.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    limits: Limits,
    shutdown: Shutdown,
    counters: Arc<Counters>,
) -> io::Result<()> {
    let tls = Some(TlsAcceptor::from(tls));
    run(listener, tls, router, limits, shutdown, counters).await
}

/// Serves `router` without TLS until `stop`, within [`Limits::of_pages`]: for probes and metrics.
///
/// # Errors
/// As [`serve`].
pub async fn serve_plain(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    let shutdown = Shutdown {
        draining: stop.clone(),
        stop,
    };
    let limits = Limits::of_pages();
    run(listener, None, router, limits, shutdown, Arc::default()).await
}

async fn run(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    shutdown: Shutdown,
    counters: Arc<Counters>,
) -> io::Result<()> {
    let drain_time = limits.drain;
    // Cancelled at the end of this future, too, however it ends.
    let stop = shutdown.stop.child_token();
    let _ended = stop.clone().drop_guard();
    let connections = Arc::new(Connections::new(tls, router, limits, shutdown, &counters));
    let (listener, serving) = (listener.into_std()?, Handle::current());
    let (sender, accepted) = oneshot::channel();
    let accept = move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let accepted = runtime
            .and_then(|runtime| runtime.block_on(accept(listener, &connections, &serving, &stop)));
        // Where nothing waits for the set any more, this drops it, and that cuts the connections.
        let _ = sender.send(accepted);
    };
    let thread = std::thread::Builder::new().name("accept".to_owned());
    thread.spawn(accept)?;
    let open = accepted.await.map_err(io::Error::other)??;
    drain(open, drain_time, &counters).await;
    Ok(())
}

/// Accepts and admits connections until `stop`, and has `serving` serve them. The set owns them.
///
/// This is all that its thread does: the kernel's queue of connections is one for all peers, and a task among thousands
/// of handshakes would not empty it in time.
async fn accept(
    listener: std::net::TcpListener,
    connections: &Arc<Connections>,
    serving: &Handle,
    stop: &CancellationToken,
) -> io::Result<JoinSet<()>> {
    let listener = TcpListener::from_std(listener)?;
    let counters = &connections.counters;
    let permits = Permits::new(&connections.limits, counters);
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(open),
            accepted = listener.accept() => accepted,
        };
        while let Some(ended) = open.try_join_next() {
            report(ended, counters);
        }
        match accepted {
            Ok((stream, peer)) => {
                // Without a permit, the stream is dropped, and that closes it.
                let Some(permit) = Permits::admit(&permits, peer) else {
                    continue;
                };
                let (id, connections) = (permit.id(), connections.clone());
                let handled = async move { connections.handle(stream, permit).await };
                permits.attach(id, open.spawn_on(handled, serving));
            }
            Err(error) => pause_after(&error, counters).await,
        }
    }
}

/// Handlers' panics are caught where they are called; this one would be the listener's own.
fn report(ended: Result<(), JoinError>, counters: &Counters) {
    if let Err(error) = ended
        && error.is_panic()
    {
        counters.panic();
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
