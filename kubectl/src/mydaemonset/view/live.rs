//! The view that goes on: its state comes from watches, and is drawn at most five times a second.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures::future::{BoxFuture, pending};
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, Stream, StreamExt as _};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use my_operator_mydaemonset::observe::node::{NodeView, WatchedNode};
use my_operator_mydaemonset::observe::pod::{PodView, WatchedPod};
use my_operator_mydaemonset::revision::RevisionView;
use resilient_kube_client::backoff::Exponential;
use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{self, MissedTickBehavior};

use super::cells::{NodeCell, Noted, cells, group_label};
use super::layout::{self, Page};
use super::line::Line;
use super::screen::Screen;
use super::{first_noted, frame, is_utf8, look_at, retried};
use crate::INTERRUPTED;
use crate::connection::{Connection, Failure};
use crate::mydaemonset::cluster;
use crate::mydaemonset::object::Object;
use crate::terminal::{Colour, obeys_sequences, size};

/// The pause between two frames.
const FRAME: Duration = Duration::from_millis(200);
/// The same as a multiple of the time that a frame took, if that is longer, but no longer than [`REFRESH`].
const REST: u32 = 20;
/// Events are read for this long before a frame,
const BURST: Duration = Duration::from_millis(20);
/// and on, until none has come for this long,
const GAP: Duration = Duration::from_millis(1);
/// but no longer than this.
const MAX_BURST: Duration = Duration::from_secs(1);
/// A node's state may change by time alone, with `minReadySeconds`.
const REFRESH: Duration = Duration::from_secs(1);
/// What failing pods said last, and why others are not Ready, is read again after this time.
const LAST_LINES: Duration = Duration::from_secs(10);
/// While there is no connection, the server is asked again after these.
const PAUSES: Exponential = Exponential {
    first: Duration::from_millis(250),
    max: Duration::from_secs(4),
};

/// Objects of one watch, by name. A relist replaces all of them at once.
#[derive(Debug)]
struct Watched<V> {
    live: BTreeMap<String, V>,
    /// Those of the list under way.
    listed: BTreeMap<String, V>,
    /// Whether a list of this watch has been complete.
    is_complete: bool,
    /// The user may not list them.
    is_forbidden: bool,
}

impl<V> Default for Watched<V> {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            listed: BTreeMap::new(),
            is_complete: false,
            is_forbidden: false,
        }
    }
}

impl<V> Watched<Arc<V>> {
    fn all(&self) -> Vec<Arc<V>> {
        self.live.values().cloned().collect()
    }
}

impl<V: PartialEq> Watched<V> {
    /// Whether all that the user may list is known.
    fn is_settled(&self) -> bool {
        self.is_complete || self.is_forbidden
    }

    /// Takes up an event. Returns whether what is known changed.
    fn apply<K>(&mut self, event: watcher::Event<K>, view: impl Fn(K) -> (String, V)) -> bool {
        match event {
            watcher::Event::Init => self.listed = BTreeMap::new(),
            watcher::Event::InitApply(object) => {
                let (name, view) = view(object);
                self.listed.insert(name, view);
            }
            watcher::Event::InitDone => {
                self.live = std::mem::take(&mut self.listed);
                (self.is_complete, self.is_forbidden) = (true, false);
                return true;
            }
            watcher::Event::Apply(object) => {
                let (name, view) = view(object);
                let is_new = self.live.get(&name) != Some(&view);
                self.live.insert(name, view);
                return is_new;
            }
            watcher::Event::Delete(object) => {
                self.live.remove(&view(object).0);
                return true;
            }
        }
        false
    }
}

/// Something that a watch reports.
enum Event {
    Object(Result<watcher::Event<DynamicObject>, watcher::Error>),
    Pod(Result<watcher::Event<WatchedPod>, watcher::Error>),
    Node(Result<watcher::Event<WatchedNode>, watcher::Error>),
    Revision(Result<watcher::Event<ControllerRevision>, watcher::Error>),
}

/// What is known.
#[derive(Default)]
struct State {
    objects: Watched<DynamicObject>,
    pods: Watched<Arc<PodView>>,
    nodes: Watched<Arc<NodeView>>,
    revisions: Watched<Arc<RevisionView>>,
    /// The label by which the nodes are grouped. It takes long to find where they have none of these labels.
    group: Option<&'static str>,
    /// Whether that may have changed.
    regroup: bool,
    /// Whether everything has been listed once.
    is_known: bool,
    /// Why there is no connection.
    lost: Option<String>,
    /// Whether a watch has failed since all of them began.
    is_broken: bool,
    /// The UID of the object that is shown: another one of its name is another object.
    uid: String,
}

