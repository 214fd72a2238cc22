//! Times as `kubectl at` reads and shows them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use my_operator_times::moment::{Clock, NOW, schedule};
use my_operator_times::when;
use serde::Serialize;

/// What a time means.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Answer {
    /// An instant.
    Means {
        /// `spec.schedule` of the At.
        schedule: String,
        /// The instant in the time zone: `Fri Nov 27 16:00 CET`.
        local: String,
        /// How far away it is: `in 2 h 13 m`.
        relative: String,
    },
    /// Why it means none.
    Error(String),
}

/// Reads a time. The browser's zone has a name of the IANA database, whose rules are in this program, as in `kubectl at`.
pub(crate) fn answer(timespec: &str, zone: &str, now: i64) -> Answer {
    let Ok(now) = Timestamp::from_millisecond(now) else {
        return Answer::Error("the clock of this browser is out of range".to_owned());
    };
    let Ok(zone) = TimeZone::get(zone) else {
        return Answer::Error(format!("{zone:?} is not a known time zone"));
    };
    let clock = Clock { now, zone };
    match when::instant(timespec, &clock) {
        Ok(instant) => Answer::Means {
            schedule: schedule(instant, now),
            local: clock.local(instant),
            relative: match schedule(instant, now).as_str() {
                NOW => NOW.to_owned(),
                _ => clock.relative(instant),
            },
        },
        Err(why) => Answer::Error(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-27T12:47:34.200Z.
    const FRIDAY: i64 = 1_795_783_654_200;

    fn means(schedule: &str, local: &str, relative: &str) -> Answer {
        Answer::Means {
            schedule: schedule.to_owned(),
            local: local.to_owned(),
            relative: relative.to_owned(),
        }
    }

    #[test]
    fn a_time_is_read_in_the_browsers_zone() {
        let answer = |words: &str, zone: &str| answer(words, zone, FRIDAY);
        assert_eq!(
            answer("teatime", "Europe/Berlin"),
            means(
                "2026-11-27T15:00:00Z",
                "Fri Nov 27 16:00 CET",
                "in 2 h 12 m"
            )
        );
        assert_eq!(
            answer("teatime", "America/New_York"),
            means(
                "2026-11-27T21:00:00Z",
                "Fri Nov 27 16:00 EST",
                "in 8 h 12 m"
            )
        );
        assert_eq!(
            answer("now", "Asia/Calcutta"),
            means("now", "Fri Nov 27 18:17 IST", "now")
        );
    }

    #[test]
    fn what_means_no_instant_is_explained_as_by_kubectl_at() {
        let why = |words: &str, zone: &str, now| match answer(words, zone, now) {
            Answer::Error(why) => why,
            means @ Answer::Means { .. } => format!("{means:?}"),
        };
        let skipped = why("2027-03-28T02:30", "Europe/Berlin", FRIDAY);
        assert!(skipped.starts_with("clocks skip 02:30"), "{skipped}");
        let typo = why("16:00 tommorow", "UTC", FRIDAY);
        assert!(typo.contains("did you mean \"tomorrow\"?"), "{typo}");
        assert_eq!(
            why("noon", "No/Such", FRIDAY),
            "\"No/Such\" is not a known time zone"
        );
        let clock = why("noon", "UTC", i64::MAX);
        assert_eq!(clock, "the clock of this browser is out of range");
    }
}
