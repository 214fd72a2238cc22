//! Events on objects: what a person would look for with `kubectl describe`.
//!
//! A background task publishes them: of each namespace one after the other, and of at most [`MAX_CALLS`] namespaces at a
//! time, so that a burst of reconciles is not slowed down, and a namespace whose Events hang delays no other
//! ([`outbox`](super::outbox)). An Event may come long after what it reports, so it has the time of that, and a name that
//! sorts by it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Key;
use super::error::retry_after;
use super::outbox::Outbox;
use super::runner::END_TIMEOUT;
use super::write::{self, MANAGER};
use crate::clock::Clock;

/// No Event may hold up the others for longer than this.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// So many are published at a time, each of another namespace.
const MAX_CALLS: usize = 8;
/// An Event that the API server does not take for a reason that passes is tried so often.
const MAX_ATTEMPTS: u32 = 4;
/// The pause after the first failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Events wait here, so that thousands of starts at one instant do not wait for their Events.
const MAX_QUEUED: usize = 8192;
/// How long Events are still published after the last reconciler has ended.
const LAST_NEWS: Duration = Duration::from_secs(3);
/// The API refuses notes longer than this many bytes.
const MAX_NOTE_LEN: usize = 1024;
/// The API refuses names longer than this many bytes.
const MAX_NAME_LEN: usize = 253;
/// What is told again within this time is counted and not told anew, as client-go has it.
const SERIES: TimeDelta = TimeDelta::minutes(6);
/// Times of news are made to differ, but a clock that was set back by more than this is followed.
const SET_BACK: TimeDelta = TimeDelta::seconds(1);
/// So many of the latest Events are remembered for that. What repeats itself does so soon.
const MAX_REMEMBERED: usize = 512;

/// Ordinary news, or something that a person should look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Ordinary news.
    Normal,
    /// Something that a person should look at.
    Warning,
}

/// One piece of news about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Ordinary or worth a look.
    pub severity: Severity,
    /// One word in upper camel case, such as `Started`.
    pub reason: &'static str,
    /// What the operator did or tried, one word, such as `StartPod`.
    pub action: &'static str,
    /// A sentence.
    pub note: String,
}

/// Where news go. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    untold: mpsc::Sender<Untold>,
    clock: Clock,
    /// Microseconds since 1970 of the latest news.
    latest: Arc<AtomicI64>,
    /// Events are being dropped.
    full: Arc<AtomicBool>,
}

/// Events on their way.
#[derive(Clone, Debug)]
struct Untold {
    about: ObjectReference,
    news: NewEvent,
    time: DateTime<Utc>,
}

/// Publishes the news that [`Events`] takes in, beside the work that they tell of.
pub struct EventPublisher {
    client: kube::Client,
    told: Mutex<Told>,
    untold: mpsc::Receiver<Untold>,
    full: Arc<AtomicBool>,
    /// The last Event could not be published.
    failing: bool,
}

/// Events that wait for their turn.
#[derive(Clone, Debug)]
struct Waiting {
    untold: Untold,
    /// The Event that they are counted in, if there is one.
    series: Option<Series>,
    failures: u32,
}

/// What became of an attempt.
enum Attempt {
    Published,
    /// It is left out; why.
    Failed(String),
    /// It is tried again after that pause.
    Again(Box<Waiting>, Duration),
}

/// Events in the name of this operator, with the times of that clock.
pub fn events(client: kube::Client, clock: Clock) -> (Events, EventPublisher) {
    let (sender, untold) = mpsc::channel(MAX_QUEUED);
    let events = Events {
        untold: sender,
        clock,
        latest: Arc::default(),
        full: Arc::default(),
    };
    let teller = EventPublisher {
        client,
        told: Mutex::default(),
        untold,
        full: events.full.clone(),
        failing: false,
    };
    (events, teller)
}

