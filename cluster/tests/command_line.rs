//! The command line, run as a user does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

mod leftovers;

/// The program under test.
fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_my-operator-cluster"))
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    for arguments in [
        vec!["up", "--bogus"],
        vec!["up", "--nodes", "many"],
        vec!["exec"],
        vec!["nonsense"],
        vec![],
    ] {
        let output = program().args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn exec_runs_a_command_with_a_cluster_and_passes_its_exit_code_on() {
    let script = "kubectl get nodes -o name && dirname $KUBECONFIG; exit 7";
    let output = program()
        .args(["exec", "--nodes", "2", "--", "sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..2], ["node/node-1", "node/node-2"]);
    leftovers::assert_nothing_left(Path::new(lines[2]));
}

/// A running program and the first line that it printed to standard output.
struct Running {
    child: Child,
    line: String,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Starts `command` and reads lines until one satisfies `wanted`.
    fn until(command: &mut Command, wanted: impl Fn(&str) -> bool) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !wanted(line.trim()) {
            line.clear();
            assert!(
                output.read_line(&mut line).unwrap() > 0,
                "the program ended: {:?}",
                child.wait()
            );
        }
        Self {
            child,
            line: line.trim().to_owned(),
            output,
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(
            Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(),
            signal,
        )
        .unwrap();
    }
}

#[test]
fn nothing_survives_a_parent_that_is_killed() {
    let script = "dirname $KUBECONFIG; sleep 1000 & exec sleep 1000";
    let mut running = Running::until(program().args(["exec", "--", "sh", "-c", script]), |line| {
        line.starts_with('/')
    });
    let directory = PathBuf::from(&running.line);
    assert!(leftovers::processes(&directory).len() >= 5);
    running.signal(Signal::KILL);
    running.child.wait().unwrap();
    leftovers::assert_nothing_left(&directory);
    // The command and its child held the pipe: that it ends says that they are gone too.
    running.output.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_cluster_in_the_background_is_up_until_it_is_down() {
    let state = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = program()
            .args(arguments)
            .env("XDG_STATE_HOME", state.path())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout.clone()).unwrap() + &stderr(&output),
        )
    };
    assert_eq!(run(&["status"]).0, Some(1));
    let (code, text) = run(&["up", "--nodes", "1"]);
    assert_eq!(code, Some(0), "{text}");
    // A shell can evaluate its output.
    let script = format!("{text}\nkubectl get nodes -o name");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "node/node-1\n",
        "{text}"
    );
    let logs = text
        .split("logs are in ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    let directory = PathBuf::from(logs);
    assert!(directory.is_dir());
    let (code, again) = run(&["up"]);
    assert!(code == Some(0) && again.contains("already up"), "{again}");
    let (code, status) = run(&["status"]);
    assert!(
        code == Some(0) && status.contains("is up at https://127.0.0.1:"),
        "{status}"
    );
    let (code, down) = run(&["down"]);
    assert_eq!(code, Some(0), "{down}");
    leftovers::assert_nothing_left(&directory);
    assert_eq!(
        std::fs::read_dir(state.path()).unwrap().count(),
        0,
        "no state is left"
    );
    assert_eq!(run(&["status"]).0, Some(1));
    assert_eq!(run(&["down"]).0, Some(0));
}

/// A directory with a CRD, as `demo --config` wants it, and an operator that runs `script`.
fn product(script: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let crds = directory.path().join("config/crd/bases");
    std::fs::create_dir_all(&crds).unwrap();
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.org}\n\
        spec:\n  group: example.org\n  scope: Namespaced\n  names: {plural: things, singular: thing, kind: Thing}\n  \
        versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n";
    std::fs::write(crds.join("things.yaml"), crd).unwrap();
    let operator = directory.path().join("operator");
    std::fs::write(&operator, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&operator, PermissionsExt::from_mode(0o755)).unwrap();
    directory
}

fn demo(product: &Path) -> Command {
    let mut command = program();
    command
        .arg("demo")
        .arg("--operator")
        .arg(product.join("operator"))
        .arg("--config")
        .arg(product.join("config"));
    command.args(["--nodes", "1"]).stderr(Stdio::piped());
    command
}

#[test]
fn a_demo_ends_with_the_operator_that_ends_by_itself() {
    let product = product("dirname $KUBECONFIG; echo \"cannot do: $*\"; exit 3");
    let output = demo(product.path())
        .args(["--", "--log-level=debug"])
        .output()
        .unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("| cannot do: run --webhook-bind-address 127.0.0.1:"),
        "{text}"
    );
    assert!(
        text.contains(" --leader-elect=false --log-level=debug\n"),
        "{text}"
    );
    assert!(
        text.ends_with("my-operator-cluster: the operator ended by itself (exit status: 3)\n"),
        "{text}"
    );
    let directory = text
        .lines()
        .find_map(|line| line.strip_prefix("| /"))
        .unwrap();
    leftovers::assert_nothing_left(&Path::new("/").join(directory));
}

#[test]
fn a_demo_that_is_asked_to_stop_stops_the_operator_first_and_then_everything() {
    let script = "trap 'echo stopped in order; exit 0' TERM\ndirname $KUBECONFIG\nwhile :; do sleep 0.1; done";
    let product = product(script);
    let mut running = Running::until(&mut demo(product.path()), |line| {
        line.starts_with("Starting the operator")
    });
    let mut errors = BufReader::new(running.child.stderr.take().unwrap());
    let mut directory = String::new();
    while !directory.starts_with("| /") {
        directory.clear();
        assert!(errors.read_line(&mut directory).unwrap() > 0);
    }
    let begin = Instant::now();
    running.signal(Signal::INT);
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("| stopped in order"), "{rest}");
    leftovers::assert_nothing_left(Path::new(directory.trim().trim_start_matches("| ")));
}
