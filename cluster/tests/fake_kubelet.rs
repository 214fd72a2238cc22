//! What the fake kubelet does with pods on fake nodes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use my_operator_cluster::{Cluster, FakeNode, Options, shared};
use serde_json::{Value, json};

async fn cluster() -> &'static Cluster {
    let tainted = FakeNode::new("tainted")
        .taint("reserved", "yes", "NoSchedule")
        .label("kind", "special");
    let nodes = vec![FakeNode::new("node-1"), FakeNode::new("node-2"), tainted];
    shared(Options {
        nodes,
        ..Options::default()
    })
    .await
}

/// Creates a pod with one container and these annotations.
async fn create(
    pods: &Api<Pod>,
    name: &str,
    restart_policy: &str,
    annotations: Value,
    spec: Value,
) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "restartPolicy": restart_policy,
            "containers": [{"name": "main", "image": "registry.example.org/busybox:1"}],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pods.create(
        &PostParams::default(),
        &serde_json::from_value(pod).unwrap(),
    )
    .await
    .unwrap();
}

async fn pods(prefix: &str) -> Api<Pod> {
    let cluster = cluster().await;
    let namespace = cluster.namespace(prefix).await.unwrap();
    Api::namespaced(cluster.client().await.unwrap(), &namespace)
}

