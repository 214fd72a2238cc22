//! The Go programs of `tests/oracle`, and kstatus of Helm's module, which tests ask at run time.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The flags of the compiler for the local control plane.
pub const CONTROL_PLANE_FLAGS: &str = "-gcflags=all=-dwarf=false";

/// The folder of the Go module that a program is in, and the flags of the compiler: those of the local control plane or of
/// Helm 4, so that Go has compiled most of it already.
fn module(program: &str) -> (&'static str, &'static str) {
    match program {
        "kstatus" => (
            "cluster/programs/go/tests",
            "-gcflags=all=-dwarf=false -N -l",
        ),
        _ => ("tests/oracle", CONTROL_PLANE_FLAGS),
    }
}

/// Builds a program once per process, and returns its path. A program that is up to date is not linked again: Go compares
/// the build ID in the file with its inputs.
fn build(program: &str) -> PathBuf {
    static BUILT: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);
    let mut built = BUILT.lock().unwrap();
    if let Some(path) = built.get(program) {
        return path.clone();
    }
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let path = target.join("oracles").join(program);
    let (folder, flags) = module(program);
    go_build(folder, &format!("./{program}"), flags, &path);
    built.insert(program.to_owned(), path.clone());
    path
}

/// Builds a package of the Go module in a folder of the checkout into the file `to`.
///
/// # Panics
/// When Go is missing, or the package does not compile.
pub fn go_build(folder: &str, package: &str, flags: &str, to: &Path) {
    let status = Command::new("go")
        .args(["build", "-trimpath", flags, "-o"])
        .arg(to)
        .arg(package)
        .current_dir(super::checkout().join(folder))
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", "-mod=readonly"),
            ("GOWORK", "off"),
        ])
        .status()
        .expect("cannot start go");
    assert!(status.success(), "go build {package} in {folder}: {status}");
}

/// Runs a program, adds `environment` to ours, and returns its answer to each question.
pub fn ask<A: DeserializeOwned>(
    program: &str,
    environment: &[(&str, &Path)],
    questions: impl ExactSizeIterator<Item = Value>,
) -> Vec<A> {
    let count = questions.len();
    // A file, not a pipe: the program blocks on a full output pipe while we still write to its input.
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut lines = BufWriter::new(&file);
    for question in questions {
        writeln!(lines, "{question}").unwrap();
    }
    lines.flush().unwrap();
    drop(lines);
    let output = Command::new(build(program))
        .envs(environment.iter().copied())
        .stdin(File::open(file.path()).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .expect("cannot start the program");
    assert!(output.status.success(), "{}", output.status);
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let answers: Vec<A> = answers.map(Result::unwrap).collect();
    assert_eq!(answers.len(), count);
    answers
}
