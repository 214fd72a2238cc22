//! The table of conformance: `crates/simulated-apiserver/conformance.tsv`, and the page that shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::harness::checkout;

const TABLE: &str = "crates/simulated-apiserver/conformance.tsv";
const PAGE: &str = "crates/simulated-apiserver/CONFORMANCE.md";
const NOT_RUN: &str = "not run";
/// The last row of each area.
pub(super) const EVENTS: &str = "watch events of all that";
const INTRODUCTION: &str = "\
# Conformance
How the simulated API server compares with the API server of each release of Kubernetes, on a control plane built from
its Go modules. Both get the same requests, and all their answers are compared:
- **same**: equal codes and bodies, and equal events of watches;
- **other text**: a Status has another message, and all else is equal;
- **differs**: more is different;
- **not run**: unknown. Releases without any run are left out.

The behaviours of an area are one script, so a difference can show in those after it as well. UIDs, resourceVersions and
continue tokens are compared by when they change; times, managedFields and most fields of pods are not compared.

The watch events of all requests of an area are compared too, and have a row where they are not the same.

Written by `tests/control_plane/conformance` of the repository. Do not edit.

";

/// How all answers to the requests of a row compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Same,
    OtherText,
    Differs,
}

impl Verdict {
    pub(super) fn of(real: &Value, simulated: &Value) -> Self {
        let (mut one, mut other) = (real.clone(), simulated.clone());
        if one == other {
            return Self::Same;
        }
        remove_messages(&mut one, false);
        remove_messages(&mut other, false);
        if one == other {
            Self::OtherText
        } else {
            Self::Differs
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::OtherText => "other text",
            Self::Differs => "differs",
        }
    }
}

/// Removes the messages of each Status, and of its causes.
fn remove_messages(value: &mut Value, in_status: bool) {
    match value {
        Value::Object(fields) => {
            let in_status = in_status || fields.get("kind").is_some_and(|kind| kind == "Status");
            if in_status {
                fields.remove("message");
            }
            for value in fields.values_mut() {
                remove_messages(value, in_status);
            }
        }
        Value::Array(items) => {
            for value in items {
                remove_messages(value, in_status);
            }
        }
        _ => {}
    }
}

/// What a run found of a behaviour.
pub(super) struct Row {
    area: &'static str,
    behaviour: &'static str,
    pub(super) verdict: Verdict,
    /// For people.
    pub(super) differences: String,
}

impl Row {
    pub(super) fn new(area: &'static str, behaviour: &'static str) -> Self {
        Self {
            area,
            behaviour,
            verdict: Verdict::Same,
            differences: String::new(),
        }
    }
}

/// The table with what a run found, in the column of its release. Of other releases, it keeps what it has.
fn updated(table: &str, release: &str, found: &[Row]) -> String {
    let mut lines = table
        .lines()
        .map(|line| line.split('\t').collect::<Vec<&str>>());
    let head = lines.next().unwrap();
    let mut releases: BTreeSet<&str> = head[2..].iter().copied().collect();
    let mut known = BTreeMap::new();
    for line in lines {
        for (of, cell) in head.iter().zip(&line).skip(2) {
            known.insert((line[0], line[1], *of), *cell);
        }
    }
    releases.insert(release);
    let releases: Vec<&str> = releases.into_iter().collect();
    let mut text = format!("area\tbehaviour\t{}\n", releases.join("\t"));
    for row in found {
        let cells = releases.iter().map(|of| {
            let cell = known.get(&(row.area, row.behaviour, *of)).copied();
            if *of == release {
                row.verdict.as_str()
            } else {
                cell.unwrap_or(NOT_RUN)
            }
        });
        let line: Vec<&str> = [row.area, row.behaviour].into_iter().chain(cells).collect();
        text.push_str(&line.join("\t"));
        text.push('\n');
    }
    text
}

