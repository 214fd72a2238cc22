//! Publishes Events.
//!
//! A background task does, so that a burst of reconciles is not slowed down. It makes one request at a time
//! per namespace, for at most eight namespaces at once. A namespace whose Events hang therefore delays no other.
//! Publication may lag: each Event carries the time of the occurrence, and its name sorts by that time.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::{NewEvent, Severity, dedup_key};
use crate::reconcile::Key;
use crate::reconcile::error::retry_after;
use crate::reconcile::outbox::Outbox;
use crate::reconcile::stop::{CALLS_TIMEOUT, LIMITED_TIMEOUT};
use crate::reconcile::write;
use resilient_kube_client::backoff::Exponential;
use resilient_kube_client::clock::Clock;
use resilient_kube_client::head;

/// Time limit of one request, so that one Event does not hold up the others.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests in flight, each for another namespace.
const MAX_CALLS: usize = 8;
/// Attempts at an Event that the API server rejects for a transient reason.
const MAX_ATTEMPTS: u32 = 4;
/// The pauses between them.
const BACKOFF: Exponential = Exponential {
    first: Duration::from_secs(1),
    max: Duration::from_secs(4),
};
/// Size of the queue. Thousands of pods may start at one instant; their starts must not wait for their Events.
const MAX_QUEUED: usize = 8192;
/// How long Events are still published after the last reconciler has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// The API server rejects notes longer than this many bytes.
const MAX_NOTE_LEN: usize = 1024;
/// The API server rejects names longer than this many bytes.
const MAX_NAME_LEN: usize = 253;
/// An Event that repeats within this time increments the count of the first one, as in client-go.
const SERIES: TimeDelta = TimeDelta::minutes(6);
/// Event times always increase, unless the clock was set back by more than this.
const SET_BACK: TimeDelta = TimeDelta::seconds(1);
/// How many of the latest Events are remembered as series. Repetitions come soon after the first.
const MAX_REMEMBERED: usize = 512;

/// The queue of Events to publish. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<QueuedEvent>,
    clock: Clock,
    /// The time of the latest Event, in microseconds since 1970.
    latest: Arc<AtomicI64>,
    /// Events are being dropped.
    full: Arc<AtomicBool>,
}

/// An Event in the queue.
#[derive(Clone, Debug)]
struct QueuedEvent {
    about: ObjectReference,
    event: NewEvent,
    time: DateTime<Utc>,
}

/// The background task that publishes the Events queued in [`Events`].
pub struct EventPublisher {
    queue: mpsc::Receiver<QueuedEvent>,
    publications: Publications,
}

/// The Events of each namespace, in order.
struct Publications {
    client: kube::Client,
    manager: String,
    outbox: Mutex<Outbox<QueuedEvent>>,
    /// One for each call in flight. It is fair: whichever lane has waited longest is next.
    calls: Semaphore,
    recent: Mutex<RecentSeries>,
    full: Arc<AtomicBool>,
    /// The last Event could not be published.
    failing: AtomicBool,
}

/// The queue and the publisher of the Events that `manager` reports. `clock` gives the times of the Events.
pub fn events(client: kube::Client, clock: Clock, manager: &str) -> (Events, EventPublisher) {
    let (sender, queue) = mpsc::channel(MAX_QUEUED);
    let events = Events {
        queue: sender,
        clock,
        latest: Arc::default(),
        full: Arc::default(),
    };
    let publications = Publications {
        client,
        manager: manager.to_owned(),
        outbox: Mutex::new(Outbox::new(MAX_QUEUED)),
        calls: Semaphore::new(MAX_CALLS),
        recent: Mutex::default(),
        full: events.full.clone(),
        failing: AtomicBool::default(),
    };
    (
        events,
        EventPublisher {
            queue,
            publications,
        },
    )
}

