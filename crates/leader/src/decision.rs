//! The decisions of a replica in the election. Pure: times are durations by the replica's own clock, a monotonic one.
//! The clocks of two replicas are never compared.
//!
//! Why two replicas never lead at once: a leader leads for less than the lease duration after it *sent* its last
//! renewal. Another replica *sees* that renewal later than it was sent. It waits for the whole duration from then on,
//! and its write replaces only the record that it saw. Manual edits of the Lease never shorten that wait, so they
//! cannot cause two leaders, but for two: the form in which a leader releases the lease ends the wait, and a replica that
//! starts and finds no Lease has none.

use std::time::Duration;

use super::periods::{MAX_LEASE, Periods};

/// The fields of a Lease that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The leader; empty when there is none.
    pub(super) holder: String,
    /// The lease duration; None when it is missing or malformed.
    pub(super) seconds: Option<i64>,
    /// How often the leader has changed.
    pub(super) transitions: i64,
    /// Changes with every renewal: the whole spec, and the UID of the Lease.
    pub(super) mark: String,
}

impl Record {
    /// Whether a leader released the lease, in client-go's form.
    fn is_released(&self) -> bool {
        self.holder.is_empty() && self.seconds == Some(1)
    }
}

/// What a replica knows of the election.
#[derive(Clone, Debug)]
pub(super) struct Election {
    me: String,
    periods: Periods,
    /// The mark of the latest record seen.
    seen: Option<String>,
    /// Another replica may lead until then.
    others: Duration,
    /// It has tried to lead. If the lease has its name, an attempt whose answer was lost may have succeeded.
    tried: bool,
    /// The time until which it leads, if it does.
    leads_until: Option<Duration>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Acquire the lease.
    Acquire {
        /// How often the leader will have changed.
        transitions: i64,
    },
    /// Renew the lease.
    Renew {
        /// How often the leader has changed.
        transitions: i64,
    },
    /// Read the lease again when it changes, or at that time.
    Wait {
        /// When the lease ends, unless it is renewed.
        until: Duration,
    },
    /// Stop at once.
    Lost(Loss),
}

/// Why a leader lost the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It could not renew in time.
    Late,
    /// The holder of a lease that excludes this one may lead.
    Excluded,
    /// Another replica holds the lease.
    Taken {
        /// Its holder.
        by: String,
    },
}

impl Election {
    /// A replica with that unique name.
    pub(super) fn new(me: String, periods: Periods) -> Self {
        Self {
            me,
            periods,
            seen: None,
            others: Duration::ZERO,
            tried: false,
            leads_until: None,
        }
    }

    /// Observes the lease, or that there is none. `now` must not be before the answer arrived.
    pub(super) fn observe(&mut self, found: Option<&Record>, now: Duration) {
        // The holder of a deleted lease may still believe that it leads.
        let Some(record) = found else {
            self.seen = None;
            return;
        };
        if self.seen.as_ref() == Some(&record.mark) {
            return;
        }
        self.seen = Some(record.mark.clone());
        if record.is_released() {
            self.others = now;
        } else if !self.is_mine(record) {
            self.others = self.others.max(now + self.duration(record));
        }
    }

    /// How long the holder of a record may lead. A duration that no holder writes counts as our own. So does a shorter
    /// one: a user may have shortened it without the holder's knowledge.
    fn duration(&self, record: &Record) -> Duration {
        let seconds = record.seconds.and_then(|s| u64::try_from(s).ok());
        seconds
            .map(Duration::from_secs)
            .filter(|duration| !duration.is_zero() && *duration <= MAX_LEASE)
            .unwrap_or_default()
            .max(self.periods.lease_duration)
    }

    fn is_mine(&self, record: &Record) -> bool {
        record.holder == self.me && (self.tried || self.leads_until.is_some())
    }

    /// What to do about the latest record.
    pub(super) fn decide(&self, found: Option<&Record>, now: Duration) -> Decision {
        let transitions = found.map_or(0, |record| record.transitions);
        if let Some(until) = self.leads_until {
            let renew = Decision::Renew { transitions };
            return match found {
                _ if now >= until => Decision::Lost(Loss::Late),
                Some(record) if record.holder == self.me => renew,
                // No other replica holds it. If one is about to acquire it, the API server rejects one of the two
                // writes.
                Some(record) if !record.holder.is_empty() => Decision::Lost(Loss::Taken {
                    by: record.holder.clone(),
                }),
                _ => renew,
            };
        }
        match found {
            // Even if the record has this replica's name: a user may have deleted the Lease while its holder leads, and
            // an old attempt of this replica then arrived late.
            _ if now < self.others => Decision::Wait { until: self.others },
            Some(record) if self.is_mine(record) => Decision::Acquire { transitions },
            Some(_) => Decision::Acquire {
                transitions: transitions.saturating_add(1),
            },
            None => Decision::Acquire { transitions: 0 },
        }
    }

