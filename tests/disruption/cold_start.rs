//! Everything is configured and nothing is there: the worst moment to start.

use std::time::{Duration, Instant};

use crate::harness::{Kubectl, NAMESPACE, Operator, operator_kubeconfig};
use crate::{cluster, leader, tell, webhooks};

const MYDAEMONSET: &str = "{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {name: x}, spec: {image: 'nginx:1'}}";
const AT: &str = "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: x}, spec: {schedule: now, command: echo YAY}}";
/// The holder went long ago, without a word.
const GONE: &str = "somebody-long-gone";
const LEASE: &str = "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: my-operator}, spec: {holderIdentity: somebody-long-gone, leaseDurationSeconds: 15, acquireTime: '2020-01-01T00:00:00.000000Z', renewTime: '2020-01-01T00:00:00.000000Z', leaseTransitions: 3}}";

/// How long the operator may take to serve: the limit that was set for it.
const LIMIT: Duration = Duration::from_secs(10);
/// What a stale Lease costs at most, from when it is seen: that it is stale shows only when it has stood
/// unchanged for as long as it says, as clocks are not compared. Only what the leader does waits for that.
const STALE: Duration = Duration::from_secs(15);

#[tokio::test]
async fn after_a_cold_start_with_nothing_left_the_webhooks_serve_within_ten_seconds() {
    let cluster = cluster().await;
    let _lease = leader::turn().await;
    let _webhooks = webhooks().await;
    let namespace = cluster.namespace("cold").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let own = Kubectl::new(cluster, NAMESPACE);
    let kubeconfig = operator_kubeconfig(cluster).await;
    // The URL stays the same, as that of a Service does.
    let [port] = my_operator_cluster::free_ports().unwrap();
    let flags = ["--leader-elect", "--namespace", &namespace];
    let start = || Operator::spawn_at(cluster, "cold", &kubeconfig, Some(port), None, &flags);

    let operator = start();
    operator.until_ready().await;
    kubectl.until_applied(MYDAEMONSET).await;
    kubectl.run("delete mds/x").good();
    operator.process.kill();
    operator.process.wait().await;
    own.run("delete secret my-operator-webhook-ca").good();
    own.run("delete lease my-operator --ignore-not-found")
        .good();
    own.apply(LEASE).good();
    let refusal = kubectl.apply(MYDAEMONSET).bad();
    assert!(refusal.contains("failed calling webhook"), "{refusal}");

    let began = Instant::now();
    let operator = start();
    let served = |yaml: &str| loop {
        let said = kubectl.apply(yaml);
        if said.ok {
            return began.elapsed();
        }
        assert!(began.elapsed() < LIMIT, "{said:?}\n{}", operator.log());
        std::thread::sleep(Duration::from_millis(50));
    };
    let (first, second) = (served(MYDAEMONSET), served(AT));
    tell(&format!(
        "cold start: a MyDaemonSet taken after {first:?}, an At after {second:?}"
    ));
    assert!(second < LIMIT, "{second:?}");
    let lease = "lease/my-operator";
    own.until_field(lease, "{.spec.leaseTransitions}", "4")
        .await;
    let led = began.elapsed();
    let holder = own.field(lease, "{.spec.holderIdentity}");
    assert!(!holder.is_empty() && holder != GONE, "{holder:?}");
    tell(&format!("the stale Lease taken after {led:?}"));
    assert!(led < LIMIT + STALE + leader::TAKEOVER, "{led:?}");
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    kubectl
        .until_field("mds/x", "{.status.numberAvailable}", "1")
        .await;
    operator.process.stop(Duration::from_secs(10)).await;
}
