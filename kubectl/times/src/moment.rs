//! Instants and spans, as people read them.

use chrono::{DateTime, Utc};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::zone::ChronoZone;

/// Now, and where.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Now.
    pub now: Timestamp,
    /// The user's zone.
    pub zone: TimeZone,
}

impl Clock {
    /// The same for code that works with chrono's types.
    pub fn chrono(&self) -> Option<DateTime<ChronoZone>> {
        let nanoseconds = u32::try_from(self.now.subsec_nanosecond()).ok()?;
        let now = DateTime::<Utc>::from_timestamp(self.now.as_second(), nanoseconds)?;
        Some(now.with_timezone(&ChronoZone(self.zone.clone())))
    }

    /// `Fri Nov 27 16:00 CET`: with the seconds unless they are zero, and the year unless it is this one.
    pub fn local(&self, instant: Timestamp) -> String {
        let (then, now) = (
            instant.to_zoned(self.zone.clone()),
            self.now.to_zoned(self.zone.clone()),
        );
        let day = if then.year() == now.year() {
            "%a %b %-d"
        } else {
            "%a %b %-d %Y"
        };
        let time = if then.second() == 0 {
            "%H:%M"
        } else {
            "%H:%M:%S"
        };
        then.strftime(&format!("{day} {time} %Z")).to_string()
    }

    /// `in 2 h 13 m`, `5 s ago` or `now`.
    pub fn relative(&self, instant: Timestamp) -> String {
        let left = instant.duration_since(self.now);
        if left.abs() < SignedDuration::from_secs(1) {
            return "now".to_owned();
        }
        let text = span(left.abs());
        if left.is_negative() {
            format!("{text} ago")
        } else {
            format!("in {text}")
        }
    }
}

/// An instant of chrono's; `None` beyond the years of any calendar.
pub fn instant(time: DateTime<Utc>) -> Option<Timestamp> {
    let nanoseconds = i32::try_from(time.timestamp_subsec_nanos()).ok()?;
    Timestamp::new(time.timestamp(), nanoseconds).ok()
}

/// The schedule that starts at once.
pub const NOW: &str = "now";

/// The instant as the At has it. One that has come is `now`, of which the webhook does not warn as of a past one.
pub fn schedule(instant: Timestamp, now: Timestamp) -> String {
    if instant <= now && instant.duration_since(now) > -SignedDuration::from_mins(1) {
        return NOW.to_owned();
    }
    instant.to_string()
}

/// The two largest units of a span: `3 d 4 h`, `2 h 13 m`, `5 m`, `42 s`.
pub fn span(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let Some(first) = units.iter().position(|(number, _)| *number > 0) else {
        return "0 s".to_owned();
    };
    let shown = units.iter().skip(first).take(2);
    let shown = shown.filter(|(number, _)| *number > 0);
    let shown: Vec<String> = shown
        .map(|(number, unit)| format!("{number} {unit}"))
        .collect();
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn clock(now: &str) -> Clock {
        Clock {
            now: now.parse().unwrap(),
            zone: TimeZone::get("Europe/Berlin").unwrap(),
        }
    }

    #[test]
    fn an_instant_is_shown_in_the_users_zone_without_what_goes_without_saying() {
        let clock = clock("2026-11-27T12:47:00Z");
        for (instant, shown) in [
            ("2026-11-27T15:00:00Z", "Fri Nov 27 16:00 CET"),
            ("2026-11-27T15:00:07.9Z", "Fri Nov 27 16:00:07 CET"),
            ("2027-07-01T15:00:00Z", "Thu Jul 1 2027 17:00 CEST"),
        ] {
            assert_eq!(clock.local(instant.parse().unwrap()), shown);
        }
    }

    #[test]
    fn what_has_just_come_is_now() {
        let now: Timestamp = "2026-11-27T12:47:35.5Z".parse().unwrap();
        let at = |text: &str| schedule(text.parse().unwrap(), now);
        assert_eq!(at("2026-11-27T12:47:35.4Z"), "now");
        assert_eq!(at("2026-11-27T12:47:00Z"), "now");
        assert_eq!(at("2026-11-27T12:00:00Z"), "2026-11-27T12:00:00Z");
        assert_eq!(at("2026-11-27T15:00:00Z"), "2026-11-27T15:00:00Z");
    }

    #[test]
    fn a_span_has_its_two_largest_units() {
        let clock = clock("2026-11-27T12:47:00Z");
        for (instant, shown) in [
            ("2026-11-27T15:00:00Z", "in 2 h 13 m"),
            ("2026-11-27T12:47:42Z", "in 42 s"),
            ("2026-11-27T13:47:42Z", "in 1 h"),
            ("2026-11-27T12:47:00.5Z", "now"),
            ("2026-11-27T12:41:55Z", "5 m 5 s ago"),
            ("2026-12-01T12:47:00Z", "in 4 d"),
        ] {
            assert_eq!(clock.relative(instant.parse().unwrap()), shown);
        }
    }
}
