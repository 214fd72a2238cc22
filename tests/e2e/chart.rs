//! The Helm chart on a new cluster: the image in a namespace of another name that enforces Pod Security `restricted`.

use my_operator_cluster::Options;

use crate::harness::helm::Release;
use crate::harness::{Kubectl, OwnPlane};
use crate::images::NEXT;
use crate::{IMAGE, NODE, Step, images};

const DEPLOYMENT: &str = "deployment/blue-my-operator-controller-manager";
const VALIDATING: &str =
    "validatingwebhookconfiguration/blue-my-operator-validating-webhook-configuration";

fn at(name: &str) -> String {
    format!(
        "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {name}}}, spec: {{schedule: now, command: echo {name}}}}}"
    )
}

/// The values of an image.
fn image(reference: &str) -> String {
    let (repository, tag) = reference.split_once(':').unwrap();
    format!("--set image.repository={repository},image.tag={tag} --wait --timeout=2m")
}

#[tokio::test]
async fn a_release_serves_and_leaves_the_crds_and_their_objects() {
    let step = Step::start();
    let plane = OwnPlane::start(Options::with_real_node(NODE)).await;
    let cluster = plane.cluster;
    for image in images::all() {
        cluster.load_image(&image).await.unwrap();
    }
    step.done("the images were loaded");
    let (own, team) = (
        Kubectl::new(cluster, "team-ops"),
        Kubectl::new(cluster, "default"),
    );
    own.run("create namespace team-ops").await.good();
    own.run("label namespace team-ops pod-security.kubernetes.io/enforce=restricted")
        .await
        .good();
    let blue = Release {
        cluster,
        name: "blue",
        namespace: "team-ops",
    };
    blue.install(&image(IMAGE)).await.good();
    step.done("the release was installed");
    let tested = blue.helm("test blue --timeout=2m30s").await.good();
    assert!(tested.contains("Succeeded"), "{tested}");
    // What the test made is gone with it.
    own.until_gone("pod/blue-my-operator-check").await;
    own.until_gone("clusterrole/blue-my-operator-check-role")
        .await;
    step.done("helm test has passed");

    let bad = "apply -f config/samples/bad/cnat_v1alpha1_at.yaml";
    let refused = team.run(bad).await.bad();
    assert!(refused.contains("command is required"), "{refused}");
    team.apply(&at("first")).await.good();
    complete(&team, "first").await;
    step.done("an At has run");

    let bundle = "{.webhooks[0].clientConfig.caBundle}";
    let before = own.field(VALIDATING, bundle).await;
    let running = "{.spec.template.spec.containers[0].image}";
    // With the components that need nothing else in the cluster. The policies know the names of the release.
    let components =
        "--set policy.enable=true,operatorPolicy.enable=true,networkPolicy.enable=true";
    let kinds = "kinds={mydaemonset,at,memcached,crontab,foo,count,foobar}";
    let next = format!("{} {components},{kinds}", image(NEXT));
    blue.upgrade(&next).await.good();
    assert_eq!(own.field(DEPLOYMENT, running).await, NEXT);
    assert_eq!(own.field(VALIDATING, bundle).await, before);
    team.apply(&at("second")).await.good();
    complete(&team, "second").await;
    let tested = blue.helm("test blue --timeout=2m30s").await.good();
    assert!(tested.contains("Succeeded"), "{tested}");
    step.done("it was upgraded");
    // It takes the webhooks of five kinds away.
    let client_side = blue.client_side().await;
    let rollback = format!("rollback blue 1 --wait --timeout=2m {client_side}");
    blue.helm(&rollback).await.good();
    assert_eq!(own.field(DEPLOYMENT, running).await, IMAGE);
    assert_eq!(own.field(VALIDATING, bundle).await, before);
    blue.helm("test blue --timeout=2m30s").await.good();
    step.done("it was rolled back");

    blue.helm("uninstall blue --wait --timeout=2m").await.good();
    own.until_gone(DEPLOYMENT).await;
    own.until_gone(VALIDATING).await;
    for name in ["first", "second"] {
        complete(&team, name).await;
    }
    step.done("it was uninstalled");
    plane.stop().await;
}

async fn complete(team: &Kubectl, name: &str) {
    let wait = format!("wait --for=condition=Complete --timeout=60s at/{name}");
    team.run(&wait).await.good();
}
