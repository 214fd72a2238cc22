//! docs/mydaemonset/checklist.md against the tests that Kubernetes has for its own DaemonSet controller.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness;

const PAGE: &str = "docs/mydaemonset/checklist.md";

/// Files with functions `TestName`.
const GO_TESTS: [&str; 4] = [
    "test/integration/daemonset/daemonset_test.go",
    "pkg/controller/daemon/daemon_controller_test.go",
    "pkg/controller/daemon/update_test.go",
    "pkg/controller/daemon/util/daemonset_util_test.go",
];
/// Files with specs of Ginkgo.
const SPECS: [&str; 2] = [
    "test/e2e/apps/daemon_set.go",
    "test/e2e/apps/controller_revision.go",
];

/// The sources of the local control plane.
fn kubernetes() -> PathBuf {
    let output = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"])
        .current_dir(harness::checkout().join("cluster/programs/go/controlplane"))
        .envs([("GOFLAGS", "-mod=readonly"), ("GOWORK", "off")])
        .output()
        .expect("cannot start go");
    assert!(output.status.success(), "{output:?}");
    let folder = String::from_utf8(output.stdout).unwrap();
    Path::new(folder.trim()).to_owned()
}

/// What follows each `start` in a text, up to `end`.
fn between<'a>(text: &'a str, start: &'a str, end: char) -> impl Iterator<Item = &'a str> {
    let rest = text.split(start).skip(1);
    rest.filter_map(move |rest| rest.split(end).next())
}

#[test]
fn the_checklist_has_every_test_of_the_built_in_controller() {
    let kubernetes = kubernetes();
    let read = |file: &str| fs::read_to_string(kubernetes.join(file)).unwrap();
    let mut theirs = BTreeSet::new();
    for text in GO_TESTS.map(read) {
        let names = between(&text, "\nfunc Test", '(');
        theirs.extend(names.map(|name| format!("Test{name}")));
    }
    for text in SPECS.map(read) {
        theirs.extend(between(&text, "It(\"", '"').map(str::to_owned));
    }
    let page = fs::read_to_string(harness::checkout().join(PAGE)).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("- `"));
    let theirs_first = rows.filter_map(|row| row.split("`: `").next());
    let listed = theirs_first.flat_map(|column| column.split('`').skip(1).step_by(2));
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    let difference = |a: &BTreeSet<String>, b: &BTreeSet<String>| -> Vec<String> {
        a.difference(b).cloned().collect()
    };
    assert_eq!(difference(&theirs, &listed), [""; 0], "not on the page");
    assert_eq!(difference(&listed, &theirs), [""; 0], "not in Kubernetes");
}
