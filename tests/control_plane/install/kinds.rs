//! One kind alone, by `KINDS`. The nodes are fakes: the operator's pods become ready without running, so its program runs
//! beside the cluster, with their arguments and the rights that were installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use my_operator::kinds;
use my_operator_cluster::binaries::Programs;
use my_operator_cluster::{Options, free_ports};

use crate::harness::{
    Kubectl, NAMESPACE, OwnPlane, checkout, operator_kubeconfig, operator_program, run,
};
use crate::install::{part, script};

const DEPLOYMENT: &str = "deployment/my-operator-controller-manager";
const AT: &str = "ats.cnat.programming-kubernetes.info";
const MEMCACHED: &str = "memcacheds.cache.example.com";

/// Runs a command to its good end.
async fn good(command: &mut Command) -> String {
    run(command, "").await.good()
}

#[tokio::test]
async fn namespaces_of_ones_own_are_deployed_with_any_kinds() {
    // A checkout whose component is for team-a, as the page says.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    for from in [&["--from", "config"][..], &["--namespace", "team-a"]] {
        let mut manifests = Command::new(operator_program());
        manifests.arg("manifests").args(from).arg("--out");
        good(manifests.arg(&config).current_dir(checkout())).await;
    }
    fs::create_dir(folder.path().join("hack")).unwrap();
    for name in ["hack/render", "hack/config"] {
        fs::copy(checkout().join(name), folder.path().join(name)).unwrap();
    }
    let rendered = async |root: &Path, kinds: &str| {
        let mut render = Command::new("bash");
        render.arg(root.join("hack/render"));
        render.args(["example.com/my-operator:1", "namespaced"]);
        render.env("KUBECTL", Programs::ensure().unwrap().path("kubectl"));
        render.env("MY_OPERATOR", operator_program());
        good(render.env("KINDS", kinds)).await
    };
    for (kinds, plural, entries) in [("memcached", "memcacheds", 1), ("", "ats", 2)] {
        let all = rendered(folder.path(), kinds).await;
        assert!(!all.contains("namespace: default"), "{all}");
        let role = part(
            &all,
            &["kind: Role\n", "name: my-operator-namespace-role\n"],
        );
        assert!(
            role.contains("namespace: team-a\n") && role.contains(plural),
            "{role}"
        );
        let deployment = part(&all, &["kind: Deployment\n"]);
        assert!(deployment.contains("- --namespace=team-a\n"));
        assert!(!deployment.contains("--namespace=default"), "{deployment}");
        for kind in ["Mutating", "Validating"] {
            let kind = format!("kind: {kind}WebhookConfiguration\n");
            let configuration = part(&all, &[&kind]);
            for words in ["clientConfig:\n", ".kb.io\n", "      - team-a\n"] {
                let count = configuration.matches(words).count();
                assert_eq!(count, entries, "{words}: {configuration}");
            }
        }
    }
}

#[tokio::test]
async fn memcached_alone_is_deployed_works_and_goes() {
    let plane = OwnPlane::start(Options::with_nodes(&["node-1", "node-2"])).await;
    let cluster = plane.cluster;
    let own = Kubectl::new(cluster, NAMESPACE);
    let team = Kubectl::fresh(cluster, "team").await;
    let hack = async |kinds: &str, line: &str| {
        let mut command = script(cluster, line).await;
        command.env("KINDS", kinds);
        command.env("MY_OPERATOR", operator_program());
        run(&mut command, "").await
    };
    let deploy = "hack/deploy example.com/my-operator:1";
    let error = hack("memcached cron", deploy).await.bad();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("\"cron\" is not a kind: the kinds are mydaemonset, at, memcached"));

    hack("memcached", deploy).await.good();
    assert_eq!(own.names("crds").await, [MEMCACHED]);
    for (configuration, entry) in [
        (
            "mutatingwebhookconfiguration/my-operator-mutating-webhook-configuration",
            "mmemcached.kb.io",
        ),
        (
            "validatingwebhookconfiguration/my-operator-validating-webhook-configuration",
            "vmemcached.kb.io",
        ),
    ] {
        let entries = own.field(configuration, "{.webhooks[*].name}").await;
        assert_eq!(entries, entry);
    }
    let roles = own.names("clusterroles").await;
    let people = roles.iter().filter(|name| {
        name.starts_with("my-operator-") && (name.contains("editor") || name.contains("viewer"))
    });
    let people: Vec<&String> = people.collect();
    assert_eq!(
        people,
        [
            "my-operator-memcached-editor-role",
            "my-operator-memcached-viewer-role"
        ]
    );

    // The webhooks do not answer here.
    own.run("delete mutatingwebhookconfigurations,validatingwebhookconfigurations -l app.kubernetes.io/name=my-operator")
        .await
        .good();
    let args = own
        .field(DEPLOYMENT, "{.spec.template.spec.containers[0].args}")
        .await;
    let args: Vec<String> = serde_json::from_str(&args).unwrap();
    let [probes] = free_ports().unwrap();
    let mut command = Command::new(operator_program());
    command
        .args(&args)
        .args(["--webhooks=false", "--metrics-bind-address=0"])
        .arg(format!("--health-probe-bind-address=127.0.0.1:{probes}"))
        .env("KUBECONFIG", operator_kubeconfig(cluster).await);
    let operator = cluster.spawn("memcached-alone", &mut command).unwrap();
    let memcached = kinds::of_name("memcached").unwrap();
    team.until_applied(memcached.samples[0].text).await;
    team.until_condition("memcached/memcached-sample", "Available", "True")
        .await;
    let log = std::fs::read_to_string(operator.log()).unwrap();
    assert!(!log.contains("forbidden"), "{log}");
    drop(operator);

    // The CRD of another kind is not its to delete.
    own.run("apply -f config/crd/bases/cnat.programming-kubernetes.info_ats.yaml")
        .await
        .good();
    team.run("delete memcached --all").await.good();
    hack("memcached", "hack/undeploy").await.good();
    own.until_gone(DEPLOYMENT).await;
    assert_eq!(own.names("crds").await, [AT]);
    hack("memcached", "hack/install").await.good();
    assert_eq!(own.names("crds").await, [AT, MEMCACHED]);
    hack("memcached", "hack/undeploy --crds").await.good();
    assert_eq!(own.names("crds").await, [AT]);
    plane.stop().await;
}
