//! Checks that pages name files that exist, and that docs/example-kind.md shows examples/greeting.rs as it is.

use std::fs;

use crate::checkout::{checkout, code, files, text};

#[test]
fn the_page_of_the_example_kind_quotes_the_whole_kind() {
    let (page, example) = (text("docs/example-kind.md"), text("examples/greeting.rs"));
    let blocks = page.split("```rust\n").skip(1);
    let quoted: Vec<&str> = blocks
        .map(|block| block.split("\n```").next().unwrap())
        .collect();
    let kind = &example[example.find("// crd.rs").unwrap()..example.find("#[tokio::main").unwrap()];
    assert_eq!(quoted.join("\n\n"), kind.trim_end());
}

/// Where paths in pages begin, at the root of the checkout.
const FOLDERS: [&str; 10] = [
    "benches",
    "cluster",
    "config",
    "crates",
    "docs",
    "examples",
    "hack",
    "packaging",
    "src",
    "tests",
];

#[test]
fn the_files_that_pages_name_exist() {
    let checkout = checkout();
    let mut found = vec![checkout.join("README.md"), checkout.join("CONTRIBUTING.md")];
    for folder in ["docs", "crates", "cluster", "tests"] {
        found.extend(files(&checkout.join(folder), "md"));
    }
    let mut wrong = Vec::new();
    for page in found {
        let text = fs::read_to_string(&page).unwrap();
        for code in code(&text) {
            let is_path = |c: char| c.is_alphanumeric() || "/._-".contains(c);
            let in_folder = code
                .split_once('/')
                .is_some_and(|(first, _)| FOLDERS.contains(&first));
            // A page of a crate names its files from the crate on.
            let exists = checkout.join(code).exists() || page.with_file_name(code).exists();
            if in_folder && code.chars().all(is_path) && !exists {
                wrong.push(format!("{}: {code}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
