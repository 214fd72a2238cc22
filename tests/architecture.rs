//! Holds the direction of imports: the rooms that serve every kind know no kind, no kind knows
//! another, and nothing imports what stands above it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Room -> the rooms whose names may stand behind `crate::` in it.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("client", &[]),
    ("serving", &[]),
    ("telemetry", &[]),
    ("certs", &["client", "clock"]),
    ("admission", &["clock"]),
    ("reconcile", &["client", "clock"]),
    ("leader", &["client", "clock", "reconcile"]),
    ("kinds", &["admission", "reconcile", "clock"]),
    ("manifests", &["kinds", "certs", "leader"]),
    ("admit", &["admission", "kinds"]),
    (
        "run",
        &[
            "admission",
            "certs",
            "client",
            "clock",
            "kinds",
            "leader",
            "manifests",
            "reconcile",
            "serving",
            "telemetry",
        ],
    ),
    (
        "cli",
        &[
            "admit",
            "certs",
            "client",
            "kinds",
            "manifests",
            "run",
            "telemetry",
        ],
    ),
];

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The first path segments that stand behind `crate::` anywhere in the code, comments left out.
fn imported(text: &str) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut rooms = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let mut add = |segment: &str| {
            let end = segment
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(segment.len());
            if end > 0 {
                rooms.insert(segment[..end].to_owned());
            }
        };
        match rest.strip_prefix('{') {
            None => add(rest),
            // `use crate::{a, b::{c, d}};`: the segments at depth one.
            Some(list) => {
                let mut depth = 1;
                let mut start = true;
                for (at, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => start = true,
                        c if c.is_whitespace() => {}
                        _ if start && depth == 1 => {
                            add(&list[at..]);
                            start = false;
                        }
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    rooms
}

fn room_of(path: &Path, src: &Path) -> String {
    let first = path.strip_prefix(src).unwrap().iter().next().unwrap();
    first.to_str().unwrap().trim_end_matches(".rs").to_owned()
}

#[test]
fn imports_go_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut wrong = Vec::new();
    for path in files {
        let room = room_of(&path, &src);
        // A room's own tests may use what they like.
        let tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if room == "main" || room == "lib" || tests {
            continue;
        }
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == room) else {
            panic!(
                "src/{room} is a new room: add it to MAY_IMPORT in this test, and to src/lib.rs"
            );
        };
        for import in imported(&fs::read_to_string(&path).unwrap()) {
            if import != room && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{} imports crate::{import}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_kind_knows_another() {
    let kinds = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kinds");
    let rooms: Vec<String> = fs::read_dir(&kinds)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(rooms.len() >= 2, "{rooms:?}");
    for room in &rooms {
        let mut files = Vec::new();
        rust_files(&kinds.join(room), &mut files);
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            for other in rooms.iter().filter(|other| *other != room) {
                for way in [format!("kinds::{other}"), format!("super::super::{other}")] {
                    assert!(!text.contains(&way), "{} knows {other}", path.display());
                }
            }
        }
    }
}

#[test]
fn the_import_reader_sees_every_form() {
    let text = "use crate::a::b;\nuse crate::{c, d::{e, f}, g::h};\n// use crate::z;\nlet x = crate::i::j();";
    let rooms: Vec<String> = imported(text).into_iter().collect();
    assert_eq!(rooms, ["a", "c", "d", "g", "i"]);
}