/// A reference to the object that an Event is about.
pub fn about<K>(key: &Key, uid: &str) -> ObjectReference
where
    K: Resource<DynamicType = ()>,
{
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: Some(key.namespace.to_string()),
        name: Some(key.name.to_string()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

impl Events {
    /// Queues an Event about an object. Never waits: when the queue is full, the Event is dropped.
    pub fn publish(&self, about: ObjectReference, mut event: NewEvent) {
        // The note may quote text of unknown length, and thousands of notes may be in the queue.
        event.note = head(&event.note.replace(char::is_control, " "), MAX_NOTE_LEN);
        let [kind, namespace, name] = [&about.kind, &about.namespace, &about.name]
            .map(|text| text.as_deref().unwrap_or_default());
        // The note may quote untrusted text: as a field it is escaped.
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    controller = kind.to_lowercase(),
                    namespace,
                    name,
                    note = event.note,
                    "{}",
                    event.reason
                )
            };
        }
        match event.severity {
            Severity::Warning => log!(warn),
            Severity::Normal => log!(debug),
        }
        let (about, time) = (about, self.time());
        let queued = QueuedEvent { about, event, time };
        match self.queue.try_send(queued) {
            Err(mpsc::error::TrySendError::Full(_)) => warn_dropped(&self.full),
            // Closed: the process is about to end.
            Err(mpsc::error::TrySendError::Closed(_)) | Ok(()) => {}
        }
    }

    /// The current time, but later than that of every earlier Event, so that the Events of one object are ordered and
    /// have unique names.
    fn time(&self) -> DateTime<Utc> {
        let now = (self.clock)().timestamp_micros();
        let after = |latest: i64| {
            let was_set_back = TimeDelta::microseconds(latest.saturating_sub(now)) > SET_BACK;
            if was_set_back {
                now
            } else {
                now.max(latest + 1)
            }
        };
        let order = Ordering::Relaxed;
        let update = |latest| Some(after(latest));
        let before = self.latest.fetch_update(order, order, update);
        DateTime::from_timestamp_micros(before.map_or(now, after)).unwrap_or_default()
    }
}

/// Logs, once until the queue is empty again, that Events are being dropped.
fn warn_dropped(full: &AtomicBool) {
    if !full.swap(true, Ordering::Relaxed) {
        tracing::warn!("event queue full, dropping events");
    }
}

impl EventPublisher {
    /// Publishes Events until every [`Events`] is dropped and the queue is empty. After `stop`, it gives the
    /// reconcilers the time that their calls may take, and its last Events half a second more.
    pub async fn run(self, stop: CancellationToken) {
        let last = CancellationToken::new();
        let end = async {
            stop.cancelled().await;
            // Reconciles that finish after `stop` still publish Events.
            let last = tokio::time::timeout(LIMITED_TIMEOUT, last.cancelled());
            let _ = tokio::join!(last, tokio::time::sleep(CALLS_TIMEOUT));
            tokio::time::sleep(DRAIN_TIMEOUT).await;
        };
        tokio::select! {
            () = self.publish_all(&last) => {}
            () = end => {}
        }
    }

    /// Cancels `last` when all senders are gone.
    async fn publish_all(self, last: &CancellationToken) {
        let Self {
            mut queue,
            publications,
        } = self;
        let mut open = FuturesUnordered::new();
        let mut more = true;
        while more || !open.is_empty() {
            tokio::select! {
                queued = queue.recv(), if more => if let Some(queued) = queued {
                    let namespace = queued.namespace();
                    let pushed = publications.outbox.lock().push(&namespace, queued);
                    if pushed.dropped {
                        warn_dropped(&publications.full);
                    }
                    if pushed.opened {
                        open.push(publications.publish(namespace));
                    }
                } else {
                    more = false;
                    last.cancel();
                },
                Some(()) = open.next() => if open.is_empty() {
                    publications.full.store(false, Ordering::Relaxed);
                },
            }
        }
    }
}

impl Publications {
    /// Publishes the Events of a namespace until none waits.
    async fn publish(&self, namespace: String) {
        let next = || self.outbox.lock().next(&namespace);
        while let Some(queued) = next() {
            let problem = self.deliver(&namespace, &queued).await.err();
            let was_failing = self.failing.swap(problem.is_some(), Ordering::Relaxed);
            if let Some(problem) = problem.filter(|_| !was_failing) {
                tracing::warn!(problem, "Events cannot be published");
            }
        }
    }

