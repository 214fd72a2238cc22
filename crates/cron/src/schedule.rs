//! When to run.

use chrono::{DateTime, TimeDelta, Utc};

use crate::fields::Fields;
use crate::next;
use crate::zone::Zone;

/// When to run; made by [`parse`](fn@crate::parse).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Whenever clocks show what the fields say.
    Fields(Fields),
    /// Each time that this has passed: whole seconds, at least one.
    Every(TimeDelta),
}

impl Schedule {
    /// The first instant after `now` at which it is due, by the clocks of that zone; `None` if
    /// there is none within five years, which only happens to 29 February, around a year such as
    /// 2100.
    ///
    /// An [`Every`](Self::Every) counts from `since`: the last start, or the creation of the CronJob. The five fields
    /// ignore it.
    pub fn next(
        &self,
        zone: &Zone,
        since: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        match self {
            Self::Fields(fields) => next::fields(fields, zone, now),
            Self::Every(span) => next::span(*span, since, now),
        }
    }
}
