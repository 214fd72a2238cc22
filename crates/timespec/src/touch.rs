//! The argument of `-t`: `[[CC]YY]MMDDhhmm[.SS]`, as touch and at take it.

use chrono::{DateTime, Datelike, NaiveDate, TimeZone, Utc};

use crate::Error;
use crate::calendar::no_such_date;
use crate::mktime::{Clocks, minute_of_now};

/// The instant that the argument of `at -t` means, `[[CC]YY]MMDDhhmm[.SS]`, in the time zone of `now`.
///
/// Without a year it is in the year of `now`. Two digits of a year are those of 1969 to 2068. As with `at -t`, it may be
/// in the past. A time that clocks skip is an error.
///
/// ```
/// use chrono::{DateTime, FixedOffset};
///
/// let now: DateTime<FixedOffset> = "2026-11-23T13:47:35+01:00".parse()?;
/// let instant = at_timespec::parse_touch("11241600.30", &now)?;
/// assert_eq!(instant.to_rfc3339(), "2026-11-24T15:00:30+00:00");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the text has another form, names a date that does not exist or a time that clocks skip, or means an instant
/// outside the years 1 to 9999.
pub fn parse_touch<Tz: TimeZone>(text: &str, now: &DateTime<Tz>) -> Result<DateTime<Utc>, Error> {
    let not_touch = || Error::NotTouch(text.to_owned());
    let (digits, seconds) = match text.split_once('.') {
        Some((digits, seconds)) => (digits, pairs(seconds).filter(|pairs| pairs.len() == 1)),
        None => (text, Some(vec![0])),
    };
    let (Some(pairs), Some(seconds)) = (pairs(digits), seconds) else {
        return Err(not_touch());
    };
    let mut clocks = Clocks::new(now.timezone());
    let (this_minute, _) = minute_of_now(&clocks, now)?;
    let (year, rest) = match pairs.as_slice() {
        [century, year, rest @ ..] if rest.len() == 4 => (i64::from(century * 100 + year), rest),
        [year @ 0..=68, rest @ ..] if rest.len() == 4 => (i64::from(2000 + year), rest),
        [year, rest @ ..] if rest.len() == 4 => (i64::from(1900 + year), rest),
        rest => (i64::from(this_minute.year()), rest),
    };
    let ([month, day, hour, minute], [second]) = (rest, seconds.as_slice()) else {
        return Err(not_touch());
    };
    for (value, start, range, problem) in [
        (
            month,
            0,
            1..=12,
            "a month is from 01 to 12 (MM in [[CC]YY]MMDDhhmm[.SS])",
        ),
        (
            hour,
            4,
            0..=23,
            "an hour is from 00 to 23 (hh in [[CC]YY]MMDDhhmm[.SS])",
        ),
        (
            minute,
            6,
            0..=59,
            "a minute is from 00 to 59 (mm in [[CC]YY]MMDDhhmm[.SS])",
        ),
        (
            second,
            9,
            0..=59,
            "a second is from 00 to 59 (SS in [[CC]YY]MMDDhhmm[.SS])",
        ),
    ] {
        if !range.contains(value) {
            // The year is before these eight digits and the point.
            let start = digits.len().saturating_sub(8) + start;
            return Err(Error::Invalid {
                word: format!("{value:02}"),
                start,
                problem,
            });
        }
    }
    let local = i32::try_from(year)
        .ok()
        .and_then(|year| NaiveDate::from_ymd_opt(year, *month, *day))
        .and_then(|date| date.and_hms_opt(*hour, *minute, *second))
        .ok_or_else(|| no_such_date(year, i64::from(*month) - 1, i64::from(*day)))?;
    let instant = clocks.instant(local)?;
    if clocks.local(instant)? != local {
        return Err(Error::Skipped(
            local.format("%H:%M on %b %-d %Y").to_string(),
        ));
    }
    Ok(instant.and_utc())
}

/// The pairs of digits of a text: of none but digits, and of an even number of them.
fn pairs(text: &str) -> Option<Vec<u32>> {
    if text.len() > 12
        || !text.len().is_multiple_of(2)
        || !text.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let digit = |byte: u8| u32::from(byte.wrapping_sub(b'0'));
    Some(
        text.as_bytes()
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[tens, ones]| digit(*tens) * 10 + digit(*ones))
            .collect(),
    )
}
