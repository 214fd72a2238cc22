//! How a run ended.

use super::{HOLD, at};
use crate::kubectl;

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
