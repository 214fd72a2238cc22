//! What a cluster's admission refuses or changes: one function in the place of policies and webhooks.

use serde_json::Value;

use crate::call::Verb;
use crate::status::Status;

/// A write that is reviewed before it is validated and stored.
pub struct Review<'a> {
    /// The identity of the client, or of [`crate::Server::direct_as`].
    pub user: &'a str,
    /// Create, update (patches are updates here, as for webhooks) or delete.
    pub verb: Verb,
    /// The plural, with the subresource: `pods`, `ats/status`.
    pub resource: &'a str,
    /// The object as it would be stored, which the review may change; of a deletion, the object that would go.
    pub object: &'a mut Value,
    /// The stored object that would be replaced.
    pub old: Option<&'a Value>,
}

/// Lets a write pass, changes it, or refuses it.
pub(crate) type Admission = dyn Fn(&mut Review<'_>) -> Result<(), Status> + Send + Sync;
