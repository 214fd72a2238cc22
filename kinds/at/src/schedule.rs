//! What `spec.schedule` may say: an RFC 3339 instant, `now`, or `now + 5 minutes` as in at(1).
//!
//! The parser is strict where RFC 3339 leaves a choice (lower-case letters, a blank for the `T`,
//! leap seconds), so that every accepted text means the same to every program.

use std::fmt;

use chrono::{DateTime, Datelike, NaiveDate, TimeDelta, Utc};

/// The last year that RFC 3339 can write.
const LAST_YEAR: i32 = 9999;
const FIRST_YEAR: i32 = 1970;
const MAX_UNITS: i64 = 999_999;

/// When to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At that instant.
    At(DateTime<Utc>),
    /// At once.
    Now,
    /// This long after the schedule was set.
    After(TimeDelta),
}

/// What is wrong with a schedule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleError {
    /// The position in characters, starting at 1.
    pub character: usize,
    /// What is wrong there.
    pub problem: String,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.character, self.problem)
    }
}

impl std::error::Error for ScheduleError {}

impl Schedule {
    /// Whether it counts from the instant at which it was set.
    pub fn is_relative(&self) -> bool {
        !matches!(self, Self::At(_))
    }

    /// The instant that is meant, `base` being the one at which the schedule was set. `None` if it
    /// is beyond the year 9999, which no field of the API can represent.
    pub fn instant(&self, base: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let instant = match self {
            Self::At(instant) => *instant,
            Self::Now => base,
            Self::After(delta) => base.checked_add_signed(*delta)?,
        };
        (instant.year() <= LAST_YEAR).then_some(instant)
    }
}

/// Reads a schedule.
///
/// # Errors
/// What is wrong, at which character.
pub fn parse(text: &str) -> Result<Schedule, ScheduleError> {
    let mut reader = Reader {
        rest: text,
        character: 1,
    };
    // A number that begins a date: `16:00` and `5 minutes` are mistakes of another kind than a wrong digit.
    let after_digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if after_digits.len() < text.len() && after_digits.starts_with('-') {
        instant(&mut reader).map(Schedule::At)
    } else if reader.take("now") {
        relative(&mut reader)
    } else {
        Err(reader
            .wrong("expected an instant such as 2026-04-12T10:12:00Z, or now, or now + 5 minutes"))
    }
}

/// The remaining text, and its position.
struct Reader<'a> {
    rest: &'a str,
    character: usize,
}

impl<'a> Reader<'a> {
    /// Takes that ASCII text, if it is next.
    fn take(&mut self, text: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(text) else {
            return false;
        };
        self.rest = rest;
        self.character += text.len();
        true
    }

    /// Takes the longest run of ASCII characters for which `holds` is true.
    fn while_(&mut self, holds: fn(u8) -> bool) -> &'a str {
        let end = self.rest.bytes().take_while(|byte| holds(*byte)).count();
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.character += end;
        taken
    }

    fn wrong(&self, problem: &str) -> ScheduleError {
        wrong(self.character, problem)
    }

    fn expect(&mut self, text: &str, what: &str) -> Result<(), ScheduleError> {
        if self.take(text) {
            Ok(())
        } else {
            Err(self.wrong(&format!("expected {what}")))
        }
    }

    /// Takes a number of exactly that many digits, within bounds.
    fn number(
        &mut self,
        digits: usize,
        what: &str,
        from: u32,
        to: u32,
    ) -> Result<u32, ScheduleError> {
        let start = self.character;
        let mut value = 0;
        for _ in 0..digits {
            let digit = self.rest.chars().next().and_then(|c| c.to_digit(10));
            let Some(digit) = digit else {
                return Err(self.wrong(&format!("expected {digits} digits for the {what}")));
            };
            value = value * 10 + digit;
            self.rest = &self.rest[1..];
            self.character += 1;
        }
        if (from..=to).contains(&value) {
            Ok(value)
        } else {
            Err(wrong(
                start,
                &format!("the {what} must be {from:0digits$} to {to:0digits$}"),
            ))
        }
    }

    fn end(&self) -> Result<(), ScheduleError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.wrong("nothing more is expected here"))
        }
    }
}

