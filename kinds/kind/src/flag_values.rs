//! How the values of flags are written.

use std::time::Duration;

use chrono::TimeDelta;

/// Parses a duration.
///
/// # Errors
/// When the text is none. The message gives examples.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "a duration is written like 500ms, 15s, 1m30s, 12h or 7d".to_owned())
}

/// Parses a duration to calculate with.
///
/// # Errors
/// When the text is none, or too long.
pub fn period(text: &str) -> Result<TimeDelta, String> {
    TimeDelta::from_std(duration(text)?).map_err(|_| "that is too long".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn durations_are_written_as_the_help_says() {
        for (text, seconds) in [
            ("500ms", 0.5),
            ("15s", 15.0),
            ("1m30s", 90.0),
            ("12h", 43_200.0),
            ("7d", 604_800.0),
        ] {
            let read = duration(text).unwrap().as_secs_f64();
            assert!((read - seconds).abs() < 1e-9, "{text}");
        }
        assert!(duration("soon").is_err() && duration("15").is_err());
    }
}
