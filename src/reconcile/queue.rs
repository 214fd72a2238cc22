//! The queue of object keys: each key at most once, never with two workers at a time, now or at an
//! instant of the wall clock. Of the keys that wait for a worker, [`lanes`](super::lanes) says which is next.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Key;
use super::lanes::{Lanes, Limits};
use super::metrics::ControllerMetrics;
use crate::clock::Clock;

/// How often the wall clock is looked at while something waits for an instant. A timer that sleeps
/// until the instant would not notice that the clock was set, or that the machine was suspended.
const TICK: Duration = Duration::from_millis(500);
/// A clock that goes back by more than this was set; by less, what waits is only that much later.
const SET_BACK: TimeDelta = TimeDelta::seconds(1);

/// So many keys seldom wait for a worker; room for more is given back when it is not needed.
const DEFAULT_CAPACITY: usize = 256;

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
    /// Keys that wait for a worker.
    waiting: Lanes,
    /// The same keys, with the time of their arrival.
    since: HashMap<Key, Instant>,
    /// Keys that a worker has.
    active: HashSet<Key>,
    /// Active keys that were put in again meanwhile, and whether a failure of the work under way is to hold them.
    again: HashMap<Key, Event>,
    /// Keys to be looked at, by instant, and the same the other way round: one instant per key.
    due: BTreeSet<(DateTime<Utc>, Key)>,
    due_of: HashMap<Key, DateTime<Utc>>,
    /// Those of them that are not to be looked at sooner, whatever happens: the last attempt failed.
    held: HashSet<Key>,
    /// What the clock said last.
    seen: Option<DateTime<Utc>>,
    closed: bool,
}

/// Why a key is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Something happened that may concern the object. After a failure it is looked at when the pause is over.
    CacheEvent,
    /// The object is another than that for which an attempt failed: that is no reason to wait.
    Changed,
}

impl State {
    /// Looks at the clock, and tells by how much it was set back since the last look.
    fn look(&mut self, clock: &Clock) -> (DateTime<Utc>, Option<TimeDelta>) {
        let now = clock();
        let back = self.seen.replace(now).map(|before| before - now);
        (now, back.filter(|back| *back > SET_BACK))
    }

    /// Gives room back: whoever has started with many objects may then wait with them for years.
    fn shrink(&mut self) {
        self.since.shrink_to(DEFAULT_CAPACITY);
        self.again.shrink_to(DEFAULT_CAPACITY);
        self.held.shrink_to(DEFAULT_CAPACITY);
    }
}

impl Queue {
    /// An empty queue for any number of workers.
    pub fn new(clock: Clock, metrics: ControllerMetrics) -> Self {
        Self::with(Lanes::default(), clock, metrics)
    }

    /// An empty queue for so many workers.
    pub(super) fn for_workers(workers: usize, clock: Clock, metrics: ControllerMetrics) -> Self {
        Self::with(Lanes::new(Limits::new(workers)), clock, metrics)
    }

