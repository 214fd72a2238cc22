//! What a replica does after what it saw. Pure: times are lengths since some instant of the replica's
//! own clock, one that nobody sets; the clocks of two replicas are never compared.
//!
//! Why no two lead at once: a leader leads until some time after it *sent* its last renewal, less
//! than the lease's duration. Another replica can only have *seen* that renewal later than it was
//! sent, waits for the whole duration from then on, and writes only over the very record that it saw.
//! What somebody edits by hand never shortens that wait, so it cannot make two leaders of one; only
//! the form in which a leader gives the lease up does.

use std::time::Duration;

use super::{MAX_LEASE, Periods};

/// What a Lease says, as far as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Who leads; nobody when empty.
    pub(super) holder: String,
    /// For how long after a renewal; none when it is missing or no number.
    pub(super) seconds: Option<i64>,
    /// How often the leader has changed.
    pub(super) transitions: i64,
    /// Changes with every renewal: all that the holder wrote, and which object it stands in.
    pub(super) mark: String,
}

impl Record {
    /// A leader ended and gave it up, as client-go does it.
    fn is_given_up(&self) -> bool {
        self.holder.is_empty() && self.seconds == Some(1)
    }
}

/// What a replica knows and remembers.
#[derive(Clone, Debug)]
pub(super) struct Election {
    me: String,
    periods: Periods,
    /// The mark of the record that was seen last.
    seen: Option<String>,
    /// Until then somebody else may lead.
    others: Duration,
    /// It has tried to lead: that the lease has its name may be the fruit of an attempt whose answer
    /// was lost.
    tried: bool,
    /// Until when it leads, if it does.
    leads_until: Option<Duration>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Write the lease anew, in one's own name.
    Acquire {
        /// How often the leader will have changed.
        transitions: i64,
    },
    /// Write that one still leads.
    Renew {
        /// How often the leader has changed.
        transitions: i64,
    },
    /// Look again when the record changes, and then at the latest.
    Wait {
        /// When the lease ends, unless it is renewed.
        until: Duration,
    },
    /// Stop at once.
    Lost(Loss),
}

/// Why a leader leads no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It could not renew in time.
    Late,
    /// The lease is somebody else's.
    Taken {
        /// Whose.
        by: String,
    },
}

impl Election {
    /// A replica of that name, which is no other's.
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

    /// Takes in what the lease says, or that there is none. `now` is not before the answer came.
    pub(super) fn see(&mut self, found: Option<&Record>, now: Duration) {
        // Who deletes a lease takes nothing back of what its holder may believe.
        let Some(record) = found else {
            self.seen = None;
            return;
        };
        if self.seen.as_ref() == Some(&record.mark) {
            return;
        }
        self.seen = Some(record.mark.clone());
        if record.is_given_up() {
            self.others = now;
        } else if !self.is_mine(record) {
            self.others = self.others.max(now + self.duration(record));
        }
    }

    /// For how long the holder of a record may lead. What no holder writes counts as our own, and so
    /// does less than that: it may have been cut short by hand, which its holder does not know.
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

    /// What to do about the record that was seen last.
    pub(super) fn decide(&self, found: Option<&Record>, now: Duration) -> Decision {
        let transitions = found.map_or(0, |record| record.transitions);
        if let Some(until) = self.leads_until {
            let renew = Decision::Renew { transitions };
            return match found {
                _ if now >= until => Decision::Lost(Loss::Late),
                Some(record) if record.holder == self.me => renew,
                // Nobody took it. Should somebody be about to, one of the two writes is refused.
                Some(record) if !record.holder.is_empty() => Decision::Lost(Loss::Taken {
                    by: record.holder.clone(),
                }),
                _ => renew,
            };
        }
        match found {
            // Also if it is one's own: an attempt of long ago may have come late, to a lease that was
            // deleted by hand meanwhile, while its holder leads.
            _ if now < self.others => Decision::Wait { until: self.others },
            Some(record) if self.is_mine(record) => Decision::Acquire { transitions },
            Some(_) => Decision::Acquire {
                transitions: transitions.saturating_add(1),
            },
            None => Decision::Acquire { transitions: 0 },
        }
    }

    /// To be asked right before a write is sent: the decision may be old by now.
    pub(super) fn may_send(&mut self, now: Duration) -> bool {
        self.tried = true;
        self.leads_until.is_none_or(|until| now < until)
    }

