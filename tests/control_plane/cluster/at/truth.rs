//! A status never says what is not so, whatever is rejected, hangs, fails or was done by another client.

use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use my_operator::kinds::at::crd::At;
use serde_json::{Value, json};

use super::protocol::{made_by_hand, one_run, released_by_another};
use super::{GATE, GATES, HOLD, STARTED_REASON, at, at_with, gated, hold_pod, record, set_status};
use crate::cluster::kubectl;
use crate::harness::Kubectl;
use crate::harness::hanging::Hanging;
use crate::harness::policies::{BY_OPERATOR, Policy};
use crate::harness::record::{Event, Record, number};

const STARTED: &str = "{.status.conditions[?(@.type=='Started')].status}";
const RESULT: &str = "{.status.result}";
const REASON: &str = "{.status.reason}";

/// No write of a result gets through.
async fn hold_end(kubectl: &Kubectl) -> Policy {
    Policy::deny(
        kubectl,
        "UPDATE",
        "ats/status",
        "object.status.phase == 'DONE'",
    )
    .await
}

#[tokio::test]
async fn a_pod_that_another_client_released_and_deleted_is_not_made_again() {
    let kubectl = kubectl("violated-gone").await;
    let record = record(&kubectl).await;
    let (policy, uid) = released_by_another(&kubectl).await;
    kubectl.run("delete pod/x-pod").await.good();
    kubectl.absent("at/x", "{.status.podUID}").await;
    policy.lift().await;
    // An operator that has failed for long waits for long.
    kubectl.run("annotate at/x tried=again").await.good();
    // The watch saw its end.
    kubectl.until_field("at/x", RESULT, "Succeeded").await;
    assert_eq!(kubectl.field("at/x", "{.status.podUID}").await, uid);
    assert_eq!(kubectl.field("at/x", STARTED_REASON).await, "GateViolated");
    one_run(&kubectl, &record, "x").await;
    assert_eq!(record.uids("x-pod").len(), 1);
}

#[tokio::test]
async fn webhooks_that_hang_for_half_a_minute_let_the_at_start_or_are_reported() {
    let kubectl = kubectl("hangs-create").await;
    let webhooks = Hanging::start(&kubectl, "CREATE", ("Ignore", 3, 10)).await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl
        .until("at/x", "to start or to say why not", |at| {
            let status = &at?["status"];
            let reported = status["reason"] == "CreateFailed";
            (reported || status["result"] == "Succeeded").then_some(())
        })
        .await;
    webhooks.end().await;
}

#[tokio::test]
async fn kubectl_wait_ends_though_the_spec_was_changed_after_the_condition() {
    let kubectl = kubectl("generation").await;
    kubectl.apply(&at("done", "", "")).await.good();
    kubectl.apply(&at("runs", "", HOLD)).await.good();
    kubectl.until_field("at/done", RESULT, "Succeeded").await;
    kubectl.until_field("at/runs", STARTED, "True").await;
    for (name, spec) in [
        ("done", json!({"ttlSecondsAfterFinished": 3600})),
        ("runs", json!({"suspend": true})),
    ] {
        let patch = json!({ "spec": spec }).to_string();
        let args = format!("patch at/{name} --type=merge --patch-file=/dev/stdin");
        kubectl.with(&args, &patch).await.good();
        assert_eq!(
            kubectl
                .field(&format!("at/{name}"), "{.metadata.generation}")
                .await,
            "2"
        );
    }
    for (condition, name) in [
        ("Finished", "done"),
        ("Complete", "done"),
        ("Started", "done"),
        ("Started", "runs"),
    ] {
        let wait = format!("wait --for=condition={condition} --timeout=30s at/{name}");
        kubectl.run(&wait).await.good();
    }
}

#[tokio::test]
async fn an_at_whose_release_hangs_has_not_started() {
    let kubectl = kubectl("hangs-release").await;
    let webhook = Hanging::start(&kubectl, "UPDATE", ("Fail", 1, 4)).await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl
        .until_field("at/x", "{.status.phase}", "RUNNING")
        .await;
    assert_eq!(kubectl.field("pod/x-pod", GATES).await, GATE);
    let gated = async || {
        assert_eq!(kubectl.field("at/x", STARTED).await, "False");
        kubectl.absent("at/x", "{.status.startTime}").await;
        kubectl
            .absent("at/x", "{.status.latenessMilliseconds}")
            .await;
    };
    gated().await;
    kubectl
        .until_field("at/x", STARTED_REASON, "ReleaseRefused")
        .await;
    gated().await;
    webhook.end().await;
    kubectl
        .run("wait --for=condition=Started --timeout=60s at/x")
        .await
        .good();
    kubectl.until_field("at/x", RESULT, "Succeeded").await;
    let late = kubectl
        .field("at/x", "{.status.latenessMilliseconds}")
        .await;
    assert!(late.parse::<u64>().unwrap() >= 4_000, "{late}");
}

