//! What must be in a cluster before the operator starts: CRDs and rights. And who reads it.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use my_operator::kinds::{Kind, REGISTRY};
use my_operator_cluster::Cluster;

use crate::Kubectl;

/// The ServiceAccount whose rights the operator has.
pub const SERVICE_ACCOUNT: &str = "my-operator-controller-manager";
/// The operator's namespace.
pub const NAMESPACE: &str = "my-operator-system";

/// A client of the administrator that tries nothing twice, as [`Cluster::client`] does after a 429,
/// 503 or 504: what fails is to be seen.
pub async fn client(cluster: &Cluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.unwrap();
    config.default_retry = false;
    // A proxy of the environment leads nowhere from the loopback interface.
    config.proxy_url = None;
    Client::try_from(config).unwrap()
}

/// Installs the CRDs and the operator's own rights.
pub async fn install(cluster: &'static Cluster) {
    let kubectl = Kubectl::new(cluster, "default");
    kubectl.run("apply -k config/crd").await.good();
    kubectl
        .run("wait --for=condition=Established --timeout=60s crd --all")
        .await
        .good();
    rights(cluster).await;
    restart_controller_manager(cluster).await;
}

/// Installs the CRDs of the kinds that are off by default, and what the operator may do for them: what the
/// component `sample-kinds` adds for `--kinds`. Nothing where there is no such kind.
pub async fn install_sample_kinds(cluster: &'static Cluster) {
    if REGISTRY.iter().all(|kind| kind.by_default) {
        return;
    }
    let kubectl = Kubectl::new(cluster, "default");
    kubectl
        .run("apply -f config/components/sample-kinds/role.yaml")
        .await
        .good();
    kubectl.run("apply -k config/crd/sample-kinds").await.good();
    kubectl
        .run("wait --for=condition=Established --timeout=60s crd --all")
        .await
        .good();
    restart_controller_manager(cluster).await;
}

/// Restarts the controller manager after CRDs were installed. The garbage collector knows the kinds that there are when it
/// starts, and looks for new ones only every 30 s: what waits for it would wait for that.
pub async fn restart_controller_manager(cluster: &Cluster) {
    let name = "kube-controller-manager";
    cluster.stop_component(name).await.unwrap();
    cluster.start_component(name).await.unwrap();
}

/// The flag that turns every kind on.
pub fn every_kind() -> String {
    let names: Vec<&str> = REGISTRY.iter().map(|kind| kind.name).collect();
    format!("--kinds={}", names.join(","))
}

/// Where a sample of a kind lies, below the top of the checkout.
pub fn sample_path(kind: &Kind, file: &str) -> String {
    if kind.by_default {
        format!("config/samples/{file}")
    } else {
        format!("config/samples/sample-kinds/{file}")
    }
}

/// The operator's namespace, and the rights of `config/rbac` there. What `--webhook-url` needs more
/// (to make webhook configurations) is added.
pub async fn rights(cluster: &'static Cluster) {
    let kubectl = Kubectl::new(cluster, NAMESPACE);
    kubectl
        .run(&format!("create namespace {NAMESPACE}"))
        .await
        .good();
    kubectl.run("apply -k config/rbac").await.good();
    kubectl
        .apply(&format!(
            r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: webhook-url}}
rules:
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: webhook-url}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: webhook-url}}
subjects: [{{kind: ServiceAccount, name: {SERVICE_ACCOUNT}, namespace: {NAMESPACE}}}]
"
        ))
        .await
        .good();
}

/// Where the operator gets its rights from: a file and a token of its own for each caller.
pub async fn operator_kubeconfig(cluster: &'static Cluster) -> PathBuf {
    cluster
        .service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
        .await
        .unwrap()
}
