//! One watch of the API server: a list, then every change, for ever.
//!
//! kube's watcher does the same. But it does not report when the API server answered a watch, so it is unknown whether a
//! quiet one works, and it does not bound a list or the start of a watch that the API server does not answer. Here
//! - the API server ends a watch after [`WATCH_FOR`], and it is started again where it ended: one cheap request, since
//!   bookmarks keep its position new. A connection that died without a word, as when the node of an API server behind a
//!   load balancer loses its power, is noticed after [`SILENT_AFTER`];
//! - a list and the start of a watch have a time limit;
//! - the caller sees every answer.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use kube::api::{ListParams, WatchParams};
use kube::core::{Status, WatchEvent};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::error::retry_after;
use crate::client::{self, pages};

/// The API server ends a watch after this time. A bookmark comes shortly before.
const WATCH_FOR: Duration = Duration::from_secs(25);
/// A watch on which nothing came for this time is dead: its end is overdue.
const SILENT_AFTER: Duration = Duration::from_secs(29);
/// How long the API server may take to begin with a watch. It takes from its memory what is sent.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a page of a list may take: longer than the API server's own limit, of 60 s.
const PAGE_TIMEOUT: Duration = Duration::from_secs(65);
/// A watch that ends sooner, with nothing in it, is not started again at once.
const SHORTEST: Duration = Duration::from_secs(1);

/// What is watched, and how it is listed.
#[derive(Clone, Debug)]
pub struct Selection {
    labels: Option<String>,
    page: u32,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            labels: None,
            page: 500,
        }
    }
}

impl Selection {
    /// Objects with labels that this selector takes.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.labels = Some(selector.to_owned());
        self
    }

    /// So many objects come in one page of a list.
    #[must_use]
    pub fn page(mut self, objects: u32) -> Self {
        self.page = objects;
        self
    }
}

/// What happens on a watch.
#[derive(Debug)]
pub(super) enum Event<K> {
    /// A list begins: what is there comes next.
    ListStarted,
    /// An object of the list.
    Listed(K),
    /// The list is complete.
    ListEnded,
    /// The API server answered: changes come from now on.
    Started,
    /// An object was created or changed.
    Applied(K),
    /// An object was deleted, or is not selected any more.
    Deleted(K),
    /// The watch does not work; it is tried again after a pause.
    Failed(Error),
}

/// Why a watch does not work.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{}", client::explain(.0))]
    Call(#[source] kube::Error),
    #[error("{}", .0.message)]
    Status(Box<Status>),
    #[error("the API server did not answer within {} s", .0.as_secs())]
    Unanswered(Duration),
    #[error("nothing came for {} s, not even the end of the watch", SILENT_AFTER.as_secs())]
    Silent,
    #[error("the API server gave no resourceVersion")]
    NoVersion,
}

impl Error {
    /// The API server's answer, where there was one.
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::Call(kube::Error::Api(status)) | Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The changes since the last one that came are not kept any more: it must be listed again.
    pub(super) fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410)
    }
}

/// A watch and where it is.
pub(super) struct Watch<K> {
    api: Api<K>,
    selection: Selection,
    /// The resource version of the last change that came; none before a list.
    version: Option<String>,
    pauses: Pauses,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    pub(super) fn new(api: Api<K>, selection: Selection) -> Self {
        Self {
            api,
            selection,
            version: None,
            pauses: Pauses::default(),
        }
    }

    /// Watches for ever.
    pub(super) async fn run(mut self, mut on: impl FnMut(Event<K>)) {
        loop {
            let Err(error) = self.attempt(&mut on).await else {
                continue;
            };
            if matches!(&error, Error::Call(error) if pages::is_too_large(error)) {
                // It stays so until the process ends: the objects are there at the next list, too.
                let page = (self.selection.page / 4).max(pages::SMALLEST);
                self.selection.page = page;
                let what = K::plural(&()).into_owned();
                tracing::info!(what, page, "large objects: listing fewer at a time");
                continue;
            }
            if error.is_expired() {
                self.version = None;
            }
            let pause = self.pauses.next();
            let asked = error.status().and_then(retry_after).unwrap_or_default();
            on(Event::Failed(error));
            tokio::time::sleep(pause.max(asked)).await;
        }
    }

    /// Lists if that is necessary, then watches until the API server ends it.
    async fn attempt(&mut self, on: &mut impl FnMut(Event<K>)) -> Result<(), Error> {
        let mut version = match self.version.take() {
            Some(version) => version,
            None => self.list(on).await?,
        };
        let ended = self.changes(&mut version, on).await;
        self.version = Some(version);
        ended
    }

