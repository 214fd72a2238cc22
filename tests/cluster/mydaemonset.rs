//! MyDaemonSet on a real API server. Each test has nodes of its own, by label, so that nodes that
//! join and leave here disturb no other test.

use std::collections::BTreeMap;

use my_operator_cluster::FakeNode;
use serde_json::Value;

use crate::harness::{Kubectl, wait_for};
use crate::{environment, kubectl};

fn mydaemonset(pool: &str, image: &str, more: &str) -> String {
    format!(
        r"
apiVersion: apps.zhongmingmao.io/v1beta1
kind: MyDaemonSet
metadata: {{name: x}}
spec:
  image: {image}
  template: {{metadata: {{labels: {{team: a}}}}, spec: {{nodeSelector: {{pool: {pool}}}}}}}
  {more}
"
    )
}

/// Adds nodes of a pool.
async fn pool(name: &str, count: usize) -> Vec<String> {
    let cluster = environment().await.cluster;
    let mut names = Vec::new();
    for number in 0..count {
        let node = format!("{name}-{number}");
        let fake = FakeNode::new(&node).label("pool", name);
        cluster.add_node(fake).await.unwrap();
        names.push(node);
    }
    names
}

async fn drop_pool(nodes: &[String]) {
    let cluster = environment().await.cluster;
    for node in nodes {
        cluster.remove_node(node).await.unwrap();
    }
}

struct Pod {
    name: String,
    node: String,
    image: String,
    ready: bool,
    leaving: bool,
}

