//! What `make run NODE=real` starts: a demonstration in which commands run.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Killed, checkout, operator_program, wait_for};

#[tokio::test]
async fn the_command_of_the_sample_runs_and_kubectl_logs_prints_yay() {
    let shown = tempfile::NamedTempFile::new().unwrap();
    // One place in the file for both.
    let output = shown.reopen().unwrap();
    let errors = output.try_clone().unwrap();
    let demo = Command::new(operator_program().with_file_name("my-operator-cluster"))
        .args(["demo", "--nodes", "0", "--real-node", "--operator"])
        .arg(operator_program())
        .arg("--config")
        .arg(checkout().join("config"))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn();
    let mut demo = Killed(demo.unwrap());
    let text = wait_for("the end of the demonstration", async || {
        let text = std::fs::read_to_string(shown.path()).unwrap_or_default();
        assert!(demo.0.try_wait().unwrap().is_none(), "it ended: {text}");
        text.contains("Ctrl-C stops everything").then_some(text)
    })
    .await;
    for words in [
        "$ kubectl logs example-at-pod\nYAY\n",
        "The images are stand-ins",
        "  bash:5.3: Debian's bash-static",
        // By the webhook, which the API server reaches from the node's network.
        "* spec.command: Required value: command is required",
        "Commands run on the real node.",
    ] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    assert!(!text.contains("fake"), "{text}");
    kill_process(Pid::from_child(&demo.0), Signal::TERM).unwrap();
    assert!(demo.0.wait().unwrap().success());
}
