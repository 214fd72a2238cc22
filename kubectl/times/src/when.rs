//! When: the times of at(1), and two forms that it has no meaning for: instants of RFC 3339, and durations from now.

use std::ops::RangeInclusive;
use std::time::Duration;

use at_timespec::Error;
use chrono::DateTime;
use jiff::tz::TimeZone;
use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};
use my_operator_at::schedule;

use crate::duration;
use crate::moment::{self, Clock};
use crate::zone::ChronoZone;

/// The years that the API takes (from 1970), and that every time zone can show (to 9999).
const YEARS: RangeInclusive<i16> = 1970..=9998;

/// Units of durations. Months and years are at(1)'s, which counts them on the calendar: `now + 1 month`.
const UNITS: &[&str] = &[
    "s", "sec", "secs", "second", "seconds", "m", "min", "mins", "minute", "minutes", "h", "hr",
    "hrs", "hour", "hours", "d", "day", "days", "w", "week", "weeks",
];

/// No time has more words.
const MAX_WORDS: usize = 32;

/// The instant that these words mean. What at(1) understands means what it means there.
///
/// # Errors
/// When they mean none: a line that says what to write.
pub fn instant(words: &str, clock: &Clock) -> Result<Timestamp, String> {
    let now = clock.chrono().ok_or_else(out_of_range)?;
    let found = match at_timespec::parse(words, &now) {
        Ok(instant) => moment::instant(instant),
        Err(error) => match from_now(words) {
            Some(duration) => after(duration, clock),
            None if is_rfc_3339(words) => rfc_3339(words, &now, clock)?,
            None => return Err(error.to_string()),
        },
    };
    in_years(found)
}

/// The instant of `-t`.
///
/// # Errors
/// As [`instant`].
pub fn touch(text: &str, clock: &Clock) -> Result<Timestamp, String> {
    let now = clock.chrono().ok_or_else(out_of_range)?;
    let read = at_timespec::parse_touch(text, &now);
    in_years(moment::instant(read.map_err(|error| error.to_string())?))
}

fn in_years(found: Option<Timestamp>) -> Result<Timestamp, String> {
    found
        .filter(|it| YEARS.contains(&it.to_zoned(TimeZone::UTC).year()))
        .ok_or_else(out_of_range)
}

fn out_of_range() -> String {
    let (first, last) = (YEARS.start(), YEARS.end());
    format!("the time is out of range: an At runs in the years {first} to {last}")
}

/// A duration, such as `1h30m` or `now + 90 seconds`. A number alone is none: to at(1) it is an hour.
fn from_now(words: &str) -> Option<Duration> {
    let words = words.to_ascii_lowercase();
    let text = match words.trim().strip_prefix("now") {
        Some(rest) => rest.trim_start().strip_prefix('+')?,
        None => words.as_str(),
    };
    let units = text.split(|c: char| !c.is_ascii_alphabetic());
    let mut units = units.filter(|unit| !unit.is_empty()).peekable();
    units.peek()?;
    if !units.all(|unit| UNITS.contains(&unit)) {
        return None;
    }
    duration::parse(text).ok()
}

/// So long after now, at the next whole second; `None` beyond the years of any calendar.
fn after(duration: Duration, clock: &Clock) -> Option<Timestamp> {
    let up = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Ceil);
    clock.now.checked_add(duration).ok()?.round(up).ok()
}

/// Whether a text has this shape, in which 0 stands for any digit.
fn is_like(text: &str, shape: &str) -> bool {
    let is_same = |(byte, shape): (u8, u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        _ => byte == shape,
    };
    text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(is_same)
}

/// Whether it begins as an instant of RFC 3339 does: a date, and T.
fn is_rfc_3339(text: &str) -> bool {
    let date = text.split_once('T').map(|(date, _)| date);
    date.is_some_and(|date| is_like(date, "0000-00-00"))
}

/// An instant as `spec.schedule` takes it, or without an offset: a time of the user's zone, also without seconds. It may
/// not be past.
fn rfc_3339(
    text: &str,
    now: &DateTime<ChronoZone>,
    clock: &Clock,
) -> Result<Option<Timestamp>, String> {
    let is_short = is_like(text, "0000-00-00T00:00");
    let is_local = is_short || is_like(text, "0000-00-00T00:00:00");
    let seconds = if is_short { ":00" } else { "" };
    let zone = if is_local { "Z" } else { "" };
    let read = schedule::parse(&format!("{text}{seconds}{zone}"));
    let read = read.map_err(|error| format!("{text:?} is not understood: {error}"))?;
    let Some(mut found) = read.instant(now.to_utc()) else {
        return Ok(None);
    };
    if is_local {
        // Where clocks change, it is what -t makes of the same digits.
        let digits = found.format("%Y%m%d%H%M.%S").to_string();
        let read = at_timespec::parse_touch(&digits, now);
        found = read.map_err(|error| error.to_string())?;
    }
    match moment::instant(found) {
        Some(past) if past.duration_since(clock.now) <= -SignedDuration::from_mins(1) => {
            Err(Error::Past(clock.local(past)).to_string())
        }
        found => Ok(found),
    }
}

