//! Events on objects: what a person would look for with `kubectl describe`.
//!
//! They are told one after the other, beside the work: in a burst they then take one call in flight
//! of many, and are told when the burst is over. So an Event has the time of what it tells of, and a
//! name that sorts by it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Key;
use super::write::{self, MANAGER};
use crate::clock::Clock;

/// No Event may hold up the others for longer than this.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// News wait here, so that thousands of starts at one instant do not wait for their Events.
const MOST_UNTOLD: usize = 8192;
/// How long news are still told after the end has begun.
const LAST_NEWS: Duration = Duration::from_secs(3);
/// The API refuses notes longer than this many bytes.
const LONGEST_NOTE: usize = 1024;
/// The API refuses names longer than this many bytes.
const LONGEST_NAME: usize = 253;
/// What is told again within this time is counted and not told anew, as client-go has it.
const SERIES: TimeDelta = TimeDelta::minutes(6);
/// Times of news are made to differ, but a clock that was set back by more than this is followed.
const SET_BACK: TimeDelta = TimeDelta::seconds(1);
/// So many of the latest Events are remembered for that. What repeats itself does so soon.
const MOST_REMEMBERED: usize = 512;

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
pub struct News {
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
    /// News are being dropped.
    full: Arc<AtomicBool>,
}

/// News on their way.
#[derive(Clone, Debug)]
struct Untold {
    about: ObjectReference,
    news: News,
    time: DateTime<Utc>,
}

/// Publishes the news that [`Events`] takes in, beside the work that they tell of.
pub struct Teller {
    client: kube::Client,
    told: Told,
    untold: mpsc::Receiver<Untold>,
    /// The last Event could not be published.
    failing: bool,
}

/// Events in the name of this operator, with the times of that clock.
pub fn events(client: kube::Client, clock: Clock) -> (Events, Teller) {
    let (sender, untold) = mpsc::channel(MOST_UNTOLD);
    let events = Events {
        untold: sender,
        clock,
        latest: Arc::default(),
        full: Arc::default(),
    };
    let teller = Teller {
        client,
        told: Told::default(),
        untold,
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
    pub fn publish(&self, about: ObjectReference, mut news: News) {
        // Somebody else's words may be long, and much may be untold.
        news.note = head(&news.note.replace(char::is_control, " "), LONGEST_NOTE);
        if news.severity == Severity::Warning {
            let [kind, namespace, name] = [&about.kind, &about.namespace, &about.name]
                .map(|text| text.as_deref().unwrap_or_default());
            // As a field, where what is no plain character is escaped: the words may be anybody's.
            tracing::warn!(kind, namespace, name, note = news.note, "{}", news.reason);
        }
        let (about, time) = (about, self.time());
        let full = self.untold.try_send(Untold { about, news, time }).is_err();
        if full && !self.full.swap(full, Ordering::Relaxed) {
            tracing::warn!("more happens than can be told: some Events are left out");
        } else if !full {
            self.full.store(false, Ordering::Relaxed);
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

impl Teller {
    /// Tells news until nobody is left to bring any, or a little longer than `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let all = async {
            while let Some(untold) = self.untold.recv().await {
                let outcome = publish(&self.client, &mut self.told, untold).await;
                if let Err(problem) = &outcome
                    && !self.failing
                {
                    tracing::warn!(problem, "Events cannot be published");
                }
                self.failing = outcome.is_err();
            }
        };
        let end = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_NEWS).await;
        };
        tokio::select! {
            () = all => {}
            () = end => {}
        }
    }
}

