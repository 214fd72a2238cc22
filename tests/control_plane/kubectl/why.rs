//! `kubectl mydaemonset why`: causes that a cluster of fake nodes can show, each made on a node of its own. Other tests'
//! pods stay off these nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use my_operator_cluster::FakeNode;
use serde_json::{Value, json};

use super::kubectl;
use crate::harness::{Ended, Kubectl};

const SET: &str = "
apiVersion: apps.zhongmingmao.io/v1beta1
kind: MyDaemonSet
metadata: {name: web}
spec:
  image: nginx:1.28
  template:
    spec:
      nodeSelector: {why: yes-please}
      tolerations: [{key: why, operator: Exists}]
      containers: [{name: app, readinessProbe: {tcpSocket: {port: 80}}}]
";

struct Place {
    kubectl: Kubectl,
    nodes: Api<Node>,
    pods: Api<Pod>,
}

impl Place {
    async fn new() -> Self {
        let kubectl = kubectl("why").await;
        let fake = |number: u8| {
            let node = FakeNode::new(format!("why-{number}"));
            let node = node.label("why", "yes-please");
            node.taint("why", "yes", "NoSchedule")
        };
        let nodes: Vec<FakeNode> = (1..=6).map(fake).collect();
        kubectl.cluster.add_nodes(&nodes).await.unwrap();
        let client = kubectl.cluster.client().await.unwrap();
        Self {
            nodes: Api::all(client.clone()),
            pods: Api::namespaced(client, &kubectl.namespace),
            kubectl,
        }
    }

    async fn why(&self, args: &str) -> Ended {
        let args = format!("mydaemonset why web {args}");
        let args: Vec<&str> = args.split_whitespace().collect();
        self.kubectl.run_plugin(&args, "").await
    }

    /// What is found out about each node.
    async fn causes(&self) -> BTreeMap<String, Value> {
        let answer = self.why("-o json").await.good();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let nodes = answer["nodes"].as_array().unwrap().iter();
        let name = |node: &Value| node["node"].as_str().unwrap().to_owned();
        nodes.map(|node| (name(node), node.clone())).collect()
    }

    async fn change_node(&self, number: u8, patch: Value) {
        let (name, params) = (format!("why-{number}"), PatchParams::default());
        let patch = Patch::Merge(patch);
        self.nodes.patch(&name, &params, &patch).await.unwrap();
    }

    /// The pod of a node, once it is Ready or not.
    async fn pod(&self, number: u8, is_ready: bool) -> String {
        let (node, status) = (
            format!("why-{number}"),
            if is_ready { "True" } else { "False" },
        );
        let what = format!("to have one on {node} with Ready={status}");
        let found = self.kubectl.until("pods", &what, |pods| {
            let mut pods = pods?["items"].as_array()?.iter();
            let pod = pods.find(|pod| pod["spec"]["nodeName"] == node)?;
            let mut conditions = pod["status"]["conditions"].as_array()?.iter();
            let ready = conditions.find(|condition| condition["type"] == "Ready")?;
            let name = pod["metadata"]["name"].as_str()?;
            (ready["status"] == status).then(|| name.to_owned())
        });
        found.await
    }

    /// Sets an annotation that the fake kubelet goes by.
    async fn annotate(&self, pod: &str, key: &str, value: &str) {
        let key = format!("kwok.my-operator.dev/{key}");
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        let params = PatchParams::default();
        self.pods.patch(pod, &params, &patch).await.unwrap();
    }

    /// Has the kubelet of a node report that there is no such image.
    async fn lose_image(&self, number: u8) {
        let pod = self.pod(number, true).await;
        self.annotate(&pod, "phase", "Pending").await;
        let waiting =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image\u{1b}[2J"}});
        let status = json!({"status": {
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "containerStatuses": [{"name": "app", "ready": false, "restartCount": 0,
                "image": "nginx:1.28", "imageID": "", "state": waiting}],
        }});
        let (params, status) = (PatchParams::default(), Patch::Merge(status));
        let changed = self.pods.patch_status(&pod, &params, &status).await;
        changed.unwrap();
        self.pod(number, false).await;
    }
}

#[tokio::test]
async fn why_names_what_keeps_each_node_behind() {
    let place = Place::new().await;
    let kubectl = &place.kubectl;
    kubectl.until_applied(SET).await;
    let available = "{.status.numberAvailable}";
    kubectl.until_field("mds/web", available, "6").await;
    let state = "{.status.state}";
    kubectl.until_field("mds/web", state, "Complete").await;
    let all = place.why("").await.good();
    assert!(
        all.starts_with("6 of 6 nodes have an available pod"),
        "{all}"
    );

    // Paused before the first node.
    let next = SET.replace("image: nginx:1.28", "image: nginx:1.29")
        + "  updateStrategy: {rollingUpdate: {paused: true}}\n";
    kubectl.until_applied(&next).await;
    kubectl.until_field("mds/web", state, "Paused").await;
    let causes = place.causes().await;
    assert_eq!(causes.len(), 6);
    assert!(
        causes.values().all(|it| it["cause"] == "Paused"),
        "{causes:?}"
    );

    let taint = |key: &str| json!({"key": key, "value": "yes", "effect": "NoSchedule"});
    let taints = json!({"spec": {"taints": [taint("why"), taint("reserved")]}});
    let cordon = json!({"spec": {"unschedulable": true}});
    place.change_node(1, cordon).await;
    kubectl
        .cluster
        .set_node_ready("why-2", false)
        .await
        .unwrap();
    place.change_node(3, taints).await;
    let pod = place.pod(4, true).await;
    place.annotate(&pod, "ready", "false").await;
    place.pod(4, false).await;
    place.lose_image(5).await;
    let causes = place.causes().await;
    for (node, cause, message) in [
        ("why-1", "Cordoned", ""),
        ("why-2", "NodeNotReady", "KubeletNotReady"),
        ("why-3", "TaintNotTolerated", "reserved=yes:NoSchedule"),
        ("why-4", "ReadinessProbe", "readiness probe of app"),
        ("why-5", "ImagePull", "no such image"),
        ("why-6", "Paused", ""),
    ] {
        let found = &causes[node];
        assert_eq!(found["cause"], cause, "{found:#}");
        let said = found["message"].as_str().unwrap_or_default();
        assert!(said.contains(message), "{found:#}");
        let has_instant = found["since"].is_string();
        let is_dated = ["NodeNotReady", "ReadinessProbe", "ImagePull"].contains(&cause);
        assert!(has_instant || !is_dated, "{found:#}");
    }

    let table = place.why("").await.good();
    assert!(table.starts_with("NODE    CAUSE  "), "{table}");
    let is_image = |line: &&str| line.starts_with("why-5   ImagePull  ");
    let line = table.lines().find(is_image).unwrap();
    assert!(line.contains("no such image^[[2J"), "{line}");
    assert_eq!(table.lines().count(), 7, "{table}");

    // A node where no pod belongs any more loses it, and is explained when it is asked for.
    let pod = place.pod(6, true).await;
    let unlabel = json!({"metadata": {"labels": {"why": null}}});
    place.change_node(6, unlabel).await;
    kubectl.until_gone(&format!("pod/{pod}")).await;
    assert!(!place.causes().await.contains_key("why-6"));
    let asked = place.why("node/why-6").await.good();
    assert!(asked.contains("NotEligible"), "{asked}");
    let words = "(nodeSelector why=yes-please: the node has no label why)";
    assert!(asked.contains(words), "{asked}");
    let unknown = place.why("why-7").await.bad();
    assert_eq!(unknown, "error: there is no node \"why-7\"\n");
}
