//! The closed list of what nodes wait for. The operator counts nodes by it in the status; `kubectl mydaemonset why` says more.
//! First come those of the node, then those of the object, of the roll-out, and of the pod.

use serde::Serialize;

/// Why a node does not have an available pod of the newest revision and no other. The name of a variant is what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Cause {
    /// Its Node is gone.
    NodeGone,
    /// Its Node is being deleted.
    NodeDeleting,
    /// It is not Ready.
    NodeNotReady,
    /// It is cordoned.
    Cordoned,
    /// A condition says that it is being drained, shut down or worked on.
    Maintenance,
    /// It has a taint that the pods do not tolerate.
    TaintNotTolerated,
    /// It does not meet the node selector or the node affinity.
    NotEligible,
    /// The object is being deleted.
    ObjectDeleting,
    /// The pods are changing hands.
    Migrating,
    /// The spec is invalid.
    InvalidSpec,
    /// The operator has not seen the spec.
    Unobserved,
    /// The revision of the spec cannot be stored.
    RevisionNotStored,
    /// A ResourceQuota rejects the pod.
    QuotaExceeded,
    /// An admission webhook rejects it, or does not answer.
    WebhookRefused,
    /// An admission policy rejects it.
    PolicyRefused,
    /// It is rejected or not created for another reason.
    PodRefused,
    /// The old pod cannot be deleted.
    DeleteRefused,
    /// The roll-out stopped by itself.
    AutoPaused,
    /// The revision of the spec failed, and the pods went back to the one before.
    RolledBack,
    /// The same, and the pods still go back.
    RollingBack,
    /// The revision of the spec has no place on any node.
    NoEligibleNodes,
    /// A user has frozen the object or its namespace.
    Frozen,
    /// The revision is tried on canaries, and the status does not name this node among them.
    Canary,
    /// The canaries have soaked, and a user is to approve the revision.
    WaitingForApproval,
    /// The roll-out is paused.
    Paused,
    /// No window is open.
    OutsideWindow,
    /// A pod is replaced when a user deletes it.
    OnDelete,
    /// The partition holds the node.
    Partition,
    /// Another topology domain comes first.
    Domain,
    /// Other nodes take the places of the limit, or it is next.
    WaitingTurn,
    /// The pod is leaving, within its grace period.
    Terminating,
    /// A finalizer keeps the pod that is to leave.
    HeldByFinalizer,
    /// The kubelet has not ended the pod in time.
    NotEnding,
    /// The pod was evicted or preempted, as by a drain.
    Evicted,
    /// No image, yet.
    ImagePull,
    /// A ConfigMap or Secret is missing, or a container's settings contradict each other.
    ContainerConfig,
    /// A container ends again and again, or has ended.
    CrashLoop,
    /// The container runtime cannot start a container.
    ContainerStart,
    /// A volume cannot be mounted.
    VolumeMount,
    /// The pod has no sandbox, which is mostly about its network.
    PodSandbox,
    /// A host port is in use.
    HostPort,
    /// The node has not enough of a resource.
    Resources,
    /// The kubelet does not admit the pod.
    KubeletRefused,
    /// An init container runs.
    InitContainer,
    /// The startup probe has not succeeded.
    StartupProbe,
    /// The readiness probe fails.
    ReadinessProbe,
    /// A readiness gate is not open.
    ReadinessGate,
    /// The pod is Ready, but not for minReadySeconds.
    MinReady,
    /// The pod is starting.
    Starting,
    /// The kubelet has reported nothing of the pod.
    NotStarted,
    /// The cause is not known.
    Undetermined,
}

impl Cause {
    /// Whether it is the node that is in the way.
    pub fn is_of_node(self) -> bool {
        self < Self::ObjectDeleting
    }

    /// Whether it holds the roll-out, so that the node stays as it is.
    pub fn is_hold(self) -> bool {
        self >= Self::AutoPaused && self < Self::WaitingTurn
    }

    /// Whether it is about the pod, or not known.
    pub fn is_of_pod(self) -> bool {
        self > Self::WaitingTurn
    }

    /// The cause behind the word that a kubelet or the operator has for what is wrong with a pod.
    pub fn of_trouble(word: &str) -> Self {
        match word {
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "InvalidImageName"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "SignatureValidationFailed" => Self::ImagePull,
            "CreateContainerConfigError" => Self::ContainerConfig,
            "CreateContainerError"
            | "RunContainerError"
            | "PreCreateHookError"
            | "PreStartHookError"
            | "PostStartHookError" => Self::ContainerStart,
            // The other words that the operator has for it.
            "CrashLoopBackOff" | "Restarting" | "Error" | "OOMKilled" | "Completed" | "Failed" => {
                Self::CrashLoop
            }
            "NodePorts" => Self::HostPort,
            word if word.starts_with("OutOf") => Self::Resources,
            "UnexpectedAdmissionError" | "NodeAffinity" | "TopologyAffinityError" => {
                Self::KubeletRefused
            }
            _ => Self::Undetermined,
        }
    }
}
