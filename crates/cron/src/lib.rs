//! Cron schedules with the semantics of Kubernetes' own CronJob: what it accepts, and when it runs next.
//!
//! The API server and the CronJob controller read a schedule with `ParseStandard` of the Go module
//! `github.com/robfig/cron/v3`. What that accepts is accepted here and means the same, so [`parse()`] and the search
//! behind [`Schedule::next`] follow its source; `tests/oracle/cron.rs` of the workspace tests both against it. Crates
//! that read cron differ from it in what they accept and in what becomes of the hour that a change of the clocks skips
//! or repeats, and a next time that differs from what the controller does is worse than none.
//!
//! The text goes through `parse`, with `every` for durations, into a [`Schedule`] of `fields` or a duration; `next`
//! finds the next time in a [`Zone`].

mod error;
mod every;
mod fields;
mod next;
mod parse;
mod schedule;
mod zone;

pub use error::ScheduleError;
pub use fields::Fields;
pub use parse::{MAX_LEN, parse};
pub use schedule::Schedule;
pub use zone::{Moment, Zone};

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
