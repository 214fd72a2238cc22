//! Events on objects: what a person would look for with `kubectl describe`.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

/// An Event must never hold up the work it tells of.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
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

/// Publishes Events. Cheap to clone; all clones share one cache, which turns repeats into a count.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// Events in the name of this operator.
    pub fn new(client: kube::Client) -> Self {
        let reporter = Reporter {
            controller: "my-operator".to_owned(),
            instance: None,
        };
        Self {
            recorder: Recorder::new(client, reporter),
        }
    }

    /// Publishes the news about an object. An Event that cannot be published is logged and left.
    pub async fn publish(&self, about: &ObjectReference, news: News) {
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
        match tokio::time::timeout(PUBLISH_TIMEOUT, self.recorder.publish(&event, about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(reason, %error, "cannot publish an Event"),
            Err(_) => tracing::debug!(reason, "cannot publish an Event: no answer"),
        }
    }
}
