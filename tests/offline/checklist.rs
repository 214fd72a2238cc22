//! Checks that every test that docs/mydaemonset/checklist.md names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::architecture::rust_files;

const PAGE: &str = "docs/mydaemonset/checklist.md";
/// Where tests are.
const FOLDERS: [&str; 2] = ["src", "tests"];

/// The names of all functions that cargo runs as tests.
fn test_names(checkout: &Path) -> BTreeSet<String> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        rust_files(&checkout.join(folder), &mut files);
    }
    let mut names = BTreeSet::new();
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

/// What is between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_of_the_checklist_exists() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(checkout.join(PAGE)).unwrap();
    let names = test_names(checkout);
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