impl State {
    /// Takes up an event. Returns whether anything changed.
    fn apply(&mut self, event: Event, connection: &Connection) -> Result<bool, Failure> {
        let now = Utc::now();
        let (lost, is_broken) = (&mut self.lost, &mut self.is_broken);
        let mut passing = |error: watcher::Error| {
            let text = retried(connection, error)?;
            *is_broken |= text.is_some();
            let is_new = text.is_some() && lost.is_none();
            *lost = lost.take().or(text);
            Ok(is_new)
        };
        match event {
            Event::Object(Ok(event)) => Ok(self.objects.apply(event, |object| {
                (object.metadata.name.clone().unwrap_or_default(), object)
            })),
            Event::Pod(Ok(event)) => Ok(self.pods.apply(event, |pod| {
                let view = PodView::from_watched(pod, now);
                (view.name.clone(), Arc::new(view))
            })),
            Event::Node(Ok(event)) => {
                let is_new = self.nodes.apply(event, |node| {
                    let view = NodeView::from_watched(node, now);
                    (view.name.clone(), Arc::new(view))
                });
                self.regroup |= is_new;
                Ok(is_new)
            }
            Event::Revision(Ok(event)) => Ok(self.revisions.apply(event, |revision| {
                let name = revision.metadata.name.clone().unwrap_or_default();
                let text = serde_json::to_string(&revision).unwrap_or_default();
                let view = RevisionView::from_json(&text).unwrap_or_default();
                (name, Arc::new(view))
            })),
            Event::Object(Err(error)) | Event::Pod(Err(error)) => passing(error),
            Event::Node(Err(error)) => without(passing(error), &mut self.nodes.is_forbidden),
            Event::Revision(Err(error)) => {
                without(passing(error), &mut self.revisions.is_forbidden)
            }
        }
    }

    /// The watches begin again. What was missed is in their lists.
    fn begin(&mut self) {
        self.objects.is_complete = false;
        self.pods.is_complete = false;
        self.nodes.is_complete = false;
        self.revisions.is_complete = false;
        self.is_broken = false;
    }

    /// Notes whether everything has been listed since the watches began: then it is known, and the connection is there.
    /// Returns whether that is new.
    fn settle(&mut self) -> bool {
        let has_all = self.objects.is_complete
            && self.pods.is_complete
            && self.nodes.is_settled()
            && self.revisions.is_settled();
        self.is_known |= has_all;
        has_all && !self.is_broken && self.lost.take().is_some()
    }

    /// What the user may not list.
    fn missing(&self) -> Vec<&'static str> {
        let kinds = [
            ("nodes", self.nodes.is_forbidden),
            ("controllerrevisions", self.revisions.is_forbidden),
        ];
        let missing = kinds.into_iter().filter(|(_, is_missing)| *is_missing);
        missing.map(|(kind, _)| kind).collect()
    }

    /// The object; an error when it is gone.
    fn object(&mut self) -> Result<Object, Failure> {
        let raw = self.objects.live.values().next().cloned();
        let object = raw.map(Object::decode).transpose()?;
        let first = &mut self.uid;
        let object = object.filter(|object| first.is_empty() || *first == object.uid);
        let object = object.ok_or_else(cluster::deleted)?;
        first.clone_from(&object.uid);
        Ok(object)
    }

    fn cells(&mut self, object: &Object, label: Option<&str>, now: DateTime<Utc>) -> Vec<NodeCell> {
        let nodes = (!self.nodes.is_forbidden).then(|| self.nodes.all());
        if std::mem::take(&mut self.regroup) {
            self.group = group_label(nodes.as_deref().unwrap_or_default());
        }
        let label = label.or_else(|| object.topology_key()).or(self.group);
        let seen = object.seen(nodes, self.pods.all(), self.revisions.all());
        cells(&seen, label, now)
    }
}

/// The result of a watch that there may be no right to: that is noted, and new once.
fn without(result: Result<bool, Failure>, is_missing: &mut bool) -> Result<bool, Failure> {
    match result {
        Err(failure) if cluster::is_forbidden(&failure) => Ok(!std::mem::replace(is_missing, true)),
        result => result,
    }
}

fn events(connection: &Connection, name: &str) -> impl Stream<Item = Event> + use<> {
    fn watch<K>(
        api: Api<K>,
        config: watcher::Config,
        event: fn(watcher::Result<watcher::Event<K>>) -> Event,
    ) -> BoxStream<'static, Event>
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let events = watcher(api, config).default_backoff();
        events.map(event).boxed()
    }
    let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let labelled = watcher::Config::default().labels(&cluster::selector(name));
    let nodes = Api::all(connection.client.clone());
    stream::select_all([
        watch(cluster::api(connection), named, Event::Object),
        watch(connection.api(), labelled.clone(), Event::Pod),
        watch(nodes, watcher::Config::default(), Event::Node),
        watch(connection.api(), labelled, Event::Revision),
    ])
}

