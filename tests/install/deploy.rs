//! `make deploy`, `make undeploy` and `make uninstall`. The nodes are fakes: the operator's pods become ready
//! without running, so nobody answers its webhooks here.

use std::collections::BTreeSet;

use my_operator::kinds::REGISTRY;
use my_operator_cluster::{Cluster, Options};

use crate::harness::{Kubectl, NAMESPACE, checkout, every_kind, run, sample_path, wait_for};
use crate::{environment, hack, rendered, script};

const IMAGE: &str = "example.com:5000/team/my-operator:1";
const DEPLOYMENT: &str = "deployment/my-operator-controller-manager";

/// The names that the product promises, as `kubectl apply` tells them.
const PROMISED: &[&str] = &[
    "namespace/my-operator-system",
    "customresourcedefinition.apiextensions.k8s.io/ats.cnat.programming-kubernetes.info",
    "customresourcedefinition.apiextensions.k8s.io/mydaemonsets.apps.zhongmingmao.io",
    "serviceaccount/my-operator-controller-manager",
    "role.rbac.authorization.k8s.io/my-operator-manager-role",
    "rolebinding.rbac.authorization.k8s.io/my-operator-manager-rolebinding",
    "role.rbac.authorization.k8s.io/my-operator-leader-election-role",
    "rolebinding.rbac.authorization.k8s.io/my-operator-leader-election-rolebinding",
    "clusterrole.rbac.authorization.k8s.io/my-operator-manager-role",
    "clusterrole.rbac.authorization.k8s.io/my-operator-at-editor-role",
    "clusterrole.rbac.authorization.k8s.io/my-operator-mydaemonset-viewer-role",
    "clusterrole.rbac.authorization.k8s.io/my-operator-metrics-reader",
    "clusterrolebinding.rbac.authorization.k8s.io/my-operator-manager-rolebinding",
    "service/my-operator-webhook-service",
    "service/my-operator-controller-manager-metrics-service",
    "deployment.apps/my-operator-controller-manager",
    "poddisruptionbudget.policy/my-operator-controller-manager",
    "mutatingwebhookconfiguration.admissionregistration.k8s.io/my-operator-mutating-webhook-configuration",
    "validatingwebhookconfiguration.admissionregistration.k8s.io/my-operator-validating-webhook-configuration",
];

fn at(name: &str, finalizers: &str) -> String {
    format!(
        "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {name}, finalizers: [{finalizers}]}}, spec: {{schedule: '2099-01-01T00:00:00Z', command: echo YAY}}}}"
    )
}

/// Every caBundle of both configurations.
fn bundles(kubectl: &Kubectl) -> Vec<String> {
    let said = kubectl.run(
        "get mutatingwebhookconfigurations,validatingwebhookconfigurations -o jsonpath={range.items[*].webhooks[*]}{.clientConfig.caBundle};{end}",
    );
    let all = said.good();
    all.split_terminator(';').map(str::to_owned).collect()
}

