//! What every step of one reconcile pass works with.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource};
use parking_lot::{Mutex, MutexGuard};

use super::caches::Caches;
use super::decide::placement::Eligibility;
use super::memory::Memory;
use super::names::Owner;
use super::object::{ObjectView, ParsedSpec};
use super::observe::pod::PodView;
use my_operator_runtime::reconcile::{Context, Key};

/// One pass over one object with a valid spec.
pub(crate) struct Pass<'a> {
    pub(crate) context: &'a Context,
    pub(crate) node_not_ready_grace: TimeDelta,
    pub(crate) caches: &'a Caches,
    pub(crate) key: &'a Key,
    pub(crate) object: &'a ObjectView,
    pub(crate) spec: &'a ParsedSpec,
    /// When the pass began.
    pub(crate) now: DateTime<Utc>,
    pub(crate) memory: &'a Mutex<Memory>,
}

impl<'a> Pass<'a> {
    /// What is remembered of the object. Must not be held across a call: the watches write it too.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// The time of a call, which may be long after the pass began.
    pub(crate) fn clock(&self) -> DateTime<Utc> {
        (self.context.clock)()
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
        Some(self.spec.placement.eligibility(&node))
    }
}
