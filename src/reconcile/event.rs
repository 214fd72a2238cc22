//! Events on objects: what a person would look for with `kubectl describe`.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Key;
use super::write::MANAGER;

/// No Event may hold up the others for longer than this.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// News wait here, so that a thousand starts at one instant do not wait for a thousand Events.
const MOST_UNTOLD: usize = 4096;
/// How long news are still told after the end has begun.
const LAST_NEWS: Duration = Duration::from_secs(3);
/// The API refuses notes longer than this many bytes.
const LONGEST_NOTE: usize = 1024;

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
    untold: mpsc::Sender<(ObjectReference, News)>,
}

/// Publishes the news that [`Events`] takes in, beside the work that they tell of.
pub struct Teller {
    recorder: Recorder,
    untold: mpsc::Receiver<(ObjectReference, News)>,
}

/// Events in the name of this operator.
pub fn events(client: kube::Client) -> (Events, Teller) {
    let (sender, untold) = mpsc::channel(MOST_UNTOLD);
    let reporter = Reporter {
        controller: MANAGER.to_owned(),
        instance: None,
    };
    // One recorder for all: its memory turns repeats into a count.
    let recorder = Recorder::new(client, reporter);
    (Events { untold: sender }, Teller { recorder, untold })
}

/// The object that news are about.
pub fn about<K>(key: &Key, uid: &str) -> ObjectReference
where
    K: Resource<DynamicType = ()>,
{
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
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
        if self.untold.try_send((about, news)).is_err() {
            tracing::debug!(reason, "an Event was dropped: too many are untold");
        }
    }
}

impl Teller {
    /// Tells news until nobody is left to bring any, or a little longer than `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let all = async {
            while let Some((about, news)) = self.untold.recv().await {
                publish(&self.recorder, &about, news).await;
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
async fn publish(recorder: &Recorder, about: &ObjectReference, news: News) {
    let (reason, mut note) = (news.reason, news.note);
    if note.len() > LONGEST_NOTE {
        let end = (0..=LONGEST_NOTE - 3)
            .rev()
            .find(|at| note.is_char_boundary(*at))
            .unwrap_or_default();
        note.truncate(end);
        note.push_str("...");
    }
    let event = Event {
        type_: match news.severity {
            Severity::Normal => EventType::Normal,
            Severity::Warning => EventType::Warning,
        },
        reason: reason.to_owned(),
        note: Some(note),
        action: news.action.to_owned(),
        secondary: None,
    };
    match tokio::time::timeout(PUBLISH_TIMEOUT, recorder.publish(&event, about)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(reason, %error, "cannot publish an Event"),
        Err(_) => tracing::debug!(reason, "cannot publish an Event: no answer"),
    }
}
