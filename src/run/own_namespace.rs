//! The namespace of the operator's own objects.

use crate::manifests::NAMESPACE;

/// The file in which the kubelet writes the pod's namespace.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The pod's own namespace, unless a flag says otherwise.
pub fn own_namespace(flag: Option<&str>) -> String {
    flag.map(str::to_owned)
        .or_else(|| std::fs::read_to_string(POD_NAMESPACE).ok())
        .map(|namespace| namespace.trim().to_owned())
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| NAMESPACE.to_owned())
}