    /// Whether a write may be sent now. Call it right before the write: the decision may be outdated.
    pub(super) fn may_send(&mut self, now: Duration) -> bool {
        self.tried = true;
        self.leads_until.is_none_or(|until| now < until)
    }

    /// Records an accepted write, sent at `sent` and answered at `answered`. Returns the time until which this replica
    /// leads.
    pub(super) fn won(&mut self, record: &Record, sent: Duration, answered: Duration) -> Duration {
        self.seen = Some(record.mark.clone());
        // Counted from `sent`, since others may have seen the write at once. A tenth less, to have stopped by then.
        let others_wait = sent + self.periods.lease_duration * 9 / 10;
        let until = others_wait.min(answered + self.periods.renew_deadline);
        self.leads_until = Some(until);
        // What others wait for, should it be lost.
        self.others = self.others.max(sent + self.periods.lease_duration);
        until
    }

    /// Records that the lease was lost. This replica waits as long as another one that saw its last renewal: calls of its
    /// work may still be in flight, whatever the Lease says.
    pub(super) fn step_down(&mut self) {
        self.leads_until = None;
    }

    /// Whether that is the mark of the latest record seen.
    #[cfg(test)]
    pub(super) fn has_seen(&self, mark: &str) -> bool {
        self.seen.as_deref() == Some(mark)
    }

    /// Whether there was a Lease when it was last observed.
    pub(super) fn exists(&self) -> bool {
        self.seen.is_some()
    }

    /// The time until which another replica may lead.
    pub(super) fn others_until(&self) -> Duration {
        self.others
    }