/// Publishes one Event. One that cannot be published is left.
///
/// # Errors
/// Why it cannot, for the log.
async fn publish(client: &kube::Client, told: &mut Told, untold: Untold) -> Result<(), String> {
    match tokio::time::timeout(PUBLISH_TIMEOUT, tell(client, told, untold)).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

async fn tell(client: &kube::Client, told: &mut Told, untold: Untold) -> Result<(), kube::Error> {
    // Events about what is in no namespace are in this one.
    let namespace = untold.about.namespace.as_deref().unwrap_or("default");
    if let Some(series) = told.again(&untold) {
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        let patch = Patch::Merge(json!({"series": {
            "count": series.count,
            "lastObservedTime": text(untold.time),
        }}));
        match api
            .patch(&series.name, &PatchParams::default(), &patch)
            .await
        {
            // Its time to live is over: it is told anew.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => return other.map(drop),
        }
    }
    let name = name(&untold);
    let body = serde_json::to_vec(&event(&untold, namespace, &name));
    let body = body.map_err(kube::Error::SerdeError)?;
    write::create::<Event, Answer>(client, namespace, body).await?;
    told.first(&untold, name);
    Ok(())
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
    let object = object.get(..LONGEST_NAME - time.len()).unwrap_or(object);
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
        if self.0.len() >= MOST_REMEMBERED {
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
    use std::sync::Mutex;

    use super::*;

    fn untold(name: &str, reason: &'static str, second: i64) -> Untold {
        Untold {
            about: ObjectReference {
                name: Some(name.to_owned()),
                uid: Some(format!("uid of {name}")),
                ..ObjectReference::default()
            },
            news: News {
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
        let all = MOST_REMEMBERED + 10;
        for number in 0..all {
            told.first(&untold(&number.to_string(), "Started", 0), String::new());
        }
        assert_eq!(told.0.len(), MOST_REMEMBERED);
        assert_eq!(told.again(&untold("9", "Started", 1)), None);
        assert!(told.again(&untold("10", "Started", 1)).is_some());
    }

    #[test]
    fn names_are_legal_and_sort_by_time() {
        let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        let name_at = |second| name(&untold(&long, "Started", second));
        assert!(name_at(1).len() <= LONGEST_NAME && name_at(1) < name_at(20));
        assert!(name_at(1).starts_with(&format!("{}.0", "a".repeat(235))));
        assert!(name(&untold("x", "Started", 1)).starts_with("x.0"));
    }

    /// An API server that answers every call with that status, and the methods of the calls.
    fn server(code: u16) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let seen = calls.clone();
        let service = tower::service_fn(move |request: axum::http::Request<kube::client::Body>| {
            seen.lock().unwrap().push(request.method().to_string());
            let response = axum::http::Response::builder().status(code);
            let response = response.body(kube::client::Body::from(b"{}".to_vec()));
            async move { Ok::<_, std::convert::Infallible>(response.unwrap()) }
        });
        (kube::Client::new(service, "default"), calls)
    }

    /// Events by a clock that can be set, in seconds.
    fn clocked(code: u16) -> (Events, Teller, Arc<AtomicI64>) {
        let second = Arc::<AtomicI64>::default();
        let read = second.clone();
        let clock: Clock = Arc::new(move || {
            DateTime::from_timestamp(read.load(Ordering::Relaxed), 0).unwrap_or_default()
        });
        let (events, teller) = events(server(code).0, clock);
        (events, teller, second)
    }

    fn times(events: &Events, teller: &mut Teller, count: usize) -> Vec<DateTime<Utc>> {
        for _ in 0..count {
            let untold = untold("x", "Started", 0);
            events.publish(untold.about, untold.news);
        }
        std::iter::from_fn(|| Some(teller.untold.try_recv().ok()?.time)).collect()
    }

    #[tokio::test]
    async fn news_of_one_instant_have_an_order() {
        let (events, mut teller, _) = clocked(200);
        let times = times(&events, &mut teller, 100);
        assert!(times.len() == 100 && times.is_sorted_by(|a, b| a < b));
    }

    #[tokio::test]
    async fn a_clock_that_was_ahead_does_not_set_the_times_of_what_comes_after() {
        let (events, mut teller, second) = clocked(200);
        second.store(1_000_000, Ordering::Relaxed);
        times(&events, &mut teller, 2);
        second.store(1_000, Ordering::Relaxed);
        let times = times(&events, &mut teller, 2);
        assert!(times[0].timestamp() == 1_000 && times[0] < times[1]);
    }

    #[tokio::test]
    async fn what_cannot_be_told_is_left_and_the_next_is_tried() {
        for (code, expected) in [
            (200, ["POST", "PATCH", "POST"].as_slice()),
            (403, &["POST", "POST", "POST"]),
        ] {
            let (client, calls) = server(code);
            let (events, teller) = events(client, crate::clock::system());
            for name in ["a", "a", "b"] {
                let untold = untold(name, "Started", 0);
                events.publish(untold.about, untold.news);
            }
            drop(events);
            teller.run(CancellationToken::new()).await;
            assert_eq!(*calls.lock().unwrap(), expected, "{code}");
        }
    }

    #[test]
    fn other_words_are_other_news_and_other_numbers_are_not() {
        let of = |note: &str| Untold {
            news: News {
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
        assert_eq!(head("short", LONGEST_NOTE), "short");
        let long = head(&"ä".repeat(600), LONGEST_NOTE);
        assert!(
            long.len() <= LONGEST_NOTE && long.ends_with("ä..."),
            "{long}"
        );
    }
}
