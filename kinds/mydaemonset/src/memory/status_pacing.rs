//! When the status may be written.

use chrono::{DateTime, TimeDelta, Utc};

use crate::crd::MyDaemonSetStatus;
use wall_clock_controller::reconcile::backoff::StatusWrites;

/// The longest pause between two status writes that change only numbers.
const MAX_PAUSE: TimeDelta = TimeDelta::milliseconds(100);

/// The last status write, and the backoff of writes against another operator's.
#[derive(Debug, Default)]
pub(crate) struct StatusPacing {
    written: Option<DateTime<Utc>>,
    pub(crate) contested: StatusWrites,
}

impl StatusPacing {
    /// Until when a status of which only numbers changed is not written again. Otherwise each of
    /// many pods would cost a write.
    pub(crate) fn numbers_not_before(
        &self,
        pods: usize,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let pause = TimeDelta::milliseconds(i64::try_from(pods / 20).unwrap_or(i64::MAX));
        let at = self.written?;
        let due = at + pause.min(MAX_PAUSE);
        (at <= now && due > now).then_some(due)
    }

    /// Records that one status, read with a version, was replaced by another, which has a version since.
    pub(crate) fn wrote(
        &mut self,
        generation: Option<i64>,
        before: (&MyDaemonSetStatus, &str),
        after: (&MyDaemonSetStatus, &str),
        now: DateTime<Utc>,
    ) {
        self.written = Some(now);
        self.contested.wrote(generation, before, after, now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    #[test]
    fn status_writes_that_change_only_numbers_are_spaced_for_many_pods() {
        let mut pacing = StatusPacing::default();
        assert_eq!(pacing.numbers_not_before(5_000, at(10)), None);
        pacing.written = Some(at(10));
        let due = at(10) + TimeDelta::milliseconds(100);
        assert_eq!(pacing.numbers_not_before(5_000, at(10)), Some(due));
        assert_eq!(pacing.numbers_not_before(5_000, due), None);
        assert_eq!(
            pacing.numbers_not_before(5_000, at(5)),
            None,
            "the clock was set"
        );
        assert_eq!(pacing.numbers_not_before(4, at(10)), None, "few pods");
    }
}
