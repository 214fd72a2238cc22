//! An At that is deleted takes its pod along, and starts nothing any more.

use super::{HOLD, at};
use crate::kubectl;

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
