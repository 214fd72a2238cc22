//! The rows of the protocol that pass in a moment: a policy holds the operator at each of them.

use super::{
    GATE, GATES, HOLD, STARTED_REASON, UID, at, at_when, gated, hold_pod, in_seconds, record,
};
use crate::cluster::kubectl;
use crate::harness::pods::Recorder;
use crate::harness::policies::Policy;
use crate::harness::{Kubectl, wait_for};

/// Waits until the pod with that UID is gone.
async fn until_uid_gone(kubectl: &Kubectl, name: &str, uid: &str) {
    kubectl
        .until(&format!("pod/{name}"), "to be another one or gone", |pod| {
            let same = pod.is_some_and(|pod| pod["metadata"]["uid"] == uid);
            (!same).then_some(())
        })
        .await;
}

/// Removes every gate of a pod, as another client with rights on pods might.
pub(super) async fn lift(kubectl: &Kubectl, name: &str) {
    kubectl
        .run(&format!(
            "patch pod/{name} --type=merge -p {{\"spec\":{{\"schedulingGates\":null}}}}"
        ))
        .await
        .good();
}

/// An At `x` whose pod another client released, and which ran to its end before the operator could record it: the policy
/// that rejects the record, and the UID of the pod.
pub(super) async fn released_by_another(kubectl: &Kubectl) -> (Policy, String) {
    let policy = Policy::hold_commit(kubectl).await;
    kubectl.apply(&at("x", "", "")).await.good();
    let uid = gated(kubectl, "x-pod").await;
    lift(kubectl, "x-pod").await;
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Succeeded")
        .await;
    (policy, uid)
}

/// A pod as the operator would make it for that At, gated, with a hash of something else.
pub(super) async fn made_by_hand(kubectl: &Kubectl, name: &str) {
    let uid = kubectl.field(&format!("at/{name}"), UID).await;
    let pod = format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: {name}-pod
  labels: {{app.kubernetes.io/managed-by: my-operator, cnat.programming-kubernetes.info/at-uid: {uid}}}
  annotations: {{cnat.programming-kubernetes.info/spec-hash: of-another-spec}}
  ownerReferences: [{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, name: {name}, uid: {uid}, controller: true}}]
spec:
  restartPolicy: Never
  schedulingGates: [{{name: {GATE}}}]
  containers: [{{name: at, image: 'bash:5.3'}}]
"
    );
    kubectl.with("create -f -", &pod).await.good();
}

/// Asserts that of all pods of that name only the one in the status could ever run.
pub(super) async fn one_run(kubectl: &Kubectl, record: &Recorder, name: &str) {
    record.end().await;
    let recorded = kubectl
        .field(&format!("at/{name}"), "{.status.podUID}")
        .await;
    let released = record.released(&format!("{name}-pod"));
    let uids: Vec<&String> = released.keys().collect();
    assert_eq!(uids, [&recorded], "{name}");
}

#[tokio::test]
async fn a_pod_of_an_older_spec_is_deleted_and_one_of_the_new_spec_runs() {
    let kubectl = kubectl("edited").await;
    let record = record(&kubectl).await;
    let policy = Policy::hold_commit(&kubectl).await;
    kubectl.apply(&at("x", "", "")).await.good();
    let first = gated(&kubectl, "x-pod").await;
    kubectl
        .apply(&at("x", "", "").replace("YAY", "NAY"))
        .await
        .good();
    until_uid_gone(&kubectl, "x-pod", &first).await;
    let second = gated(&kubectl, "x-pod").await;
    let command = kubectl
        .field("pod/x-pod", "{.spec.containers[0].command[2]}")
        .await;
    assert_eq!(command, "echo NAY");
    policy.lift().await;
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.podUID}").await, second);
    one_run(&kubectl, &record, "x").await;
}

