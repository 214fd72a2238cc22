//! Backoff for attempts that fail, and for writes that another client reverts.
//!
//! The runner backs off whole objects. These are for one of several things that a reconcile does, which must not hold
//! up the others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use resilient_kube_client::backoff::Exponential;
use serde::Serialize;

const PAUSES: Exponential = Exponential {
    first: Duration::from_secs(1),
    max: Duration::from_secs(60),
};
/// This many times, what another client changed is put back without a pause. More often, with less than [`QUIET`]
/// in between, the other client reverts our writes.
const MAX_RESTORED_AT_ONCE: u32 = 10;
/// Longer than the longest pause, so that a client that reverts our writes still counts as one when a pause has ended.
const QUIET: TimeDelta = TimeDelta::minutes(2);

/// The backoff of attempts at one thing.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failures: u32,
    /// How often, and when last, a change by another client was reverted.
    restored: u32,
    last: Option<DateTime<Utc>>,
    not_before: Option<DateTime<Utc>>,
}

impl Backoff {
    /// When the next attempt may be made, if not now. A pause that has become longer, because the clock was set back,
    /// has ended.
    pub fn not_before(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.not_before
            .filter(|at| *at > now && (*at - now).to_std().is_ok_and(|left| left <= PAUSES.max))
    }

    /// Records a failed attempt. Returns when to try again.
    pub fn failed(&mut self, now: DateTime<Utc>) -> DateTime<Utc> {
        let not_before = now + PAUSES.after(self.failures);
        self.failures += 1;
        self.not_before = Some(not_before);
        not_before
    }

    /// Records a successful attempt. One that reverted a change by another client delays the next, if there were many.
    pub fn succeeded(&mut self, restored: bool, now: DateTime<Utc>) {
        (self.failures, self.not_before) = (0, None);
        if !restored {
            return;
        }
        let known = if self.is_quiet(now) { 0 } else { self.restored };
        self.restored = known.saturating_add(1);
        self.last = Some(now);
        if let Some(over) = self.restored.checked_sub(MAX_RESTORED_AT_ONCE) {
            self.not_before = Some(now + PAUSES.after(over));
        }
    }

    /// Whether nothing was reverted for a while. The clock may have been set either way.
    fn is_quiet(&self, now: DateTime<Utc>) -> bool {
        self.last.is_none_or(|last| (now - last).abs() >= QUIET)
    }

    /// Until when another client counts as one that reverts our writes.
    pub fn contested_until(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let contested = self.restored >= MAX_RESTORED_AT_ONCE && !self.is_quiet(now);
        self.last.filter(|_| contested).map(|last| last + QUIET)
    }

    /// Forgets failures: what caused them may have changed.
    pub fn reset(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }
}

/// The backoff of status writes. A second instance of the controller whose watch lags writes another status. If each
/// answered the other at once, the two would write for as long as the watch lags.
#[derive(Clone, Debug, Default)]
pub struct StatusWrites {
    generation: Option<i64>,
    /// A hash of the last status written, and the object's version after it.
    last: Option<(u64, u64)>,
    pace: Backoff,
}

impl StatusWrites {
    /// When the next status may be written, if not now. A new generation may be reported at once.
    pub fn not_before(&self, generation: Option<i64>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.pace
            .not_before(now)
            .filter(|_| self.generation == generation)
    }

    /// Records that `after` replaced `before`, a status that was read with `version`. `written` is the object's version
    /// since.
    pub fn wrote<S: Serialize>(
        &mut self,
        generation: Option<i64>,
        (before, version): (&S, &str),
        (after, written): (&S, &str),
        now: DateTime<Utc>,
    ) {
        let is_other = self.last.is_some_and(|(last, written)| {
            version
                .parse::<u64>()
                .is_ok_and(|version| version > written)
                && last != hash(before)
        });
        if is_other && self.generation == generation {
            self.pace.failed(now);
        } else {
            self.pace = Backoff::default();
        }
        self.generation = generation;
        self.last = written.parse().ok().map(|written| (hash(after), written));
    }
}

