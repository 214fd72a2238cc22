//! Permits of connections: each open connection has one, and gives it back when it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::task::AbortHandle;

use super::counters::Counters;
use super::fairness::Source;
use super::limiter::{ConnectionLimiter, Entered, Id};
use super::limits::Limits;

/// What admits connections.
pub(super) struct Permits {
    limiter: Mutex<ConnectionLimiter<AbortHandle>>,
    counters: Arc<Counters>,
}

/// A connection's permit to be open, until dropped.
pub(super) struct Permit {
    id: Id,
    source: Source,
    permits: Arc<Permits>,
}

impl Permits {
    pub(super) fn new(limits: &Limits, counters: &Arc<Counters>) -> Arc<Self> {
        Arc::new(Self {
            limiter: Mutex::new(ConnectionLimiter::new(limits)),
            counters: counters.clone(),
        })
    }

    /// Admits a connection, perhaps in place of another, which it aborts.
    pub(super) fn admit(permits: &Arc<Self>, peer: SocketAddr) -> Option<Permit> {
        let source = Source::from(peer.ip());
        let entered = permits.locked().enter(source, Instant::now());
        let entered = entered.inspect_err(|reason| permits.counters.reject(*reason));
        let Entered { id, instead_of } = entered.ok()?;
        if let Some((reason, connection)) = instead_of {
            permits.counters.reject(reason);
            connection.abort();
        }
        permits.counters.accept();
        Some(Permit {
            id,
            source,
            permits: permits.clone(),
        })
    }

    /// Sets the handle that ends an admitted connection.
    pub(super) fn attach(&self, id: Id, handle: AbortHandle) {
        self.locked().attach(id, handle);
    }

    fn locked(&self) -> MutexGuard<'_, ConnectionLimiter<AbortHandle>> {
        self.limiter.lock()
    }
}

impl Permit {
    pub(super) fn id(&self) -> Id {
        self.id
    }

    pub(super) fn source(&self) -> Source {
        self.source
    }

    /// The head of a request is there.
    pub(super) fn begin_request(&self) {
        self.permits.locked().begin_request(self.id);
    }

    /// The request was answered, with success or not.
    pub(super) fn end_request(&self, success: bool) {
        self.permits.locked().end_request(self.id, success);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.locked().leave(self.id);
        self.permits.counters.close();
    }
}
