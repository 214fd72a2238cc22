//! The dry run of the pod of an At that is not due yet: what this process knows of it.
//!
//! It decides nothing about the start.

use std::time::Duration;

use chrono::{DateTime, Utc};

use resilient_kube_client::backoff::Exponential;
use wall_clock_controller::reconcile::Error;

/// The pauses between dry runs. Longer than those of a start: an At may wait for years, and its instant settles the matter.
const PAUSES: Exponential = Exponential {
    first: Duration::from_secs(5),
    max: MAX_PAUSE,
};
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

impl Verdict {
    /// What a failed dry run shows.
    pub(crate) fn from_error(error: &Error) -> Self {
        let is_final = error.status().is_some_and(|status| status.code < 500);
        // Only these words say that nothing was judged.
        let is_judged = |message: &&str| !message.contains("does not support dry run");
        match error.refusal().filter(is_judged) {
            Some(message) if is_final => Self::Refused(message.to_owned()),
            _ => Self::Unknown,
        }
    }
}

/// The last dry run of the pod of an At.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    /// The generation of the spec that the pod was made from.
    pub(crate) generation: Option<i64>,
    pub(crate) verdict: Verdict,
    /// How many before it, in a row and of this generation, did not succeed.
    earlier: u32,
    /// When the next may be made.
    pub(crate) not_before: DateTime<Utc>,
}

impl Trial {
    /// A dry run after the `last` one. `asked`: the API server wants no other before that.
    pub(crate) fn new(
        last: Option<&Self>,
        generation: Option<i64>,
        verdict: Verdict,
        asked: Option<Duration>,
        now: DateTime<Utc>,
    ) -> Self {
        let last = last.filter(|last| last.generation == generation);
        let earlier = last.map_or(0, |last| last.earlier.saturating_add(1));
        let pause = PAUSES.after(earlier).max(asked.unwrap_or_default());
        Self {
            generation,
            verdict,
            earlier,
            not_before: now + pause,
        }
    }
}
