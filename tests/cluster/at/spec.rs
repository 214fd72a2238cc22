//! What the spec says reaches the pod, and what it may not say.

use crate::harness::wait_for;
use crate::kubectl;

#[tokio::test]
async fn fields_that_our_types_do_not_know_reach_the_pod() {
    let kubectl = kubectl("unknown-fields").await;
    // hostnameOverride is younger than the API types that this program is built with.
    let object = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: x}
spec:
  schedule: now
  command: echo YAY
  template:
    metadata: {labels: {team: a}}
    spec:
      hostnameOverride: somewhere
      terminationGracePeriodSeconds: 7
      containers: [{name: side, image: 'side:1', command: [sleep, '1']}]
";
    kubectl.apply(object).good();
    wait_for("the pod", || {
        let value = kubectl.field("pod/x-pod", "{.spec.hostnameOverride}");
        (value == "somewhere").then_some(())
    })
    .await;
    let names = kubectl.field("pod/x-pod", "{.spec.containers[*].name}");
    assert_eq!(names, "at side");
    assert_eq!(kubectl.field("pod/x-pod", "{.metadata.labels.team}"), "a");
}
