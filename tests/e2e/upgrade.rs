//! Another release in the place of this one: the same program by another name, as long as there is no
//! release.

use chrono::Utc;

use crate::at::until_complete;
use crate::harness::{time, wait_for};
use crate::images::NEXT;
use crate::{DEPLOYMENT, NODE, deploy, kubectl, own, ready_pods, until_alone};

#[tokio::test]
async fn existing_objects_survive_an_upgrade() {
    let (kubectl, own) = (kubectl("upgrade").await, own().await);
    let objects = "
apiVersion: apps.zhongmingmao.io/v1beta1
kind: MyDaemonSet
metadata: {name: web}
spec:
  image: nginx:stable-alpine3.17
  template: {spec: {terminationGracePeriodSeconds: 5}}
---
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: before}
spec: {schedule: now, command: echo before}
";
    kubectl.until_applied(objects).await;
    until_complete(&kubectl, "before").await;
    kubectl
        .until_field("mydaemonset/web", "{.status.numberReady}", "1")
        .await;
    let pod = wait_for("its pod", async || {
        ready_pods(&kubectl, "")
            .await
            .into_iter()
            .find(|name| name.starts_with(NODE))
    })
    .await;
    let uid = kubectl
        .field(&format!("pod/{pod}"), "{.metadata.uid}")
        .await;
    let before = kubectl.field("at/before", "{.status}").await;

    // Due while one is put in the place of the other.
    let across = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: across}
spec: {schedule: now + 15 seconds, command: echo across}
";
    kubectl.until_applied(across).await;
    let began = Utc::now();
    deploy(own.cluster, NEXT).await.good();
    until_alone(&own).await;
    let image = own
        .field(DEPLOYMENT, "{.spec.template.spec.containers[0].image}")
        .await;
    assert_eq!(image, NEXT);

    until_complete(&kubectl, "across").await;
    let started = kubectl.field("at/across", "{.status.startTime}").await;
    assert!(time(&started) > began, "before the upgrade: {started}");
    assert_eq!(kubectl.run("logs across-pod").await.good(), "across\n");
    // Neither run again nor rolled, and still looked after.
    assert_eq!(kubectl.field("at/before", "{.status}").await, before);
    assert_eq!(
        kubectl
            .field(&format!("pod/{pod}"), "{.metadata.uid}")
            .await,
        uid
    );
    kubectl.run(&format!("delete pod/{pod}")).await.good();
    kubectl
        .until_field("mydaemonset/web", "{.status.numberReady}", "1")
        .await;
    kubectl.run("delete mydaemonset/web").await.good();
}