    /// The time until which it leads, if it does or did.
    pub(super) fn leads_until(&self) -> Option<Duration> {
        self.leads_until
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    const PERIODS: Periods = Periods {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    fn record(holder: &str, seconds: i64, mark: &str) -> Record {
        Record {
            holder: holder.to_owned(),
            seconds: Some(seconds),
            transitions: 3,
            mark: mark.to_owned(),
        }
    }

    fn election() -> Election {
        Election::new("me".to_owned(), PERIODS)
    }

    /// What it does about a record that it observes now.
    fn reconcile(election: &mut Election, record: Option<&Record>, now: u64) -> Decision {
        election.observe(record, second(now));
        election.decide(record, second(now))
    }

    fn wait(until: u64) -> Decision {
        let until = second(until);
        Decision::Wait { until }
    }

    fn leading() -> Election {
        let mut election = election();
        assert!(election.may_send(second(0)));
        election.won(&record("me", 15, "mine"), second(0), second(0));
        election
    }

    #[test]
    fn a_lost_lease_is_acquired_no_sooner_than_by_another_replica() {
        let mut election = leading();
        let mine = record("me", 15, "mine");
        assert_eq!(
            reconcile(&mut election, Some(&mine), 10),
            Decision::Lost(Loss::Late)
        );
        election.step_down();
        assert_eq!(reconcile(&mut election, Some(&mine), 11), wait(15));
        assert_eq!(reconcile(&mut election, None, 14), wait(15));
        assert_eq!(
            reconcile(&mut election, Some(&mine), 15),
            Decision::Acquire { transitions: 3 }
        );
    }

    #[test]
    fn a_missing_lease_is_created() {
        let decision = reconcile(&mut election(), None, 0);
        assert_eq!(decision, Decision::Acquire { transitions: 0 });
    }

    #[test]
    fn a_lease_that_is_never_renewed_ends_its_duration_after_it_was_first_seen() {
        let mut election = election();
        let other = record("other", 20, "1");
        assert_eq!(reconcile(&mut election, Some(&other), 0), wait(20));
        assert_eq!(reconcile(&mut election, Some(&other), 19), wait(20));
        let renewed = record("other", 20, "2");
        assert_eq!(reconcile(&mut election, Some(&renewed), 19), wait(39));
        let decision = reconcile(&mut election, Some(&renewed), 39);
        assert_eq!(decision, Decision::Acquire { transitions: 4 });
    }

    #[test]
    fn a_released_lease_is_acquired_at_once() {
        let mut election = election();
        reconcile(&mut election, Some(&record("other", 15, "1")), 0);
        let decision = reconcile(&mut election, Some(&record("", 1, "2")), 1);
        assert_eq!(decision, Decision::Acquire { transitions: 4 });
    }

    #[test]
    fn no_edit_by_hand_shortens_the_wait_for_another() {
        for edited in [
            Some(record("", 15, "2")),
            Some(record("other", 1, "2")),
            Some(record("other", -5, "2")),
            Some(record("garbage", 0, "2")),
            Some(record("me", 1, "2")),
            None,
        ] {
            let mut election = election();
            reconcile(&mut election, Some(&record("other", 15, "1")), 0);
            let decision = reconcile(&mut election, edited.as_ref(), 1);
            let Decision::Wait { until } = decision else {
                panic!("{edited:?}: {decision:?}");
            };
            assert!(until >= second(15) && until <= second(16), "{edited:?}");
        }
    }

    #[test]
    fn a_duration_that_no_leader_writes_counts_as_our_own() {
        for seconds in [i64::MIN, -1, 0, 601, 1_000_000_000, i64::MAX] {
            let decision = reconcile(&mut election(), Some(&record("x", seconds, "1")), 0);
            assert_eq!(decision, wait(15), "{seconds}");
        }
        let mut missing = record("x", 0, "1");
        missing.seconds = None;
        assert_eq!(reconcile(&mut election(), Some(&missing), 0), wait(15));
    }

    #[test]
    fn a_leader_renews_a_lease_that_is_its_own_or_has_no_holder() {
        let mut election = leading();
        for found in [
            Some(record("me", 15, "mine")),
            Some(record("me", -1, "edited")),
            Some(record("", 15, "emptied")),
            Some(record("", 1, "released by hand")),
            None,
        ] {
            let decision = reconcile(&mut election, found.as_ref(), 5);
            assert!(matches!(decision, Decision::Renew { .. }), "{found:?}");
        }
    }

    #[test]
    fn a_leader_stops_when_another_holds_the_lease_or_the_deadline_has_passed() {
        let mut election = leading();
        let by = "other".to_owned();
        let decision = reconcile(&mut election, Some(&record("other", 15, "1")), 5);
        assert_eq!(decision, Decision::Lost(Loss::Taken { by }));
        let mut election = leading();
        assert!(election.may_send(second(9)));
        assert!(!election.may_send(second(10)));
        let decision = reconcile(&mut election, Some(&record("me", 15, "mine")), 10);
        assert_eq!(decision, Decision::Lost(Loss::Late));
    }

    #[test]
    fn a_slow_answer_does_not_lengthen_the_time_to_lead() {
        let mut election = election();
        assert!(election.may_send(second(0)));
        let mine = record("me", 15, "mine");
        assert_eq!(election.won(&mine, second(0), second(1)), second(11));
        let until = election.won(&mine, second(0), second(6));
        assert_eq!(until, second(0) + Duration::from_millis(13_500));
    }

    #[test]
    fn a_lease_acquired_by_an_attempt_whose_answer_was_lost_is_renewed() {
        let mut election = election();
        assert!(election.may_send(second(0)));
        let decision = reconcile(&mut election, Some(&record("me", 15, "1")), 3);
        assert_eq!(decision, Decision::Acquire { transitions: 3 });
    }

    #[test]
    fn a_late_attempt_on_a_deleted_lease_does_not_cut_its_holder_short() {
        let mut election = election();
        assert_eq!(
            reconcile(&mut election, None, 0),
            Decision::Acquire { transitions: 0 }
        );
        assert!(election.may_send(second(0)));
        // Another replica was faster. Then the lease is deleted, and the attempt arrives.
        let other = record("other", 15, "1");
        assert_eq!(reconcile(&mut election, Some(&other), 3), wait(18));
        let late = record("me", 15, "2");
        assert_eq!(reconcile(&mut election, Some(&late), 4), wait(18));
        let decision = reconcile(&mut election, Some(&late), 18);
        assert_eq!(decision, Decision::Acquire { transitions: 3 });
    }
}