    /// Publishes one Event, in a few attempts. Returns why it is dropped.
    async fn deliver(&self, namespace: &str, queued: &QueuedEvent) -> Result<(), String> {
        let mut series = self.recent.lock().continued_by(queued);
        let mut failures = 0;
        loop {
            let answer = {
                let _call = self.calls.acquire().await;
                let attempt = self.attempt(namespace, queued, &mut series, failures > 0);
                tokio::time::timeout(PUBLISH_TIMEOUT, attempt).await
            };
            let error = match answer {
                Ok(Ok(())) => break,
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            };
            failures += 1;
            let (is_transient, asked) = match &error {
                Some(kube::Error::Api(status)) => (
                    status.code == 429 || status.code >= 500,
                    retry_after(status),
                ),
                _ => (true, None),
            };
            if !is_transient || failures >= MAX_ATTEMPTS {
                return Err(error.map_or("no answer".to_owned(), |error| error.to_string()));
            }
            let pause = BACKOFF.after(failures - 1);
            tokio::time::sleep(pause.max(asked.unwrap_or_default())).await;
        }
        if series.is_none() {
            let name = event_name(queued, &self.manager);
            self.recent.lock().start(queued, name);
        }
        Ok(())
    }

    /// Counts the Event in its series, or creates it.
    async fn attempt(
        &self,
        namespace: &str,
        queued: &QueuedEvent,
        series: &mut Option<Series>,
        is_repeated: bool,
    ) -> Result<(), kube::Error> {
        if let Some(begun) = series {
            let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
            let patch = Patch::Merge(json!({"series": {
                "count": begun.count,
                "lastObservedTime": micro_time(queued.time),
            }}));
            let params = PatchParams::default();
            match api.patch(&begun.name, &params, &patch).await {
                // The API server has expired the Event (--event-ttl): create a new one.
                Err(kube::Error::Api(status)) if status.code == 404 => *series = None,
                other => return other.map(drop),
            }
        }
        let (client, manager) = (&self.client, &self.manager);
        let body = serde_json::to_vec(&event_body(queued, namespace, manager));
        let body = body.map_err(kube::Error::SerdeError)?;
        match write::create::<Event, Answer>(client, namespace, body, manager).await {
            // An earlier attempt created it, but its answer was lost.
            Err(kube::Error::Api(status)) if status.is_already_exists() && is_repeated => Ok(()),
            other => other.map(drop),
        }
    }
}

impl QueuedEvent {
    /// The namespace of the Event. Events about cluster-scoped objects are in `default`.
    fn namespace(&self) -> String {
        self.about
            .namespace
            .as_deref()
            .unwrap_or("default")
            .to_owned()
    }

    /// A hash of all that the Events of a series have in common: of a warning, the note without its numbers; others say
    /// by their numbers what was done. An object without a UID is known by its name.
    fn series_key(&self) -> u64 {
        let (about, event) = (&self.about, &self.event);
        let uid = about.uid.as_ref().filter(|uid| !uid.is_empty());
        let is_warning = event.severity == Severity::Warning;
        let note = (dedup_key(&event.note), (!is_warning).then_some(&event.note));
        let mut hasher = DefaultHasher::new();
        let kind = (
            uid.or(about.name.as_ref()),
            is_warning,
            event.reason,
            event.action,
            note,
        );
        kind.hash(&mut hasher);
        hasher.finish()
    }
}

/// No field of the answer is used.
#[derive(serde::Deserialize)]
struct Answer {}

/// Formats a time as the API's `MicroTime`.
fn micro_time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// The name of an Event: the name of its object, and its time in microseconds.
fn event_name(queued: &QueuedEvent, manager: &str) -> String {
    let time = format!(".{:016x}", queued.time.timestamp_micros());
    let object = queued.about.name.as_deref().unwrap_or(manager);
    // Names are ASCII. The part before a dot must not end with a dot or a hyphen.
    let object = object.get(..MAX_NAME_LEN - time.len()).unwrap_or(object);
    format!("{}{time}", object.trim_end_matches(['.', '-']))
}

fn event_body(queued: &QueuedEvent, namespace: &str, manager: &str) -> Value {
    let event = &queued.event;
    let name = event_name(queued, manager);
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": micro_time(queued.time),
        "type": match event.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        },
        "reason": event.reason,
        "action": event.action,
        "note": event.note,
        "regarding": queued.about,
        "reportingController": manager,
        "reportingInstance": manager,
    })
}

/// The Events published last, oldest first.
#[derive(Debug, Default)]
struct RecentSeries(VecDeque<Series>);

