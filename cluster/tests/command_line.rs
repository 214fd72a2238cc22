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

/// The program with nothing but this PATH and an empty cache.
fn bare(path: &Path, cache: &Path) -> Command {
    let mut command = program();
    command
        .env_clear()
        .env("PATH", path)
        .env("XDG_CACHE_HOME", cache)
        .arg("build");
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A directory with a `go` that says it is `version` and builds by running `build`, where `$out` is the output.
fn fake_go(version: &str, build: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "#!/bin/sh\nPATH=/usr/bin:/bin\nif [ \"$1\" = env ]; then echo {version}; echo local; exit 0; fi\n\
         while [ \"$1\" != -o ]; do shift; done\nout=$2\n{build}\n"
    );
    let path = directory.path().join("go");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    directory
}

#[test]
fn without_go_and_without_programs_one_line_says_what_to_install() {
    let empty = tempfile::tempdir().unwrap();
    let output = bare(empty.path(), empty.path()).output().unwrap();
    let text = stderr(&output);
    assert_eq!(
        (output.status.code(), text.lines().count()),
        (Some(1), 1),
        "{text}"
    );
    assert!(
        text.contains("install Go 1.26") && text.contains("KUBEBUILDER_ASSETS"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_dir(empty.path()).unwrap().count(),
        0,
        "nothing was written"
    );
}

#[test]
fn a_go_that_is_too_old_is_one_line() {
    let (go, cache) = (fake_go("go1.24.4", "exit 1"), tempfile::tempdir().unwrap());
    let output = bare(go.path(), cache.path()).output().unwrap();
    let text = stderr(&output);
    assert_eq!(
        (output.status.code(), text.lines().count()),
        (Some(1), 1),
        "{text}"
    );
    assert!(text.contains("go1.24.4 is too old"), "{text}");
}

#[test]
fn a_cache_that_cannot_be_written_is_one_line_that_names_it() {
    let go = fake_go("go1.26.0", "exit 1");
    let output = bare(go.path(), Path::new("/dev/null/cache"))
        .output()
        .unwrap();
    let text = stderr(&output);
    assert_eq!(
        (output.status.code(), text.lines().count()),
        (Some(1), 1),
        "{text}"
    );
    assert!(
        text.contains("/dev/null/cache/my-operator/cluster"),
        "{text}"
    );
}

#[test]
fn a_failed_build_shows_the_end_of_what_go_said_and_leaves_no_program() {
    let build = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo \"error $i\" >&2; done; echo half >\"$out\"; exit 1";
    let (go, cache) = (fake_go("go1.26.0", build), tempfile::tempdir().unwrap());
    let output = bare(go.path(), cache.path()).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.contains("error 40\n") && !text.contains("error 20\n"),
        "{text}"
    );
    assert!(
        text.lines()
            .last()
            .unwrap()
            .starts_with("my-operator-cluster: go build of etcd"),
        "{text}"
    );
    let leaf = std::fs::read_dir(cache.path().join("my-operator/cluster"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let left: Vec<_> = std::fs::read_dir(leaf)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["build.lock"]);
}

#[test]
fn a_full_disk_is_one_line_after_the_progress() {
    let build = "echo 'write /x/y: no space left on device' >&2; exit 1";
    let (go, cache) = (fake_go("go1.26.0", build), tempfile::tempdir().unwrap());
    let output = bare(go.path(), cache.path()).output().unwrap();
    let text = stderr(&output);
    let last = text.lines().last().unwrap();
    assert!(
        last.contains("the disk is full while building etcd")
            && last.ends_with("/x/y: no space left on device"),
        "{text}"
    );
    assert_eq!(text.matches("no space left").count(), 1, "{text}");
}

#[test]
fn programs_of_kubebuilder_assets_are_taken_and_the_rest_is_built() {
    let (assets, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["etcd", "kube-apiserver", "kubectl"] {
        std::fs::write(assets.path().join(name), "").unwrap();
    }
    let with_assets = |path: &Path| {
        bare(path, cache.path())
            .env("KUBEBUILDER_ASSETS", assets.path())
            .output()
            .unwrap()
    };
    let text = stderr(&with_assets(assets.path()));
    assert!(
        text.contains("(kube-controller-manager, kube-scheduler)"),
        "{text}"
    );
    let go = fake_go("go1.26.0", "echo program >\"$out\"");
    let output = with_assets(go.path());
    let text = stderr(&output);
    assert!(
        output.status.success() && text.contains("[2 of 2] kube-scheduler: done"),
        "{text}"
    );
}

#[test]
fn two_builds_at_once_build_once() {
    let cache = tempfile::tempdir().unwrap();
    let count = cache.path().join("count");
    let build = format!(
        "[ \"$GOFLAGS\" = -mod=readonly ] || exit 9\necho x >>{}\nsleep 0.4\necho program >\"$out\"",
        count.display()
    );
    let go = fake_go("go1.26.0", &build);
    let start = || {
        bare(go.path(), cache.path())
            .env("GOFLAGS", "-mod=vendor")
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut first = start();
    while !count.exists() {
        let ended = first.try_wait().unwrap();
        assert!(ended.is_none(), "it built nothing: {ended:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = start();
    let (first, second) = (
        first.wait_with_output().unwrap(),
        second.wait_with_output().unwrap(),
    );
    assert!(
        first.status.success() && second.status.success(),
        "{}{}",
        stderr(&first),
        stderr(&second)
    );
    assert!(
        stderr(&first).contains("[5 of 5] kube-scheduler: done"),
        "{}",
        stderr(&first)
    );
    assert!(
        stderr(&second).contains("another process is building"),
        "{}",
        stderr(&second)
    );
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "x\n".repeat(5));
    // And from then on it needs no Go.
    let third = bare(cache.path(), cache.path()).output().unwrap();
    assert!(
        third.status.success() && third.stderr.is_empty(),
        "{}",
        stderr(&third)
    );
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
