//! The grammar of schedules, as `ParseStandard` of the Go module `github.com/robfig/cron/v3` reads them.

use chrono::TimeDelta;

use crate::error::{Misread, ScheduleError};
use crate::every;
use crate::fields::{Fields, STAR};
use crate::schedule::Schedule;

/// The maximum length of a schedule in bytes. Five fields that list each of their values fit twice.
pub const MAX_LEN: usize = 1024;

/// The bounds of a field.
struct Bounds {
    name: &'static str,
    least: u64,
    most: u64,
    /// The names of its values, from the lowest on.
    names: &'static [&'static str],
    /// A hint for a value that is out of bounds.
    hint: &'static str,
}

const BOUNDS: [Bounds; 5] = [
    Bounds {
        name: "minute",
        least: 0,
        most: 59,
        names: &[],
        hint: "",
    },
    Bounds {
        name: "hour",
        least: 0,
        most: 23,
        names: &[],
        hint: "",
    },
    Bounds {
        name: "day of month",
        least: 1,
        most: 31,
        names: &[],
        hint: "",
    },
    Bounds {
        name: "month",
        least: 1,
        most: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
        hint: " or jan to dec",
    },
    Bounds {
        name: "day of week",
        least: 0,
        most: 6,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
        hint: " or sun to sat, 0 being Sunday",
    },
];

/// Parses a schedule of at most [`MAX_LEN`] bytes.
///
/// ```text
/// schedule = five fields, or @yearly @annually @monthly @weekly @daily @midnight @hourly,
///            or "@every " and a time span such as 1h30m
/// fields   = minute (0-59), hour (0-23), day of month (1-31), month (1-12 or jan to dec),
///            day of week (0-6 or sun to sat, 0 being Sunday), with blanks between them
/// field    = parts with "," between them
/// part     = ("*" | "?" | value ["-" value]) ["/" step]
/// ```
///
/// `N/step` means from N to the end. When both days are restricted, a day that matches either one will do.
///
/// Rejected only here, and not by the Go module: a text of more than [`MAX_LEN`] bytes; a field that names nothing (a
/// lone comma); days that no month has (30 February), with which a CronJob would never start anything; the Turkish
/// capital that Go takes for the `i` of `fri`.
///
/// # Errors
/// The first thing that is wrong in each field, or the one that is wrong with the whole.
pub fn parse(text: &str) -> Result<Schedule, Vec<ScheduleError>> {
    let whole = |(character, problem)| {
        vec![ScheduleError {
            character,
            field: None,
            problem,
        }]
    };
    if text.len() > MAX_LEN {
        let problem = format!("may not be more than {MAX_LEN} bytes long");
        return Err(whole((1, problem)));
    }
    if let Some(at) = text.find("TZ") {
        let at = text[..at].strip_suffix("CRON_").map_or(at, str::len);
        let problem = "a time zone is not taken here: name it in timeZone".to_owned();
        return Err(whole((text[..at].chars().count() + 1, problem)));
    }
    if text.starts_with('@') {
        return descriptor(text).map_err(whole);
    }
    let five = split_into_five(text).map_err(whole)?;
    parse_fields(five).map(Schedule::Fields)
}

/// The five fields, and the position of each in characters.
fn split_into_five(text: &str) -> Result<[(usize, &str); 5], Misread> {
    let found = split_at_blanks(text);
    if let Some((character, _)) = found.get(BOUNDS.len()) {
        let problem = format!(
            "found {} fields, and nothing is expected after the five of minute, hour, day of month, month and day of week (there is none for seconds)",
            found.len()
        );
        return Err((*character, problem));
    }
    <[(usize, &str); 5]>::try_from(found.as_slice()).map_err(|_| {
        let count = match found.len() {
            1 => "1 field".to_owned(),
            n => format!("{n} fields"),
        };
        let problem = format!(
            "expected the five fields minute, hour, day of month, month and day of week, or a word such as @daily; found {count}"
        );
        (text.chars().count() + 1, problem)
    })
}

/// Parses a time span such as `1h30m`, as Go does, and truncates it to whole seconds. One of less than a second, also a
/// negative one, becomes a second.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse_duration(text: &str) -> Result<TimeDelta, ScheduleError> {
    every::read(text).map_err(|(before, problem)| ScheduleError {
        character: before + 1,
        field: None,
        problem,
    })
}

fn parse_fields(five: [(usize, &str); 5]) -> Result<Fields, Vec<ScheduleError>> {
    let mut errors = Vec::new();
    let mut bits = [0; 5];
    for ((bits, bounds), (character, field)) in bits.iter_mut().zip(&BOUNDS).zip(five) {
        match values(field, bounds) {
            Ok(values) => *bits = values,
            Err((before, problem)) => errors.push(ScheduleError {
                character: character + before,
                field: Some(bounds.name),
                problem,
            }),
        }
    }
    let [minute, hour, day_of_month, month, day_of_week] = bits;
    let fields = Fields {
        minute,
        hour,
        day_of_month,
        month,
        day_of_week,
    };
    if errors.is_empty() && !fields.has_a_day() {
        errors.push(ScheduleError {
            character: five[2].0,
            field: Some(BOUNDS[2].name),
            problem: "no month that is named has such a day, so it would never run".to_owned(),
        });
    }
    if errors.is_empty() {
        Ok(fields)
    } else {
        Err(errors)
    }
}

