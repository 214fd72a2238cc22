//! Checks that pages name files that exist, and that docs/example-kind.md quotes examples/greeting.rs as it is.

use std::fs;

use chrono::Utc;
use my_operator::kinds::REGISTRY;
use my_operator_admit::read::Source;
use my_operator_admit::report::Outcome;
use my_operator_harness::markdown::{CodeBlock, code_blocks};

use crate::checkout::{checkout, code, pages, text};

#[test]
fn the_page_of_the_example_kind_quotes_it_as_it_is() {
    let (page, example) = (text("docs/example-kind.md"), text("examples/greeting.rs"));
    let mut blocks = code_blocks(&page);
    blocks.retain(|block| block.info == "rust");
    assert!(blocks.len() > 3);
    let mut quoted = blocks.iter().map(CodeBlock::text);
    assert_eq!(quoted.find(|part| !example.contains(part)), None);
}

/// Where paths in pages begin, at the root of the checkout.
const FOLDERS: [&str; 15] = [
    "benches",
    "cluster",
    "config",
    "contrib",
    "crates",
    "dist",
    "docs",
    "examples",
    "hack",
    "kinds",
    "kubectl",
    "packaging",
    "playground",
    "src",
    "tests",
];

#[test]
fn the_files_that_pages_name_exist() {
    let checkout = checkout();
    let mut wrong = Vec::new();
    for page in pages() {
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

/// The blocks of YAML that pages show are what a reader applies. Those with faults are shown in a terminal, by a command.
#[test]
fn the_manifests_that_pages_show_are_accepted() {
    let books: Vec<_> = REGISTRY.iter().map(|kind| kind.rulebook()).collect();
    let (mut wrong, mut accepted) = (Vec::new(), 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = code_blocks(&text).into_iter();
        let manifests = blocks
            .filter(|block| block.info == "yaml")
            .map(|it| it.text());
        // Others are parts of an object, or configure another program.
        for manifest in manifests.filter(|text| text.starts_with("apiVersion: ")) {
            let source = Source {
                name: page.display().to_string(),
                text: Ok(manifest),
                is_named: true,
            };
            for judged in my_operator_admit::judge(&source, &books, Utc::now()) {
                match judged.result {
                    Outcome::Accepted => accepted += 1,
                    Outcome::PassedOver => {}
                    _ => wrong.push(format!("{judged:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(accepted >= 8, "only {accepted} manifests were found");
}
