//! When an At starts, and when it does not any more.

use super::at;
use crate::harness::wait_for;
use crate::{environment, kubectl};

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
