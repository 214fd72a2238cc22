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
pub fn parse<Tz: TimeZone>(words: &str, now: &DateTime<Tz>) -> Result<DateTime<Utc>, Error> {
    let timespec = grammar::parse(words)?;
    if timespec.is_utc() {
        calendar::resolve(&timespec, &now.with_timezone(&Utc))
    } else {
        calendar::resolve(&timespec, now)
    }
}
