//! What keeps an At from starting, or its pod from running, is reported, and the operator leaves it alone.

use std::time::Duration;

use super::{HOLD, STARTED_REASON, at, at_when, record, set_status};
use crate::cluster::kubectl;
use crate::harness::policies::Policy;
use crate::harness::{Kubectl, try_wait, wait_for};

const MESSAGE: &str = "{.status.message}";

/// Shorter than the minute between reconciles without a backoff, and long for a busy machine.
const SOON: Duration = Duration::from_secs(40);

const FOREIGN_POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: x-pod}, spec: {schedulingGates: [{name: example.com/wait}], containers: [{name: c, image: 'i:1'}]}}";

#[tokio::test]
async fn an_at_starts_soon_after_a_foreign_pod_of_the_name_is_deleted() {
    let kubectl = kubectl("stranger-goes").await;
    kubectl.apply(FOREIGN_POD).await.good();
    let record = record(&kubectl).await;
    kubectl.apply(&at("x", "", "")).await.good();
    kubectl
        .until_field("at/x", STARTED_REASON, "NameConflict")
        .await;
    kubectl.run("delete pod/x-pod").await.good();
    // The operator gets no watch event: its watch does not select the foreign pod.
    let run = try_wait(SOON, async || {
        let result = kubectl.field_if_any("at/x", "{.status.result}").await;
        (result == "Succeeded").then_some(())
    });
    assert!(
        run.await.is_some(),
        "{}",
        kubectl.run("get at/x -o yaml").await.out
    );
    record.end().await;
    let released = record.released("x-pod");
    assert_eq!(released.len(), 1, "{released:?}");
    assert!(released.contains_key(&kubectl.field("at/x", "{.status.podUID}").await));
}

#[tokio::test]
async fn a_name_conflict_that_lasts_is_missed_at_the_deadline() {
    let kubectl = kubectl("stranger-stays").await;
    kubectl.apply(FOREIGN_POD).await.good();
    kubectl
        .apply(&at("x", "startingDeadlineSeconds: 10", ""))
        .await
        .good();
    kubectl
        .until_field("at/x", "{.status.result}", "Missed")
        .await;
    until_event(&kubectl, "NameConflict").await;
}

/// Waits for an Event with those words: Events come after the status.
async fn until_event(kubectl: &Kubectl, words: &str) {
    let what = format!("to say {words:?}");
    kubectl
        .until_event("x", &what, |event| event.contains(words))
        .await;
}

/// Waits for an At that is due and whose pod is rejected; returns the message.
async fn refused(kubectl: &Kubectl, name: &str) -> String {
    let at = format!("at/{name}");
    kubectl.until_field(&at, STARTED_REASON, "PodRefused").await;
    assert_eq!(kubectl.field(&at, "{.status.phase}").await, "PENDING");
    assert_eq!(kubectl.field(&at, "{.status.reason}").await, "PodRefused");
    kubectl.absent(&at, "{.status.podUID}").await;
    kubectl.field(&at, MESSAGE).await
}

/// What rejects pods: its name, its manifest, the words of the rejection, and the object to delete.
const KEEPERS: &[(&str, &str, &str, &str)] = &[
    (
        "quota",
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: '0'}}}",
        "exceeded quota",
        "resourcequota/none",
    ),
    (
        "limits",
        "{apiVersion: v1, kind: LimitRange, metadata: {name: all}, spec: {limits: [{type: Pod, min: {cpu: 1}}]}}",
        "minimum cpu usage per Pod is 1",
        "limitrange/all",
    ),
    (
        "webhook",
        "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: NAMESPACE}, \
         webhooks: [{name: nobody.example.com, failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 2, \
         namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}, clientConfig: {url: 'https://127.0.0.1:1/'}, \
         rules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}]}",
        "failed calling webhook \"nobody.example.com\"",
        "validatingwebhookconfiguration/NAMESPACE",
    ),
];