/// The texts between blanks, and the position of each in characters.
fn split_at_blanks(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut character, mut start) = (0, None);
    for (at, c) in text.char_indices() {
        character += 1;
        match (start, c.is_whitespace()) {
            (None, false) => start = Some((character, at)),
            (Some((first, from)), true) => {
                found.push((first, &text[from..at]));
                start = None;
            }
            _ => {}
        }
    }
    if let Some((first, from)) = start {
        found.push((first, &text[from..]));
    }
    found
}

/// The values of a field.
fn values(field: &str, bounds: &Bounds) -> Result<u64, Misread> {
    let (mut bits, mut before) = (0, 0);
    for part in field.split(',') {
        if !part.is_empty() {
            bits |= range(part, bounds).map_err(|(at, problem)| (before + at, problem))?;
        }
        before += part.chars().count() + 1;
    }
    if bits == 0 {
        return Err((0, "names nothing, so it would never run".to_owned()));
    }
    Ok(bits)
}

/// The values of a part of a field.
fn range(part: &str, bounds: &Bounds) -> Result<u64, Misread> {
    let mut pieces = part.split('/');
    let span = pieces.next().unwrap_or_default();
    let step = pieces.next();
    if pieces.next().is_some() {
        return Err((0, format!("{:?} has more than one /", cut(part, 20))));
    }
    // What follows the hyphen of `*-5` has no effect.
    let star = matches!(span.split('-').next(), Some("*" | "?"));
    let (start, mut end) = if star {
        (bounds.least, bounds.most)
    } else {
        ends(part, span, bounds)?
    };
    let step = match step {
        None => 1,
        Some(text) => {
            if !span.contains('-') {
                end = bounds.most;
            }
            let step = number(text).filter(|step| *step > 0);
            step.ok_or_else(|| {
                let text = cut(text, 20);
                (
                    span.chars().count() + 1,
                    format!("a step must be a number of 1 or more, not {text:?}"),
                )
            })?
        }
    };
    if start > end {
        return Err((0, format!("{start} comes after {end}")));
    }
    let mut bits = if star && step == 1 { STAR } else { 0 };
    let mut next = Some(start);
    while let Some(value) = next.filter(|value| *value <= end) {
        bits |= 1 << value;
        next = value.checked_add(step);
    }
    Ok(bits)
}

/// The first and the last value of `5` or `1-5`, the values of that part of a field.
fn ends(part: &str, span: &str, bounds: &Bounds) -> Result<(u64, u64), Misread> {
    let mut ends = span.split('-');
    let first = ends.next().unwrap_or_default();
    let start = value(first, bounds).map_err(|problem| (0, problem))?;
    let end = match ends.next() {
        None => start,
        Some(second) => {
            let at = first.chars().count() + 1;
            value(second, bounds).map_err(|problem| (at, problem))?
        }
    };
    if ends.next().is_some() {
        return Err((0, format!("{:?} has more than one -", cut(part, 20))));
    }
    Ok((start, end))
}

/// A value by its number or its name, within the bounds.
fn value(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let Bounds {
        least, most, hint, ..
    } = bounds;
    let named = bounds
        .names
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text));
    let value = match named {
        Some(position) => u64::try_from(position).ok().map(|nth| least + nth),
        None => number(text),
    };
    value
        .filter(|value| (least..=most).contains(&value))
        .ok_or_else(|| {
            let text = cut(text, 20);
            format!("expected a number from {least} to {most}{hint}, found {text:?}")
        })
}

/// A number as Go's `Atoi` parses it, except for negative ones.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = plain.then(|| digits.parse().ok()).flatten()?;
    u64::try_from(number).ok()
}

/// A word that begins with `@`.
fn descriptor(text: &str) -> Result<Schedule, Misread> {
    let all = |bounds: &Bounds| (bounds.least..=bounds.most).fold(STAR, |bits, n| bits | 1 << n);
    let [_, every_hour, every_day, every_month, every_weekday] = BOUNDS.each_ref().map(all);
    let mut fields = Fields {
        minute: 1,
        hour: 1,
        day_of_month: every_day,
        month: every_month,
        day_of_week: every_weekday,
    };
    match text {
        "@yearly" | "@annually" => {
            fields.day_of_month = 1 << 1;
            fields.month = 1 << 1;
        }
        "@monthly" => fields.day_of_month = 1 << 1,
        "@weekly" => fields.day_of_week = 1,
        "@daily" | "@midnight" => {}
        "@hourly" => fields.hour = every_hour,
        _ => {
            let Some(span) = text.strip_prefix("@every ") else {
                return Err((
                    1,
                    "expected @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every with a time span such as @every 1h30m".to_owned(),
                ));
            };
            let span = every::read(span)
                .map_err(|(before, problem)| ("@every ".len() + before + 1, problem))?;
            return Ok(Schedule::Every(span));
        }
    }
    Ok(Schedule::Fields(fields))
}