#[tokio::test]
async fn deploy_installs_everything_and_undeploy_leaves_nothing() {
    let cluster = Cluster::start(Options::with_nodes(&["node-1", "node-2"]));
    let cluster: &'static Cluster = Box::leak(Box::new(cluster.await.unwrap()));
    let namespace = cluster.namespace("team").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let own = Kubectl::new(cluster, NAMESPACE);
    let manager = checkout().join("config/manager/manager.yaml");
    let before = std::fs::read_to_string(&manager).unwrap();

    // Objects that were there before, one of them held by somebody's finalizer, with a pod each.
    kubectl.run("apply -k config/crd").good();
    kubectl
        .run("wait --for=condition=Established --timeout=60s crd --all")
        .good();
    for (name, finalizer) in [("plain", ""), ("held", "example.com/hold"), ("known", "")] {
        kubectl.apply(&at(name, finalizer)).good();
        let uid = kubectl.field(&format!("at/{name}"), "{.metadata.uid}");
        kubectl.apply(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, ownerReferences: [{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, name: {name}, uid: {uid}, controller: true, blockOwnerDeletion: true}}]}}, spec: {{containers: [{{name: c, image: x}}]}}}}")).good();
    }

    // No node takes its pods: it says so, and fails.
    kubectl.run("cordon -l kubernetes.io/os=linux").good();
    let mut impatient = script(cluster, &format!("hack/deploy {IMAGE}"));
    let said = run(impatient.env("WAIT", "10s"), "");
    for name in PROMISED {
        let made = [format!("{name} created"), format!("{name} unchanged")];
        assert!(
            made.iter().any(|line| said.out.contains(line)),
            "{name}: {said:?}"
        );
    }
    let error = said.bad();
    assert!(
        error.contains("not ready") && error.contains("Pending"),
        "{error}"
    );
    kubectl.run("uncordon -l kubernetes.io/os=linux").good();

    // Now it comes, with that image, from an untouched checkout.
    let said = hack(cluster, &format!("hack/deploy {IMAGE}")).good();
    assert!(said.contains("successfully rolled out"), "{said}");
    let image = "{.spec.template.spec.containers[*].image}";
    assert_eq!(own.field(DEPLOYMENT, image), IMAGE);
    assert_eq!(std::fs::read_to_string(&manager).unwrap(), before);

    // What the operator wrote into the configurations outlives the next deploy, however it is applied.
    for (kind, configuration) in [
        (
            "MutatingWebhookConfiguration",
            "my-operator-mutating-webhook-configuration",
        ),
        (
            "ValidatingWebhookConfiguration",
            "my-operator-validating-webhook-configuration",
        ),
    ] {
        let object = format!("{kind}/{configuration}");
        let names = own.field(&object, "{.webhooks[*].name}");
        let entries: Vec<String> = names
            .split(' ')
            .map(|name| format!("{{name: {name}, clientConfig: {{caBundle: eA==}}}}"))
            .collect();
        let applied = format!(
            "{{apiVersion: admissionregistration.k8s.io/v1, kind: {kind}, metadata: {{name: {configuration}}}, webhooks: [{}]}}",
            entries.join(", ")
        );
        own.with(
            "apply --server-side --field-manager=my-operator-ca-bundle -f -",
            &applied,
        )
        .good();
    }
    let published = bundles(&own);
    assert!(
        published.len() >= 4 && published.iter().all(|b| b == "eA=="),
        "{published:?}"
    );
    hack(cluster, "hack/deploy example.com/my-operator:2").good();
    assert_eq!(bundles(&own), published);
    // Each of the new replicas is on a node of its own.
    wait_for("the old replicas to go", || {
        let nodes = own.field("pods", "{.items[*].spec.nodeName}");
        let mut nodes: Vec<&str> = nodes.split(' ').collect();
        nodes.sort_unstable();
        (nodes == ["node-1", "node-2"]).then_some(())
    })
    .await;
    let all = rendered(cluster, "");
    crate::kubectl(cluster, "apply --server-side --force-conflicts -f -", &all).good();
    assert_eq!(bundles(&own), published);

    // The garbage collector looks for new kinds twice a minute: now it knows that of the Ats.
    kubectl
        .run("delete at/known --cascade=foreground --wait=false")
        .good();
    kubectl.until_gone("at/known").await;

    // With nobody to ask, nothing is deleted that cannot be had again.
    for line in ["hack/undeploy", "hack/undeploy --crds"] {
        let error = hack(cluster, line).bad();
        for word in [
            "2 of ats",
            "/plain",
            "/held",
            "nothing was deleted",
            "FORCE=1",
        ] {
            assert!(error.contains(word), "{line}: {word}: {error}");
        }
        assert_eq!(kubectl.run("get at -o name").good().lines().count(), 2);
        assert_eq!(own.field(DEPLOYMENT, "{.status.readyReplicas}"), "2");
    }

    // Somebody at a terminal is asked, and anything but yes is no.
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-q", "-e", "-c", "hack/undeploy", "/dev/null"]);
    let said = run(environment(cluster, &mut terminal), "no\n");
    assert!(
        !said.ok && said.out.contains("Type yes") && said.out.contains("Nothing was deleted"),
        "{said:?}"
    );
    assert_eq!(kubectl.run("get at -o name").good().lines().count(), 2);

    // What the operator makes for itself goes as well.
    own.run("create secret generic my-operator-webhook-ca")
        .good();
    own.apply("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: my-operator}}")
        .good();
    let mut forced = script(cluster, "hack/undeploy");
    let said = run(forced.env("FORCE", "1").env("PATIENCE", "20"), "");
    let told = said.err.clone();
    said.good();
    assert!(told.contains("removing the finalizers"), "{told}");
    let freed: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("removing"))
        .collect();
    assert!(freed.len() == 1 && freed[0].ends_with("/held"), "{told}");
    let left = "get --ignore-not-found -o name -f -";
    assert_eq!(own.with(left, &rendered(cluster, "")).good(), "");
    for pod in ["pod/plain", "pod/held"] {
        kubectl.until_gone(pod).await;
    }
    wait_for("nothing that bears the operator's name", || {
        let all = kubectl.run(
            "get crd,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,namespaces -o name",
        );
        (!all.good().contains("my-operator")).then_some(())
    })
    .await;

    // There is nothing to ask about any more, and nothing to fail for.
    hack(cluster, "hack/undeploy").good();
    // The CRDs alone come and go as well.
    kubectl.run("apply -k config/crd").good();
    hack(cluster, "hack/undeploy --crds").good();
    assert!(!kubectl.run("get crd -o name").good().contains("cnat"));

    sample_kinds_come_and_go(cluster, &kubectl);
}