#[tokio::test]
async fn an_at_that_was_committed_and_lost_its_gated_pod_never_says_that_it_started() {
    let kubectl = kubectl("committed-lost").await;
    let webhook = Hanging::start(&kubectl, "UPDATE", ("Fail", 1, 8)).await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl
        .until_field("at/x", "{.status.phase}", "RUNNING")
        .await;
    kubectl.run("delete pod/x-pod").await.good();
    kubectl.until_field("at/x", RESULT, "Unknown").await;
    let started = kubectl.field("at/x", STARTED).await;
    assert_ne!(started, "True");
    kubectl.absent("at/x", "{.status.startTime}").await;
    kubectl
        .absent("at/x", "{.status.latenessMilliseconds}")
        .await;
    webhook.end().await;
}

#[tokio::test]
async fn a_start_is_recorded_while_the_command_runs() {
    let kubectl = kubectl("started").await;
    kubectl.apply(&at("x", "", HOLD)).await.good();
    kubectl.until_field("at/x", STARTED, "True").await;
    assert_eq!(kubectl.field("at/x", STARTED_REASON).await, "Released");
    kubectl.absent("pod/x-pod", GATES).await;
    for path in ["{.status.startTime}", "{.status.latenessMilliseconds}"] {
        kubectl.field("at/x", path).await;
    }
}

#[tokio::test]
async fn what_was_decided_stays_though_the_write_after_the_deletion_fails() {
    let kubectl = kubectl("decided").await;
    let release = Policy::deny(
        &kubectl,
        "UPDATE",
        "pods",
        &format!("{BY_OPERATOR} && object.metadata.name == 'missed-pod'"),
    )
    .await;
    let end = hold_end(&kubectl).await;
    let missed = at("missed", "startingDeadlineSeconds: 5", "");
    let exceeded = at_with(
        "exceeded",
        "{schedule: now, command: a, activeDeadlineSeconds: 5, template: {spec: {nodeSelector: {a-node: none}}}}",
    );
    kubectl.apply(&missed).await.good();
    kubectl.apply(&exceeded).await.good();
    for (name, reason) in [
        ("missed", "StartingDeadlineExceeded"),
        ("exceeded", "DeadlineExceeded"),
    ] {
        let (at, pod) = (format!("at/{name}"), format!("pod/{name}-pod"));
        kubectl.until_field(&at, REASON, reason).await;
        kubectl.until_gone(&pod).await;
        assert_eq!(kubectl.field(&at, "{.status.phase}").await, "RUNNING");
    }
    release.lift().await;
    end.lift().await;
    for (name, result, reason) in [
        ("missed", "Missed", "StartingDeadlineExceeded"),
        ("exceeded", "Failed", "DeadlineExceeded"),
    ] {
        let at = format!("at/{name}");
        kubectl.until_field(&at, "{.status.phase}", "DONE").await;
        assert_eq!(kubectl.field(&at, RESULT).await, result);
        assert_eq!(kubectl.field(&at, REASON).await, reason);
        kubectl
            .absent(&at, "{.status.conditions[?(@.type=='FailureTarget')]}")
            .await;
    }
    assert_eq!(kubectl.field("at/missed", STARTED).await, "False");
    assert_eq!(kubectl.field("at/exceeded", STARTED).await, "True");
}

#[tokio::test]
async fn a_deletion_that_is_rejected_is_reported_and_the_at_ends_once_it_is_not() {
    let kubectl = kubectl("undeletable").await;
    let commit = Policy::hold_commit(&kubectl).await;
    kubectl.apply(&at("x", "", "")).await.good();
    gated(&kubectl, "x-pod").await;
    let delete = Policy::deny(&kubectl, "DELETE", "pods", BY_OPERATOR).await;
    // The pod is outdated now.
    kubectl
        .apply(&at("x", "", "").replace("YAY", "NAY"))
        .await
        .good();
    let release = Policy::hold_release(&kubectl).await;
    kubectl
        .until_field("at/x", STARTED_REASON, "DeleteRefused")
        .await;
    assert_eq!(kubectl.field("at/x", REASON).await, "DeleteRefused");
    let event = kubectl
        .until_event("x", "to name the policy", |event| {
            event.contains("held back by a test")
        })
        .await;
    assert!(event.contains("DeleteRefused"), "{event}");
    commit.lift().await;
    // A pod that is too late to be released.
    kubectl
        .apply(&at("late", "startingDeadlineSeconds: 3", ""))
        .await
        .good();
    kubectl
        .until_field("at/late", REASON, "DeleteRefused")
        .await;
    assert_eq!(kubectl.field("at/late", "{.status.phase}").await, "RUNNING");
    delete.lift().await;
    release.lift().await;
    kubectl.until_field("at/x", RESULT, "Succeeded").await;
    kubectl.until_field("at/late", RESULT, "Missed").await;
}

