//! One watch of the API server: a list, then every change, for ever.
//!
//! kube's watcher does the same. But it does not report when the API server answers a watch, so a quiet watch may or
//! may not work. Nor does it time out when the API server does not answer a list or the start of a watch. Here
//! - the API server ends a watch after 25 seconds, and it is started again where it ended: one cheap request, since
//!   bookmarks keep its position new. A connection that died without a word, as when the node of an API server behind a
//!   load balancer loses its power, is noticed after 29 seconds;
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
use resilient_kube_client::backoff::Exponential;
use resilient_kube_client::{self as client, pages};

/// The API server ends a watch after this time. A bookmark comes shortly before.
const WATCH_FOR: Duration = Duration::from_secs(25);
/// A watch on which nothing came for this time is dead: its end is overdue.
const SILENT_AFTER: Duration = Duration::from_secs(29);
/// How long the API server may take to start a watch, which it serves from memory.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a page of a list may take: longer than the API server's own limit, of 60 s.
const PAGE_TIMEOUT: Duration = Duration::from_secs(65);
/// Upper bound on a `Retry-After` that a watch obeys.
const MAX_ASKED: Duration = Duration::from_secs(30);
/// A watch that ends sooner, without a change, is not started again at once.
const MIN_WATCH: Duration = Duration::from_secs(1);
/// After this many rejections in a row of a watch from a version, everything is listed again: the API server may not
/// know the version any more, as after a restore of etcd from a backup ("Too large resource version").
const MAX_REFUSALS: u32 = 5;

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
    /// Objects whose labels match this selector.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.labels = Some(selector.to_owned());
        self
    }

    /// How many objects a page of a list has.
    #[must_use]
    pub fn page(mut self, objects: u32) -> Self {
        self.page = objects;
        self
    }
}

/// What happens on a watch.
#[derive(Debug)]
pub(super) enum Event<K> {
    /// A list begins; its objects come next.
    ListStarted,
    /// An object of the list.
    Listed(K),
    /// The list is complete.
    ListEnded,
    /// The watch works: changes come from now on. The API server's answer says so, but not after a watch that was
    /// answered and broke: then this comes with the first event or bookmark, or with an ordinary end.
    Started,
    /// An object was created or changed.
    Applied(K),
    /// An object was deleted, or is not selected any more.
    Deleted(K),
    /// A watch that worked broke, which is ordinary; it is started again.
    Interrupted(Error),
    /// The watch failed; it is retried with backoff.
    Failed(Error),
}

/// Why a watch failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{}", client::explain(.0))]
    Call(#[source] kube::Error),
    #[error("{}", .0.message)]
    Status(Box<Status>),
    #[error("{}", client::explain(.0))]
    Broken(#[source] kube::Error),
    #[error("the watch ended at once, without a change")]
    EndedAtOnce,
    #[error("the API server did not answer within {} s", .0.as_secs())]
    Unanswered(Duration),
    #[error("nothing came for {} s, not even the end of the watch", SILENT_AFTER.as_secs())]
    Silent,
    #[error("the list took longer than the API server keeps its version: {0}")]
    ListExpired(Box<Error>),
    #[error("the API server gave no resourceVersion")]
    NoVersion,
}

impl Error {
    /// The API server's answer, if there was one.
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::Call(kube::Error::Api(status))
            | Self::Broken(kube::Error::Api(status))
            | Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The API server no longer has the changes since the latest one received: everything must be listed again.
    pub(super) fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410)
    }
}

