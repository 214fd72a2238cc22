//! The examples of docs/kubectl/timespecs.md.

use std::fs;

use at_timespec::{Error, parse, parse_touch};
use chrono::{DateTime, TimeZone};

use crate::differences::DIFFERENCES;
use crate::zone::Zone;

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/kubectl/timespecs.md"
);

/// The "now" of the page.
const NOW: &str = "2026-11-23T13:47:35+01:00";

/// The cells of all rows under a heading, but for the first two rows of each table.
fn rows(page: &str, wanted: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let (mut heading, mut row) = ("", 0);
    for line in page.lines() {
        heading = line.strip_prefix("## ").unwrap_or(heading);
        row = if line.starts_with('|') { row + 1 } else { 0 };
        if row > 2 && wanted(heading) {
            let cells = line.trim_matches('|').split('|');
            rows.push(cells.map(|cell| cell.trim().to_owned()).collect());
        }
    }
    rows
}

fn read<Tz: TimeZone>(example: &str, now: &DateTime<Tz>) -> Result<String, Error> {
    let example = example.trim_matches('`');
    let instant = match example.strip_prefix("-t ") {
        Some(digits) => parse_touch(digits, now),
        None => parse(example, now),
    }?;
    let local = instant.with_timezone(&now.timezone());
    let seconds = if local.timestamp() % 60 == 0 {
        ""
    } else {
        ":%S"
    };
    let format = format!("%Y-%m-%d %H:%M{seconds} ");
    Ok(local.naive_local().format(&format).to_string()
        + &chrono::Offset::fix(local.offset()).to_string())
}

#[test]
fn every_example_of_the_page_means_what_the_page_says() {
    let page = fs::read_to_string(PAGE).unwrap();
    let now = NOW.parse::<DateTime<chrono::Utc>>().unwrap();
    let now = Zone::named("Europe/Berlin").at(now.timestamp());
    let text = |heading: &str| {
        heading.starts_with("What is rejected") || heading.starts_with("Differences")
    };
    let examples = rows(&page, |heading| !text(heading));
    assert!(examples.len() > 45, "{} examples", examples.len());
    for row in examples {
        let [_, example, means] = row.as_slice() else {
            panic!("{row:?}")
        };
        let read = read(example, &now);
        let shown = read.as_deref().map(|it| it.trim_end_matches(" +01:00"));
        assert_eq!(shown, Ok(means.as_str()), "{example}");
    }
    let errors = rows(&page, |heading| heading == "What is rejected");
    assert!(errors.len() > 8, "{} errors", errors.len());
    for row in errors {
        let [example, message] = row.as_slice() else {
            panic!("{row:?}")
        };
        let said = read(example, &now).map_err(|error| error.to_string());
        let said = said.expect_err(example);
        if let Some(start) = message.strip_suffix(" ...") {
            assert!(said.starts_with(start), "{example}: {said}");
        } else {
            assert_eq!(said, *message);
        }
    }
}

#[test]
fn the_page_lists_every_difference_from_at() {
    let page = fs::read_to_string(PAGE).unwrap();
    let listed: Vec<String> = rows(&page, |heading| heading.starts_with("Differences"))
        .into_iter()
        .map(|mut row| row.swap_remove(0))
        .filter(|what| !what.starts_with("Forms of POSIX"))
        .collect();
    let known: Vec<&str> = DIFFERENCES
        .iter()
        .map(|difference| difference.what)
        .collect();
    assert_eq!(listed, known);
}
