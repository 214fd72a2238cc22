//! Watches: their events, and the time of each.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::call::Call;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::Status;
use crate::store::{Change, ChangeKind, Form, Store, Stored, complete};
use crate::write::put_or_remove;

/// The default timeout of a watch.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A selection of lists and watches: by user, resource and namespace. An unset criterion matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    user: Option<String>,
    resource: Option<String>,
    namespace: Option<String>,
}

impl Target {
    /// All lists and watches.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those of that plural.
    pub fn resource(plural: &str) -> Self {
        Self::default().and_resource(plural)
    }

    /// Only those of that plural.
    #[must_use]
    pub fn and_resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }

    /// Only those of that user.
    #[must_use]
    pub fn of_user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Only those within that namespace, so not the cluster-wide ones.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    pub(crate) fn matches(&self, user: &str, resource: &str, namespace: &str) -> bool {
        let fits =
            |wanted: &Option<String>, given: &str| wanted.as_ref().is_none_or(|w| w == given);
        fits(&self.user, user) && fits(&self.resource, resource) && fits(&self.namespace, namespace)
    }
}

/// The faults that a test has set for a target, until it clears them.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Held,
    Delayed(Duration),
    Refused(Status),
    Stale(u64),
}

/// How a watch ends early.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// The response ends.
    Closed,
    /// The connection breaks.
    Reset,
    /// A Status of 410 is the last event.
    Gone,
}

/// One open watch.
pub(crate) struct Open {
    pub(crate) user: String,
    pub(crate) resource: Arc<Resource>,
    index: usize,
    namespace: String,
    selector: Selector,
    form: Form,
    /// Events that come before those of the log.
    initial: VecDeque<Bytes>,
    /// The index in the log of the next change to process.
    cursor: usize,
    /// The latest resourceVersion that was delivered.
    pub(crate) version: u64,
    deadline: Instant,
    bookmark: Option<(Instant, Duration)>,
    pub(crate) ending: Option<Ending>,
    silent: bool,
    pub(crate) wake: Arc<Notify>,
}

/// Every open watch, and the faults that the test has set.
#[derive(Default)]
pub(crate) struct Watches {
    next: u64,
    pub(crate) open: BTreeMap<u64, Open>,
    pub(crate) rules: Vec<(Target, Rule)>,
}

/// What a watch does next.
pub(crate) enum Step {
    Deliver(Bytes),
    Wait(Option<Instant>),
    Break,
    End,
}

impl Watches {
    fn rules_for<'a>(
        &'a self,
        user: &'a str,
        resource: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Rule> {
        self.rules
            .iter()
            .filter(move |(target, _)| target.matches(user, resource, namespace))
            .map(|(_, rule)| rule)
    }

    /// The failure that lists and watches of that target get, if any.
    pub(crate) fn refusal(&self, user: &str, call: &Call) -> Option<Status> {
        let rules = self.rules_for(user, &call.resource.plural, &call.namespace);
        let mut refusals = rules.filter_map(|rule| match rule {
            Rule::Refused(status) => Some(status.clone()),
            _ => None,
        });
        refusals.next()
    }

    /// The resourceVersion at which lists of that target are answered, if it is an old one.
    pub(crate) fn stale(&self, user: &str, call: &Call) -> Option<u64> {
        let rules = self.rules_for(user, &call.resource.plural, &call.namespace);
        let mut stale = rules.filter_map(|rule| match rule {
            Rule::Stale(version) => Some(*version),
            _ => None,
        });
        stale.next()
    }

    /// Opens a watch.
    pub(crate) fn open(
        &mut self,
        store: &Store,
        user: &str,
        call: &Call,
        bookmarks: Option<Duration>,
    ) -> Result<u64, Status> {
        let mut selector = call.query.selector()?;
        if !call.name.is_empty() {
            selector = selector.and_name(&call.name);
        }
        let given = call.query.get("resourceVersion").unwrap_or("0");
        let invalid = || {
            let message = format!(
                "resourceVersion: Invalid value: \"{given}\": strconv.ParseUint: parsing \"{given}\": invalid syntax"
            );
            Status::new(500, "", message)
        };
        let from: u64 = given.parse().map_err(|_| invalid())?;
        let streams_list = call.query.is_true("sendInitialEvents");
        let now = Instant::now();
        let timeout = call.query.number("timeoutSeconds").map(Duration::from_secs);
        let period = bookmarks.filter(|_| call.query.is_true("allowWatchBookmarks"));
        let mut open = Open {
            user: user.to_owned(),
            resource: call.resource.clone(),
            index: call.index,
            namespace: call.namespace.clone(),
            selector,
            form: call.form,
            initial: VecDeque::new(),
            cursor: store.log.len(),
            version: store.version(),
            deadline: now + timeout.unwrap_or(DEFAULT_TIMEOUT),
            bookmark: period.map(|period| (now + period, period)),
            ending: None,
            silent: false,
            wake: Arc::new(Notify::new()),
        };
        open.start(store, from, streams_list);
        self.next += 1;
        self.open.insert(self.next, open);
        Ok(self.next)
    }

    /// Wakes the watches of kinds that changed.
    pub(crate) fn wake(&self, changes: &[Change]) {
        for open in self.open.values() {
            if changes
                .iter()
                .any(|change| change.key.resource == open.index)
            {
                open.wake.notify_one();
            }
        }
    }

    /// Wakes all watches, since the rules changed.
    pub(crate) fn wake_all(&self) {
        self.open.values().for_each(|open| open.wake.notify_one());
    }

