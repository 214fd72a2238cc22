//! The duration after `@every `, as Go's `time.ParseDuration` parses it.

use chrono::TimeDelta;

use crate::error::Misread;

/// Nanoseconds of each unit. The micro sign and the Greek letter both mean millionths.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Go's durations are nanoseconds in 64 bits.
const MAX_SPAN: u64 = i64::MAX as u64;
const TOO_LONG: &str = "a time span may not be longer than 292 years";

/// Parses a duration such as `1h30m`, truncated to whole seconds and at least one, as the module
/// does it: even a negative one means a second.
pub(crate) fn read(text: &str) -> Result<TimeDelta, Misread> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut rest = unsigned;
    let here = |rest: &str| text.chars().count() - rest.chars().count();
    let mut sum: u64 = 0;
    if rest.is_empty() {
        return Err((here(rest), "expected a time span such as 1h30m".to_owned()));
    }
    while !rest.is_empty() && unsigned != "0" {
        let start = rest;
        let whole = digits(&mut rest);
        let fraction = match rest.strip_prefix('.') {
            Some(behind) => {
                rest = behind;
                digits(&mut rest)
            }
            None => "",
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err((here(start), "expected a number".to_owned()));
        }
        let end = rest.find(|c: char| c == '.' || c.is_ascii_digit());
        let (name, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let Some((_, unit)) = UNITS.iter().find(|(unit, _)| *unit == name) else {
            return Err((
                here(rest),
                "expected a unit: h, m, s, ms, us or ns".to_owned(),
            ));
        };
        rest = behind;
        sum = nanoseconds(whole, fraction, *unit)
            .and_then(|part| sum.checked_add(part))
            .filter(|sum| *sum <= MAX_SPAN + u64::from(text.starts_with('-')))
            .ok_or_else(|| (here(start), TOO_LONG.to_owned()))?;
    }
    let seconds = if text.starts_with('-') {
        1
    } else {
        (sum / 1_000_000_000).max(1)
    };
    let span = i64::try_from(seconds).ok().and_then(TimeDelta::try_seconds);
    span.ok_or_else(|| (0, TOO_LONG.to_owned()))
}

/// Takes the leading digits.
fn digits<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (taken, behind) = rest.split_at(end);
    *rest = behind;
    taken
}

/// `whole.fraction` units.
fn nanoseconds(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = match whole {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    whole.checked_mul(unit)?.checked_add(part(fraction, unit))
}

/// `0.fraction` units, in floating point with as many digits as fit, as in Go: what it rounds up to
/// a whole unit is one here too.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn part(fraction: &str, unit: u64) -> u64 {
    const MAX_PART: u64 = 1 << 63;
    let (mut part, mut scale) = (0, 1.0);
    for digit in fraction.bytes() {
        if part > (MAX_PART - 1) / 10 {
            break;
        }
        let longer = part * 10 + u64::from(digit - b'0');
        if longer > MAX_PART {
            break;
        }
        part = longer;
        scale *= 10.0;
    }
    (part as f64 * (unit as f64 / scale)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<i64> {
        read(text).ok().map(|span| span.num_seconds())
    }

    #[test]
    fn spans_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("1h30m", 5_400),
            ("+1h", 3_600),
            ("1.5h", 5_400),
            (".5m", 30),
            ("2.s", 2),
            ("1m1.999s", 61),
            ("0", 1),
            ("-0", 1),
            ("-5h", 1),
            ("10ms", 1),
            ("2000000\u{b5}s", 2),
            ("2000000\u{3bc}s", 2),
            ("2562047h", 2_562_047 * 3_600),
            // Rounded up by Go's floating point.
            ("1.999999999999999999995h", 7_200),
            ("1.599999999999999999999h", 5_760),
            // Digits that do not fit have no effect, not even that of being one digit less.
            ("0.00000000000000000000000000000000001s", 1),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for bad in [
            "", " 1h", "1h ", "1", "h", ".s", "-.s", "1 h", "1d", "1H", "--1h", "2562048h", "00",
            "\u{661}h",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_fault_has_its_place() {
        let place = |text| read(text).err().map(|(at, _)| at);
        assert_eq!(place(""), Some(0));
        assert_eq!(place("1h30"), Some(4));
        assert_eq!(place("1h\u{b5}s"), Some(1));
        assert_eq!(place("1h9999999h"), Some(2));
    }
}
