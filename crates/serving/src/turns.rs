//! Turns at what occupies a thread for long: handshakes, and requests with large bodies.
//!
//! A network (an IPv4 address or an IPv6 /64) has a few turns at a time. Its others wait in line, first come, first
//! served, and those of other networks do not wait for them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fairness::Source;

/// The turns of a listener.
#[derive(Debug)]
pub(super) struct Turns {
    of_a_network: usize,
    /// The networks that have a turn or wait for one.
    networks: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// A turn, until dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    network: IpAddr,
    /// None while it waits.
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(super) fn new(of_a_network: usize) -> Arc<Self> {
        Arc::new(Self {
            of_a_network,
            networks: Mutex::default(),
        })
    }

    /// Waits for a turn of that source.
    pub(super) async fn take(self: &Arc<Self>, source: Source) -> Turn {
        let permit = {
            let mut networks = self.networks.lock();
            let new = || Arc::new(Semaphore::new(self.of_a_network));
            let entry = networks.entry(source.network()).or_insert_with(new);
            entry.clone().acquire_owned()
        };
        // From here on a caller that gives up removes the entry, too.
        let mut turn = Turn {
            turns: self.clone(),
            network: source.network(),
            permit: None,
        };
        // The semaphore is never closed.
        turn.permit = permit.await.ok();
        turn
    }

    /// Computes each step of a future in a turn of its own: the future waits for its peer without one.
    pub(super) async fn each_step<F>(self: &Arc<Self>, source: Source, mut future: F) -> F::Output
    where
        F: Future + Unpin,
    {
        loop {
            let turn = self.take(source).await;
            if let Poll::Ready(output) = futures::poll!(&mut future) {
                return output;
            }
            drop(turn);
            futures::pending!();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.permit = None;
        let mut networks = self.turns.networks.lock();
        let entry = networks.get(&self.network);
        // Otherwise the map would keep every network that ever connected.
        if entry.is_some_and(|entry| Arc::strong_count(entry) == 1) {
            networks.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::{FutureExt as _, poll};

    use super::*;

    fn source(peer: &str) -> Source {
        peer.parse::<IpAddr>().unwrap().into()
    }

    #[tokio::test]
    async fn a_network_waits_for_its_own_turns_only() {
        let turns = Turns::new(2);
        let first = turns.take(source("2001:db8::1")).await;
        let _second = turns.take(source("2001:db8::2")).await;
        let mut third = Box::pin(turns.take(source("2001:db8::1")));
        let mut fourth = Box::pin(turns.take(source("2001:db8::3")));
        assert!(poll!(&mut third).is_pending() && poll!(&mut fourth).is_pending());
        let _other = turns.take(source("10.0.0.1")).now_or_never().unwrap();
        drop(first);
        assert!(poll!(&mut fourth).is_pending(), "first come, first served");
        let third = poll!(&mut third);
        assert!(third.is_ready() && poll!(&mut fourth).is_pending());
        drop(third);
        assert!(poll!(&mut fourth).is_ready());
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_leaves_the_line_at_once() {
        let turns = Turns::new(1);
        let first = turns.take(source("10.0.0.1")).await;
        let mut gone = Box::pin(turns.take(source("10.0.0.1")));
        let mut late = Box::pin(turns.take(source("10.0.0.1")));
        let mut last = Box::pin(turns.take(source("10.0.0.1")));
        for waiting in [&mut gone, &mut late, &mut last] {
            assert!(poll!(waiting).is_pending());
        }
        let line = || Arc::strong_count(&turns.networks.lock()[&source("10.0.0.1").network()]);
        assert_eq!(line(), 1 + 4);
        // One goes before its turn comes, the next after it has come and before it was taken.
        drop(gone);
        assert_eq!(line(), 1 + 3);
        drop(first);
        drop(late);
        drop(last.now_or_never().unwrap());
        assert!(turns.networks.lock().is_empty());
    }

    #[tokio::test]
    async fn a_future_that_waits_for_its_peer_has_no_turn() {
        let turns = Turns::new(1);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut waits = Box::pin(turns.each_step(source("10.0.0.1"), receiver));
        assert!(poll!(&mut waits).is_pending());
        let turn = turns.take(source("10.0.0.1")).now_or_never().unwrap();
        sender.send(7).unwrap();
        assert!(poll!(&mut waits).is_pending());
        drop(turn);
        assert_eq!(waits.await, Ok(7));
    }
}
