use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::{Kubelet, KubeletOptions, Run};

fn with_node(server: &Server) -> Kubelet {
    let kubelet = server.kubelet(KubeletOptions::default());
    kubelet.add_node("n1");
    kubelet
}

fn job(name: &str, annotations: Value) -> Value {
    let mut object = pod(name);
    object["metadata"]["annotations"] = annotations;
    object["spec"]["restartPolicy"] = json!("Never");
    object
}

fn read(server: &Server, name: &str) -> Value {
    server.direct().get("Pod", "default", name).unwrap()
}

fn phase(server: &Server, name: &str) -> String {
    read(server, name)["status"]["phase"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_its_end() {
    let server = server();
    let _kubelet = with_node(&server);
    let annotations =
        json!({"simulated-apiserver/exit-code": "3", "simulated-apiserver/runs-seconds": "10"});
    server.direct().create(job("a", annotations)).unwrap();
    assert_eq!(phase(&server, "a"), "Pending");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        (
            phase(&server, "a").as_str(),
            read(&server, "a")["spec"]["nodeName"].as_str()
        ),
        ("Running", Some("n1"))
    );
    sleep(Duration::from_secs(10)).await;
    let ended = read(&server, "a");
    assert_eq!(ended["status"]["phase"], "Failed");
    assert_eq!(
        ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        3
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_gets_ready_and_ends_within_its_grace() {
    let server = server();
    let _kubelet = with_node(&server);
    server.direct().create(pod("a")).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        read(&server, "a")["status"]["containerStatuses"][0]["ready"],
        true
    );
    server.direct().delete("Pod", "default", "a").unwrap();
    assert!(server.direct().get("Pod", "default", "a").is_some());
    sleep(Duration::from_secs(2)).await;
    assert!(server.direct().get("Pod", "default", "a").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_gated_pod_waits_for_its_gates() {
    let server = server();
    let _kubelet = with_node(&server);
    let mut gated = job("a", json!({}));
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/a"}]);
    server.direct().create(gated).unwrap();
    sleep(Duration::from_secs(60 * 60)).await;
    assert_eq!(phase(&server, "a"), "Pending");
    server
        .direct()
        .patch(
            "Pod",
            "default",
            "a",
            &json!({"spec": {"schedulingGates": null}}),
        )
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(phase(&server, "a"), "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_pod_ends_at_its_deadline() {
    let server = server();
    let _kubelet = with_node(&server);
    let mut object = job("a", json!({"simulated-apiserver/runs-seconds": "100"}));
    object["spec"]["activeDeadlineSeconds"] = json!(20);
    server.direct().create(object).unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(read(&server, "a")["status"]["reason"], "DeadlineExceeded");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_lost_node_are_evicted_and_stay() {
    let server = server();
    let kubelet = with_node(&server);
    server.direct().create(pod("a")).unwrap();
    sleep(Duration::from_secs(5)).await;
    kubelet.lose("n1");
    sleep(Duration::from_secs(60)).await;
    let node = server.direct().get("Node", "", "n1").unwrap();
    assert_eq!(node["status"]["conditions"][0]["status"], "Unknown");
    sleep(Duration::from_secs(10 * 60)).await;
    assert!(!read(&server, "a")["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(phase(&server, "a"), "Running");
    kubelet.recover("n1");
    sleep(Duration::from_secs(5)).await;
    assert!(server.direct().get("Pod", "default", "a").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_is_unschedulable_until_one_comes() {
    let server = server();
    let kubelet = server.kubelet(KubeletOptions {
        run: std::sync::Arc::new(|_| Run::default()),
        ..KubeletOptions::default()
    });
    server.direct().create(pod("a")).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        read(&server, "a")["status"]["conditions"][0]["reason"],
        "Unschedulable"
    );
    kubelet.add_node("n1");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(phase(&server, "a"), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_gets_ready_and_then_its_pods_do() {
    let server = server();
    let kubelet = server.kubelet(KubeletOptions::default());
    kubelet.join("n1", &json!({"disk": "ssd"}), Duration::from_secs(30));
    let mut daemon = pod("a");
    daemon["spec"]["nodeName"] = json!("n1");
    daemon["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    server.direct().create(daemon).unwrap();
    let ready = |server: &Server| {
        let status = read(server, "a")["status"]["containerStatuses"][0].clone();
        status["ready"] == true
    };
    sleep(Duration::from_secs(20)).await;
    assert_eq!(phase(&server, "a"), "Running");
    assert!(!ready(&server));
    sleep(Duration::from_secs(11)).await;
    assert!(ready(&server));
    kubelet.fail("n1");
    sleep(Duration::from_secs(1)).await;
    let conditions = read(&server, "a")["status"]["conditions"].clone();
    let is_ready = conditions
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "Ready");
    assert_eq!(is_ready.unwrap()["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_are_collected() {
    let server = server();
    let kubelet = with_node(&server);
    server.direct().create(pod("a")).unwrap();
    sleep(Duration::from_secs(5)).await;
    kubelet.remove_node("n1");
    sleep(Duration::from_secs(39)).await;
    assert!(server.direct().get("Pod", "default", "a").is_some());
    sleep(Duration::from_secs(2)).await;
    assert!(server.direct().get("Pod", "default", "a").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_taint_evicts_the_pods_that_do_not_tolerate_it() {
    let server = server();
    let _kubelet = with_node(&server);
    let mut tolerant = pod("b");
    tolerant["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    for object in [pod("a"), tolerant] {
        server.direct().create(object).unwrap();
    }
    sleep(Duration::from_secs(5)).await;
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    server.direct().patch("Node", "", "n1", &taint).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(server.direct().get("Pod", "default", "a").is_none());
    assert_eq!(phase(&server, "b"), "Running");
}

#[tokio::test(start_paused = true)]
async fn containers_crash_wait_and_run_again() {
    let server = server();
    let kubelet = server.kubelet(KubeletOptions {
        run: std::sync::Arc::new(|pod| Run {
            crashes: 2,
            waits: (pod["metadata"]["name"] == "b").then(|| "ImagePullBackOff".to_owned()),
            rejected: (pod["metadata"]["name"] == "c").then(|| "OutOfcpu".to_owned()),
            ..Run::default()
        }),
        ..KubeletOptions::default()
    });
    kubelet.add_node("n1");
    for name in ["a", "b", "c"] {
        server.direct().create(pod(name)).unwrap();
    }
    let container = |name: &str| read(&server, name)["status"]["containerStatuses"][0].clone();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        container("a")["state"]["waiting"]["reason"],
        "CrashLoopBackOff"
    );
    assert_eq!(
        container("b")["state"]["waiting"]["reason"],
        "ImagePullBackOff"
    );
    assert_eq!(read(&server, "c")["status"]["reason"], "OutOfcpu");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(container("a")["restartCount"], 2);
    assert_eq!(container("a")["ready"], true);
}
