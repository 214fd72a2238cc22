//! The components of `config/components`: each builds with `config/default` and is accepted, and does what
//! it is there for.

use std::process::Command;

use my_operator_cluster::{Cluster, Options, free_ports};
use tokio::sync::OnceCell;

use crate::harness::{Kubectl, NAMESPACE, Operator, operator_kubeconfig, wait_for};
use crate::{kubectl, rendered};

/// cert-manager itself is not here: of its objects only names and shape are checked.
const CERT_MANAGER: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KINDs.cert-manager.io}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {plural: KINDs, singular: KIND, kind: TITLE}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
";

/// A control plane with our CRDs, those of cert-manager's that we use, and the operator's namespace.
async fn cluster() -> &'static Cluster {
    static READY: OnceCell<&Cluster> = OnceCell::const_new();
    READY
        .get_or_init(|| async {
            let cluster = my_operator_cluster::shared(Options::with_nodes(&["node-1"])).await;
            let kubectl = Kubectl::new(cluster, "default");
            kubectl.run("apply -k config/crd").good();
            for (kind, title) in [("certificate", "Certificate"), ("issuer", "Issuer")] {
                let crd = CERT_MANAGER.replace("KIND", kind).replace("TITLE", title);
                kubectl.apply(&crd).good();
            }
            kubectl
                .run("wait --for=condition=Established --timeout=60s crd --all")
                .good();
            kubectl.run(&format!("create namespace {NAMESPACE}")).good();
            cluster
        })
        .await
}

/// The documents of a rendering in which all of these words stand.
fn part(all: &str, words: &[&str]) -> String {
    let documents = all.split("\n---\n");
    let wanted = documents.filter(|text| words.iter().all(|word| text.contains(word)));
    let wanted: Vec<&str> = wanted.collect();
    assert!(!wanted.is_empty(), "no document with {words:?}");
    wanted.join("\n---\n")
}

#[tokio::test]
async fn every_component_builds_and_is_accepted_alone_and_with_the_others() {
    let cluster = cluster().await;
    let folders = std::fs::read_dir(crate::checkout().join("config/components")).unwrap();
    let mut components: Vec<String> = folders
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("kustomization.yaml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        // Prometheus' own objects are checked where they are made.
        .filter(|name| name != "prometheus")
        .collect();
    assert!(components.len() >= 3, "{components:?}");
    components.push(components.join(" "));
    for names in components.into_iter().chain([String::new()]) {
        let all = rendered(cluster, &names);
        let said = kubectl(
            cluster,
            "apply --dry-run=server --validate=strict -f -",
            &all,
        );
        assert!(said.ok, "{names}: {}", said.err);
    }
}

#[tokio::test]
async fn with_cert_manager_the_files_are_where_the_operator_reads_them() {
    let all = rendered(cluster().await, "cert-manager");
    let deployment = part(&all, &["kind: Deployment"]);
    let folder = "/tmp/k8s-webhook-server/serving-certs";
    for words in [
        format!("--webhook-cert-path={folder}"),
        format!("mountPath: {folder}"),
        "secretName: webhook-server-cert".to_owned(),
        "readOnly: true".to_owned(),
    ] {
        assert!(deployment.contains(&words), "{words}: {deployment}");
    }
    let certificate = part(
        &all,
        &["kind: Certificate", "name: my-operator-serving-cert"],
    );
    for words in [
        "secretName: webhook-server-cert",
        "- my-operator-webhook-service.my-operator-system.svc\n",
        "name: my-operator-ca-issuer",
    ] {
        assert!(certificate.contains(words), "{words}: {certificate}");
    }
    let inject = "cert-manager.io/inject-ca-from: my-operator-system/my-operator-serving-cert";
    assert_eq!(all.matches(inject).count(), 2, "both configurations");
}

#[tokio::test]
async fn the_policy_demands_the_right_to_create_pods() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("policy").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let policy = part(&rendered(cluster, "policy"), &["ValidatingAdmissionPolicy"]);
    kubectl.apply(&policy).good();
    kubectl
        .run("create role objects --verb=get,create,update,patch --resource=ats.cnat.programming-kubernetes.info,mydaemonsets.apps.zhongmingmao.io")
        .good();
    kubectl
        .run("create rolebinding objects --role=objects --user=dev")
        .good();
    let samples = [
        "config/samples/cnat_v1alpha1_at.yaml",
        "config/samples/apps_v1beta1_mydaemonset.yaml",
    ];
    // It takes the API server a moment to see a new policy, or a new role.
    for sample in samples {
        wait_for("a refusal", || {
            let said = kubectl.run(&format!("--as=dev create --dry-run=server -f {sample}"));
            let refused = said.err.contains("my-operator-pod-creators")
                && said
                    .err
                    .contains(&format!("makes pods in namespace {namespace}"))
                && said.err.contains("dev is not allowed to create there");
            refused.then_some(())
        })
        .await;
    }
    kubectl
        .run("create role pods --verb=create --resource=pods")
        .good();
    kubectl
        .run("create rolebinding pods --role=pods --user=dev")
        .good();
    for sample in samples {
        wait_for("it to be allowed", || {
            let said = kubectl.run(&format!("--as=dev create -f {sample}"));
            said.ok.then_some(())
        })
        .await;
    }
    // Without the right again: the spec is held, labels are not.
    kubectl.run("delete rolebinding pods").good();
    let image = |n: u32| format!("{{\"spec\":{{\"image\":\"nginx:1.{n}\"}}}}");
    let mut n = 0;
    wait_for("a change of the spec to be refused", || {
        n += 1;
        let patch = image(n);
        let said = kubectl.run(&format!(
            "--as=dev patch mds/mydaemonset-sample --type=merge --patch={patch}"
        ));
        said.err.contains("my-operator-pod-creators").then_some(())
    })
    .await;
    let label = "{\"metadata\":{\"labels\":{\"a\":\"b\"}}}";
    for object in ["mds/mydaemonset-sample", "at/example-at"] {
        kubectl
            .run(&format!(
                "--as=dev patch {object} --type=merge --patch={label}"
            ))
            .good();
    }
    kubectl.run("delete validatingadmissionpolicybinding,validatingadmissionpolicy my-operator-pod-creators").good();
}

