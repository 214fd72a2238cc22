//! Workers that take keys from a queue and run a reconciler for each.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span, field};

use super::cache::Source;
use super::event::{self, EventPublisher, Events};
use super::health::{Health, WatchHealth};
use super::lanes::SLOW;
use super::metrics::{ControllerMetrics, Metrics};
use super::queue::{Failure, Queue};
use super::shard::Shard;
use super::stop::{CALLS_TIMEOUT, LIMITED_TIMEOUT};
use super::{Error, Key};
use resilient_kube_client::clock::Clock;

/// A lasting error is logged at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a bug.
const AFTER_PANIC: Duration = Duration::from_secs(60);

/// The result of a reconcile.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// When to reconcile again if nothing happens earlier.
    pub requeue_at: Option<DateTime<Utc>>,
    /// What was done, for the log; `None` when there was nothing to do.
    pub did: Option<String>,
    /// Something is in the way, and the status says so: repeat the reconcile with backoff, as after an error, and at
    /// `requeue_at` at the latest.
    pub retry: bool,
    /// The object does not exist any more: this was its last reconcile.
    pub gone: bool,
}

impl Action {
    /// To be reconciled again at that time, or only after a change.
    pub fn at(requeue_at: Option<DateTime<Utc>>) -> Self {
        Self {
            requeue_at,
            ..Self::default()
        }
    }

    /// Of an object that does not exist any more.
    pub fn gone() -> Self {
        Self {
            gone: true,
            ..Self::default()
        }
    }

    /// The text of the log line.
    fn summary(&self) -> &'static str {
        if self.gone {
            "reconciled: the object is gone"
        } else {
            "reconciled"
        }
    }
}

/// Brings the cluster closer to what one object says.
pub trait Reconciler: Send + Sync + 'static {
    /// Reconciles one object, which may be gone. Called again after every change that concerns it, never twice at a
    /// time for one key. `now` is the time of [`Context::clock`].
    fn reconcile(
        &self,
        key: &Key,
        now: DateTime<Utc>,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// From when on it is too late to retry a failed reconcile of that object. One more retry is made just before.
    fn deadline(&self, _key: &Key) -> Option<DateTime<Utc>> {
        None
    }

    /// Whether that object goes before others that wait for a worker. Called with the queue locked.
    fn is_urgent(&self, _key: &Key) -> bool {
        false
    }
}

/// The environment of a kind's reconciler.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub client: Client,
    /// The namespaces to work in; all of them when empty, which is what [`Context::new`] sets.
    pub namespaces: Vec<String>,
    /// The part of them to work in: [`Shard::ALL`] is what [`Context::new`] sets.
    pub shard: Shard,
    /// How many objects of one kind are reconciled concurrently.
    pub workers: usize,
    /// The wall clock.
    pub clock: Clock,
    /// Publishes Events.
    pub events: Events,
    /// The metrics common to all reconcilers.
    pub metrics: Metrics,
    /// Where a kind registers metrics of its own. The `Mutex` is parking_lot's.
    pub registry: Arc<Mutex<Registry>>,
    /// Where lasting problems are reported.
    pub health: Health,
    /// Cancelled when the reconcilers must stop.
    pub stop: CancellationToken,
    /// Has a token of each call in flight that uses up a limit, such as a deletion of which only so many are allowed. A
    /// program with leader election releases the lease after these calls: the next leader would count on the limit that
    /// they use up. Reconcilers that have no such calls leave it empty.
    pub limited: TaskTracker,
}

