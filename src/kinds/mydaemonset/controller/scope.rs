//! One object, and what a pass over it works with.

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;

use crate::kinds::mydaemonset::caches::Caches;
use crate::kinds::mydaemonset::crd::{MyDaemonSet, MyDaemonSetStatus};
use crate::kinds::mydaemonset::memory::Memory;
use crate::kinds::mydaemonset::metrics::Metrics;
use crate::kinds::mydaemonset::object::ObjectView;
use my_operator_runtime::reconcile::event::{self, NewEvent};
use my_operator_runtime::reconcile::write_cache::WriteCache;
use my_operator_runtime::reconcile::{Context, Key};

/// A status, and the version of the object that has it.
pub(super) struct WrittenStatus {
    pub(super) status: MyDaemonSetStatus,
    pub(super) version: String,
}

impl WrittenStatus {
    pub(super) fn version(&self) -> &str {
        &self.version
    }
}

#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) context: &'a Context,
    pub(super) node_not_ready_grace: TimeDelta,
    pub(super) caches: &'a Caches,
    /// The last written statuses.
    pub(super) statuses: &'a WriteCache<WrittenStatus>,
    pub(super) metrics: &'a Metrics,
    pub(super) key: &'a Key,
    pub(super) object: &'a ObjectView,
    pub(super) memory: &'a Mutex<Memory>,
    /// When the pass began.
    pub(super) now: DateTime<Utc>,
}

impl Scope<'_> {
    /// Publishes an Event about the object.
    pub(super) fn publish(&self, event: NewEvent) {
        let about = event::about::<MyDaemonSet>(self.key, &self.object.uid);
        self.context.events.publish(about, event);
    }
}