/// The object that news are about.
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
    /// Hands over news about an object. Never waits: when too much is untold, it is dropped.
    pub fn publish(&self, about: ObjectReference, mut news: NewEvent) {
        // Somebody else's words may be long, and much may be untold.
        news.note = head(&news.note.replace(char::is_control, " "), MAX_NOTE_LEN);
        if news.severity == Severity::Warning {
            let [kind, namespace, name] = [&about.kind, &about.namespace, &about.name]
                .map(|text| text.as_deref().unwrap_or_default());
            // As a field, where what is no plain character is escaped: the words may be anybody's.
            tracing::warn!(kind, namespace, name, note = news.note, "{}", news.reason);
        }
        let (about, time) = (about, self.time());
        let untold = Untold { about, news, time };
        match self.untold.try_send(untold) {
            Err(mpsc::error::TrySendError::Full(_)) => dropped(&self.full),
            // The process is about to end.
            Err(mpsc::error::TrySendError::Closed(_)) | Ok(()) => {}
        }
    }

    /// The present, and later than that of any news before: Events of one object are to have an order,
    /// and names of their own.
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

/// An Event was left out, for want of room.
fn dropped(full: &AtomicBool) {
    if !full.swap(true, Ordering::Relaxed) {
        tracing::warn!("event queue full, dropping events");
    }
}

impl EventPublisher {
    /// Publishes Events until all are published that there will be; after `stop`, until a little longer than the
    /// reconcilers take to end.
    pub async fn run(self, stop: CancellationToken) {
        let last = CancellationToken::new();
        let end = async {
            stop.cancelled().await;
            // What the reconcilers finish is worth an Event, too.
            let _ = tokio::time::timeout(END_TIMEOUT, last.cancelled()).await;
            tokio::time::sleep(LAST_NEWS).await;
        };
        tokio::select! {
            () = self.publish_all(&last) => {}
            () = end => {}
        }
    }

    /// Cancels `last` when no more will come.
    async fn publish_all(mut self, last: &CancellationToken) {
        let mut outbox = Outbox::new(MAX_QUEUED);
        let mut calls = FuturesUnordered::new();
        let mut more = true;
        while more || !outbox.is_empty() {
            while calls.len() < MAX_CALLS
                && let Some((namespace, waiting)) = outbox.next(Instant::now())
            {
                calls.push(async {
                    let attempt = attempt(&self.client, &self.told, &namespace, waiting).await;
                    (namespace, attempt)
                });
            }
            let wake = outbox.wake().filter(|_| calls.len() < MAX_CALLS);
            tokio::select! {
                untold = self.untold.recv(), if more => if let Some(untold) = untold {
                    let waiting = Waiting { untold, series: None, failures: 0 };
                    if !outbox.push(&waiting.untold.namespace(), waiting.clone()) {
                        dropped(&self.full);
                    }
                } else {
                    more = false;
                    last.cancel();
                },
                Some((namespace, attempt)) = calls.next() => match attempt {
                    Attempt::Again(waiting, pause) => {
                        outbox.rest(&namespace, *waiting, Instant::now() + pause);
                    }
                    ended => {
                        outbox.done(&namespace);
                        if outbox.is_empty() {
                            self.full.store(false, Ordering::Relaxed);
                        }
                        let problem = match ended {
                            Attempt::Failed(problem) => Some(problem),
                            _ => None,
                        };
                        if let Some(problem) = &problem && !self.failing {
                            tracing::warn!(problem, "Events cannot be published");
                        }
                        self.failing = problem.is_some();
                    }
                },
                () = sleep_until(wake), if wake.is_some() => {}
            }
        }
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

impl Untold {
    /// Where the Event is. Events about what is in no namespace are in this one.
    fn namespace(&self) -> String {
        self.about
            .namespace
            .as_deref()
            .unwrap_or("default")
            .to_owned()
    }
}

/// Tries to publish one Event.
async fn attempt(
    client: &kube::Client,
    told: &Mutex<Told>,
    namespace: &str,
    mut waiting: Waiting,
) -> Attempt {
    let lock = || told.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.failures == 0 {
        waiting.series = lock().again(&waiting.untold);
    }
    let published = tell(client, namespace, &mut waiting);
    let error = match tokio::time::timeout(PUBLISH_TIMEOUT, published).await {
        Ok(Ok(())) => {
            if waiting.series.is_none() {
                lock().first(&waiting.untold, name(&waiting.untold));
            }
            return Attempt::Published;
        }
        Ok(Err(error)) => Some(error),
        Err(_) => None,
    };
    waiting.failures += 1;
    let (passes, asked) = match &error {
        Some(kube::Error::Api(status)) => (
            status.code == 429 || status.code >= 500,
            retry_after(status),
        ),
        _ => (true, None),
    };
    if passes && waiting.failures < MAX_ATTEMPTS {
        let pause = FIRST_PAUSE * 2_u32.pow(waiting.failures - 1);
        return Attempt::Again(Box::new(waiting), pause.max(asked.unwrap_or_default()));
    }
    Attempt::Failed(error.map_or("no answer".to_owned(), |error| error.to_string()))
}

async fn tell(
    client: &kube::Client,
    namespace: &str,
    waiting: &mut Waiting,
) -> Result<(), kube::Error> {
    if let Some(series) = &waiting.series {
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        let patch = Patch::Merge(json!({"series": {
            "count": series.count,
            "lastObservedTime": text(waiting.untold.time),
        }}));
        match api
            .patch(&series.name, &PatchParams::default(), &patch)
            .await
        {
            // Its time to live is over: it is told anew.
            Err(kube::Error::Api(status)) if status.code == 404 => waiting.series = None,
            other => return other.map(drop),
        }
    }
    let name = name(&waiting.untold);
    let body = serde_json::to_vec(&event(&waiting.untold, namespace, &name));
    let body = body.map_err(kube::Error::SerdeError)?;
    match write::create::<Event, Answer>(client, namespace, body).await {
        // By an attempt before, whose answer was lost.
        Err(kube::Error::Api(status)) if status.is_already_exists() && waiting.failures > 0 => {
            Ok(())
        }
        other => other.map(drop),
    }
}

/// Of the answer nothing is looked at.
#[derive(serde::Deserialize)]
struct Answer {}

/// As the API writes times with microseconds.
fn text(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// The name of an Event: that of its object, and its time in microseconds.
fn name(untold: &Untold) -> String {
    let time = format!(".{:016x}", untold.time.timestamp_micros());
    let object = untold.about.name.as_deref().unwrap_or(MANAGER);
    // Names are ASCII, and a part of one may end neither with a dot nor with a hyphen.
    let object = object.get(..MAX_NAME_LEN - time.len()).unwrap_or(object);
    format!("{}{time}", object.trim_end_matches(['.', '-']))
}

fn event(untold: &Untold, namespace: &str, name: &str) -> Value {
    let news = &untold.news;
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": text(untold.time),
        "type": match news.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        },
        "reason": news.reason,
        "action": news.action,
        "note": news.note,
        "regarding": untold.about,
        "reportingController": MANAGER,
        "reportingInstance": MANAGER,
    })
}

