//! What the parts of a real node are called, and where their files are.

use std::path::{Path, PathBuf};

/// The components of a real node in the order in which they are started.
pub(crate) const COMPONENTS: [&str; 3] = [CONTAINERD, "kubelet", "kube-proxy"];
pub(crate) const CONTAINERD: &str = "containerd";

/// What containerd starts for every pod, to hold its namespaces.
pub(super) const PAUSE: &str = "registry.k8s.io/pause:3.10";

/// Where the files of the node are, in the directory of its cluster.
pub(crate) fn directory(cluster: &Path) -> PathBuf {
    cluster.join("node")
}

/// The socket of containerd.
pub(crate) fn socket(cluster: &Path) -> PathBuf {
    directory(cluster).join("containerd.sock")
}
