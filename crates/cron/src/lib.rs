#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// A text goes through `parse`, with `every` for durations, into a `Schedule` of `fields` or a duration; `next` finds the
// next time in a `Zone`.
mod error;
mod every;
mod fields;
mod next;
mod parse;
mod schedule;
mod zone;

pub use error::ScheduleError;
pub use fields::Fields;
pub use parse::{MAX_LEN, parse, parse_duration};
pub use schedule::Schedule;
pub use zone::{Moment, Zone};
