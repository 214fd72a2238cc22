//! The operator where there is no IPv4, and where there are both families, with the listeners that it has by default.
//!
//! Pods of the real node have IPv4 addresses alone, so these tests need none: the control plane, with a fake node, and the
//! operator run in a network namespace, and with them the test itself. It is this executable that each test starts a
//! second time there.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use my_operator_cluster::{Cluster, Options};

use crate::at::until_complete;
use crate::harness::{
    self, Kubectl, NAMESPACE, OwnPlane, SERVICE_ACCOUNT, http_get, operator_program, wait_for,
};

/// `$1` are the families to remove, `$2` is this executable, `$3` the test to run.
const INSIDE: &str = r#"
set -eu
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
for family in $1; do ip "$family" address flush dev lo; done
# For the ServiceAccount's files, whose path cannot be chosen.
mount -t tmpfs tmpfs /run
MY_OPERATOR_TEST_INSIDE=1 exec "$2" --exact --nocapture "$3"
"#;
/// The full name of a test of this file.
pub(crate) const WITHOUT_IPV4: &str =
    "ip_families::the_operator_serves_and_reconciles_without_ipv4";
const SERVICE_ACCOUNT_FILES: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const GOOD: &str = "config/samples/apps_v1beta1_mydaemonset.yaml";
const BAD: &str = "config/samples/bad/apps_v1beta1_mydaemonset.yaml";

/// Whether this process runs in the namespaces that [`run_inside`] makes.
fn is_inside() -> bool {
    std::env::var_os("MY_OPERATOR_TEST_INSIDE").is_some()
}

/// Runs a test of this file in namespaces of its own, which end with it.
async fn run_inside(without: &str, test: &str) {
    // It is killed with this test, and its control plane with it.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .args(["unshare", "--net", "--mount", "--"])
        .args(["sh", "-c", INSIDE, "sh", without])
        .arg(std::env::current_exe().unwrap())
        .arg(format!("ip_families::{test}"));
    let output = harness::run(&mut command, "").await.good();
    // A name that no test has is a success, too.
    assert!(output.contains("1 passed"), "{output}");
}

#[tokio::test]
async fn the_operator_serves_and_reconciles_without_ipv4() {
    run_inside("-4", "inside_without_ipv4").await;
}

/// Nothing by itself: what the first test starts this program again for.
#[tokio::test]
async fn inside_without_ipv4() {
    if !is_inside() {
        return;
    }
    let bound = TcpListener::bind(("127.0.0.1", 0));
    assert!(bound.is_err(), "this network has IPv4");
    let options = Options {
        ipv6: true,
        ..Options::with_nodes(&["node-1"])
    };
    let plane = OwnPlane::start(options).await;
    harness::install(plane.cluster).await;
    serves(plane.cluster, "[::1]", &["[::1]"]).await;
    plane.stop().await;
}

#[tokio::test]
async fn the_operator_serves_both_families_at_once() {
    run_inside("", "inside_dual_stack").await;
}

/// Nothing by itself: what the second test starts this program again for.
#[tokio::test]
async fn inside_dual_stack() {
    if !is_inside() {
        return;
    }
    let both = ["127.0.0.1", "[::1]"];
    let plane = OwnPlane::start(Options::with_nodes(&["node-1"])).await;
    harness::install(plane.cluster).await;
    for host in both {
        serves(plane.cluster, host, &both).await;
    }
    plane.stop().await;
}

/// Starts the operator as in a pod. Its webhooks are called at one host; probes and metrics are answered at several.
async fn serves(cluster: &'static Cluster, webhooks: &str, hosts: &[&str]) {
    let files = Path::new(SERVICE_ACCOUNT_FILES);
    std::fs::create_dir_all(files).unwrap();
    let own = Kubectl::new(cluster, NAMESPACE);
    let token = own.run(&format!("create token {SERVICE_ACCOUNT}")).await;
    let authority = std::fs::read_to_string(cluster.directory().join("ca.crt")).unwrap();
    for (name, text) in [
        ("token", token.good().trim()),
        ("ca.crt", &authority),
        ("namespace", NAMESPACE),
    ] {
        std::fs::write(files.join(name), text).unwrap();
    }
    let server = cluster.server().strip_prefix("https://").unwrap();
    let (host, port) = server.rsplit_once(':').unwrap();
    let mut command = Command::new(operator_program());
    command
        .arg("run")
        .arg(format!("--webhook-url=https://{webhooks}:9443"))
        .args(["--metrics-secure=false", "--shutdown-delay=0s"])
        .env_remove("KUBECONFIG")
        .env("HOME", files)
        .env(
            "KUBERNETES_SERVICE_HOST",
            host.trim_matches(['[', ']'].as_slice()),
        )
        .env("KUBERNETES_SERVICE_PORT", port);
    let operator = cluster.spawn("operator", &mut command).unwrap();
    for host in hosts {
        wait_for(&format!("an answer to probes at {host}"), async || {
            assert!(operator.is_running(), "{}", operator.log_tail(20));
            let (status, _) = http_get(&format!("{host}:8081"), "/readyz")?;
            (status == 200).then_some(())
        })
        .await;
        let metrics = http_get(&format!("{host}:8443"), "/metrics");
        assert_eq!(metrics.map(|(status, _)| status), Some(200), "{host}");
    }

    let kubectl = Kubectl::fresh(cluster, "family").await;
    let default = ("{.spec.revisionHistoryLimit}", "10");
    kubectl.until_webhooks_are_called(BAD, GOOD, default).await;
    let at = "config/samples/cnat_v1alpha1_at.yaml";
    kubectl.run(&format!("apply -f {at}")).await.good();
    until_complete(&kubectl, "example-at").await;
    operator.stop(Duration::from_secs(10)).await;
}
