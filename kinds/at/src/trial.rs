//! The dry run of the pod of an At that is not due yet: what this process knows of it.
//!
//! It decides nothing about the start.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// The longest pause between dry runs.
pub(crate) const MAX_PAUSE: Duration = Duration::from_mins(10);

/// What a dry run has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The pod would be created.
    Accepted,
    /// It would not, in the words of the API server.
    Refused(String),
    /// Nothing: no answer in time, too many requests, a server error, or a pod that has the name at present.
    Unknown,
}

/// The last dry run of the pod of an At.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    /// The generation of the spec that the pod was made from.
    pub(crate) generation: Option<i64>,
    pub(crate) verdict: Verdict,
    /// How many before it, in a row and of this generation, did not succeed.
    pub(crate) earlier: u32,
    pub(crate) made_at: DateTime<Utc>,
    /// When the next may be made.
    pub(crate) not_before: DateTime<Utc>,
}