/// An Event, and how often it occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Series {
    /// See [`QueuedEvent::series_key`].
    key: u64,
    name: String,
    count: u32,
    last: DateTime<Utc>,
}

impl RecentSeries {
    /// The series that the Event continues, with this occurrence counted.
    fn continued_by(&mut self, queued: &QueuedEvent) -> Option<Series> {
        let since = queued.time - SERIES;
        while self.0.front().is_some_and(|series| series.last < since) {
            self.0.pop_front();
        }
        let key = queued.series_key();
        let index = self.0.iter().rposition(|series| series.key == key)?;
        let mut series = self.0.remove(index)?;
        series.count = series.count.saturating_add(1);
        series.last = queued.time;
        self.0.push_back(series.clone());
        Some(series)
    }

    /// Remembers an Event that was created, as the start of a series.
    fn start(&mut self, queued: &QueuedEvent, name: String) {
        let key = queued.series_key();
        self.0.retain(|series| series.key != key);
        if self.0.len() >= MAX_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(Series {
            key,
            name,
            count: 1,
            last: queued.time,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use simulated_apiserver::{Decision, Options, Plan, Server, Site, Status};
    use tokio::time::Instant;

    use super::*;

    fn queued(name: &str, reason: &'static str, second: i64) -> QueuedEvent {
        QueuedEvent {
            about: ObjectReference {
                name: Some(name.to_owned()),
                uid: Some(format!("uid of {name}")),
                ..ObjectReference::default()
            },
            event: NewEvent {
                severity: Severity::Normal,
                reason,
                action: "Act",
                note: "a note".to_owned(),
            },
            time: DateTime::from_timestamp(second, 0).unwrap(),
        }
    }

    #[test]
    fn an_event_that_repeats_soon_is_counted() {
        let mut recent = RecentSeries::default();
        assert_eq!(recent.continued_by(&queued("a", "Started", 0)), None);
        recent.start(&queued("a", "Started", 0), "a.1".to_owned());
        assert_eq!(recent.continued_by(&queued("b", "Started", 1)), None);
        assert_eq!(recent.continued_by(&queued("a", "Failed", 1)), None);
        for (second, count) in [(300, 2), (600, 3)] {
            let series = recent
                .continued_by(&queued("a", "Started", second))
                .unwrap();
            assert_eq!((series.name.as_str(), series.count), ("a.1", count));
        }
        assert_eq!(recent.continued_by(&queued("a", "Started", 961)), None);
        assert!(recent.0.is_empty());
    }

    #[test]
    fn only_the_latest_series_are_remembered() {
        let mut recent = RecentSeries::default();
        let all = MAX_REMEMBERED + 10;
        for number in 0..all {
            recent.start(&queued(&number.to_string(), "Started", 0), String::new());
        }
        assert_eq!(recent.0.len(), MAX_REMEMBERED);
        assert_eq!(recent.continued_by(&queued("9", "Started", 1)), None);
        assert!(recent.continued_by(&queued("10", "Started", 1)).is_some());
    }

    #[test]
    fn names_are_legal_and_sort_by_time() {
        let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        let name_at = |second| event_name(&queued(&long, "Started", second), "operator");
        assert!(name_at(1).len() <= MAX_NAME_LEN && name_at(1) < name_at(20));
        assert!(name_at(1).starts_with(&format!("{}.0", "a".repeat(235))));
        assert!(event_name(&queued("x", "Started", 1), "operator").starts_with("x.0"));
    }

    /// Events by a clock that can be set, in seconds.
    fn clocked() -> (Events, EventPublisher, Arc<AtomicI64>) {
        let second = Arc::<AtomicI64>::default();
        let read = second.clone();
        let clock: Clock = Arc::new(move || {
            DateTime::from_timestamp(read.load(Ordering::Relaxed), 0).unwrap_or_default()
        });
        let server = Server::new(Options::default());
        let (events, publisher) = events(server.client("operator"), clock, "operator");
        (events, publisher, second)
    }

    fn times(events: &Events, publisher: &mut EventPublisher, count: usize) -> Vec<DateTime<Utc>> {
        for _ in 0..count {
            let queued = queued("x", "Started", 0);
            events.publish(queued.about, queued.event);
        }
        std::iter::from_fn(|| Some(publisher.queue.try_recv().ok()?.time)).collect()
    }

    #[tokio::test]
    async fn events_of_one_instant_are_ordered() {
        let (events, mut publisher, _) = clocked();
        let times = times(&events, &mut publisher, 100);
        assert!(times.len() == 100 && times.is_sorted_by(|a, b| a < b));
    }

    #[tokio::test]
    async fn event_times_follow_a_clock_that_is_set_back() {
        let (events, mut publisher, second) = clocked();
        second.store(1_000_000, Ordering::Relaxed);
        times(&events, &mut publisher, 2);
        second.store(1_000, Ordering::Relaxed);
        let times = times(&events, &mut publisher, 2);
        assert!(times[0].timestamp() == 1_000 && times[0] < times[1]);
    }

    #[tokio::test]
    async fn an_event_that_is_rejected_is_dropped_and_the_next_is_published() {
        for (refused, expected) in [
            (false, ["POST", "PATCH", "POST"]),
            (true, ["POST", "POST", "POST"]),
        ] {
            let server = Server::new(Options::default());
            if refused {
                let forbidden = || Status::new(403, "Forbidden", "no");
                server.on(move |_: &Site| Decision::Answer(forbidden()));
            }
            let (events, publisher) = events(
                server.client("operator"),
                resilient_kube_client::clock::system(),
                "operator",
            );
            for name in ["a", "a", "b"] {
                let queued = queued(name, "Started", 0);
                events.publish(queued.about, queued.event);
            }
            drop(events);
            publisher.run(CancellationToken::new()).await;
            let requests = server.history().requests;
            let methods: Vec<_> = requests.iter().map(|one| &one.method).collect();
            assert_eq!(methods, expected, "refused: {refused}");
        }
    }

    #[test]
    fn warnings_that_differ_only_in_numbers_are_one_series() {
        let with = |severity, note: &str| QueuedEvent {
            event: NewEvent {
                severity,
                note: note.to_owned(),
                ..queued("a", "PodWaiting", 0).event
            },
            ..queued("a", "PodWaiting", 0)
        };
        let of = |note: &str| with(Severity::Warning, note);
        let mut recent = RecentSeries::default();
        recent.start(&of("Unschedulable: 0/3 nodes"), "a.1".to_owned());
        assert!(
            recent
                .continued_by(&of("Unschedulable: 0/12 nodes"))
                .is_some()
        );
        assert_eq!(
            recent.continued_by(&of("ImagePullBackOff: no such image")),
            None
        );
        recent.start(&of("created Job \"x-1\" after 10s"), "a.2".to_owned());
        assert!(
            recent
                .continued_by(&of("created Job \"x-1\" after 12s"))
                .is_some()
        );
        assert_eq!(
            recent.continued_by(&of("created Job \"x-2\" after 12s")),
            None
        );
        // What was done is said by the numbers.
        let done = |note: &str| with(Severity::Normal, note);
        recent.start(&done("created 3 pods"), "a.3".to_owned());
        assert!(recent.continued_by(&done("created 3 pods")).is_some());
        assert_eq!(recent.continued_by(&done("created 500 pods")), None);
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(head("short", MAX_NOTE_LEN), "short");
        let long = head(&"ä".repeat(600), MAX_NOTE_LEN);
        assert!(
            long.len() <= MAX_NOTE_LEN && long.ends_with("ä..."),
            "{long}"
        );
    }

    /// The Events that are published while the API server answers by that plan: when, in seconds, and in which
    /// namespace.
    async fn published(counts: &[(&str, usize)], plan: impl Plan + 'static) -> Vec<(u64, String)> {
        let namespaces = counts.iter().map(|(namespace, _)| (*namespace).to_owned());
        let server = Server::new(Options {
            namespaces: namespaces.collect(),
            ..Options::default()
        });
        server.on(plan);
        let (events, publisher) = events(
            server.client("operator"),
            resilient_kube_client::clock::system(),
            "operator",
        );
        for (namespace, count) in counts {
            for number in 0..*count {
                let mut queued = queued(&number.to_string(), "Started", 0);
                queued.about.namespace = Some((*namespace).to_owned());
                events.publish(queued.about, queued.event);
            }
        }
        drop(events);
        let run = publisher.run(CancellationToken::new());
        let _ = tokio::time::timeout(Duration::from_secs(60), run).await;
        let versions = server.history().versions.into_iter();
        let events = versions.filter(|version| version.resource == "events");
        let events = events.map(|version| (version.elapsed.as_secs(), version.namespace));
        events.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_events_hang_delays_no_other() {
        let counts = [("hangs", 100), ("a", 20), ("hangs-too", 5), ("b", 1)];
        let done = published(&counts, |site: &Site| {
            if site.namespace.starts_with("hangs") {
                Decision::Silent
            } else {
                Decision::Forward
            }
        });
        let done = done.await;
        assert_eq!(done.len(), 21, "{done:?}");
        assert!(done.iter().all(|(at, _)| *at == 0), "{done:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_limited_and_a_namespace_in_backoff_makes_none() {
        let names: Vec<_> = (0..MAX_CALLS).map(|n| format!("bad-{n}")).collect();
        let bad = names.iter().map(|name| (name.as_str(), 1));
        let counts: Vec<_> = bad.chain([("good", 1)]).collect();
        let fails: fn() -> Decision = || Decision::Answer(Status::internal_error("no"));
        let hangs: fn() -> Decision = || Decision::Silent;
        for (answer, second) in [(fails, 0), (hangs, PUBLISH_TIMEOUT.as_secs())] {
            let done = published(&counts, move |site: &Site| {
                if site.namespace.starts_with("bad") {
                    answer()
                } else {
                    Decision::Forward
                }
            });
            assert_eq!(done.await, [(second, "good".to_owned())]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_reconciles_that_finish_during_shutdown_are_published() {
        for (ends_after, hangs, took, stored) in [
            (14.0, false, 14.0, 1),
            (14.0, true, 14.5, 0),
            (60.0, false, 15.5, 0),
            // The next leader waits for it.
            (2.0, true, 2.5, 0),
            (0.0, true, 2.5, 0),
        ] {
            let server = Server::new(Options::default());
            server.on(move |_: &Site| {
                if hangs {
                    Decision::Silent
                } else {
                    Decision::Forward
                }
            });
            let clock = resilient_kube_client::clock::system();
            let (events, publisher) = events(server.client("operator"), clock, "operator");
            let stop = CancellationToken::new();
            stop.cancel();
            let start = Instant::now();
            let reconciler = async move {
                tokio::time::sleep(Duration::from_secs_f64(ends_after)).await;
                let queued = queued("a", "Started", 0);
                events.publish(queued.about, queued.event);
            };
            let publisher = async {
                publisher.run(stop).await;
                // The timer counts milliseconds.
                (start.elapsed().as_secs_f64() * 10.0).floor() / 10.0
            };
            let (ended, ()) = tokio::join!(publisher, reconciler);
            let events = server.direct().list("events.events.k8s.io", "default");
            assert_eq!((ended, events.len()), (took, stored));
            let is_ours = |event: &Value| event["reportingController"] == "operator";
            assert!(events.iter().all(is_ours), "{events:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_retried_if_the_error_is_transient() {
        let is_first = |site: &Site| site.name.starts_with("0.");
        let a = "a".to_owned();
        // After 1 and 2 seconds, in its place before the next.
        for (code, reason) in [
            (429, "TooManyRequests"),
            (500, "InternalError"),
            (503, "ServiceUnavailable"),
        ] {
            let done = published(&[("a", 2)], move |site: &Site| {
                if is_first(site) && site.nth < 2 {
                    Decision::Answer(Status::new(code, reason, "no"))
                } else {
                    Decision::Forward
                }
            });
            assert_eq!(done.await, [(3, a.clone()), (3, a.clone())], "{code}");
        }
        // Not for ever: the first is left out after four attempts.
        let done = published(&[("a", 2)], move |site: &Site| {
            if is_first(site) && site.nth < 4 {
                Decision::Answer(Status::internal_error("no"))
            } else {
                Decision::Forward
            }
        });
        assert_eq!(done.await, [(7, a.clone())]);
        // The answer was lost, so the next attempt finds the Event.
        let done = published(&[("a", 2)], move |site: &Site| {
            if is_first(site) && site.nth == 0 {
                Decision::Late(Duration::ZERO)
            } else {
                Decision::Forward
            }
        });
        assert_eq!(done.await, [(0, a.clone()), (6, a)]);
    }
}