/// A watch and its position.
pub(super) struct Watch<K> {
    api: Api<K>,
    selection: Selection,
    /// The resource version of the latest change received; None before a list.
    version: Option<String>,
    /// A watch was answered and broke, and nothing has come since.
    is_broken: bool,
    /// How often in a row the API server answered a watch from that version with an error.
    refusals: u32,
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
            is_broken: false,
            refusals: 0,
            pauses: Pauses::default(),
        }
    }

    /// Watches for ever.
    pub(super) async fn run(mut self, mut on: impl FnMut(Event<K>)) {
        loop {
            let Err(error) = self.attempt(&mut on).await else {
                continue;
            };
            // 429: the API server is overloaded, and a list would cost it more.
            let is_refusal = error.status().is_some_and(|status| status.code != 429);
            self.refusals += u32::from(is_refusal);
            if error.is_expired() || self.refusals >= MAX_REFUSALS {
                self.version = None;
                self.refusals = 0;
            }
            let pause = self.pauses.next();
            // While a watch sleeps, its cache goes stale.
            let asked = error.status().and_then(retry_after).unwrap_or_default();
            let asked = asked.min(MAX_ASKED);
            self.fail(error, &mut on);
            tokio::time::sleep(pause.max(asked)).await;
        }
    }

    /// Reports a failure, unless it is the first that interrupts a watch that worked.
    fn fail(&mut self, error: Error, on: &mut impl FnMut(Event<K>)) {
        let was_broken = self.is_broken;
        let is_break = error.is_expired()
            || matches!(
                error,
                Error::Status(_) | Error::Broken(_) | Error::EndedAtOnce
            );
        self.is_broken |= is_break || matches!(error, Error::Silent);
        on(if is_break && !was_broken {
            Event::Interrupted(error)
        } else {
            Event::Failed(error)
        });
    }

    /// Lists if necessary, then watches until the API server ends the watch.
    async fn attempt(&mut self, on: &mut impl FnMut(Event<K>)) -> Result<(), Error> {
        let mut version = match self.version.take() {
            Some(version) => version,
            None => self.list(on).await.map_err(|error| {
                // A list that is repeated for this reason may never complete.
                if error.is_expired() {
                    Error::ListExpired(Box::new(error))
                } else {
                    error
                }
            })?,
        };
        let before = version.clone();
        let ended = self.changes(&mut version, on).await;
        if ended.is_ok() || version != before {
            self.refusals = 0;
        }
        self.version = Some(version);
        ended
    }

    /// Lists everything. Returns the resource version to watch from.
    async fn list(&self, on: &mut impl FnMut(Event<K>)) -> Result<String, Error> {
        on(Event::ListStarted);
        let mut size = self.selection.page;
        let mut params = ListParams::default();
        params.label_selector.clone_from(&self.selection.labels);
        loop {
            params.limit = Some(size);
            let page = within(PAGE_TIMEOUT, pages::read(&self.api, &params)).await;
            // A continue token is a version and a key, without a page size (apiserver/pkg/storage/continue.go): the same
            // page is requested again.
            if let Err(Error::Call(error)) = &page
                && pages::is_too_large(error)
                && size > pages::SMALLEST
            {
                size = (size / 4).max(pages::SMALLEST);
                let what = K::plural(&()).into_owned();
                tracing::info!(what, size, "large objects: listing fewer at a time");
                continue;
            }
            let (list, bytes) = page?;
            if bytes <= pages::MAX_BYTES / 2 {
                size = size.saturating_mul(2).min(self.selection.page);
            }
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

    /// Watches changes until the API server ends the watch.
    async fn changes(
        &mut self,
        version: &mut String,
        on: &mut impl FnMut(Event<K>),
    ) -> Result<(), Error> {
        let mut params = WatchParams::default();
        params.label_selector.clone_from(&self.selection.labels);
        params.timeout = u32::try_from(WATCH_FOR.as_secs()).ok();
        let changes = within(START_TIMEOUT, self.api.watch(&params, version)).await?;
        let start = Instant::now();
        if !self.is_broken {
            on(Event::Started);
        }
        let mut changes = pin!(changes);
        let mut is_empty = true;
        while let Some(change) = next(&mut changes).await? {
            is_empty &= matches!(change, WatchEvent::Bookmark(_));
            let is_error = matches!(change, WatchEvent::Error(_));
            if !is_error && std::mem::take(&mut self.is_broken) {
                on(Event::Started);
            }
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
        if is_empty && start.elapsed() < MIN_WATCH {
            // An API server that shuts down ends its watches at once. kube shows a broken connection as an end, too.
            self.fail(Error::EndedAtOnce, on);
            tokio::time::sleep_until(start + MIN_WATCH).await;
        } else if std::mem::take(&mut self.is_broken) {
            on(Event::Started);
        }
        Ok(())
    }
}

/// The next change; None when the API server has ended the watch.
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
            Ok(Err(error)) => return Err(Error::Broken(error)),
            Err(_) => return Err(Error::Silent),
        }
    }
}

