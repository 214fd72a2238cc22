//! `make deploy`, `make undeploy` and `make uninstall`. The nodes are fakes: the operator's pods become ready
//! without running, so its webhooks do not answer here.

use std::collections::BTreeSet;

use my_operator::kinds::REGISTRY;
use my_operator_cluster::{Cluster, Options};
use serde_json::Value;

use crate::harness::install::restart_controller_manager;
use crate::harness::{Kubectl, NAMESPACE, OwnPlane, Said, checkout, run, sample_path};
use crate::install::{assert_serves_every_kind, environment, hack, rendered, script};

const IMAGE: &str = "example.com:5000/team/my-operator:1";
const DEPLOYMENT: &str = "deployment/my-operator-controller-manager";

/// The names that the product promises, as `kubectl apply` prints them.
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

/// Every caBundle of both configurations; "" of a webhook that has none.
async fn bundles(kubectl: &Kubectl) -> Vec<String> {
    let mut bundles = Vec::new();
    for kind in [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ] {
        let list = kubectl.object(kind).await;
        let configurations = list["items"].as_array().unwrap().iter();
        let webhooks = configurations.flat_map(|it| it["webhooks"].as_array().unwrap());
        let found = webhooks.map(|it| it["clientConfig"]["caBundle"].as_str());
        bundles.extend(found.map(|bundle| bundle.unwrap_or_default().to_owned()));
    }
    bundles
}

async fn plane() -> OwnPlane {
    OwnPlane::start(Options::with_nodes(&["node-1", "node-2"])).await
}

/// `hack/undeploy COMPONENTS` with FORCE=1, which removes finalizers after so many seconds.
async fn force_undeploy(cluster: &Cluster, components: &str, patience: &str) -> Said {
    let mut command = script(cluster, &format!("hack/undeploy {components}")).await;
    run(command.env("FORCE", "1").env("PATIENCE", patience), "").await
}

/// Asserts that nothing of what `hack/render` prints is there any more.
async fn assert_nothing_is_left(own: &Kubectl, components: &str) {
    let all = rendered(own.cluster, components).await;
    let left = own.with("get --ignore-not-found -o name -f -", &all).await;
    assert_eq!(left.good(), "");
}

#[tokio::test]
async fn deploy_installs_everything_and_undeploy_leaves_nothing() {
    let plane = plane().await;
    let cluster = plane.cluster;
    let kubectl = Kubectl::fresh(cluster, "team").await;
    let own = Kubectl::new(cluster, NAMESPACE);
    let manager = checkout().join("config/manager/manager.yaml");
    let before = std::fs::read_to_string(&manager).unwrap();

    // Objects that were there before, one of them with a finalizer, and each with a pod.
    kubectl.run("apply -k config/crd").await.good();
    kubectl
        .run("wait --for=condition=Established --timeout=60s crd --all")
        .await
        .good();
    restart_controller_manager(cluster).await;
    let objects = [("plain", ""), ("held", "example.com/hold"), ("known", "")];
    let ats = objects.map(|(name, finalizer)| at(name, finalizer));
    kubectl.apply(&ats.join("\n---\n")).await.good();
    let mut pods = Vec::new();
    for (name, _) in objects {
        let at = format!("at/{name}");
        let uid = kubectl.field(&at, "{.metadata.uid}").await;
        pods.push(format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, ownerReferences: [{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, name: {name}, uid: {uid}, controller: true, blockOwnerDeletion: true}}]}}, spec: {{containers: [{{name: c, image: x}}]}}}}"));
    }
    kubectl.apply(&pods.join("\n---\n")).await.good();

    // The garbage collector knows the kind of the Ats.
    kubectl
        .run("delete at/known --cascade=foreground")
        .await
        .good();

    // No node takes the operator's pods: hack/deploy says so, and fails.
    kubectl.run("cordon -l kubernetes.io/os=linux").await.good();
    let mut impatient = script(cluster, &format!("hack/deploy {IMAGE}")).await;
    let said = run(impatient.env("WAIT", "3s"), "").await;
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
    kubectl
        .run("uncordon -l kubernetes.io/os=linux")
        .await
        .good();

    // Now it comes, with that image, from an untouched checkout.
    let said = hack(cluster, &format!("hack/deploy {IMAGE}")).await.good();
    assert!(said.contains("successfully rolled out"), "{said}");
    let image = "{.spec.template.spec.containers[*].image}";
    assert_eq!(own.field(DEPLOYMENT, image).await, IMAGE);
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
        let names = own.field(&object, "{.webhooks[*].name}").await;
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
        .await
        .good();
    }
    let published = bundles(&own).await;
    assert!(
        published.len() >= 4 && published.iter().all(|b| b == "eA=="),
        "{published:?}"
    );
    hack(cluster, "hack/deploy example.com/my-operator:2")
        .await
        .good();
    assert_eq!(bundles(&own).await, published);
    // Each of the new replicas is on a node of its own.
    own.until("pods", "to be the new replicas", |list| {
        let pods = list?["items"].as_array()?.iter();
        let mut nodes: Vec<Option<&str>> = pods.map(|it| it["spec"]["nodeName"].as_str()).collect();
        nodes.sort_unstable();
        (nodes == [Some("node-1"), Some("node-2")]).then_some(())
    })
    .await;
    let all = rendered(cluster, "").await;
    crate::install::kubectl(cluster, "apply --server-side --force-conflicts -f -", &all)
        .await
        .good();
    assert_eq!(bundles(&own).await, published);

    // Without a terminal, nothing is deleted that cannot be restored.
    for line in ["hack/undeploy", "hack/undeploy --crds"] {
        let error = hack(cluster, line).await.bad();
        for word in [
            "2 of ats",
            "/plain",
            "/held",
            "nothing was deleted",
            "FORCE=1",
        ] {
            assert!(error.contains(word), "{line}: {word}: {error}");
        }
        assert_eq!(kubectl.names("ats").await, ["held", "plain"]);
        assert_eq!(own.field(DEPLOYMENT, "{.status.readyReplicas}").await, "2");
    }

    // At a terminal it asks, and any answer but yes is no.
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-q", "-e", "-c", "hack/undeploy", "/dev/null"]);
    let said = run(environment(cluster, &mut terminal).await, "no\n").await;
    assert!(
        !said.ok && said.out.contains("Type yes") && said.out.contains("Nothing was deleted"),
        "{said:?}"
    );
    assert_eq!(kubectl.names("ats").await, ["held", "plain"]);

    // What the operator creates for itself is deleted as well.
    own.run("create secret generic my-operator-webhook-ca")
        .await
        .good();
    own.apply("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: my-operator}}")
        .await
        .good();
    let said = force_undeploy(cluster, "", "6").await;
    let printed = said.err.clone();
    said.good();
    assert!(printed.contains("removing the finalizers"), "{printed}");
    let freed: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains("removing"))
        .collect();
    assert!(freed.len() == 1 && freed[0].ends_with("/held"), "{printed}");
    assert_nothing_is_left(&own, "").await;
    for pod in ["pod/plain", "pod/held"] {
        kubectl.until_gone(pod).await;
    }
    for kind in [
        "crds",
        "clusterroles",
        "clusterrolebindings",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "namespaces",
    ] {
        let what = "to have nothing with the operator's name";
        let is_ours = |it: &Value| {
            it["metadata"]["name"]
                .as_str()
                .unwrap()
                .contains("my-operator")
        };
        kubectl
            .until(kind, what, |list| {
                let mut all = list?["items"].as_array()?.iter();
                (!all.any(is_ours)).then_some(())
            })
            .await;
    }

    // Nothing is left to ask about, and no reason to fail.
    let said = hack(cluster, "hack/undeploy").await;
    let nothing = "There was nothing to remove.";
    assert!(said.ok && said.err.contains(nothing), "{said:?}");
    // Kinds that the cluster does not have: none of their objects is there, and none is made.
    let said = hack(cluster, "hack/undeploy cert-manager").await;
    let absent = "The cluster has no cert-manager.io/v1";
    assert!(
        said.ok && said.err.contains(absent) && said.err.contains(nothing),
        "{said:?}"
    );
    let deploy = format!("hack/deploy {IMAGE} cert-manager");
    let error = hack(cluster, &deploy).await.bad();
    assert!(
        error.contains("error: nothing was applied: the cluster has no cert-manager.io/v1: install cert-manager ("),
        "{error}"
    );
    assert_nothing_is_left(&own, "").await;
    // The CRDs alone come and go as well.
    kubectl.run("apply -k config/crd").await.good();
    hack(cluster, "hack/undeploy --crds").await.good();
    assert!(kubectl.names("crds").await.is_empty());
    plane.stop().await;
}

