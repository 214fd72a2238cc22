//! Checks that every test that docs/mydaemonset/checklist.md names exists.

use std::collections::BTreeSet;
use std::fs;

use crate::checkout::{checkout, code, files, text};

const PAGE: &str = "docs/mydaemonset/checklist.md";
/// Where tests are.
const FOLDERS: [&str; 3] = ["kinds", "src", "tests"];

/// The names of all functions that cargo runs as tests.
fn test_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let files = FOLDERS
        .iter()
        .flat_map(|folder| files(&checkout().join(folder), "rs"));
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            if let Some(name) = name.filter(|_| std::mem::take(&mut is_test)) {
                let end = name.find('(').unwrap();
                names.insert(name[..end].to_owned());
            }
        }
    }
    names
}

#[test]
fn every_test_of_the_checklist_exists() {
    let page = text(PAGE);
    let names = test_names();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for row in rows {
        let columns: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [_, _, ours] = columns[..] else {
            panic!("not three columns: {row}");
        };
        assert!(code(ours).next().is_some(), "no test of ours: {row}");
        missing.extend(code(ours).filter(|name| !names.contains(*name)));
        count += 1;
    }
    assert!(count > 50, "{count} rows");
    assert!(missing.is_empty(), "these do not exist: {missing:#?}");
}
