//! The Helm chart: a release of another name, in another namespace, from its installation to what it leaves. The nodes
//! are fakes, so the operator's program runs beside the cluster, with the ServiceAccount of the release.

use std::process::Command;
use std::time::Duration;

use my_operator_cluster::{Options, free_ports};

use crate::harness::helm::Release;
use crate::harness::{Kubectl, OwnPlane, operator_program};

const DEPLOYMENT: &str = "deployment/blue-controller-manager";
const VALIDATING: &str = "validatingwebhookconfiguration/blue-validating-webhook-configuration";
const MUTATING: &str = "mutatingwebhookconfiguration/blue-mutating-webhook-configuration";
/// One that the webhooks of the release are not called for.
const AT: &str = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: kept}
spec: {schedule: '2099-01-01T00:00:00Z', command: echo YAY}
";
/// What a release leaves: the CRDs, and what the program made itself.
const EVERYTHING: &str = "get crd,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,\
    validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,roles,rolebindings,\
    serviceaccounts,services,deployments,poddisruptionbudgets -A -l app.kubernetes.io/name=my-operator -o name";

/// Those of the operator in a Deployment.
async fn arguments(kubectl: &Kubectl, deployment: &str) -> Vec<String> {
    let args = "{.spec.template.spec.containers[0].args}";
    serde_json::from_str(&kubectl.field(deployment, args).await).unwrap()
}

#[tokio::test]
async fn a_release_is_installed_upgraded_rolled_back_and_uninstalled() {
    let plane = OwnPlane::start(Options::with_nodes(&["node-1", "node-2"])).await;
    let cluster = plane.cluster;
    let own = Kubectl::new(cluster, "team-ops");
    let elsewhere = Kubectl::new(cluster, "elsewhere");
    for namespace in ["team-a", "elsewhere"] {
        let create = format!("create namespace {namespace}");
        own.run(&create).await.good();
    }
    let blue = Release {
        cluster,
        name: "blue",
        namespace: "team-ops",
    };
    let values =
        "--set fullnameOverride=blue,image.repository=example.com/my-operator,namespaces={team-a}";
    let install = format!("--create-namespace {values}");
    let notes = blue.install(&install).await.good();
    assert!(
        notes.contains("helm test blue --namespace team-ops"),
        "{notes}"
    );
    let established = "wait --for=condition=Established --timeout=60s crd --all";
    own.run(established).await.good();

    // The program finds everything under the names of the release, with the rights of the release alone.
    let account = cluster.service_account_kubeconfig("team-ops", "blue-controller-manager");
    let args = arguments(&own, DEPLOYMENT).await;
    assert!(args.contains(&"--name-prefix=blue".to_owned()), "{args:?}");
    let account = account.await.unwrap();
    let start = |name: &str, args: &[String]| {
        let [port] = free_ports().unwrap();
        let mut command = Command::new(operator_program());
        command
            .args(args)
            .arg(format!("--webhook-bind-address=127.0.0.1:{port}"))
            .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
            .arg("--operator-namespace=team-ops")
            .env("KUBECONFIG", &account);
        cluster.spawn(name, &mut command).unwrap()
    };
    let operator = start("blue", &args);
    let bundle = "{.webhooks[0].clientConfig.caBundle}";
    let validating = own.until_any(VALIDATING, bundle).await;
    let mutating = own.until_any(MUTATING, bundle).await;
    own.until_any("lease/blue", "{.spec.holderIdentity}").await;
    own.field("secret/blue-webhook-ca", "{.type}").await;
    own.run("get lease/my-operator").await.bad();

    elsewhere.apply(AT).await.good();

    // A second release collides with nothing: its CRDs are the first one's.
    let green = Release {
        cluster,
        name: "green",
        namespace: "team-green",
    };
    let second = "--create-namespace --set crds.install=false,namespaces={elsewhere}";
    green.install(second).await.good();
    green.helm("uninstall green").await.good();

    // Neither an upgrade nor a roll-back takes the bundle that the operator wrote.
    let unchanged = async || {
        assert_eq!(own.field(VALIDATING, bundle).await, validating);
        assert_eq!(own.field(MUTATING, bundle).await, mutating);
    };
    let upgrade = format!("{values} --set replicas=3,policy.enable=true,logLevel=debug");
    blue.upgrade(&upgrade).await.good();
    own.until_field(DEPLOYMENT, "{.spec.replicas}", "3").await;
    let policy = "validatingadmissionpolicy/blue-pod-creators";
    own.run(&format!("get {policy}")).await.good();
    unchanged().await;
    blue.helm("rollback blue 1").await.good();
    own.until_field(DEPLOYMENT, "{.spec.replicas}", "2").await;
    own.until_gone(policy).await;
    unchanged().await;

    // Two shards, of which each leads by a Lease of its own. The leader so far keeps its own until it ends.
    let shared = format!("{values} --reset-then-reuse-values --set shards=2");
    blue.upgrade(&shared).await.good();
    let mut shards = Vec::new();
    for (shard, deployment) in [DEPLOYMENT, "deployment/blue-shard-1"].iter().enumerate() {
        let args = arguments(&own, deployment).await;
        shards.push(start(&format!("blue-{shard}"), &args));
    }
    assert!(operator.stop(Duration::from_secs(30)).await.success());
    own.until_field("lease/blue", "{.spec.holderIdentity}", "")
        .await;
    for shard in ["lease/blue-shard-0-of-2", "lease/blue-shard-1-of-2"] {
        own.until_any(shard, "{.spec.holderIdentity}").await;
    }
    drop(shards);
    let uid = elsewhere.field("at/kept", "{.metadata.uid}").await;
    blue.helm("uninstall blue").await.good();
    own.until_gone(DEPLOYMENT).await;
    let left = own.run(EVERYTHING).await.good();
    let mut left: Vec<&str> = left.lines().collect();
    left.sort_unstable();
    assert_eq!(
        left,
        [
            "customresourcedefinition.apiextensions.k8s.io/ats.cnat.programming-kubernetes.info",
            "customresourcedefinition.apiextensions.k8s.io/mydaemonsets.apps.zhongmingmao.io",
        ]
    );
    assert_eq!(elsewhere.field("at/kept", "{.metadata.uid}").await, uid);

    // The same release takes its CRDs back, and takes them along if a value says so.
    blue.install(&format!("{values} --set crds.keep=false"))
        .await
        .good();
    assert_eq!(elsewhere.field("at/kept", "{.metadata.uid}").await, uid);
    blue.helm("uninstall blue").await.good();
    own.until_gone("crd/ats.cnat.programming-kubernetes.info")
        .await;
    plane.stop().await;
}