/// Where frames go.
enum Output {
    Screen(Screen<io::Stdout>),
    /// A line for each change.
    Lines(String),
}

/// What is shown of single pods, and when it was read.
#[derive(Default)]
struct LastLines {
    pods: Vec<NodeCell>,
    /// The pods that it was read for, as they were.
    of: Vec<Noted>,
    read: Option<Instant>,
    /// Whether it is being read.
    is_under_way: bool,
}

impl LastLines {
    /// Whether to read them (again): when the pods change, at most as often as a frame is due by time alone.
    fn is_due(&self, of: &[Noted]) -> bool {
        let is_other = self.of != of;
        let rest = if is_other { REFRESH } else { LAST_LINES };
        let has_rested = self.read.is_none_or(|read| read.elapsed() >= rest);
        !self.is_under_way && has_rested && (is_other || !of.is_empty())
    }
}

/// Losses of the connection.
#[derive(Default)]
struct Losses {
    /// How many follow each other.
    count: u32,
    last: Option<Instant>,
}

impl Losses {
    /// The pause before the watches begin again: none at first, then twice as long each time. Otherwise a list that fails
    /// while other requests succeed would be asked for in each frame.
    fn pause(&mut self, now: Instant) -> Duration {
        let last = self.last.replace(now);
        let follows = last.is_some_and(|last| now.duration_since(last) < LAST_LINES);
        self.count = if follows { self.count + 1 } else { 0 };
        let earlier = self.count.checked_sub(1);
        earlier.map_or(Duration::ZERO, |earlier| PAUSES.after(earlier))
    }
}

/// Shows the object until the user interrupts it.
pub(super) async fn run(
    connection: &Connection,
    name: &str,
    label: Option<&str>,
) -> Result<u8, Failure> {
    // Says in kubectl's words that there is no such object, or no right to see it.
    cluster::get(connection, name).await?;
    let mut output = if size().is_some() && obeys_sequences(&io::stdout()) {
        Output::Screen(Screen::enter(io::stdout())?)
    } else {
        Output::Lines(String::new())
    };
    let ended = watch(connection, name, label, &mut output).await;
    if let Output::Screen(screen) = output {
        screen.leave()?;
    }
    ended
}

async fn watch(
    connection: &Connection,
    name: &str,
    label: Option<&str>,
    output: &mut Output,
) -> Result<u8, Failure> {
    let mut events = events(connection, name).boxed();
    let mut frames = time::interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (mut state, mut last_lines) = (State::default(), LastLines::default());
    let mut losses = Losses::default();
    let (read, mut was_read) = mpsc::channel::<Vec<NodeCell>>(1);
    let mut returned: BoxFuture<'_, ()> = pending().boxed();
    let (mut is_stale, mut drawn) = (true, Instant::now());
    loop {
        tokio::select! {
            () = &mut returned => {
                // The old watches would wait for up to half a minute.
                events = self::events(connection, name).boxed();
                state.begin();
                returned = pending().boxed();
            }
            Some(pods) = was_read.recv() => {
                (last_lines.pods, last_lines.is_under_way) = (pods, false);
                is_stale = true;
            }
            _ = interrupt.recv() => return Ok(INTERRUPTED),
            _ = terminate.recv() => return Ok(INTERRUPTED),
            _ = frames.tick() => {
                let was_broken = state.is_broken;
                is_stale |= read_burst(&mut events, &mut state, connection).await?;
                is_stale |= state.settle();
                if state.is_broken && !was_broken {
                    let pause = losses.pause(Instant::now());
                    returned = connected(connection, name, pause).boxed();
                }
                let is_resized = match output {
                    Output::Screen(screen) => size() != Some(screen.size()),
                    Output::Lines(_) => false,
                };
                let is_due = is_stale || is_resized || drawn.elapsed() >= REFRESH;
                if !is_due || !(state.is_known || state.lost.is_some()) {
                    continue;
                }
                (is_stale, drawn) = (false, Instant::now());
                let lost = state.lost.clone();
                let lost = lost.as_deref();
                if !state.is_known {
                    let lost = lost.unwrap_or_default();
                    draw(output, label.is_some(), |page| layout::lost(lost, page), || lost_line(lost))?;
                    continue;
                }
                let object = state.object()?;
                let cells = state.cells(&object, label, Utc::now());
                let lines = |page| frame(&object, lost, &cells, &last_lines.pods, &state.missing(), page);
                let line = || lost.map_or_else(|| layout::summary(&object, &cells), lost_line);
                draw(output, label.is_some(), lines, line)?;
                // However many nodes there are, frames take a small part of a core.
                frames.reset_after((drawn.elapsed() * REST).clamp(FRAME, REFRESH));
                // They are read again when these change.
                let of: Vec<Noted> = first_noted(&cells).map(|(_, it)| it.clone()).collect();
                if matches!(output, Output::Screen(_)) && last_lines.is_due(&of) {
                    last_lines.of = of;
                    last_lines.read = Some(Instant::now());
                    last_lines.is_under_way = true;
                    let (connection, read) = (connection.clone(), read.clone());
                    tokio::spawn(async move {
                        // The view may be at its end.
                        let _ = read.send(look_at(&connection, &cells).await).await;
                    });
                }
            }
        }
    }
}

