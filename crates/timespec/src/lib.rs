//! The times of at(1): `16:00 tomorrow`, `noon + 3 days`, `teatime fri`, `now + 5 minutes`, and `-t 202611241600`.
//!
//! [`parse`] reads a timespec, [`parse_touch`] the argument of `-t`. Both need an instant "now" in a time zone, and return
//! an instant. They accept what POSIX defines and what Debian's at 3.2.5 accepts, and mean what Debian's at means by it.
//! The seconds of "now" are dropped, as at does: `now + 5 minutes` at 12:47:35 is 12:52:00. [`parse`] rejects an
//! instant before the current minute; [`parse_touch`], as `at -t`, does not.
//!
//! # Clock changes
//! A time of day is resolved as glibc's `mktime` does with `tm_isdst = -1`, which is what at calls:
//! - A time that clocks skip moves forward by the length of the gap: `2:30 mar 29 2026` in Berlin is 3:30. Only
//!   [`parse_touch`] rejects it.
//! - Of a time that clocks show twice, `mktime` finds the second in zones east of Greenwich, and the first in zones west
//!   of it: it starts its search at the instant whose UTC time of day is the one wanted.
//! - Days, weeks, months and years keep the time of day. Minutes and hours count elapsed time, and `now` is this very
//!   instant; at differs, and around a clock change is an hour late, or rejects `now + 5 minutes` as past.
//!
//! `tests/debian_at` compares all of it with at itself, and lists every difference.

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
/// let instant = my_operator_timespec::parse("16:00 tomorrow", &now)?;
/// assert_eq!(instant.to_rfc3339(), "2026-11-24T15:00:00+00:00");
///
/// let error = my_operator_timespec::parse("16:00 tommorow", &now).unwrap_err();
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

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
