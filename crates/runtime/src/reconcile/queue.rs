//! The queue of object keys, now or at an instant of the wall clock. Each key is in it at most once, and never with two
//! workers at a time. Urgent keys are next, and namespaces take turns.
//!
//! It also paces retries: there is one backoff for each key. A change of the object ends it, and it never lasts through
//! the instant after which a retry is too late.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Key;
use super::key_map::KeyMap;
use super::lanes::{Lanes, SLOW, Turn, Urgency};
use super::metrics::{ControllerMetrics, InProgress};
use resilient_kube_client::backoff::Exponential;
use resilient_kube_client::clock::Clock;

/// How often the wall clock is read while a key waits for an instant. A timer that sleeps until the instant would not
/// notice that the clock was set, or that the machine was suspended.
const TICK: Duration = Duration::from_millis(500);
/// A clock that goes back by more than this was set. A smaller step only delays the waiting keys by as much.
const SET_BACK: TimeDelta = TimeDelta::seconds(1);

/// The backoff of an object.
const BACKOFF: Exponential = Exponential {
    first: Duration::from_secs(1),
    max: Duration::from_secs(60),
};
/// The pause after a conflict: the watch is about to deliver the newer version, and that event ends it.
const CONFLICT_BACKOFF: Exponential = Exponential {
    first: Duration::from_millis(200),
    ..BACKOFF
};
/// This many conflicts in a row are ordinary. After more, the object changes faster than it can be reconciled.
const MANY_CONFLICTS: u32 = 5;
/// The last retry begins so long before the instant after which it is too late.
const LAST_RETRY: TimeDelta = TimeDelta::seconds(1);

/// So many due keys are given to the workers at a time. Ten thousand take ten milliseconds, in which none could begin.
const MAX_MOVED: usize = 256;

/// A work queue; see the module.
pub struct Queue {
    state: Mutex<QueueState>,
    /// Wakes a worker.
    ready: Notify,
    /// Wakes the timer.
    timer: Notify,
    clock: Clock,
    metrics: ControllerMetrics,
}

/// Says of a key that it goes before others.
type IsUrgent = Box<dyn Fn(&Key) -> bool + Send + Sync>;

#[derive(Default)]
struct QueueState {
    /// Keys that wait for a worker.
    waiting: Lanes,
    /// The same keys with their time of arrival.
    since: KeyMap<Instant>,
    is_urgent: Option<IsUrgent>,
    /// Keys that a worker has, since when, and what they count as.
    active: HashMap<Key, (Instant, Turn)>,
    /// Active keys that were added again meanwhile, and by which event.
    again: HashMap<Key, Event>,
    /// Keys to reconcile at an instant, by instant and by key: one instant per key.
    due: BTreeSet<(DateTime<Utc>, Key)>,
    due_of: KeyMap<DateTime<Utc>>,
    /// The keys whose last attempts failed.
    failures: KeyMap<Failures>,
    /// The latest reading of the clock.
    last_read: Option<DateTime<Utc>>,
    closed: bool,
}

/// The failed attempts at one key in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    conflicts: u32,
    others: u32,
    /// It is not reconciled before it is due, unless the object changes.
    backs_off: bool,
    /// The API server asked to send nothing before: not even if the object changes.
    silent_until: Option<DateTime<Utc>>,
}

/// A failed attempt at a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failure {
    /// Another client wrote first.
    pub(super) is_conflict: bool,
    /// The API server asked to send nothing for so long.
    pub(super) retry_after: Option<Duration>,
    /// From then on, a retry is too late.
    pub(super) deadline: Option<DateTime<Utc>>,
    /// Something else is to be done then.
    pub(super) requeue_at: Option<DateTime<Utc>>,
}

impl Failure {
    /// When to try again: after the pause, before the deadline, and not against the will of the API server.
    fn retry_at(&self, pause: Duration, now: DateTime<Utc>) -> DateTime<Utc> {
        let last = self.deadline.map(|deadline| deadline - LAST_RETRY);
        let limits = [last, self.deadline].into_iter().flatten();
        let limit = limits.filter(|limit| *limit > now).min();
        let planned = self.requeue_at.filter(|at| *at > now);
        let earlier = limit.into_iter().chain(planned);
        let at = earlier.fold(now + pause, DateTime::min);
        self.retry_after.map_or(at, |pause| at.max(now + pause))
    }
}

