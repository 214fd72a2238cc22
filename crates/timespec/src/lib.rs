#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod calendar;
mod error;
mod grammar;
mod lexer;
mod mktime;
mod touch;

use chrono::{DateTime, TimeZone, Utc};

pub use error::{EXAMPLES, Error};
pub use touch::parse_touch;

/// The instant that a timespec means at `now`, in the time zone of `now`.
///
/// ```text
/// timespec  = "now" [increment] | time [date] [increment] | date [increment]
/// time      = 16:00, 1600, 16, each with or without am or pm, noon, midnight, teatime (16:00); perhaps followed by utc
/// date      = today, tomorrow, fri, next fri, next week, nov 24, nov 24 2026, 24 nov, 24 nov 2026,
///             11/24/2026, 112426, 11242026, 2026-11-24, 24.11.2026
/// increment = "+" or "-", a number, and minutes, hours, days, weeks, months or years; or "next" and one of these
/// ```
///
/// Upper and lower case are the same, and no blanks are needed. Without a date, a time that has passed today is
/// tomorrow's. Without a time, the time is that of `now`. A date without a year that has passed is of the next year.
///
/// ```
/// use chrono::{DateTime, FixedOffset};
///
/// let now: DateTime<FixedOffset> = "2026-11-23T13:47:35+01:00".parse()?;
/// let instant = at_timespec::parse("16:00 tomorrow", &now)?;
/// assert_eq!(instant.to_rfc3339(), "2026-11-24T15:00:00+00:00");
///
/// let error = at_timespec::parse("16:00 tommorow", &now).unwrap_err();
/// assert!(error.to_string().contains("did you mean \"tomorrow\"?"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the text is not a timespec, names a date that does not exist, or means an instant before the current minute or
/// outside the years 1 to 9999.
pub fn parse<Tz: TimeZone>(words: &str, now: &DateTime<Tz>) -> Result<DateTime<Utc>, Error> {
    let timespec = grammar::parse(words)?;
    if timespec.is_utc() {
        calendar::resolve(&timespec, &now.with_timezone(&Utc))
    } else {
        calendar::resolve(&timespec, now)
    }
}
