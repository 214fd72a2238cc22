//! The two clocks that decide about certificates: this machine's, and the API server's.
//!
//! API servers verify with their own clocks, and replicas share one CA. So a replica whose clock is wrong must not
//! discard a CA that is good for all others. While the clocks differ, every decision must be correct by either of them:
//! nothing has expired before both say so, and new certificates are valid by both.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

/// A source of this machine's time: `Arc::new(Utc::now)`. Tests set their own.
pub type Clock = Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>;

/// Clocks that differ by no more than this count as equal. Tokens and leases need no better agreement, and every
/// certificate is backdated by a day.
pub(crate) const TOLERANCE: TimeDelta = TimeDelta::hours(1);

/// Both clocks at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clocks {
    local: DateTime<Utc>,
    server: Option<DateTime<Utc>>,
}

impl Clocks {
    /// `server` is the API server's time, if its answers show it.
    pub(crate) fn new(local: DateTime<Utc>, server: Option<DateTime<Utc>>) -> Self {
        Self { local, server }
    }

    /// The time of this machine.
    pub(crate) fn local(self) -> DateTime<Utc> {
        self.local
    }

    /// Whether the API server's time is known, and this machine's is the same.
    pub(crate) fn confirmed(self) -> bool {
        self.server.is_some() && self.agree()
    }

    /// Whether this machine's clock is not known to be wrong.
    pub(crate) fn agree(self) -> bool {
        self.difference().is_none()
    }

    /// By how much this machine's clock is ahead (or behind, negative), if that is too much.
    pub(crate) fn difference(self) -> Option<TimeDelta> {
        let ahead = self.local - self.server?;
        (ahead.abs() > TOLERANCE).then_some(ahead)
    }

    /// The earlier of the two times: whatever has expired by then has expired by both clocks.
    pub(crate) fn earliest(self) -> DateTime<Utc> {
        self.local - self.difference().unwrap_or_default().max(TimeDelta::zero())
    }

    /// The later of the two times: whatever begins by then has begun by one of the clocks.
    pub(crate) fn latest(self) -> DateTime<Utc> {
        self.local - self.difference().unwrap_or_default().min(TimeDelta::zero())
    }

    /// If the clocks differ: by how much, and what to do, in one line for users. Rounded, so that the line does not
    /// change while the problem lasts.
    pub(crate) fn warning(self) -> Option<String> {
        let difference = self.difference()?;
        let (length, side) = (
            difference.abs(),
            if difference < TimeDelta::zero() {
                "behind"
            } else {
                "ahead of"
            },
        );
        let length = match (length.num_days(), length.num_hours()) {
            (0 | 1, hours) => format!("{hours} h"),
            (days, _) => format!("{days} days"),
        };
        Some(format!(
            "this machine's clock is {length} {side} the API server's: check time synchronization (NTP) on both"
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use simulated_apiserver::second;

    fn ahead(by: TimeDelta) -> Clocks {
        Clocks::new(second(0), Some(second(0) - by))
    }

    #[test]
    fn clocks_within_an_hour_count_as_equal() {
        for minutes in [-60, -1, 0, 60] {
            let clocks = ahead(TimeDelta::minutes(minutes));
            assert!(clocks.agree() && clocks.confirmed());
            assert_eq!((clocks.earliest(), clocks.latest()), (second(0), second(0)));
            assert_eq!(clocks.warning(), None);
        }
        let unknown = Clocks::new(second(0), None);
        assert!(unknown.agree() && !unknown.confirmed());
    }

    #[test]
    fn clocks_that_differ_span_both_times_and_warn_in_one_line() {
        let fast = ahead(TimeDelta::hours(30));
        assert!(!fast.agree());
        assert_eq!(fast.earliest(), second(0) - TimeDelta::hours(30));
        assert_eq!(fast.latest(), second(0));
        assert!(
            fast.warning()
                .unwrap()
                .starts_with("this machine's clock is 30 h ahead of the API server's")
        );
        let slow = ahead(-TimeDelta::days(400));
        assert_eq!(slow.earliest(), second(0));
        assert_eq!(slow.latest(), second(0) + TimeDelta::days(400));
        assert!(
            slow.warning()
                .unwrap()
                .contains("400 days behind the API server's: check")
        );
    }
}