fn hash(status: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    let status = serde_json::to_value(status).unwrap_or_default();
    status.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_never_overflow() {
        let seconds = |earlier| PAUSES.after(earlier).as_secs();
        assert_eq!([0, 1, 2, 5, 6, 7].map(seconds), [1, 2, 4, 32, 60, 60]);
        assert_eq!(seconds(u32::MAX), 60);
    }

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap_or_default()
    }

    #[test]
    fn failures_back_off_and_a_success_ends_that() {
        let mut pace = Backoff::default();
        let pauses: Vec<i64> = (0..8)
            .map(|_| (pace.failed(now()) - now()).num_seconds())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        pace.succeeded(false, now());
        assert_eq!(pace.not_before, None);
        assert_eq!(pace.failed(now()), now() + PAUSES.first);
    }

    #[test]
    fn a_pause_ends_by_itself_and_when_the_clock_is_set_back() {
        let mut pace = Backoff::default();
        let until = pace.failed(now());
        assert_eq!(pace.not_before(now()), Some(until));
        assert_eq!(pace.not_before(until), None);
        assert_eq!(pace.not_before(now() - TimeDelta::hours(1)), None);
    }

    #[test]
    fn reverting_client_is_answered_with_growing_pauses() {
        // From one that answers at once to one that looks each quarter of a minute, as an autoscaler does.
        for answer in [1, 500, 5_000, 13_000, 15_000, 59_000, 100_000] {
            let mut pace = Backoff::default();
            let mut clock = now();
            let end = clock + TimeDelta::hours(1);
            let mut writes = 0;
            while clock < end {
                pace.succeeded(true, clock);
                writes += 1;
                // From the tenth on it stays so: conditions and Events do not come and go.
                let again = clock + TimeDelta::milliseconds(answer);
                let contested = |at| pace.contested_until(at).is_some_and(|until| until > at);
                assert_eq!(
                    contested(clock),
                    writes >= 10,
                    "{answer} ms: write {writes}"
                );
                clock = pace.not_before.unwrap_or(again).max(again);
                assert_eq!(
                    contested(clock),
                    writes >= 10,
                    "{answer} ms: write {writes}"
                );
            }
            assert!(writes < 80, "{answer} ms: {writes} writes in an hour");
            let until = pace.contested_until(clock);
            assert!(until.is_some_and(|until| pace.contested_until(until).is_none()));
            let until = until.unwrap_or_default();
            pace.succeeded(true, until);
            assert_eq!((pace.not_before, pace.contested_until(until)), (None, None));
        }
    }

    #[test]
    fn a_rare_change_is_reverted_at_once() {
        let mut pace = Backoff::default();
        for minute in (0..60).step_by(2) {
            pace.succeeded(true, now() + TimeDelta::minutes(minute));
            assert_eq!(pace.not_before, None);
        }
    }

    #[test]
    fn operators_that_overwrite_each_others_status_back_off() {
        let mut writes = StatusWrites::default();
        let mut pauses = Vec::new();
        for version in (10..18).step_by(2) {
            let (before, after) = (version.to_string(), (version + 1).to_string());
            writes.wrote(Some(1), (&"theirs", &before), (&"ours", &after), now());
            pauses.push(writes.not_before(Some(1), now()).map(|until| until - now()));
        }
        let pauses: Vec<i64> = pauses
            .into_iter()
            .flatten()
            .map(|p| p.num_seconds())
            .collect();
        assert_eq!(pauses, [1, 2, 4]);
        assert_eq!(
            writes.not_before(Some(2), now()),
            None,
            "another generation"
        );
        // What the other one wrote last stands.
        writes.wrote(Some(1), (&"ours", "18"), (&"later", "19"), now());
        assert_eq!(writes.not_before(Some(1), now()), None);
    }

    #[test]
    fn a_status_that_no_other_client_changed_is_written_at_once() {
        let mut writes = StatusWrites::default();
        writes.wrote(Some(1), (&"", "1"), (&"one", "2"), now());
        // The spec changed, and the object's version with it.
        writes.wrote(Some(1), (&"one", "5"), (&"two", "6"), now());
        assert_eq!(writes.not_before(Some(1), now()), None);
        // The watch shows an older version still.
        writes.wrote(Some(1), (&"one", "5"), (&"three", "7"), now());
        assert_eq!(writes.not_before(Some(1), now()), None);
    }
}
