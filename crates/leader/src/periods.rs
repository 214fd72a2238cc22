//! The timing of the election.

use std::time::Duration;

/// The longest lease duration. No replica writes a longer one, so a longer one in a Lease is a manual edit.
pub(super) const MAX_LEASE: Duration = Duration::from_secs(600);
/// The shortest pause between two attempts.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The timing of the election, under client-go's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// How long the others wait after the leader's last renewal that they saw. At most 10 minutes.
    pub lease_duration: Duration,
    /// How long a leader that cannot renew goes on before it stops. Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// The pause between two attempts to lead, or to renew. At least 100 ms, and less than `renew_deadline` / 1.2.
    pub retry_period: Duration,
}

impl Default for Periods {
    /// Those of client-go: 15 s, 10 s and 2 s.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Why periods cannot work together, by the names of the fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PeriodsError(String);

impl Periods {
    /// Checks that the periods are consistent, as [`Elector::new`](crate::Elector::new) does.
    ///
    /// # Errors
    /// Names the period that does not fit the others.
    pub fn check(&self) -> Result<(), PeriodsError> {
        let Self {
            lease_duration,
            renew_deadline,
            retry_period,
        } = self;
        if *lease_duration > MAX_LEASE {
            return Err(PeriodsError(format!(
                "lease_duration is {MAX_LEASE:?} at most, not {lease_duration:?}"
            )));
        }
        if lease_duration <= renew_deadline {
            return Err(PeriodsError(format!(
                "lease_duration ({lease_duration:?}) must be longer than renew_deadline ({renew_deadline:?}): a leader that cannot renew has to end before another may lead"
            )));
        }
        if *retry_period < MIN_PAUSE {
            return Err(PeriodsError(format!(
                "retry_period is {MIN_PAUSE:?} at least, not {retry_period:?}"
            )));
        }
        if *renew_deadline <= retry_period.saturating_mul(6) / 5 {
            return Err(PeriodsError(format!(
                "renew_deadline ({renew_deadline:?}) must be longer than 1.2 times retry_period ({retry_period:?})"
            )));
        }
        Ok(())
    }

    /// The lease duration as written in the Lease: whole seconds, rounded up.
    pub(super) fn lease_seconds(&self) -> u64 {
        let whole = self.lease_duration.as_secs();
        whole + u64::from(self.lease_duration.subsec_nanos() > 0)
    }

    /// The time limit of one call. Two thirds of the renew deadline: with the defaults an API server may take five
    /// seconds for each call, and after a lost call there is time for another.
    pub(super) fn call(&self) -> Duration {
        self.renew_deadline * 2 / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn periods(lease: u64, renew: u64, retry: u64) -> Periods {
        Periods {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
        }
    }

    #[test]
    fn periods_that_cannot_work_together_are_refused_by_their_names() {
        assert_eq!(Periods::default().check(), Ok(()));
        assert_eq!(periods(3_000, 2_000, 500).check(), Ok(()));
        for (periods, word) in [
            (periods(10_000, 10_000, 2_000), "lease_duration (10s)"),
            (periods(15_000, 2_400, 2_000), "1.2 times"),
            (periods(15_000, 10_000, 0), "retry_period is 100ms"),
            (periods(0, 0, 0), "lease_duration (0ns)"),
            (periods(601_000, 10_000, 2_000), "600s at most"),
        ] {
            let refusal = periods
                .check()
                .map_or_else(|error| error.to_string(), |()| String::new());
            assert!(refusal.contains(word), "{refusal}");
        }
    }

    #[test]
    fn the_lease_duration_is_rounded_up_to_seconds() {
        assert_eq!(periods(15_000, 0, 0).lease_seconds(), 15);
        assert_eq!(periods(2_001, 0, 0).lease_seconds(), 3);
        assert_eq!(periods(400, 0, 0).lease_seconds(), 1);
    }
}