    /// The write was accepted that was sent at `sent` and whose answer was there at `answered`.
    /// Returns until when it leads.
    pub(super) fn won(&mut self, record: &Record, sent: Duration, answered: Duration) -> Duration {
        self.seen = Some(record.mark.clone());
        // From when it was sent, as others may have seen it at once; and a tenth less, to end by then.
        let others_wait = sent + self.periods.lease_duration * 9 / 10;
        let until = others_wait.min(answered + self.periods.renew_deadline);
        self.leads_until = Some(until);
        until
    }

    /// Whether that is the record that it saw last.
    #[cfg(test)]
    pub(super) fn has_seen(&self, mark: &str) -> bool {
        self.seen.as_deref() == Some(mark)
    }

    /// Until when it leads, if it does or did.
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

    /// What it does about a record that it sees now.
    fn look(election: &mut Election, record: Option<&Record>, now: u64) -> Decision {
        election.see(record, second(now));
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
    fn a_lease_that_is_not_there_is_made() {
        let decision = look(&mut election(), None, 0);
        assert_eq!(decision, Decision::Acquire { transitions: 0 });
    }

    #[test]
    fn a_lease_that_is_never_renewed_ends_its_duration_after_it_was_first_seen() {
        let mut election = election();
        let other = record("other", 20, "1");
        assert_eq!(look(&mut election, Some(&other), 0), wait(20));
        assert_eq!(look(&mut election, Some(&other), 19), wait(20));
        let renewed = record("other", 20, "2");
        assert_eq!(look(&mut election, Some(&renewed), 19), wait(39));
        let decision = look(&mut election, Some(&renewed), 39);
        assert_eq!(decision, Decision::Acquire { transitions: 4 });
    }

    #[test]
    fn a_lease_that_was_given_up_is_taken_at_once() {
        let mut election = election();
        look(&mut election, Some(&record("other", 15, "1")), 0);
        let decision = look(&mut election, Some(&record("", 1, "2")), 1);
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
            look(&mut election, Some(&record("other", 15, "1")), 0);
            let decision = look(&mut election, edited.as_ref(), 1);
            let Decision::Wait { until } = decision else {
                panic!("{edited:?}: {decision:?}");
            };
            assert!(until >= second(15) && until <= second(16), "{edited:?}");
        }
    }

    #[test]
    fn a_duration_that_no_leader_writes_counts_as_our_own() {
        for seconds in [i64::MIN, -1, 0, 601, 1_000_000_000, i64::MAX] {
            let decision = look(&mut election(), Some(&record("x", seconds, "1")), 0);
            assert_eq!(decision, wait(15), "{seconds}");
        }
        let mut missing = record("x", 0, "1");
        missing.seconds = None;
        assert_eq!(look(&mut election(), Some(&missing), 0), wait(15));
    }

    #[test]
    fn a_leader_renews_what_is_its_own_or_nobodys() {
        let mut election = leading();
        for found in [
            Some(record("me", 15, "mine")),
            Some(record("me", -1, "edited")),
            Some(record("", 15, "emptied")),
            Some(record("", 1, "given up by hand")),
            None,
        ] {
            let decision = look(&mut election, found.as_ref(), 5);
            assert!(matches!(decision, Decision::Renew { .. }), "{found:?}");
        }
    }

    #[test]
    fn a_leader_stops_when_the_lease_is_anothers_or_its_time_is_over() {
        let mut election = leading();
        let by = "other".to_owned();
        let decision = look(&mut election, Some(&record("other", 15, "1")), 5);
        assert_eq!(decision, Decision::Lost(Loss::Taken { by }));
        let mut election = leading();
        assert!(election.may_send(second(9)));
        assert!(!election.may_send(second(10)));
        let decision = look(&mut election, Some(&record("me", 15, "mine")), 10);
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
    fn what_an_attempt_with_a_lost_answer_wrote_is_taken_up_again() {
        let mut election = election();
        assert!(election.may_send(second(0)));
        let decision = look(&mut election, Some(&record("me", 15, "1")), 3);
        assert_eq!(decision, Decision::Acquire { transitions: 3 });
    }

    #[test]
    fn an_attempt_that_comes_late_to_a_deleted_lease_takes_nothing_from_its_holder() {
        let mut election = election();
        assert_eq!(
            look(&mut election, None, 0),
            Decision::Acquire { transitions: 0 }
        );
        assert!(election.may_send(second(0)));
        // Another was faster; then the lease is deleted, and the attempt arrives.
        let other = record("other", 15, "1");
        assert_eq!(look(&mut election, Some(&other), 3), wait(18));
        let late = record("me", 15, "2");
        assert_eq!(look(&mut election, Some(&late), 4), wait(18));
        let decision = look(&mut election, Some(&late), 18);
        assert_eq!(decision, Decision::Acquire { transitions: 3 });
    }
}