    /// Ends the open watches of a target.
    pub(crate) fn end(&mut self, target: &Target, ending: Ending) {
        for open in self.matching(target) {
            open.ending = Some(ending);
            open.wake.notify_one();
        }
    }

    /// Makes the open watches of a target deliver nothing more, not even an end.
    pub(crate) fn silence(&mut self, target: &Target) {
        for open in self.matching(target) {
            open.silent = true;
            open.wake.notify_one();
        }
    }

    fn matching(&mut self, target: &Target) -> impl Iterator<Item = &mut Open> {
        let open = self.open.values_mut();
        open.filter(|open| target.matches(&open.user, &open.resource.plural, &open.namespace))
    }

    /// How many watches of a target are open.
    pub(crate) fn count(&self, target: &Target) -> usize {
        let open = self.open.values();
        open.filter(|open| target.matches(&open.user, &open.resource.plural, &open.namespace))
            .count()
    }

    pub(crate) fn close(&mut self, id: u64) {
        self.open.remove(&id);
    }

    pub(crate) fn step(&mut self, id: u64, store: &Store, usual_delay: Duration) -> Step {
        let now = Instant::now();
        let Some(open) = self.open.get(&id) else {
            return Step::End;
        };
        let (mut held, mut delay) = (false, usual_delay);
        for rule in self.rules_for(&open.user, &open.resource.plural, &open.namespace) {
            match rule {
                Rule::Held => held = true,
                Rule::Delayed(longer) => delay = *longer,
                Rule::Refused(_) | Rule::Stale(_) => {}
            }
        }
        match self.open.get_mut(&id) {
            Some(open) => open.step(store, now, held, delay),
            None => Step::End,
        }
    }
}

impl Open {
    /// Prepares the first events: those of a list, or what has happened since that resourceVersion.
    fn start(&mut self, store: &Store, from: u64, streams_list: bool) {
        if streams_list || from == 0 {
            for (_, object) in store.list(self.index, &self.namespace) {
                if self.selector.matches(&object.value) {
                    self.initial.push_back(self.event("ADDED", object));
                }
            }
            if streams_list {
                let annotations = json!({"k8s.io/initial-events-end": "true"});
                let bookmark = self.bookmark_event(store.version(), annotations);
                self.initial.push_back(bookmark);
            }
        } else if from < store.floor {
            self.ending = Some(Ending::Gone);
        } else {
            let log = &store.log;
            self.cursor = log.partition_point(|change| change.object.version <= from);
            self.version = from;
        }
    }

    pub(crate) fn step(
        &mut self,
        store: &Store,
        now: Instant,
        held: bool,
        delay: Duration,
    ) -> Step {
        if self.silent {
            return Step::Wait(None);
        }
        match self.ending {
            Some(Ending::Closed) => return Step::End,
            Some(Ending::Reset) => return Step::Break,
            Some(Ending::Gone) => {
                self.ending = Some(Ending::Closed);
                let message = format!(
                    "too old resource version: {} ({})",
                    self.version, store.floor
                );
                let status = Status::expired(message).to_value();
                return Step::Deliver(line("ERROR", status.to_string().as_bytes()));
            }
            None => {}
        }
        if now >= self.deadline {
            return Step::End;
        }
        if held {
            return Step::Wait(Some(self.deadline));
        }
        if let Some(event) = self.initial.pop_front() {
            return Step::Deliver(event);
        }
        while let Some(change) = store.log.get(self.cursor) {
            let relevant = change.key.resource == self.index
                && (self.namespace.is_empty() || *self.namespace == *change.key.namespace);
            if relevant && change.at + delay > now {
                return Step::Wait(Some(self.deadline.min(change.at + delay)));
            }
            self.cursor += 1;
            self.version = self.version.max(change.object.version);
            if let (true, Some(event)) = (relevant, self.change_event(change)) {
                return Step::Deliver(event);
            }
        }
        let Some((due, period)) = self.bookmark else {
            return Step::Wait(Some(self.deadline));
        };
        if now < due {
            return Step::Wait(Some(self.deadline.min(due)));
        }
        self.bookmark = Some((now + period, period));
        Step::Deliver(self.bookmark_event(self.version, Value::Null))
    }

    /// The event of a change, if it concerns the selected objects.
    fn change_event(&self, change: &Change) -> Option<Bytes> {
        let matches = |stored: &Arc<Stored>| self.selector.matches(&stored.value);
        let before = change.previous.as_ref().is_some_and(matches);
        let after = change.kind != ChangeKind::Deleted && matches(&change.object);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(self.event("ADDED", &change.object)),
            (true, true) => Some(self.event("MODIFIED", &change.object)),
            (true, false) => {
                // The last state that was selected, with the resourceVersion of the change.
                let mut last = change.previous.as_ref()?.value.clone();
                last["metadata"]["resourceVersion"] = json!(change.object.version.to_string());
                Some(self.event("DELETED", &Stored::new(last, change.object.version)))
            }
        }
    }

    fn event(&self, kind: &str, object: &Stored) -> Bytes {
        let mut text = Vec::new();
        complete(&self.resource, self.form, object, &mut text);
        line(kind, &text)
    }

    fn bookmark_event(&self, version: u64, annotations: Value) -> Bytes {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        put_or_remove(&mut metadata, "annotations", annotations);
        let value = json!({"metadata": metadata});
        self.event("BOOKMARK", &Stored::new(value, version))
    }
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(object.len() + 40);
    text.extend_from_slice(b"{\"type\":\"");
    text.extend_from_slice(kind.as_bytes());
    text.extend_from_slice(b"\",\"object\":");
    text.extend_from_slice(object);
    text.extend_from_slice(b"}\n");
    text.into()
}