/// Why a key is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Something happened that may concern the object. After a failure it is reconciled when the backoff ends.
    Related,
    /// The object differs from the one for which an attempt failed. This ends the backoff.
    Changed,
}

impl QueueState {
    fn is_backing_off(&self, key: &Key) -> bool {
        self.failures
            .get(key)
            .is_some_and(|failures| failures.backs_off)
    }

    /// Reads the clock. Returns the time, and by how much the clock was set back since the last reading.
    fn read_clock(&mut self, clock: &Clock) -> (DateTime<Utc>, Option<TimeDelta>) {
        let now = clock();
        let back = self.last_read.replace(now).map(|before| before - now);
        (now, back.filter(|back| *back > SET_BACK))
    }
}

impl Queue {
    /// An empty queue for any number of workers.
    pub fn new(clock: Clock, metrics: ControllerMetrics) -> Self {
        Self::for_workers(usize::MAX, clock, metrics)
    }

    /// An empty queue for `workers` workers.
    pub(super) fn for_workers(workers: usize, clock: Clock, metrics: ControllerMetrics) -> Self {
        let state = QueueState {
            waiting: Lanes::new(workers),
            ..QueueState::default()
        };
        Self {
            state: Mutex::new(state),
            ready: Notify::new(),
            timer: Notify::new(),
            clock,
            metrics,
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code that can panic runs under this lock.
        self.state.lock()
    }

    /// Which keys go before others. Called with the queue locked.
    pub(super) fn set_urgent(&self, is_urgent: impl Fn(&Key) -> bool + Send + Sync + 'static) {
        self.lock().is_urgent = Some(Box::new(is_urgent));
    }

    /// Adds a key, to be reconciled as soon as a worker is free; or, after a failure, when its backoff ends.
    pub fn add(&self, key: Key) {
        self.metrics.adds.inc();
        self.enqueue(&mut self.lock(), key, Event::Related);
    }

    /// Adds the key of an object whose spec has changed, or that is gone, or what its last attempt failed at is no
    /// longer so. This ends the backoff and forgets the failures. It must not be called because of what an attempt
    /// itself did: the attempts would follow each other without a pause.
    pub fn add_changed(&self, key: Key) {
        self.metrics.adds.inc();
        self.enqueue(&mut self.lock(), key, Event::Changed);
    }

    fn enqueue(&self, state: &mut QueueState, key: Key, event: Event) {
        if event == Event::Changed {
            self.end_backoff(state, &key);
        }
        if state.active.contains_key(&key) {
            let again = state.again.entry(key).or_insert(event);
            *again = event.max(*again);
        } else if state.is_backing_off(&key) {
            // It is due when the backoff ends.
        } else if !state.since.contains_key(&key) {
            state.since.insert(key.clone(), Instant::now());
            let is_urgent = state.is_urgent.as_ref();
            let urgency = if is_urgent.is_some_and(|is_urgent| is_urgent(&key)) {
                Urgency::Urgent
            } else {
                Urgency::Normal
            };
            state.waiting.push(key, urgency);
            self.metrics.depth.set(length(&state.waiting));
            self.ready.notify_one();
        }
    }

    /// Forgets the failures of a key. The rest of its backoff is what the API server asked for.
    fn end_backoff(&self, state: &mut QueueState, key: &Key) {
        let Some(failures) = state.failures.remove(key) else {
            return;
        };
        if !failures.backs_off {
            return;
        }
        remove_due(state, key);
        let now = (self.clock)();
        if let Some(until) = failures.silent_until.filter(|until| *until > now) {
            let failures = Failures {
                backs_off: true,
                silent_until: Some(until),
                ..Failures::default()
            };
            state.failures.insert(key.clone(), failures);
            set_due(state, key, Some(until));
            self.timer.notify_one();
        }
    }

    /// Closes every namespace: keys wait until their namespace is opened.
    pub(super) fn close_namespaces(&self) {
        self.lock().waiting.close();
    }

    /// Opens a namespace, or all of them.
    pub(super) fn open(&self, namespace: Option<&str>) {
        self.lock().waiting.open(namespace);
        self.ready.notify_one();
    }

    /// Takes the next key; `None` when the queue is closed. Return it with [`Queue::done`]. Nothing is lost if the
    /// future is dropped. The workers of [`Controller::run`](super::Controller::run) do so.
    pub async fn take(&self) -> Option<Key> {
        loop {
            // Registered before the check, so that no wake-up between the two is lost.
            let notified = self.ready.notified();
            {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                if let Some((key, turn)) = state.waiting.next() {
                    // For the timer: the worker counts its next instant from about now.
                    if let (_, Some(back)) = state.read_clock(&self.clock) {
                        self.requeue_all(&mut state, back);
                    }
                    self.metrics.depth.set(length(&state.waiting));
                    if let Some(since) = state.since.remove(&key) {
                        self.metrics.waited.observe(since.elapsed().as_secs_f64());
                    }
                    state.active.insert(key.clone(), (Instant::now(), turn));
                    if state.waiting.is_ready() {
                        self.ready.notify_one();
                    }
                    return Some(key);
                }
            }
            notified.await;
        }
    }

    /// The reconcile of that key takes longer than [`SLOW`]: another key may be worked on beside it.
    pub(super) fn mark_slow(&self, key: &Key) {
        let state = &mut *self.lock();
        if let Some((_, turn)) = state.active.get_mut(key) {
            turn.pace = state.waiting.mark_slow(&key.namespace, *turn);
        }
        if state.waiting.is_ready() {
            self.ready.notify_one();
        }
    }

    /// Returns a key. `requeue_at` is when to reconcile again if nothing happens earlier. It replaces any earlier
    /// instant of this key.
    pub fn done(&self, key: &Key, requeue_at: Option<DateTime<Utc>>) {
        let mut state = self.lock();
        state.failures.remove(key);
        self.hand_back(&mut state, key, requeue_at);
    }

    /// Returns a key after a failure. It is reconciled again after a pause that each failure in a row doubles: not
    /// earlier, unless [`Queue::add_changed`] adds it. Without that, an object that is touched fifty times a second would
    /// be retried as often while the API server fails. Only after a few conflicts the next event is not waited for.
    /// Returns whether they were just a few conflicts.
    pub(super) fn retry(&self, key: &Key, failure: &Failure) -> bool {
        let mut state = self.lock();
        let failures = state.failures.entry(key.clone()).or_default();
        let many = failures.conflicts.checked_sub(MANY_CONFLICTS);
        let is_ordinary = failure.is_conflict && many.is_none();
        let pause = match (failure.is_conflict, many) {
            (false, _) => BACKOFF.after(failures.others),
            (true, None) => CONFLICT_BACKOFF.after(failures.conflicts),
            (true, Some(many)) => BACKOFF.after(many),
        };
        let count = if failure.is_conflict {
            &mut failures.conflicts
        } else {
            &mut failures.others
        };
        *count = count.saturating_add(1);
        failures.backs_off = !is_ordinary;
        let now = (self.clock)();
        failures.silent_until = failure.retry_after.map(|pause| now + pause);
        // Counted from now, not from the start of the attempt: the attempt may have taken long, and the clock may have
        // been set since.
        let at = failure.retry_at(pause, now);
        self.hand_back(&mut state, key, Some(at));
        is_ordinary
    }

    fn hand_back(&self, state: &mut QueueState, key: &Key, requeue_at: Option<DateTime<Utc>>) {
        if let Some((since, turn)) = state.active.remove(key) {
            let took = since.elapsed();
            self.metrics.worked.observe(took.as_secs_f64());
            state.waiting.done(&key.namespace, turn.pace, took <= SLOW);
        }
        set_due(state, key, requeue_at);
        if requeue_at.is_some() {
            self.timer.notify_one();
        }
        if let Some(event) = state.again.remove(key) {
            self.enqueue(state, key.clone(), event);
        }
        // Its namespace, or the only one with waiting keys, may now use this worker.
        if state.waiting.is_ready() {
            self.ready.notify_one();
        }
    }

    /// For how long workers have had the keys that they have.
    pub(super) fn in_progress(&self) -> InProgress {
        let state = self.lock();
        let took = state.active.values().map(|(since, _)| since.elapsed());
        took.fold(InProgress::default(), |work, took| InProgress {
            total: work.total + took,
            longest: work.longest.max(took),
        })
    }

    /// Gives due keys to the workers, oldest first, until the queue is closed.
    pub(crate) async fn run_timer(&self) {
        loop {
            let notified = self.timer.notified();
            let wait = {
                let mut state = self.lock();
                if state.closed {
                    return;
                }
                let (now, back) = state.read_clock(&self.clock);
                if let Some(back) = back {
                    self.requeue_all(&mut state, back);
                }
                self.move_due(&mut state, now, MAX_MOVED);
                state
                    .due
                    .first()
                    .map(|(at, _)| (*at - now).to_std().unwrap_or_default().min(TICK))
            };
            match wait {
                None => notified.await,
                // More are due: the workers take the first ones meanwhile.
                Some(Duration::ZERO) => tokio::task::yield_now().await,
                Some(wait) => {
                    let _ = tokio::time::timeout(wait, notified).await;
                }
            }
        }
    }

    /// Gives the workers the keys that are due at `now`, at most so many.
    fn move_due(&self, state: &mut QueueState, now: DateTime<Utc>, most: usize) {
        for _ in 0..most {
            let Some((_, key)) = state.due.first().filter(|(at, _)| *at <= now).cloned() else {
                break;
            };
            remove_due(state, &key);
            self.enqueue(state, key, Event::Related);
        }
    }

    /// The clock was set back. Some instants were computed from a time that is now in the future, such as the end of a
    /// backoff. So every key is reconciled, which computes its next instant again.
    fn requeue_all(&self, state: &mut QueueState, back: TimeDelta) {
        tracing::warn!(
            seconds = back.num_seconds(),
            keys = state.due.len(),
            "the clock was set back: reconciling every object again"
        );
        self.move_due(state, DateTime::<Utc>::MAX_UTC, usize::MAX);
        // A worker may have read the clock before it was set, and compute its next instant from that.
        let active = state.active.keys().cloned();
        state.again.extend(active.map(|key| (key, Event::Changed)));
    }

    /// Closes the queue: every worker ends after its current key.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_waiters();
        self.timer.notify_waiters();
        // For a worker that checks the queue at this moment.
        self.ready.notify_one();
        self.timer.notify_one();
    }
}

