//! Installs the operator and the samples on a new cluster, and removes them again.

use std::process::Command;
use std::time::{Duration, Instant};

use my_operator_cluster::{Cluster, Options};

use crate::harness::{NAMESPACE, Said, checkout, operator_program, run, try_wait};
use crate::{DEPLOYMENT, NODE, images, make};

/// The image of `dist/install.yaml`.
const PUBLISHED: &str = "registry.invalid/my-operator:latest";

async fn kubectl(cluster: &Cluster, args: &str) -> Said {
    let mut command = cluster.kubectl();
    command
        .current_dir(checkout())
        .args(args.split_whitespace());
    run(&mut command, "").await
}

#[tokio::test]
async fn the_samples_run_on_a_new_cluster_and_uninstalling_leaves_nothing() {
    let cluster = Cluster::start(Options::with_real_node(NODE)).await.unwrap();
    for image in images::stand_ins() {
        cluster.load_image(&image).await.unwrap();
    }
    cluster
        .load_image(&images::own(PUBLISHED, "latest"))
        .await
        .unwrap();
    let before = everything(&cluster).await;

    let begin = Instant::now();
    let step = |what: &str| println!("{what} after {:.1} s", begin.elapsed().as_secs_f64());
    kubectl(&cluster, "apply -f dist/install.yaml").await.good();
    step("applied");
    let status = format!("rollout status {DEPLOYMENT} --namespace={NAMESPACE} --timeout=120s");
    kubectl(&cluster, &status).await.good();
    step("serving");
    // As docs/operations/install.md has it: the configurations were there before the operator, which adds the CA
    // bundle that API servers trust it by.
    let mut check = Command::new(operator_program());
    check
        .args(["check", "--wait=1m"])
        .env("KUBECONFIG", cluster.kubeconfig());
    let said = run(&mut check, "").await.good();
    // The image's tag is not a version; everything else is as it must be.
    assert!(said.ends_with("0 failed, 0 with a warning\n"), "{said}");
    step("checked");
    // Without a program, a pod of the image checks, with the rights of config/check. It sees the served certificate.
    let mut pod = Command::new(checkout().join("hack/check"));
    pod.args([PUBLISHED, "--wait=1m"]).env("CARGO", "no-cargo");
    for (name, value) in cluster.kubectl().get_envs() {
        pod.env(name, value.unwrap_or_default());
    }
    pod.env("KUBECTL", cluster.program("kubectl"));
    let said = run(&mut pod, "").await.good();
    let served = "✔ certificate: the webhook at 10.";
    assert!(said.contains(served), "{said}");
    assert!(said.contains("0 failed, 0 with a warning"), "{said}");
    step("checked from a pod");
    kubectl(&cluster, "apply -k config/samples").await.good();
    step("samples applied");
    kubectl(
        &cluster,
        "wait --for=condition=Complete --timeout=90s at/example-at",
    )
    .await
    .good();
    assert_eq!(
        kubectl(&cluster, "logs example-at-pod").await.good(),
        "YAY\n"
    );
    step("YAY");
    let wait = "wait --for=condition=Available --timeout=90s mydaemonset --all";
    kubectl(&cluster, wait).await.good();
    step("web servers available");

    make(&cluster, &["undeploy", "FORCE=1"]).await.good();
    step("undeployed");
    let mut after = Vec::new();
    let gone = try_wait(Duration::from_mins(1), async || {
        after = everything(&cluster).await;
        (after == before).then_some(())
    });
    let gone = gone.await.is_some();
    let left: Vec<_> = after.iter().filter(|name| !before.contains(name)).collect();
    assert!(gone, "left behind: {left:#?}");
    cluster.stop().await;
}

/// The names of what an installation may leave: objects of the whole cluster, and pods.
async fn everything(cluster: &Cluster) -> Vec<String> {
    let kinds = "get namespaces,crd,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,\
                 validatingwebhookconfigurations,validatingadmissionpolicies,priorityclasses -o name";
    let mut names = kubectl(cluster, kinds).await.good();
    names += &kubectl(
        cluster,
        "get pods,services,leases,secrets -n default -o name",
    )
    .await
    .good();
    names.lines().map(str::to_owned).collect()
}
