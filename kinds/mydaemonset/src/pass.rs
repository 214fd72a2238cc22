//! What every step of one reconcile pass works with.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::caches::{Caches, OfNamespace};
use super::crd::{MyDaemonSet, MyDaemonSetStatus};
use super::decide::decision::{Decision, Delete};
use super::decide::freeze::{self, Freeze};
use super::decide::placement::Eligibility;
use super::decide::window::Gate;
use super::memory::Memory;
use super::metrics::Metrics;
use super::names::Owner;
use super::object::{ObjectView, ParsedSpec};
use super::observe::pod::PodView;
use super::revision::RevisionView;
use super::status;
use wall_clock_controller::reconcile::event::{self, NewEvent};
use wall_clock_controller::reconcile::write_cache::WriteCache;
use wall_clock_controller::reconcile::{Context, Key};

/// A step of a roll-out is made on a decision of this age at most: other nodes may be unavailable by now.
const MAX_AGE: Duration = Duration::from_secs(5);

/// A status, and the version of the object that has it.
pub(crate) struct WrittenStatus {
    pub(crate) status: MyDaemonSetStatus,
    pub(crate) version: String,
}

impl WrittenStatus {
    pub(crate) fn version(&self) -> &str {
        &self.version
    }
}

/// One object, and what a pass over it works with.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) context: &'a Context,
    pub(crate) node_not_ready_grace: TimeDelta,
    pub(crate) caches: &'a Caches,
    /// The last written statuses.
    pub(crate) statuses: &'a WriteCache<WrittenStatus>,
    pub(crate) metrics: &'a Metrics,
    pub(crate) key: &'a Key,
    pub(crate) object: &'a ObjectView,
    /// Whether its namespace is frozen.
    pub(crate) of_namespace: &'a OfNamespace,
    pub(crate) memory: &'a Mutex<Memory>,
    /// When the pass began.
    pub(crate) now: DateTime<Utc>,
}

impl Scope<'_> {
    /// The revisions of the object as the watch shows them, and those that were stored and that it may not show yet.
    pub(crate) fn revisions(&self) -> Vec<Arc<RevisionView>> {
        let mut revisions = self.caches.revisions_of(&self.object.uid);
        self.memory.lock().stored.overlay(&mut revisions, self.now);
        revisions
    }

    /// Publishes an Event about the object.
    pub(crate) fn publish(&self, event: NewEvent) {
        let about = event::about::<MyDaemonSet>(self.key, &self.object.uid);
        self.context.events.publish(about, event);
    }
}

/// One pass over one object with a valid spec.
pub(crate) struct Pass<'a> {
    pub(crate) scope: Scope<'a>,
    pub(crate) spec: &'a ParsedSpec,
    /// When it was decided what to do; before that, when the pass began.
    pub(crate) now: DateTime<Utc>,
    /// The same by a clock that is never set.
    pub(crate) decided_at: Instant,
    /// Whether steps might begin then.
    pub(crate) gate: Gate,
}

impl<'a> Deref for Pass<'a> {
    type Target = Scope<'a>;

    fn deref(&self) -> &Self::Target {
        &self.scope
    }
}

impl<'a> Pass<'a> {
    /// What is remembered of the object. Must not be held across a call: the watches write it too.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// It is decided now what to do.
    pub(crate) fn decides(&mut self) {
        self.now = self.clock();
        self.decided_at = Instant::now();
    }

    /// The time of a call, which may be long after the pass began.
    pub(crate) fn clock(&self) -> DateTime<Utc> {
        (self.context.clock)()
    }

    /// Whether the object asks for something else by now. Its event has queued the next pass.
    pub(crate) fn is_outdated(&self) -> bool {
        let current = self.caches.objects.get(self.key);
        current.is_none_or(|current| !current.asks_for_the_same_as(self.object))
            || self.caches.of_namespace(&self.key.namespace) != *self.of_namespace
    }

