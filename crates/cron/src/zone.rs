//! Time zones by the names of the IANA database, from a compiled-in copy: an image may have none, and
//! what a name means must not depend on the node.

use std::sync::LazyLock;

use chrono::{DateTime, NaiveDateTime};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone of the IANA database, from a compiled-in copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone(TimeZone);

/// An instant, and what clocks in a [`Zone`] show at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The instant, in seconds since 1970.
    pub utc: i64,
    /// What clocks show.
    pub local: NaiveDateTime,
}

impl Zone {
    /// The zone of exactly that name, as a CronJob takes it. Upper and lower case differ, as they
    /// do for the API server, which looks for a file.
    pub fn named(name: &str) -> Option<Self> {
        let zone = DATABASE.get(name).ok()?;
        // jiff also has a zone of which nothing is known.
        (zone.iana_name() == Some(name) && !zone.is_unknown()).then_some(Self(zone))
    }

    /// The names of all zones.
    pub fn names() -> impl Iterator<Item = String> {
        DATABASE.available().map(|name| name.as_str().to_owned())
    }

    /// The moment at `utc` seconds since 1970; `None` beyond the years of any calendar.
    pub fn at(&self, utc: i64) -> Option<Moment> {
        let offset = self.0.to_offset(Timestamp::from_second(utc).ok()?);
        let local = utc.checked_add(offset.seconds().into())?;
        let local = DateTime::from_timestamp(local, 0)?.naive_utc();
        Some(Moment { utc, local })
    }

    /// The moment at which clocks show `local`. Where clocks change, this may be one of two
    /// moments, or a near one if there is none: the one of Go's `time.Date`, by the same two
    /// look-ups of the offset.
    pub fn showing(&self, local: NaiveDateTime) -> Option<Moment> {
        let seconds = local.and_utc().timestamp();
        let offset = |utc| {
            let moment = self.at(utc)?;
            moment.local.and_utc().timestamp().checked_sub(utc)
        };
        let first = seconds.checked_sub(offset(seconds)?)?;
        self.at(seconds.checked_sub(offset(first)?)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_those_of_the_database_letter_for_letter() {
        for good in ["UTC", "Etc/UTC", "Europe/Berlin", "US/Pacific", "Etc/GMT+8"] {
            assert!(Zone::named(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "Local",
            "local",
            "utc",
            "europe/berlin",
            "Europe/Berlin ",
            "Europe",
            "Mars/Phobos",
            "Etc/Unknown",
            "../Etc/UTC",
            "CET-1CEST",
            "+02:00",
        ] {
            assert!(Zone::named(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn clocks_are_set_forward_and_back() {
        let zone = Zone::named("Europe/Berlin").unwrap();
        let showing = |text: &str| {
            let local = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S").unwrap();
            let moment = zone.showing(local).unwrap();
            DateTime::from_timestamp(moment.utc, 0).unwrap().to_string()
        };
        assert_eq!(showing("2026-03-29T01:30:00"), "2026-03-29 00:30:00 UTC");
        assert_eq!(showing("2026-03-29T02:30:00"), "2026-03-29 01:30:00 UTC");
        assert_eq!(showing("2026-10-25T02:30:00"), "2026-10-25 01:30:00 UTC");
        assert_eq!(showing("2026-10-25T03:30:00"), "2026-10-25 02:30:00 UTC");
    }
}
