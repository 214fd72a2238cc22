//! Where the crate differs from at, and why. docs/kubectl/timespecs.md has the same list.

use at_timespec::{Error, parse};
use chrono::Datelike;

use crate::answers::Answer;
use crate::cases::{Case, Form};
use crate::zone::Zone;

/// A kind of case in which the crate means to answer otherwise than at.
pub(crate) struct Difference {
    /// What differs, as the page says it.
    pub(crate) what: &'static str,
    /// Whether a case with these answers is of this kind: the crate's own answer has to be right.
    pub(crate) applies: fn(&Case, Answer, &Result<i64, Error>) -> bool,
}

/// Every difference.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "Minutes and hours are elapsed time, and `now` is this very instant",
        applies: |case, at, ours| {
            let minute = case.now - case.now % 60;
            let counted = has(case, &["min", "hour"]);
            // at does not know in which of two equal hours it is.
            let hours = 4 * 3600;
            let change = || Zone::named(case.zone).changes(case.now - hours, case.now + hours);
            let this_instant = has(case, &["now", "today"]) || *ours == Ok(minute);
            case.form == Form::Words
                && (counted || (this_instant && !change().is_empty()))
                && differ_by_a_clock_change(case, at, ours)
        },
    },
    Difference {
        what: "A date that an increment moves to the next year keeps its time of day",
        applies: |case, at, ours| {
            let zone = Zone::named(case.zone);
            let next_year = |instant: i64| zone.at(instant).year() == zone.at(case.now).year() + 1;
            case.form == Form::Words
                && case.text.contains(['+', '-'])
                && ours.as_ref().is_ok_and(|instant| next_year(*instant))
                && differ_by_a_clock_change(case, at, ours)
        },
    },
    Difference {
        what: "`utc` applies to the whole timespec",
        // The cases of the zone UTC compare what it is then.
        applies: |case, _, ours| {
            let now = Zone::named("UTC").at(case.now);
            let same = match (ours, parse(&case.text, &now)) {
                (Ok(ours), Ok(utc)) => *ours == utc.timestamp(),
                (Err(Error::Past(_)), Err(Error::Past(_))) => true,
                _ => false,
            };
            has(case, &["utc"]) && case.zone != "UTC" && same
        },
    },
    Difference {
        what: "A date that does not exist is an error",
        applies: |_, at, ours| {
            at != Answer::Garbled
                && match ours {
                    Err(Error::NoSuchDate { .. }) => true,
                    // MMDDYY with day 00.
                    Err(Error::Invalid { problem, .. }) => problem.starts_with("days of a month"),
                    _ => false,
                }
        },
    },
    Difference {
        what: "A year from 100 to 1900 is an error",
        applies: |_, at, ours| {
            at != Answer::Garbled
                && matches!(
                    ours,
                    Err(Error::Invalid {
                        problem: "the year is in the past",
                        ..
                    })
                )
        },
    },
    Difference {
        what: "A number above 2147483647 is an error, and so is a time outside the years 1 to 9999",
        applies: |_, at, ours| {
            const YEAR_1: i64 = -62_135_596_800;
            const YEAR_10000: i64 = 253_402_300_800;
            match ours {
                Err(Error::Invalid {
                    problem: "the number is too large",
                    word,
                    ..
                }) => word.parse::<i32>().is_err(),
                Err(Error::OutOfRange) => match at {
                    Answer::Instant(instant) => !(YEAR_1..YEAR_10000).contains(&instant),
                    other => other == Answer::Past,
                },
                _ => false,
            }
        },
    },
    Difference {
        what: "A letter outside ASCII is an error",
        applies: |case, at, ours| at != Answer::Garbled && ours.is_err() && !case.text.is_ascii(),
    },
    Difference {
        what: "Half an hour of summer time (Lord Howe) and Irish winter time count as other clock changes",
        applies: |case, at, ours| {
            // at adds or takes an hour where the name of the season changes: in Dublin, that is the wrong way round.
            let odd = ["Europe/Dublin", "Australia/Lord_Howe"].contains(&case.zone);
            let words = case.form == Form::Words;
            match (at, ours) {
                (Answer::Instant(at), Ok(ours)) if odd && words => {
                    let distance = (at - ours).abs();
                    distance <= 7200 && distance % 1800 == 0
                }
                (Answer::Past, Ok(ours)) => odd && words && ours - case.now < 7200,
                _ => false,
            }
        },
    },
];

fn has(case: &Case, words: &[&str]) -> bool {
    let text = case.text.to_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// Whether both are the same but for a change of the clocks.
fn differ_by_a_clock_change(case: &Case, at: Answer, ours: &Result<i64, Error>) -> bool {
    const DAY: i64 = 86_400;
    let zone = Zone::named(case.zone);
    let minute = case.now - case.now % 60;
    let mut sizes = zone
        .changes(case.now - 366 * DAY, case.now + 366 * DAY)
        .into_iter()
        .map(|change| (zone.offset(change) - zone.offset(change - 1)).abs());
    match (at, ours) {
        // at may adjust twice, and a time of day that it takes to be over is tomorrow.
        (Answer::Instant(at), Ok(ours)) => {
            let distance = (at - ours).abs();
            sizes.any(|size| [size, 2 * size, DAY - size, DAY + size].contains(&distance))
        }
        // One of both is just over.
        (Answer::Past, &Ok(instant)) | (Answer::Instant(instant), Err(Error::Past(_))) => {
            sizes.any(|size| instant - minute <= size)
        }
        _ => false,
    }
}
