//! The command line, run as a user does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The program with nothing but this PATH and an empty cache.
fn bare(path: &Path, cache: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_my-operator-programs"));
    command
        .env_clear()
        .env("PATH", path)
        .env("XDG_CACHE_HOME", cache)
        .arg("control-plane");
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What a run that failed said: one line.
#[track_caller]
fn failure_in_one_line(output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(
        (output.status.code(), text.lines().count()),
        (Some(1), 1),
        "{text}"
    );
    text
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
    let text = failure_in_one_line(&output);
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
    let text = failure_in_one_line(&output);
    assert!(text.contains("go1.24.4 is too old"), "{text}");
}

#[test]
fn a_cache_that_cannot_be_written_is_one_line_that_names_it() {
    let go = fake_go("go1.26.0", "exit 1");
    let output = bare(go.path(), Path::new("/dev/null/cache"))
        .output()
        .unwrap();
    let text = failure_in_one_line(&output);
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
            .starts_with("my-operator-programs: go build of etcd"),
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
