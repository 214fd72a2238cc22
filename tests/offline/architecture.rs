//! Holds what Cargo cannot see: modules of the operator's crate import one way, those of kinds/samples know no other kind,
//! and in no crate do files import each other in a circle. That crates know no kind, and At and MyDaemonSet neither each
//! other nor the samples, Cargo sees.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use my_operator::kinds::REGISTRY;
use syn::visit::{self, Visit};

use crate::checkout::{self, checkout};

/// Module of the operator's crate -> the modules that it may import.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("kinds", &[]),
    ("manifests", &["kinds"]),
    ("run", &["kinds", "manifests"]),
    ("check", &["kinds", "manifests", "run"]),
    ("cli", &["check", "kinds", "manifests", "run"]),
];

/// Files that import each other, and why.
const CIRCLES: &[(&str, &str)] = &[(
    "crates/simulated-apiserver/src: fault.rs server.rs",
    "a fault's callback is given the server that consults the faults",
)];

/// A path of modules, from the root of the crate.
type Module = Vec<String>;

/// What a file says of others: paths that it uses, and names that it only passes on (`pub use`).
#[derive(Default)]
struct Uses {
    paths: Vec<Vec<String>>,
    /// Name in this module -> what it stands for.
    passed_on: BTreeMap<String, Vec<String>>,
}

impl Uses {
    fn parse(text: &str) -> Self {
        let mut uses = Self::default();
        uses.visit_file(&syn::parse_file(text).unwrap());
        uses
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &[String], public: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&path.tree, &with(&path.ident), public),
            syn::UseTree::Group(group) => {
                for item in &group.items {
                    self.tree(item, before, public);
                }
            }
            syn::UseTree::Glob(_) => self.paths.push(before.to_vec()),
            syn::UseTree::Name(name) if name.ident == "self" => self.paths.push(before.to_vec()),
            syn::UseTree::Name(name) if public => {
                self.passed_on
                    .insert(name.ident.to_string(), with(&name.ident));
            }
            syn::UseTree::Name(name) => self.paths.push(with(&name.ident)),
            syn::UseTree::Rename(name) if public => {
                self.passed_on
                    .insert(name.rename.to_string(), with(&name.ident));
            }
            syn::UseTree::Rename(name) => self.paths.push(with(&name.ident)),
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = |a: &syn::Attribute| {
            a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|arg| arg == "test")
        };
        // Tests may use what they like.
        if !item.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, &[], public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.paths.push(names.collect());
        visit::visit_path(self, path);
    }
}

/// The files of one crate, by module.
struct Files {
    uses: BTreeMap<Module, Uses>,
    names: BTreeMap<Module, String>,
}

impl Files {
    fn read(src: &Path) -> Self {
        let paths = checkout::files(src, "rs");
        let (mut uses, mut names) = (BTreeMap::new(), BTreeMap::new());
        for path in paths {
            let relative = path.strip_prefix(src).unwrap();
            let mut module: Module = relative
                .with_extension("")
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            let stem = module.last().unwrap().as_str();
            if ["tests", "simulated", "simulation", "main"].contains(&stem)
                || module.contains(&"tests".to_owned())
                || module[0] == "bin"
            {
                continue;
            }
            if ["mod", "lib"].contains(&stem) {
                module.pop();
            }
            names.insert(module.clone(), relative.to_str().unwrap().to_owned());
            uses.insert(module, Uses::parse(&fs::read_to_string(&path).unwrap()));
        }
        Self { uses, names }
    }

