//! The grammar of schedules against a second reader, written from the documents alone: slow, and so
//! plain that one sees that it is right.

use chrono::{DateTime, TimeDelta, Utc};
use my_operator::kinds::at::schedule::{Schedule, parse};
use my_operator_rounds::{given_seed, lengths};

use super::random::{Random, cases};

/// What a schedule means, to the plain reader.
#[derive(Debug, PartialEq)]
enum Meaning {
    /// So many nanoseconds after 1970 began.
    At(i128),
    /// So many seconds after it was set.
    After(i128),
}

/// `now`, `now + N UNIT`, or an instant of RFC 3339.
fn plain(text: &str) -> Option<Meaning> {
    if text == "now" {
        return Some(Meaning::After(0));
    }
    match text.strip_prefix("now") {
        Some(rest) => plain_span(rest),
        None => plain_instant(text),
    }
}

/// `+ N UNIT`: blanks may stand around the plus, and at least one must stand before the unit.
fn plain_span(text: &str) -> Option<Meaning> {
    let span = text.trim_start_matches(' ').strip_prefix('+')?;
    let (number, unit) = span.trim_start_matches(' ').split_once(' ')?;
    let unit = unit.trim_start_matches(' ');
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    // However many zeros stand before it.
    let number = number.trim_start_matches('0');
    if number.is_empty() || number.len() > 6 {
        return None;
    }
    let seconds = [
        ("second", 1),
        ("minute", 60),
        ("hour", 3_600),
        ("day", 86_400),
        ("week", 604_800),
    ]
    .into_iter()
    .find(|(name, _)| unit == *name || unit == format!("{name}s"))?;
    Some(Meaning::After(number.parse::<i128>().ok()? * seconds.1))
}