/// Takes up what has come since the last frame; returns whether anything changed. In between, events wait in the
/// connection: to wake up for each of hundreds a second would cost more.
async fn read_burst(
    events: &mut (impl Stream<Item = Event> + Unpin),
    state: &mut State,
    connection: &Connection,
) -> Result<bool, Failure> {
    let begin = time::Instant::now();
    let mut is_stale = false;
    loop {
        // The first lists are worth waiting for.
        let burst = if state.is_known { BURST } else { FRAME };
        let end = (begin + burst).max(time::Instant::now() + GAP);
        let end = end.min(begin + MAX_BURST);
        match time::timeout_at(end, events.next()).await {
            Ok(Some(event)) => is_stale |= state.apply(event, connection)?,
            Ok(None) | Err(_) => return Ok(is_stale),
        }
    }
}

/// Returns when the server answers after a pause, whatever it says: the watches find out what that means.
async fn connected(connection: &Connection, name: &str, pause: Duration) {
    time::sleep(pause).await;
    let mut failures = 0;
    while let Err(failure) = cluster::get(connection, name).await
        && failure.is_passing()
    {
        time::sleep(PAUSES.after(failures)).await;
        failures += 1;
    }
}

/// The same as a frame in one line, for output that is not a terminal.
fn lost_line(lost: &str) -> Line {
    Line::new(&format!("{lost}; trying again"))
}

