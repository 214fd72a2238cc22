//! The Makefile: targets that pages name, the tutorials' commands, and PROJECT.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use my_operator::kinds::REGISTRY;
use my_operator_harness::markdown::Page;

use crate::checkout::{checkout, code, files, pages, text};

/// The targets of the Makefile, and of the files that it includes.
pub(crate) fn targets() -> BTreeSet<String> {
    let mut makefile = text("Makefile");
    for included in files(&checkout().join("hack/make"), "mk") {
        makefile += &fs::read_to_string(included).unwrap();
    }
    let rules = makefile.lines().filter_map(|line| {
        let (names, rest) = line.split_once(':')?;
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || " -".contains(c);
        (!rest.starts_with('=') && !names.is_empty() && names.chars().all(is_name)).then_some(names)
    });
    rules
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect()
}

/// The targets of a command such as `make install run LOCAL=1`, if it is one.
pub(crate) fn called_by(command: &str) -> Vec<&str> {
    let Some(words) = command
        .trim()
        .trim_start_matches("$ ")
        .strip_prefix("make ")
    else {
        return Vec::new();
    };
    let is_name = |word: &&str| {
        word.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    words
        .split_whitespace()
        .take_while(|word| is_name(word))
        .collect()
}

/// What may be a command in a page: the lines of its blocks, and what stands between backticks.
pub(crate) fn commands(text: &str) -> impl Iterator<Item = &str> {
    let Page { blocks, prose } = Page::parse(text);
    let lines = blocks.into_iter().flat_map(|block| block.lines);
    lines.chain(prose.into_iter().flat_map(code))
}

#[test]
fn pages_name_targets_that_exist() {
    let targets = targets();
    let (mut named, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for target in commands(&text).flat_map(called_by) {
            named += 1;
            if !targets.contains(target) {
                wrong.push(format!("{}: make {target}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(named > 50, "{named} targets found in all pages");
}

/// What kubebuilder and operator-sdk scaffold.
const SCAFFOLDED: &str = "all help manifests generate fmt vet test test-e2e lint lint-fix build run docker-build docker-push \
                          build-installer install uninstall deploy undeploy kustomize controller-gen envtest setup-envtest \
                          operator-sdk bundle bundle-build bundle-push catalog-build docker-buildx opm";

/// The targets in the help.
fn listed(arguments: &str) -> BTreeSet<String> {
    let printed = String::from_utf8(make(arguments).stdout).unwrap();
    let lines = printed.lines().filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn help_fits_on_a_screen_and_names_the_rest_when_asked() {
    let (first, all) = (listed("help"), listed("help ALL=1"));
    assert!((10..=20).contains(&first.len()), "{first:?}");
    assert!(first.contains("run") && first.contains("test"));
    assert!(first.is_subset(&all) && all.contains("release-sign"));
    let targets = targets();
    assert!(all.is_subset(&targets), "{all:?}");
    // The others are those of kubebuilder that do nothing, or what another one does.
    let scaffolded = SCAFFOLDED.split_whitespace();
    let mut hidden = targets.difference(&all);
    let missing = hidden.find(|name| scaffolded.clone().all(|it| it != name.as_str()));
    assert_eq!(missing, None, "in no help");
}

#[test]
fn what_kubebuilder_scaffolds_can_be_typed() {
    let targets = targets();
    for target in SCAFFOLDED.split_whitespace() {
        assert!(targets.contains(target), "make {target}");
    }
    // What needs no doing says so in one line that names the way here.
    for target in ["generate", "controller-gen", "kustomize", "operator-sdk"] {
        let said = make(target);
        let line = String::from_utf8(said.stdout).unwrap();
        assert!(said.status.success(), "{target}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        for quoted in line.split('`').skip(1).step_by(2) {
            let missing = called_by(quoted)
                .into_iter()
                .find(|name| !targets.contains(*name));
            assert_eq!(missing, None, "{line}");
        }
    }
}

#[test]
fn the_tutorials_variables_have_their_effect() {
    for (arguments, expected) in [
        (
            "docker-build",
            r#"--tag "registry.invalid/my-operator:latest""#,
        ),
        (
            "docker-build IMAGE_TAG_BASE=x.example/y VERSION=1.2.3",
            r#"--tag "x.example/y:1.2.3""#,
        ),
        ("docker-build IMG=x.example/y:z", r#"--tag "x.example/y:z""#),
        ("docker-build BUILD_FLAGS=--pull", " --pull "),
        (
            "bundle-build IMAGE_TAG_BASE=x.example/y VERSION=1.2.3",
            r#"--tag "x.example/y-bundle:v1.2.3""#,
        ),
        ("bundle", r#"--channels "candidate""#),
        ("bundle KINDS=memcached", r#"--kinds "memcached""#),
        (
            "bundle CHANNELS=alpha,stable",
            r#"--channels "alpha,stable""#,
        ),
        (
            "bundle CHANNELS=alpha,stable DEFAULT_CHANNEL=stable",
            r#"--channels "stable,alpha""#,
        ),
        ("docker-buildx", r#"--platform "linux/amd64,linux/arm64""#),
        (
            "docker-buildx PLATFORMS=linux/s390x",
            r#"--platform "linux/s390x""#,
        ),
    ] {
        let mut command = Command::new("make");
        command.args(["--no-print-directory", "--dry-run"]);
        command.args(arguments.split(' ')).current_dir(checkout());
        for name in [
            "IMG",
            "IMAGE_TAG_BASE",
            "VERSION",
            "CHANNELS",
            "PLATFORMS",
            "MAKEFLAGS",
        ] {
            command.env_remove(name);
        }
        let would = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(would.contains(expected), "make {arguments}: {would}");
    }
}

#[test]
fn project_lists_every_kind() {
    let project: serde_json::Value = serde_saphyr::from_str(&text("PROJECT")).unwrap();
    let listed: BTreeSet<String> = project["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let group = [&it["group"], &it["domain"]].map(|part| part.as_str().unwrap_or_default());
            let group = group.join(".");
            format!(
                "{} {} {}",
                group.trim_start_matches('.'),
                it["version"].as_str().unwrap(),
                it["kind"].as_str().unwrap()
            )
        })
        .collect();
    let registered = REGISTRY.iter().map(|kind| {
        let crd = (kind.crd)();
        let names = (
            crd.spec.group,
            &crd.spec.versions[0].name,
            crd.spec.names.kind,
        );
        format!("{} {} {}", names.0, names.1, names.2)
    });
    assert_eq!(listed, registered.collect());
}

/// What make prints.
fn make(arguments: &str) -> Output {
    Command::new("make")
        .arg("--no-print-directory")
        .args(arguments.split(' '))
        .current_dir(checkout())
        .output()
        .unwrap()
}
