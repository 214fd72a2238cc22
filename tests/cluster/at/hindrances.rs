//! What keeps an At from starting, or its pod from running, is told and not fought.

use super::{STARTED_REASON, at};
use crate::kubectl;

#[tokio::test]
async fn a_strangers_pod_of_the_same_name_is_left_alone_and_named() {
    let kubectl = kubectl("stranger").await;
    let stranger = "{apiVersion: v1, kind: Pod, metadata: {name: x-pod}, spec: {containers: [{name: c, image: i}]}}";
    kubectl.apply(stranger).good();
    let uid = kubectl.field("pod/x-pod", "{.metadata.uid}");
    kubectl.apply(&at("x", "", "")).good();
    kubectl
        .until_field("at/x", STARTED_REASON, "NameConflict")
        .await;
    let message = kubectl.field("at/x", "{.status.conditions[?(@.type=='Started')].message}");
    assert!(message.contains("x-pod"), "{message}");
    assert_eq!(kubectl.field("at/x", "{.status.phase}"), "PENDING");
    assert_eq!(kubectl.field("pod/x-pod", "{.metadata.uid}"), uid);
}

#[tokio::test]
async fn a_pod_that_the_cluster_refuses_is_a_condition_and_not_a_hot_loop() {
    let kubectl = kubectl("refused").await;
    let quota =
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: '0'}}}";
    kubectl.apply(quota).good();
    kubectl
        .until_field("resourcequota/none", "{.status.hard.pods}", "0")
        .await;
    kubectl.apply(&at("x", "", "")).good();
    kubectl
        .until_field("at/x", STARTED_REASON, "PodRefused")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.reason}"), "PodRefused");
    let message = kubectl.field("at/x", "{.status.message}");
    assert!(message.contains("quota"), "{message}");
    kubectl.run("delete resourcequota/none").good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
}

#[tokio::test]
async fn what_keeps_the_pod_from_running_is_shown_in_the_at() {
    let kubectl = kubectl("unschedulable").await;
    let object = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: x}
spec:
  schedule: now
  command: echo YAY
  template: {spec: {nodeSelector: {a-node: to-come}}}
";
    kubectl.apply(object).good();
    kubectl
        .until_field("at/x", "{.status.reason}", "Unschedulable")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.phase}"), "RUNNING");
    let table = kubectl.run("get at x -o wide").good();
    assert!(table.contains("nodes are available"), "{table}");
    let story = kubectl.run("describe at x").good();
    assert!(
        story.contains("the pod does not run yet: Unschedulable"),
        "{story}"
    );
    // It goes away with its reason.
    kubectl.run("label node node-2 a-node=to-come").good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    kubectl.run("label node node-2 a-node-").good();
    assert_eq!(kubectl.field("at/x", "{.status.reason}"), "Completed");
}
