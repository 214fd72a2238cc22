//! Nodes that join while a roll-out is under way, as when an autoscaler adds them. They are not ready at first, and the
//! pods of a set that tolerates everything are made on them all the same.

use std::time::Duration;

use chrono::Utc;
use fastrand::Rng;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use my_operator_cluster::{Cluster, FakeNode};
use my_operator_rounds::{is_soak, lengths};
use serde_json::json;

use super::fleet::{Fleet, Strategy};
use super::{Run, assert_good, flags};
use crate::disruption::cluster;
use crate::disruption::kills::{Start, kill};
use crate::harness::{operator_kubeconfig, seed};

/// Nodes that are there before.
const NODES: usize = 10;
/// Nodes that are about to join at a time.
const AT_ONCE: usize = 25;
/// For how long one is not ready, in milliseconds.
const NOT_READY: std::ops::Range<u64> = 0..4_000;

/// A node registers, and becomes ready a while later.
async fn join(cluster: &Cluster, nodes: &Api<Node>, node: FakeNode, not_ready: Duration) {
    let name = node.name.clone();
    cluster.add_node(node.not_ready()).await.unwrap();
    tokio::time::sleep(not_ready).await;
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": Utc::now()});
    let patch = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
    nodes
        .patch_status(&name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// The sweep has a node that joins such a set, and `cluster::mydaemonset::holding` has five: only `make soak` runs this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_join_do_not_stop_a_roll_out() {
    if !is_soak() {
        return;
    }
    let seed = seed("when the nodes become ready");
    let mut random = Rng::with_seed(seed);
    let cluster = cluster().await;
    let run = Run::start(cluster, seed).await;
    let fleet = Fleet::tolerating_everything(cluster, "joining", NODES, random.fork()).await;
    let mut fleets = [fleet];
    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: flags(&fleets),
    };
    run.note_start().await;
    let operator = start.operator("joining");
    let [fleet] = &mut fleets;
    fleet.until_settled().await;
    // A second for each node: the roll-out is under way all the time.
    let strategy = Strategy {
        min_ready: 1,
        ..Strategy::plain()
    };
    fleet.apply("app:1", strategy).await;
    let client: Client = cluster.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client);
    let count = lengths::joining_nodes();
    let joining: Vec<_> = (0..count)
        .map(|_| {
            let not_ready = Duration::from_millis(random.u64(NOT_READY));
            join(cluster, &nodes, fleet.next_node(), not_ready)
        })
        .collect();
    futures::stream::iter(joining)
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
    fleet.until_settled().await;
    assert_eq!(fleet.stopped, 0, "it was not resumed");
    assert_eq!(fleet.nodes.len(), NODES + count);
    let verdicts = run.judge(&fleets).await;
    println!("{count} nodes joined: {:?}", verdicts[0].excused);
    assert_good(&verdicts);
    kill(&operator).await;
    fleets[0].remove().await;
}