/// The first `most` characters, followed by `...` if the text is longer: user input goes into messages.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let faults = parse(text).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_cronjobs_take_is_taken() {
        for good in [
            "* * * * */5",
            "5 0 * * *",
            "\t0  0 1,15 * MON-fri ",
            "*/15 0-23/2 ? jan-Dec/3 ?",
            "+5 007 * * 0",
            "*-5 * * * *",
            "0 0 29 2 *",
            "0 0 30 2 1",
            "0 0 31 4,5 *",
            "1,,2, * * * *",
            "@daily",
            "@midnight",
            "@every 1h30m",
        ] {
            assert_eq!(faults(good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn every_fault_is_named_with_its_place() {
        let five = "found 6 fields, and nothing is expected after the five of minute, hour, day of month, month and day of week (there is none for seconds)";
        for (text, found) in [
            ("0 0 5 * * *", format!("at character 11: {five}")),
            (
                "",
                "at character 1: expected the five fields minute, hour, day of month, month and day of week, or a word such as @daily; found 0 fields".to_owned(),
            ),
            (
                "60 * * * *",
                "at character 1 (minute): expected a number from 0 to 59, found \"60\"".to_owned(),
            ),
            (
                "*  1,5-x * * *",
                "at character 8 (hour): expected a number from 0 to 23, found \"x\"".to_owned(),
            ),
            (
                "* * * * 7",
                "at character 9 (day of week): expected a number from 0 to 6 or sun to sat, 0 being Sunday, found \"7\"".to_owned(),
            ),
            (
                "* * L * *",
                "at character 5 (day of month): expected a number from 1 to 31, found \"L\"".to_owned(),
            ),
            ("* 5-1 * * *", "at character 3 (hour): 5 comes after 1".to_owned()),
            (
                "*/0 * * * *",
                "at character 3 (minute): a step must be a number of 1 or more, not \"0\"".to_owned(),
            ),
            (
                "1-2-3 * * * *",
                "at character 1 (minute): \"1-2-3\" has more than one -".to_owned(),
            ),
            (
                "* * */2/3 * *",
                "at character 5 (day of month): \"*/2/3\" has more than one /".to_owned(),
            ),
            (
                "* , * * *",
                "at character 3 (hour): names nothing, so it would never run".to_owned(),
            ),
            (
                "0 0 30 2 *",
                "at character 5 (day of month): no month that is named has such a day, so it would never run".to_owned(),
            ),
            (
                "0 0 31 feb,4-4,6 ?",
                "at character 5 (day of month): no month that is named has such a day, so it would never run".to_owned(),
            ),
            (
                "TZ=Asia/Tokyo 0 0 * * *",
                "at character 1: a time zone is not taken here: name it in timeZone".to_owned(),
            ),
            (
                " CRON_TZ=UTC",
                "at character 2: a time zone is not taken here: name it in timeZone".to_owned(),
            ),
            (
                "@reboot",
                "at character 1: expected @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every with a time span such as @every 1h30m".to_owned(),
            ),
            (
                "@every 1h3x",
                "at character 11: expected a unit: h, m, s, ms, us or ns".to_owned(),
            ),
            (
                "fr\u{130} * * * *",
                "at character 1 (minute): expected a number from 0 to 59, found \"fr\u{130}\"".to_owned(),
            ),
        ] {
            assert_eq!(faults(text), [found], "{text}");
        }
    }

    #[test]
    fn a_time_span_by_itself_has_the_same_grammar() {
        assert_eq!(parse_duration("1h30m"), Ok(TimeDelta::minutes(90)));
        let fault = parse_duration("4 hours").map_err(|fault| fault.to_string());
        let expected = "at character 2: expected a unit: h, m, s, ms, us or ns";
        assert_eq!(fault, Err(expected.to_owned()));
    }

    #[test]
    fn each_field_has_its_own_fault() {
        assert_eq!(faults("61 25 32 13 8").len(), 5);
        let last = &faults("61 25 32 13 sund")[4];
        assert!(last.starts_with("at character 13 (day of week)"), "{last}");
    }

    #[test]
    fn a_long_text_is_not_read() {
        let long = "1,".repeat(5_000) + " * * * *";
        assert_eq!(
            faults(&long),
            ["at character 1: may not be more than 1024 bytes long"]
        );
        let all = |from: u32, to: u32| -> String {
            let numbers: Vec<String> = (from..=to).map(|n| n.to_string()).collect();
            numbers.join(",")
        };
        let full = format!(
            "{} {} {} {} {}",
            all(0, 59),
            all(0, 23),
            all(1, 31),
            all(1, 12),
            all(0, 6)
        );
        assert!(full.len() * 2 < MAX_LEN, "{}", full.len());
        assert_eq!(faults(&full), Vec::<String>::new());
    }
}
