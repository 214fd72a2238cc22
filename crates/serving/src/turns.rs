//! The order in which complete requests are answered: the sources take turns.
//!
//! A review occupies a worker thread. Without turns, if one source sends requests on 256 connections without a pause,
//! every request of another source would wait for 256 of them. So at most as many requests of a network (an IPv4
//! address or an IPv6 /64) are answered at once as there are threads, and one turn is reserved for the others. Further
//! requests wait. The next turn goes to the least recently served network, and in a /64 to the least recently served
//! address. When too many requests wait, the newest one of the source with most of them is rejected (see
//! [`fairness`](super::fairness)).

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::fairness::{Claim, Holdings, Short, Source};

/// The turns of a listener.
#[derive(Debug)]
pub(super) struct Turns {
    queue: Mutex<Queue<oneshot::Sender<Turn>>>,
}

/// The right to be answered now, until dropped.
#[derive(Debug)]
pub(super) struct Turn {
    source: Source,
    /// None: the turn was passed on to another request.
    turns: Option<Arc<Turns>>,
}

impl Turns {
    /// Answers `of_a_network` requests of a network at once, and one more of others. At most `max` requests in all are
    /// answered or wait.
    pub(super) fn new(of_a_network: usize, max: usize) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::new(Queue::new(of_a_network, max)),
        })
    }

    /// Waits for a turn of that source. None: too many wait.
    pub(super) async fn take(self: &Arc<Self>, source: Source) -> Option<Turn> {
        let turn = {
            let mut queue = self.locked();
            if queue.start(source) {
                return Some(Turn::new(self, source));
            }
            let (sender, turn) = oneshot::channel();
            let revoked = queue.wait(source, sender).ok()?;
            drop(queue);
            drop(revoked);
            turn
        };
        // An error: the turn was revoked for another source.
        turn.await.ok()
    }

    fn locked(&self) -> MutexGuard<'_, Queue<oneshot::Sender<Turn>>> {
        self.queue.lock()
    }
}

impl Turn {
    fn new(turns: &Arc<Turns>, source: Source) -> Self {
        Self {
            source,
            turns: Some(turns.clone()),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.turns.take() else {
            return;
        };
        let mut ended = self.source;
        loop {
            let Some((source, next)) = turns.locked().end(ended) else {
                return;
            };
            // If the connection has ended meanwhile, the turn ends at once. A connection that ends later drops its
            // turn.
            match next.send(Turn::new(&turns, source)) {
                Ok(()) => return,
                Err(mut unused) => unused.turns = None,
            }
            ended = source;
        }
    }
}

/// The waiting requests, in the order of turns. `H` is the handle that gives a turn to one.
#[derive(Debug)]
struct Queue<H> {
    /// Concurrent turns of one network. The total is one more.
    of_a_network: usize,
    max: usize,
    waiting: Rounds<IpAddr, Rounds<IpAddr, VecDeque<H>>>,
    /// The number of waiting requests, by source.
    holdings: Holdings,
    /// The number of taken turns, by network.
    running: HashMap<IpAddr, usize>,
    all_running: usize,
}

/// Too many requests wait.
#[derive(Debug, PartialEq, Eq)]
struct Full;

impl<H> Queue<H> {
    fn new(of_a_network: usize, max: usize) -> Self {
        Self {
            of_a_network,
            max,
            waiting: Rounds::default(),
            holdings: Holdings::default(),
            running: HashMap::new(),
            all_running: 0,
        }
    }

    /// Takes a turn for the source, if one is free.
    fn start(&mut self, source: Source) -> bool {
        let is_free = self.all_running <= self.of_a_network
            && self.all_running < self.max
            && self.running_of(source.network()) < self.of_a_network;
        if is_free {
            *self.running.entry(source.network()).or_default() += 1;
            self.all_running += 1;
        }
        is_free
    }

    fn running_of(&self, network: IpAddr) -> usize {
        self.running.get(&network).copied().unwrap_or_default()
    }

