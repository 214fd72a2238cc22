//! What every reconciler uses, independent of the kind. Begin with [`Reconciler`], [`Context`] and [`Controller`].
//!
//! Data flows one way. [`watch`] lists and watches objects ([`raw`] those that users write), and [`cache`] keeps views
//! of them -> [`queue`] holds the keys to reconcile, now or at an instant -> [`runner`] has the workers ([`controller`]
//! puts these together). A worker takes a key, lets a [`Reconciler`] observe, decide and act, and backs off per object
//! when that fails. [`backoff`] is for a part of that work. [`mod@write`] creates and deletes objects; [`write_cache`]
//! keeps the answers until the watches deliver them. [`condition`], [`event`] and [`health`] report to users.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;

pub mod backoff;
pub mod cache;
pub mod condition;
pub mod controller;
pub mod error;
pub mod event;
pub mod health;
mod lanes;
pub mod metrics;
mod outbox;
pub mod queue;
pub mod raw;
pub mod runner;
mod stop;
pub mod watch;
pub mod write;
pub mod write_cache;

pub use controller::Controller;
pub use error::{Error, call, call_status, if_there, read};
pub use runner::{Action, Context, Reconciler};

/// Names a namespaced object. Clones share the text: the same key is in a cache, in queues and in views, and there may
/// be a hundred thousand keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
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
