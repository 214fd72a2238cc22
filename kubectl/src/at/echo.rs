//! What is said of an At that was just made: when its command runs, or that it does not.

use jiff::{SignedDuration, Timestamp};
use my_operator_times::moment::{Clock, NOW, span};

use crate::print::DryRun;

/// What it is said of.
pub(super) struct Echo<'a> {
    pub(super) schedule: &'a str,
    pub(super) instant: Timestamp,
    /// `startingDeadlineSeconds`.
    pub(super) deadline: Option<i64>,
    pub(super) suspend: bool,
    pub(super) dry_run: DryRun,
}

impl Echo<'_> {
    /// The words after the name. By the rules of the operator, a past instant means at once, unless the deadline is over.
    pub(super) fn words(&self, clock: &Clock) -> String {
        let verb = match (self.dry_run, self.suspend) {
            (DryRun::None, false) => "will",
            (DryRun::None, true) => "is suspended, and once resumed will",
            _ => "would",
        };
        if self.schedule == NOW {
            return format!("{verb} run now");
        }
        let (local, relative) = (clock.local(self.instant), clock.relative(self.instant));
        if self.instant > clock.now {
            return format!("{verb} run {local}, {relative}");
        }
        let late = clock.now.duration_since(self.instant);
        let deadline = self.deadline.map(SignedDuration::from_secs);
        match deadline.filter(|deadline| late > *deadline) {
            Some(deadline) => {
                let deadline = span(deadline);
                format!(
                    "{verb} not run: {local} was {relative}, and it must start within {deadline}"
                )
            }
            // The webhook, which was not asked, may set a deadline.
            None if self.dry_run == DryRun::Client => {
                format!("{verb} be due at once, since {local} was {relative}")
            }
            None => format!("{verb} run at once, since {local} was {relative}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn a_past_time_is_said_to_mean_at_once_or_never() {
        let clock = Clock {
            now: "2026-11-27T12:47:00Z".parse().unwrap(),
            zone: TimeZone::get("Europe/Berlin").unwrap(),
        };
        let past = "2026-01-01T00:00:00Z";
        for (schedule, deadline, suspend, dry_run, words) in [
            ("now", Some(0), false, DryRun::None, "will run now"),
            (
                "2026-11-27T15:00:00Z",
                Some(0),
                false,
                DryRun::None,
                "will run Fri Nov 27 16:00 CET, in 2 h 13 m",
            ),
            (
                past,
                None,
                false,
                DryRun::None,
                "will run at once, since Thu Jan 1 01:00 CET was 330 d 12 h ago",
            ),
            (
                past,
                Some(3600),
                false,
                DryRun::None,
                "will not run: Thu Jan 1 01:00 CET was 330 d 12 h ago, and it must start within 1 h",
            ),
            (
                past,
                Some(86_400 * 365),
                true,
                DryRun::None,
                "is suspended, and once resumed will run at once, since Thu Jan 1 01:00 CET was 330 d 12 h ago",
            ),
            (
                past,
                None,
                false,
                DryRun::Client,
                "would be due at once, since Thu Jan 1 01:00 CET was 330 d 12 h ago",
            ),
            (
                past,
                None,
                false,
                DryRun::Server,
                "would run at once, since Thu Jan 1 01:00 CET was 330 d 12 h ago",
            ),
        ] {
            let echo = Echo {
                schedule,
                instant: schedule.parse().unwrap_or(clock.now),
                deadline,
                suspend,
                dry_run,
            };
            assert_eq!(echo.words(&clock), words);
        }
    }
}
