//! The Helm chart: `dist/chart` is what the generator makes of config/.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use my_operator_cluster::binaries::Programs;

/// The root of the checkout.
fn checkout() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.to_owned()
}

/// A command that finds the kubectl of the tests' control planes.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let kubectl = Programs::ensure().unwrap().path("kubectl");
    let mut command = Command::new(program);
    command.current_dir(checkout()).env("KUBECTL", kubectl);
    command
}

/// Standard output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The files below a folder, by their path there.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                all.insert(path.strip_prefix(folder).unwrap().to_owned(), text);
            }
        }
    }
    all
}

#[test]
fn the_committed_chart_is_current() {
    let made = tempfile::tempdir().unwrap();
    output(
        command(env!("CARGO_BIN_EXE_my-operator-packaging"))
            .args(["chart", "--out"])
            .arg(made.path()),
    );
    let (made, committed) = (files(made.path()), files(&checkout().join("dist/chart")));
    let names = |files: &BTreeMap<PathBuf, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&made), names(&committed), "run make chart");
    for (path, text) in &made {
        assert_eq!(text, &committed[path], "{}: run make chart", path.display());
    }
}
