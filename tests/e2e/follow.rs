//! `kubectl at --follow`, of commands that really run.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::wait_for;
use crate::kubectl;

#[tokio::test]
async fn follow_shows_the_output_and_ends_with_the_exit_code_of_the_command() {
    let kubectl = kubectl("follow").await;
    // Until the API server calls the webhook, an At has no defaults.
    kubectl
        .until_applied(
            "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: earlier}, spec: {schedule: '2999-01-01T00:00:00Z', command: echo YAY}}",
        )
        .await;
    for (name, script, code, out, words) in [
        (
            "zero",
            "echo one; echo two",
            0,
            "one\ntwo\n",
            "at/zero succeeded",
        ),
        (
            "three",
            "echo oops >&2; exit 3",
            3,
            "oops\n",
            "at/three failed with exit code 3",
        ),
        (
            "killed",
            "echo x; exec 2>/dev/null; (kill -9 $BASHPID); exit $?",
            137,
            "x\n",
            "at/killed failed with exit code 137, signal 9",
        ),
    ] {
        let args = ["at", "now", "--name", name, "--follow"];
        let ended = kubectl.run_plugin(&args, script).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let said = format!("at/{name} will run now\n{out}");
        assert_eq!(ended.out, said, "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
        let log = kubectl.run_plugin(&["at", "--logs", name], "").await.good();
        assert_eq!(log, out);
        println!("{}", ended.err);
    }
    // More than fits into any buffer, with a pause in which the log is read to its end.
    let args = ["at", "now", "--name", "long", "--follow"];
    let script =
        "for ((i = 0; i < 50000; i++)); do echo $i; done; read -t 3 <> <(:) || :; echo end";
    let ended = kubectl.run_plugin(&args, script).await;
    let numbers: Vec<String> = (0..50_000).map(|number| number.to_string()).collect();
    let numbers = numbers.join("\n") + "\n";
    let said = format!("at/long will run now\n{numbers}end\n");
    assert!(
        ended.out == said,
        "{} bytes, not {}: {}",
        ended.out.len(),
        said.len(),
        ended.err
    );
}

#[tokio::test]
async fn follow_leaves_the_at_when_it_is_interrupted_and_can_come_back() {
    let kubectl = kubectl("interrupted").await;
    let template = kubectl.cluster.directory().join("interrupted.yaml");
    let place = kubectl.cluster.directory().join("interrupted");
    std::fs::create_dir_all(&place).unwrap();
    let text = format!(
        "{{spec: {{volumes: [{{name: here, hostPath: {{path: {}}}}}], containers: [{{name: at, volumeMounts: [{{name: here, mountPath: /here}}]}}]}}}}",
        place.display()
    );
    std::fs::write(&template, text).unwrap();
    let args = [
        "at",
        "now",
        "--name",
        "goes-on",
        "--follow",
        "--template",
        template.to_str().unwrap(),
        "--",
        "bash",
        "-c",
        "echo begun; until [ -e /here/go ]; do read -t 0.2 <> <(:) || :; done; echo ended; exit 4",
    ];
    let mut command = kubectl.plugin(&args);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let pid = Pid::from_child(&child);
    let begun = || async {
        let log = kubectl.run_plugin(&["at", "--logs", "goes-on"], "").await;
        (log.out == "begun\n").then_some(())
    };
    wait_for("the command to begin", begun).await;
    kill_process(pid, Signal::INT).unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap())
        .await
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{err}");
    let back = format!(
        "kubectl at --logs goes-on --follow -n {}",
        kubectl.namespace
    );
    assert!(err.contains(&back), "{err}");

    let follow = kubectl.run_plugin(&["at", "--logs", "goes-on", "--follow"], "");
    let go = async { std::fs::write(place.join("go"), "").unwrap() };
    let (ended, ()) = tokio::join!(follow, go);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert_eq!(ended.out, "begun\nended\n");
}
