//! The webhooks are configured, and neither an operator nor its Secret and Lease are there: the worst moment to start.

use std::time::{Duration, Instant};

use my_operator_rounds::lengths;

use crate::disruption::{leader, report, webhook_plane};
use crate::harness::{Kubectl, NAMESPACE, Operator, operator_kubeconfig};

const MYDAEMONSET: &str = "{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {name: x}, spec: {image: 'nginx:1'}}";
const AT: &str = "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: x}, spec: {schedule: now, command: echo YAY}}";
/// The holder died long ago.
const GONE: &str = "a-dead-leader";
/// How long the operator may take to serve: the limit that was set for it.
const LIMIT: Duration = Duration::from_secs(10);
/// A Lease whose renewals have stopped long ago. That it is stale shows only when it has stood unchanged for as long as
/// it says, since clocks are not compared. Only what the leader does waits for that.
fn stale_lease(seconds: u64) -> String {
    let then = "'2020-01-01T00:00:00.000000Z'";
    format!(
        "{{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {{name: my-operator}}, spec: {{holderIdentity: {GONE}, leaseDurationSeconds: {seconds}, acquireTime: {then}, renewTime: {then}, leaseTransitions: 3}}}}"
    )
}

#[tokio::test]
async fn after_a_cold_start_with_nothing_left_the_webhooks_serve_within_ten_seconds() {
    let plane = webhook_plane().await;
    let cluster = *plane;
    let namespace = cluster.namespace("cold").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let own = Kubectl::new(cluster, NAMESPACE);
    let kubeconfig = operator_kubeconfig(cluster).await;
    // The URL stays the same, as that of a Service does.
    let [port] = my_operator_cluster::free_ports().unwrap();
    let stale = lengths::stale_lease();
    // A candidate waits for as long as the Lease says, or as its own flag says if that is longer.
    let periods = [
        format!("--leader-election-lease-duration={stale}s"),
        format!("--leader-election-renew-deadline={}s", stale * 3 / 4),
        "--leader-election-retry-period=1s".to_owned(),
    ];
    let mut flags = vec!["--leader-elect", "--namespace", &namespace];
    flags.extend(periods.iter().map(String::as_str));
    let start = || Operator::spawn_at(cluster, "cold", &kubeconfig, Some(port), None, &flags);

    let operator = start();
    operator.until_ready().await;
    kubectl.until_applied(MYDAEMONSET).await;
    kubectl.run("delete mds/x").await.good();
    operator.process.kill();
    operator.process.wait().await;
    own.run("delete secret my-operator-webhook-ca").await.good();
    own.run("delete lease my-operator --ignore-not-found")
        .await
        .good();
    own.apply(&stale_lease(stale)).await.good();
    let refusal = kubectl.apply(MYDAEMONSET).await.bad();
    assert!(refusal.contains("failed calling webhook"), "{refusal}");

    let began = Instant::now();
    let operator = start();
    let served = async |yaml: &str| loop {
        let said = kubectl.apply(yaml).await;
        if said.ok {
            return began.elapsed();
        }
        assert!(began.elapsed() < LIMIT, "{said:?}\n{}", operator.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let (first, second) = (served(MYDAEMONSET).await, served(AT).await);
    report(&format!(
        "cold start: a MyDaemonSet taken after {first:?}, an At after {second:?}"
    ));
    assert!(second < LIMIT, "{second:?}");
    let lease = "lease/my-operator";
    own.until_field(lease, "{.spec.leaseTransitions}", "4")
        .await;
    let led = began.elapsed();
    let holder = own.field(lease, "{.spec.holderIdentity}").await;
    assert!(!holder.is_empty() && holder != GONE, "{holder:?}");
    report(&format!("the stale Lease taken after {led:?}"));
    assert!(
        led < LIMIT + Duration::from_secs(stale) + leader::TAKEOVER,
        "{led:?}"
    );
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    kubectl
        .until_field("mds/x", "{.status.numberAvailable}", "1")
        .await;
    operator.process.stop(Duration::from_secs(10)).await;
}
