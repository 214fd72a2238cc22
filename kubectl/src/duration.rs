//! Durations of flags.

use std::time::Duration;

use my_operator::kinds::shared::flag_values;

/// What the operator's flags take (`500ms`, `90s`, `1h30m`, `7d`), and as with kubectl, a number alone: seconds.
///
/// # Errors
/// With a text that says what to write.
pub fn parse(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = text.parse().map(Duration::from_secs);
        return seconds.map_err(|_| "it is too long".to_owned());
    }
    let read = flag_values::duration(text);
    read.map_err(|wrong| format!("{wrong}; a number alone is seconds"))
}

/// The same in whole seconds, as fields of specs have them.
///
/// # Errors
/// As [`parse`], and for fractions of a second.
pub fn seconds(text: &str) -> Result<i64, String> {
    let duration = parse(text)?;
    if duration.subsec_nanos() > 0 {
        return Err("write whole seconds".to_owned());
    }
    i64::try_from(duration.as_secs()).map_err(|_| "it is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_seconds() {
        for (text, milliseconds) in [
            ("0", 0),
            ("5", 5_000),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("0s", 0),
            ("7d", 604_800_000),
        ] {
            let expected = Ok(Duration::from_millis(milliseconds));
            assert_eq!(parse(text), expected, "{text}");
        }
        for text in ["", "s", "5x", "-1s", "1h30", "99999999999999999999h", "+5"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(seconds("1m"), Ok(60));
        assert!(seconds("1500ms").is_err());
    }
}