impl Context {
    /// A context of four workers for all namespaces, with a registry and a health of its own; and its publisher of
    /// Events, which the caller runs ([`EventPublisher::run`]). `clock` is `Arc::new(Utc::now)`, and `manager` the name
    /// of the program, in Events and [metrics](Metrics::new).
    pub fn new(client: Client, clock: Clock, manager: &str) -> (Self, EventPublisher) {
        let (events, publisher) = event::events(client.clone(), clock.clone(), manager);
        let mut registry = Registry::default();
        let context = Self {
            client,
            namespaces: Vec::new(),
            shard: Shard::ALL,
            workers: 4,
            clock,
            events,
            metrics: Metrics::new(&mut registry, manager),
            registry: Arc::new(Mutex::new(registry)),
            health: Health::default(),
            stop: CancellationToken::new(),
            limited: TaskTracker::new(),
        };
        (context, publisher)
    }

    /// The namespaces to work in; `None` means all of them.
    fn scopes(&self) -> Vec<Option<&str>> {
        match self.namespaces.as_slice() {
            [] => vec![None],
            some => some
                .iter()
                .map(|namespace| Some(namespace.as_str()))
                .collect(),
        }
    }

    /// The API of a namespaced kind: one per namespace to work in.
    pub fn apis<K>(&self) -> Vec<Api<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let client = || self.client.clone();
        let scopes = self.scopes().into_iter();
        let apis = scopes.map(|namespace| match namespace {
            Some(namespace) => Api::namespaced(client(), namespace),
            None => Api::all(client()),
        });
        apis.collect()
    }

    /// Registers metrics of a kind's own.
    pub fn register<F>(&self, metrics: impl FnOnce(&mut Registry) -> F) -> F {
        metrics(&mut self.registry.lock())
    }

    /// Where watches report whether they work.
    pub fn watch_health(&self) -> WatchHealth {
        WatchHealth::new(self.health.clone(), self.metrics.clone())
    }

    /// A queue for one kind's keys.
    pub fn queue(&self, controller: &'static str) -> Arc<Queue> {
        let metrics = self.metrics.of(controller);
        let workers = self.workers.max(1);
        let queue = Arc::new(Queue::for_workers(workers, self.clock.clone(), metrics));
        let weak = Arc::downgrade(&queue);
        let read = move || weak.upgrade().map(|queue| queue.in_progress());
        self.metrics.read_in_progress(controller, read);
        queue
    }
}