/// `YYYY-MM-DDThh:mm:ss`, at most nine digits of a fraction, and `Z` or `+hh:mm` or `-hh:mm`. The year
/// is one of 1970 to 9999, as it is written and in UTC.
fn plain_instant(text: &str) -> Option<Meaning> {
    let chars: Vec<char> = text.chars().collect();
    let number = |from: usize, to: usize| -> Option<i128> {
        let digits: String = chars.get(from..to)?.iter().collect();
        let all = digits.chars().all(|c| c.is_ascii_digit());
        if all { digits.parse().ok() } else { None }
    };
    for (at, c) in [(4, '-'), (7, '-'), (10, 'T'), (13, ':'), (16, ':')] {
        if chars.get(at) != Some(&c) {
            return None;
        }
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let mut rest = &chars[19..];
    let mut nanoseconds = 0;
    if let ['.', fraction @ ..] = rest {
        let digits: Vec<_> = fraction.iter().take_while(|c| c.is_ascii_digit()).collect();
        if digits.is_empty() || digits.len() > 9 {
            return None;
        }
        for i in 0..9 {
            let digit = digits.get(i).and_then(|c| c.to_digit(10)).unwrap_or(0);
            nanoseconds = nanoseconds * 10 + i128::from(digit);
        }
        rest = &fraction[digits.len()..];
    }
    let from = chars.len() - rest.len();
    let east = match rest {
        ['Z'] => 0,
        [sign @ ('+' | '-'), _, _, ':', _, _] => {
            let (hours, minutes) = (number(from + 1, from + 3)?, number(from + 4, from + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = hours * 3_600 + minutes * 60;
            if *sign == '+' { seconds } else { -seconds }
        }
        _ => return None,
    };
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    if day < 1 || day > days_of(year, month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let local = (days_before(year, month) + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second;
    let utc = local - east;
    if !(0..END).contains(&utc) {
        return None;
    }
    Some(Meaning::At(utc * 1_000_000_000 + nanoseconds))
}

/// The end of the year 9999, in seconds: 2,932,897 days.
const END: i128 = 2_932_897 * 86_400;

fn days_of(year: i128, month: i128) -> i128 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The days from 1970 to the first of that month, one month after the other.
fn days_before(year: i128, month: i128) -> i128 {
    let whole: i128 = (1970..year).map(|year| 365 + days_of(year, 2) - 28).sum();
    whole + (1..month).map(|month| days_of(year, month)).sum::<i128>()
}

fn nanoseconds(instant: DateTime<Utc>) -> i128 {
    i128::from(instant.timestamp()) * 1_000_000_000 + i128::from(instant.timestamp_subsec_nanos())
}

/// Both readers accept the same, and mean the same.
fn check(text: &str) -> bool {
    let ours = parse(text);
    let meaning = match &ours {
        Ok(Schedule::At(instant)) => Some(Meaning::At(nanoseconds(*instant))),
        Ok(Schedule::Now) => Some(Meaning::After(0)),
        Ok(Schedule::After(delta)) => {
            assert_eq!(*delta, TimeDelta::seconds(delta.num_seconds()));
            Some(Meaning::After(delta.num_seconds().into()))
        }
        Err(error) => {
            // The place is one in the text, or just behind it.
            assert!((1..=text.chars().count() + 1).contains(&error.character));
            None
        }
    };
    assert_eq!(meaning, plain(text), "{text:?}: {ours:?}");
    // The instant that is meant, from several bases; none beyond the year 9999.
    for base in [
        "1970-01-01T00:00:00Z",
        "2026-04-12T10:00:00.25Z",
        "9999-12-31T23:59:58.5Z",
    ] {
        let base = DateTime::parse_from_rfc3339(base).unwrap().to_utc();
        let meant = match plain(text) {
            None => continue,
            Some(Meaning::At(at)) => at,
            Some(Meaning::After(seconds)) => nanoseconds(base) + seconds * 1_000_000_000,
        };
        let ours = ours.as_ref().unwrap().instant(base).map(nanoseconds);
        assert_eq!(
            ours,
            (meant < END * 1_000_000_000).then_some(meant),
            "{text:?} from {base}"
        );
    }
    meaning.is_some()
}

/// A number of that many digits, and of that range more often than not.
fn digits(random: &mut Random, width: usize, from: usize, to: usize) -> String {
    let value = match random.below(12) {
        0 => random.below(10_usize.pow(u32::try_from(width).unwrap())),
        1 => from,
        2 => to,
        _ => from + random.below(to - from + 1),
    };
    format!("{value:0width$}")
}

fn blanks(random: &mut Random, least: usize) -> String {
    let more = [0, 0, 0, 0, 1, 3][random.below(6)];
    " ".repeat(least + more)
}

fn instant(random: &mut Random) -> String {
    let mut text = String::new();
    for (separator, width, from, to) in [
        ("", 4, 1970, 9999),
        ("-", 2, 1, 12),
        ("-", 2, 1, 31),
        ("T", 2, 0, 23),
        (":", 2, 0, 59),
        (":", 2, 0, 59),
    ] {
        text += separator;
        text += &digits(random, width, from, to);
    }
    if random.once_in(2) {
        let n = [1, 3, 6, 9, 9, 10, 0][random.below(7)];
        text += ".";
        for _ in 0..n {
            text += &random.below(10).to_string();
        }
    }
    match random.below(3) {
        0 => {
            text += random.one(&["+", "-"]);
            text += &digits(random, 2, 0, 23);
            text += ":";
            text + &digits(random, 2, 0, 59)
        }
        _ => text + "Z",
    }
}

fn span(random: &mut Random) -> String {
    let before = blanks(random, 0);
    let after = blanks(random, 0);
    let zeros = "0".repeat([0, 0, 0, 1, 20][random.below(5)]);
    let most = [9, 999_999, 10_000_000][random.below(3)];
    let number = random.below(most + 1);
    let least = usize::from(!random.once_in(10));
    let blank = blanks(random, least);
    let unit = random.one(&["second", "minute", "hour", "day", "week", "month", "sec"]);
    let plural = random.one(&["", "s", "s"]);
    format!("now{before}+{after}{zeros}{number}{blank}{unit}{plural}")
}

/// One character more, less, or another one.
fn damage(random: &mut Random, text: &str) -> String {
    let pieces = [
        "0", "9", "-", ":", ".", "+", " ", "T", "t", "Z", "z", "now", "s", "\u{662}", "\u{a0}",
        "\u{2212}", "\n", "\0", "5 ", "+00:00", "E",
    ];
    let chars: Vec<char> = text.chars().collect();
    let at = random.below(chars.len() + 1);
    let before: String = chars[..at].iter().collect();
    let after: String = chars[at..].iter().collect();
    let fewer: String = chars[at..].iter().skip(1).collect();
    match random.below(4) {
        0 => format!("{before}{}{after}", random.one(&pieces)),
        1 => format!("{before}{fewer}"),
        2 => format!("{before}{}{fewer}", random.one(&pieces)),
        _ => before,
    }
}

#[test]
fn two_readers_of_schedules_accept_the_same_and_mean_the_same() {
    let accepted = std::cell::Cell::new(0);
    let count = lengths::random_schedules();
    cases(count, |random| {
        let mut text = match random.below(9) {
            0 => "now".to_owned(),
            1..=3 => span(random),
            _ => instant(random),
        };
        for _ in 0..[0, 0, 1, 2][random.below(4)] {
            text = damage(random, &text);
        }
        accepted.set(accepted.get() + u64::from(check(&text)));
    });
    let accepted = accepted.get();
    println!("{accepted} of {count} accepted");
    // Otherwise the readers agree about little more than nonsense. About a third is accepted.
    assert!(
        given_seed().is_some() || accepted > count / 10,
        "{accepted} of {count}"
    );
}

#[test]
fn every_day_of_the_calendar_is_known_to_both() {
    assert_eq!(days_before(10_000, 1) * 86_400, END);
    for year in (1970..2030).chain([2100, 2400, 9999]) {
        for month in 0..=13 {
            for day in [0, 1, 27, 28, 29, 30, 31, 32] {
                check(&format!("{year:04}-{month:02}-{day:02}T00:00:00Z"));
            }
        }
    }
}

#[test]
fn the_ends_of_the_calendar_are_the_same_for_both() {
    for text in [
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:00+00:01",
        "1970-01-01T00:00:00-00:01",
        "1969-12-31T23:59:59-00:01",
        "9999-12-31T23:59:59.999999999Z",
        "9999-12-31T23:59:59-00:01",
        "9999-12-31T23:59:59+00:01",
        "10000-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-06-30T23:59:60Z",
        "now + 999999 weeks",
        "now + 1000000 weeks",
        "now + 000001 week",
    ] {
        check(text);
    }
}