#[tokio::test]
async fn what_rejects_the_pod_is_named_and_the_pod_runs_once_it_is_accepted() {
    let all = KEEPERS
        .iter()
        .map(|(name, keeper, words, object)| async move {
            let kubectl = kubectl(name).await;
            let here = |text: &str| text.replace("NAMESPACE", &kubectl.namespace);
            kubectl.apply(&here(keeper)).await.good();
            // The API server takes a moment to see it.
            wait_for("pods to be refused", async || {
                let said = kubectl
                    .run("run probe --image=probe:1 --dry-run=server")
                    .await;
                said.err.contains(words).then_some(())
            })
            .await;
            let record = record(&kubectl).await;
            kubectl.apply(&at("x", "", "")).await.good();
            kubectl
                .apply(&at("late", "startingDeadlineSeconds: 2", ""))
                .await
                .good();
            let message = refused(&kubectl, "x").await;
            assert!(message.contains(words), "{message}");
            kubectl
                .until_field("at/late", "{.status.result}", "Missed")
                .await;
            let table = kubectl.run("get at/x -o wide").await.good();
            assert!(
                table.contains("PENDING") && table.contains(words),
                "{table}"
            );
            kubectl.run(&here(&format!("delete {object}"))).await.good();
            kubectl
                .until_field("at/x", "{.status.result}", "Succeeded")
                .await;
            record.end().await;
            assert_eq!(record.released("x-pod").len(), 1);
            assert_eq!(record.uids("late-pod").len(), 0);
        });
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn a_mistake_in_the_template_shows_long_before_the_at_is_due() {
    const REASON: &str = "{.status.conditions[?(@.type=='PodAccepted')].reason}";
    let kubectl = kubectl("early").await;
    let record = record(&kubectl).await;
    let template = |volumes: &str| {
        format!(
            "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: x}}, \
            spec: {{schedule: now + 1 hour, command: echo YAY, template: {{spec: {{volumes: {volumes}}}}}}}}}"
        )
    };
    let twice = template("[{name: v, emptyDir: {}}, {name: v, emptyDir: {}}]");
    kubectl.apply(&twice).await.good();
    kubectl.until_field("at/x", REASON, "PodRefused").await;
    let message = kubectl.field("at/x", MESSAGE).await;
    assert!(message.contains("Duplicate value: \"v\""), "{message}");
    let table = kubectl.run("get at/x").await.good();
    assert!(
        table.contains("PENDING") && table.contains("PodRefused"),
        "{table}"
    );
    until_event(&kubectl, "not due yet, but a dry run of its pod is refused").await;
    let once = template("[{name: v, emptyDir: {}}]");
    kubectl.apply(&once).await.good();
    kubectl
        .until_field("at/x", "{.status.dryRunGeneration}", "2")
        .await;
    kubectl.absent("at/x", REASON).await;
    kubectl.absent("at/x", "{.status.reason}").await;
    // With the start there is nothing more to say of it.
    kubectl.apply(&at_when("now", "x", "", "")).await.good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    kubectl.absent("at/x", "{.status.dryRunGeneration}").await;
    record.end().await;
    assert_eq!(record.uids("x-pod").len(), 1);
}

#[tokio::test]
async fn a_policy_that_denies_the_pod_is_named() {
    let kubectl = kubectl("denied").await;
    let policy = Policy::deny(
        &kubectl,
        "CREATE",
        "pods",
        "object.metadata.name == 'x-pod'",
    )
    .await;
    kubectl.apply(&at("x", "", "")).await.good();
    let message = refused(&kubectl, "x").await;
    assert!(message.contains("held back by a test"), "{message}");
    policy.lift().await;
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
}

#[tokio::test]
async fn an_at_in_a_namespace_that_ends_starts_nothing_and_does_not_hold_it() {
    let kubectl = kubectl("ending").await;
    // Otherwise the At would be gone at once.
    let policy = Policy::deny(&kubectl, "DELETE", "ats", "true").await;
    kubectl.apply(&at("x", "suspend: true", "")).await.good();
    kubectl
        .run(&format!(
            "delete namespace {} --wait=false",
            kubectl.namespace
        ))
        .await
        .good();
    kubectl
        .run("patch at/x --type=merge -p {\"spec\":{\"suspend\":false}}")
        .await
        .good();
    let message = refused(&kubectl, "x").await;
    assert!(message.contains("is being terminated"), "{message}");
    assert_eq!(kubectl.names("pods").await, [""; 0]);
    policy.lift().await;
    kubectl
        .until_gone(&format!("namespace/{}", kubectl.namespace))
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
    kubectl.apply(object).await.good();
    kubectl
        .until_field("at/x", "{.status.reason}", "Unschedulable")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.phase}").await, "RUNNING");
    let table = kubectl.run("get at x -o wide").await.good();
    assert!(table.contains("nodes are available"), "{table}");
    until_event(&kubectl, "the pod does not run yet: Unschedulable").await;
    // It goes away with its reason.
    kubectl.run("label node node-2 a-node=to-come").await.good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    kubectl.run("label node node-2 a-node-").await.good();
    assert_eq!(kubectl.field("at/x", "{.status.reason}").await, "Completed");
}

#[tokio::test]
async fn what_the_kubelet_waits_for_is_shown_in_the_at() {
    let kubectl = kubectl("waiting").await;
    let stays = "kwok.my-operator.dev/phase: Pending";
    kubectl.apply(&at("x", "", stays)).await.good();
    kubectl.until_any("pod/x-pod", "{.spec.nodeName}").await;
    for (reason, message, shown) in [
        ("ErrImagePull", "no such host", "ImagePullBackOff"),
        (
            "InvalidImageName",
            "couldn't parse image name",
            "InvalidImageName",
        ),
        (
            "CreateContainerConfigError",
            "configmap \"settings\" not found",
            "CreateContainerConfigError",
        ),
        (
            "ImagePullBackOff",
            "Back-off pulling image \"bash:5.3\"",
            "ImagePullBackOff",
        ),
    ] {
        let waiting = serde_json::json!({"reason": reason, "message": message});
        let status = format!(
            "{{startTime: '2026-01-01T00:00:00Z', containerStatuses: [{{name: at, image: 'bash:5.3', imageID: '', ready: false, restartCount: 0, state: {{waiting: {waiting}}}}}]}}"
        );
        set_status(&kubectl, "x-pod", &status).await;
        kubectl.until_field("at/x", "{.status.reason}", shown).await;
        assert_eq!(kubectl.field("at/x", MESSAGE).await, message);
        assert_eq!(kubectl.field("at/x", "{.status.phase}").await, "RUNNING");
    }
    kubectl
        .run("annotate pod/x-pod kwok.my-operator.dev/phase-")
        .await
        .good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    assert_eq!(kubectl.field("at/x", "{.status.reason}").await, "Completed");
}

#[tokio::test]
async fn a_running_pod_has_nothing_to_wait_for() {
    let kubectl = kubectl("not-waiting").await;
    kubectl.apply(&at("x", "", HOLD)).await.good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    kubectl
        .until_field("at/x", "{.status.phase}", "RUNNING")
        .await;
    kubectl.absent("at/x", "{.status.reason}").await;
    kubectl.absent("at/x", MESSAGE).await;
}
