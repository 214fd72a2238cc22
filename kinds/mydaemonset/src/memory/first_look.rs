//! Whether the cache shows the pods that a new object may adopt.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use resilient_kube_client::backoff::Exponential;

/// The watch is late by milliseconds as a rule.
const PAUSES: Exponential = Exponential {
    first: Duration::from_millis(100),
    max: Duration::from_secs(10),
};

/// What is known of the pods that were there before the object.
#[derive(Debug, Default)]
pub(crate) struct FirstLook {
    is_over: bool,
    /// How often a live list had more than the cache.
    misses: u32,
    not_before: Option<DateTime<Utc>>,
}

/// Whether a decision can be made.
#[derive(Debug, PartialEq)]
pub(crate) enum Look {
    /// The cache has shown everything.
    Over,
    /// A live list is to be made.
    Due,
    /// Not before then.
    Later(DateTime<Utc>),
}

impl FirstLook {
    pub(crate) fn state(&self, now: DateTime<Utc>) -> Look {
        // A pause that has become longer, because the clock was set back, has ended.
        let pause = self.not_before.filter(|at| {
            let left = *at - now;
            left > TimeDelta::zero() && left.to_std().is_ok_and(|left| left <= PAUSES.max)
        });
        match pause {
            _ if self.is_over => Look::Over,
            Some(at) => Look::Later(at),
            None => Look::Due,
        }
    }

    /// The cache showed all that a live list has.
    pub(crate) fn matched(&mut self) {
        self.is_over = true;
    }

    /// A live list had more than the cache.
    pub(crate) fn missed(&mut self, now: DateTime<Utc>) {
        self.not_before = Some(now + PAUSES.after(self.misses));
        self.misses = self.misses.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_pauses_grow_to_ten_seconds_and_end_if_the_clock_is_set_back() {
        let start = DateTime::from_timestamp(1_000, 0).unwrap();
        let mut look = FirstLook::default();
        let (mut now, mut pauses) = (start, Vec::new());
        for _ in 0..9 {
            assert_eq!(look.state(now), Look::Due);
            look.missed(now);
            let Look::Later(at) = look.state(now) else {
                unreachable!("{look:?}")
            };
            pauses.push((at - now).num_milliseconds());
            now = at;
        }
        assert_eq!(
            pauses,
            [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
        );
        look.missed(now);
        assert_eq!(look.state(start - TimeDelta::minutes(1)), Look::Due);
        look.matched();
        assert_eq!(look.state(now), Look::Over);
    }
}
