//! Timespecs to compare: those that at's documentation, its tests and POSIX name, and random ones.

use fastrand::Rng;

use crate::zone::Zone;

/// What at documents: its manual page, the tests in its source (parsetime.pl) and the examples of POSIX.
pub(crate) const DOCUMENTED: &[&str] = &[
    "now",
    "now + 1 min",
    "now + 23 min",
    "now + 1 hour",
    "now + 23 hours",
    "now + 1 day",
    "now + 1 week",
    "now + 1 month",
    "now + 1 year",
    "23:55",
    "23:55 + 7 min",
    "12:00",
    "12:00 + 5 min",
    "12:00 + 2 hours",
    "12:00 Dec 17",
    "12:00 Oct 17",
    "12:00 Oct 17 + 7 days",
    "12:00 Oct 17 + 35 days",
    "00:00 Dec 24",
    "00:00 Dec 24 + 31 days",
    "00:00 Dec 24 + 358 days",
    "23:55 Dec 31",
    "23:55 Dec 31 + 7 minutes",
    "Jan 32",
    "Feb 30",
    "Apr 31",
    "May -1",
    "Oct 0",
    "20:00 UTC",
    "4pm + 3 days",
    "10am Jul 31",
    "1am tomorrow",
    "6pm today",
    "midnight",
    "noon",
    "teatime",
    "teatime tomorrow",
    "now + 3 minutes",
    "now + 2 hours",
    "now + 4 days",
    "now + 5 weeks",
    "16:00 123126",
    "16:00 12312027",
    "16:00 12/31/26",
    "16:00 12/31/2027",
    "16:00 31.12.26",
    "16:00 31.12.2027",
    "16:00 26-12-31",
    "16:00 2027-12-31",
    "0815am Jan 24",
    "8 :15amjan24",
    "now + 1day",
    "5 pm FRIday",
    "17 utc+ 30minutes",
    "now next hour",
    "now next week",
    "noon fri next week",
    "8 + 3 days",
    "16 tomorrow",
    "nov 24,2027",
    "",
    " ",
];

/// Zones with every kind of clock change, and without.
pub(crate) const ZONES: &[&str] = &[
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Europe/London",
    "America/Santiago",
    "Asia/Tokyo",
    "Asia/Kolkata",
    "Australia/Sydney",
    "America/St_Johns",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Asia/Beirut",
    "Australia/Lord_Howe",
    "Europe/Dublin",
];

/// A day's seconds.
const DAY: i64 = 86_400;

/// A form that is read: words, or the argument of `-t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Words,
    Touch,
}

/// A zone, "now" in it, and a text.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) zone: &'static str,
    pub(crate) now: i64,
    pub(crate) form: Form,
    pub(crate) text: String,
}

/// The zone at an index, and the one of a name.
pub(crate) fn zone_named(name: &str) -> &'static str {
    ZONES
        .iter()
        .find(|zone| **zone == name)
        .unwrap_or_else(|| panic!("no zone {name} in ZONES"))
}

/// Every documented timespec at a few moments, in the zones of the first half of the list.
pub(crate) fn documented() -> Vec<Case> {
    // The "now" of parsetime.pl, a Monday afternoon, the hours around clock changes of Berlin and of New York, the last
    // minute of a year and a leap day.
    let nows = [
        ("UTC", 1_258_462_020),
        ("America/New_York", 1_146_160_800),
        ("Europe/Berlin", 1_795_438_055),
        ("Europe/Berlin", 1_774_745_975),
        ("Europe/Berlin", 1_792_886_400),
        ("America/New_York", 1_793_510_000),
        ("Asia/Tokyo", 1_798_729_199),
        ("UTC", 1_835_430_000),
    ];
    let case = |(zone, now): (&str, i64), text: &str| Case {
        zone: zone_named(zone),
        now,
        form: Form::Words,
        text: text.to_owned(),
    };
    nows.into_iter()
        .flat_map(|now| DOCUMENTED.iter().map(move |text| case(now, text)))
        // Over, so a year later; clocks change two days earlier then.
        .chain([case(
            ("Australia/Sydney", 1_948_890_623),
            "next tuesday - 3 days",
        )])
        .collect()
}