/// Whether a line of a watch is malformed. kube takes such a line for a Status, whose fields may all be absent.
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

/// The backoff between attempts: short enough that the watch soon works after a CRD is installed or a permission is
/// granted, long enough for a struggling API server.
#[derive(Default)]
struct Pauses {
    failures: u32,
    last: Option<Instant>,
}

impl Pauses {
    const BACKOFF: Exponential = Exponential {
        first: Duration::from_secs(1),
        max: Duration::from_secs(5),
    };
    const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

    /// The backoff is reset only after a minute without a failure: between two failed attempts, one may seem to work.
    fn next(&mut self) -> Duration {
        let last = self.last.replace(Instant::now());
        if last.is_none_or(|last| last.elapsed() > Self::FORGOTTEN_AFTER) {
            self.failures = 0;
        }
        let pause = Self::BACKOFF.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use http::Request;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use simulated_apiserver::{self as simulated, Decision, Options, Server, Site, Target, Verb};
    use tower::Layer as _;
    use tower::util::MapRequestLayer;

    use super::*;

    /// A server with one ConfigMap, whose watches get bookmarks shortly before they end.
    fn server() -> Server {
        let server = Server::new(Options {
            bookmarks: Some(Duration::from_secs(23)),
            ..Options::default()
        });
        create(&server, "ConfigMap", &Value::Null);
        server
    }

    fn create(server: &Server, kind: &str, data: &Value) {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"generateName": "a-"},
            "data": data});
        server.direct().create(object).unwrap();
    }

    /// What a watch does in ten minutes beside a scenario: requests and events, each with its second. The versions are
    /// counted from that of the first list.
    async fn history(server: &Server, scenario: impl Future<Output = ()>) -> Vec<String> {
        let start = Instant::now();
        let first = server.version();
        let since = move |version: &str| version.parse::<u64>().unwrap() - first;
        let history = Arc::<Mutex<Vec<String>>>::default();
        let log = {
            let history = history.clone();
            move |text: String| {
                let line = format!("{}: {text}", start.elapsed().as_secs());
                history.lock().unwrap().push(line);
            }
        };
        let log_request = {
            let log = log.clone();
            MapRequestLayer::new(move |request: Request<Body>| {
                let mut query = request.uri().query().unwrap_or_default().split('&');
                let version = query.find_map(|one| one.strip_prefix("resourceVersion="));
                log(match version {
                    Some(version) => format!("watch from {}", since(version)),
                    None => "list".to_owned(),
                });
                request
            })
        };
        let connection = log_request.layer(server.service("operator"));
        let api = Api::<ConfigMap>::all(Client::new(connection, "default"));
        let on = |event| match event {
            Event::ListStarted | Event::ListEnded | Event::Listed(_) => {}
            Event::Started => log("started".to_owned()),
            Event::Applied(object) => {
                log(format!("applied {}", since(&version_of(&object).unwrap())));
            }
            Event::Deleted(_) => log("deleted".to_owned()),
            Event::Interrupted(error) => log(format!("interrupted: {error}")),
            Event::Failed(error) => log(format!("failed: {error}")),
        };
        let watch = Watch::new(api, Selection::default());
        let both = async { tokio::join!(watch.run(on), scenario) };
        let _ = timeout(Duration::from_secs(600), both).await;
        history.lock().unwrap().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_is_started_again_where_it_ended() {
        let server = server();
        let history = history(&server, async {
            // Bookmarks show changes of objects that are not watched.
            tokio::time::sleep(Duration::from_secs(10)).await;
            create(&server, "Secret", &Value::Null);
        });
        let history = history.await;
        assert_eq!(history[..3], ["0: list", "0: watch from 0", "0: started"]);
        assert_eq!(history[3..5], ["25: watch from 1", "25: started"]);
        // What it costs at rest: one request in 25 s.
        assert_eq!(history.len(), 1 + 2 * 600 / 25, "{history:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_is_noticed_within_30_seconds() {
        let server = server();
        let history = history(&server, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            create(&server, "ConfigMap", &Value::Null);
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.watches(Target::all()).silence();
            create(&server, "ConfigMap", &Value::Null);
        });
        let history = history.await;
        let silent = "29: failed: nothing came for 29 s, not even the end of the watch";
        assert_eq!(history[3..5], ["0: applied 1", silent]);
        assert_eq!(
            history[5..8],
            ["30: watch from 1", "30: started", "30: applied 2"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lists_and_starts_of_watches_that_hang_are_given_up() {
        let server = server();
        server.on(|site: &Site| match site.nth {
            0 => Decision::Silent,
            _ => Decision::Forward,
        });
        let history = history(&server, async {}).await;
        let expected = [
            "0: list",
            "65: failed: the API server did not answer within 65 s",
            "66: list",
            "66: watch from 0",
            "81: failed: the API server did not answer within 15 s",
            "83: watch from 0",
            "83: started",
        ];
        assert_eq!(history[..7], expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_too_old_lists_again() {
        for in_stream in [false, true] {
            let server = server();
            server.on(move |site: &Site| match (site.verb, site.nth) {
                (Verb::Watch, 0) if in_stream => Decision::Meanwhile(Box::new(|server| {
                    create(server, "ConfigMap", &Value::Null);
                    server.compact(server.version());
                })),
                (Verb::Watch, 0) => {
                    Decision::Answer(simulated::Status::expired("too old resource version"))
                }
                _ => Decision::Forward,
            });
            let mut history = history(&server, async {}).await;
            history.retain(|line| !line.contains("started"));
            assert_eq!(history[..2], ["0: list", "0: watch from 0"]);
            assert!(
                history[2].starts_with("0: interrupted: too old resource version"),
                "{history:?}"
            );
            let newer = format!("1: watch from {}", u64::from(in_stream));
            assert_eq!(history[3..5], ["1: list", &newer]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_the_api_server_does_not_know_is_given_up_for_a_list() {
        for (code, lists) in [(504, true), (400, true), (429, false)] {
            let server = server();
            server.on(move |site: &Site| match (site.verb, site.nth) {
                (Verb::Watch, ..5) => {
                    let message = "Too large resource version: 7, current: 3";
                    Decision::Answer(simulated::Status::new(code, "Timeout", message))
                }
                _ => Decision::Forward,
            });
            let mut history = history(&server, async {}).await;
            history.retain(|line| !line.contains("failed"));
            let watches = history[1..6].iter().map(|line| line.split(": ").nth(1));
            assert!(watches.eq([Some("watch from 0"); 5]), "{history:?}");
            // After 1, 2, 4, 5 and 5 seconds.
            let next = if lists {
                "17: list"
            } else {
                "17: watch from 0"
            };
            assert_eq!(history[6], next);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_only_brings_bookmarks_and_ends_is_not_started_again_at_once() {
        let server = Server::new(Options {
            bookmarks: Some(Duration::from_millis(100)),
            ..Options::default()
        });
        let history = history(&server, async {
            loop {
                tokio::time::sleep(Duration::from_millis(150)).await;
                server.watches(Target::all()).cut();
            }
        });
        let watches = history.await.into_iter();
        let watches = watches.filter(|line| line.contains("watch from"));
        assert!((500..=601).contains(&watches.count()));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_obeyed_and_the_api_server_not_flooded() {
        let server = server();
        let busy = || simulated::Status::too_many_requests(Duration::from_secs(20));
        server.on(move |site: &Site| match (site.verb, site.nth) {
            (Verb::List, 0) => Decision::Answer(busy()),
            _ => Decision::Forward,
        });
        let history = history(&server, async {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                server.watches(Target::all()).cut();
            }
        });
        let history = history.await;
        let busy = format!("0: failed: {}", busy().message);
        assert_eq!(history[..3], ["0: list", &busy, "20: list"]);
        assert_eq!(history[3..5], ["20: watch from 0", "20: started"]);
        assert!(history[5].starts_with("20: interrupted"), "{history:?}");
        assert_eq!(history[6], "21: watch from 0");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_cannot_be_read_holds_up_no_other() {
        let server = server();
        let history = history(&server, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            create(&server, "ConfigMap", &json!({"key": 7}));
            create(&server, "ConfigMap", &Value::Null);
        });
        assert_eq!(history.await[3], "0: applied 2");
    }

    /// The requests of one list of ConfigMaps with values of that many bytes: the size of each page, and `first` before
    /// it when the list begins.
    async fn pages(values: &[usize], fault: fn(u32) -> Decision) -> String {
        let server = Server::new(Options::default());
        for (nth, bytes) in values.iter().enumerate() {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("a-{nth:06}")}, "data": {"key": "x".repeat(*bytes)}});
            server.direct().create(object).unwrap();
        }
        server.on(move |site: &Site| match site.verb {
            Verb::List => fault(site.nth),
            _ => Decision::Forward,
        });
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let log = requests.clone();
        let log_request = MapRequestLayer::new(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let limit = query.split('&').find_map(|one| one.strip_prefix("limit="));
            if let Some(limit) = limit {
                let first = if query.contains("continue=") {
                    ""
                } else {
                    "first "
                };
                log.lock().unwrap().push(format!("{first}{limit}"));
            }
            request
        });
        let connection = log_request.layer(server.service("operator"));
        let connection = client::Answers::default().layer(connection);
        let api = Api::<ConfigMap>::all(Client::new(connection, "default"));
        let (mut listed, mut lists) = (Vec::new(), 0);
        let on = |event: Event<ConfigMap>| match event {
            Event::ListStarted => listed.clear(),
            Event::Listed(object) => listed.push(object.name_any()),
            Event::ListEnded => lists += 1,
            _ => {}
        };
        let watch = Watch::new(api, Selection::default());
        let _ = timeout(Duration::from_secs(20), watch.run(on)).await;
        assert_eq!((listed.len(), lists), (values.len(), 1));
        assert!(listed.is_sorted_by(|a, b| a < b));
        let requests = requests.lock().unwrap();
        requests.join(", ")
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_too_large_is_asked_for_again_alone_and_the_size_grows_back() {
        let mut values = vec![100; 3_000];
        values[1_100..1_131].fill(140_000);
        let requests = pages(&values, |_| Decision::Forward).await;
        let expected = "first 500, 500, 500, 125, 125, 250, 500, 500, 500";
        assert_eq!(requests, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn pages_of_large_objects_only_are_as_large_as_fits() {
        let requests = pages(&[140_000; 100], |_| Decision::Forward).await;
        assert_eq!(
            requests,
            "first 500, first 125, first 31, first 8, 16, 16, 16, 16, 16, 16"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_whose_version_expires_begins_again_with_whole_pages() {
        let mut values = vec![100; 540];
        values[500..].fill(140_000);
        let fault = |nth| match nth {
            4 => Decision::Meanwhile(Box::new(|server| {
                create(server, "Secret", &Value::Null);
                server.compact(server.version());
            })),
            _ => Decision::Forward,
        };
        let requests = pages(&values, fault).await;
        let (expired, complete) = ("first 500, 500, 125, 31, 8", ", 16, 16");
        assert_eq!(requests, format!("{expired}, {expired}{complete}"));
    }
}