    fn with(waiting: Lanes, clock: Clock, metrics: ControllerMetrics) -> Self {
        let state = State {
            waiting,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
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

    /// Puts a key in, to be looked at as soon as a worker is free; or, after a failure, when the pause that
    /// [`Queue::hold`] set is over.
    pub fn add(&self, key: Key) {
        self.metrics.adds.inc();
        self.enqueue(&mut self.lock(), key, Event::CacheEvent);
    }

    /// Puts the key of an object in that is not as it was: another spec, or gone. This ends a pause, so no kind can do it:
    /// the cache, which sees each version of an object, is the only one.
    pub(super) fn add_changed(&self, key: Key) {
        self.metrics.adds.inc();
        self.enqueue(&mut self.lock(), key, Event::Changed);
    }

    fn enqueue(&self, state: &mut State, key: Key, event: Event) {
        if event == Event::Changed && state.held.remove(&key) {
            remove_due(state, &key);
        }
        if state.active.contains(&key) {
            let again = state.again.entry(key).or_insert(event);
            *again = event.max(*again);
        } else if state.held.contains(&key) {
            // It is due when the pause is over.
        } else if !state.since.contains_key(&key) {
            state.since.insert(key.clone(), Instant::now());
            state.waiting.push(key);
            self.metrics.depth.set(length(&state.waiting));
            self.ready.notify_one();
        }
    }

    /// Closes every namespace: what is put in waits until its namespace is opened.
    pub(super) fn close_namespaces(&self) {
        self.lock().waiting.close();
    }

    /// Opens a namespace, or all of them.
    pub(super) fn open(&self, namespace: Option<&str>) {
        self.lock().waiting.open(namespace);
        self.ready.notify_one();
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
                if let Some(key) = state.waiting.next() {
                    // For the timer: what the worker will say is counted from about here.
                    if let (_, Some(back)) = state.look(&self.clock) {
                        self.look_at_all(&mut state, back);
                    }
                    self.metrics.depth.set(length(&state.waiting));
                    if let Some(since) = state.since.remove(&key) {
                        self.metrics.waited.observe(since.elapsed().as_secs_f64());
                    }
                    state.active.insert(key.clone());
                    if state.waiting.waiting() == 0 {
                        state.shrink();
                    } else if state.waiting.is_ready() {
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
        self.hand_back(key, next, false);
    }

    /// Hands a key back after a failure: it is not looked at before `until`, whatever happens, but for
    /// [`Queue::add_changed`]. Without it, an object that a busy neighbour touches fifty times a second would be tried
    /// as often while the API server fails.
    pub fn hold(&self, key: &Key, until: DateTime<Utc>) {
        self.hand_back(key, Some(until), true);
    }

    fn hand_back(&self, key: &Key, next: Option<DateTime<Utc>>, hold: bool) {
        let mut state = self.lock();
        if state.active.remove(key) {
            state.waiting.done(&key.namespace);
        }
        remove_due(&mut state, key);
        if let Some(at) = next {
            state.due_of.insert(key.clone(), at);
            state.due.insert((at, key.clone()));
            self.timer.notify_one();
        }
        if hold {
            state.held.insert(key.clone());
        }
        if let Some(event) = state.again.remove(key) {
            self.enqueue(&mut state, key.clone(), event);
        }
        // Its namespace, or the one that is alone now, may have this worker.
        if state.waiting.is_ready() {
            self.ready.notify_one();
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
                let (now, back) = state.look(&self.clock);
                if let Some(back) = back {
                    self.look_at_all(&mut state, back);
                }
                self.move_due(&mut state, now);
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

    /// Hands the workers what is due by now.
    fn move_due(&self, state: &mut State, now: DateTime<Utc>) {
        while let Some((at, key)) = state.due.first().cloned() {
            if at > now {
                break;
            }
            remove_due(state, &key);
            self.enqueue(state, key, Event::CacheEvent);
        }
    }

    /// The clock was set back. Some instants were counted from a time that is yet to come, such as
    /// that of the next attempt after a failure: every key is looked at, and says anew when again.
    fn look_at_all(&self, state: &mut State, back: TimeDelta) {
        tracing::warn!(
            seconds = back.num_seconds(),
            keys = state.due.len(),
            "the clock was set back: looking at everything again"
        );
        self.move_due(state, DateTime::<Utc>::MAX_UTC);
        // A worker may have looked at the clock before, and say until when by it.
        let active = state.active.iter().cloned();
        state.again.extend(active.map(|key| (key, Event::Changed)));
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

/// Forgets when a key is to be looked at, and a pause with it.
fn remove_due(state: &mut State, key: &Key) {
    state.held.remove(key);
    if let Some(at) = state.due_of.remove(key) {
        state.due.remove(&(at, key.clone()));
    }
}

fn length(keys: &Lanes) -> i64 {
    i64::try_from(keys.waiting()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use crate::clock::simulated::{Machine, second};
    use crate::reconcile::metrics::Metrics;

    /// Seconds in an hour, and in ten years.
    const STEPS: [i64; 2] = [3_600, 10 * 365 * 86_400];

    fn queue() -> (Arc<Queue>, Machine) {
        let machine = Machine::boot();
        let metrics = Metrics::new(&mut prometheus_client::registry::Registry::default());
        (
            Arc::new(Queue::new(machine.clock(), metrics.of("test"))),
            machine,
        )
    }

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    /// A key that is to be looked at again then.
    async fn put(queue: &Queue, name: &str, at: DateTime<Utc>) {
        queue.add(key(name));
        let taken = queue.take().await.unwrap();
        queue.done(&taken, Some(at));
    }

    fn start_timer(queue: &Arc<Queue>) {
        let queue = queue.clone();
        tokio::spawn(async move { queue.run_timer().await });
    }

    async fn within(queue: &Queue, time: Duration) -> Option<Key> {
        let taken = tokio::time::timeout(time, queue.take());
        taken.await.ok().flatten()
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
    async fn a_key_comes_at_its_instant_and_not_before() {
        let (queue, machine) = queue();
        start_timer(&queue);
        put(&queue, "a", second(2_000)).await;
        assert_eq!(queue.take().await, Some(key("a")));
        let late = machine.now() - second(2_000);
        assert!(late >= TimeDelta::zero(), "{late}");
        // The timer of tokio counts in milliseconds.
        assert!(late <= TimeDelta::milliseconds(2), "{late}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_forth_or_a_suspended_machine_is_noticed_within_a_second() {
        for step in STEPS {
            let (queue, machine) = queue();
            start_timer(&queue);
            put(&queue, "a", second(step + 60)).await;
            // Not before, by a wall clock that is set to shortly before the instant.
            machine.set(step);
            assert_eq!(within(&queue, Duration::from_secs(59)).await, None);
            machine.set(3_600);
            let taken = within(&queue, Duration::from_secs(1)).await;
            assert_eq!(taken, Some(key("a")), "{step}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_makes_nothing_early() {
        for step in STEPS {
            let (queue, machine) = queue();
            start_timer(&queue);
            let due = second(60);
            put(&queue, "a", due).await;
            assert_eq!(within(&queue, Duration::from_secs(30)).await, None);
            machine.set(-step);
            // It is looked at, and says again when.
            let taken = within(&queue, Duration::from_secs(1)).await;
            assert_eq!(taken, Some(key("a")), "{step}");
            assert!(machine.now() < due);
            queue.done(&key("a"), Some(due));
            // The old instant by the monotonic clock goes by.
            assert_eq!(within(&queue, Duration::from_mins(1)).await, None);
            // It is set right again.
            machine.set(step);
            let taken = within(&queue, Duration::from_secs(1)).await;
            assert_eq!(taken, Some(key("a")), "{step}");
            assert!(machine.now() >= due);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_worker_says_by_a_clock_that_was_set_back_meanwhile_does_not_wait_for_it() {
        let (queue, machine) = queue();
        start_timer(&queue);
        queue.add(key("a"));
        queue.take().await;
        let soon = machine.now() + TimeDelta::seconds(60);
        machine.set(-STEPS[1]);
        queue.done(&key("a"), Some(soon));
        let taken = within(&queue, Duration::from_secs(1)).await;
        assert_eq!(taken, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_when_the_timer_has_seen_the_clock_since() {
        let (queue, machine) = queue();
        start_timer(&queue);
        put(&queue, "b", second(600)).await;
        queue.add(key("a"));
        assert_eq!(queue.take().await, Some(key("a")));
        let soon = machine.now() + TimeDelta::seconds(60);
        machine.set(-STEPS[1]);
        assert_eq!(within(&queue, Duration::from_secs(1)).await, Some(key("b")));
        queue.done(&key("a"), Some(soon));
        let taken = within(&queue, Duration::from_secs(1)).await;
        assert_eq!(taken, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_corrected_by_little_wakes_nobody() {
        let (queue, machine) = queue();
        start_timer(&queue);
        put(&queue, "a", second(60)).await;
        assert_eq!(within(&queue, Duration::from_secs(30)).await, None);
        machine.set(-1);
        assert_eq!(within(&queue, Duration::from_secs(30)).await, None);
        let taken = within(&queue, Duration::from_secs(2)).await;
        assert_eq!(taken, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn instants_centuries_away_neither_overflow_nor_wake() {
        let (queue, machine) = queue();
        start_timer(&queue);
        let year_9999 = DateTime::parse_from_rfc3339("9999-12-31T23:59:59.999999999Z");
        let far = [
            ("a", year_9999.unwrap().to_utc()),
            ("b", DateTime::<Utc>::MAX_UTC),
        ];
        for (name, at) in far {
            put(&queue, name, at).await;
        }
        for step in STEPS {
            machine.set(step);
            assert_eq!(within(&queue, Duration::from_hours(1)).await, None);
        }
        // What has been due for as long comes at once.
        put(&queue, "old", DateTime::<Utc>::MIN_UTC).await;
        let taken = within(&queue, Duration::from_secs(1)).await;
        assert_eq!(taken, Some(key("old")));
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_keys_due_in_one_second_come_oldest_first() {
        const COUNT: i64 = 10_000;
        let (queue, machine) = queue();
        // 7919 is prime to their number: every tenth of a millisecond once, in no order.
        for number in 0..COUNT {
            let tenth = number * 7_919 % COUNT;
            let at = second(100) + TimeDelta::microseconds(tenth * 100);
            put(&queue, &format!("a{tenth:04}"), at).await;
        }
        start_timer(&queue);
        for tenth in 0..COUNT {
            let taken = queue.take().await.unwrap();
            assert_eq!(*taken.name, *format!("a{tenth:04}"));
            let late = machine.now() - (second(100) + TimeDelta::microseconds(tenth * 100));
            assert!(late >= TimeDelta::zero(), "{taken}: {late}");
            assert!(late <= TimeDelta::milliseconds(2), "{taken}: {late}");
            queue.done(&taken, None);
        }
        assert_eq!(within(&queue, Duration::from_hours(1)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_came_due_while_the_machine_slept_come_oldest_first() {
        let (queue, machine) = queue();
        for (name, at) in [("c", 30), ("a", 10), ("b", 20)] {
            put(&queue, name, second(at)).await;
        }
        start_timer(&queue);
        machine.set(3_600);
        for name in ["a", "b", "c"] {
            let taken = within(&queue, Duration::from_secs(1)).await;
            assert_eq!(taken, Some(key(name)));
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

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_held_is_not_looked_at_before_whatever_happens() {
        let (queue, _) = queue();
        start_timer(&queue);
        queue.add(key("a"));
        queue.take().await;
        // Once while it is worked on, and often afterwards.
        queue.add(key("a"));
        queue.hold(&key("a"), second(60));
        for _ in 0..590 {
            queue.add(key("a"));
            assert_eq!(within(&queue, Duration::from_millis(100)).await, None);
        }
        let taken = within(&queue, Duration::from_secs(2)).await;
        assert_eq!(taken, Some(key("a")));
        // The pause is over with that.
        queue.done(&key("a"), None);
        queue.add(key("a"));
        assert_eq!(queue.take().await, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_object_is_looked_at_at_once_and_once() {
        let (queue, _) = queue();
        start_timer(&queue);
        for changed_meanwhile in [true, false] {
            queue.add(key("a"));
            queue.take().await;
            if changed_meanwhile {
                queue.add_changed(key("a"));
                queue.add(key("a"));
            }
            queue.hold(&key("a"), second(3_600));
            if !changed_meanwhile {
                assert_eq!(within(&queue, Duration::from_secs(1)).await, None);
                queue.add_changed(key("a"));
            }
            assert_eq!(queue.take().await, Some(key("a")));
            queue.done(&key("a"), None);
        }
        assert_eq!(within(&queue, Duration::from_hours(2)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_by_a_clock_that_was_set_back_meanwhile_is_not_kept() {
        let (queue, machine) = queue();
        start_timer(&queue);
        for meanwhile in [true, false] {
            queue.add(key("a"));
            queue.take().await;
            let soon = machine.now() + TimeDelta::seconds(60);
            if meanwhile {
                machine.set(-STEPS[1]);
            }
            queue.hold(&key("a"), soon);
            if !meanwhile {
                machine.set(-STEPS[1]);
            }
            let taken = within(&queue, Duration::from_secs(1)).await;
            assert_eq!(taken, Some(key("a")), "{meanwhile}");
            queue.done(&key("a"), None);
        }
    }
}
