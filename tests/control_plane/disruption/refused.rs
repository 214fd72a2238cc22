//! A pod that the API server keeps rejecting is retried ever more rarely.

use std::time::{Duration, Instant};

use crate::disruption::cluster;
use crate::harness::{Kubectl, Operator, figure, operator_kubeconfig, wait_for};

#[tokio::test]
async fn a_refused_pod_is_tried_again_ever_more_rarely() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("refused").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let quota =
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: '0'}}}";
    kubectl.apply(quota).await.good();
    kubectl
        .until_field("resourcequota/none", "{.status.hard.pods}", "0")
        .await;
    let kubeconfig = operator_kubeconfig(cluster).await;
    let flags = ["--webhooks=false", "--namespace", &namespace];
    let operator = Operator::spawn(cluster, "refused", &kubeconfig, &flags);
    operator.until_ready().await;

    let start = Instant::now();
    let at = "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: x}, spec: {schedule: now, command: a}}";
    kubectl.apply(at).await.good();
    let refusals = "rest_client_requests_total{code=\"403\",method=\"POST\"}";
    wait_for("four refusals", async || {
        (figure(&operator.figures(), refusals) >= Some(4)).then_some(())
    })
    .await;
    // After 0, 1, 3 and 7 seconds.
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(6_900), "{took:?}");
    // The state was written once, not at every attempt.
    let writes = "rest_client_requests_total{code=\"200\",method=\"PUT\"}";
    assert_eq!(
        figure(&operator.figures(), writes),
        Some(1),
        "{}",
        operator.figures()
    );
    assert_eq!(
        kubectl.field("at/x", "{.status.reason}").await,
        "PodRefused"
    );
    operator.process.stop(Duration::from_secs(10)).await;
}