#[tokio::test]
async fn the_component_sample_kinds_comes_and_goes() {
    let off = || REGISTRY.iter().filter(|kind| !kind.by_default);
    if off().next().is_none() {
        return;
    }
    let plane = plane().await;
    let cluster = plane.cluster;
    let kubectl = Kubectl::fresh(cluster, "team").await;
    let own = Kubectl::new(cluster, NAMESPACE);
    let said = kubectl.run("apply -k config/crd/sample-kinds").await.good();
    assert_eq!(said.lines().count(), off().count(), "{said}");
    kubectl
        .run("wait --for=condition=Established --timeout=60s crd --all")
        .await
        .good();
    restart_controller_manager(cluster).await;
    // There are no webhooks yet to be called.
    for kind in off() {
        let group = (kind.crd)().spec.group;
        let sample = sample_path(kind, kind.samples[0].file);
        let said = kubectl.run(&format!("apply -f {sample}")).await.good();
        assert!(said.contains(&group) && said.contains("created"), "{said}");
    }

    let said = hack(cluster, &format!("hack/deploy {IMAGE} sample-kinds"))
        .await
        .good();
    assert!(said.contains("successfully rolled out"), "{said}");
    let arguments = own
        .field(DEPLOYMENT, "{.spec.template.spec.containers[*].args}")
        .await;
    assert_serves_every_kind(&arguments);
    let resources = "{.webhooks[*].rules[*].resources[*]}";
    for configuration in [
        "mutatingwebhookconfiguration/my-operator-mutating-webhook-configuration",
        "validatingwebhookconfiguration/my-operator-validating-webhook-configuration",
    ] {
        let asked = own.field(configuration, resources).await;
        let asked: BTreeSet<&str> = asked.split(' ').collect();
        let all = REGISTRY
            .iter()
            .map(|kind| (kind.admission.resource)().plural);
        let all: Vec<String> = all.collect();
        assert_eq!(asked, all.iter().map(String::as_str).collect());
    }

    // The objects of these kinds that would be lost are listed as well.
    let error = hack(cluster, "hack/undeploy sample-kinds").await.bad();
    for kind in off() {
        let plural = (kind.admission.resource)().plural;
        assert!(error.contains(&format!("1 of {plural}.")), "{error}");
    }
    force_undeploy(cluster, "sample-kinds", "5").await.good();
    assert_nothing_is_left(&own, "sample-kinds").await;
    kubectl.run("apply -k config/crd/sample-kinds").await.good();
    hack(cluster, "hack/undeploy --crds").await.good();
    assert!(kubectl.names("crds").await.is_empty());
    plane.stop().await;
}
