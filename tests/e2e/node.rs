//! What happens to nodes: drained, restarted.

use std::time::Duration;

use crate::at::until_complete;
use crate::harness::{Kubectl, try_wait};
use crate::{NODE, kubectl, own, pods, ready_pod, until_rolled_out};

/// A MyDaemonSet of that name with a web server that ends at once.
fn web(name: &str) -> String {
    format!(
        "
apiVersion: apps.zhongmingmao.io/v1beta1
kind: MyDaemonSet
metadata: {{name: {name}}}
spec:
  image: nginx:stable-alpine3.17
  template: {{spec: {{terminationGracePeriodSeconds: 5}}}}
"
    )
}

async fn until_ready(kubectl: &Kubectl, name: &str) -> String {
    kubectl
        .until_field(&format!("mydaemonset/{name}"), "{.status.numberReady}", "1")
        .await;
    ready_pod(kubectl).await
}

#[tokio::test]
async fn a_drained_node_loses_its_pod_until_it_is_uncordoned() {
    let kubectl = kubectl("drain").await;
    kubectl.until_applied(&web("web")).await;
    let first = until_ready(&kubectl, "web").await;
    let uid = async |pod: &str| {
        kubectl
            .field(&format!("pod/{pod}"), "{.metadata.uid}")
            .await
    };
    let drained = uid(&first).await;

    // The operator itself stays: there is no other node for it, and its budget would say so.
    let drain = "drain --pod-selector=control-plane!=controller-manager \
                 --delete-emptydir-data --timeout=60s";
    kubectl.run(&format!("{drain} {NODE}")).await.good();
    kubectl.until_gone(&format!("pod/{first}")).await;
    let came_back = try_wait(Duration::from_secs(5), async || {
        (!pods(&kubectl, "").await.is_empty()).then_some(())
    });
    assert!(came_back.await.is_none(), "a pod on a drained node");

    kubectl.run(&format!("uncordon {NODE}")).await.good();
    let second = until_ready(&kubectl, "web").await;
    // Its name may be the same: the name comes from the node and the revision.
    assert_ne!(uid(&second).await, drained);
    kubectl.run("delete mydaemonset/web").await.good();
}

#[tokio::test]
async fn a_restarted_node_runs_no_command_again_and_has_its_pods_back() {
    let kubectl = kubectl("reboot").await;
    let cluster = kubectl.cluster;
    // Outside the container: a file on the node shows what ran, not Kubernetes.
    let place = cluster.directory().join("ran");
    std::fs::create_dir_all(&place).unwrap();
    kubectl.until_applied(&web("web")).await;
    kubectl
        .until_applied(&format!(
            r#"
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {{name: once}}
spec:
  schedule: now
  command: echo "$HOSTNAME" >>/ran/once
  template:
    spec:
      volumes: [{{name: ran, hostPath: {{path: {}}}}}]
      containers:
        - name: at
          volumeMounts: [{{name: ran, mountPath: /ran}}]
"#,
            place.display()
        ))
        .await;
    until_complete(&kubectl, "once").await;
    let ran = || std::fs::read_to_string(place.join("once")).unwrap_or_default();
    assert_eq!(ran(), "once-pod\n");
    let web = until_ready(&kubectl, "web").await;
    let uid = kubectl
        .field(&format!("pod/{web}"), "{.metadata.uid}")
        .await;

    for component in ["kubelet", "containerd", "kube-proxy"] {
        cluster.stop_component(component).await.unwrap();
    }
    // A reboot ends every container, too.
    cluster.end_containers().await.unwrap();
    for component in ["containerd", "kubelet", "kube-proxy"] {
        cluster.start_component(component).await.unwrap();
    }
    let restarted = format!("pod/{web}");
    let restarts = "{.status.containerStatuses[0].restartCount}";
    kubectl.until_field(&restarted, restarts, "1").await;
    assert_eq!(until_ready(&kubectl, "web").await, web);
    assert_eq!(kubectl.field(&restarted, "{.metadata.uid}").await, uid);
    until_rolled_out(&own().await).await;

    // The operator is back as well: it starts what is new, and nothing that has run.
    let after = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: after}
spec: {schedule: now, command: echo after}
";
    kubectl.until_applied(after).await;
    until_complete(&kubectl, "after").await;
    assert_eq!(ran(), "once-pod\n", "a command that had run ran again");
    assert_eq!(kubectl.field("at/once", "{.status.phase}").await, "DONE");
    kubectl.run("delete mydaemonset/web").await.good();
}