    /// What a user has frozen, of the object or of its namespace. While that is not known of the namespace, no step is
    /// made; missing pods are made unless they may not.
    pub(crate) fn frozen(&self) -> Option<Freeze> {
        let perhaps = (*self.of_namespace == OfNamespace::Unknown).then_some(Freeze::Deletions);
        let of_namespace = self.namespace_freeze();
        let known = freeze::of_both(self.object.freeze.as_deref(), of_namespace.as_deref());
        known.max(perhaps)
    }

    /// The value of the annotation that freezes the namespace. While that is not known, what the status says holds.
    pub(crate) fn namespace_freeze(&self) -> Option<String> {
        match self.of_namespace {
            OfNamespace::Known(value) => value.as_deref().map(str::to_owned),
            OfNamespace::Unknown => status::read(&self.object.status).namespace_freeze,
        }
    }

    /// Whether it was decided too long ago what the roll-out may do, or a window has closed since.
    pub(crate) fn is_late(&self) -> bool {
        let now = self.clock();
        // One of the clocks stands still while the machine is suspended, and the other may be set.
        let by_clock = (now - self.now).to_std().unwrap_or_default();
        by_clock.max(self.decided_at.elapsed()) > MAX_AGE || self.gate.is_over(now)
    }

    /// Whether no step of the roll-out may be repeated that had no definite answer: it stopped, or no window is open.
    pub(crate) fn stands(&self, decision: &Decision) -> bool {
        decision.observed.auto_paused || self.gate.is_closed
    }

    /// Whether a call that was decided on may be made. The pass may have begun many calls ago.
    ///
    /// Steps of a roll-out use up its limits. Once this replica stops, they are left to the next leader, which waits for
    /// those that were sent.
    pub(crate) fn may_go_on(&self, is_step: bool) -> bool {
        let is_barred = || self.is_late() || self.context.stop.is_cancelled();
        !(self.is_outdated() || is_step && is_barred())
    }

    /// The deletions without a definite answer that are to be repeated.
    pub(crate) fn unanswered_deletes(&self) -> Vec<Delete> {
        let generation = self.object.generation;
        self.memory().nodes.unanswered_deletes(generation)
    }

    /// The revision of the object's spec, if that failed and the pods go back to another one.
    pub(crate) fn undone(&self) -> Option<&'a str> {
        let written = self.scope.object.parsed.as_ref().ok()?;
        Some(written.hash.as_str()).filter(|hash| *hash != self.spec.hash)
    }

    /// The revision of the object's spec, whether or not the pods go back from it.
    pub(crate) fn written(&self) -> &'a str {
        self.undone().unwrap_or(&self.spec.hash)
    }

    /// The object as the owner of pods and revisions.
    pub(crate) fn owner(&self) -> Owner<'a> {
        Owner {
            namespace: &self.key.namespace,
            name: &self.key.name,
            uid: &self.object.uid,
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.context.client.clone(), &self.key.namespace)
    }

    /// The object's pods on a node as the watch shows them, and those that it might adopt.
    pub(crate) fn pods_on(&self, node: &str) -> Vec<Arc<PodView>> {
        self.caches.pods_on(node, self.key, &self.object.uid)
    }

    /// Whether a pod of the current spec belongs on a node; `None` if the node is gone.
    pub(crate) fn eligibility(&self, node: &str) -> Option<Eligibility> {
        let node = self.caches.node(node)?;
        let memory = self.memory();
        let placement = memory
            .acceptance
            .placement(&self.spec.hash, &self.spec.placement);
        Some(placement.eligibility(&node))
    }

    /// Whether the roll-out is to leave a node alone: it takes no new pods, or is in maintenance.
    pub(crate) fn is_left_alone(&self, node: &str) -> bool {
        let view = self.caches.node(node);
        view.is_some_and(|view| view.in_maintenance)
            || self.eligibility(node) == Some(Eligibility::Cordoned)
    }
}
