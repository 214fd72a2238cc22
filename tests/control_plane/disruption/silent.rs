//! Connections that die without a word, as when the node of an API server behind a load balancer loses its power.

use std::time::Duration;

use tokio::time::Instant;

use crate::disruption::cluster;
use crate::harness::proxy::{Mode, Proxy};
use crate::harness::{Kubectl, Operator, figure, operator_kubeconfig, wait_for};

#[tokio::test]
async fn a_watch_whose_connection_died_without_a_word_goes_on_over_another() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("stranded").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let proxy = Proxy::to(cluster).await;
    let kubeconfig = operator_kubeconfig(cluster).await;
    proxy.lead_to(&kubeconfig);
    let flags = ["--webhooks=false", "--kinds=at", "--namespace", &namespace];
    let operator = Operator::spawn(cluster, "stranded", &kubeconfig, &flags);
    operator.until_ready().await;
    let reads = "rest_client_requests_total{code=\"200\",method=\"GET\"}";
    wait_for("the version, two lists and two watches", async || {
        (figure(&operator.figures(), reads) >= Some(5)).then_some(())
    })
    .await;

    proxy.set(Mode::Stranded(Instant::now()));
    let at = "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: x}, spec: {schedule: now, command: a}}";
    kubectl.apply(at).await.good();
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    let log = operator.log();
    assert!(log.contains("nothing came for 29 s"), "{log}");
    operator.process.stop(Duration::from_secs(10)).await;
}