/// What to write if these words are a time and then a command: `--` is missing between them.
pub fn missing_dashes(text: &str, clock: &Clock) -> Option<String> {
    let reads = |text: &str| instant(text, clock).is_ok();
    if corrected(text, clock).is_some_and(|text| reads(&text)) {
        return None;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut splits = (1..words.len().min(MAX_WORDS)).rev();
    let (time, program) = splits.find_map(|count| {
        let (time, rest) = words.split_at(count);
        let (time, program) = (time.join(" "), *rest.first()?);
        reads(&time).then_some((time, program))
    })?;
    let is_program = program.starts_with(|c: char| c.is_alphabetic() || "./~_$".contains(c));
    // A word of a time in the wrong place: `fri noon`, `noon days`, `9am next`.
    let is_of_a_time = [
        program.to_owned(),
        format!("1 {program}"),
        format!("now + 1 {program}"),
        format!("{program} week"),
    ];
    if !is_program || is_of_a_time.iter().any(|text| reads(text)) {
        return None;
    }
    Some(format!(
        "{program:?} is not part of the time: write -- before the command, as in kubectl at {time} -- {program}"
    ))
}

/// The words with the keyword that the message about them suggests.
fn corrected(text: &str, clock: &Clock) -> Option<String> {
    let read = at_timespec::parse(text, &clock.chrono()?);
    let Err(Error::Unexpected {
        word,
        suggestion: Some(meant),
        ..
    }) = read
    else {
        return None;
    };
    // Digits before it are a number of its own: `5minuts`.
    let written = word.trim_start_matches(|c: char| c.is_ascii_digit());
    Some(text.replacen(written, meant, 1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn clock() -> Clock {
        Clock {
            now: "2026-11-27T12:47:34.2Z".parse().unwrap(),
            zone: TimeZone::get("Europe/Berlin").unwrap(),
        }
    }

    #[test]
    fn instants_and_durations_are_read_where_at_has_no_meaning() {
        for (words, instant) in [
            ("5m", "2026-11-27T12:52:35Z"),
            ("1h", "2026-11-27T13:47:35Z"),
            ("90s", "2026-11-27T12:49:05Z"),
            ("1h30m", "2026-11-27T14:17:35Z"),
            ("1h 30m", "2026-11-27T14:17:35Z"),
            ("2 Days", "2026-11-29T12:47:35Z"),
            ("now + 90 seconds", "2026-11-27T12:49:05Z"),
            ("now +5m", "2026-11-27T12:52:35Z"),
            ("Now+1H", "2026-11-27T13:47:35Z"),
            ("2026-12-01T16:00:00Z", "2026-12-01T16:00:00Z"),
            ("2026-12-01T16:00:00.5+02:00", "2026-12-01T14:00:00.5Z"),
            ("2026-12-01T16:00:30", "2026-12-01T15:00:30Z"),
            ("2027-07-01T16:00", "2027-07-01T14:00:00Z"),
            // The minute that is not over yet.
            ("2026-11-27T12:47:00Z", "2026-11-27T12:47:00Z"),
            // These are at(1)'s.
            ("now + 5 minutes", "2026-11-27T12:52:00Z"),
            ("1h30", "2026-11-28T00:30:00Z"),
            ("16", "2026-11-27T15:00:00Z"),
            ("16:00 + 1 month", "2026-12-27T15:00:00Z"),
        ] {
            let expected = Ok(instant.parse().unwrap());
            assert_eq!(super::instant(words, &clock()), expected, "{words}");
        }
    }

    #[test]
    fn what_is_no_time_is_explained_in_a_line() {
        for (words, part) in [
            ("", "no time given"),
            ("1 month", "\"month\" is not understood"),
            ("5 lightyears", "\"lightyears\" is not understood"),
            ("999999999h", "in the years 1970 to 9998"),
            ("9999-06-01T00:00:00Z", "in the years 1970 to 9998"),
            (
                "2026-13-01T16:00:00Z",
                "\"2026-13-01T16:00:00Z\" is not understood: at character 6: the month must be 01 to 12",
            ),
            ("2026-12-01T16", "at character 14: expected :"),
            ("2026-12-01T16:00:00z", "expected an upper-case Z"),
            ("2026-12-32T16:00", "the day must be 01 to 31"),
            (
                "2026-11-27T12:00:00Z",
                "Fri Nov 27 13:00 CET is in the past",
            ),
            ("2027-03-28T02:30", "clocks skip 02:30 on Mar 28 2027"),
        ] {
            let error = instant(words, &clock()).unwrap_err();
            assert!(error.contains(part), "{words}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn a_command_without_dashes_is_one_if_a_time_is_before_it() {
        for (words, time_and_program) in [
            ("now + 5 minutes echo hi", Some(("now + 5 minutes", "echo"))),
            ("noon cat /etc/hosts", Some(("noon", "cat"))),
            ("5m ./report", Some(("5m", "./report"))),
            (
                "2026-12-01T16:00:00Z echo hi",
                Some(("2026-12-01T16:00:00Z", "echo")),
            ),
            ("echo hi", None),
            ("16:00 tommorow", None),
            ("nov 30 9am", None),
            ("noon + days", None),
            ("noon days", None),
            ("fri noon", None),
            ("fri utc", None),
            ("9am next", None),
            ("9am nov", None),
        ] {
            let expected = time_and_program.map(|(time, program)| {
                format!(
                    "{program:?} is not part of the time: write -- before the command, as in kubectl at {time} -- {program}"
                )
            });
            assert_eq!(missing_dashes(words, &clock()), expected, "{words}");
        }
    }
}
