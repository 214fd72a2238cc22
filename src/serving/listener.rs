//! Accepts connections, admits as many as allowed, and sees them off at the end.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::answer::Requests;
use super::connection::Connections;
use super::counters::{Counters, Rejection};
use super::places::{Entered, Id, Places};
use super::{Limits, Shutdown};

/// How long to wait after the system refused to accept: without a pause, a process that is out of
/// file descriptors would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` over TLS until `shutdown.stop`, then finishes what is in work and returns.
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
    let door = Arc::new(Door {
        places: Mutex::new(Places::new(&limits)),
        counters: counters.clone(),
    });
    let connections = Arc::new(Connections {
        tls,
        requests: Requests::new(router, &limits),
        limits,
        shutdown,
        counters: counters.clone(),
    });
    // The set owns the connections: none outlives this future.
    let mut open = JoinSet::new();
    // Nothing here waits for a peer: what is accepted goes to a task of its own at once.
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
                // Without a place, the stream is dropped, and that closes it.
                let Some(place) = Door::admit(&door, peer) else {
                    continue;
                };
                let (id, connections) = (place.id, connections.clone());
                let handle = open.spawn(async move { connections.handle(stream, place).await });
                door.locked().attach(id, handle);
            }
            Err(error) => pause_after(&error, &counters).await,
        }
    }
    drop(listener);
    drain(open, deadline, &counters).await;
}

/// Lets connections in and out.
struct Door {
    places: Mutex<Places<AbortHandle>>,
    counters: Arc<Counters>,
}

/// A connection's place, until dropped.
pub(super) struct Place {
    id: Id,
    proven: AtomicBool,
    door: Arc<Door>,
}

impl Door {
    fn admit(door: &Arc<Self>, peer: SocketAddr) -> Option<Place> {
        let entered = door.locked().enter(peer.ip(), Instant::now());
        let entered = entered.inspect_err(|reason| door.counters.reject(*reason));
        let Entered { id, instead_of } = entered.ok()?;
        if let Some((reason, connection)) = instead_of {
            door.counters.reject(reason);
            connection.abort();
        }
        door.counters.accept();
        Some(Place {
            id,
            proven: AtomicBool::new(false),
            door: door.clone(),
        })
    }

    fn locked(&self) -> MutexGuard<'_, Places<AbortHandle>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A request of the connection was answered with success. (A peer that only ever earns refusals
    /// shall not become one that cannot be evicted.)
    pub(super) fn prove(&self) {
        // The lock is taken once in a connection, not for each request.
        if !self.proven.load(Ordering::Relaxed) {
            self.proven.store(true, Ordering::Relaxed);
            self.door.locked().prove(self.id);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.door.locked().leave(self.id);
        self.door.counters.close();
    }
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
