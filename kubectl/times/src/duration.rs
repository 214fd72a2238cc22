//! Durations of flags.

use std::time::Duration;

use my_operator_kind::flag_values;

/// What the operator's flags take: `500ms`, `90s`, `1h30m`, `7d`. As with the durations of kubectl, only 0 needs no unit: a
/// number alone may be meant as minutes.
///
/// # Errors
/// With a text that says what to write.
pub fn parse(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        _ if is_number(text) => Err(format!("it has no unit: write {text}s or {text}m")),
        _ => flag_values::duration(text),
    }
}

/// The same for `--request-timeout`, where a number alone is seconds, as kubectl takes it.
///
/// # Errors
/// With a text that says what to write.
pub fn request_timeout(text: &str) -> Result<Duration, String> {
    if is_number(text) {
        let seconds = text.parse().map(Duration::from_secs);
        return seconds.map_err(|_| "it is too long".to_owned());
    }
    parse(text)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
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
    fn a_duration_has_a_unit() {
        for (text, milliseconds) in [
            ("0", 0),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("0s", 0),
            ("7d", 604_800_000),
        ] {
            let expected = Ok(Duration::from_millis(milliseconds));
            assert_eq!(parse(text), expected, "{text}");
            assert_eq!(request_timeout(text), expected, "{text}");
        }
        let hint =
            |text: &str| Err::<Duration, _>(format!("it has no unit: write {text}s or {text}m"));
        for text in ["5", "90", "00", "99999999999999999999"] {
            assert_eq!(parse(text), hint(text));
        }
        assert_eq!(
            seconds("90"),
            Err("it has no unit: write 90s or 90m".to_owned())
        );
        assert_eq!(request_timeout("90"), Ok(Duration::from_secs(90)));
        for text in ["", "s", "5x", "-1s", "1h30", "99999999999999999999h", "+5"] {
            assert!(parse(text).is_err(), "{text}");
            assert!(request_timeout(text).is_err(), "{text}");
        }
        assert_eq!(seconds("1m"), Ok(60));
        assert!(seconds("1500ms").is_err());
    }
}