    /// The module whose file holds what the path names in `from`; None for what is not of this crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = (from.clone(), path);
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (Module::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            // A child of this module, or a name that it passes on; else another crate, or a name in the file itself.
            name => {
                let child = [from.as_slice(), &[name.to_owned()]].concat();
                if !self.uses.contains_key(&child) {
                    return None;
                }
            }
        }
        while let Some((name, after)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if self.uses.contains_key(&child) {
                (at, rest) = (child, after);
                continue;
            }
            let passed_on = self.uses.get(&at).and_then(|uses| uses.passed_on.get(name));
            if let Some(path) = passed_on.filter(|_| depth < 8) {
                return self.resolve(&at, path, depth + 1);
            }
            break;
        }
        self.uses.contains_key(&at).then_some(at)
    }

    /// Module -> the other modules of the crate that its file uses.
    fn imports(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |module: &Module, uses: &Uses| -> BTreeSet<Module> {
            let used = uses
                .paths
                .iter()
                .filter_map(|path| self.resolve(module, path, 0));
            used.filter(|other| other != module).collect()
        };
        self.uses
            .iter()
            .map(|(module, uses)| (module, of(module, uses)))
            .collect()
    }

    /// The files that reach themselves by imports: each circle as one line of names.
    ///
    /// That a file uses what the `mod.rs` above it defines makes no circle: a folder is one unit with its face.
    fn circles(&self) -> BTreeSet<String> {
        let mut imports = self.imports();
        for (module, others) in &mut imports {
            others.retain(|other| !module.starts_with(other));
        }
        let reach = |start: &Module| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![start.clone()]);
            while let Some(module) = next.pop() {
                for other in imports.get(&module).into_iter().flatten() {
                    if seen.insert(other.clone()) {
                        next.push(other.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> = imports
            .keys()
            .map(|module| (*module, reach(module)))
            .collect();
        let mut circles = BTreeSet::new();
        for (module, others) in &reached {
            if others.contains(*module) {
                let circle = others
                    .iter()
                    .filter(|other| reached[other].contains(*module));
                let names: Vec<&str> = circle.map(|other| self.names[other].as_str()).collect();
                circles.insert(names.join(" "));
            }
        }
        circles
    }
}

#[test]
fn modules_import_one_way() {
    let files = Files::read(&checkout().join("src"));
    let mut wrong = Vec::new();
    for (module, imports) in files.imports() {
        let Some(own) = module.first() else {
            continue;
        };
        let found = MAY_IMPORT.iter().find(|(name, _)| name == own);
        let Some((_, allowed)) = found else {
            panic!(
                "src/{own} is a new module: add it to MAY_IMPORT in this test, and to src/lib.rs"
            );
        };
        for import in imports.iter().filter_map(|import| import.first()) {
            if import != own && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{} imports {import}", files.names[module]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut folders = vec![
        "src".to_owned(),
        "cluster/src".to_owned(),
        "benches/src".to_owned(),
        "kubectl/src".to_owned(),
        "kubectl/times/src".to_owned(),
        "packaging/src".to_owned(),
        "playground/src".to_owned(),
        "tests/harness/src".to_owned(),
    ];
    for parent in ["crates", "kinds"] {
        for entry in fs::read_dir(checkout().join(parent)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            folders.push(format!("{parent}/{name}/src"));
        }
    }
    let mut found = Vec::new();
    for folder in folders {
        let circles = Files::read(&checkout().join(&folder)).circles();
        found.extend(
            circles
                .into_iter()
                .map(|circle| format!("{folder}: {circle}")),
        );
    }
    found.retain(|circle| CIRCLES.iter().all(|(known, _)| known != circle));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_sample_kind_imports_another_and_what_they_share_imports_none() {
    let files = Files::read(&checkout().join("kinds/samples/src"));
    let is_kind = |name: &str| REGISTRY.iter().any(|kind| kind.name == name);
    for (module, imports) in files.imports() {
        for other in imports.iter().filter_map(|import| import.first()) {
            let knows = module.first().is_some_and(|own| own != other) && is_kind(other);
            assert!(!knows, "{} knows {other}", files.names[module]);
        }
    }
}

#[test]
fn every_kind_has_a_folder_of_its_name() {
    for kind in REGISTRY {
        let mut parents = ["kinds", "kinds/samples/src"].iter();
        let found = parents.any(|parent| checkout().join(parent).join(kind.name).is_dir());
        assert!(found, "{} has no folder of its name", kind.name);
    }
}

#[test]
fn the_reader_of_imports_sees_every_form() {
    let text = "use crate::a::b;\nuse crate::{c, d::{e as x, f}};\npub use child::Y;\nfn g() { super::h::i(); }\n#[cfg(test)]\nmod tests { use crate::z; }";
    let uses = Uses::parse(text);
    let paths: Vec<String> = uses.paths.iter().map(|path| path.join("::")).collect();
    assert_eq!(
        paths,
        [
            "crate::a::b",
            "crate::c",
            "crate::d::e",
            "crate::d::f",
            "super::h::i"
        ]
    );
    assert_eq!(uses.passed_on["Y"], ["child", "Y"]);
}
