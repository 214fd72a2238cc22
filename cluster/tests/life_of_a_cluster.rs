//! Start, use, restart of components, stop.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use my_operator_cluster::{Cluster, Error, Options};

mod leftovers;

/// Runs kubectl; returns whether it succeeded, and its output.
fn kubectl(cluster: &Cluster, arguments: &[&str]) -> (bool, String) {
    let output = cluster.kubectl().args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn a_cluster_starts_serves_survives_restarts_and_leaves_nothing() {
    let begin = Instant::now();
    let options = Options {
        keep_history: true,
        ..Options::with_nodes(&["node-1", "node-2"])
    };
    let cluster = Cluster::start(options).await.unwrap();
    eprintln!("ready after {:?}", begin.elapsed());
    let directory = cluster.directory().to_owned();
    assert!(
        leftovers::processes(&directory).len() >= 5,
        "{:?}",
        leftovers::processes(&directory)
    );
    let flag = "--etcd-compaction-interval=0";
    let has_flag = |line: &String| line.contains(flag);
    assert!(leftovers::processes(&directory).iter().any(has_flag));

    // kubectl: the right version, its caches in our directory, fake nodes, the built-in documentation.
    let (success, version) = kubectl(&cluster, &["version"]);
    assert!(
        success && version.matches("v1.36").count() == 2,
        "{version}"
    );
    assert!(directory.join("kubectl-cache").is_dir());
    let (_, nodes) = kubectl(&cluster, &["get", "nodes", "--no-headers"]);
    assert_eq!(nodes.matches(" Ready ").count(), 2, "{nodes}");
    assert!(
        kubectl(&cluster, &["explain", "pod.spec.nodeName"])
            .1
            .contains("nodeName")
    );

    // An identity with no rights.
    let namespace = cluster.namespace("restricted").await.unwrap();
    let path = cluster
        .service_account_kubeconfig(&namespace, "operator")
        .await
        .unwrap();
    let path = path.to_str().unwrap();
    let (success, who) = kubectl(
        &cluster,
        &[
            "--kubeconfig",
            path,
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.username}",
        ],
    );
    assert!(success, "{who}");
    assert_eq!(who, format!("system:serviceaccount:{namespace}:operator"));
    let (success, refusal) = kubectl(&cluster, &["--kubeconfig", path, "get", "pods"]);
    assert!(!success && refusal.contains("Forbidden"), "{refusal}");

    // A program of the test's own.
    let process = cluster
        .spawn(
            "talker",
            Command::new("sh").args(["-c", "echo hello; echo there >&2; exec sleep 1000"]),
        )
        .unwrap();
    while !std::fs::read_to_string(process.log())
        .unwrap()
        .contains("there")
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(process.log_tail(5), "hello\nthere");
    assert_eq!(process.log(), directory.join("talker.log"));
    assert!(process.is_running());
    process.terminate();
    assert_eq!(process.wait().await.signal(), Some(15));
    assert!(!process.is_running());

    // Components stop and restart with their data.
    for component in ["kube-apiserver", "kube-scheduler"] {
        cluster.stop_component(component).await.unwrap();
        assert!(cluster.component(component).is_none());
    }
    assert!(!kubectl(&cluster, &["get", "--raw", "/readyz"]).0);
    for component in ["kube-apiserver", "kube-scheduler"] {
        cluster.start_component(component).await.unwrap();
    }
    assert!(kubectl(&cluster, &["get", "namespace", &namespace]).0);
    cluster.stop_component("etcd").await.unwrap();
    cluster.start_component("etcd").await.unwrap();
    assert!(kubectl(&cluster, &["create", "configmap", "after-etcd"]).0);

    // The fake kubelet recovered by itself after these, and catches up on changes while it was stopped.
    let run = ["run", "--image=busybox:1", "--restart=Always"];
    let wait = ["wait", "--for=condition=Ready", "--timeout=30s"];
    assert!(kubectl(&cluster, &[&run[..], &["early"]].concat()).0);
    let (ready, text) = kubectl(&cluster, &[&wait[..], &["pod/early"]].concat());
    assert!(ready, "{text}");
    cluster.stop_component("fake-kubelet").await.unwrap();
    assert!(kubectl(&cluster, &[&run[..], &["late"]].concat()).0);
    let scheduled = ["wait", "--for=condition=PodScheduled", "--timeout=30s"];
    assert!(kubectl(&cluster, &[&scheduled[..], &["pod/late"]].concat()).0);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let get = ["get", "pods", "-o", "jsonpath={.items[*].status.phase}"];
    assert_eq!(kubectl(&cluster, &get).1, "Running Pending");
    cluster.start_component("fake-kubelet").await.unwrap();
    let (ready, text) = kubectl(&cluster, &[&wait[..], &["pod/late"]].concat());
    assert!(ready, "{text}");
    let get = ["get", "pods", "-o", "jsonpath={.items[*].status.podIP}"];
    let (_, addresses) = kubectl(&cluster, &get);
    let (early, late) = addresses.split_once(' ').unwrap();
    assert_ne!(early, late);
    assert!(
        early.starts_with("10.244.") && late.starts_with("10.244."),
        "{addresses}"
    );

    let unknown = cluster.stop_component("kubelet").await.unwrap_err();
    assert!(
        matches!(unknown, Error::UnknownComponent { .. }),
        "{unknown}"
    );

    let begin = Instant::now();
    let survivor = cluster
        .spawn("survivor", Command::new("sleep").arg("1000"))
        .unwrap();
    cluster.stop().await;
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
    assert!(!directory.exists());
    assert_eq!(survivor.wait().await.signal(), Some(9));
    leftovers::assert_nothing_left(&directory);
}

#[tokio::test]
async fn a_component_that_ends_during_start_is_named_with_the_end_of_its_log() {
    let options = Options {
        api_server_args: vec!["--no-such-flag".to_owned()],
        ..Options::default()
    };
    let error = Cluster::start(options).await.unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(&error, Error::Died { component, .. } if component == "kube-apiserver"),
        "{text}"
    );
    assert!(text.contains("unknown flag: --no-such-flag"), "{text}");
    assert!(
        text.lines()
            .last()
            .unwrap()
            .starts_with("kube-apiserver ended during start"),
        "{text}"
    );
}
