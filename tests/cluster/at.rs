//! At on a real API server: once, or it says why not.

use crate::harness::wait_for;
use crate::{environment, kubectl};

/// An At that is due now, with fields of the spec and annotations of its pod, which tell the fake
/// kubelet how to end it.
fn at(name: &str, spec: &str, annotations: &str) -> String {
    format!(
        r"
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {{name: {name}}}
spec:
  schedule: now
  command: echo YAY
  template: {{metadata: {{annotations: {{{annotations}}}}}}}
  {spec}
"
    )
}

const HOLD: &str = "kwok.my-operator.dev/exit-code: hold";

#[tokio::test]
async fn a_pod_deleted_while_running_is_never_made_again() {
    let kubectl = kubectl("lost").await;
    kubectl.apply(&at("x", "", HOLD)).good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    kubectl
        .run("delete pod/x-pod --grace-period=0 --force")
        .good();
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    assert_eq!(kubectl.field("at/x", "{.status.result}"), "Unknown");
    assert_eq!(kubectl.field("at/x", "{.status.reason}"), "PodLost");
    // Something happens to the object that makes the operator look again.
    kubectl.run("label at/x look=again").good();
    let other = at("witness", "", "");
    kubectl.apply(&other).good();
    kubectl
        .until_field("at/witness", "{.status.phase}", "DONE")
        .await;
    assert_eq!(kubectl.run("get pods -o name").good(), "pod/witness-pod\n");
}

#[tokio::test]
async fn a_strangers_pod_of_the_same_name_is_left_alone_and_named() {
    let kubectl = kubectl("stranger").await;
    let stranger = "{apiVersion: v1, kind: Pod, metadata: {name: x-pod}, spec: {containers: [{name: c, image: i}]}}";
    kubectl.apply(stranger).good();
    let uid = kubectl.field("pod/x-pod", "{.metadata.uid}");
    kubectl.apply(&at("x", "", "")).good();
    let reason = "{.status.conditions[?(@.type=='Started')].reason}";
    kubectl.until_field("at/x", reason, "NameConflict").await;
    let message = kubectl.field("at/x", "{.status.conditions[?(@.type=='Started')].message}");
    assert!(message.contains("x-pod"), "{message}");
    assert_eq!(kubectl.field("at/x", "{.status.phase}"), "PENDING");
    assert_eq!(kubectl.field("pod/x-pod", "{.metadata.uid}"), uid);
}

#[tokio::test]
async fn the_result_of_a_failed_command_outlives_its_pod() {
    let kubectl = kubectl("failed").await;
    let end = "kwok.my-operator.dev/exit-code: '3', kwok.my-operator.dev/message: no such file";
    kubectl.apply(&at("x", "", end)).good();
    kubectl
        .run("wait --for=condition=Finished --timeout=90s at/x")
        .good();
    kubectl.run("delete pod/x-pod").good();
    for (path, value) in [
        ("{.status.phase}", "DONE"),
        ("{.status.result}", "Failed"),
        ("{.status.exitCode}", "3"),
        ("{.status.reason}", "Error"),
        ("{.status.message}", "no such file"),
        ("{.status.conditions[?(@.type=='Failed')].status}", "True"),
        ("{.status.podName}", "x-pod"),
    ] {
        assert_eq!(kubectl.field("at/x", path), value, "{path}");
    }
    for path in [
        "startTime",
        "completionTime",
        "scheduledTime",
        "podUID",
        "latenessMilliseconds",
    ] {
        assert!(
            !kubectl
                .field("at/x", &format!("{{.status.{path}}}"))
                .is_empty(),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_suspended_at_waits_and_runs_when_it_is_resumed() {
    let kubectl = kubectl("suspend").await;
    kubectl.apply(&at("x", "suspend: true", "")).good();
    kubectl
        .until_field("at/x", "{.status.phase}", "PENDING")
        .await;
    kubectl.apply(&at("witness", "", "")).good();
    kubectl
        .until_field("at/witness", "{.status.phase}", "DONE")
        .await;
    assert_eq!(kubectl.run("get pods -o name").good(), "pod/witness-pod\n");
    kubectl.apply(&at("x", "suspend: false", "")).good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
}

#[tokio::test]
async fn a_missed_deadline_is_said_and_nothing_runs() {
    let kubectl = kubectl("missed").await;
    let late = at("x", "startingDeadlineSeconds: 10", "").replace("now", "'2020-01-01T00:00:00Z'");
    kubectl.apply(&late).good();
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    assert_eq!(kubectl.field("at/x", "{.status.result}"), "Missed");
    kubectl
        .run("wait --for=condition=Finished --timeout=90s at/x")
        .good();
    assert_eq!(kubectl.run("get pods -o name").good(), "");
}

#[tokio::test]
async fn a_finished_at_goes_after_its_time_to_live() {
    let kubectl = kubectl("ttl").await;
    kubectl
        .apply(&at("x", "ttlSecondsAfterFinished: 1", ""))
        .good();
    wait_for("the At and its pod to go", || {
        kubectl
            .run("get at,pods -o name")
            .good()
            .is_empty()
            .then_some(())
    })
    .await;
}

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
    let reason = "{.status.conditions[?(@.type=='Started')].reason}";
    kubectl.until_field("at/x", reason, "PodRefused").await;
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

#[tokio::test]
async fn deleting_an_at_takes_its_pod_along_and_a_new_one_runs_again() {
    let kubectl = kubectl("again").await;
    kubectl.apply(&at("x", "", HOLD)).good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    let first = kubectl.field("at/x", "{.status.podUID}");
    kubectl.run("delete at/x").good();
    kubectl.apply(&at("x", "", "")).good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    assert_ne!(kubectl.field("at/x", "{.status.podUID}"), first);
}

#[tokio::test]
async fn no_write_is_made_while_an_at_waits() {
    let kubectl = kubectl("quiet").await;
    let far = at("x", "", "").replace("schedule: now", "schedule: '2999-01-01T00:00:00Z'");
    kubectl.apply(&far).good();
    kubectl
        .until_field("at/x", "{.status.phase}", "PENDING")
        .await;
    let version = || kubectl.field("at/x", "{.metadata.resourceVersion}");
    let before = version();
    kubectl.apply(&at("witness", "", "")).good();
    kubectl
        .until_field("at/witness", "{.status.phase}", "DONE")
        .await;
    assert_eq!(version(), before);
    assert!(environment().await.operator.process.is_running());
}