fn pods(kubectl: &Kubectl) -> Vec<Pod> {
    let list: Value = serde_json::from_str(&kubectl.run("get pods -o json").good()).unwrap();
    let pods = list["items"].as_array().unwrap().iter().map(|pod| Pod {
        name: pod["metadata"]["name"].as_str().unwrap().to_owned(),
        node: pod["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        image: pod["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap()
            .to_owned(),
        ready: pod["status"]["conditions"].as_array().is_some_and(|list| {
            list.iter()
                .any(|c| c["type"] == "Ready" && c["status"] == "True")
        }),
        leaving: pod["metadata"]["deletionTimestamp"].is_string(),
    });
    pods.collect()
}

async fn until_one_ready_pod_on_each(kubectl: &Kubectl, nodes: &[String], image: &str) {
    wait_for("one ready pod on each node", || {
        let mut by_node: BTreeMap<String, u32> = BTreeMap::new();
        for pod in pods(kubectl) {
            if pod.leaving || !pod.ready || pod.image != image {
                return None;
            }
            *by_node.entry(pod.node).or_default() += 1;
        }
        let all = nodes.iter().all(|node| by_node.get(node) == Some(&1));
        (all && by_node.len() == nodes.len()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn pods_follow_nodes_that_join_and_leave() {
    let kubectl = kubectl("join-leave").await;
    let mut nodes = pool("joining", 2).await;
    kubectl.apply(&mydaemonset("joining", "a:1", "")).good();
    until_one_ready_pod_on_each(&kubectl, &nodes, "a:1").await;
    kubectl
        .until_field("mds/x", "{.status.numberAvailable}", "2")
        .await;

    let cluster = environment().await.cluster;
    let third = FakeNode::new("joining-2").label("pool", "joining");
    cluster.add_node(third).await.unwrap();
    nodes.push("joining-2".to_owned());
    until_one_ready_pod_on_each(&kubectl, &nodes, "a:1").await;

    cluster.remove_node("joining-0").await.unwrap();
    nodes.remove(0);
    until_one_ready_pod_on_each(&kubectl, &nodes, "a:1").await;
    for (path, value) in [
        ("{.status.desiredNumberScheduled}", "2"),
        ("{.status.currentNumberScheduled}", "2"),
        ("{.status.numberReady}", "2"),
        ("{.status.availableReplicas}", "2"),
        ("{.status.updatedNumberScheduled}", "2"),
    ] {
        kubectl.until_field("mds/x", path, value).await;
    }
    kubectl.run("delete mds/x").good();
    drop_pool(&nodes).await;
}

#[tokio::test]
async fn a_changed_label_moves_a_pod_and_a_cordon_does_not() {
    let kubectl = kubectl("labels").await;
    let nodes = pool("labelled", 2).await;
    kubectl.apply(&mydaemonset("labelled", "a:1", "")).good();
    until_one_ready_pod_on_each(&kubectl, &nodes, "a:1").await;
    kubectl.run("cordon labelled-0").good();
    kubectl
        .run("label --overwrite node/labelled-1 pool=elsewhere")
        .good();
    until_one_ready_pod_on_each(&kubectl, &nodes[..1], "a:1").await;
    // A cordoned node gets no new pod, and gets it back when it is uncordoned.
    kubectl.run("delete pods --all").good();
    kubectl
        .until_field("mds/x", "{.status.currentNumberScheduled}", "0")
        .await;
    kubectl.run("uncordon labelled-0").good();
    until_one_ready_pod_on_each(&kubectl, &nodes[..1], "a:1").await;
    kubectl.run("delete mds/x").good();
    drop_pool(&nodes).await;
}

#[tokio::test]
async fn a_roll_out_replaces_pods_within_max_unavailable() {
    let kubectl = kubectl("rollout").await;
    let nodes = pool("rolling", 6).await;
    let strategy = "updateStrategy: {rollingUpdate: {maxUnavailable: 2}}";
    kubectl
        .apply(&mydaemonset("rolling", "a:1", strategy))
        .good();
    until_one_ready_pod_on_each(&kubectl, &nodes, "a:1").await;
    kubectl
        .until_field("mds/x", "{.status.numberAvailable}", "6")
        .await;
    let old_revision = kubectl.field("mds/x", "{.status.updateRevision}");
    let old: Vec<String> = pods(&kubectl).into_iter().map(|pod| pod.name).collect();

    kubectl
        .apply(&mydaemonset("rolling", "a:2", strategy))
        .good();
    let mut least = nodes.len();
    wait_for("the roll-out", || {
        let now = pods(&kubectl);
        let serving = now.iter().filter(|pod| pod.ready && !pod.leaving).count();
        least = least.min(serving);
        (serving == 6 && now.iter().all(|pod| pod.image == "a:2")).then_some(())
    })
    .await;
    assert!(
        least >= 4,
        "only {least} of 6 pods were ready at some moment"
    );
    assert!(pods(&kubectl).iter().all(|pod| !old.contains(&pod.name)));
    kubectl
        .until_field("mds/x", "{.status.updatedNumberScheduled}", "6")
        .await;
    assert_ne!(
        kubectl.field("mds/x", "{.status.updateRevision}"),
        old_revision
    );

    // The old spec again finds the old revision.
    kubectl
        .apply(&mydaemonset("rolling", "a:1", strategy))
        .good();
    kubectl
        .until_field("mds/x", "{.status.updateRevision}", &old_revision)
        .await;
    until_one_ready_pod_on_each(&kubectl, &nodes, "a:1").await;
    kubectl.run("delete mds/x").good();
    drop_pool(&nodes).await;
}

#[tokio::test]
async fn a_deleted_pod_comes_back_and_a_quiet_object_is_not_written() {
    let kubectl = kubectl("comes-back").await;
    let nodes = pool("quiet", 2).await;
    kubectl.apply(&mydaemonset("quiet", "a:1", "")).good();
    until_one_ready_pod_on_each(&kubectl, &nodes, "a:1").await;
    kubectl.run("delete pods --all").good();
    until_one_ready_pod_on_each(&kubectl, &nodes, "a:1").await;
    kubectl
        .run("wait --for=condition=Available --timeout=90s mds/x")
        .good();
    kubectl
        .until_field("mds/x", "{.status.numberAvailable}", "2")
        .await;
    let version = || kubectl.field("mds/x", "{.metadata.resourceVersion}");
    let before = version();
    // A node event that changes nothing that matters.
    kubectl.run("annotate node/quiet-0 heart=beat").good();
    let other = mydaemonset("nowhere", "a:1", "").replace("name: x", "name: witness");
    kubectl.apply(&other).good();
    kubectl
        .until_field("mds/witness", "{.status.observedGeneration}", "1")
        .await;
    assert_eq!(version(), before);
    kubectl.run("delete mds/x mds/witness").good();
    drop_pool(&nodes).await;
}

#[tokio::test]
async fn a_template_that_the_api_server_refuses_is_a_condition() {
    let kubectl = kubectl("refused-template").await;
    let nodes = pool("refusing", 1).await;
    let typo = mydaemonset("refusing", "a:1", "")
        .replace("nodeSelector:", "hostNetwrok: true, nodeSelector:");
    kubectl.apply(&typo).good();
    let degraded = "{.status.conditions[?(@.type=='Degraded')].reason}";
    kubectl.until_field("mds/x", degraded, "PodRefused").await;
    let message = kubectl.field(
        "mds/x",
        "{.status.conditions[?(@.type=='Degraded')].message}",
    );
    assert!(message.contains("hostNetwrok"), "{message}");
    kubectl.apply(&mydaemonset("refusing", "a:1", "")).good();
    until_one_ready_pod_on_each(&kubectl, &nodes, "a:1").await;
    kubectl
        .until_field(
            "mds/x",
            "{.status.conditions[?(@.type=='Degraded')].status}",
            "False",
        )
        .await;
    kubectl.run("delete mds/x").good();
    drop_pool(&nodes).await;
}