/// The kinds that are off by default, with the component that brings them.
fn sample_kinds_come_and_go(cluster: &Cluster, kubectl: &Kubectl) {
    let off = || REGISTRY.iter().filter(|kind| !kind.by_default);
    if off().next().is_none() {
        return;
    }
    let own = Kubectl::new(kubectl.cluster, NAMESPACE);
    let said = kubectl.run("apply -k config/crd/sample-kinds").good();
    assert_eq!(said.lines().count(), off().count(), "{said}");
    kubectl
        .run("wait --for=condition=Established --timeout=60s crd --all")
        .good();
    // No webhook is there yet to be asked.
    for kind in off() {
        let group = (kind.crd)().spec.group;
        let sample = sample_path(kind, kind.samples[0].file);
        let said = kubectl.run(&format!("apply -f {sample}")).good();
        assert!(said.contains(&group) && said.contains("created"), "{said}");
    }

    let said = hack(cluster, &format!("hack/deploy {IMAGE} sample-kinds")).good();
    assert!(said.contains("successfully rolled out"), "{said}");
    let arguments = own.field(DEPLOYMENT, "{.spec.template.spec.containers[*].args}");
    assert!(arguments.contains(&every_kind()), "{arguments}");
    let resources = "{.webhooks[*].rules[*].resources[*]}";
    for configuration in [
        "mutatingwebhookconfiguration/my-operator-mutating-webhook-configuration",
        "validatingwebhookconfiguration/my-operator-validating-webhook-configuration",
    ] {
        let asked = own.field(configuration, resources);
        let asked: BTreeSet<&str> = asked.split(' ').collect();
        let all = REGISTRY
            .iter()
            .map(|kind| (kind.admission.resource)().plural);
        let all: Vec<String> = all.collect();
        assert_eq!(asked, all.iter().map(String::as_str).collect());
    }

    // What would be lost is told of these as well.
    let error = hack(cluster, "hack/undeploy sample-kinds").bad();
    for kind in off() {
        let plural = (kind.admission.resource)().plural;
        assert!(error.contains(&format!("1 of {plural}.")), "{error}");
    }
    let mut forced = script(cluster, "hack/undeploy sample-kinds");
    run(forced.env("FORCE", "1").env("PATIENCE", "5"), "").good();
    let left = "get --ignore-not-found -o name -f -";
    assert_eq!(
        own.with(left, &rendered(cluster, "sample-kinds")).good(),
        ""
    );
    kubectl.run("apply -k config/crd/sample-kinds").good();
    hack(cluster, "hack/undeploy --crds").good();
    assert_eq!(kubectl.run("get crd -o name").good(), "");
}
