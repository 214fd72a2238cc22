//! `make pictures`: runs the plugins of kubectl in a terminal, on a control plane of their own, and writes what it shows
//! as the pictures of docs/kubectl.

// It says what it has written, and a picture that cannot be recorded ends it.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use my_operator_cluster::{Cluster, FakeNode, Options};
use my_operator_harness::picture::svg;
use my_operator_harness::terminal::{Screen, Terminal, contents};
use my_operator_harness::{Kubectl, Operator, OwnPlane, checkout, install};
use serde_json::{Value, json};

/// Below the checkout.
const FOLDER: &str = "docs/kubectl/pictures";
/// A page must not wait for a picture.
const MAX_BYTES: usize = 30_000;
const COLUMNS: u16 = 100;
const NODES: usize = 24;

#[tokio::main]
async fn main() {
    let nodes = (1..=NODES).map(|number| {
        let zone = format!(
            "zone-{}",
            (b'a' + u8::try_from(number % 3).unwrap()) as char
        );
        FakeNode::new(format!("node-{number:02}")).label("topology.kubernetes.io/zone", zone)
    });
    let options = Options {
        nodes: nodes.collect(),
        ..Options::default()
    };
    let plane = OwnPlane::start(options).await;
    install::install(plane.cluster).await;
    let operator = Operator::start(plane.cluster, "operator", &[]).await;
    let kubectl = Kubectl::new(plane.cluster, "default");

    let at = at(&kubectl).await;
    write(
        "at",
        "kubectl at asks for a command, atq lists it, and atrm removes another",
        &[at],
    );
    let frames = roll_out(plane.cluster, &kubectl).await;
    let title =
        "kubectl mydaemonset get -w shows a roll-out that stops by itself, and ends after undo";
    write("mydaemonset", title, &frames);
    drop(operator);
    plane.stop().await;
}

fn write(name: &str, title: &str, frames: &[Screen]) {
    let svg = svg(title, frames);
    assert!(svg.len() <= MAX_BYTES, "{name} has {} bytes", svg.len());
    let folder = checkout().join(FOLDER);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.svg")), svg).unwrap();
    println!("{FOLDER}/{name}.svg");
}

/// A shell, in which a user makes, lists and removes Ats.
async fn at(kubectl: &Kubectl) -> Screen {
    let shell = Terminal::start(kubectl.shell(), (COLUMNS, 40));
    until_prompt(&shell, "").await;
    shell.enter("kubectl at 16:00 tomorrow --name report\n");
    shell.until_shown("\nat>").await;
    shell.enter("cd /srv\n");
    shell.until_shown("/srv\nat>").await;
    shell.enter("./report --all\n");
    shell.until_shown("--all\nat>").await;
    shell.enter("\x04");
    until_prompt(&shell, "at/report will run").await;
    run(
        &shell,
        "kubectl at teatime fri --name cake -- ./order 'black forest'",
    )
    .await;
    for at in ["at/report", "at/cake"] {
        kubectl.until_field(at, "{.status.phase}", "PENDING").await;
    }
    run(&shell, "kubectl atq").await;
    run(&shell, "kubectl atrm cake").await;
    shell.screen()
}

async fn run(shell: &Terminal, line: &str) {
    shell.enter(&format!("{line}\n"));
    until_prompt(shell, line).await;
}

/// Waits until the shell asks for the next line, and the screen shows this text before that.
async fn until_prompt(shell: &Terminal, text: &str) {
    let is_ready = |screen: &Screen| {
        let shown = contents(screen);
        let before = shown.strip_suffix('$')?;
        (before.contains(text) && (before.is_empty() || before.ends_with('\n'))).then_some(())
    };
    shell.until("the prompt", is_ready).await;
}

/// The live view of a roll-out that stops by itself, and is undone.
async fn roll_out(cluster: &Cluster, kubectl: &Kubectl) -> Vec<Screen> {
    let spec = |image: &str| json!({"image": image, "updateStrategy": {"rollingUpdate": {"maxUnavailable": "25%"}}});
    let apply = async |spec: Value| {
        let object = json!({"apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
            "metadata": {"name": "web"}, "spec": spec});
        kubectl.until_applied(&object.to_string()).await;
    };
    apply(spec("nginx:1.28")).await;
    kubectl
        .until_field("mds/web", "{.status.state}", "Complete")
        .await;
    let view = kubectl.plugin(&["mydaemonset", "get", "web", "-w"]);
    let view = Terminal::start(view, (COLUMNS, 24));
    let mut frames = vec![frame(&view, "24 nodes: ● 24 new").await];

    // Pods of this image do not get ready.
    let mut broken = spec("nginx:1.99");
    broken["template"] =
        json!({"metadata": {"annotations": {"kwok.my-operator.dev/phase": "Pending"}}});
    apply(broken).await;
    frames.push(frame(&view, "24 nodes: ○ 18 old  ◐ 6 starting").await);
    let pods = kubectl.object("pods").await;
    let is_new = |pod: &&Value| pod["spec"]["containers"][0]["image"] == "nginx:1.99";
    let pods = pods["items"].as_array().unwrap().iter().filter(is_new);
    for pod in pods {
        let waiting =
            json!({"reason": "ImagePullBackOff", "message": "manifest for nginx:1.99 not found"});
        let status = json!({"status": {"containerStatuses": [{"name": "app", "ready": false, "restartCount": 0,
            "image": "nginx:1.99", "imageID": "", "state": {"waiting": waiting}}]}});
        let name = pod["metadata"]["name"].as_str().unwrap();
        set_status(cluster, name, &status).await;
    }
    kubectl
        .until_field("mds/web", "{.status.state}", "AutoPaused")
        .await;
    view.until_shown("24 nodes: ✗ 6 failed  · 18 held").await;
    frames.push(frame(&view, "      manifest for nginx:1.99 not found").await);

    let undone = kubectl.run_plugin(&["mydaemonset", "undo", "web"], "");
    undone.await.good();
    kubectl
        .until_field("mds/web", "{.status.state}", "Complete")
        .await;
    frames.push(frame(&view, "24 nodes: ● 24 new").await);
    view.enter("\x03");
    view.end().await.in_order(130);
    frames
}

/// The screen, once it shows this text and a state that fits.
async fn frame(view: &Terminal, text: &str) -> Screen {
    view.until(text, |screen| {
        let shown = contents(screen);
        let is_settled = !shown.contains("Unobserved");
        (is_settled && shown.contains(text)).then(|| screen.clone())
    })
    .await
}

async fn set_status(cluster: &Cluster, pod: &str, status: &Value) {
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    let client = cluster.client().await.unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, "default");
    let params = PatchParams::default();
    pods.patch_status(pod, &params, &Patch::Merge(status))
        .await
        .unwrap();
}