/// The first bytes of a text, `longest` at most; no character is cut in two.
pub fn head(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let end = (0..=longest.saturating_sub(3))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default();
    format!("{}...", &text[..end])
}

/// The Events that were told last, oldest first.
#[derive(Debug, Default)]
struct Told(VecDeque<Series>);

/// An Event, and how often it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Series {
    /// What it is about: the object's UID, or its name when it has none.
    about: String,
    severity: Severity,
    reason: &'static str,
    action: &'static str,
    /// See [`gist`].
    gist: u64,
    name: String,
    count: u32,
    last: DateTime<Utc>,
}

fn identity(about: &ObjectReference) -> &str {
    let uid = about.uid.as_deref().filter(|uid| !uid.is_empty());
    uid.or(about.name.as_deref()).unwrap_or_default()
}

/// What a note says but for its numbers, which change from one time to the next. Digits in a name, such
/// as that of a Job, are no number.
fn gist(note: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for word in note.split_whitespace() {
        let bare = word.trim_start_matches(|c: char| !c.is_alphanumeric());
        if bare.starts_with(char::is_alphabetic) {
            word.hash(&mut hasher);
        } else {
            let parts = word.split(|c: char| c.is_ascii_digit());
            let parts = parts.filter(|part| !part.is_empty());
            parts.for_each(|part| part.hash(&mut hasher));
        }
    }
    hasher.finish()
}

impl Series {
    /// Whether the news are of this series.
    fn has(&self, untold: &Untold) -> bool {
        let news = &untold.news;
        self.reason == news.reason
            && self.action == news.action
            && self.severity == news.severity
            && self.about == identity(&untold.about)
            && self.gist == gist(&news.note)
    }
}

impl Told {
    /// The series that the news continue, with them in it.
    fn again(&mut self, untold: &Untold) -> Option<Series> {
        let since = untold.time - SERIES;
        while self.0.front().is_some_and(|series| series.last < since) {
            self.0.pop_front();
        }
        let place = self.0.iter().rposition(|series| series.has(untold))?;
        let mut series = self.0.remove(place)?;
        series.count = series.count.saturating_add(1);
        series.last = untold.time;
        self.0.push_back(series.clone());
        Some(series)
    }

