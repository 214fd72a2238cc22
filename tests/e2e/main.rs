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

use my_operator_harness as harness;

mod alerts;
mod at;
mod chart;
mod demo;
mod evicted;
mod files;
mod follow;
mod footprint;
mod images;
mod ip_families;
mod leftovers;
mod load;
mod memcached;
mod mydaemonset;
mod node;
mod roll;
mod runbook;
mod sample_kinds;
mod upgrade;
mod walk;

use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::time::Instant;

use futures::FutureExt as _;
use serde_json::Value;

use harness::{Kubectl, NAMESPACE, Said, checkout};
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
///
/// # Panics
///
/// Panics if the installation failed. It is tried once: the first test shows the cause, and the others fail at once.
async fn cluster() -> &'static Cluster {
    static INSTALLED: OnceCell<Option<&Cluster>> = OnceCell::const_new();
    // A cell whose initialization panics stays empty, and the next test would install again.
    let install = || async { AssertUnwindSafe(install()).catch_unwind().await.ok() };
    let installed = INSTALLED.get_or_init(install).await;
    installed.expect("the operator is not installed; the first test that failed shows why")
}

async fn install() -> &'static Cluster {
    let step = Step::start();
    let cluster = my_operator_cluster::shared(Options::with_real_node(NODE)).await;
    step.done("the cluster was started");
    for image in images::all() {
        cluster.load_image(&image).await.unwrap();
    }
    step.done("the images were loaded");
    deploy(cluster, IMAGE).await.good();
    step.done("the operator was installed");
    cluster
}

/// Prints when each step of a long test was done.
struct Step(Instant);

impl Step {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn done(&self, what: &str) {
        println!("{what} after {:.1} s", self.0.elapsed().as_secs_f64());
    }
}

/// kubectl in a fresh namespace of that name, with the operator installed.
async fn kubectl(name: &str) -> Kubectl {
    let cluster = cluster().await;
    Kubectl::fresh(cluster, name).await
}

/// kubectl in the operator's namespace.
async fn own() -> Kubectl {
    Kubectl::new(cluster().await, NAMESPACE)
}

/// `make deploy` with that image; returns when the operator serves and the API server reaches it.
async fn deploy(cluster: &Cluster, image: &str) -> Said {
    make(cluster, &["deploy", &format!("IMG={image}")]).await
}

/// The same with the kinds that are off by default.
async fn deploy_every_kind(cluster: &Cluster) -> Said {
    let image = format!("IMG={IMAGE}");
    make(cluster, &["deploy", &image, "COMPONENTS=sample-kinds"]).await
}

/// `make` with these arguments, on that cluster.
async fn make(cluster: &Cluster, args: &[&str]) -> Said {
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
    harness::run(&mut make, "").await
}

/// The pods with these labels (`a=b,c=d`), or all.
async fn pods(kubectl: &Kubectl, labels: &str) -> Vec<Value> {
    with_labels(&kubectl.object("pods").await, labels)
}

fn with_labels(list: &Value, labels: &str) -> Vec<Value> {
    let has = |pod: &Value, label: &str| {
        let (key, value) = label.split_once('=').unwrap();
        pod["metadata"]["labels"][key] == value
    };
    let labels: Vec<&str> = labels
        .split(',')
        .filter(|label| !label.is_empty())
        .collect();
    let pods = list["items"].as_array().unwrap().iter();
    let pods = pods.filter(|pod| labels.iter().all(|label| has(pod, label)));
    pods.cloned().collect()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The names of the pods with these labels that are ready and not ending.
async fn ready_pods(kubectl: &Kubectl, labels: &str) -> Vec<String> {
    let pods = pods(kubectl, labels).await;
    pods.iter().filter(|pod| is_ready(pod)).map(name).collect()
}

/// Waits for a ready pod and returns its name.
async fn ready_pod(kubectl: &Kubectl) -> String {
    let ready = |list: Option<&Value>| {
        list?["items"]
            .as_array()?
            .iter()
            .find(|pod| is_ready(pod))
            .map(name)
    };
    kubectl
        .until("pods", "to have one that is ready", ready)
        .await
}

/// Waits until every replica is ready and no pod of an earlier revision serves.
async fn until_rolled_out(own: &Kubectl) {
    own.run(&format!("rollout status {DEPLOYMENT} --timeout=120s"))
        .await
        .good();
}

/// Waits until terminating pods of the operator are gone.
async fn until_alone(own: &Kubectl) {
    let replicas = own.field(DEPLOYMENT, "{.spec.replicas}").await;
    until_pods(own, &replicas).await;
}

/// Waits until the operator has that many pods, those that are ending included.
async fn until_pods(own: &Kubectl, count: &str) {
    let what = format!("to be {count} of the operator");
    let counted =
        |list: Option<&Value>| (with_labels(list?, PODS).len().to_string() == count).then_some(());
    own.until("pods", &what, counted).await;
}
