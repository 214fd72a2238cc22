//! At on a real API server: once, or it says why not. One file per topic.

mod deletion;
mod hindrances;
mod results;
mod schedules;
mod spec;

/// Why the command was started, or what keeps it from starting.
const STARTED_REASON: &str = "{.status.conditions[?(@.type=='Started')].reason}";

/// The fake kubelet lets a pod with this annotation run without end.
const HOLD: &str = "kwok.my-operator.dev/exit-code: hold";

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
