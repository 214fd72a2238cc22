//! A pod on the real node.

use crate::{NODE, kubectl, ready_pod};

#[tokio::test]
async fn its_pod_runs_on_the_node_and_answers_through_exec() {
    let kubectl = kubectl("web").await;
    kubectl
        .run("apply -f config/samples/apps_v1beta1_mydaemonset.yaml")
        .await
        .good();
    kubectl
        .until_field(
            "mydaemonset/mydaemonset-sample",
            "{.status.numberReady}",
            "1",
        )
        .await;
    let node = kubectl.field("pods", "{.items[*].spec.nodeName}").await;
    assert_eq!(node, NODE);
    let pod = ready_pod(&kubectl).await;
    let page = kubectl
        .run(&format!("exec {pod} -- cat /srv/index.html"))
        .await
        .good();
    assert_eq!(page, "served\n");
    println!(
        "{}",
        kubectl.run("get mydaemonset,pods -o wide").await.good()
    );
    kubectl
        .run("delete mydaemonset/mydaemonset-sample --wait=true")
        .await
        .good();
    kubectl.until_gone("pods").await;
}

#[tokio::test]
async fn the_restricted_sample_is_ready_where_pod_security_enforces_it() {
    let kubectl = kubectl("web-restricted").await;
    let label = format!(
        "label namespace {} pod-security.kubernetes.io/enforce=restricted",
        kubectl.namespace
    );
    kubectl.run(&label).await.good();
    let sample = "apply -f config/samples/apps_v1beta1_mydaemonset_restricted.yaml";
    kubectl.run(sample).await.good();
    kubectl
        .until_field(
            "mydaemonset/mydaemonset-restricted",
            "{.status.numberAvailable}",
            "1",
        )
        .await;
}