    /// Enqueues the caller, perhaps in place of another request, which is returned.
    fn wait(&mut self, source: Source, handle: H) -> Result<Option<H>, Full> {
        let revoked = if self.all_running + self.holdings.total() >= self.max {
            let payer = self.holdings.payer(source, 1, Short::Total);
            let payer = payer
                .filter(|payer| payer.claim != Claim::Own)
                .ok_or(Full)?;
            Some(self.revoke(payer.source).ok_or(Full)?)
        } else {
            None
        };
        self.holdings.add(source, 1);
        let addresses = self.waiting.entry(source.network());
        addresses.entry(source.address()).push_back(handle);
        Ok(revoked)
    }

    /// Removes the newest waiting request of a source.
    fn revoke(&mut self, source: Source) -> Option<H> {
        let addresses = self.waiting.entries.get_mut(&source.network())?;
        let handle = addresses.entries.get_mut(&source.address())?.pop_back();
        // An address without waiting requests is skipped at its turn.
        self.holdings.remove(source, usize::from(handle.is_some()));
        handle
    }

    /// Ends a turn of that source. Returns the request that gets it; None: the turn is free.
    fn end(&mut self, ended: Source) -> Option<(Source, H)> {
        self.all_running -= 1;
        if let Some(running) = self.running.get_mut(&ended.network()) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&ended.network());
            }
        }
        let (running, of_a_network) = (&self.running, self.of_a_network);
        let (source, handle) = self.waiting.next(|network, addresses| {
            if running.get(network).is_some_and(|n| *n >= of_a_network) {
                return (None, true);
            }
            let next = addresses.next(|address, handles| {
                let handle = handles.pop_front();
                let next = handle.map(|handle| (Source::new(*network, *address), handle));
                (next, !handles.is_empty())
            });
            (next, !addresses.order.is_empty())
        })?;
        self.holdings.remove(source, 1);
        *self.running.entry(source.network()).or_default() += 1;
        self.all_running += 1;
        Some((source, handle))
    }
}

/// Entries in round-robin order.
#[derive(Debug)]
struct Rounds<K, V> {
    order: VecDeque<K>,
    entries: HashMap<K, V>,
}

impl<K, V> Default for Rounds<K, V> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            entries: HashMap::new(),
        }
    }
}

impl<K: Copy + Eq + Hash, V: Default> Rounds<K, V> {
    /// The entry of a key. A new one is last.
    fn entry(&mut self, key: K) -> &mut V {
        let order = &mut self.order;
        self.entries.entry(key).or_insert_with(|| {
            order.push_back(key);
            V::default()
        })
    }

