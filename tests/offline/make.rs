//! The Makefile: targets that pages name, the tutorials' commands, PROJECT, and which cluster `make run` takes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Output};

use my_operator::kinds::REGISTRY;

use crate::checkout::{checkout, code, files, text};

/// The targets of the Makefile.
pub(crate) fn targets() -> BTreeSet<String> {
    let makefile = text("Makefile");
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
fn commands(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```").skip(1).step_by(2).flat_map(str::lines);
    let prose = text.split("```").step_by(2);
    blocks.chain(prose.flat_map(code))
}

#[test]
fn pages_name_targets_that_exist() {
    let targets = targets();
    let mut pages = vec![
        checkout().join("README.md"),
        checkout().join("CONTRIBUTING.md"),
    ];
    for folder in ["docs", "cluster", "config", "crates", "packaging", "tests"] {
        pages.extend(files(&checkout().join(folder), "md"));
    }
    let (mut named, mut wrong) = (0, Vec::new());
    for page in pages {
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

#[test]
fn what_kubebuilder_scaffolds_can_be_typed() {
    let targets = targets();
    let scaffolded = "all help manifests generate fmt vet test test-e2e lint lint-fix build run docker-build docker-push \
                      build-installer install uninstall deploy undeploy kustomize controller-gen envtest setup-envtest \
                      operator-sdk bundle bundle-build bundle-push catalog-build docker-buildx opm";
    for target in scaffolded.split_whitespace() {
        assert!(targets.contains(target), "make {target}");
    }
    // What needs no doing says so in one line that names the way here.
    for target in ["generate", "controller-gen", "kustomize", "operator-sdk"] {
        let said = make(target, &[]);
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

/// What a program of the checkout prints with these variables, and with a home folder without a kubeconfig.
fn output(program: impl AsRef<OsStr>, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(program)
        .args(arguments)
        .current_dir(checkout())
        .env("HOME", home.path())
        .env_remove("KUBECONFIG")
        .env_remove("KUBECTL")
        .env_remove("LOCAL")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn make(target: &str, variables: &[(&str, &str)]) -> Output {
    output("make", &["--no-print-directory", target], variables)
}

#[test]
fn install_and_run_take_the_current_context_else_the_local_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let config = |name: &str, current: &str| {
        let path = folder.path().join(name);
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             contexts: [{{name: a, context: {{cluster: c}}}}, {{name: b, context: {{cluster: c}}}}]\n{current}"
        );
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (chosen, without) = (config("chosen", "current-context: a\n"), config("none", ""));
    let context = |variables: &[(&str, &str)]| {
        let output = output(checkout().join("hack/context"), &[], variables);
        let text = |bytes| String::from_utf8(bytes).unwrap().trim().to_owned();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let none = String::new;

    assert_eq!(context(&[]), (Some(0), none(), none()));
    let taken = context(&[("KUBECONFIG", &chosen)]);
    assert_eq!(taken, (Some(0), "a".to_owned(), none()));
    let flag = context(&[("KUBECONFIG", &chosen), ("KUBECTL", "kubectl --context b")]);
    assert_eq!(flag, (Some(0), "b".to_owned(), none()));
    let local = context(&[("KUBECONFIG", &chosen), ("LOCAL", "1")]);
    assert_eq!(local, (Some(0), none(), none()));
    let named = context(&[("KUBECONFIG", &chosen), ("MY_OPERATOR_CONTEXT", "b")]);
    assert_eq!(named, (Some(0), "b".to_owned(), none()));
    let (dangling, broken) = (
        config("dangling", "current-context: c\n"),
        config("broken", "x: [\n"),
    );
    for wrong in [
        &[("KUBECONFIG", without.as_str())][..],
        &[("KUBECONFIG", dangling.as_str())],
        &[("KUBECONFIG", broken.as_str())],
        &[("KUBECTL", "no-such-kubectl")],
        &[("KUBECTL", "kubectl --kubeconfig=other")],
        &[("MY_OPERATOR_CONTEXT", "b"), ("LOCAL", "1")],
    ] {
        let (code, out, error) = context(wrong);
        assert_eq!((code, out), (Some(2), none()), "{error}");
        assert!(
            error.starts_with("error: ") && error.lines().count() == 1,
            "{error}"
        );
    }

    // Without a cluster, `make install run` is `make run`, which installs by itself.
    for target in ["install", "uninstall"] {
        let said = make(target, &[("KUBECONFIG", &chosen), ("LOCAL", "1")]);
        let all = [said.stdout, said.stderr].concat();
        assert!(said.status.success());
        assert!(
            String::from_utf8(all).unwrap().contains("`make run`"),
            "{target}"
        );
    }
}
