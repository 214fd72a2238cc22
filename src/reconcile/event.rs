//! Events on objects: what a person would look for with `kubectl describe`.
//!
//! They are told one after the other, beside the work: in a burst they then take one call in flight
//! of many, and are told when the burst is over. So an Event has the time of what it tells of, and a
//! name that sorts by it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
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
#[derive(Clone, Debug)]
pub struct Events {
    untold: mpsc::Sender<Untold>,
    /// Microseconds since 1970 of the latest news.
    latest: Arc<AtomicI64>,
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
}

/// Events in the name of this operator.
pub fn events(client: kube::Client) -> (Events, Teller) {
    let (sender, untold) = mpsc::channel(MOST_UNTOLD);
    let events = Events {
        untold: sender,
        latest: Arc::default(),
    };
    let told = Told::default();
    let teller = Teller {
        client,
        told,
        untold,
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
    pub fn publish(&self, about: ObjectReference, news: News) {
        let reason = news.reason;
        if news.severity == Severity::Warning {
            let [kind, namespace, name] = [&about.kind, &about.namespace, &about.name]
                .map(|text| text.as_deref().unwrap_or_default());
            tracing::warn!(kind, namespace, name, reason, "{}", news.note);
        }
        let (about, time) = (about, self.time());
        if self.untold.try_send(Untold { about, news, time }).is_err() {
            tracing::debug!(reason, "an Event was dropped: too many are untold");
        }
    }

    /// The present, and later than that of any news before: Events of one object are to have an order,
    /// and names of their own.
    fn time(&self) -> DateTime<Utc> {
        let now = Utc::now().timestamp_micros();
        let after = |latest: i64| Some(now.max(latest + 1));
        let order = Ordering::Relaxed;
        let latest = self.latest.fetch_update(order, order, after);
        let time = latest.map_or(now, |latest| now.max(latest + 1));
        DateTime::from_timestamp_micros(time).unwrap_or_default()
    }
}

impl Teller {
    /// Tells news until nobody is left to bring any, or a little longer than `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let all = async {
            while let Some(untold) = self.untold.recv().await {
                publish(&self.client, &mut self.told, untold).await;
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

/// Publishes one Event. One that cannot be published is logged and left.
async fn publish(client: &kube::Client, told: &mut Told, untold: Untold) {
    let reason = untold.news.reason;
    match tokio::time::timeout(PUBLISH_TIMEOUT, tell(client, told, untold)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(reason, %error, "cannot publish an Event"),
        Err(_) => tracing::debug!(reason, "cannot publish an Event: no answer"),
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
        "note": note(&news.note),
        "regarding": untold.about,
        "reportingController": MANAGER,
        "reportingInstance": MANAGER,
    })
}

/// A note that the API takes.
fn note(note: &str) -> String {
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let end = (0..=LONGEST_NOTE - 3)
        .rev()
        .find(|at| note.is_char_boundary(*at))
        .unwrap_or_default();
    format!("{}...", &note[..end])
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
    name: String,
    count: u32,
    last: DateTime<Utc>,
}

fn identity(about: &ObjectReference) -> &str {
    let uid = about.uid.as_deref().filter(|uid| !uid.is_empty());
    uid.or(about.name.as_deref()).unwrap_or_default()
}

impl Series {
    /// Whether the news are of this series, whatever the note says: counts in it change.
    fn has(&self, untold: &Untold) -> bool {
        let news = &untold.news;
        self.reason == news.reason
            && self.action == news.action
            && self.severity == news.severity
            && self.about == identity(&untold.about)
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
            name,
            count: 1,
            last: untold.time,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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

    #[tokio::test]
    async fn news_of_one_instant_have_an_order() {
        let client = kube::Client::new(
            tower::service_fn(|_| async {
                Ok::<_, std::convert::Infallible>(axum::http::Response::new(
                    kube::client::Body::empty(),
                ))
            }),
            "default",
        );
        let (events, mut teller) = events(client);
        for _ in 0..100 {
            let untold = untold("x", "Started", 0);
            events.publish(untold.about, untold.news);
        }
        let mut times = Vec::new();
        while let Ok(untold) = teller.untold.try_recv() {
            times.push(untold.time);
        }
        assert!(times.len() == 100 && times.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(note("short"), "short");
        let long = note(&"ä".repeat(600));
        assert!(
            long.len() <= LONGEST_NOTE && long.ends_with("ä..."),
            "{long}"
        );
    }
}