#[tokio::test]
async fn with_namespaced_it_works_there_and_has_no_right_elsewhere() {
    let cluster = cluster().await;
    let own = Kubectl::new(cluster, NAMESPACE);
    let inside = Kubectl::new(cluster, "default");
    let outside = Kubectl::new(cluster, &cluster.namespace("outside").await.unwrap());
    let all = rendered(cluster, "namespaced");
    let rights = part(&all, &["rbac.authorization.k8s.io"]);
    let account = part(&all, &["kind: ServiceAccount\nmetadata"]);
    let webhooks = part(&all, &["WebhookConfiguration"]);
    for objects in [&account, &rights, &webhooks] {
        kubectl(cluster, "apply -f -", objects).good();
    }

    // As in a cluster: it writes its CA into the configurations that are there, with the namespaced rights.
    let [webhook, probes, metrics] = free_ports()
        .unwrap()
        .map(|port| format!("127.0.0.1:{port}"));
    let kubeconfig = operator_kubeconfig(cluster).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_my-operator"));
    command
        .args(["run", "--namespace=default", "--leader-elect=false"])
        .arg(format!("--webhook-bind-address={webhook}"))
        .arg(format!("--health-probe-bind-address={probes}"))
        .arg(format!("--metrics-bind-address={metrics}"))
        .env("KUBECONFIG", &kubeconfig);
    let operator = Operator {
        process: cluster.spawn("namespaced", &mut command).unwrap(),
        probes,
        metrics,
        webhook,
    };
    operator.until_ready().await;
    let log = operator.log();
    assert!(!log.contains("forbidden"), "{log}");

    // Its webhooks ask for objects of that namespace alone. Nobody reaches them in this cluster.
    let sample = "create -f config/samples/cnat_v1alpha1_at.yaml";
    wait_for("the webhook to be asked", || {
        let said = inside.run(&format!("{sample} --dry-run=server"));
        said.err.contains("failed calling webhook").then_some(())
    })
    .await;
    outside.run(sample).good();
    inside
        .run("delete mutatingwebhookconfigurations,validatingwebhookconfigurations -l app.kubernetes.io/name=my-operator")
        .good();
    wait_for("the webhooks to be gone", || {
        inside.run(sample).ok.then_some(())
    })
    .await;
    inside
        .until_field("at/example-at", "{.status.phase}", "DONE")
        .await;
    inside
        .run("create -f config/samples/apps_v1beta1_mydaemonset.yaml")
        .good();
    inside
        .until_field("mds/mydaemonset-sample", "{.status.numberAvailable}", "1")
        .await;
    assert_eq!(outside.field("at/example-at", "{.status.phase}"), "");

    let account = format!("system:serviceaccount:{NAMESPACE}:my-operator-controller-manager");
    let may = |kubectl: &Kubectl, what: &str| {
        let said = kubectl.run(&format!("auth can-i {what} --as={account}"));
        said.out.trim() == "yes"
    };
    for what in [
        "create pods",
        "list ats.cnat.programming-kubernetes.info",
        "create events.events.k8s.io",
    ] {
        assert!(may(&inside, what) && !may(&outside, what), "{what}");
    }
    for what in [
        "get secrets",
        "create secrets",
        "list pods --all-namespaces",
    ] {
        assert!(!may(&outside, what) && !may(&inside, what), "{what}");
    }
    assert!(may(&outside, "list nodes") && !may(&outside, "delete nodes"));
    assert!(may(&own, "get secrets/my-operator-webhook-ca") && !may(&own, "get secrets/other"));

    // A right that is taken away is missed by verb and resource, in the log and on the object.
    let without = inside
        .run("get role my-operator-namespace-role -o yaml")
        .good();
    assert_eq!(without.matches("  - create\n").count(), 3, "{without}");
    inside
        .apply(&without.replacen("  - create\n", "", 1))
        .good();
    wait_for("the right to be gone", || {
        (!may(&inside, "create pods")).then_some(())
    })
    .await;
    inside
        .apply("{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: powerless}, spec: {schedule: now, command: echo YAY}}")
        .good();
    wait_for("the missing right in the log", || {
        let log = operator.log().replace('\\', "");
        let told = log.lines().any(|line| {
            line.contains("\"powerless\"") && line.contains("cannot create resource \"pods\"")
        });
        told.then_some(())
    })
    .await;
    inside
        .until_field(
            "at/powerless",
            "{.status.conditions[?(@.type==\"Started\")].reason}",
            "PodRefused",
        )
        .await;
    kubectl(cluster, "apply -f -", &rights).good();
    inside
        .until_field("at/powerless", "{.status.phase}", "DONE")
        .await;
}