#[tokio::test]
async fn a_pod_that_waits_is_deleted_when_its_at_is_suspended_or_put_off() {
    let all = [
        ("suspended-gated", at("x", "suspend: true", "")),
        (
            "put-off-gated",
            at_when("2999-01-01T00:00:00Z", "x", "", ""),
        ),
    ];
    let all = all.map(|(name, spec)| async move {
        let kubectl = kubectl(name).await;
        let record = record(&kubectl).await;
        let policy = Policy::hold_commit(&kubectl).await;
        kubectl.apply(&at("x", "", "")).await.good();
        gated(&kubectl, "x-pod").await;
        kubectl.apply(&spec).await.good();
        kubectl.until_gone("pod/x-pod").await;
        policy.lift().await;
        kubectl.apply(&at("x", "suspend: false", "")).await.good();
        kubectl
            .until_field("at/x", "{.status.result}", "Succeeded")
            .await;
        one_run(&kubectl, &record, "x").await;
    });
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn a_pod_that_turns_up_before_its_time_never_runs() {
    let kubectl = kubectl("too-soon").await;
    let record = record(&kubectl).await;
    let waiting = at_when("2999-01-01T00:00:00Z", "waiting", "", "");
    let suspended = at("suspended", "suspend: true", "");
    for (name, object) in [("waiting", waiting), ("suspended", suspended)] {
        kubectl.apply(&object).await.good();
        kubectl
            .until_field(&format!("at/{name}"), "{.status.phase}", "PENDING")
            .await;
        made_by_hand(&kubectl, name).await;
        kubectl.until_gone(&format!("pod/{name}-pod")).await;
        let phase = kubectl
            .field(&format!("at/{name}"), "{.status.phase}")
            .await;
        assert_eq!(phase, "PENDING", "{name}");
    }
    record.end().await;
    for name in ["waiting-pod", "suspended-pod"] {
        assert_eq!(record.uids(name).len(), 1, "{name}");
        assert!(record.released(name).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_pod_that_turns_up_after_the_run_never_runs() {
    let kubectl = kubectl("too-late").await;
    let record = record(&kubectl).await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    kubectl.run("delete pod/x-pod").await.good();
    // A request to create that was hours on its way would do this.
    made_by_hand(&kubectl, "x").await;
    kubectl.until_gone("pod/x-pod").await;
    assert_eq!(kubectl.field("at/x", "{.status.result}").await, "Succeeded");
    one_run(&kubectl, &record, "x").await;
    assert_eq!(record.uids("x-pod").len(), 2);
}

#[tokio::test]
async fn a_second_pod_while_it_runs_never_runs() {
    let kubectl = kubectl("second").await;
    let record = record(&kubectl).await;
    kubectl.apply(&at("x", "", HOLD)).await.good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    let first = kubectl.field("at/x", "{.status.podUID}").await;
    // The phase stays RUNNING while the end cannot be written.
    let end = "object.status.phase == 'DONE'";
    let policy = Policy::deny(&kubectl, "UPDATE", "ats/status", end).await;
    kubectl.run("delete pod/x-pod").await.good();
    made_by_hand(&kubectl, "x").await;
    assert_eq!(kubectl.field("at/x", "{.status.phase}").await, "RUNNING");
    policy.lift().await;
    kubectl
        .until_field("at/x", "{.status.result}", "Unknown")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.podUID}").await, first);
    kubectl.until_gone("pod/x-pod").await;
    one_run(&kubectl, &record, "x").await;
}

#[tokio::test]
async fn a_pod_that_another_client_released_is_the_run() {
    let kubectl = kubectl("violated").await;
    let record = record(&kubectl).await;
    let (policy, uid) = released_by_another(&kubectl).await;
    kubectl.absent("at/x", "{.status.podUID}").await;
    policy.lift().await;
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.podUID}").await, uid);
    assert_eq!(kubectl.field("at/x", STARTED_REASON).await, "GateViolated");
    one_run(&kubectl, &record, "x").await;
    let event = kubectl
        .until_event("x", "to name the run", |event| {
            event.contains("it is taken for the run")
        })
        .await;
    assert!(event.contains("GateViolated"), "{event}");
}

#[tokio::test]
async fn a_pod_that_was_released_and_deleted_between_two_reconciles_is_not_recreated() {
    let kubectl = kubectl("never-started").await;
    let record = record(&kubectl).await;
    let policy = Policy::hold_release(&kubectl).await;
    kubectl.apply(&at("x", "", "")).await.good();
    let uid = gated(&kubectl, "x-pod").await;
    kubectl.until_field("at/x", "{.status.podUID}", &uid).await;
    kubectl.run("delete pod/x-pod").await.good();
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    policy.lift().await;
    assert_eq!(kubectl.field("at/x", "{.status.result}").await, "Unknown");
    // If the operator read the pod before its watch showed the end, it cannot know that the gate was
    // there to the end (row R15 of the protocol).
    let reason = kubectl.field("at/x", "{.status.reason}").await;
    assert!(
        ["PodLost", "NeverStarted"].contains(&reason.as_str()),
        "{reason}"
    );
    assert_eq!(kubectl.field("at/x", STARTED_REASON).await, reason);
    kubectl.absent("at/x", "{.status.startTime}").await;
    record.end().await;
    assert_eq!(record.uids("x-pod").len(), 1);
    assert!(record.released("x-pod").is_empty());
}

#[tokio::test]
async fn a_pod_that_is_deleted_with_its_gate_is_not_released_while_a_finalizer_keeps_it() {
    let kubectl = kubectl("kept").await;
    let record = record(&kubectl).await;
    let policy = Policy::hold_release(&kubectl).await;
    kubectl.apply(&at("x", "", "")).await.good();
    let uid = gated(&kubectl, "x-pod").await;
    kubectl.until_field("at/x", "{.status.podUID}", &uid).await;
    hold_pod(&kubectl, true).await;
    kubectl.run("delete pod/x-pod --wait=false").await.good();
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    policy.lift().await;
    assert_eq!(kubectl.field("at/x", "{.status.result}").await, "Unknown");
    assert_eq!(
        kubectl.field("at/x", "{.status.reason}").await,
        "NeverStarted"
    );
    assert_eq!(kubectl.field("pod/x-pod", GATES).await, GATE);
    hold_pod(&kubectl, false).await;
    until_uid_gone(&kubectl, "x-pod", &uid).await;
    record.end().await;
    assert!(record.released("x-pod").is_empty());
}

#[tokio::test]
async fn a_pod_that_lost_our_label_is_followed_to_its_end() {
    let kubectl = kubectl("unlabelled").await;
    let record = record(&kubectl).await;
    let label = "cnat.programming-kubernetes.info/at-uid";
    let patch = format!(
        "has(object.metadata.labels) && '{label}' in object.metadata.labels ? \
         [JSONPatch{{op: 'remove', path: '/metadata/labels/{}'}}] : []",
        label.replace('/', "~1")
    );
    let policy = Policy::alter_pods(&kubectl, &patch).await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    policy.lift().await;
    one_run(&kubectl, &record, "x").await;
}

#[tokio::test]
async fn a_release_that_is_held_back_beyond_the_deadline_is_not_made() {
    let kubectl = kubectl("held-back").await;
    let record = record(&kubectl).await;
    let policy = Policy::hold_release(&kubectl).await;
    kubectl
        .apply(&at("x", "startingDeadlineSeconds: 10", ""))
        .await
        .good();
    gated(&kubectl, "x-pod").await;
    kubectl
        .until_field("at/x", "{.status.result}", "Missed")
        .await;
    policy.lift().await;
    kubectl.until_gone("pod/x-pod").await;
    kubectl.absent("at/x", "{.status.startTime}").await;
    record.end().await;
    assert!(record.released("x-pod").is_empty());
}

#[tokio::test]
async fn a_release_that_is_held_back_is_made_once_it_can_be() {
    let kubectl = kubectl("released-late").await;
    let record = record(&kubectl).await;
    let policy = Policy::hold_release(&kubectl).await;
    let due = in_seconds(0);
    kubectl.apply(&at_when(&due, "x", "", "")).await.good();
    gated(&kubectl, "x-pod").await;
    kubectl
        .until_field("at/x", STARTED_REASON, "ReleaseRefused")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.phase}").await, "RUNNING");
    let message = kubectl.field("at/x", "{.status.message}").await;
    assert!(message.contains("held back by a test"), "{message}");
    let moment = chrono::Utc::now() + chrono::TimeDelta::seconds(2);
    wait_for("two seconds to pass", async || {
        (chrono::Utc::now() > moment).then_some(())
    })
    .await;
    policy.lift().await;
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    // What is recorded is the release, and not the commit before it.
    let late = kubectl
        .field("at/x", "{.status.latenessMilliseconds}")
        .await;
    assert!(late.parse::<i64>().unwrap() >= 2_000, "{late}");
    assert_eq!(kubectl.field("at/x", STARTED_REASON).await, "Released");
    assert_eq!(kubectl.field("at/x", "{.status.reason}").await, "Completed");
    one_run(&kubectl, &record, "x").await;
}

/// Changes that a webhook could make to a pod so that the command runs twice.
const ALTERATIONS: &[(&str, &str)] = &[
    (
        "altered-policy",
        "[JSONPatch{op: 'replace', path: '/spec/restartPolicy', value: 'OnFailure'}]",
    ),
    (
        "altered-container",
        "[JSONPatch{op: 'add', path: '/spec/containers/0/restartPolicy', value: 'OnFailure'}]",
    ),
    (
        "altered-rules",
        "[JSONPatch{op: 'add', path: '/spec/containers/0/restartPolicy', value: 'Never'}, \
          JSONPatch{op: 'add', path: '/spec/containers/0/restartPolicyRules', value: [dyn({'action': dyn('Restart'), \
            'exitCodes': dyn({'operator': dyn('In'), 'values': dyn([42])})})]}]",
    ),
];

#[tokio::test]
async fn a_pod_that_was_altered_to_run_twice_is_never_released() {
    let all = ALTERATIONS.iter().map(|(name, patch)| async move {
        let kubectl = kubectl(name).await;
        let policy = Policy::alter_pods(&kubectl, patch).await;
        let record = record(&kubectl).await;
        let start = std::time::Instant::now();
        kubectl.apply(&at("x", "", "")).await.good();
        kubectl
            .until_field("at/x", STARTED_REASON, "PodAltered")
            .await;
        assert_eq!(kubectl.field("at/x", "{.status.phase}").await, "PENDING");
        assert_eq!(
            kubectl.field("at/x", "{.status.reason}").await,
            "PodAltered"
        );
        let message = kubectl.field("at/x", "{.status.message}").await;
        assert!(message.contains("could run twice"), "{message}");
        // The operator retries, and not in a hot loop: after 1, 3 and 7 seconds.
        wait_for("four pods", async || {
            (record.uids("x-pod").len() >= 4).then_some(())
        })
        .await;
        let took = start.elapsed();
        assert!(took.as_millis() >= 6_900, "four pods in {took:?}");
        assert!(record.released("x-pod").is_empty());
        policy.lift().await;
        kubectl
            .until_field("at/x", "{.status.result}", "Succeeded")
            .await;
        one_run(&kubectl, &record, "x").await;
    });
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn a_pod_that_is_created_without_its_gate_is_the_run() {
    let kubectl = kubectl("ungated").await;
    let record = record(&kubectl).await;
    let patch = "[JSONPatch{op: 'remove', path: '/spec/schedulingGates'}]";
    // The probe of this policy has no gates, so the patch is for pods that have.
    let patch = format!("has(object.spec.schedulingGates) ? {patch} : []");
    let policy = Policy::alter_pods(&kubectl, &patch).await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    policy.lift().await;
    assert_eq!(kubectl.field("at/x", STARTED_REASON).await, "GateViolated");
    one_run(&kubectl, &record, "x").await;
}