    /// Takes an item from the first entry that yields one. The entries that were tried move to the end, or are removed
    /// if they are empty.
    fn next<T>(&mut self, mut take: impl FnMut(&K, &mut V) -> (Option<T>, bool)) -> Option<T> {
        for _ in 0..self.order.len() {
            let key = self.order.pop_front()?;
            let (taken, is_left) = match self.entries.get_mut(&key) {
                Some(entry) => take(&key, entry),
                None => (None, false),
            };
            if is_left {
                self.order.push_back(key);
            } else {
                self.entries.remove(&key);
            }
            if taken.is_some() {
                return taken;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::poll;

    use super::*;

    fn source(peer: &str) -> Source {
        peer.parse::<IpAddr>().unwrap().into()
    }

    const RUNNING: [&str; 2] = ["10.0.1.1", "10.0.1.2"];

    /// A queue in which both turns are taken and these wait, in this order.
    fn queue(max: usize, peers: &[&str]) -> Queue<String> {
        let mut queue = Queue::new(1, max);
        assert!(RUNNING.iter().all(|peer| queue.start(source(peer))));
        for (n, peer) in peers.iter().enumerate() {
            assert_eq!(queue.wait(source(peer), format!("{peer} {n}")), Ok(None));
        }
        queue
    }

    /// The order in which the others have their turns, one at a time.
    fn rest(mut queue: Queue<String>) -> Vec<String> {
        assert!(queue.holdings.total() == 0 || queue.all_running == 2);
        queue.all_running -= 1;
        queue.running.remove(&source(RUNNING[1]).network());
        let mut ended = source(RUNNING[0]);
        let mut order = Vec::new();
        while let Some((source, text)) = queue.end(ended) {
            ended = source;
            order.push(text);
        }
        assert!(queue.running.is_empty() && queue.all_running == 0);
        assert!(queue.holdings.is_empty() && queue.waiting.entries.is_empty());
        order
    }

    #[test]
    fn one_turn_is_left_for_other_networks() {
        let mut queue: Queue<()> = Queue::new(2, 10);
        let mut start = |peer| queue.start(source(peer));
        assert!(start("10.0.0.1") && start("10.0.0.1"));
        assert!(!start("10.0.0.1"));
        assert!(start("10.0.0.2"));
        assert!(!start("10.0.0.3"));
        // The first has waited for longer, but has all the turns that it may have.
        for peer in ["10.0.0.1", "10.0.0.3"] {
            assert_eq!(queue.wait(source(peer), ()), Ok(None));
        }
        let next = |queue: &mut Queue<()>, ended| queue.end(source(ended)).map(|(next, ())| next);
        assert_eq!(next(&mut queue, "10.0.0.2"), Some(source("10.0.0.3")));
        assert_eq!(next(&mut queue, "10.0.0.3"), None);
        assert_eq!(next(&mut queue, "10.0.0.1"), Some(source("10.0.0.1")));
    }

    #[test]
    fn sources_take_turns_and_each_keeps_its_order() {
        let queue = queue(
            10,
            &[
                "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.2",
            ],
        );
        assert_eq!(
            rest(queue),
            [
                "10.0.0.1 0",
                "10.0.0.2 3",
                "10.0.0.3 4",
                "10.0.0.1 1",
                "10.0.0.2 5",
                "10.0.0.1 2"
            ]
        );
    }

    #[test]
    fn a_64_has_the_turns_of_one_network_and_its_addresses_share_them() {
        let queue = queue(
            10,
            &[
                "2001:db8::1",
                "2001:db8::1",
                "2001:db8::2",
                "10.0.0.1",
                "10.0.0.1",
            ],
        );
        assert_eq!(
            rest(queue),
            [
                "2001:db8::1 0",
                "10.0.0.1 3",
                "2001:db8::2 2",
                "10.0.0.1 4",
                "2001:db8::1 1"
            ]
        );
    }

    #[test]
    fn when_too_many_wait_the_newest_of_the_largest_source_goes() {
        let mut queue = queue(6, &["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1"]);
        let mut wait = |peer| queue.wait(source(peer), format!("{peer} new"));
        assert_eq!(wait("10.0.0.1"), Err(Full));
        assert_eq!(wait("10.0.0.3"), Ok(Some("10.0.0.1 3".to_owned())));
        assert_eq!(wait("10.0.0.2"), Ok(Some("10.0.0.1 2".to_owned())));
        assert_eq!(
            rest(queue),
            ["10.0.0.1 0", "10.0.0.2 1", "10.0.0.3 new", "10.0.0.2 new"]
        );
    }

    #[tokio::test]
    async fn a_turn_is_passed_on_and_never_lost() {
        let turns = Turns::new(1, 10);
        let first = turns.take(source("10.0.0.1")).await.unwrap();
        let _other = turns.take(source("10.0.0.5")).await.unwrap();
        let mut gone = Box::pin(turns.take(source("10.0.0.2")));
        let mut late = Box::pin(turns.take(source("10.0.0.3")));
        let mut last = Box::pin(turns.take(source("10.0.0.4")));
        for waiting in [&mut gone, &mut late, &mut last] {
            assert!(poll!(waiting).is_pending());
        }
        // One goes before its turn comes, the next after it has come and before it was taken.
        drop(gone);
        drop(first);
        drop(late);
        let last = last.await.unwrap();
        drop(last);
        assert!(turns.take(source("10.0.0.1")).await.is_some());
    }
}
