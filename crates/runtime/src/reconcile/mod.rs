//! What every reconciler uses, independent of the kind. Begin with [`Reconciler`], [`Context`] and [`Controller`].
//!
//! Data flows one way. [`watch`] lists and watches objects ([`raw`] those that users write), and [`cache`] keeps views
//! of them -> [`queue`] holds the keys to reconcile, now or at an instant -> [`runner`] has the workers ([`controller`]
//! puts these together). A worker takes a key, lets a [`Reconciler`] observe, decide and act, and backs off per object
//! when that fails. [`backoff`] is for a part of that work. [`mod@write`] creates and deletes objects; [`write_cache`]
//! keeps the answers until the watches deliver them. [`condition`], [`event`] and [`health`] report to users.
//!
//! Without the feature `client` there is only what pure functions use, such as those of a browser: [`Key`], [`condition`],
//! [`raw`], and the constants and values of [`event`] and [`mod@write`].

use std::sync::Arc;

#[cfg(feature = "client")]
use prometheus_client::encoding::EncodeLabelSet;

#[cfg(feature = "client")]
pub mod backoff;
#[cfg(feature = "client")]
pub mod cache;
pub mod condition;
#[cfg(feature = "client")]
pub mod controller;
#[cfg(feature = "client")]
pub mod error;
pub mod event;
#[cfg(feature = "client")]
pub mod health;
#[cfg(feature = "client")]
pub mod key_map;
#[cfg(feature = "client")]
mod lanes;
#[cfg(feature = "client")]
pub mod metrics;
#[cfg(feature = "client")]
mod outbox;
#[cfg(feature = "client")]
pub mod queue;
pub mod raw;
#[cfg(feature = "client")]
pub mod runner;
#[cfg(feature = "client")]
mod shard;
#[cfg(feature = "client")]
mod stop;
#[cfg(feature = "client")]
pub mod watch;
pub mod write;
#[cfg(feature = "client")]
pub mod write_cache;

#[cfg(feature = "client")]
pub use controller::Controller;
#[cfg(feature = "client")]
pub use error::{Error, call, call_status, if_there, read};
#[cfg(feature = "client")]
pub use runner::{Action, Context, Reconciler};
#[cfg(feature = "client")]
pub use shard::Shard;

/// Names a namespaced object. Clones share the text: the same key is in a cache, in queues and in views, and there may
/// be a hundred thousand keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "client", derive(EncodeLabelSet))]
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
