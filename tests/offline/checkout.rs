//! The files of the checkout, and what pages quote of them.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use my_operator_harness::checkout;

/// The text of a file, by its path from the top of the checkout.
pub(crate) fn text(path: &str) -> String {
    fs::read_to_string(checkout().join(path)).unwrap()
}

/// The files in a folder and below it that have this extension.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found
}

/// The pages of the repository.
pub(crate) fn pages() -> Vec<PathBuf> {
    let mut pages = vec![
        checkout().join("README.md"),
        checkout().join("CONTRIBUTING.md"),
    ];
    for folder in [
        "cluster",
        "config",
        "contrib",
        "crates",
        "docs",
        "kubectl",
        "packaging",
        "tests",
    ] {
        pages.extend(files(&checkout().join(folder), "md"));
    }
    pages
}

/// What stands between backticks.
pub(crate) fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The version of Rust in rust-toolchain.toml.
pub(crate) fn toolchain() -> String {
    let file = text("rust-toolchain.toml");
    let channel = file
        .lines()
        .find_map(|line| line.strip_prefix("channel = "));
    channel.unwrap().trim_matches('"').to_owned()
}