    /// Remembers an Event that was told for the first time.
    fn first(&mut self, untold: &Untold, name: String) {
        self.0.retain(|series| !series.has(untold));
        if self.0.len() >= MAX_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(Series {
            about: identity(&untold.about).to_owned(),
            severity: untold.news.severity,
            reason: untold.news.reason,
            action: untold.news.action,
            gist: gist(&untold.news.note),
            name,
            count: 1,
            last: untold.time,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use simulated_apiserver::{Decision, Options, Plan, Server, Site, Status};

    use super::*;

    fn untold(name: &str, reason: &'static str, second: i64) -> Untold {
        Untold {
            about: ObjectReference {
                name: Some(name.to_owned()),
                uid: Some(format!("uid of {name}")),
                ..ObjectReference::default()
            },
            news: NewEvent {
                severity: Severity::Normal,
                reason,
                action: "Act",
                note: format!("a note of second {second}"),
            },
            time: DateTime::from_timestamp(second, 0).unwrap(),
        }
    }

    #[test]
    fn what_is_told_again_soon_is_counted() {
        let mut told = Told::default();
        assert_eq!(told.again(&untold("a", "Started", 0)), None);
        told.first(&untold("a", "Started", 0), "a.1".to_owned());
        assert_eq!(told.again(&untold("b", "Started", 1)), None);
        assert_eq!(told.again(&untold("a", "Failed", 1)), None);
        for (second, count) in [(300, 2), (600, 3)] {
            let series = told.again(&untold("a", "Started", second)).unwrap();
            assert_eq!((series.name.as_str(), series.count), ("a.1", count));
        }
        assert_eq!(told.again(&untold("a", "Started", 961)), None);
        assert!(told.0.is_empty());
    }

    #[test]
    fn the_latest_are_remembered_and_no_more() {
        let mut told = Told::default();
        let all = MAX_REMEMBERED + 10;
        for number in 0..all {
            told.first(&untold(&number.to_string(), "Started", 0), String::new());
        }
        assert_eq!(told.0.len(), MAX_REMEMBERED);
        assert_eq!(told.again(&untold("9", "Started", 1)), None);
        assert!(told.again(&untold("10", "Started", 1)).is_some());
    }

    #[test]
    fn names_are_legal_and_sort_by_time() {
        let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        let name_at = |second| name(&untold(&long, "Started", second));
        assert!(name_at(1).len() <= MAX_NAME_LEN && name_at(1) < name_at(20));
        assert!(name_at(1).starts_with(&format!("{}.0", "a".repeat(235))));
        assert!(name(&untold("x", "Started", 1)).starts_with("x.0"));
    }

    /// Events by a clock that can be set, in seconds.
    fn clocked() -> (Events, EventPublisher, Arc<AtomicI64>) {
        let second = Arc::<AtomicI64>::default();
        let read = second.clone();
        let clock: Clock = Arc::new(move || {
            DateTime::from_timestamp(read.load(Ordering::Relaxed), 0).unwrap_or_default()
        });
        let server = Server::new(Options::default());
        let (events, teller) = events(server.client("operator"), clock);
        (events, teller, second)
    }

    fn times(events: &Events, teller: &mut EventPublisher, count: usize) -> Vec<DateTime<Utc>> {
        for _ in 0..count {
            let untold = untold("x", "Started", 0);
            events.publish(untold.about, untold.news);
        }
        std::iter::from_fn(|| Some(teller.untold.try_recv().ok()?.time)).collect()
    }

    #[tokio::test]
    async fn news_of_one_instant_have_an_order() {
        let (events, mut teller, _) = clocked();
        let times = times(&events, &mut teller, 100);
        assert!(times.len() == 100 && times.is_sorted_by(|a, b| a < b));
    }

    #[tokio::test]
    async fn a_clock_that_was_ahead_does_not_set_the_times_of_what_comes_after() {
        let (events, mut teller, second) = clocked();
        second.store(1_000_000, Ordering::Relaxed);
        times(&events, &mut teller, 2);
        second.store(1_000, Ordering::Relaxed);
        let times = times(&events, &mut teller, 2);
        assert!(times[0].timestamp() == 1_000 && times[0] < times[1]);
    }

    #[tokio::test]
    async fn what_cannot_be_told_is_left_and_the_next_is_tried() {
        for (refused, expected) in [
            (false, ["POST", "PATCH", "POST"]),
            (true, ["POST", "POST", "POST"]),
        ] {
            let server = Server::new(Options::default());
            if refused {
                let forbidden = || Status::new(403, "Forbidden", "no");
                server.on(move |_: &Site| Decision::Answer(forbidden()));
            }
            let (events, teller) = events(server.client("operator"), crate::clock::system());
            for name in ["a", "a", "b"] {
                let untold = untold(name, "Started", 0);
                events.publish(untold.about, untold.news);
            }
            drop(events);
            teller.run(CancellationToken::new()).await;
            let requests = server.history().requests;
            let methods: Vec<_> = requests.iter().map(|one| &one.method).collect();
            assert_eq!(methods, expected, "refused: {refused}");
        }
    }

    #[test]
    fn other_words_are_other_news_and_other_numbers_are_not() {
        let of = |note: &str| Untold {
            news: NewEvent {
                note: note.to_owned(),
                ..untold("a", "PodWaiting", 0).news
            },
            ..untold("a", "PodWaiting", 0)
        };
        let mut told = Told::default();
        told.first(&of("Unschedulable: 0/3 nodes"), "a.1".to_owned());
        assert!(told.again(&of("Unschedulable: 0/12 nodes")).is_some());
        assert_eq!(told.again(&of("ImagePullBackOff: no such image")), None);
        told.first(&of("created Job \"x-1\" after 10s"), "a.2".to_owned());
        assert!(told.again(&of("created Job \"x-1\" after 12s")).is_some());
        assert_eq!(told.again(&of("created Job \"x-2\" after 12s")), None);
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

    /// Events published where that becomes of the requests: when, in seconds, and in which namespace.
    async fn published(news: &[(&str, usize)], plan: impl Plan + 'static) -> Vec<(u64, String)> {
        let namespaces = news.iter().map(|(namespace, _)| (*namespace).to_owned());
        let server = Server::new(Options {
            namespaces: namespaces.collect(),
            ..Options::default()
        });
        server.on(plan);
        let (events, teller) = events(server.client("operator"), crate::clock::system());
        for (namespace, count) in news {
            for number in 0..*count {
                let mut untold = untold(&number.to_string(), "Started", 0);
                untold.about.namespace = Some((*namespace).to_owned());
                events.publish(untold.about, untold.news);
            }
        }
        drop(events);
        let run = teller.run(CancellationToken::new());
        let _ = tokio::time::timeout(Duration::from_mins(1), run).await;
        let versions = server.history().versions.into_iter();
        let events = versions.filter(|version| version.resource == "events");
        let events = events.map(|version| (version.elapsed.as_secs(), version.namespace));
        events.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_events_hang_delays_no_other() {
        let news = [("hangs", 100), ("a", 20), ("hangs-too", 5), ("b", 1)];
        let done = published(&news, |site: &Site| {
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
    async fn what_reconcilers_finish_after_the_end_has_begun_is_published() {
        for (ends_after, hangs) in [(14, false), (14, true), (60, false)] {
            let server = Server::new(Options::default());
            server.on(move |_: &Site| {
                if hangs {
                    Decision::Silent
                } else {
                    Decision::Forward
                }
            });
            let clock = crate::clock::system();
            let (events, teller) = events(server.client("operator"), clock);
            let stop = CancellationToken::new();
            stop.cancel();
            let start = Instant::now();
            let reconciler = async move {
                tokio::time::sleep(Duration::from_secs(ends_after)).await;
                let untold = untold("a", "Started", 0);
                events.publish(untold.about, untold.news);
            };
            let (took, ()) = tokio::join!(
                async {
                    teller.run(stop).await;
                    start.elapsed().as_secs()
                },
                reconciler
            );
            let published = server
                .direct()
                .list("events.events.k8s.io", "default")
                .len();
            let expected = match (ends_after, hangs) {
                (14, false) => (14, 1),
                (14, true) => (17, 0),
                _ => (18, 0),
            };
            assert_eq!((took, published), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_tried_again_where_the_reason_passes() {
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
        // Its answer was lost, so the next attempt meets what is there.
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