async fn until(pods: &Api<Pod>, name: &str, what: &str, is: impl Fn(&Pod) -> bool) -> Pod {
    let begin = Instant::now();
    loop {
        let pod = pods.get(name).await.unwrap();
        if is(&pod) {
            return pod;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "pod {name} is not {what}: {:#?}",
            pod.status
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn terminated(pod: &Pod) -> ContainerStateTerminated {
    let statuses = pod
        .status
        .as_ref()
        .unwrap()
        .container_statuses
        .as_ref()
        .unwrap();
    statuses[0]
        .state
        .as_ref()
        .unwrap()
        .terminated
        .clone()
        .unwrap()
}

#[tokio::test]
async fn a_pod_that_runs_once_succeeds_without_any_annotation() {
    let pods = pods("succeed").await;
    create(&pods, "once", "Never", Value::Null, json!({})).await;
    let pod = until(&pods, "once", "Succeeded", |pod| phase(pod) == "Succeeded").await;
    let end = terminated(&pod);
    assert_eq!(
        (end.exit_code, end.reason.as_deref()),
        (0, Some("Completed"))
    );
    assert_eq!(end.message.as_deref(), Some("a fake node: nothing ran"));
    assert!(end.started_at.is_some() && end.finished_at.is_some());
    assert!(!ready(&pod));
}

#[tokio::test]
async fn a_pod_ends_with_the_chosen_code_and_message_after_the_chosen_time() {
    let pods = pods("code").await;
    let annotations = json!({
        "kwok.my-operator.dev/exit-code": "3",
        "kwok.my-operator.dev/message": "it said: \"no\"\nand more",
        "kwok.my-operator.dev/run-seconds": "2.5",
    });
    create(&pods, "code", "Never", annotations, json!({})).await;
    let pod = until(&pods, "code", "Failed", |pod| phase(pod) == "Failed").await;
    let end = terminated(&pod);
    // Both are cut to the second.
    let second = |time: Option<&Time>| time.unwrap().0.as_second();
    let (from, to) = (
        second(end.started_at.as_ref()),
        second(end.finished_at.as_ref()),
    );
    assert!(to - from >= 2, "{end:?}");
    assert_eq!((end.exit_code, end.reason.as_deref()), (3, Some("Error")));
    assert_eq!(end.message.as_deref(), Some("it said: \"no\"\nand more"));
}

#[tokio::test]
async fn a_held_pod_runs_until_its_code_is_set() {
    let pods = pods("hold").await;
    let annotations = json!({
        "kwok.my-operator.dev/exit-code": "hold", "kwok.my-operator.dev/run-seconds": "0",
    });
    create(&pods, "held", "Never", annotations, json!({})).await;
    until(&pods, "held", "Running", |pod| {
        phase(pod) == "Running" && ready(pod)
    })
    .await;
    // Another pod with the same seconds goes all the way meanwhile.
    create(
        &pods,
        "other",
        "Never",
        json!({"kwok.my-operator.dev/run-seconds": "0"}),
        json!({}),
    )
    .await;
    until(&pods, "other", "Succeeded", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(phase(&pods.get("held").await.unwrap()), "Running");
    annotate(&pods, "held", "exit-code", "7").await;
    let pod = until(&pods, "held", "Failed", |pod| phase(pod) == "Failed").await;
    assert_eq!(terminated(&pod).exit_code, 7);
}

async fn annotate(pods: &Api<Pod>, name: &str, key: &str, value: &str) {
    let patch =
        json!({"metadata": {"annotations": {format!("kwok.my-operator.dev/{key}"): value}}});
    pods.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_gated_pod_is_left_alone_until_its_gate_is_removed() {
    let pods = pods("gate").await;
    let gate = json!({"schedulingGates": [{"name": "example.org/not-yet"}]});
    create(
        &pods,
        "gated",
        "Never",
        json!({"kwok.my-operator.dev/run-seconds": "0"}),
        gate,
    )
    .await;
    create(
        &pods,
        "free",
        "Never",
        json!({"kwok.my-operator.dev/run-seconds": "0"}),
        json!({}),
    )
    .await;
    until(&pods, "free", "Succeeded", |pod| phase(pod) == "Succeeded").await;
    let gated = pods.get("gated").await.unwrap();
    assert_eq!(
        (phase(&gated), &gated.spec.as_ref().unwrap().node_name),
        ("Pending", &None)
    );
    let patch = json!({"spec": {"schedulingGates": null}});
    pods.patch("gated", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    until(&pods, "gated", "Succeeded", |pod| phase(pod) == "Succeeded").await;
}

#[tokio::test]
async fn a_long_running_pod_is_ready_on_the_node_it_was_born_to() {
    let pods = pods("born").await;
    create(
        &pods,
        "born",
        "Always",
        Value::Null,
        json!({"nodeName": "tainted"}),
    )
    .await;
    let pod = until(&pods, "born", "Ready", ready).await;
    assert_eq!(
        (phase(&pod), pod.spec.as_ref().unwrap().node_name.as_deref()),
        ("Running", Some("tainted"))
    );
    assert!(pod.status.unwrap().pod_ip.is_some());
}

#[tokio::test]
async fn readiness_follows_its_annotation() {
    let pods = pods("ready").await;
    create(
        &pods,
        "slow",
        "Always",
        json!({"kwok.my-operator.dev/ready": "false"}),
        json!({}),
    )
    .await;
    let pod = until(&pods, "slow", "Running", |pod| phase(pod) == "Running").await;
    assert!(!ready(&pod));
    annotate(&pods, "slow", "ready", "true").await;
    until(&pods, "slow", "Ready", ready).await;
    annotate(&pods, "slow", "ready", "false").await;
    until(&pods, "slow", "not Ready", |pod| {
        !ready(pod) && phase(pod) == "Running"
    })
    .await;
}

#[tokio::test]
async fn a_long_running_pod_can_be_made_to_fail() {
    let pods = pods("fail").await;
    create(
        &pods,
        "annotated",
        "Always",
        json!({"kwok.my-operator.dev/phase": "Failed"}),
        json!({}),
    )
    .await;
    let image = json!({"containers": [{"name": "main", "image": "registry.example.org/fail:1"}]});
    create(&pods, "image", "Always", Value::Null, image).await;
    create(&pods, "later", "Always", Value::Null, json!({})).await;
    for name in ["annotated", "image"] {
        let pod = until(&pods, name, "Failed", |pod| phase(pod) == "Failed").await;
        assert_eq!(terminated(&pod).exit_code, 1);
    }
    until(&pods, "later", "Ready", ready).await;
    annotate(&pods, "later", "phase", "Failed").await;
    until(&pods, "later", "Failed", |pod| {
        phase(pod) == "Failed" && !ready(pod)
    })
    .await;
}

#[tokio::test]
async fn a_pod_can_be_kept_pending_on_its_node() {
    let pods = pods("pending").await;
    create(
        &pods,
        "stuck",
        "Always",
        json!({"kwok.my-operator.dev/phase": "Pending"}),
        json!({}),
    )
    .await;
    create(&pods, "other", "Always", Value::Null, json!({})).await;
    until(&pods, "other", "Ready", ready).await;
    let bound = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.is_some();
    let pod = until(&pods, "stuck", "bound", bound).await;
    assert_eq!(phase(&pod), "Pending");
}

#[tokio::test]
async fn deleted_pods_vanish_at_once_and_finalizers_keep_them_stopped() {
    let pods = pods("delete").await;
    create(&pods, "plain", "Always", Value::Null, json!({})).await;
    create(
        &pods,
        "kept",
        "Never",
        json!({"kwok.my-operator.dev/exit-code": "hold"}),
        json!({}),
    )
    .await;
    let finalizers = |list: Value| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    pods.patch(
        "kept",
        &PatchParams::default(),
        &finalizers(json!(["example.org/keep"])),
    )
    .await
    .unwrap();
    until(&pods, "plain", "Ready", ready).await;
    until(&pods, "kept", "Running", |pod| phase(pod) == "Running").await;

    let begin = Instant::now();
    pods.delete("plain", &DeleteParams::default())
        .await
        .unwrap();
    while pods.get_opt("plain").await.unwrap().is_some() {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "the deleted pod is still there"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    pods.delete("kept", &DeleteParams::default()).await.unwrap();
    let pod = until(&pods, "kept", "stopped", |pod| phase(pod) == "Failed").await;
    assert_eq!(terminated(&pod).exit_code, 143);
    let deleted = |pod: &Pod| pod.metadata.deletion_grace_period_seconds == Some(0);
    until(&pods, "kept", "deleted with grace 0", deleted).await;
    pods.patch("kept", &PatchParams::default(), &finalizers(Value::Null))
        .await
        .unwrap();
    assert!(pods.get_opt("kept").await.unwrap().is_none());
}

#[tokio::test]
async fn a_deleted_pod_can_be_replaced_by_one_of_the_same_name() {
    let pods = pods("again").await;
    let mut last = None;
    for _ in 0..20 {
        create(
            &pods,
            "same",
            "Always",
            Value::Null,
            json!({"nodeName": "node-1"}),
        )
        .await;
        let pod = until(&pods, "same", "Ready", ready).await;
        assert_ne!(pod.metadata.uid, last);
        last = pod.metadata.uid;
        // Without a grace period it is gone at once, while the fake kubelet may still have a delete of its own to make.
        let half = DeleteParams::default().grace_period(1);
        pods.delete("same", &half).await.unwrap();
        let _ = pods
            .delete("same", &DeleteParams::default().grace_period(0))
            .await;
        while pods.get_opt("same").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    create(
        &pods,
        "same",
        "Always",
        Value::Null,
        json!({"nodeName": "node-1"}),
    )
    .await;
    // Longer than a pod may stay that is deleted with a grace period of 0.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(ready(&pods.get("same").await.unwrap()));
}

#[tokio::test]
async fn a_burst_of_pods_is_ready_soon_each_with_an_address_of_its_own() {
    let pods = pods("burst").await;
    let names: Vec<_> = (1..=200).map(|number| format!("pod-{number}")).collect();
    let begin = Instant::now();
    let creations = names.iter().map(|name| {
        create(
            &pods,
            name,
            "Always",
            Value::Null,
            json!({"nodeName": "node-2"}),
        )
    });
    futures::stream::iter(creations)
        .buffer_unordered(16)
        .collect::<()>()
        .await;
    let created = begin.elapsed();
    for name in &names {
        until(&pods, name, "Ready", ready).await;
    }
    eprintln!(
        "200 pods created after {created:?}, Ready after {:?}",
        begin.elapsed()
    );
    let list = pods.list(&ListParams::default()).await.unwrap();
    let addresses = list
        .items
        .into_iter()
        .map(|pod| pod.status.unwrap().pod_ip.unwrap());
    assert_eq!(addresses.collect::<BTreeSet<_>>().len(), 200);
}

#[tokio::test]
async fn nodes_come_go_and_become_not_ready() {
    let cluster = cluster().await;
    cluster
        .add_node(FakeNode::new("cordoned").unschedulable())
        .await
        .unwrap();
    cluster
        .add_node(FakeNode::new("brief").label("zone", "a"))
        .await
        .unwrap();
    cluster.set_node_ready("brief", false).await.unwrap();
    cluster.set_node_ready("brief", true).await.unwrap();
    let output = cluster
        .kubectl()
        .args(["get", "nodes", "-l", "zone=a", "-o", "name"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "node/brief\n");
    cluster.remove_node("brief").await.unwrap();
    cluster.remove_node("cordoned").await.unwrap();
}

/// Whether a command succeeded, and what it printed on standard output and standard error.
fn ended(command: &mut Command) -> (bool, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn kubectl(cluster: &Cluster, namespace: &str, args: &[&str]) -> (bool, String, String) {
    let mut command = cluster.kubectl();
    ended(command.args(["--namespace", namespace]).args(args))
}

/// The log of a container on a fake node.
fn line(node: &str, container: &str) -> String {
    format!(
        "{node} is a fake node: nothing runs on it, so container {container} printed nothing.\n"
    )
}

#[tokio::test]
async fn kubectl_logs_and_exec_say_that_nothing_runs() {
    let pods = pods("logs").await;
    let (cluster, namespace) = (cluster().await, pods.namespace().unwrap());
    let kubectl = |args: &[&str]| kubectl(cluster, namespace, args);
    let hold = json!({
        "kwok.my-operator.dev/exit-code": "hold", "kwok.my-operator.dev/run-seconds": "0",
    });
    let containers = json!([{"name": "main", "image": "i:1"}, {"name": "side", "image": "i:1"}]);
    let spec = json!({"nodeName": "node-2", "containers": containers});
    create(&pods, "held", "Never", hold, spec).await;
    until(&pods, "held", "Running", |pod| phase(pod) == "Running").await;
    let (main, side) = (line("node-2", "main"), line("node-2", "side"));
    let logs = |args: &[&str]| {
        let (success, out, err) = kubectl(&[&["logs", "held"][..], args].concat());
        assert!(success, "{args:?}: {err}");
        out
    };
    assert_eq!(logs(&["-c", "side"]), side);
    // kubectl asks for them in the order of a map, which is by chance.
    let of_all = logs(&["--all-containers"]);
    assert!(
        [format!("{main}{side}"), format!("{side}{main}")].contains(&of_all),
        "{of_all}"
    );
    assert_eq!(logs(&["-c", "main", "--tail=0"]), "");
    let stamped = logs(&["-c", "main", "--timestamps"]);
    let (time, rest) = stamped.split_once(' ').unwrap();
    assert!(time.parse::<Timestamp>().is_ok(), "{stamped}");
    assert_eq!(rest, main);

    for args in [
        &["exec", "held", "-c", "main", "--", "ls"][..],
        &["attach", "held", "-c", "main"],
        &["port-forward", "pod/held", ":80"],
    ] {
        let (success, _, err) = kubectl(args);
        let says_so =
            err.contains("node-2 is a fake node: nothing runs on it, so there is nothing to exec");
        assert!(!success && says_so, "{args:?}: {err}");
    }

    let mut follow = cluster.kubectl();
    follow.args(["--namespace", namespace, "logs", "-f", "held", "-c", "main"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(follow.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert_eq!(first, main);
    // Another whole request later, it still follows.
    assert_eq!(logs(&["-c", "main"]), main);
    assert!(follow.try_wait().unwrap().is_none(), "before its container");
    annotate(&pods, "held", "exit-code", "0").await;
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(follow.wait().unwrap().success());
    until(&pods, "held", "Succeeded", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(logs(&["-c", "main"]), main);
    assert_eq!(logs(&["-f", "-c", "main"]), main);

    let (success, _, err) = kubectl(&["logs", "held", "-c", "main", "--previous"]);
    let words = "previous terminated container \"main\" in pod \"held\" not found";
    assert!(!success && err.contains(words), "{err}");
    let pending = json!({"kwok.my-operator.dev/phase": "Pending"});
    let spec = json!({"nodeName": "node-1"});
    create(&pods, "stuck", "Always", pending, spec).await;
    let (success, _, err) = kubectl(&["logs", "-f", "stuck"]);
    let words = "container \"main\" in pod \"stuck\" is waiting to start: ContainerCreating";
    assert!(!success && err.contains(words), "{err}");
}

#[tokio::test]
async fn logs_can_be_read_after_a_restart_of_the_fake_kubelet_and_at_another_port() {
    let cluster = Cluster::start(Options::with_nodes(&["node-1"])).await;
    let cluster = cluster.unwrap();
    let born_late = FakeNode::new("late").not_ready();
    cluster.add_node(born_late).await.unwrap();
    cluster.set_node_ready("late", true).await.unwrap();
    let client = cluster.client().await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    for node in ["node-1", "late"] {
        let spec = json!({"nodeName": node});
        create(&pods, node, "Always", Value::Null, spec).await;
        until(&pods, node, "Ready", ready).await;
    }
    let logs = |node: &str| kubectl(&cluster, "default", &["logs", node]);
    let expected = |node: &str| (true, line(node, "main"), String::new());
    // As soon as the node says where.
    let until_read = async |node: &str| {
        let begin = Instant::now();
        while logs(node) != expected(node) {
            let said = logs(node).2;
            assert!(begin.elapsed() < Duration::from_secs(30), "{node}: {said}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let path = "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}";
    let port = || -> u16 {
        let said = kubectl(&cluster, "default", &["get", "node/node-1", "-o", path]);
        said.1.parse().unwrap()
    };
    assert_eq!(logs("node-1"), expected("node-1"));
    until_read("late").await;
    let before = port();

    // What no API server requests, and what is not on a fake node.
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff"] {
        let mut stream = TcpStream::connect(("127.0.0.1", before)).unwrap();
        stream.write_all(bytes).unwrap();
    }
    let plain: Node = serde_json::from_value(json!({"metadata": {"name": "plain"}})).unwrap();
    let nodes: Api<Node> = Api::all(client);
    nodes.create(&PostParams::default(), &plain).await.unwrap();
    let spec = json!({"nodeName": "plain"});
    create(&pods, "plain", "Always", Value::Null, spec).await;
    let ask = |path: &str| {
        let server = format!("--server=https://127.0.0.1:{before}");
        let mut command = cluster.kubectl();
        command.env("KUBECONFIG", "/dev/null");
        ended(command.args([
            server.as_str(),
            "--insecure-skip-tls-verify",
            // Without any credentials, kubectl would ask for a name.
            "--token=none",
            "get",
            "--raw",
            path,
        ]))
    };
    let log = ask("/containerLogs/default/node-1/main");
    assert_eq!(log, expected("node-1"));
    for path in [
        "/containerLogs/default/node-1/other",
        "/containerLogs/default/other/main",
        "/containerLogs/default/plain/main",
        "/metrics",
        "/",
    ] {
        let (success, _, err) = ask(path);
        assert!(!success && err.contains("NotFound"), "{path}: {err}");
    }

    cluster.stop_component("fake-kubelet").await.unwrap();
    assert!(!logs("node-1").0, "nothing listens");
    cluster.start_component("fake-kubelet").await.unwrap();
    assert_eq!(logs("node-1"), expected("node-1"));
    assert_eq!(port(), before);

    cluster.stop_component("fake-kubelet").await.unwrap();
    let taken = TcpListener::bind(("127.0.0.1", before)).unwrap();
    cluster.start_component("fake-kubelet").await.unwrap();
    drop(taken);
    for node in ["node-1", "late"] {
        until_read(node).await;
    }
    assert_ne!(port(), before);
    cluster.stop().await;
}
