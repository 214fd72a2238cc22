//! Durations of flags.

use std::time::Duration;

/// Numbers with units, as Go writes them, with days besides: `500ms`, `90s`, `1h30m`, `7d`. A number alone is seconds.
///
/// # Errors
/// With a text that says what to write.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || {
        "write a number of seconds, or numbers with a unit: 30, 500ms, 90s, 2m, 1h30m, 7d"
            .to_owned()
    };
    if text.is_empty() {
        return Err(wrong());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(Duration::from_secs).map_err(|_| wrong());
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit());
        let (unit, after) = split(after, |c| c.is_ascii_alphabetic());
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(milliseconds).ok_or_else(wrong)?;
        let part = Duration::from_millis(part);
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    Ok(total)
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

/// The characters at the start that `belongs` accepts, and the rest.
fn split(text: &str, belongs: fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
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
        for text in [
            "",
            "s",
            "5x",
            "-1s",
            "1h30",
            "99999999999999999999h",
            "1.5s",
            "+5",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(seconds("1m"), Ok(60));
        assert!(seconds("1500ms").is_err());
    }
}
