//! The pictures in pages: what each shows is also said in words, and none runs, loads or, where it is drawn, moves
//! anything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::checkout::{checkout, files, pages};

/// Where the pictures are that are drawn by hand. The others are recorded by tests/harness/src/picture.rs.
const DRAWN: &str = "docs/pictures";

/// All that a picture is made of.
const ELEMENTS: [&str; 11] = [
    "circle", "defs", "desc", "g", "marker", "path", "rect", "style", "svg", "text", "title",
];

/// How a picture says what a dark page shows in place of its attributes, which are for a light one.
const DARK: &str = "@media (prefers-color-scheme: dark)";

/// The widest picture that a page shows without making it smaller.
const MAX_WIDTH: u32 = 860;

/// The shortest text that says what a picture shows.
const MIN_ALT: usize = 20;

/// The pictures in a folder, each with its text.
fn pictures(folder: &str) -> Vec<(PathBuf, String)> {
    let found = files(&checkout().join(folder), "svg");
    assert!(!found.is_empty(), "{folder} has no picture");
    let read = |path: PathBuf| (path.clone(), fs::read_to_string(path).unwrap());
    found.into_iter().map(read).collect()
}

#[test]
fn pictures_have_a_title_and_nothing_that_runs_or_loads() {
    for (path, svg) in pictures("docs") {
        let path = path.display();
        assert_eq!(svg.matches("<title>").count(), 1, "{path}");
        for tag in svg.split('<').skip(1) {
            let name = tag.trim_start_matches('/');
            let end = name.find(|c: char| !c.is_ascii_alphanumeric());
            let name = &name[..end.unwrap()];
            assert!(ELEMENTS.contains(&name), "{path}: <{name}>");
            let tag = tag.split('>').next().unwrap();
            assert!(!tag.contains(" on"), "{path}: a handler in <{tag}>");
        }
        // References to other parts of the picture load nothing.
        let svg = svg.replace("url(#", "");
        for loads in ["href=", "url(", "@import", "@font-face"] {
            assert!(!svg.contains(loads), "{path}: {loads}");
        }
    }
}

#[test]
fn drawn_pictures_are_described_fit_on_any_page_and_do_not_move() {
    for (path, svg) in pictures(DRAWN) {
        let path = path.display();
        assert_eq!(svg.matches("<desc>").count(), 1, "{path}");
        let root = svg.split('>').next().unwrap();
        assert!(root.contains("role=\"img\""), "{path}: {root}");
        let width = root.split(" width=\"").nth(1).unwrap();
        let width: u32 = width.split('"').next().unwrap().parse().unwrap();
        assert!(width <= MAX_WIDTH, "{path}: too wide");
        assert!(svg.contains(DARK), "{path}: no colours for a dark page");
        for moves in ["animation", "keyframes", "transition"] {
            assert!(!svg.contains(moves), "{path}: {moves}");
        }
    }
}

/// The pictures of a page: the text in place of each, and its file.
fn shown(page: &Path) -> Vec<(String, PathBuf)> {
    let text = fs::read_to_string(page).unwrap();
    let after = text.split("![").skip(1);
    let shown = after.filter_map(|after| {
        let (alt, rest) = after.split_once(']')?;
        let (target, _) = rest.strip_prefix('(')?.split_once(')')?;
        (!target.contains("://")).then(|| (alt.to_owned(), page.with_file_name(target)))
    });
    shown.collect()
}

#[test]
fn pages_say_what_their_pictures_show_and_no_picture_is_left_over() {
    let mut used = BTreeSet::new();
    for page in pages() {
        for (alt, file) in shown(&page) {
            let page = page.display();
            assert!(alt.trim().chars().count() >= MIN_ALT, "{page}: {alt:?}");
            let found = fs::canonicalize(&file);
            used.insert(
                found.unwrap_or_else(|error| panic!("{page}: {}: {error}", file.display())),
            );
        }
    }
    for (picture, _) in pictures("docs") {
        let is_used = used.contains(&fs::canonicalize(&picture).unwrap());
        assert!(is_used, "{} is on no page", picture.display());
    }
}
