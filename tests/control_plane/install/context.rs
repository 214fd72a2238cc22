//! Which cluster `make run` and `make install` take, by the words of a real kubectl (`hack/context`).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use my_operator_cluster::binaries::Programs;

use crate::harness::checkout;

/// What a program of the checkout prints with these variables, and with a home folder without a kubeconfig.
fn output(program: impl AsRef<OsStr>, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(program)
        .args(arguments)
        .current_dir(checkout())
        .env("HOME", home.path())
        .env_remove("KUBECONFIG")
        .env("KUBECTL", Programs::ensure().unwrap().path("kubectl"))
        .env_remove("LOCAL")
        .env_remove("NODE")
        .env_remove("KINDS")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Exit code, standard output and standard error.
fn texts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap().trim().to_owned();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// A kubeconfig with the contexts `a` and `b`, and this line.
fn kubeconfig(current: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         contexts: [{{name: a, context: {{cluster: c}}}}, {{name: b, context: {{cluster: c}}}}]\n{current}"
    )
}

fn make(target: &str, variables: &[(&str, &str)]) -> Output {
    output("make", &["--no-print-directory", target], variables)
}

#[test]
fn install_and_run_take_the_current_context_else_the_local_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let config = |name: &str, current: &str| {
        let path = folder.path().join(name);
        fs::write(&path, kubeconfig(current)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (chosen, without) = (config("chosen", "current-context: a\n"), config("none", ""));
    let context =
        |variables: &[(&str, &str)]| texts(output(checkout().join("hack/context"), &[], variables));
    let none = String::new;

    assert_eq!(context(&[]), (Some(0), none(), none()));
    let taken = context(&[("KUBECONFIG", &chosen)]);
    assert_eq!(taken, (Some(0), "a".to_owned(), none()));
    let kubectl = Programs::ensure().unwrap().path("kubectl");
    let with_flag = format!("{} --context b", kubectl.display());
    let flag = context(&[("KUBECONFIG", &chosen), ("KUBECTL", &with_flag)]);
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

    // A machine without kubectl has no cluster, unless a configuration says so.
    let empty = tempfile::tempdir().unwrap();
    let bash = Command::new("sh")
        .args(["-c", "command -v bash dirname"])
        .output()
        .unwrap();
    for line in String::from_utf8(bash.stdout).unwrap().lines() {
        let name = std::path::Path::new(line).file_name().unwrap();
        std::os::unix::fs::symlink(line, empty.path().join(name)).unwrap();
    }
    let bare = [
        ("PATH", empty.path().to_str().unwrap()),
        ("KUBECTL", "kubectl"),
    ];
    assert_eq!(context(&bare), (Some(0), none(), none()));
    let (code, _, error) = context(&[bare[0], bare[1], ("KUBECONFIG", &chosen)]);
    assert_eq!(code, Some(2));
    assert!(error.contains("kubectl is missing"), "{error}");

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

/// A folder with `hack/run` and `hack/context` themselves, and other programs in the place of those that they call:
/// each prints what it is called with.
fn scripts() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["hack", "built", "bin"] {
        fs::create_dir(path(name)).unwrap();
    }
    for name in ["hack/run", "hack/context"] {
        fs::copy(checkout().join(name), path(name)).unwrap();
    }
    for (name, script) in [
        ("hack/build", "echo \"build $*\""),
        ("hack/built", "echo built"),
        ("built/my-operator", "echo \"operator $*\""),
        ("built/my-operator-cluster", "echo \"cluster $*\""),
        ("bin/id", "echo \"${USER_ID:-0}\""),
    ] {
        fs::write(path(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(path("chosen"), kubeconfig("current-context: a\n")).unwrap();
    folder
}

/// `hack/run` of [`scripts`] with these arguments and variables.
fn hack_run(
    folder: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let programs = std::env::var("PATH").unwrap();
    let programs = format!("{}:{programs}", folder.join("bin").display());
    let variables = [variables, &[("PATH", programs.as_str())]].concat();
    texts(output(folder.join("hack/run"), arguments, &variables))
}

#[test]
fn run_serves_the_kinds_that_are_installed() {
    let folder = scripts();
    let chosen = folder.path().join("chosen").display().to_string();
    let chosen = ("KUBECONFIG", chosen.as_str());
    let last = |arguments: &[&str], variables: &[(&str, &str)]| {
        let (code, out, error) = hack_run(folder.path(), arguments, variables);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
        out.lines().next_back().unwrap().to_owned()
    };
    let cluster = "operator run --webhooks=false";
    for (kinds, arguments, flags) in [
        ("memcached", &[][..], " --kinds=memcached"),
        (" memcached, foo ", &[], " --kinds=memcached --kinds=foo"),
        ("\n", &[], ""),
        ("memcached", &["--kinds=at"], " --kinds=at"),
        ("memcached", &["--kinds", "at,foo"], " --kinds at,foo"),
        (
            "memcached",
            &["--log-level=debug"],
            " --log-level=debug --kinds=memcached",
        ),
    ] {
        let said = last(arguments, &[chosen, ("KINDS", kinds)]);
        assert_eq!(said, format!("{cluster}{flags}"), "{kinds}");
    }
    // The samples of the local demonstration are of these two kinds.
    let local = "cluster demo --operator built/my-operator --config config --";
    for (kinds, arguments, flags) in [
        (
            "memcached",
            &[][..],
            " --kinds=at --kinds=mydaemonset --kinds=memcached",
        ),
        ("", &[], ""),
        ("memcached", &["--kinds=at"], " --kinds=at"),
    ] {
        let said = last(arguments, &[("KINDS", kinds)]);
        assert_eq!(said, format!("{local}{flags}"), "{kinds}");
    }
}

#[test]
fn run_builds_and_starts_the_nodes_that_are_asked_for() {
    let folder = scripts();
    let chosen = folder.path().join("chosen").display().to_string();
    let chosen = ("KUBECONFIG", chosen.as_str());
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        hack_run(folder.path(), arguments, variables)
    };
    let build =
        |programs: &str| format!("build {programs} -- --bin my-operator --bin my-operator-cluster");
    let flags = "--operator built/my-operator --config config --";

    let fake = format!("{}\ncluster demo {flags}", build("control-plane"));
    for variables in [&[][..], &[("NODE", "")], &[("NODE", "fake")]] {
        let said = run(&[], variables);
        assert_eq!(said, (Some(0), fake.clone(), String::new()));
    }
    let (code, out, _) = run(&[], &[chosen, ("NODE", "fake")]);
    assert_eq!(code, Some(0));
    assert!(out.starts_with("build -- --bin my-operator\n"), "{out}");
    assert!(out.ends_with("\noperator run --webhooks=false"), "{out}");
    // A cluster of its own, whatever kubectl's context is.
    let (build, flag) = (build("node"), "--log-level=debug");
    let real = format!("{build}\ncluster demo --nodes 0 --real-node {flags} {flag}");
    let said = run(&[flag], &[chosen, ("NODE", "real")]);
    assert_eq!(said, (Some(0), real, String::new()));

    for (arguments, variables, words) in [
        (&[][..], &[("NODE", "1")][..], "NODE=1"),
        (&[], &[chosen, ("NODE", "REAL")], "NODE=REAL"),
        (&[], &[("NODE", "real"), ("USER_ID", "1000")], "needs root"),
        (&["--context=b"], &[chosen, ("NODE", "real")], "NODE=real"),
    ] {
        let (code, out, error) = run(arguments, variables);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
        assert!(
            error.starts_with("error: ") && error.contains(words),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
