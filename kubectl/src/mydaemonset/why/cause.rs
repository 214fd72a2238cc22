//! What a person can do about each cause.

use chrono::{DateTime, Utc};
pub(super) use my_operator_mydaemonset::cause::Cause;
use serde::Serialize;

/// A message of the cluster is cut after so many characters.
const MAX_MESSAGE: usize = 1024;

/// What a person can do. `NAMESPACE`, `NAME`, `NODE` and `POD` stand for those concerned.
pub(super) const ADVICE: &[(Cause, &str)] = &[
    (
        Cause::NodeGone,
        "nothing: its pods are deleted once it has been gone for 40 s",
    ),
    (
        Cause::NodeDeleting,
        "nothing, if it is to go; else see what deletes it: kubectl describe node NODE",
    ),
    (
        Cause::NodeNotReady,
        "see what its kubelet reports: kubectl describe node NODE",
    ),
    (
        Cause::Cordoned,
        "kubectl uncordon NODE, when its maintenance is over",
    ),
    (
        Cause::Maintenance,
        "nothing, while that goes on; if it is over, set the condition to False: kubectl edit node NODE --subresource=status",
    ),
    (
        Cause::TaintNotTolerated,
        "take the taint away, or add a toleration to spec.template",
    ),
    (
        Cause::NotEligible,
        "nothing, if no pod belongs there; else label NODE, or change spec.template",
    ),
    (Cause::ObjectDeleting, "nothing: its pods go with NAME"),
    (
        Cause::Migrating,
        "run the kubectl mydaemonset migrate again that set the annotation",
    ),
    (Cause::InvalidSpec, "correct the spec"),
    (
        Cause::Unobserved,
        "wait a moment; if it stays so, see whether the operator runs: my-operator check",
    ),
    (
        Cause::RevisionNotStored,
        "see kubectl describe mds NAME -n NAMESPACE",
    ),
    (
        Cause::QuotaExceeded,
        "raise the quota, or lower what the pods request: kubectl describe quota -n NAMESPACE",
    ),
    (
        Cause::WebhookRefused,
        "change spec.template so that the webhook accepts it, or repair the webhook",
    ),
    (
        Cause::PolicyRefused,
        "change spec.template so that the policy accepts it, or the policy",
    ),
    (
        Cause::PodRefused,
        "see kubectl describe mds NAME -n NAMESPACE",
    ),
    (
        Cause::DeleteRefused,
        "change what rejects the deletion, or delete the pod: kubectl delete pod POD -n NAMESPACE",
    ),
    (
        Cause::AutoPaused,
        "kubectl mydaemonset undo NAME -n NAMESPACE; or, if the revision is good, resume",
    ),
    (
        Cause::RolledBack,
        "change the spec; or, if the revision is good, kubectl mydaemonset resume NAME -n NAMESPACE",
    ),
    (
        Cause::RollingBack,
        "nothing: the pods go back; then change the spec",
    ),
    (
        Cause::NoEligibleNodes,
        "correct the node selector, affinity or tolerations; or kubectl mydaemonset resume NAME -n NAMESPACE",
    ),
    (
        Cause::Frozen,
        "when it may go on: kubectl mydaemonset thaw NAME -n NAMESPACE; if the message names the namespace, remove its annotation",
    ),
    (
        Cause::Canary,
        "nothing: it goes on by itself; or kubectl mydaemonset approve NAME -n NAMESPACE",
    ),
    (
        Cause::WaitingForApproval,
        "kubectl mydaemonset approve NAME -n NAMESPACE, if the revision is good",
    ),
    (
        Cause::Paused,
        "kubectl mydaemonset resume NAME -n NAMESPACE",
    ),
    (
        Cause::OutsideWindow,
        "nothing: it goes on when the window opens; or change rollingUpdate.windows",
    ),
    (
        Cause::OnDelete,
        "kubectl delete pod POD -n NAMESPACE, when it may be replaced",
    ),
    (
        Cause::Partition,
        "kubectl mydaemonset partition NAME 0 -n NAMESPACE, when it may have the revision",
    ),
    (
        Cause::Domain,
        "nothing; to see what that domain waits for: kubectl mydaemonset why NAME -n NAMESPACE",
    ),
    (
        Cause::WaitingTurn,
        "nothing; to see what a node waits for: kubectl mydaemonset why NAME THAT-NODE -n NAMESPACE",
    ),
    (Cause::Terminating, "nothing: it is ending"),
    (
        Cause::HeldByFinalizer,
        "see why the controller of the finalizer does not remove it",
    ),
    (
        Cause::NotEnding,
        "see the kubelet of NODE; only if the machine is off: kubectl delete pod POD -n NAMESPACE --force",
    ),
    (
        Cause::Evicted,
        "nothing, if it was a drain; else see the pressure: kubectl describe node NODE",
    ),
    (
        Cause::ImagePull,
        "correct the image or its pull secret, or go back: kubectl mydaemonset undo NAME -n NAMESPACE",
    ),
    (
        Cause::ContainerConfig,
        "create what is missing, or correct spec.template",
    ),
    (
        Cause::CrashLoop,
        "see why it ends: kubectl logs POD -n NAMESPACE --all-containers --previous",
    ),
    (
        Cause::ContainerStart,
        "correct the container's command or settings in spec.template",
    ),
    (
        Cause::VolumeMount,
        "create what the volume needs, or correct it in spec.template: kubectl describe pod POD -n NAMESPACE",
    ),
    (
        Cause::PodSandbox,
        "see the network plugin and the container runtime of NODE: kubectl describe pod POD -n NAMESPACE",
    ),
    (
        Cause::HostPort,
        "free the port on NODE, or take another: see kubectl get pods -A --field-selector spec.nodeName=NODE",
    ),
    (
        Cause::Resources,
        "free some on NODE, or lower the requests: kubectl describe node NODE",
    ),
    (
        Cause::KubeletRefused,
        "change what its kubelet names: kubectl describe pod POD -n NAMESPACE",
    ),
    (
        Cause::InitContainer,
        "wait, or see what it does: kubectl logs POD -n NAMESPACE --all-containers",
    ),
    (
        Cause::StartupProbe,
        "wait, or see what it does: kubectl logs POD -n NAMESPACE --all-containers",
    ),
    (
        Cause::ReadinessProbe,
        "see why it does not answer: kubectl logs POD -n NAMESPACE --all-containers",
    ),
    (
        Cause::ReadinessGate,
        "see the controller that sets the condition: kubectl describe pod POD -n NAMESPACE",
    ),
    (
        Cause::MinReady,
        "wait: it must stay Ready for spec.minReadySeconds",
    ),
    (
        Cause::Starting,
        "wait, or see its Events: kubectl describe pod POD -n NAMESPACE",
    ),
    (
        Cause::NotStarted,
        "wait a moment; if it stays so, see the kubelet of NODE",
    ),
    (
        Cause::Undetermined,
        "see kubectl describe mds NAME -n NAMESPACE, the pods and Events of NODE, and the operator's log",
    ),
];

