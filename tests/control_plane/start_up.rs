//! What is missing when the operator starts: CRDs, rights, and the API server for a while.

use std::time::Duration;

use my_operator::kinds::{Kind, REGISTRY};
use my_operator_cluster::Options;

use crate::harness::{self, Kubectl, Operator, OwnPlane, http_get, wait_for};

#[tokio::test]
async fn missing_crds_and_permissions_are_named_and_waited_for() {
    let plane = OwnPlane::start(Options::with_nodes(&["node-1"])).await;
    let cluster = plane.cluster;
    let kubectl = Kubectl::new(cluster, "default");
    kubectl
        .run(&format!("create namespace {}", harness::NAMESPACE))
        .await
        .good();
    let kubeconfig = harness::operator_kubeconfig(cluster).await;
    let every = harness::every_kind();
    let operator = Operator::spawn(cluster, "bare", &kubeconfig, &["--webhooks=false", &every]);
    // No CRDs and no rights: it is ready all the same, because the Service must keep its endpoints, and reports both.
    operator.until_ready().await;
    let page = async |word: String| {
        wait_for(&word, async || {
            let (_, page) = http_get(&operator.probes, "/readyz?verbose")?;
            page.contains(&word).then_some(page)
        })
        .await
    };
    let said = page("cannot list resource \"pods\"".to_owned()).await;
    assert!(said.contains("[+]api-server ok"), "{said}");

    let own = Kubectl::new(cluster, harness::NAMESPACE);
    own.run("apply -k config/rbac").await.good();
    let off = REGISTRY.iter().filter(|kind| !kind.by_default).count();
    // Without its role, a sample kind would report its missing rights instead of its missing CRD.
    if off > 0 {
        own.run("apply -f config/components/sample-kinds/role.yaml")
            .await
            .good();
    }
    let missing = |kind: &Kind| {
        let plural = (kind.admission.resource)().plural;
        format!("the CRD of {plural} is not installed")
    };
    for kind in REGISTRY {
        page(missing(kind)).await;
    }

    let installed = kubectl.run("apply -k config/crd").await;
    installed.good();
    kubectl
        .run("wait --for=condition=Established --timeout=60s crd --all")
        .await
        .good();
    kubectl
        .run("apply -f config/samples/cnat_v1alpha1_at.yaml")
        .await
        .good();
    kubectl
        .until_field("at/example-at", "{.status.phase}", "DONE")
        .await;
    // A kind without its CRD does not keep the others from working, and is reported until the CRD is there.
    wait_for(
        "the page to name only the kinds without a CRD",
        async || {
            let (status, page) = http_get(&operator.probes, "/readyz?verbose")?;
            let reported = |kind: &&Kind| page.contains(&missing(kind)) != kind.by_default;
            let notes = page.lines().filter(|line| line.starts_with("[!]")).count();
            (status == 200 && notes == off && REGISTRY.iter().all(reported)).then_some(())
        },
    )
    .await;
    harness::install_sample_kinds(cluster).await;
    wait_for("the page to be clean", async || {
        let (_, page) = http_get(&operator.probes, "/readyz?verbose")?;
        (!page.contains("[!]")).then_some(())
    })
    .await;

    // A lasting fault is logged at most once a second.
    let log = operator.log();
    let warnings = log.lines().filter(|line| line.contains("WARN")).count();
    assert!(warnings < 60, "{log}");

    // The API server stops and starts again: the operator recovers by itself.
    cluster.stop_component("kube-apiserver").await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(operator.process.is_running());
    cluster.start_component("kube-apiserver").await.unwrap();
    let object = "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: after}, spec: {schedule: now, command: echo YAY}}";
    kubectl.apply(object).await.good();
    kubectl
        .until_field("at/after", "{.status.phase}", "DONE")
        .await;

    // SIGTERM ends it.
    let status = operator.process.stop(Duration::from_secs(10)).await;
    assert!(status.success(), "{}", operator.log());
    plane.stop().await;
}