/// A number of random cases: `per_now` at each moment.
pub(crate) fn random(rng: &mut Rng, count: usize, per_now: usize) -> Vec<Case> {
    let mut cases = Vec::with_capacity(count);
    while cases.len() < count {
        let zone = ZONES[rng.usize(..ZONES.len())];
        let now = now(rng, zone);
        for _ in 0..per_now.min(count - cases.len()) {
            let (form, text) = if rng.u32(..12) == 0 {
                (Form::Touch, touch(rng, zone, now))
            } else {
                (Form::Words, words(rng, zone, now))
            };
            cases.push(Case {
                zone,
                now,
                form,
                text,
            });
        }
    }
    cases
}

/// A moment from 2024 to 2036: one of three is in the hours around a clock change, one in the days before.
fn now(rng: &mut Rng, zone: &str) -> i64 {
    let any = rng.i64(1_704_067_200..2_082_758_400);
    let changes = Zone::named(zone).changes(any, any + 366 * DAY);
    match (rng.u32(..3), changes.as_slice()) {
        (0, [_, ..]) => changes[rng.usize(..changes.len())] + rng.i64(-3 * 3600..3 * 3600),
        (1, [_, ..]) => changes[rng.usize(..changes.len())] - rng.i64(0..40 * DAY),
        _ => any,
    }
}

fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.usize(..of.len())]
}

const WEEKDAYS: &[&str] = &[
    "sun",
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];
const MONTHS: &[&[&str]] = &[
    &["jan", "january"],
    &["feb", "february"],
    &["mar", "march"],
    &["apr", "april"],
    &["may"],
    &["jun", "june"],
    &["jul", "july"],
    &["aug", "august"],
    &["sep", "september"],
    &["oct", "october"],
    &["nov", "november"],
    &["dec", "december"],
];
const PERIODS: &[&str] = &[
    "min", "minute", "minutes", "hour", "hours", "day", "days", "week", "weeks", "month", "months",
    "year", "years",
];

fn words(rng: &mut Rng, zone: &str, now: i64) -> String {
    let text = match rng.u32(..20) {
        0..=2 => format!("now{}", increment(rng)),
        3..=5 => format!("{}{}", date(rng, zone, now), maybe_increment(rng)),
        6..=10 => format!("{}{}", time(rng), maybe_increment(rng)),
        _ => format!(
            "{} {}{}",
            time(rng),
            date(rng, zone, now),
            maybe_increment(rng)
        ),
    };
    let text = match rng.u32(..8) {
        0 => text.to_uppercase(),
        1 => text.replace(' ', ""),
        2 => text.replace(' ', "  "),
        _ => text,
    };
    if rng.u32(..6) == 0 {
        broken(rng, &text)
    } else {
        text
    }
}

/// One character or word more, less, or another.
fn broken(rng: &mut Rng, text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    let index = rng.usize(..words.len());
    let other = pick(
        rng,
        &[
            "now",
            "at",
            "next",
            "pm",
            "am",
            "utc",
            "0",
            "7",
            "12",
            "24",
            "31",
            "60",
            "100",
            "1900",
            "2030",
            "99999",
            "2147483648",
            "+",
            "-",
            "/",
            ":",
            ",",
            "fri",
            "noon",
            "may",
            "day",
            "é",
            "foo",
            "\u{3000}",
        ],
    );
    match rng.u32(..4) {
        0 => _ = words.remove(index),
        1 => words[index] = other,
        2 => words.insert(index, other),
        _ => {
            let mut letters: Vec<char> = text.chars().collect();
            if !letters.is_empty() {
                let index = rng.usize(..letters.len());
                letters[index] = other.chars().next().unwrap();
            }
            return letters.into_iter().collect();
        }
    }
    words.join(" ")
}