/// Runs workers until the context is stopped, then lets them finish their current keys within [`CALLS_TIMEOUT`], or
/// [`LIMITED_TIMEOUT`] while calls that use up a limit are in flight.
/// Work begins per namespace, as soon as all of `sources` have listed it. A namespace that cannot be listed holds up no
/// other.
///
/// # Errors
/// When a worker dies, which is a bug.
pub(super) async fn run<R: Reconciler>(
    controller: &'static str,
    reconciler: Arc<R>,
    queue: Arc<Queue>,
    context: &Context,
    sources: &[&dyn Source],
) -> anyhow::Result<()> {
    queue.close_namespaces();
    // Weak, because a reconciler may have the queue.
    let weak = Arc::downgrade(&reconciler);
    queue.set_urgent(move |key| {
        weak.upgrade()
            .is_some_and(|reconciler| reconciler.is_urgent(key))
    });
    let work = Arc::new(Work {
        controller,
        reconciler,
        queue: queue.clone(),
        clock: context.clock.clone(),
        metrics: context.metrics.of(controller),
        quiet: Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    let timer = queue.clone();
    tasks.spawn(async move { timer.run_timer().await });
    let working = async {
        loop {
            tokio::select! {
                biased;
                // A queue without its timer would only seem healthy.
                Some(ended) = tasks.join_next() => ended?,
                Some(key) = queue.take() => {
                    let work = work.clone();
                    tasks.spawn(async move { work.reconcile(key).await });
                }
            }
        }
    };
    let open = async {
        let queue = &queue;
        let open = context.scopes().into_iter().map(|namespace| async move {
            join_all(sources.iter().map(|source| source.synced(namespace))).await;
            queue.open(namespace);
        });
        join_all(open).await;
        context.stop.cancelled().await;
    };
    tokio::select! {
        // In a fixed order, so that a simulated run can be repeated.
        biased;
        () = open => {}
        () = context.stop.cancelled() => {}
        failed = working => return failed,
    }
    queue.close();
    let ended = async {
        while let Some(ended) = tasks.join_next().await {
            ended?;
        }
        Ok(())
    };
    let limit = async {
        sleep(CALLS_TIMEOUT).await;
        context.limited.close();
        let left = LIMITED_TIMEOUT.saturating_sub(CALLS_TIMEOUT);
        let _ = timeout(left, context.limited.wait()).await;
    };
    tokio::select! {
        ended = ended => ended,
        () = limit => {
            tracing::warn!(controller, "abandoning the calls in flight");
            Ok(())
        }
    }
}

struct Work<R> {
    controller: &'static str,
    reconciler: Arc<R>,
    queue: Arc<Queue>,
    clock: Clock,
    metrics: ControllerMetrics,
    /// When a failure of a category was last logged, and how many were not logged since.
    quiet: Mutex<HashMap<&'static str, (Instant, u64)>>,
}

impl<R: Reconciler> Work<R> {
    async fn reconcile(&self, key: Key) {
        self.metrics.active.inc();
        let start = Instant::now();
        let now = (self.clock)();
        // Its target and level are those that layers for OpenTelemetry ask for; no log has them by default.
        let span = tracing::trace_span!(
            target: "otel::tracing",
            "reconcile",
            otel.name = format!("reconcile {}", self.controller),
            otel.status_code = field::Empty,
            controller = self.controller,
            namespace = &*key.namespace,
            name = &*key.name,
            outcome = field::Empty,
            next = field::Empty,
            category = field::Empty,
        );
        // A bug that one object triggers must not stop the work on the others.
        let reconcile = AssertUnwindSafe(self.reconciler.reconcile(&key, now)).catch_unwind();
        let mut reconcile = std::pin::pin!(reconcile.instrument(span.clone()));
        let caught = if let Ok(caught) = tokio::time::timeout(SLOW, &mut reconcile).await {
            caught
        } else {
            self.queue.mark_slow(&key);
            reconcile.await
        };
        let took = start.elapsed();
        self.metrics.seconds.observe(took.as_secs_f64());
        self.metrics.active.dec();
        if !span.is_disabled() {
            describe(&span, &caught);
        }
        match caught {
            Ok(Ok(action)) => self.succeeded(&key, &action, took),
            Ok(Err(error)) => self.failed(&key, &error),
            Err(_) => {
                tracing::error!(
                    controller = self.controller,
                    namespace = &*key.namespace,
                    name = &*key.name,
                    "the reconciler panicked: this is a bug"
                );
                self.metrics.failed("Panic");
                let failure = Failure {
                    retry_after: Some(AFTER_PANIC),
                    ..Failure::default()
                };
                self.queue.retry(&key, &failure);
            }
        }
    }

    fn succeeded(&self, key: &Key, action: &Action, took: Duration) {
        if let Some(did) = &action.did {
            tracing::info!(
                controller = self.controller,
                namespace = &*key.namespace,
                name = &*key.name,
                ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                "{did}"
            );
        }
        tracing::debug!(
            controller = self.controller,
            namespace = &*key.namespace,
            name = &*key.name,
            next = action.requeue_at.map(|at| at.to_rfc3339()),
            retry = action.retry,
            "{}",
            action.summary()
        );
        match action.requeue_at {
            None if !action.retry => self.metrics.success.inc(),
            _ => self.metrics.requeue_after.inc(),
        };
        if action.retry {
            let failure = Failure {
                requeue_at: action.requeue_at,
                deadline: self.reconciler.deadline(key),
                ..Failure::default()
            };
            self.queue.retry(key, &failure);
        } else {
            self.queue.done(key, action.requeue_at);
        }
    }

    fn failed(&self, key: &Key, error: &Error) {
        if error.is_permanent() {
            self.metrics.failed(error.category());
            self.log(key, error);
            return self.queue.done(key, None);
        }
        self.metrics.retries.inc();
        let failure = Failure {
            is_conflict: error.is_conflict(),
            retry_after: error.retry_after(),
            deadline: self.reconciler.deadline(key),
            requeue_at: None,
        };
        if self.queue.retry(key, &failure) {
            // The watch delivers the newer version within milliseconds, and that event requeues the key. It is often
            // our own last write, so it is not counted.
            self.metrics.requeue_after.inc();
            tracing::debug!(controller = self.controller, namespace = &*key.namespace, name = &*key.name, %error, "conflict, looking again");
        } else {
            self.metrics.failed(error.category());
            self.log(key, error);
        }
    }

    /// Logs at most one line a second for each category: a lasting error often affects every object.
    fn log(&self, key: &Key, error: &Error) {
        let mut quiet = self.quiet.lock();
        let left_out = match quiet.get_mut(error.category()) {
            Some((last, left_out)) if last.elapsed() < LOG_INTERVAL => {
                *left_out += 1;
                return;
            }
            Some((_, left_out)) => *left_out,
            None => 0,
        };
        quiet.insert(error.category(), (Instant::now(), 0));
        tracing::warn!(
            controller = self.controller,
            namespace = &*key.namespace,
            name = &*key.name,
            category = error.category(),
            left_out,
            "{error}"
        );
    }
}

/// How a reconcile ended. An error's text is left to the log: it may quote what an object says.
fn describe(span: &Span, caught: &Result<Result<Action, Error>, Box<dyn Any + Send>>) {
    let (outcome, category) = match caught {
        Ok(Ok(action)) if action.gone => ("gone", None),
        Ok(Ok(action)) if action.retry => ("retry", None),
        Ok(Ok(_)) => ("reconciled", None),
        Ok(Err(error)) if error.is_conflict() => ("conflict", None),
        Ok(Err(error)) => ("error", Some(error.category())),
        Err(_) => ("panic", Some("Panic")),
    };
    span.record("outcome", outcome);
    if let Ok(Ok(Action {
        requeue_at: Some(at),
        ..
    })) = caught
    {
        span.record("next", at.to_rfc3339());
    }
    if let Some(category) = category {
        span.record("category", category);
        span.record("otel.status_code", "ERROR");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use simulated_apiserver::{Options, Server, Status, Target};

    use chrono::TimeDelta;

    use super::*;
    use crate::reconcile::cache::{Cache, CacheEvent, run_watch};
    use crate::reconcile::watch::Selection;
    use simulated_apiserver::{Clock, second};

    const COUNT: usize = 10_000;

    #[test]
    fn the_log_says_of_a_deleted_object_that_it_is_gone() {
        assert_eq!(Action::default().summary(), "reconciled");
        assert_eq!(Action::at(None).summary(), "reconciled");
        assert_eq!(Action::gone().summary(), "reconciled: the object is gone");
    }

    fn up(machine: &Clock) -> TimeDelta {
        TimeDelta::from_std(machine.elapsed()).unwrap()
    }

    fn start<R: Reconciler>(machine: &Clock, reconciler: R) -> (Arc<Queue>, Arc<R>) {
        start_counted(
            &Metrics::new(&mut Registry::default(), "test"),
            machine,
            reconciler,
        )
    }

    fn start_counted<R: Reconciler>(
        metrics: &Metrics,
        machine: &Clock,
        reconciler: R,
    ) -> (Arc<Queue>, Arc<R>) {
        let queue = Arc::new(Queue::new(machine.source(), metrics.of("test")));
        let reconciler = Arc::new(reconciler);
        let work = Arc::new(Work {
            controller: "test",
            reconciler: reconciler.clone(),
            queue: queue.clone(),
            clock: machine.source(),
            metrics: metrics.of("test"),
            quiet: Mutex::default(),
        });
        let keys = queue.clone();
        tokio::spawn(async move {
            while let Some(key) = keys.take().await {
                let work = work.clone();
                tokio::spawn(async move { work.reconcile(key).await });
            }
        });
        let timer = queue.clone();
        tokio::spawn(async move { timer.run_timer().await });
        (queue, reconciler)
    }

    /// Acts as a kind does: once the instant has come by the clock. Before, it returns the instant.
    struct Due {
        machine: Clock,
        instants: HashMap<Key, DateTime<Utc>>,
        /// What was done, when by the wall clock, and when by the monotonic one.
        done: Mutex<Vec<(Key, DateTime<Utc>, TimeDelta)>>,
    }

    impl Due {
        fn new(machine: &Clock, instants: impl IntoIterator<Item = (Key, DateTime<Utc>)>) -> Self {
            Self {
                machine: machine.clone(),
                instants: instants.into_iter().collect(),
                done: Mutex::default(),
            }
        }
    }

    impl Reconciler for Due {
        async fn reconcile(&self, key: &Key, now: DateTime<Utc>) -> Result<Action, Error> {
            let instant = self.instants[key];
            if now < instant {
                return Ok(Action::at(Some(instant)));
            }
            let done = (key.clone(), now, up(&self.machine));
            self.done.lock().push(done);
            Ok(Action::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_worked_off_oldest_first_and_never_early() {
        let machine = Clock::boot();
        // 7919 is prime to their number: each instant once, in no order.
        let instants = (0..COUNT).map(|number| {
            let tenth = i64::try_from(number * 7_919 % COUNT).unwrap();
            let at = second(100) + TimeDelta::microseconds(tenth * 100);
            (Key::new("ns", format!("a{number}")), at)
        });
        let (queue, due) = start(&machine, Due::new(&machine, instants));
        for key in due.instants.keys() {
            queue.add(key.clone());
        }
        tokio::time::sleep(Duration::from_secs(102)).await;
        let done = due.done.lock();
        assert_eq!(done.len(), COUNT);
        let mut last = None;
        for (key, now, _) in done.iter() {
            let instant = due.instants[key];
            assert!(*now >= instant, "{key}");
            assert!(last <= Some(instant), "{key}");
            last = Some(instant);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_early_or_a_second_late_even_if_the_clock_is_set() {
        const HOUR: i64 = 3_600;
        const YEARS: i64 = 10 * 365 * 86_400;
        // When by the monotonic clock, and by how much the wall clock is set. A suspended machine also sees its wall
        // clock jump forward: its monotonic clock stood still.
        let steps = [
            (1_000, HOUR),
            (2_000, -HOUR),
            (3_000, YEARS),
            (3_010, -YEARS),
            (4_000, -HOUR),
            (5_000, -YEARS),
            (6_000, YEARS),
            (6_500, 2 * HOUR),
        ];
        let machine = Clock::boot();
        let instants = (0..500).map(|number| {
            let at = second(number * 37 + 1);
            (Key::new("ns", format!("a{number}")), at)
        });
        let far = (Key::new("ns", "far"), second(2 * YEARS));
        let (queue, due) = start(&machine, Due::new(&machine, instants.chain([far])));
        for key in due.instants.keys() {
            queue.add(key.clone());
        }
        let mut up = 0;
        for (at, by) in steps {
            let pause = TimeDelta::seconds(at - up).to_std().unwrap();
            tokio::time::sleep(pause).await;
            machine.step(TimeDelta::seconds(by));
            up = at;
        }
        tokio::time::sleep(Duration::from_secs(21_600)).await;

        // When the wall clock first was at an instant, by the monotonic one.
        let first_time = |instant: DateTime<Utc>| {
            let (mut from, mut set) = (0, 0);
            for (end, by) in steps {
                let at = (instant - second(set)).num_seconds().max(from);
                if at < end {
                    return TimeDelta::seconds(at);
                }
                (from, set) = (end, set + by);
            }
            TimeDelta::seconds((instant - second(set)).num_seconds().max(from))
        };
        let done = due.done.lock();
        assert_eq!(
            done.len(),
            500,
            "all but the one that is far away, each once"
        );
        for (key, now, up) in done.iter() {
            let instant = due.instants[key];
            assert!(*now >= instant, "{key} is early");
            let late = *up - first_time(instant);
            assert!(
                late >= TimeDelta::zero() && late <= TimeDelta::seconds(1),
                "{key}: {late}"
            );
        }
    }

    /// Fails that many times.
    struct Failing {
        machine: Clock,
        failures: usize,
        tried: Mutex<Vec<TimeDelta>>,
        /// The clock is set by so many seconds during the first attempt.
        set: i64,
    }

    impl Reconciler for Failing {
        async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
            let mut tried = self.tried.lock();
            tried.push(up(&self.machine));
            if tried.len() == 1 {
                self.machine.step(TimeDelta::seconds(self.set));
            }
            if tried.len() > self.failures {
                return Ok(Action::default());
            }
            Err(Error::Timeout {
                step: "try",
                object: key.clone(),
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_retried_with_backoff_even_if_the_clock_is_set() {
        for set in [0, 3_600, -3_600, 315_360_000, -315_360_000] {
            let machine = Clock::boot();
            let failing = Failing {
                machine: machine.clone(),
                failures: 5,
                tried: Mutex::default(),
                set,
            };
            let (queue, failing) = start(&machine, failing);
            queue.add(Key::new("ns", "a"));
            tokio::time::sleep(Duration::from_secs(40)).await;
            let tried = failing.tried.lock();
            assert_eq!(tried.len(), 6, "{set}: {tried:?}");
            let pauses = tried.windows(2).map(|two| (two[1] - two[0]).num_seconds());
            let pauses: Vec<i64> = pauses.collect();
            // The first may be cut short when the clock is set.
            assert_eq!(pauses[1..], [2, 4, 8, 16], "{set}");
            assert!(pauses[0] <= 1, "{set}");
        }
    }

    /// Takes that long for objects in the namespace `slow`, and records when each was started.
    struct Busy {
        takes: Duration,
        done: Mutex<Vec<(Key, TimeDelta)>>,
        machine: Clock,
    }

    impl Reconciler for Busy {
        async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
            let now = up(&self.machine);
            if *key.namespace == *"slow" {
                tokio::time::sleep(self.takes).await;
            }
            self.done.lock().push((key.clone(), now));
            Ok(Action::default())
        }
    }

    fn busy(machine: &Clock, seconds: u64) -> Arc<Busy> {
        Arc::new(Busy {
            takes: Duration::from_secs(seconds),
            done: Mutex::default(),
            machine: machine.clone(),
        })
    }

    /// A context whose API server has a ConfigMap in the namespace `good`, and rejects lists of the namespace
    /// `refused`.
    fn context(machine: &Clock, namespaces: &[&str]) -> Context {
        let server = Server::new(Options {
            namespaces: vec!["good".to_owned(), "refused".to_owned()],
            ..Options::default()
        });
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "good"}});
        server.direct().create(object).unwrap();
        let refused = server.watches(Target::all().in_namespace("refused"));
        refused.refuse(Status::new(403, "Forbidden", "you may not list that"));
        let (mut context, _) =
            Context::new(server.client("operator"), machine.source(), "my-program");
        context.namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
        context.workers = 96;
        context
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_cannot_be_listed_holds_up_no_other() {
        let machine = Clock::boot();
        let context = context(&machine, &["good", "refused"]);
        let (busy, queue) = (busy(&machine, 0), context.queue("test"));
        let cache = Arc::new(Cache::new(2, |()| Vec::new()));
        let mut tasks = JoinSet::new();
        for api in context.apis::<ConfigMap>() {
            let (queue, cache, health) = (queue.clone(), cache.clone(), context.watch_health());
            let on_event = move |event: &CacheEvent<'_, ()>| queue.add(event.key.clone());
            tasks.spawn(run_watch(
                api,
                Selection::default(),
                cache,
                health,
                |_| (),
                on_event,
            ));
        }
        queue.add(Key::new("refused", "b"));
        let sources: [&dyn Source; 1] = [&*cache];
        let run = run("test", busy.clone(), queue.clone(), &context, &sources);
        let _ = tokio::time::timeout(Duration::from_secs(60), run).await;
        let done = busy.done.lock();
        assert_eq!(*done, [(Key::new("good", "a"), TimeDelta::zero())]);
        let problems = context.health.problems();
        let is_reported = |(source, problem): &(String, String)| {
            source == "configmaps/refused" && problem.contains("you may not list that")
        };
        assert!(problems.iter().any(is_reported), "{problems:?}");
        let registry = context.registry.lock();
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        let failing = |namespace: &str, figure: u8| {
            format!(
                "my_program_watch_failing{{resource=\"configmaps\",namespace=\"{namespace}\"}} {figure}"
            )
        };
        assert!(page.contains(&failing("refused", 1)), "{page}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_calls_hang_holds_up_no_other() {
        let machine = Clock::boot();
        let context = context(&machine, &[]);
        let (busy, queue) = (busy(&machine, 34), context.queue("test"));
        for number in 0..300 {
            queue.add(Key::new("slow", number.to_string()));
        }
        let others = async {
            let mut added = Vec::new();
            for number in 0..100 {
                tokio::time::sleep(Duration::from_millis(700)).await;
                let key = Key::new("good", number.to_string());
                queue.add(key.clone());
                added.push((key, up(&machine)));
            }
            added
        };
        let run = run("test", busy.clone(), queue.clone(), &context, &[]);
        let added = tokio::select! {
            added = others => added,
            ended = run => unreachable!("{ended:?}"),
        };
        let mut done = busy.done.lock().clone();
        done.retain(|(key, _)| *key.namespace == *"good");
        assert_eq!(done, added[..done.len()], "each when it was added");
        assert!(done.len() >= 99);
    }

    /// Answers every attempt with that status, and notes when.
    struct Refused {
        machine: Clock,
        code: u16,
        retry_after: u32,
        tried: Mutex<Vec<TimeDelta>>,
    }

    impl Reconciler for Refused {
        async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
            self.tried.lock().push(up(&self.machine));
            let mut status = kube::core::Status::failure("no", "").with_code(self.code);
            let details = json!({"retryAfterSeconds": self.retry_after});
            status.details = serde_json::from_value(details).ok();
            Err(Error::Api {
                step: "try",
                object: key.clone(),
                source: Box::new(kube::Error::Api(status.boxed())),
            })
        }
    }

    /// The times of the attempts within that many seconds, with an event every 20 ms.
    async fn attempts(code: u16, retry_after: u32, seconds: u64) -> Vec<f64> {
        let metrics = Metrics::new(&mut Registry::default(), "test");
        counted_attempts(&metrics, code, retry_after, seconds).await
    }

    async fn counted_attempts(
        metrics: &Metrics,
        code: u16,
        retry_after: u32,
        seconds: u64,
    ) -> Vec<f64> {
        let machine = Clock::boot();
        let refused = Refused {
            machine: machine.clone(),
            code,
            retry_after,
            tried: Mutex::default(),
        };
        let (queue, refused) = start_counted(metrics, &machine, refused);
        for _ in 0..seconds * 50 {
            queue.add(Key::new("ns", "a"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let tried = refused.tried.lock();
        tried.iter().map(|up| up.as_seconds_f64()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn events_do_not_cut_a_backoff_short() {
        let tried = attempts(500, 0, 100).await;
        // After 0, 1, 3, 7, 15, 31 and 63 seconds.
        assert_eq!(tried.len(), 7, "{tried:?}");
        for (number, at) in (0..).zip(&tried) {
            let due = f64::from(2_u32.pow(number) - 1);
            assert!((due..due + 0.5).contains(at), "{tried:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_backoff_obeys_retry_after() {
        for code in [429, 503] {
            let tried = attempts(code, 40, 100).await;
            assert_eq!(tried.len(), 3, "{tried:?}");
            assert!(
                tried.windows(2).all(|two| two[1] - two[0] >= 40.0),
                "{tried:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_waits_for_the_next_event_and_many_back_off() {
        let metrics = Metrics::new(&mut Registry::default(), "test");
        let tried = counted_attempts(&metrics, 409, 0, 10).await;
        assert!(tried[5] < 0.2, "{tried:?}");
        // Then as after other failures.
        assert_eq!(tried.len(), 6 + 3, "{tried:?}");
        let counted = metrics.of("test");
        assert_eq!(
            counted.errors.get(),
            9 - 5,
            "a few conflicts do not count as errors"
        );
        assert_eq!(counted.error.get(), counted.errors.get());
        assert_eq!(counted.requeue_after.get(), 5);
        assert_eq!(counted.retries.get(), 9);
    }

    /// What a scrape shows of the queue `test`.
    fn scraped(context: &Context, metric: &str) -> Option<String> {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &context.registry.lock()).unwrap();
        let series = format!("workqueue_{metric}{{name=\"test\",controller=\"test\"}} ");
        let mut values = page.lines().filter_map(|line| line.strip_prefix(&series));
        values.next().map(str::to_owned)
    }

    #[tokio::test(start_paused = true)]
    async fn a_scrape_shows_for_how_long_workers_have_had_their_keys() {
        let context = context(&Clock::boot(), &[]);
        let queue = context.queue("test");
        let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let figures = || {
            [
                "unfinished_work_seconds",
                "longest_running_processor_seconds",
                "work_duration_seconds_count",
                "work_duration_seconds_sum",
            ]
            .map(|metric| scraped(&context, metric).unwrap_or_default())
        };
        assert_eq!(figures(), ["0.0", "0.0", "0", "0.0"]);
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        queue.add(a.clone());
        pass(9).await;
        assert_eq!(figures(), ["0.0", "0.0", "0", "0.0"], "it waits");
        queue.take().await;
        pass(3).await;
        queue.add(b.clone());
        queue.take().await;
        pass(2).await;
        assert_eq!(figures(), ["7.0", "5.0", "0", "0.0"]);
        queue.done(&a, None);
        pass(1).await;
        assert_eq!(figures(), ["3.0", "3.0", "1", "5.0"]);
        queue.retry(&b, &Failure::default());
        assert_eq!(figures(), ["0.0", "0.0", "2", "8.0"]);
        drop(queue);
        assert_eq!(figures(), ["", "", "2", "8.0"], "the queue is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_does_not_keep_the_process_from_its_end() {
        // How long the reconcile takes, how long it uses up a limit, and when the workers end after the stop.
        for (takes, limited, ends) in [
            (2, 0, 1),
            (10, 0, 2),
            (3_600, 2, 2),
            (3_600, 6, 5),
            (3_600, 3_600, 15),
        ] {
            let machine = Clock::boot();
            let context = context(&machine, &[]);
            let (busy, queue) = (busy(&machine, takes), context.queue("test"));
            queue.add(Key::new("slow", "a"));
            let token = context.limited.token();
            tokio::spawn(async move {
                sleep(Duration::from_secs(limited)).await;
                drop(token);
            });
            let stop = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                context.stop.cancel();
            };
            let run = run("test", busy.clone(), queue.clone(), &context, &[]);
            let (ended, ()) = tokio::join!(run, stop);
            ended.unwrap();
            assert_eq!(up(&machine).num_seconds(), 1 + ends);
        }
    }
}