/// The page that shows the table: the rows that are not the same on every release, and then the names of the others.
fn page(table: &str) -> String {
    let mut lines = table
        .lines()
        .map(|line| line.split('\t').collect::<Vec<&str>>());
    let head = lines.next().unwrap();
    let rows: Vec<Vec<&str>> = lines.collect();
    // A release that was run on shows in some row.
    let is_known = |nth: &usize| *nth < 2 || rows.iter().any(|row| row[*nth] != NOT_RUN);
    let known: Vec<usize> = (0..head.len()).filter(is_known).collect();
    let cells = |row: &[&str]| -> Vec<String> {
        let shown = known.iter().map(|nth| row[*nth].to_owned());
        shown.collect()
    };
    let is_same = |row: &Vec<&str>| {
        known[2..]
            .iter()
            .all(|nth| row[*nth] == Verdict::Same.as_str())
    };
    let (same, others): (Vec<_>, Vec<_>) = rows.iter().cloned().partition(is_same);

    let mut page = INTRODUCTION.to_owned();
    let titles = cells(&head);
    writeln!(page, "| {} |", titles.join(" | ")).unwrap();
    writeln!(page, "|{}", "---|".repeat(titles.len())).unwrap();
    for row in others {
        writeln!(page, "| {} |", cells(&row).join(" | ")).unwrap();
    }
    writeln!(page, "\nThe same on {}:", titles[2..].join(", ")).unwrap();
    for area in same.chunk_by(|one, next| one[0] == next[0]) {
        let behaviours = area.iter().map(|row| row[1]);
        let behaviours: Vec<&str> = behaviours.filter(|it| *it != EVENTS).collect();
        writeln!(page, "- **{}**: {}", area[0][0], behaviours.join("; ")).unwrap();
    }
    page
}

/// Fails unless the table has what a run found on this release. With UPDATE=1, writes it there, and the page.
pub(super) fn hold(release: &str, found: &[Row]) {
    let (table, shown) = (checkout().join(TABLE), checkout().join(PAGE));
    let mut recorded = fs::read_to_string(&table).unwrap();
    let updated = updated(&recorded, release, found);
    if env::var_os("UPDATE").is_some() {
        fs::write(&table, &updated).unwrap();
        fs::write(&shown, page(&updated)).unwrap();
        recorded.clone_from(&updated);
    }
    let known: BTreeSet<&str> = recorded.lines().collect();
    let changed: Vec<String> = updated
        .lines()
        .skip(1)
        .zip(found)
        .filter(|(line, _)| !known.contains(line))
        .map(|(line, row)| format!("{line}\n{}", row.differences))
        .collect();
    assert!(
        updated == recorded,
        "{TABLE} has other rows, or {release} is not as its column has it: repair the simulation, or write what is so \
         with UPDATE=1 and T=conformance::\n{}",
        changed.join("\n")
    );
    let shown = fs::read_to_string(&shown).unwrap();
    assert!(
        shown == page(&recorded),
        "{PAGE} does not show {TABLE}: UPDATE=1 make test T=conformance:: writes it"
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_writes_the_column_of_its_release_alone() {
        let table = "area\tbehaviour\t1.34\t1.36\na\tgone\tsame\tsame\na\tkept\tnot run\tdiffers\n";
        let found = [
            Row::new("a", "new"),
            Row {
                verdict: Verdict::OtherText,
                ..Row::new("a", "kept")
            },
        ];
        assert_eq!(
            updated(table, "1.35", &found),
            "area\tbehaviour\t1.34\t1.35\t1.36\n\
             a\tnew\tnot run\tsame\tnot run\n\
             a\tkept\tnot run\tother text\tdiffers\n"
        );
        assert_eq!(
            updated(table, "1.34", &found),
            "area\tbehaviour\t1.34\t1.36\na\tnew\tsame\tnot run\na\tkept\tother text\tdiffers\n"
        );
    }

    #[test]
    fn the_page_shows_in_full_what_is_not_the_same_on_every_release() {
        let table = "area\tbehaviour\t1.34\t1.35\t1.36\na\tx\tsame\tnot run\tsame\na\ty\tsame\tnot run\tsame\n\
                     b\tx\tsame\tnot run\tdiffers\nb\ty\tnot run\tnot run\tsame\nc\tx\tsame\tnot run\tsame\n";
        let shown = page(table);
        assert_eq!(
            shown.strip_prefix(INTRODUCTION).unwrap(),
            "| area | behaviour | 1.34 | 1.36 |\n|---|---|---|---|\n| b | x | same | differs |\n\
             | b | y | not run | same |\n\nThe same on 1.34, 1.36:\n- **a**: x; y\n- **c**: x\n"
        );
    }

    #[test]
    fn only_the_message_of_a_status_is_text() {
        let answer = |kind: &str, message: &str, code: u16| {
            json!({"code": code, "answer": {"kind": kind, "message": message, "details": {
                "causes": [{"reason": "x", "message": message}],
            }}})
        };
        let of = |one: Value, other: Value| Verdict::of(&one, &other);
        let status = |message, code| answer("Status", message, code);
        assert_eq!(of(status("a", 409), status("a", 409)), Verdict::Same);
        assert_eq!(of(status("a", 409), status("b", 409)), Verdict::OtherText);
        assert_eq!(of(status("a", 409), status("a", 422)), Verdict::Differs);
        let pod = |message| answer("Pod", message, 200);
        assert_eq!(of(pod("a"), pod("b")), Verdict::Differs);
    }
}
