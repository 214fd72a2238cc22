//! Lets nothing out when the time to lead is over.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Executor;

use crate::client::Connection;
use crate::clock;

/// Whether the time to lead is not over yet; and runs the connections of a client that may send only
/// then. Cheap to clone.
///
/// Checks in the reconcilers would not do: a process can be stopped after any of them. A connection
/// sends when it is polled, and is asked right before that. What the API server has in its hands by
/// then cannot be called back.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    /// Nanoseconds by [`clock::up`]: enough for 584 years.
    until: Arc<AtomicU64>,
}

impl Fence {
    /// Whether something may be sent now.
    pub fn is_open(&self) -> bool {
        clock::up().as_nanos() < u128::from(self.until.load(Ordering::Relaxed))
    }

    /// Opens it until then, by [`clock::up`].
    pub(super) fn open_until(&self, until: Duration) {
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Relaxed);
    }

    /// Nothing is sent any more.
    pub(super) fn close(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}

impl Executor<Connection> for Fence {
    fn execute(&self, mut connection: Connection) {
        let fence = self.clone();
        tokio::spawn(poll_fn(move |context| {
            if fence.is_open() {
                connection.as_mut().poll(context)
            } else {
                Poll::Ready(())
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_never_polled_when_the_time_is_over() {
        let fence = Fence::default();
        assert!(!fence.is_open());
        fence.open_until(clock::up() + Duration::from_hours(1));
        assert!(fence.is_open());

        let polls = Arc::new(AtomicUsize::new(0));
        let (more, mut wakes) = tokio::sync::mpsc::unbounded_channel();
        let counted = polls.clone();
        // It sends for every word that it is given, until nobody is left to give any.
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        fence.execute(Box::pin(async move {
            let _ended = ended;
            while let Some(()) = wakes.recv().await {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }));
        more.send(()).unwrap();
        while polls.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        fence.open_until(clock::up());
        more.send(()).unwrap();
        assert!(end.await.is_err(), "the connection is dropped");
        assert_eq!(polls.load(Ordering::SeqCst), 1);
    }
}
