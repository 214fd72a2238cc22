//! The server: what its handles share, and what tests do with it.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch as channel;
use tokio::time::Instant;

use crate::admission::Review;
use crate::clock::{Clock, second};
use crate::fault::{Decision, Plan};
use crate::history::{History, Version};
use crate::resource::Resource;
use crate::site::Site;
use crate::state::State;
use crate::status::Status;
use crate::store::Moment;

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The initial time of the wall clock.
    pub start: DateTime<Utc>,
    /// How long a change takes to reach a watch.
    pub watch_delay: Duration,
    /// How long every request takes before it is carried out.
    pub latency: Duration,
    /// How often watches that ask for bookmarks get one; None: never.
    pub bookmarks: Option<Duration>,
    /// Namespaces that exist from the start, in addition to those of every cluster.
    pub namespaces: Vec<String>,
    /// How long after a change the garbage collector and the namespace controller act; None: never.
    pub collector: Option<Duration>,
}

impl Default for Options {
    /// The clock shows [`second(0)`](second). Watches deliver after a millisecond, with a bookmark each minute, and
    /// controllers act after a second.
    fn default() -> Self {
        Self {
            start: second(0),
            watch_delay: Duration::from_millis(1),
            latency: Duration::ZERO,
            bookmarks: Some(Duration::from_secs(60)),
            namespaces: Vec::new(),
            collector: Some(Duration::from_secs(1)),
        }
    }
}

/// An in-memory API server. Cheap to clone; clones are the same server.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    plan: Mutex<Arc<dyn Plan>>,
    clock: Clock,
    options: Options,
    /// How long the log is.
    changes: channel::Sender<usize>,
}

impl Server {
    /// A server with those kinds, and nothing in it.
    pub(crate) fn with_kinds(options: Options, kinds: Vec<Resource>) -> Self {
        let kinds = kinds.into_iter().map(Arc::new).collect();
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State::new(kinds)),
                plan: Mutex::new(Arc::new(|_: &Site| Decision::Forward)),
                clock: Clock::starting_at(options.start),
                options,
                changes: channel::Sender::new(0),
            }),
        }
    }

    pub(crate) fn plan(&self) -> Arc<dyn Plan> {
        self.shared.plan.lock().clone()
    }

    /// The server's wall clock.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The options of the server.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Registers a kind, as a CustomResourceDefinition does. It replaces one of the same group, version and plural.
    pub fn register(&self, resource: Resource) {
        let mut state = self.state();
        let known = state.resources.iter_mut().find(|known| {
            known.group == resource.group
                && known.version == resource.version
                && known.plural == resource.plural
        });
        match known {
            Some(known) => *known = Arc::new(resource),
            None => state.resources.push(Arc::new(resource)),
        }
    }

    /// Has this plan decide about every request from now on, in place of the one before. At first all are forwarded.
    pub fn on(&self, plan: impl Plan + 'static) {
        *self.shared.plan.lock() = Arc::new(plan);
    }

    /// Reviews every write from now on, as the policies and webhooks of a cluster do: after faults and preconditions,
    /// before validation. A write is rejected with the Status that `review` returns.
    pub fn admit(
        &self,
        review: impl Fn(&mut Review<'_>) -> Result<(), Status> + Send + Sync + 'static,
    ) {
        self.state().admission = Some(Arc::new(review));
    }

    /// The history until now.
    pub fn history(&self) -> History {
        let state = self.state();
        let versions = state.store.log.iter();
        History {
            requests: state.requests.clone(),
            versions: versions
                .map(|change| Version::new(change, &state.resources[change.key.resource]))
                .collect(),
            deliveries: state.deliveries.clone(),
        }
    }

    /// The resourceVersion of the latest change.
    pub fn version(&self) -> u64 {
        self.state().store.version()
    }

    /// Compacts everything below a resourceVersion: lists and watches from before it are answered with 410.
    pub fn compact(&self, floor: u64) {
        self.state().store.floor = floor;
    }

    /// Waits until more than `seen` changes were stored, and returns how many there are now.
    pub async fn changed(&self, seen: usize) -> usize {
        let mut changes = self.shared.changes.subscribe();
        // The sender lives as long as the server: this cannot fail.
        let length = changes.wait_for(|length| *length > seen).await;
        length.map_or(seen, |length| *length)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    pub(crate) fn moment(&self, user: &str) -> Moment {
        Moment {
            at: Instant::now(),
            elapsed: self.clock().elapsed(),
            time: self.clock().now(),
            by: user.into(),
        }
    }

    /// Changes the state, then wakes the affected watches.
    pub(crate) fn act<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let done = act(&mut state);
        let length = state.store.log.len();
        if length > state.announced {
            state.watches.wake(&state.store.log[state.announced..]);
            state.announced = length;
            self.shared.changes.send_replace(length);
        }
        done
    }
}