/// Shows a frame or, where there is no terminal, a line.
fn draw(
    output: &mut Output,
    grouped: bool,
    lines: impl FnOnce(Page) -> Vec<Line>,
    line: impl FnOnce() -> Line,
) -> Result<(), Failure> {
    match output {
        Output::Screen(screen) => {
            let Some((width, height)) = size() else {
                return Ok(());
            };
            let page = Page::new(Some((width, height)), is_utf8(), grouped);
            let (lines, colour) = (lines(page), Colour::detect(&io::stdout()));
            let lines = lines.iter().map(|line| line.render(Some(width), colour));
            screen.show(lines.collect(), (width, height))?;
        }
        Output::Lines(before) => {
            let line = line().render(None, Colour::OFF);
            if line != *before {
                let mut out = io::stdout();
                writeln!(out, "{} {line}", Utc::now().format("%H:%M:%SZ"))?;
                out.flush()?;
                *before = line;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use kube::core::Status;

    use super::*;

    fn names(watched: &Watched<u32>) -> Vec<(&str, u32)> {
        let live = watched.live.iter();
        live.map(|(name, value)| (name.as_str(), *value)).collect()
    }

    #[test]
    fn a_list_replaces_what_was_known_only_when_it_is_complete() {
        let mut watched = Watched::<u32>::default();
        let apply = |watched: &mut Watched<u32>, event: watcher::Event<(&str, u32)>| {
            watched.apply(event, |(name, value)| (name.to_owned(), value))
        };
        apply(&mut watched, watcher::Event::Init);
        assert!(!apply(&mut watched, watcher::Event::InitApply(("a", 1))));
        apply(&mut watched, watcher::Event::InitApply(("b", 1)));
        assert!(names(&watched).is_empty() && !watched.is_complete);
        assert!(apply(&mut watched, watcher::Event::InitDone) && watched.is_complete);
        assert_eq!(names(&watched), [("a", 1), ("b", 1)]);
        apply(&mut watched, watcher::Event::Init);
        apply(&mut watched, watcher::Event::InitApply(("b", 2)));
        assert_eq!(names(&watched), [("a", 1), ("b", 1)]);
        apply(&mut watched, watcher::Event::InitDone);
        assert!(apply(&mut watched, watcher::Event::Apply(("c", 3))));
        assert!(!apply(&mut watched, watcher::Event::Apply(("c", 3))));
        apply(&mut watched, watcher::Event::Delete(("b", 2)));
        assert_eq!(names(&watched), [("c", 3)]);
    }

    #[test]
    fn a_watch_without_a_right_ends_nothing_and_is_new_once() {
        let answer = |code| {
            let status = Status {
                code,
                ..Status::default()
            };
            Err(Failure::Server(Box::new(status)))
        };
        let mut is_missing = false;
        assert!(without(answer(401), &mut is_missing).is_err() && !is_missing);
        assert!(matches!(without(answer(403), &mut is_missing), Ok(true)));
        assert!(matches!(without(answer(403), &mut is_missing), Ok(false)));
        assert!(matches!(without(Ok(true), &mut is_missing), Ok(true)) && is_missing);
    }

    #[test]
    fn the_last_lines_are_read_when_the_pods_change() {
        let noted = |reason: &str| Noted {
            pod: "p".to_owned(),
            reason: reason.to_owned(),
            lines: Vec::new(),
        };
        let of = [noted("Error, 1 restarts")];
        let mut last = LastLines::default();
        assert!(last.is_due(&of));
        assert!(!last.is_due(&[]));
        last.of = of.to_vec();
        last.read = Some(Instant::now());
        let others = [noted("Error, 2 restarts")];
        assert!(!last.is_due(&of) && !last.is_due(&others), "without a rest");
        last.read = Instant::now().checked_sub(REFRESH);
        assert!(last.is_due(&others) && last.is_due(&[]) && !last.is_due(&of));
        last.is_under_way = true;
        assert!(!last.is_due(&others), "while it is read");
    }

    #[test]
    fn the_pauses_between_losses_that_follow_each_other_double() {
        let (begin, mut losses) = (Instant::now(), Losses::default());
        let mut pause = |seconds| {
            losses
                .pause(begin + Duration::from_secs(seconds))
                .as_millis()
        };
        let pauses = [0, 1, 2, 3, 4, 5, 6].map(&mut pause);
        assert_eq!(pauses, [0, 250, 500, 1_000, 2_000, 4_000, 4_000]);
        assert_eq!(pause(16), 0);
    }

    /// A connection over which no request is sent.
    fn connection() -> Connection {
        let service = tower::service_fn(|_: Request<Body>| async {
            Err::<Response<Body>, _>(io::Error::other("no server"))
        });
        Connection {
            client: Client::new(service, "shop"),
            namespace: "shop".to_owned(),
            server: "server:6443".to_owned(),
        }
    }

    fn answered(code: u16) -> watcher::Error {
        watcher::Error::WatchError(Box::new(Status {
            code,
            ..Status::default()
        }))
    }

    #[tokio::test]
    async fn what_may_be_listed_again_is_missing_no_more() {
        let (connection, mut state) = (connection(), State::default());
        let mut apply = |event| state.apply(event, &connection).is_ok_and(|is_new| is_new);
        assert!(apply(Event::Node(Err(answered(403)))));
        assert!(apply(Event::Revision(Err(answered(403)))));
        assert!(apply(Event::Node(Ok(watcher::Event::InitDone))));
        assert_eq!(state.missing(), ["controllerrevisions"]);
        let listed = Event::Revision(Ok(watcher::Event::InitDone));
        assert!(state.apply(listed, &connection).is_ok());
        assert!(state.missing().is_empty());
    }

    #[tokio::test]
    async fn a_connection_is_lost_until_everything_is_listed_again() {
        let (connection, mut state) = (connection(), State::default());
        let failed = || Event::Revision(Err(answered(500)));
        assert!(matches!(state.apply(failed(), &connection), Ok(true)));
        assert!(!state.settle() && !state.is_known && state.is_broken);
        state.begin();
        assert!(!state.is_broken && !state.settle() && state.lost.is_some());
        // It is a new loss for the next pause, and nothing new to show.
        assert!(matches!(state.apply(failed(), &connection), Ok(false)));
        assert!(state.is_broken);
        state.begin();
        for event in [
            Event::Object(Ok(watcher::Event::InitDone)),
            Event::Pod(Ok(watcher::Event::InitDone)),
            Event::Node(Ok(watcher::Event::InitDone)),
            Event::Revision(Ok(watcher::Event::InitDone)),
        ] {
            assert!(state.apply(event, &connection).is_ok());
        }
        assert!(state.settle() && state.is_known && state.lost.is_none());
    }
}
