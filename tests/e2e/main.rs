//! The operator as its users have it: in containers of its image, installed by `make deploy` on a
//! cluster with a real node. `make e2e` runs this; it needs root, so `make test` does not.
//!
//! All tests share one cluster and one installation, and change both: they run one after another, in
//! the order of their names, and each leaves the operator serving.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

#[path = "../harness/mod.rs"]
mod harness;

mod at;
mod evicted;
mod files;
mod footprint;
mod images;
mod leftovers;
mod load;
mod memcached;
mod mydaemonset;
mod node;
mod roll;
mod upgrade;
mod walk;

use std::process::Command;

use serde_json::Value;

use harness::{Kubectl, NAMESPACE, Said, checkout, wait_for};
use my_operator_cluster::{Cluster, Options};
use tokio::sync::OnceCell;

/// The real node.
const NODE: &str = "node-1";
/// The operator's image.
const IMAGE: &str = "my-operator:e2e";
/// The operator's Deployment.
const DEPLOYMENT: &str = "deployment/my-operator-controller-manager";
/// Its pods.
const PODS: &str = "control-plane=controller-manager";

/// The cluster with the operator installed.
async fn cluster() -> &'static Cluster {
    static INSTALLED: OnceCell<&Cluster> = OnceCell::const_new();
    INSTALLED
        .get_or_init(|| async {
            let cluster = my_operator_cluster::shared(Options::with_real_node(NODE)).await;
            for image in images::all() {
                cluster.load_image(&image).await.unwrap();
            }
            deploy(cluster, IMAGE).good();
            until_reached(cluster).await;
            cluster
        })
        .await
}

/// kubectl in a fresh namespace of that name, with the operator installed.
async fn kubectl(name: &str) -> Kubectl {
    let cluster = cluster().await;
    let namespace = cluster.namespace(name).await.unwrap();
    Kubectl::new(cluster, &namespace)
}

/// kubectl in the operator's namespace.
async fn own() -> Kubectl {
    Kubectl::new(cluster().await, NAMESPACE)
}

/// `make deploy` with that image; returns when the operator serves.
fn deploy(cluster: &Cluster, image: &str) -> Said {
    make(cluster, &["deploy", &format!("IMG={image}")])
}

/// The same with the kinds that are off by default.
fn deploy_every_kind(cluster: &Cluster) -> Said {
    let image = format!("IMG={IMAGE}");
    make(cluster, &["deploy", &image, "COMPONENTS=sample-kinds"])
}

/// Waits until the API server reaches the webhooks through their Service: a busy node takes a moment to
/// hear of the pods behind it.
async fn until_reached(cluster: &'static Cluster) {
    let kubectl = Kubectl::new(cluster, "default");
    let create = "create --dry-run=server -f config/samples/cnat_v1alpha1_at.yaml";
    wait_for("the webhooks to be reached", || {
        kubectl.run(create).ok.then_some(())
    })
    .await;
}

/// `make` with these arguments, on that cluster.
fn make(cluster: &Cluster, args: &[&str]) -> Said {
    let kubectl = cluster.kubectl();
    let mut make = Command::new("make");
    make.current_dir(checkout())
        .arg("--no-print-directory")
        .args(args)
        .arg(format!(
            "KUBECTL={}",
            kubectl.get_program().to_string_lossy()
        ));
    for (name, value) in kubectl.get_envs() {
        make.env(name, value.unwrap_or_default());
    }
    harness::run(&mut make, "")
}

/// The pods with these labels, or all.
fn pods(kubectl: &Kubectl, labels: &str) -> Vec<Value> {
    let said = kubectl.run(&format!("get pods --selector={labels} -o json"));
    let mut list: Value = serde_json::from_str(&said.good()).unwrap();
    match list["items"].take() {
        Value::Array(pods) => pods,
        _ => Vec::new(),
    }
}

/// The names of the pods with these labels that are ready and not ending.
fn ready_pods(kubectl: &Kubectl, labels: &str) -> Vec<String> {
    let ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        pod["metadata"]["deletionTimestamp"].is_null()
            && conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let pods = pods(kubectl, labels);
    let names = pods.iter().filter(|pod| ready(pod));
    names
        .filter_map(|pod| pod["metadata"]["name"].as_str())
        .map(str::to_owned)
        .collect()
}

/// Waits until every replica is ready and no pod of an earlier revision serves.
fn until_rolled_out(own: &Kubectl) {
    own.run(&format!("rollout status {DEPLOYMENT} --timeout=120s"))
        .good();
}

/// Waits until pods of the operator that were told to end are gone.
async fn until_alone(own: &Kubectl) {
    let replicas = own.field(DEPLOYMENT, "{.spec.replicas}");
    wait_for("the operator's earlier pods to be gone", || {
        (pods(own, PODS).len().to_string() == replicas).then_some(())
    })
    .await;
}
