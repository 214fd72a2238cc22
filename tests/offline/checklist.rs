//! Checks that every test that docs/mydaemonset/checklist.md names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::checkout::{checkout, files, text};

const PAGE: &str = "docs/mydaemonset/checklist.md";
/// Where tests are.
const FOLDERS: [&str; 3] = ["kinds", "src", "tests"];

/// All functions that cargo runs as tests: their names, each with its text and what follows up to the next test.
pub(crate) fn tests() -> BTreeMap<String, String> {
    let mut tests: BTreeMap<String, String> = BTreeMap::new();
    let files = FOLDERS
        .iter()
        .flat_map(|folder| files(&checkout().join(folder), "rs"));
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let (mut is_test, mut current) = (false, None);
        for line in text.lines().map(str::trim) {
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            if let Some(name) = name.filter(|_| std::mem::take(&mut is_test)) {
                let end = name.find('(').unwrap();
                current = Some(name[..end].to_owned());
            }
            if let Some(name) = &current {
                let text = tests.entry(name.clone()).or_default();
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    tests
}

#[test]
fn every_test_of_the_checklist_exists() {
    let page = text(PAGE);
    let tests = tests();
    // - `theirs`: `ours`; what differs
    let rows = page.lines().filter(|line| line.starts_with("- `"));
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for row in rows {
        let Some((_, ours)) = row.split_once("`: `") else {
            panic!("no test of ours: {row}");
        };
        let ours = ours.split(';').next().unwrap_or_default();
        let ours = ours.split('`').step_by(2);
        missing.extend(ours.filter(|name| !name.is_empty() && !tests.contains_key(*name)));
        count += 1;
    }
    assert!(count > 50, "{count} rows");
    assert!(missing.is_empty(), "these do not exist: {missing:#?}");
}