fn time(rng: &mut Rng) -> String {
    // The hours at which clocks change are as frequent as all others.
    let (hour, minute) = (
        if rng.bool() {
            rng.u32(..4)
        } else {
            rng.u32(..25)
        },
        rng.u32(..60),
    );
    let half = pick(rng, &["am", "pm", " am", " pm"]);
    let separator = pick(rng, &[":", ":", ":", ":", ".", ",", "'", "h"]);
    let time = match rng.u32(..12) {
        0 => "noon".to_owned(),
        1 => "midnight".to_owned(),
        2 => "teatime".to_owned(),
        3 => format!("{hour:02}{minute:02}"),
        4 => format!("{}{half}", hour % 14),
        5 => format!("{}{separator}{minute:02}{half}", hour % 14),
        6 => format!("{hour}"),
        7 => format!("{:02}{minute:02}{half}", hour % 14),
        8 => format!("{hour} : {minute}"),
        _ => format!("{hour:02}{separator}{minute:02}"),
    };
    match rng.u32(..8) {
        0 => time + " utc",
        _ => time,
    }
}

/// The year, month and day of a near day, or of any.
fn day(rng: &mut Rng, zone: &str, now: i64) -> (i64, u32, u32) {
    use chrono::Datelike;
    if rng.u32(..4) == 0 {
        return (rng.i64(2020..2045), rng.u32(1..=12), rng.u32(1..=31));
    }
    let changes = Zone::named(zone).changes(now - DAY, now + 366 * DAY);
    let day = match changes.first() {
        Some(change) if rng.bool() => *change,
        _ => now + rng.i64(-5..30) * DAY,
    };
    let day = Zone::named(zone).at(day);
    (day.year().into(), day.month(), day.day())
}

fn date(rng: &mut Rng, zone: &str, now: i64) -> String {
    let (year, month, day) = day(rng, zone, now);
    let name = pick(rng, MONTHS[usize::try_from(month).unwrap() - 1]);
    let short = year % 100;
    match rng.u32(..20) {
        0 => "today".to_owned(),
        1 | 2 => "tomorrow".to_owned(),
        3 | 4 => pick(rng, WEEKDAYS).to_owned(),
        5 => format!("next {}", pick(rng, WEEKDAYS)),
        6 => format!("next {}", pick(rng, PERIODS)),
        7 => format!("{name} {day}"),
        8 => format!("{name} {day} {short:02}"),
        9 => format!("{name} {day}, {year}"),
        10 => format!("{name} {day},{year}"),
        11 => format!("{day} {name}"),
        12 => format!("{day} {name} {year}"),
        13 => format!("{month}/{day}/{year}"),
        14 => format!("{month:02}/{day:02}/{short:02}"),
        15 => format!("{month}{day:02}{short:02}"),
        16 => format!("{month:02}{day:02}{year}"),
        17 => format!("{day}.{month}.{year}"),
        18 => format!("{short:02}-{month}-{day}"),
        _ => format!("{year}-{month:02}-{day:02}"),
    }
}

fn maybe_increment(rng: &mut Rng) -> String {
    if rng.u32(..3) == 0 {
        increment(rng)
    } else {
        String::new()
    }
}

fn increment(rng: &mut Rng) -> String {
    let count = match rng.u32(..12) {
        0 => rng.u32(..1_000_000),
        1..=3 => rng.u32(..400),
        _ => rng.u32(..15),
    };
    let period = pick(rng, PERIODS);
    match rng.u32(..12) {
        0 => format!(" - {count} {period}"),
        1 => format!(" next {period}"),
        2 => format!(" +{count}{period}"),
        3 => String::new(),
        _ => format!(" + {count} {period}"),
    }
}

fn touch(rng: &mut Rng, zone: &str, now: i64) -> String {
    let (year, month, day) = day(rng, zone, now);
    let (hour, minute) = (
        if rng.bool() {
            rng.u32(..4)
        } else {
            rng.u32(..25)
        },
        rng.u32(..61),
    );
    let year = match rng.u32(..3) {
        0 => String::new(),
        1 => format!(
            "{:02}",
            if rng.bool() {
                rng.i64(..100)
            } else {
                year % 100
            }
        ),
        _ => format!("{year}"),
    };
    let seconds = if rng.bool() {
        format!(".{:02}", rng.u32(..62))
    } else {
        String::new()
    };
    let text = format!("{year}{month:02}{day:02}{hour:02}{minute:02}{seconds}");
    if rng.u32(..8) == 0 {
        broken(rng, &text)
    } else {
        text
    }
}
