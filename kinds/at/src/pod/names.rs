//! The names by which the operator knows the pod of an At, and its own labels, annotations and gate.

/// The container that runs the command.
pub(crate) const CONTAINER: &str = "at";
/// Suffix of the pod's name after that of the At. The pod's name is fixed, and so acts as a lock:
/// there is never more than one pod of an At.
pub(crate) const POD_SUFFIX: &str = "-pod";
/// Prefix of the operator's own labels, annotations and gates.
pub(crate) const OWN_PREFIX: &str = "cnat.programming-kubernetes.info/";
/// The label with the UID of the At. A name can be too long for a label.
pub(crate) const AT_UID: &str = "cnat.programming-kubernetes.info/at-uid";
/// The annotation with the hash of what the pod was built from.
pub(crate) const HASH: &str = "cnat.programming-kubernetes.info/spec-hash";
/// The scheduling gate that every pod is created with. No pod starts before it is removed (Kubernetes' KEP-3521).
pub(crate) const GATE: &str = "cnat.programming-kubernetes.info/armed";

/// The name of the pod of an At.
pub(crate) fn pod_name(at: &str) -> String {
    format!("{at}{POD_SUFFIX}")
}