#[tokio::test]
async fn the_time_to_live_passes_though_a_pod_that_came_too_late_cannot_be_deleted() {
    let kubectl = kubectl("ttl-undeletable").await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    kubectl.run("delete pod/x-pod").await.good();
    let delete = Policy::deny(&kubectl, "DELETE", "pods", BY_OPERATOR).await;
    made_by_hand(&kubectl, "x").await;
    kubectl
        .run("patch at/x --type=merge -p {\"spec\":{\"ttlSecondsAfterFinished\":1}}")
        .await
        .good();
    kubectl.until_gone("at/x").await;
    delete.lift().await;
}

#[tokio::test]
async fn a_node_that_is_silent_and_a_pod_that_does_not_go_are_reported() {
    let kubectl = kubectl("node-silent").await;
    kubectl.apply(&at("x", "", HOLD)).await.good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    kubectl.until_field("at/x", STARTED, "True").await;
    // Its kubelet reports no more.
    let report = "object.status.phase != 'Running' || \
        object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')";
    let policy = Policy::deny(&kubectl, "UPDATE", "pods/status", report).await;
    // As the node lifecycle controller marks it.
    let conditions = "{type: Ready, status: 'False'}, {type: ContainersReady, status: 'True'}";
    set_status(
        &kubectl,
        "x-pod",
        &format!("{{conditions: [{conditions}]}}"),
    )
    .await;
    kubectl.until_field("at/x", REASON, "NodeNotReady").await;
    // And as the taint manager evicts it then.
    hold_pod(&kubectl, true).await;
    // The disruption controller takes back a condition of long ago.
    let evicted = format!(
        "{{type: DisruptionTarget, status: 'True', reason: DeletionByTaintManager, \
          message: 'Taint manager: deleting due to NoExecute taint', lastTransitionTime: '{}'}}",
        super::in_seconds(0)
    );
    set_status(
        &kubectl,
        "x-pod",
        &format!("{{conditions: [{conditions}, {evicted}]}}"),
    )
    .await;
    kubectl.run("delete pod/x-pod --wait=false").await.good();
    kubectl
        .until_field("at/x", REASON, "DeletionByTaintManager")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.phase}").await, "RUNNING");
    hold_pod(&kubectl, false).await;
    kubectl.until_field("at/x", RESULT, "Unknown").await;
    policy.lift().await;
}

#[tokio::test]
async fn a_pod_whose_owner_reference_is_taken_away_is_reported_and_made_again() {
    let kubectl = kubectl("unowned").await;
    let record = record(&kubectl).await;
    let patch = "has(object.metadata.ownerReferences) ? \
        [JSONPatch{op: 'remove', path: '/metadata/ownerReferences'}] : []";
    let policy = Policy::alter_pods(&kubectl, patch).await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl
        .until_field("at/x", STARTED_REASON, "PodAltered")
        .await;
    let message = kubectl.field("at/x", "{.status.message}").await;
    assert!(message.contains("owner reference"), "{message}");
    policy.lift().await;
    kubectl.until_field("at/x", RESULT, "Succeeded").await;
    one_run(&kubectl, &record, "x").await;
}

#[tokio::test]
async fn a_short_command_costs_two_writes_of_the_status() {
    let kubectl = kubectl("two-writes").await;
    let client = kubectl.cluster.client().await.unwrap();
    let resource = ApiResource::erase::<At>(&());
    let ats: Api<DynamicObject> = Api::namespaced_with(client, &kubectl.namespace, &resource);
    let record = Record::start(ats).await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl.until_field("at/x", RESULT, "Succeeded").await;
    let at = kubectl.object("at/x").await;
    record
        .reach(number(at["metadata"]["resourceVersion"].as_str().unwrap()))
        .await;
    let statuses: Vec<Value> = record.look(|events| {
        let status = |event: &Event<DynamicObject>| event.object.data["status"].clone();
        events.iter().map(status).collect()
    });
    let phases: Vec<_> = statuses
        .iter()
        .map(|status| status["phase"].as_str())
        .collect();
    let starts: Vec<_> = statuses
        .iter()
        .map(|status| status["startTime"].is_string())
        .collect();
    let is_slow = phases.len() == 4;
    if is_slow {
        // On a machine so busy that the command took two seconds, its start is written before its end.
        assert_eq!(
            phases,
            [None, Some("RUNNING"), Some("RUNNING"), Some("DONE")]
        );
        assert_eq!(starts, [false, false, true, true]);
    } else {
        assert_eq!(phases, [None, Some("RUNNING"), Some("DONE")]);
        assert_eq!(starts, [false, false, true]);
    }
}