    /// Lists everything. The resource version from which changes are to be watched.
    async fn list(&self, on: &mut impl FnMut(Event<K>)) -> Result<String, Error> {
        on(Event::ListStarted);
        let mut params = ListParams::default().limit(self.selection.page);
        params.label_selector.clone_from(&self.selection.labels);
        loop {
            let list = within(PAGE_TIMEOUT, self.api.list(&params)).await?;
            for object in list.items {
                on(Event::Listed(object));
            }
            params.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                let version = list.metadata.resource_version;
                let version = version.filter(|version| !version.is_empty());
                let version = version.ok_or(Error::NoVersion)?;
                on(Event::ListEnded);
                return Ok(version);
            }
        }
    }

    /// Watches changes until the API server ends it.
    async fn changes(
        &self,
        version: &mut String,
        on: &mut impl FnMut(Event<K>),
    ) -> Result<(), Error> {
        let mut params = WatchParams::default();
        params.label_selector.clone_from(&self.selection.labels);
        params.timeout = u32::try_from(WATCH_FOR.as_secs()).ok();
        let start = Instant::now();
        let changes = within(START_TIMEOUT, self.api.watch(&params, version)).await?;
        on(Event::Started);
        let mut changes = pin!(changes);
        let mut is_empty = true;
        while let Some(change) = next(&mut changes).await? {
            is_empty = false;
            match change {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    *version = version_of(&object)?;
                    on(Event::Applied(object));
                }
                WatchEvent::Deleted(object) => {
                    *version = version_of(&object)?;
                    on(Event::Deleted(object));
                }
                WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(Error::Status(status.boxed())),
            }
        }
        if is_empty {
            // An API server that is about to end does so.
            tokio::time::sleep_until(start + SHORTEST).await;
        }
        Ok(())
    }
}

/// The next change; none when the API server has ended the watch.
async fn next<K>(
    changes: &mut (impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin),
) -> Result<Option<WatchEvent<K>>, Error> {
    loop {
        match timeout(SILENT_AFTER, changes.try_next()).await {
            Ok(Ok(change)) => return Ok(change),
            // The object is stale from now on, but it must not hold up the others.
            Ok(Err(error)) if is_unreadable(&error) => {
                tracing::error!("a change of an object cannot be read, so it is left out");
            }
            Ok(Err(error)) => return Err(Error::Call(error)),
            Err(_) => return Err(Error::Silent),
        }
    }
}

/// Whether a line of a watch is no change that can be read. kube takes such a line for a Status, whose fields may all be
/// absent.
fn is_unreadable(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0,
        _ => false,
    }
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(Error::Call),
        Err(_) => Err(Error::Unanswered(limit)),
    }
}

fn version_of(object: &impl Resource) -> Result<String, Error> {
    object.resource_version().ok_or(Error::NoVersion)
}

/// The pauses between attempts: short enough that after the installation of a CRD or the grant of a right the watch
/// soon works, long enough for a struggling API server.
#[derive(Default)]
struct Pauses {
    failures: u32,
    last: Option<Instant>,
}

