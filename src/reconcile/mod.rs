//! What every reconciler uses, knowing no kind.
//!
//! Data goes one way: [`watch`] lists and watches objects ([`raw`] where users write them), [`cache`] keeps views of
//! them -> [`queue`] holds the keys of what is to be looked at, now or at an instant -> [`runner`] has
//! workers that take keys, let a [`runner::Reconciler`] observe, decide and act, and back off per object
//! when it fails; [`pace`] does the same for a part of what is done. [`mod@write`] is how it creates and deletes, and [`own`] has the answers until the watches
//! do; [`condition`], [`event`] and [`health`] are how people are told what was found.

use std::sync::Arc;

pub mod cache;
pub mod condition;
pub mod error;
pub mod event;
pub mod health;
mod lanes;
pub mod metrics;
mod outbox;
pub mod own;
pub mod pace;
pub mod queue;
pub mod raw;
pub mod runner;
pub mod watch;
pub mod write;

pub use error::{Error, call, if_there, read};
pub use runner::{Action, Context, Reconciler};

/// Names a namespaced object. Clones share the text: a key stands in a cache, in queues and in
/// views at a time, a hundred thousand times over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// `metadata.namespace`; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl Key {
    /// The key of `namespace/name`.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self {
            namespace: namespace.as_ref().into(),
            name: name.as_ref().into(),
        }
    }

    /// The key of an object.
    pub fn of(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Self {
        let text = |text: &Option<String>| Arc::from(text.as_deref().unwrap_or_default());
        Self {
            namespace: text(&meta.namespace),
            name: text(&meta.name),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}
