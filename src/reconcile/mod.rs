//! What every reconciler uses, knowing no kind.
//!
//! Data goes one way: [`cache`] watches objects ([`raw`] where users write them) and keeps views of
//! them -> [`queue`] holds the keys
//! of what is to be looked at, now or at an instant -> [`runner`] has workers that take keys, let a
//! [`runner::Reconciler`] observe, decide and act, and back off per object when it fails.
//! [`write`] is how it creates and deletes; [`condition`], [`event`] and [`health`] are how people are
//! told what was found.

pub mod cache;
pub mod condition;
pub mod error;
pub mod event;
pub mod health;
pub mod metrics;
pub mod queue;
pub mod raw;
pub mod runner;
pub mod write;

pub use error::{Error, call};
pub use runner::{Context, Outcome, Reconciler};

/// Names a namespaced object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// `metadata.namespace`; empty for a cluster-scoped object.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl Key {
    /// The key of `namespace/name`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of an object.
    pub fn of(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
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