/// Replaces the instant of a key.
fn set_due(state: &mut QueueState, key: &Key, at: Option<DateTime<Utc>>) {
    if let Some(before) = state.due_of.remove(key) {
        state.due.remove(&(before, key.clone()));
    }
    if let Some(at) = at {
        state.due_of.insert(key.clone(), at);
        state.due.insert((at, key.clone()));
    }
}

/// Forgets the instant of a key, and its backoff.
fn remove_due(state: &mut QueueState, key: &Key) {
    if let Some(failures) = state.failures.get_mut(key) {
        failures.backs_off = false;
    }
    set_due(state, key, None);
}

fn length(keys: &Lanes) -> i64 {
    i64::try_from(keys.waiting()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use crate::reconcile::metrics::Metrics;
    use simulated_apiserver::{Clock, second};

    /// Seconds in an hour, and in ten years.
    const STEPS: [i64; 2] = [3_600, 10 * 365 * 86_400];

    fn queue() -> (Arc<Queue>, Clock) {
        let machine = Clock::boot();
        let metrics = Metrics::new(
            &mut prometheus_client::registry::Registry::default(),
            "test",
        );
        (
            Arc::new(Queue::new(machine.source(), metrics.of("test"))),
            machine,
        )
    }

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    /// A failure after which the API server asked for a pause of so many seconds.
    fn failure(seconds: u64) -> Failure {
        Failure {
            retry_after: Some(Duration::from_secs(seconds)),
            ..Failure::default()
        }
    }

    /// A key that is due at that instant.
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
    async fn key_is_never_with_two_workers_and_returns_if_added_meanwhile() {
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
    async fn key_is_due_at_its_instant_and_not_before() {
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
    async fn a_clock_that_is_set_forward_or_a_suspended_machine_is_noticed_within_a_second() {
        for step in STEPS {
            let (queue, machine) = queue();
            start_timer(&queue);
            put(&queue, "a", second(step + 60)).await;
            // Not before, by a wall clock that is set to shortly before the instant.
            machine.step(TimeDelta::seconds(step));
            assert_eq!(within(&queue, Duration::from_secs(59)).await, None);
            machine.step(TimeDelta::seconds(3_600));
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
            machine.step(TimeDelta::seconds(-step));
            // It is reconciled, and sets its instant again.
            let taken = within(&queue, Duration::from_secs(1)).await;
            assert_eq!(taken, Some(key("a")), "{step}");
            assert!(machine.now() < due);
            queue.done(&key("a"), Some(due));
            // The old instant by the monotonic clock goes by.
            assert_eq!(within(&queue, Duration::from_secs(60)).await, None);
            // The clock is corrected.
            machine.step(TimeDelta::seconds(step));
            let taken = within(&queue, Duration::from_secs(1)).await;
            assert_eq!(taken, Some(key("a")), "{step}");
            assert!(machine.now() >= due);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_instant_by_a_clock_that_was_set_back_meanwhile_is_not_waited_for() {
        let (queue, machine) = queue();
        start_timer(&queue);
        queue.add(key("a"));
        queue.take().await;
        let soon = machine.now() + TimeDelta::seconds(60);
        machine.step(TimeDelta::seconds(-STEPS[1]));
        queue.done(&key("a"), Some(soon));
        let taken = within(&queue, Duration::from_secs(1)).await;
        assert_eq!(taken, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_instant_by_a_clock_that_was_set_back_is_not_waited_for_after_a_tick_of_the_timer() {
        let (queue, machine) = queue();
        start_timer(&queue);
        put(&queue, "b", second(600)).await;
        queue.add(key("a"));
        assert_eq!(queue.take().await, Some(key("a")));
        let soon = machine.now() + TimeDelta::seconds(60);
        machine.step(TimeDelta::seconds(-STEPS[1]));
        assert_eq!(within(&queue, Duration::from_secs(1)).await, Some(key("b")));
        queue.done(&key("a"), Some(soon));
        let taken = within(&queue, Duration::from_secs(1)).await;
        assert_eq!(taken, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_correction_of_the_clock_wakes_no_key() {
        let (queue, machine) = queue();
        start_timer(&queue);
        put(&queue, "a", second(60)).await;
        assert_eq!(within(&queue, Duration::from_secs(30)).await, None);
        machine.step(TimeDelta::seconds(-1));
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
            machine.step(TimeDelta::seconds(step));
            assert_eq!(within(&queue, Duration::from_secs(3_600)).await, None);
        }
        // Keys that have been due all along come at once.
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
        assert_eq!(within(&queue, Duration::from_secs(3_600)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_came_due_while_the_machine_slept_come_oldest_first() {
        let (queue, machine) = queue();
        for (name, at) in [("c", 30), ("a", 10), ("b", 20)] {
            put(&queue, name, second(at)).await;
        }
        start_timer(&queue);
        machine.step(TimeDelta::seconds(3_600));
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
    async fn a_key_in_backoff_is_not_reconciled_before_its_end() {
        let (queue, _) = queue();
        start_timer(&queue);
        queue.add(key("a"));
        queue.take().await;
        // Once while a worker has it, and often afterwards.
        queue.add(key("a"));
        queue.retry(&key("a"), &failure(60));
        for _ in 0..590 {
            queue.add(key("a"));
            assert_eq!(within(&queue, Duration::from_millis(100)).await, None);
        }
        let taken = within(&queue, Duration::from_secs(2)).await;
        assert_eq!(taken, Some(key("a")));
        // That ends the backoff.
        queue.done(&key("a"), None);
        queue.add(key("a"));
        assert_eq!(queue.take().await, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_object_is_reconciled_at_once_and_once() {
        let (queue, _) = queue();
        start_timer(&queue);
        for changed_meanwhile in [true, false] {
            queue.add(key("a"));
            queue.take().await;
            if changed_meanwhile {
                queue.add_changed(key("a"));
                queue.add(key("a"));
            }
            queue.retry(&key("a"), &Failure::default());
            if !changed_meanwhile {
                assert_eq!(within(&queue, Duration::from_millis(900)).await, None);
                queue.add_changed(key("a"));
            }
            assert_eq!(queue.take().await, Some(key("a")));
            queue.done(&key("a"), None);
        }
        assert_eq!(within(&queue, Duration::from_secs(7_200)).await, None);
    }

    /// When a key is reconciled that fails each time, in seconds.
    async fn attempts(seconds: u64, failure: impl Fn(u32) -> Failure) -> Vec<u64> {
        let (queue, _) = queue();
        start_timer(&queue);
        queue.add(key("a"));
        let start = Instant::now();
        let mut attempts = Vec::new();
        while let Some(taken) = within(&queue, Duration::from_secs(seconds)).await {
            let at = start.elapsed();
            if at > Duration::from_secs(seconds) {
                break;
            }
            queue.retry(&taken, &failure(u32::try_from(attempts.len()).unwrap()));
            attempts.push(at.as_secs());
        }
        attempts
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_retry_begins_a_second_before_it_is_too_late() {
        let until = |deadline| {
            attempts(70, move |_| Failure {
                deadline: Some(second(deadline)),
                ..Failure::default()
            })
        };
        // One more at the deadline, which finds that it is too late.
        assert_eq!(until(50).await, [0, 1, 3, 7, 15, 31, 49, 50]);
        assert_eq!(until(30).await, [0, 1, 3, 7, 15, 29, 30]);
    }

    #[tokio::test(start_paused = true)]
    async fn conflicts_do_not_lengthen_the_pause_after_another_failure() {
        let tried = attempts(10, |number| Failure {
            is_conflict: number < 5,
            ..Failure::default()
        });
        let tried = tried.await;
        // Five conflicts take 0.2 + 0.4 + 0.8 + 1.6 + 3.2 s. Then 1, 2 .. s.
        assert_eq!(tried, [0, 0, 0, 1, 3, 6, 7, 9]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_does_not_end_a_pause_that_the_api_server_asked_for() {
        let (queue, _) = queue();
        start_timer(&queue);
        queue.add(key("a"));
        for meanwhile in [true, false] {
            let taken = queue.take().await.unwrap();
            if meanwhile {
                queue.add_changed(key("a"));
            }
            let start = Instant::now();
            queue.retry(&taken, &failure(7));
            if !meanwhile {
                queue.add_changed(key("a"));
            }
            queue.take().await.unwrap();
            assert_eq!(start.elapsed().as_secs(), 7, "{meanwhile}");
            queue.done(&key("a"), None);
            queue.add(key("a"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_forgets_the_failures() {
        let (queue, _) = queue();
        start_timer(&queue);
        queue.add(key("a"));
        for _ in 0..5 {
            let taken = queue.take().await.unwrap();
            queue.retry(&taken, &Failure::default());
        }
        queue.add_changed(key("a"));
        let taken = within(&queue, Duration::ZERO).await.unwrap();
        queue.retry(&taken, &Failure::default());
        let start = Instant::now();
        queue.take().await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_backoff_by_a_clock_that_was_set_back_meanwhile_is_dropped() {
        let (queue, machine) = queue();
        start_timer(&queue);
        for meanwhile in [true, false] {
            queue.add(key("a"));
            queue.take().await;
            if meanwhile {
                machine.step(TimeDelta::seconds(-STEPS[1]));
            }
            queue.retry(&key("a"), &failure(60));
            if !meanwhile {
                machine.step(TimeDelta::seconds(-STEPS[1]));
            }
            let taken = within(&queue, Duration::from_secs(1)).await;
            assert_eq!(taken, Some(key("a")), "{meanwhile}");
            queue.done(&key("a"), None);
        }
    }
}
