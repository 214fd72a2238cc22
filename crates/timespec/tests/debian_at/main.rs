//! Timespecs compared with Debian's at 3.2.5. `answers.txt` has answers of its parser, and `hack/timespec-oracle` builds
//! the parser and compares fresh random timespecs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(
    clippy::print_stdout,
    clippy::format_push_string,
    clippy::format_collect
)]

mod answers;
mod cases;
mod differences;
mod page;
mod posix;
mod zone;

use std::collections::BTreeMap;
use std::env;
use std::fs;

use answers::{Answer, Answered, answered};
use at_timespec::{Error, parse, parse_touch};
use cases::{Case, Form};
use differences::DIFFERENCES;
use fastrand::Rng;
use zone::Zone;

/// The committed answers.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/debian_at/answers.txt");
/// How many of the cases may be differences, in percent.
const MAX_DIFFERENT: usize = 6;

fn ours(case: &Case, text: &str) -> Result<i64, Error> {
    let now = Zone::named(case.zone).at(case.now);
    let instant = match case.form {
        Form::Words => parse(text, &now),
        Form::Touch => parse_touch(text, &now),
    };
    instant.map(|instant| instant.timestamp())
}

/// Whether both say the same.
fn same(at: Answer, ours: &Result<i64, Error>) -> bool {
    match (at, ours) {
        (Answer::Instant(at), Ok(ours)) => at == *ours,
        (Answer::Past, Err(Error::Past(_))) => true,
        (Answer::Garbled, Err(error)) => !matches!(error, Error::Past(_)),
        _ => false,
    }
}

/// Compares each case, and prints how many there are of each kind.
fn compare(cases: &[Answered]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for Answered { case, answer, twin } in cases {
        let ours = ours(case, &case.text);
        // What only POSIX defines has to mean what at makes of it in its own words.
        let (kind, at) = match twin {
            Some((_, answer)) => (
                "a form of POSIX that at rejects, as at in its own form",
                *answer,
            ),
            None => match answer {
                Answer::Instant(_) => ("the same instant", *answer),
                Answer::Past => ("the same rejection: in the past", *answer),
                Answer::Garbled => ("the same rejection: not understood", *answer),
            },
        };
        let kind = if same(at, &ours) {
            kind
        } else if let Some(difference) = DIFFERENCES
            .iter()
            .find(|difference| (difference.applies)(case, at, &ours))
        {
            difference.what
        } else {
            wrong.push(format!(
                "{:?} at {} in {}: at answers {at:?}, this crate {ours:?}{}",
                case.text,
                case.now,
                case.zone,
                twin.as_ref()
                    .map(|(text, _)| format!(", as {text:?}"))
                    .unwrap_or_default(),
            ));
            continue;
        };
        *counts.entry(kind).or_default() += 1;
    }
    println!("{} cases:", cases.len());
    for (kind, count) in &counts {
        println!("{count:>7} {kind}");
    }
    let different: usize = DIFFERENCES
        .iter()
        .filter_map(|difference| counts.get(difference.what))
        .sum();
    assert!(
        different * 100 <= cases.len() * MAX_DIFFERENT,
        "{different} cases differ"
    );
    wrong
}

#[test]
fn recorded_answers_of_at_are_those_of_this_crate() {
    let cases = answers::read(&fs::read_to_string(FILE).unwrap());
    assert!(cases.len() > 5000, "{} cases", cases.len());
    let wrong = compare(&cases);
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    for documented in cases::DOCUMENTED {
        assert!(
            cases.iter().any(|known| known.case.text == *documented),
            "{documented} is missing"
        );
    }
}

#[test]
fn minutes_and_hours_from_now_are_elapsed_time_in_every_zone() {
    const MINUTE: i64 = 60;
    for name in cases::ZONES {
        let zone = Zone::named(name);
        let year = zone.changes(1_798_761_600, 1_798_761_600 + 366 * 1440 * MINUTE);
        for change in year.into_iter().chain([1_800_000_000]) {
            for start in (-200..200)
                .step_by(7)
                .map(|minute| change + minute * MINUTE + 35)
            {
                let now = zone.at(start);
                for (text, minutes) in [
                    ("now", 0),
                    ("now + 5 minutes", 5),
                    ("now + 1 hour", 60),
                    ("now + 48 hours", 2880),
                ] {
                    let instant = parse(text, &now).map(|instant| instant.timestamp());
                    assert_eq!(
                        instant,
                        Ok(start - 35 + minutes * MINUTE),
                        "{text} at {start} in {name}"
                    );
                }
            }
        }
    }
}

fn seed() -> u64 {
    env::var("SEED")
        .ok()
        .filter(|seed| !seed.is_empty())
        .map_or_else(
            || Rng::new().u64(..1_000_000_000),
            |seed| seed.parse().expect("SEED is a number"),
        )
}

fn asked() -> (String, usize) {
    let oracle =
        env::var("TIMESPEC_ORACLE").expect("run hack/timespec-oracle, which sets TIMESPEC_ORACLE");
    (
        oracle,
        env::var("CASES")
            .unwrap()
            .parse()
            .expect("CASES is a number"),
    )
}

#[test]
#[ignore = "hack/timespec-oracle runs it, with the parser of at"]
fn fresh_random_cases_get_the_answers_of_at() {
    let (oracle, count) = asked();
    let seed = seed();
    println!("seed {seed}: hack/timespec-oracle compare {count} {seed} repeats this");
    let mut cases = cases::documented();
    cases.extend(cases::random(&mut Rng::with_seed(seed), count, 5));
    let wrong = compare(&answered(&oracle, cases));
    assert!(
        wrong.is_empty(),
        "seed {seed}: {} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
#[ignore = "hack/timespec-oracle runs it, with the parser of at"]
fn record_answers_of_at() {
    let (oracle, count) = asked();
    let seed = seed();
    let mut cases = cases::documented();
    cases.extend(cases::random(&mut Rng::with_seed(seed), count, 25));
    let head = format!(
        "# Answers of the parser of Debian's at 3.2.5, built from its source, on glibc and tzdata of Debian 12.\n\
         # Written by: hack/timespec-oracle record {count} {seed}\n\
         # \"= ZONE NOW\", then for each text: seconds from NOW, past or garbled, a tab, and the text; if at rejects a\n\
         # form of POSIX, also its answer to the same in its own form, and that form.\n"
    );
    fs::write(FILE, head + &answers::write(&answered(&oracle, cases))).unwrap();
}
