//! Admission: one function in place of a cluster's policies and webhooks, which rejects or changes writes.

use serde_json::Value;

use crate::call::Verb;
use crate::status::Status;

/// A write that is reviewed before it is validated and stored; see [`Server::admit`](crate::Server::admit).
pub struct Review<'a> {
    /// The identity of the client, or of [`crate::Server::direct_as`].
    pub user: &'a str,
    /// Create, update (patches are updates here, as for webhooks) or delete.
    pub verb: Verb,
    /// The plural, with the subresource: `pods`, `pods/status`.
    pub resource: &'a str,
    /// The object as it would be stored, which the review may change; for a deletion, the object to delete.
    pub object: &'a mut Value,
    /// The stored object that would be replaced.
    pub old: Option<&'a Value>,
}

/// Allows, changes or rejects a write.
pub(crate) type Admission = dyn Fn(&mut Review<'_>) -> Result<(), Status> + Send + Sync;