fn wrong(character: usize, problem: &str) -> ScheduleError {
    ScheduleError {
        character,
        problem: problem.to_owned(),
    }
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

/// After `now`: nothing, or `+ 5 minutes`.
fn relative(reader: &mut Reader<'_>) -> Result<Schedule, ScheduleError> {
    if reader.rest.is_empty() {
        return Ok(Schedule::Now);
    }
    let blank: fn(u8) -> bool = |byte| byte == b' ';
    reader.while_(blank);
    reader.expect("+", "+ and a time span, such as now + 5 minutes")?;
    reader.while_(blank);
    let start = reader.character;
    let digits = reader.while_(is_digit);
    if digits.is_empty() {
        return Err(reader.wrong("expected a number"));
    }
    let count = digits.parse().ok().filter(|n| (1..=MAX_UNITS).contains(n));
    let Some(count) = count else {
        return Err(wrong(
            start,
            &format!("the number must be 1 to {MAX_UNITS}"),
        ));
    };
    if reader.while_(blank).is_empty() {
        return Err(
            reader.wrong("expected a space and a unit: seconds, minutes, hours, days or weeks")
        );
    }
    let start = reader.character;
    let unit = reader.while_(|byte| byte.is_ascii_lowercase());
    let delta = match unit {
        "second" | "seconds" => TimeDelta::try_seconds(count),
        "minute" | "minutes" => TimeDelta::try_minutes(count),
        "hour" | "hours" => TimeDelta::try_hours(count),
        "day" | "days" => TimeDelta::try_days(count),
        "week" | "weeks" => TimeDelta::try_weeks(count),
        _ => None,
    };
    let delta = delta.ok_or_else(|| {
        wrong(
            start,
            "expected a unit: seconds, minutes, hours, days or weeks",
        )
    })?;
    reader.end()?;
    Ok(Schedule::After(delta))
}

/// An RFC 3339 instant.
fn instant(reader: &mut Reader<'_>) -> Result<DateTime<Utc>, ScheduleError> {
    let (first, last) = (FIRST_YEAR.unsigned_abs(), LAST_YEAR.unsigned_abs());
    let year = reader.number(4, "year", first, last)?;
    reader.expect("-", "- between year and month")?;
    let month = reader.number(2, "month", 1, 12)?;
    reader.expect("-", "- between month and day")?;
    let at_day = reader.character;
    let day = reader.number(2, "day", 1, 31)?;
    let date = i32::try_from(year)
        .ok()
        .and_then(|year| NaiveDate::from_ymd_opt(year, month, day))
        .ok_or_else(|| wrong(at_day, "the month has no such day"))?;
    reader.expect("T", "an upper-case T between date and time")?;
    let hour = reader.number(2, "hour", 0, 23)?;
    reader.expect(":", ": between hour and minute")?;
    let minute = reader.number(2, "minute", 0, 59)?;
    reader.expect(":", ": between minute and second")?;
    let second = reader.number(2, "second (leap seconds are not supported)", 0, 59)?;
    let nano = fraction(reader)?;
    let offset = offset(reader)?;
    reader.end()?;
    date.and_hms_nano_opt(hour, minute, second, nano)
        .and_then(|local| local.and_utc().checked_sub_signed(offset))
        .filter(|utc| (FIRST_YEAR..=LAST_YEAR).contains(&utc.year()))
        .ok_or_else(|| wrong(1, "the year in UTC must be 1970 to 9999"))
}

/// The fraction of a second, if there is one, in nanoseconds.
fn fraction(reader: &mut Reader<'_>) -> Result<u32, ScheduleError> {
    if !reader.take(".") {
        return Ok(0);
    }
    let start = reader.character;
    let digits = reader.while_(is_digit);
    if digits.is_empty() {
        return Err(reader.wrong("expected digits of a fraction of a second"));
    }
    if digits.len() > 9 {
        return Err(wrong(
            start + 9,
            "a fraction of a second has at most 9 digits",
        ));
    }
    format!("{digits:0<9}")
        .parse()
        .map_err(|_| wrong(start, "expected digits of a fraction of a second"))
}

/// The offset of local time from UTC.
fn offset(reader: &mut Reader<'_>) -> Result<TimeDelta, ScheduleError> {
    if reader.take("Z") {
        return Ok(TimeDelta::zero());
    }
    let sign = if reader.take("+") {
        1
    } else if reader.take("-") {
        -1
    } else {
        return Err(reader.wrong("expected an upper-case Z or an offset such as +02:00"));
    };
    let hours = reader.number(2, "hour of the offset", 0, 23)?;
    reader.expect(":", ": between hour and minute of the offset")?;
    let minutes = reader.number(2, "minute of the offset", 0, 59)?;
    Ok(TimeDelta::minutes(sign * i64::from(hours * 60 + minutes)))
}

/// The next whole millisecond. Recorded instants are rounded up, never down: a base that is rounded
/// down would start a command early.
pub fn ceil_to_millisecond(instant: DateTime<Utc>) -> DateTime<Utc> {
    let over = i64::from(instant.timestamp_subsec_nanos() % 1_000_000);
    if over == 0 {
        return instant;
    }
    instant
        .checked_add_signed(TimeDelta::nanoseconds(1_000_000 - over))
        .unwrap_or(instant)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use chrono::{SecondsFormat, TimeZone};
    use my_operator_rounds::{lengths, proptest_config};
    use proptest::prelude::*;

    use super::*;

    fn utc(text: &str) -> Schedule {
        Schedule::At(DateTime::parse_from_rfc3339(text).unwrap().to_utc())
    }

    #[test]
    fn instants_of_rfc_3339_are_read() {
        for text in [
            "2026-04-12T10:12:00Z",
            "2026-04-12T10:12:00.5Z",
            "2026-04-12T10:12:00.123456789Z",
            "2026-04-12T12:12:00+02:00",
            "2026-04-12T00:12:00-23:59",
            "2026-04-12T00:12:00-00:00",
            "2024-02-29T23:59:59Z",
            "1970-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999999Z",
        ] {
            assert_eq!(parse(text), Ok(utc(text)), "{text}");
        }
    }

    #[test]
    fn time_spans_are_parsed_as_by_at() {
        let seconds = |n| Ok(Schedule::After(TimeDelta::seconds(n)));
        for (text, schedule) in [
            ("now", Ok(Schedule::Now)),
            ("now + 5 seconds", seconds(5)),
            ("now+5 seconds", seconds(5)),
            ("now  +  5  seconds", seconds(5)),
            ("now + 1 second", seconds(1)),
            ("now + 2 second", seconds(2)),
            ("now + 1 minutes", seconds(60)),
            ("now + 2 hours", seconds(7_200)),
            ("now + 1 day", seconds(86_400)),
            ("now + 1 week", seconds(604_800)),
            ("now + 999999 weeks", seconds(999_999 * 604_800)),
        ] {
            assert_eq!(parse(text), schedule, "{text}");
        }
    }

    #[test]
    fn an_error_names_its_character() {
        for (text, character) in [
            ("", 1),
            (" 2026-04-12T10:12:00Z", 1),
            ("tomorrow", 1),
            ("NOW", 1),
            ("Now", 1),
            ("16:00", 1),
            ("1600", 1),
            ("9am", 1),
            ("5 minutes", 1),
            ("24.11.2026", 1),
            ("24-11-2026", 3),
            ("20264-04-12T10:12:00Z", 5),
            ("1969-12-31T23:59:59Z", 1),
            ("2026-13-12T10:12:00Z", 6),
            ("2026-02-30T10:12:00Z", 9),
            ("2025-02-29T10:12:00Z", 9),
            ("2026-04-00T10:12:00Z", 9),
            ("2026-04-12 10:12:00Z", 11),
            ("2026-04-12t10:12:00Z", 11),
            ("2026-04-12T24:00:00Z", 12),
            ("2026-04-12T10:60:00Z", 15),
            ("2026-04-12T10:12:60Z", 18),
            ("2026-04-12T10:12Z", 17),
            ("2026-04-12T10:12:00", 20),
            ("2026-04-12T10:12:00z", 20),
            ("2026-04-12T10:12:00.Z", 21),
            ("2026-04-12T10:12:00.1234567890Z", 30),
            ("2026-04-12T10:12:00,5Z", 20),
            ("2026-04-12T10:12:00Z ", 21),
            ("2026-04-12T10:12:00+24:00", 21),
            ("2026-04-12T10:12:00+02:60", 24),
            ("2026-04-12T10:12:00+0200", 23),
            ("2026-04-12T10:12:00+02", 23),
            ("9999-12-31T23:59:59-00:01", 1),
            ("1970-01-01T00:00:00+00:01", 1),
            ("2026-04-1\u{662}T10:12:00Z", 10),
            ("nowadays", 4),
            ("now ", 5),
            ("now +", 6),
            ("now + ", 7),
            ("now + five minutes", 7),
            ("now + -5 minutes", 7),
            ("now + 0 minutes", 7),
            ("now + 1000000 minutes", 7),
            ("now + 99999999999999999999 minutes", 7),
            ("now + 5minutes", 8),
            ("now + 5", 8),
            ("now + 5 ", 9),
            ("now + 5 fortnights", 9),
            ("now + 5 Minutes", 9),
            ("now + 5 minutes ", 16),
            ("now + 5 minutes please", 16),
            ("now\t+ 5 minutes", 4),
        ] {
            match parse(text) {
                Ok(schedule) => panic!("{text:?} was read as {schedule:?}"),
                Err(error) => assert_eq!(error.character, character, "{text:?}: {error}"),
            }
        }
        let error = parse("2026-04-12 10:12:00Z").unwrap_err();
        assert_eq!(
            error.to_string(),
            "at character 11: expected an upper-case T between date and time"
        );
        for text in ["tomorrow", "16:00", "1h", "+5 minutes"] {
            assert_eq!(
                parse(text).unwrap_err().to_string(),
                "at character 1: expected an instant such as 2026-04-12T10:12:00Z, or now, or now + 5 minutes",
                "{text}"
            );
        }
    }

    #[test]
    fn a_schedule_beyond_the_year_9999_has_no_instant() {
        let base = Utc.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).unwrap();
        assert_eq!(parse("now + 999999 weeks").unwrap().instant(base), None);
        assert!(parse("now + 999999 days").unwrap().instant(base).is_some());
    }

    #[test]
    fn rounding_to_milliseconds_goes_up() {
        for (nanos, rounded) in [
            (0, 0),
            (1, 1_000_000),
            (1_000_000, 1_000_000),
            (999_999_999, 1_000_000_000),
        ] {
            let instant = DateTime::from_timestamp(7, nanos).unwrap();
            let expected = instant + TimeDelta::nanoseconds(rounded - i64::from(nanos));
            assert_eq!(ceil_to_millisecond(instant), expected);
        }
    }

    proptest! {
        #![proptest_config(proptest_config(lengths::texts()))]

        /// What chrono writes is read back, whatever the offset and the digits.
        #[test]
        fn what_chrono_writes_is_read_as_the_same_instant(
            second in 86_400_i64..253_402_214_400, nano in 0_u32..1_000_000_000,
            minutes in -1_439_i32..=1_439, digits in 0_usize..4,
        ) {
            let format = [SecondsFormat::Secs, SecondsFormat::Millis, SecondsFormat::Micros, SecondsFormat::Nanos][digits];
            let offset = chrono::FixedOffset::east_opt(minutes * 60).unwrap();
            let local = DateTime::from_timestamp(second, nano).unwrap().with_timezone(&offset);
            let text = local.to_rfc3339_opts(format, minutes == 0);
            prop_assert_eq!(parse(&text), Ok(utc(&text)));
        }

        /// Whatever is accepted with a leading digit, chrono reads as the same instant.
        #[test]
        fn nothing_is_accepted_that_chrono_reads_otherwise(
            text in "(19[67][0-9]|20[0-9]{2})-[0-1][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,10})?(Z|z|[+-][0-2][0-9]:?[0-6][0-9])?"
        ) {
            if let Ok(schedule) = parse(&text) {
                prop_assert_eq!(schedule, utc(&text));
            } else if let Ok(theirs) = DateTime::parse_from_rfc3339(&text) {
                // What only chrono accepts is rejected for a stated reason.
                let strict = text.contains(['t', 'z', ' '])
                    || text[17..19] == *"60"
                    || text.len() > "2026-04-12T10:12:00.123456789Z".len()
                    || theirs.to_utc().year() < FIRST_YEAR;
                prop_assert!(strict, "{} is a good instant", text);
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = parse(&text);
            let _ = parse(&format!("now{text}"));
            let _ = parse(&format!("2026-04-12T10:12:00{text}"));
        }
    }
}
