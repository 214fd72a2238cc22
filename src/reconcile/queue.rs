//! The queue of object keys: each key at most once, never with two workers at a time, now or at an
//! instant of the wall clock.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio::sync::Notify;

use super::Key;
use super::metrics::ControllerMetrics;
use crate::clock::Clock;

/// How often the wall clock is looked at while something waits for an instant. A timer that sleeps
/// until the instant would not notice that the clock was set, or that the machine was suspended.
const TICK: Duration = Duration::from_millis(500);

/// See the module.
pub struct Queue {
    state: Mutex<State>,
    /// Wakes a worker.
    ready: Notify,
    /// Wakes the timer.
    timer: Notify,
    clock: Clock,
    metrics: ControllerMetrics,
}

#[derive(Default)]
struct State {
    /// Keys that wait for a worker, in order of arrival.
    waiting: VecDeque<Key>,
    /// The same keys, with the time of their arrival.
    since: HashMap<Key, Instant>,
    /// Keys that a worker has.
    active: HashSet<Key>,
    /// Active keys that were put in again meanwhile.
    again: HashSet<Key>,
    /// Keys to be looked at, by instant, and the same the other way round: one instant per key.
    due: BTreeSet<(DateTime<Utc>, Key)>,
    due_of: HashMap<Key, DateTime<Utc>>,
    closed: bool,
}

impl Queue {
    /// An empty queue.
    pub fn new(clock: Clock, metrics: ControllerMetrics) -> Self {
        Self {
            state: Mutex::default(),
            ready: Notify::new(),
            timer: Notify::new(),
            clock,
            metrics,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a key in, to be looked at as soon as a worker is free.
    pub fn add(&self, key: Key) {
        self.metrics.adds.inc();
        self.enqueue(&mut self.lock(), key);
    }

    fn enqueue(&self, state: &mut State, key: Key) {
        if state.active.contains(&key) {
            state.again.insert(key);
        } else if !state.since.contains_key(&key) {
            state.since.insert(key.clone(), Instant::now());
            state.waiting.push_back(key);
            self.metrics.depth.set(length(&state.waiting));
            self.ready.notify_one();
        }
    }

    /// Takes the next key; `None` when the queue was closed. Hand it back with [`Queue::done`].
    pub async fn take(&self) -> Option<Key> {
        loop {
            // Registered before the look, so that no wake-up between the two is lost.
            let notified = self.ready.notified();
            {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                if let Some(key) = state.waiting.pop_front() {
                    self.metrics.depth.set(length(&state.waiting));
                    if let Some(since) = state.since.remove(&key) {
                        self.metrics.waited.observe(since.elapsed().as_secs_f64());
                    }
                    state.active.insert(key.clone());
                    if !state.waiting.is_empty() {
                        self.ready.notify_one();
                    }
                    return Some(key);
                }
            }
            notified.await;
        }
    }

    /// Hands a key back. `next` is when to look again if nothing happens before; it takes the
    /// place of any earlier instant of this key.
    pub fn done(&self, key: &Key, next: Option<DateTime<Utc>>) {
        let mut state = self.lock();
        state.active.remove(key);
        if let Some(old) = state.due_of.remove(key) {
            state.due.remove(&(old, key.clone()));
        }
        if let Some(at) = next {
            state.due_of.insert(key.clone(), at);
            state.due.insert((at, key.clone()));
            self.timer.notify_one();
        }
        if state.again.remove(key) {
            self.enqueue(&mut state, key.clone());
        }
    }

    /// Moves keys whose instant has come to the workers, oldest first, until the queue is closed.
    pub async fn run_timer(&self) {
        loop {
            let notified = self.timer.notified();
            let wait = {
                let mut state = self.lock();
                if state.closed {
                    return;
                }
                let now = (self.clock)();
                while let Some((at, key)) = state.due.first().cloned() {
                    if at > now {
                        break;
                    }
                    state.due.pop_first();
                    state.due_of.remove(&key);
                    self.enqueue(&mut state, key);
                }
                state
                    .due
                    .first()
                    .map(|(at, _)| (*at - now).to_std().unwrap_or_default().min(TICK))
            };
            match wait {
                None => notified.await,
                Some(wait) => {
                    let _ = tokio::time::timeout(wait, notified).await;
                }
            }
        }
    }

    /// Lets every worker end after its present key.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_waiters();
        self.timer.notify_waiters();
        // For a worker that looks just now.
        self.ready.notify_one();
        self.timer.notify_one();
    }
}

fn length(keys: &VecDeque<Key>) -> i64 {
    i64::try_from(keys.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::reconcile::metrics::Metrics;

    fn queue() -> (Arc<Queue>, Arc<AtomicI64>) {
        let second = Arc::new(AtomicI64::new(1_000));
        let clock = {
            let second = second.clone();
            Arc::new(move || DateTime::from_timestamp(second.load(Ordering::SeqCst), 0).unwrap())
        };
        let metrics = Metrics::new(&mut prometheus_client::registry::Registry::default());
        (Arc::new(Queue::new(clock, metrics.of("test"))), second)
    }

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    fn second(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(s, 0).unwrap()
    }

    #[tokio::test]
    async fn a_key_is_never_with_two_workers_and_comes_again_when_it_was_added_meanwhile() {
        let (queue, _) = queue();
        queue.add(key("a"));
        queue.add(key("a"));
        assert_eq!(queue.take().await, Some(key("a")));
        queue.add(key("a"));
        queue.add(key("b"));
        assert_eq!(queue.take().await, Some(key("b")));
        queue.done(&key("a"), None);
        assert_eq!(queue.take().await, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_comes_at_its_instant_of_the_wall_clock_and_not_before() {
        let (queue, clock) = queue();
        let timer = tokio::spawn({
            let queue = queue.clone();
            async move { queue.run_timer().await }
        });
        queue.add(key("a"));
        queue.take().await;
        queue.done(&key("a"), Some(second(2_000)));
        // An hour of the monotonic clock passes while the wall clock stands still.
        let early = tokio::time::timeout(Duration::from_hours(1), queue.take()).await;
        assert!(early.is_err());
        // The wall clock jumps (a suspended machine): noticed within a second.
        clock.store(2_000, Ordering::SeqCst);
        let late = tokio::time::timeout(Duration::from_secs(1), queue.take()).await;
        assert_eq!(late.unwrap(), Some(key("a")));
        queue.close();
        timer.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn due_keys_come_oldest_first() {
        let (queue, clock) = queue();
        for (name, at) in [("c", 30), ("a", 10), ("b", 20)] {
            queue.add(key(name));
            queue.take().await;
            queue.done(&key(name), Some(second(1_000 + at)));
        }
        clock.store(5_000, Ordering::SeqCst);
        tokio::spawn({
            let queue = queue.clone();
            async move { queue.run_timer().await }
        });
        for name in ["a", "b", "c"] {
            assert_eq!(queue.take().await, Some(key(name)));
        }
    }

    #[tokio::test]
    async fn closing_wakes_every_waiting_worker() {
        let (queue, _) = queue();
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.take().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in workers {
            assert_eq!(worker.await.unwrap(), None);
        }
    }
}
