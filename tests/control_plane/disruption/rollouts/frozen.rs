//! A freeze in the middle of many roll-outs.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use my_operator_cluster::FakeNode;
use serde_json::{Value, json};

use super::judge::POOL;
use crate::disruption::cluster;
use crate::disruption::kills::kill;
use crate::harness::pods::Recorder;
use crate::harness::record::{Event, number};
use crate::harness::{Kubectl, Operator};

const SETS: usize = 20;
const NODES: usize = 10;
/// How many seconds a step takes at least: the roll-outs are under way for half a minute.
const STEP: u64 = 3;

/// The sets with that image, which reaches one node after the other, or all at once.
fn sets(namespace: &str, image: &str, at_once: bool) -> String {
    let (min_ready, limit) = if at_once {
        (0, json!("100%"))
    } else {
        (STEP, json!(1))
    };
    let set = |number: usize| {
        json!({
            "apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
            "metadata": {"name": format!("set-{number}")},
            "spec": {
                "image": image,
                "minReadySeconds": min_ready,
                "updateStrategy": {"rollingUpdate": {"maxUnavailable": limit}},
                "template": {"spec": {
                    "nodeSelector": {POOL: namespace},
                    "tolerations": [{"key": POOL, "operator": "Exists"}],
                }},
            },
        })
    };
    let items: Vec<Value> = (0..SETS).map(set).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn is_observed(set: &Value) -> bool {
    set["status"]["observedGeneration"] == set["metadata"]["generation"]
}

fn is_complete(set: &Value) -> bool {
    is_observed(set) && set["status"]["state"] == "Complete"
}

fn has_begun(set: &Value) -> bool {
    is_observed(set) && set["status"]["updatedNumberScheduled"].as_u64() >= Some(1)
}

fn has_nodes_left(set: &Value) -> bool {
    set["status"]["updatedNumberScheduled"].as_u64() < Some(NODES as u64)
}

async fn until_every(kubectl: &Kubectl, what: &str, is: fn(&Value) -> bool) {
    let every = |list: Option<&Value>| {
        let sets = list?["items"].as_array()?;
        (sets.len() == SETS && sets.iter().all(is)).then_some(())
    };
    kubectl.until("mydaemonsets", what, every).await;
}

/// The versions with which pods began to be deleted.
fn deletions(events: &[Event<Pod>]) -> Vec<u64> {
    let mut first: BTreeMap<Option<String>, u64> = BTreeMap::new();
    for event in events {
        if event.gone || event.object.metadata.deletion_timestamp.is_some() {
            first.entry(event.object.uid()).or_insert(event.version);
        }
    }
    first.into_values().collect()
}

/// In one namespace: on this control plane are the objects of other tests, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_deletion_is_sent_after_the_answer_of_a_freeze_of_twenty_roll_outs() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("frozen").await.unwrap();
    let node = |number: usize| {
        let node = FakeNode::new(format!("{namespace}-{number}"));
        node.label(POOL, &namespace)
            .taint(POOL, &namespace, "NoSchedule")
    };
    let nodes: Vec<FakeNode> = (0..NODES).map(node).collect();
    cluster.add_nodes(&nodes).await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let apply = async |image: &str, at_once: bool| {
        let sets = sets(&namespace, image, at_once);
        kubectl.apply(&sets).await.good();
    };
    apply("app:1", false).await;
    let here = format!("--namespace={namespace}");
    let flags = ["--webhooks=false", "--kinds=mydaemonset", &here];
    let operator = Operator::start(cluster, "frozen", &flags).await;
    until_every(&kubectl, "to be complete", is_complete).await;

    let client: Client = cluster.client().await.unwrap();
    let record = Recorder::start(client.clone(), &namespace).await;
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    apply("app:2", false).await;
    until_every(&kubectl, "to be rolled out", has_begun).await;
    let freeze = kubectl.run_plugin(&["mydaemonset", "freeze", "--all"], "");
    let answer = freeze.await.good();
    let list = pods.list(&ListParams::default().limit(1)).await.unwrap();
    let answered = number(&list.metadata.resource_version.unwrap());
    assert_eq!(answer.matches(" frozen (").count(), SETS, "{answer}");
    // Without a freeze, each roll-out would make a step or two.
    tokio::time::sleep(Duration::from_secs(2 * STEP)).await;
    until_every(&kubectl, "to have nodes left", has_nodes_left).await;
    record.end().await;
    let deletions = record.events.look(deletions);
    let (before, after): (Vec<u64>, Vec<u64>) = deletions
        .into_iter()
        .partition(|version| *version <= answered);
    assert!(before.len() >= SETS, "they were under way: {before:?}");
    assert!(after.is_empty(), "answered at {answered}: {after:?}");

    let thaw = kubectl.run_plugin(&["mydaemonset", "thaw", "--all"], "");
    thaw.await.good();
    apply("app:2", true).await;
    until_every(&kubectl, "to be complete", is_complete).await;
    kill(&operator).await;
    kubectl.run("delete mydaemonsets --all").await.good();
    for node in &nodes {
        cluster.remove_node(&node.name).await.unwrap();
    }
}