/// Why a node is as it is, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reason {
    pub(super) cause: Cause,
    /// Since when, if a condition says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<DateTime<Utc>>,
    /// The pod that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<String>,
    /// The words of the kubelet, the API server or the operator; empty if there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

impl Reason {
    pub(super) fn new(cause: Cause, message: &str) -> Self {
        Self {
            cause,
            since: None,
            pod: None,
            message: message.chars().take(MAX_MESSAGE).collect(),
        }
    }

    /// The same with its instant.
    #[must_use]
    pub(super) fn since(self, since: Option<DateTime<Utc>>) -> Self {
        Self { since, ..self }
    }

    /// The same about a pod.
    #[must_use]
    pub(super) fn of_pod(self, pod: &str) -> Self {
        Self {
            pod: Some(pod.to_owned()),
            ..self
        }
    }

    /// What a person can do about it, in a sentence.
    pub(super) fn advice(&self, namespace: &str, name: &str, node: &str) -> String {
        let advice = ADVICE.iter().find(|(cause, _)| *cause == self.cause);
        let advice = advice.map_or("", |(_, advice)| *advice);
        // No name has upper case letters, so none of them is taken for another.
        advice
            .replace("THAT-NODE", "<node>")
            .replace("NAMESPACE", namespace)
            .replace("NAME", name)
            .replace("NODE", node)
            .replace("POD", self.pod.as_deref().unwrap_or("<pod>"))
    }
}
