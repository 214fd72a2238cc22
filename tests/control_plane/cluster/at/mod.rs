//! At on a real API server: once, or it says why not. One file per topic.

mod defects;
mod deletion;
mod hindrances;
mod protocol;
mod results;
mod schedules;
mod spec;
mod states;
mod story;
mod truth;

use crate::harness::Kubectl;
use crate::harness::pods::Recorder;

/// Why the command was started, or what keeps it from starting.
const STARTED_REASON: &str = "{.status.conditions[?(@.type=='Started')].reason}";

const UID: &str = "{.metadata.uid}";
const GATES: &str = "{.spec.schedulingGates[*].name}";
const GATE: &str = "cnat.programming-kubernetes.info/armed";

/// The fake kubelet lets a pod with this annotation run without end.
const HOLD: &str = "kwok.my-operator.dev/exit-code: hold";

/// An At that is due now, with fields of the spec and annotations of its pod, from which the
/// fake kubelet knows how to end it.
fn at(name: &str, spec: &str, annotations: &str) -> String {
    at_when("now", name, spec, annotations)
}

/// The same with another schedule.
pub(crate) fn at_when(schedule: &str, name: &str, spec: &str, annotations: &str) -> String {
    format!(
        r"
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {{name: {name}}}
spec:
  schedule: '{schedule}'
  command: echo YAY
  template: {{metadata: {{annotations: {{{annotations}}}}}}}
  {spec}
"
    )
}

/// An At with that spec and nothing else.
fn at_with(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {name}}}, spec: {spec}}}"
    )
}

/// A time that many seconds from now, as a schedule.
fn in_seconds(seconds: i64) -> String {
    let time = chrono::Utc::now() + chrono::TimeDelta::seconds(seconds);
    time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// Merges a status into a pod's, as a kubelet would.
async fn set_status(kubectl: &Kubectl, pod: &str, status: &str) {
    kubectl.set_status(&format!("pod/{pod}"), status).await;
}

/// A record of all pods in the namespace from now on.
async fn record(kubectl: &Kubectl) -> Recorder {
    Recorder::start(kubectl.cluster.client().await.unwrap(), &kubectl.namespace).await
}

/// Shows that the operator is past whatever happened before, or was due before: it runs another At.
async fn witness(kubectl: &Kubectl, name: &str, schedule: &str) {
    kubectl.apply(&at_when(schedule, name, "", "")).await.good();
    kubectl
        .until_field(&format!("at/{name}"), "{.status.phase}", "DONE")
        .await;
}

/// Waits for a pod of that name which waits for our gate; returns its UID.
async fn gated(kubectl: &Kubectl, name: &str) -> String {
    kubectl
        .until_field(&format!("pod/{name}"), GATES, GATE)
        .await;
    kubectl.field(&format!("pod/{name}"), UID).await
}

/// Gives the pod `x-pod` a finalizer, so that it stays while it is being deleted, or takes it away.
async fn hold_pod(kubectl: &Kubectl, held: bool) {
    let list = if held {
        "[\"example.com/hold\"]"
    } else {
        "null"
    };
    let patch = format!("{{\"metadata\":{{\"finalizers\":{list}}}}}");
    kubectl
        .run(&format!("patch pod/x-pod --type=merge -p {patch}"))
        .await
        .good();
}
