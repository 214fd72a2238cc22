//! What is wrong with a schedule.

use std::fmt;

/// What is wrong with a schedule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleError {
    /// The position in the text, in characters, starting at 1.
    pub character: usize,
    /// The field, if the error is in one, such as `day of month`.
    pub field: Option<&'static str>,
    /// What is wrong there.
    pub problem: String,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field {
            Some(field) => write!(f, "at character {} ({field}): ", self.character)?,
            None => write!(f, "at character {}: ", self.character)?,
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ScheduleError {}

/// The position of an error, in characters from the start of the parsed text, and the error.
pub(crate) type Misread = (usize, String);
