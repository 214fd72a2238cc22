//! The files and flags of a real node's programs.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::names::{CONTAINERD, PAUSE, directory, socket};
use super::namespaces::Place;
use crate::error::Error;
use my_operator_programs::Programs;
use my_operator_programs::needs::PATH;

/// The range of the pods' addresses. They are not visible outside the node's network.
const PODS: &str = "10.244.0.0/24";

/// Writes the configuration of containerd, its network, kubelet and kube-proxy. `programs` holds those that containerd
/// calls.
pub(crate) fn write(cluster: &Path, programs: &Path) -> Result<(), Error> {
    let node = directory(cluster);
    let network = node.join("cni");
    fs::create_dir_all(&network).map_err(Error::file("make", network.clone()))?;
    let files = [
        (node.join("containerd.toml"), containerd(cluster, programs)),
        (
            network.join("10-pods.conflist"),
            pod_network(&node).to_string(),
        ),
        (node.join("kubelet.json"), kubelet(cluster).to_string()),
        (
            node.join("kube-proxy.json"),
            kube_proxy(cluster).to_string(),
        ),
        // Pods are given no name server: there is none.
        (node.join("resolv.conf"), String::new()),
    ];
    for (path, text) in files {
        fs::write(&path, text).map_err(Error::file("write", path))?;
    }
    Ok(())
}

/// The command line of a component of a real node.
pub(crate) fn command(
    component: &str,
    place: Place,
    programs: &Programs,
    cluster: &Path,
    name: &str,
) -> Command {
    let node = directory(cluster);
    let file = |name: &str| node.join(name).display().to_string();
    let kubeconfig = cluster.join("kubeconfig").display().to_string();
    let args = match component {
        CONTAINERD => vec![format!("--config={}", file("containerd.toml"))],
        "kubelet" => vec![
            format!("--config={}", file("kubelet.json")),
            format!("--kubeconfig={kubeconfig}"),
            format!("--root-dir={}", file("kubelet")),
            format!("--cert-dir={}", file("kubelet-certs")),
            format!("--hostname-override={name}"),
            format!("--node-ip={}", place.address),
        ],
        "kube-proxy" => vec![
            format!("--config={}", file("kube-proxy.json")),
            format!("--hostname-override={name}"),
        ],
        _ => Vec::new(),
    };
    let mut command = place.inside(&programs.path(component));
    let beside = programs.node_directory().map(Path::display);
    let path = beside.map_or_else(|| PATH.to_owned(), |beside| format!("{beside}:{PATH}"));
    command
        .env_clear()
        .env("HOME", cluster)
        // containerd looks for its shim there.
        .env("PATH", path)
        .current_dir(cluster)
        .args(args);
    command
}

fn containerd(cluster: &Path, programs: &Path) -> String {
    let node = directory(cluster);
    let text = |path: &Path| json!(path.display().to_string()).to_string();
    format!(
        r#"version = 3
root = {root}
state = "/run/containerd"
[grpc]
  address = {socket}
[ttrpc]
  address = {ttrpc}
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  # Not every root has CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{programs}]
    conf_dir = {network}
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = {runc}
"#,
        root = text(&node.join("containerd")),
        socket = text(&socket(cluster)),
        ttrpc = text(&node.join("containerd-ttrpc.sock")),
        programs = text(programs),
        network = text(&node.join("cni")),
        runc = text(&programs.join("runc")),
    )
}

fn pod_network(node: &Path) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": node.join("addresses"),
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

fn kubelet(cluster: &Path) -> Value {
    let node = directory(cluster);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", socket(cluster).display()),
        "failCgroupV1": false,
        "failSwapOn": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        // Only this node is in the network.
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        // A full disk is the machine's business.
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": node.join("pods"),
        "resolvConf": node.join("resolv.conf"),
        // Changed Secrets are in their volumes after seconds, not a minute.
        "configMapAndSecretChangeDetectionStrategy": "Watch",
        "syncFrequency": "2s",
        "nodeStatusUpdateFrequency": "5s",
        "shutdownGracePeriod": "0s",
        "logging": {"verbosity": 1},
    })
}

fn kube_proxy(cluster: &Path) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": cluster.join("kubeconfig")},
        "clusterCIDR": PODS,
        // These are the machine's, not the network namespace's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "0s"},
    })
}
