//! `kubectl at --follow`, of commands that really run, and the output of pods in the view of a MyDaemonSet.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;

use crate::harness::proxy::{Mode, Proxy};
use crate::harness::terminal::{Terminal, contents};
use crate::harness::{Kubectl, LATE, wait_for};
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
    let (template, place) = with_a_folder(&kubectl, "interrupted");
    let args = [
        "at",
        "now",
        "--name",
        "goes-on",
        "--follow",
        "--template",
        &template,
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

/// A pod template with a folder that the test can write to, as `/here`; and the folder.
fn with_a_folder(kubectl: &Kubectl, name: &str) -> (String, PathBuf) {
    let template = kubectl.cluster.directory().join(format!("{name}.yaml"));
    let place = kubectl.cluster.directory().join(name);
    std::fs::create_dir_all(&place).unwrap();
    let text = format!(
        "{{spec: {{volumes: [{{name: here, hostPath: {{path: {}}}}}], containers: [{{name: at, volumeMounts: [{{name: here, mountPath: /here}}]}}]}}}}",
        place.display()
    );
    std::fs::write(&template, text).unwrap();
    (template.to_str().unwrap().to_owned(), place)
}

#[tokio::test]
async fn follow_ends_with_75_for_missed_and_76_for_a_lost_pod() {
    let kubectl = kubectl("follow-ends").await;
    // Until the API server calls the webhook, an At has no defaults.
    let ended = wait_for("the webhook", async || {
        let ended = kubectl.run_plugin(LATE, "").await;
        (ended.code != Some(1)).then_some(ended)
    });
    let ended = ended.await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let words = "at/late was missed, its command has not run: StartingDeadlineExceeded";
    assert!(ended.err.contains(words), "{ended:?}");

    let script = "echo begun; trap exit TERM; while :; do read -t 1 <> <(:) || :; done";
    let lost = async |name: &str, with_kubelet: bool| {
        let args = [
            "at", "now", "--name", name, "--follow", "--", "bash", "-c", script,
        ];
        let (mut child, out, err) = followed(&kubectl, &args);
        // What a pod wrote is gone with it.
        until_shown(&out, "\nbegun\n").await;
        if !with_kubelet {
            kubectl.cluster.stop_component("kubelet").await.unwrap();
        }
        let delete = format!("delete pod {name}-pod --force --grace-period=0");
        kubectl.run(&delete).await.good();
        let status = child.wait().await.unwrap();
        if !with_kubelet {
            kubectl.cluster.start_component("kubelet").await.unwrap();
        }
        let words = format!("at/{name} has an unknown end, its command may have run: PodLost");
        // What is in the pipe when the process ends is read a moment later.
        until_shown(&err, &words).await;
        let (out, err) = (out.lock().unwrap(), err.lock().unwrap());
        assert_eq!(status.code(), Some(76), "{err}");
        assert_eq!(*out, format!("at/{name} will run now\nbegun\n"), "{err}");
        println!("{err}");
    };
    lost("deleted", true).await;
    lost("without-kubelet", false).await;
}

/// What a stream has brought so far.
type Output = Arc<Mutex<String>>;

/// A plugin that goes on, and what it has written to standard output and to standard error.
fn followed(kubectl: &Kubectl, args: &[&str]) -> (Child, Output, Output) {
    let mut command = tokio::process::Command::from(kubectl.plugin(args));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let out = collected(child.stdout.take().unwrap());
    let err = collected(child.stderr.take().unwrap());
    (child, out, err)
}

async fn until_shown(output: &Output, text: &str) {
    wait_for("output", async || {
        output.lock().unwrap().contains(text).then_some(())
    })
    .await;
}

fn collected(mut stream: impl AsyncRead + Send + Unpin + 'static) -> Output {
    let collected = Arc::new(Mutex::new(String::new()));
    let to = Arc::clone(&collected);
    tokio::spawn(async move {
        let mut buffer = vec![0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            // All of it is ASCII.
            to.lock()
                .unwrap()
                .push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
    });
    collected
}

#[tokio::test]
async fn follow_shows_every_line_once_over_connections_that_drop_and_return() {
    let kubectl = kubectl("follow-drops").await;
    let (template, place) = with_a_folder(&kubectl, "drops");
    let proxy = Proxy::to(kubectl.cluster).await;
    let kubeconfig = proxy.kubeconfig(kubectl.cluster, "drops.kubeconfig");
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let script = "for ((i = 0; i < 25000; i++)); do echo $i; done; until [ -e /here/go ]; do read -t 0.2 <> <(:) || :; done; \
                  for ((; i < 50000; i++)); do echo $i; done; exit 5";
    let args = [
        "at",
        "now",
        "--name",
        "drops",
        "--template",
        &template,
        "--follow",
        &kubeconfig,
        "--",
        "bash",
        "-c",
        script,
    ];
    let (mut child, out, err) = followed(&kubectl, &args);
    let tried_again = |times: usize| {
        let err = &err;
        wait_for("a lost connection", async move || {
            (err.lock().unwrap().matches("; trying again").count() >= times).then_some(())
        })
    };
    // In the middle of the lines, and then while there are none.
    until_shown(&out, "\n1000\n").await;
    proxy.set(Mode::Gone);
    tried_again(1).await;
    proxy.set(Mode::Open);
    until_shown(&out, "\n24999\n").await;
    proxy.set(Mode::Gone);
    tried_again(2).await;
    std::fs::write(place.join("go"), "").unwrap();
    // The command ends before the connection returns.
    kubectl
        .until_field("at/drops", "{.status.phase}", "DONE")
        .await;
    tried_again(3).await;
    proxy.set(Mode::Open);
    let status = child.wait().await.unwrap();
    let err = err.lock().unwrap().clone();
    assert_eq!(status.code(), Some(5), "{err}");
    let lines: Vec<String> = (0..50_000).map(|number| number.to_string()).collect();
    let lines = lines.join("\n") + "\n";
    let said = format!("at/drops will run now\n{lines}");
    // What is in the pipe when the process ends is read a moment later.
    wait_for("the end of the output", async || {
        (out.lock().unwrap().len() >= said.len()).then_some(())
    })
    .await;
    let out = out.lock().unwrap().clone();
    assert!(
        out == said,
        "{} bytes, not {}: {err}",
        out.len(),
        said.len()
    );
    println!("{err}");
}

/// Bash prints what does much to a terminal that it reaches, and no escape in the script itself.
const HOSTILE: &str = r"printf '\033[2J\033]0;title\007\033[?25l\033[?1049h50 %%\r100 %%\n\033[31mred\033[0m \342\200\256 evil\n'";
/// The same as it is shown; the terminal makes `red` red.
const SHOWN: [&str; 3] = [
    "^[[2J^[]0;title^G^[[?25l^[[?1049h50 %",
    "100 %",
    r"red \u{202e} evil",
];

#[tokio::test]
async fn hostile_output_is_shown_in_a_terminal_and_does_nothing() {
    let kubectl = kubectl("follow-hostile").await;
    let script = format!("{HOSTILE}; exit 3");
    let args = [
        "at", "now", "--name", "hostile", "--follow", "--", "bash", "-c", &script,
    ];
    let terminal = wait_for("the webhook", async || {
        let terminal = Terminal::start(kubectl.plugin(&args), (100, 24));
        let left = terminal.end().await;
        (left.code != Some(1)).then_some(left)
    });
    let shown = terminal.await.in_order(3);
    let expected = format!("{}\nat/hostile failed with exit code 3", SHOWN.join("\n"));
    assert!(shown.ends_with(&expected), "{shown}");
    let logs = kubectl.plugin(&["at", "--logs", "hostile"]);
    let shown = Terminal::start(logs, (100, 24)).end().await.in_order(0);
    assert_eq!(shown, SHOWN.join("\n"));

    // The same of a pod that crashes again and again, in the view of the nodes.
    let app = json!({"name": "app", "command": ["bash", "-c", script]});
    let object = json!({"apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet", "metadata": {"name": "web"},
        "spec": {"image": "bash:5.3", "template": {"spec": {"containers": [app]}}}});
    kubectl.until_applied(&object.to_string()).await;
    let view = kubectl.plugin(&["mydaemonset", "get", "web", "-w"]);
    let view = Terminal::start(view, (100, 30));
    let lines = view
        .until("the last lines of the pod", |screen| {
            let shown = contents(screen);
            let lines = shown.split_once("\nFailing pods:\n")?.1.to_owned();
            lines.contains(SHOWN[0]).then_some(lines)
        })
        .await;
    // A carriage return within a line is shown there.
    let line = format!(r"      {}\r{}", SHOWN[0], SHOWN[1]);
    assert!(
        lines.contains(&line) && lines.contains(r"\u{202e} evil"),
        "{lines}"
    );
    view.enter("\x03");
    let shown = view.end().await.in_order(130);
    assert!(shown.starts_with("Name:      web\n"), "{shown}");
}