impl Pauses {
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(5);
    const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);

    /// The pauses shrink only after a minute without a failure: between two attempts that fail, one may seem to work.
    fn next(&mut self) -> Duration {
        let last = self.last.replace(Instant::now());
        if last.is_none_or(|last| last.elapsed() > Self::FORGOTTEN_AFTER) {
            self.failures = 0;
        }
        let pause = Self::FIRST * 2_u32.saturating_pow(self.failures);
        self.failures = (self.failures + 1).min(8);
        pause.min(Self::LONGEST)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use axum::body::{Body, Bytes};
    use axum::http::{Request, Response};
    use futures::{StreamExt as _, stream};
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    use super::*;

    /// How the server answers a request.
    #[derive(Clone)]
    enum Answer {
        Never,
        Code(u16, Value),
        List(Value),
        /// A watch with these events, which the server ends after so many seconds, or never.
        Watch(Vec<Value>, Option<u64>),
    }

    impl Answer {
        async fn give(self) -> Response<Body> {
            let (code, body) = match self {
                Self::Never => std::future::pending().await,
                Self::Code(code, status) => (code, Body::from(status.to_string())),
                Self::List(list) => (200, Body::from(list.to_string())),
                Self::Watch(events, end) => {
                    let lines = events.into_iter().map(|event| format!("{event}\n"));
                    let lines = stream::iter(lines.map(Bytes::from));
                    let end = stream::once(async move {
                        match end {
                            Some(after) => tokio::time::sleep(Duration::from_secs(after)).await,
                            None => std::future::pending().await,
                        }
                    });
                    let end = end.flat_map(|()| stream::empty());
                    (
                        200,
                        Body::from_stream(lines.chain(end).map(Ok::<_, Infallible>)),
                    )
                }
            };
            Response::builder().status(code).body(body).unwrap()
        }
    }

    fn object(version: u32) -> Value {
        json!({"metadata": {"name": "a", "resourceVersion": version.to_string()}})
    }

    fn applied(version: u32) -> Value {
        json!({"type": "MODIFIED", "object": object(version)})
    }

    fn bookmark(version: u32) -> Value {
        json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"resourceVersion": version.to_string()}}})
    }

    fn list(version: u32) -> Answer {
        Answer::List(json!({"metadata": {"resourceVersion": version.to_string()},
            "items": [object(version)]}))
    }

    /// What a watch does within ten minutes against a server with these answers, of which the last is given for ever:
    /// requests and events, each with its second.
    async fn history(answers: Vec<Answer>) -> Vec<String> {
        let start = Instant::now();
        let history = Arc::<Mutex<Vec<String>>>::default();
        let log = {
            let history = history.clone();
            move |text: String| {
                let line = format!("{}: {text}", start.elapsed().as_secs());
                history.lock().unwrap().push(line);
            }
        };
        let answers = Arc::new(Mutex::new(answers));
        let server = {
            let log = log.clone();
            tower::service_fn(move |request: Request<kube::client::Body>| {
                let query = request.uri().query().unwrap_or_default();
                let version = query
                    .split('&')
                    .find_map(|one| one.strip_prefix("resourceVersion="));
                log(match version {
                    Some(version) => format!("watch from {version}"),
                    None => "list".to_owned(),
                });
                let mut answers = answers.lock().unwrap();
                let answer = match answers.len() {
                    1 => answers[0].clone(),
                    _ => answers.remove(0),
                };
                async move { Ok::<_, Infallible>(answer.give().await) }
            })
        };
        let api = Api::<ConfigMap>::all(kube::Client::new(server, "default"));
        let on = |event| match event {
            Event::ListStarted | Event::ListEnded | Event::Listed(_) => {}
            Event::Started => log("started".to_owned()),
            Event::Applied(object) => log(format!("applied {}", version_of(&object).unwrap())),
            Event::Deleted(_) => log("deleted".to_owned()),
            Event::Failed(error) => log(format!("failed: {error}")),
        };
        let watch = Watch::new(api, Selection::default());
        let _ = timeout(Duration::from_mins(10), watch.run(on)).await;
        history.lock().unwrap().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_is_started_again_where_it_ended() {
        let history = history(vec![
            list(5),
            Answer::Watch(vec![bookmark(8)], Some(25)),
            Answer::Watch(vec![], Some(25)),
        ]);
        let history = history.await;
        assert_eq!(history[..3], ["0: list", "0: watch from 5", "0: started"]);
        assert_eq!(history[3..5], ["25: watch from 8", "25: started"]);
        // What it costs at rest: one request in 25 s.
        assert_eq!(history.len(), 1 + 2 * 600 / 25, "{history:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_died_without_a_word_is_noticed_within_30_seconds() {
        let history = history(vec![
            list(5),
            Answer::Watch(vec![applied(6)], None),
            Answer::Watch(vec![applied(7)], None),
        ]);
        let history = history.await;
        let silent = "29: failed: nothing came for 29 s, not even the end of the watch";
        assert_eq!(history[3..5], ["0: applied 6", silent]);
        assert_eq!(
            history[5..8],
            ["30: watch from 6", "30: started", "30: applied 7"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lists_and_starts_of_watches_that_hang_are_given_up() {
        let history = history(vec![
            Answer::Never,
            list(5),
            Answer::Never,
            Answer::Watch(vec![], None),
        ]);
        let history = history.await;
        let expected = [
            "0: list",
            "65: failed: the API server did not answer within 65 s",
            "66: list",
            "66: watch from 5",
            "81: failed: the API server did not answer within 15 s",
            "83: watch from 5",
            "83: started",
        ];
        assert_eq!(history[..7], expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_too_old_lists_again() {
        let gone = json!({"kind": "Status", "code": 410, "message": "too old"});
        let in_stream = json!({"type": "ERROR", "object": gone});
        for expired in [
            Answer::Code(410, gone.clone()),
            Answer::Watch(vec![in_stream], None),
        ] {
            let answers = vec![list(5), expired, list(9), Answer::Watch(vec![], None)];
            let mut history = history(answers).await;
            history.retain(|line| !line.contains("started"));
            let expected = ["0: list", "0: watch from 5", "0: failed: too old"];
            assert_eq!(history[..3], expected);
            assert_eq!(history[3..5], ["1: list", "1: watch from 9"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_asks_for_is_kept_and_it_is_not_flooded() {
        let busy = json!({"kind": "Status", "code": 429, "message": "busy",
            "details": {"retryAfterSeconds": 40}});
        let history = history(vec![
            Answer::Code(429, busy),
            list(5),
            Answer::Watch(vec![], Some(0)),
        ]);
        let history = history.await;
        assert_eq!(history[..3], ["0: list", "0: failed: busy", "40: list"]);
        assert_eq!(
            history[3..6],
            ["40: watch from 5", "40: started", "41: watch from 5"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_cannot_be_read_holds_up_no_other() {
        let bad = json!({"type": "MODIFIED", "object": {"metadata": 7}});
        let history = history(vec![list(5), Answer::Watch(vec![bad, applied(7)], None)]);
        assert_eq!(history.await[3], "0: applied 7");
    }
}
