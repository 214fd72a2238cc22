//! A deleted At takes its pod along and starts nothing.

use chrono::Utc;

use super::{HOLD, STARTED_REASON, UID, at, at_when, gated, hold_pod, in_seconds, record, witness};
use crate::cluster::kubectl;
use crate::harness::policies::Policy;
use crate::harness::{Kubectl, time};

const PHASE: &str = "{.status.phase}";

const CASCADES: [&str; 3] = ["background", "foreground", "orphan"];

#[tokio::test]
async fn deleting_an_at_takes_its_pod_along_and_a_new_one_runs_again() {
    let kubectl = kubectl("again").await;
    kubectl.apply(&at("x", "", HOLD)).await.good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    let first = kubectl.field("at/x", "{.status.podUID}").await;
    kubectl.run("delete at/x").await.good();
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    assert_ne!(kubectl.field("at/x", "{.status.podUID}").await, first);
}

/// Deletes an At of that name, and waits until it is gone.
async fn delete(kubectl: &Kubectl, cascade: &str) {
    let name = format!("at/{cascade}");
    kubectl.run(&deletion(cascade)).await.good();
    kubectl.until_gone(&name).await;
}

fn deletion(cascade: &str) -> String {
    format!("delete at/{cascade} --cascade={cascade} --wait=false")
}

#[tokio::test]
async fn a_waiting_at_that_is_deleted_starts_nothing() {
    let kubectl = kubectl("deleted-waiting").await;
    let record = record(&kubectl).await;
    // All must be deleted before they are due. That may take long on a busy machine: once more then, with more time.
    let mut due = String::new();
    for seconds in [12, 60] {
        due = in_seconds(seconds);
        let all = CASCADES.map(|cascade| at_when(&due, cascade, "", ""));
        kubectl.apply(&all.join("---")).await.good();
        kubectl
            .until_field("at", "{.items[*].status.phase}", "PENDING PENDING PENDING")
            .await;
        let deletions = CASCADES.map(|cascade| kubectl.run(&deletion(cascade)));
        for said in futures::future::join_all(deletions).await {
            said.good();
        }
        kubectl.until_gone("at").await;
        if Utc::now() < time(&due) {
            break;
        }
        kubectl.run("delete pods --all").await.good();
    }
    assert!(Utc::now() < time(&due), "too slow to show anything");
    let before = CASCADES.map(|cascade| record.uids(&format!("{cascade}-pod")));
    witness(&kubectl, "witness", &due).await;
    record.end().await;
    let after = CASCADES.map(|cascade| record.uids(&format!("{cascade}-pod")));
    assert_eq!(after, before);
}

/// Deletes Ats whose pods wait for their gates, the operator being held by a policy.
async fn delete_gated(kubectl: &Kubectl, policy: Policy, phase: Option<&str>) {
    let record = record(kubectl).await;
    for cascade in CASCADES {
        kubectl.apply(&at(cascade, "", "")).await.good();
        gated(kubectl, &format!("{cascade}-pod")).await;
        let at = format!("at/{cascade}");
        match phase {
            Some(phase) => kubectl.until_field(&at, PHASE, phase).await,
            None => kubectl.absent(&at, PHASE).await,
        }
    }
    for cascade in CASCADES {
        delete(kubectl, cascade).await;
    }
    policy.lift().await;
    witness(kubectl, "witness", "now").await;
    for cascade in ["background", "foreground"] {
        kubectl.until_gone(&format!("pod/{cascade}-pod")).await;
    }
    record.end().await;
    for cascade in CASCADES {
        let name = format!("{cascade}-pod");
        assert_eq!(record.uids(&name).len(), 1, "{cascade}");
        assert!(record.released(&name).is_empty(), "{cascade}");
    }
}

#[tokio::test]
async fn the_gated_pod_of_a_deleted_at_never_runs() {
    let kubectl = kubectl("deleted-gated").await;
    let policy = Policy::hold_commit(&kubectl).await;
    delete_gated(&kubectl, policy, None).await;
}

#[tokio::test]
async fn the_pod_of_an_at_that_is_deleted_before_its_release_never_runs() {
    let kubectl = kubectl("deleted-committed").await;
    let policy = Policy::hold_release(&kubectl).await;
    delete_gated(&kubectl, policy, Some("RUNNING")).await;
}

#[tokio::test]
async fn a_running_or_finished_at_is_deleted_with_or_without_its_pod() {
    let kubectl = kubectl("deleted-started").await;
    for (phase, annotations) in [("RUNNING", HOLD), ("DONE", "")] {
        let record = record(&kubectl).await;
        for cascade in CASCADES {
            kubectl.apply(&at(cascade, "", annotations)).await.good();
        }
        let mut pods = Vec::new();
        for cascade in CASCADES {
            kubectl
                .until_field(&format!("at/{cascade}"), "{.status.phase}", phase)
                .await;
            pods.push(
                kubectl
                    .field(&format!("at/{cascade}"), "{.status.podUID}")
                    .await,
            );
        }
        for cascade in CASCADES {
            delete(&kubectl, cascade).await;
        }
        for cascade in ["background", "foreground"] {
            kubectl.until_gone(&format!("pod/{cascade}-pod")).await;
        }
        // Its pod has no owner now, and stays.
        assert_eq!(kubectl.field("pod/orphan-pod", UID).await, pods[2]);
        kubectl
            .absent("pod/orphan-pod", "{.metadata.ownerReferences}")
            .await;
        kubectl.run("delete pod/orphan-pod").await.good();
        record.end().await;
        for (cascade, pod) in CASCADES.iter().zip(&pods) {
            let released = record.released(&format!("{cascade}-pod"));
            let uids: Vec<&String> = released.keys().collect();
            assert_eq!(uids, [pod], "{cascade} {phase}");
        }
    }
}

#[tokio::test]
async fn a_new_at_waits_for_the_end_of_the_old_ones_pod_and_runs_once() {
    let kubectl = kubectl("successor").await;
    let record = record(&kubectl).await;
    kubectl.apply(&at("x", "", HOLD)).await.good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    let first = kubectl.field("pod/x-pod", UID).await;
    hold_pod(&kubectl, true).await;
    kubectl.run("delete at/x").await.good();
    kubectl
        .until_any("pod/x-pod", "{.metadata.deletionTimestamp}")
        .await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl
        .until_field("at/x", STARTED_REASON, "NameConflict")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.phase}").await, "PENDING");
    assert_eq!(kubectl.field("pod/x-pod", UID).await, first);
    hold_pod(&kubectl, false).await;
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    record.end().await;
    let second = kubectl.field("at/x", "{.status.podUID}").await;
    assert_ne!(first, second);
    let released = record.released("x-pod");
    assert_eq!(released.len(), 2, "one for each At");
    assert!(released.contains_key(&first) && released.contains_key(&second));
    assert_eq!(record.uids("x-pod").len(), 2);
}
