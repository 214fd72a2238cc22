//! An At in each state that GitOps tools judge (`contrib/argocd`).

use super::{HOLD, STARTED_REASON, at, at_when, at_with};
use crate::cluster::kubectl;
use crate::states::{AT, same};

/// No test waits for it.
const FAR: &str = "2099-01-01T00:00:00Z";
const PHASE: &str = "{.status.phase}";

#[tokio::test]
async fn argo_cd_is_shown_an_at_as_it_is_in_each_state() {
    let kubectl = kubectl("at-states").await;
    let foreign = "{apiVersion: v1, kind: Pod, metadata: {name: blocked-pod}, spec: {schedulingGates: [{name: example.com/wait}], containers: [{name: c, image: 'i:1'}]}}";
    kubectl.apply(foreign).await.good();
    let twice = "{spec: {volumes: [{name: v, emptyDir: {}}, {name: v, emptyDir: {}}]}}";
    let refused = format!("{{schedule: '{FAR}', command: echo YAY, template: {twice}}}");
    let fails = "kwok.my-operator.dev/exit-code: '3', kwok.my-operator.dev/message: no such file";
    let (long_ago, deadline) = ("2026-01-01T00:00:00Z", "startingDeadlineSeconds: 60");
    let suspend = "suspend: true";
    for (name, object, path, value) in [
        (
            "pending",
            at_when(FAR, "pending", "", ""),
            "{.status.dryRunGeneration}",
            "1",
        ),
        (
            "suspended",
            at_when(FAR, "suspended", suspend, ""),
            STARTED_REASON,
            "Suspended",
        ),
        (
            "refused",
            at_with("refused", &refused),
            "{.status.reason}",
            "PodRefused",
        ),
        (
            "blocked",
            at("blocked", "", ""),
            STARTED_REASON,
            "NameConflict",
        ),
        (
            "running",
            at("running", "", HOLD),
            STARTED_REASON,
            "Released",
        ),
        (
            "succeeded",
            at("succeeded", "", "kwok.my-operator.dev/message: ''"),
            PHASE,
            "DONE",
        ),
        ("failed", at("failed", "", fails), PHASE, "DONE"),
        (
            "missed",
            at_when(long_ago, "missed", deadline, ""),
            PHASE,
            "DONE",
        ),
        (
            "unknown",
            at("unknown", "", HOLD),
            STARTED_REASON,
            "Released",
        ),
    ] {
        kubectl.with("create -f -", &object).await.good();
        let object = format!("at/{name}");
        kubectl.until_field(&object, path, value).await;
        if name == "unknown" {
            let delete = "delete pod/unknown-pod --grace-period=0 --force";
            kubectl.run(delete).await.good();
            kubectl.until_field(&object, PHASE, "DONE").await;
        }
        same(&kubectl.object(&object).await, AT, name);
    }
    // The answer to a change shows the object before the operator has seen it.
    let patch = "patch at/pending --type=merge -p {\"spec\":{\"command\":\"date\"}} -o json";
    let changed = kubectl.run(patch).await.good();
    same(&serde_json::from_str(&changed).unwrap(), AT, "changed");
}
