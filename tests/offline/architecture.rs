//! Checks the direction of imports: the modules that serve every kind import no kind, no kind
//! imports another, and no module imports one above it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use my_operator::kinds::REGISTRY;

/// Module -> the modules that it may import from `crate::`.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("kinds", &[]),
    ("manifests", &["kinds"]),
    ("run", &["kinds", "manifests"]),
    ("cli", &["kinds", "manifests", "run"]),
];

pub(crate) fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The first path segments that follow `crate::` anywhere in the code, comments left out.
fn imported(text: &str) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut modules = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let mut add = |segment: &str| {
            let end = segment
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(segment.len());
            if end > 0 {
                modules.insert(segment[..end].to_owned());
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
    modules
}

fn module_of(path: &Path, src: &Path) -> String {
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
        let module = module_of(&path, &src);
        // A module's own tests may import anything.
        let tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if module == "main" || module == "lib" || tests {
            continue;
        }
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == module) else {
            panic!(
                "src/{module} is a new module: add it to MAY_IMPORT in this test, and to src/lib.rs"
            );
        };
        for import in imported(&fs::read_to_string(&path).unwrap()) {
            if import != module && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{} imports crate::{import}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_kind_imports_another_and_shared_modules_import_none() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kinds");
    let mut files = Vec::new();
    rust_files(&folder, &mut files);
    let registry = folder.join("mod.rs");
    for path in files.iter().filter(|path| **path != registry) {
        let text = fs::read_to_string(path).unwrap();
        let own = module_of(path, &folder);
        for other in REGISTRY.iter().map(|kind| kind.name).filter(|k| *k != own) {
            for way in ["kinds::", "super::super::", "use super::"] {
                let way = format!("{way}{other}::");
                assert!(!text.contains(&way), "{} knows {other}", path.display());
            }
        }
    }
    for kind in REGISTRY {
        let module = folder.join(kind.name);
        assert!(module.is_dir(), "{} has no folder of its name", kind.name);
    }
}

#[test]
fn the_import_reader_sees_every_form() {
    let text = "use crate::a::b;\nuse crate::{c, d::{e, f}, g::h};\n// use crate::z;\nlet x = crate::i::j();";
    let modules: Vec<String> = imported(text).into_iter().collect();
    assert_eq!(modules, ["a", "c", "d", "g", "i"]);
}
