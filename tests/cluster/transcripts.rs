//! The transcripts that the product promises, as a person would type them.

use std::collections::BTreeMap;

use crate::harness::{Kubectl, NAMESPACE, PATIENCE, wait_for};
use crate::kubectl;

/// `kubectl get` without its header, split into columns.
fn rows(table: &str) -> Vec<Vec<String>> {
    let row = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    table.lines().skip(1).map(row).collect()
}

#[tokio::test]
async fn a_mydaemonset_puts_one_pod_on_each_node() {
    let kubectl = kubectl("mds-transcript").await;
    let said = kubectl.run("apply -f config/samples/apps_v1beta1_mydaemonset.yaml");
    assert_eq!(
        said.good(),
        "mydaemonset.apps.zhongmingmao.io/mydaemonset-sample created\n"
    );
    kubectl
        .run("wait --for=condition=Available --timeout=90s mds/mydaemonset-sample")
        .good();
    let table = kubectl.run("get po -owide").good();
    let mut by_node: BTreeMap<String, u32> = BTreeMap::new();
    for row in rows(&table) {
        let (name, node) = (&row[0], &row[6]);
        assert!(name.starts_with(&format!("{node}-")), "{table}");
        *by_node.entry(node.clone()).or_default() += 1;
    }
    for node in ["node-1", "node-2", "node-3"] {
        assert_eq!(by_node.get(node), Some(&1), "{table}");
    }
    let containers = kubectl.run("get pods -o jsonpath={.items[*].spec.containers[*].name}");
    assert!(containers.good().split(' ').all(|name| name == "app"));

    let table = kubectl.run("get mds").good();
    for column in [
        "NAME",
        "DESIRED",
        "CURRENT",
        "READY",
        "UP-TO-DATE",
        "AVAILABLE",
        "AGE",
    ] {
        assert!(table.lines().next().unwrap().contains(column), "{table}");
    }
    let wide = kubectl.run("get mydaemonsets -owide").good();
    assert!(
        wide.contains("IMAGE") && wide.contains("nginx:stable-alpine3.17"),
        "{wide}"
    );

    // Nothing changed: nothing is written.
    let again = kubectl.run("apply -f config/samples/apps_v1beta1_mydaemonset.yaml");
    assert_eq!(
        again.good(),
        "mydaemonset.apps.zhongmingmao.io/mydaemonset-sample unchanged\n"
    );
    // Pods go with their owner.
    kubectl.run("delete mds/mydaemonset-sample").good();
    wait_for("the pods to go", || {
        kubectl
            .run("get pods -o name")
            .good()
            .is_empty()
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_at_runs_once_and_is_done() {
    let kubectl = kubectl("at-transcript").await;
    // A watch brings every phase, however short.
    let watch = "get at -w -o jsonpath={.status.phase}{\"\\n\"}";
    let watch = kubectl.spawn(watch, "phases");
    let said = kubectl.run("apply -f config/samples/cnat_v1alpha1_at.yaml");
    assert_eq!(
        said.good(),
        "at.cnat.programming-kubernetes.info/example-at created\n"
    );
    let phases = wait_for("phase DONE", || {
        let said = std::fs::read_to_string(watch.log()).ok()?;
        let mut phases: Vec<String> = said.lines().map(str::to_owned).collect();
        phases.retain(|line| ["PENDING", "RUNNING", "DONE"].contains(&line.as_str()));
        phases.dedup();
        (phases.last()? == "DONE").then_some(phases)
    })
    .await;
    assert_eq!(phases, ["PENDING", "RUNNING", "DONE"]);
    let table = kubectl.run("get at,pods").good();
    let pod = table
        .lines()
        .find(|line| line.starts_with("pod/example-at-pod"));
    assert!(
        pod.is_some_and(|line| line.contains("0/1") && line.contains("Completed")),
        "{table}"
    );
    for column in ["SCHEDULE", "PHASE", "RESULT", "EXIT", "LATE", "AGE"] {
        assert!(table.lines().next().unwrap().contains(column), "{table}");
    }
    let seconds = PATIENCE.as_secs();
    for condition in ["Complete", "Finished"] {
        kubectl
            .run(&format!(
                "wait --for=condition={condition} --timeout={seconds}s at/example-at"
            ))
            .good();
    }
    assert_eq!(
        kubectl.field("at/example-at", "{.status.result}"),
        "Succeeded"
    );
    assert_eq!(kubectl.field("at/example-at", "{.status.exitCode}"), "0");
    let story = wait_for("the Events of the whole story", || {
        let story = kubectl.run("describe at/example-at").good();
        story.contains("Completed").then_some(story)
    })
    .await;
    assert!(story.contains("Started"), "{story}");
}

#[tokio::test]
async fn the_webhook_configurations_have_their_names() {
    let kubectl = kubectl("names").await;
    let names =
        kubectl.run("get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name");
    let names = names.good();
    for name in [
        "/my-operator-validating-webhook-configuration",
        "/my-operator-mutating-webhook-configuration",
    ] {
        assert!(names.contains(name), "{names}");
    }
}

#[tokio::test]
async fn everything_for_a_cluster_builds_and_is_accepted() {
    let kubectl = kubectl("kustomize").await;
    let all = kubectl.run("kustomize config/default").good();
    for object in [
        "name: my-operator-controller-manager",
        "name: my-operator-webhook-service",
        "name: my-operator-manager-role",
        "name: ats.cnat.programming-kubernetes.info",
    ] {
        assert!(all.contains(object), "{object} is not in\n{all}");
    }
    let own = Kubectl::new(kubectl.cluster, NAMESPACE);
    // The operator under test owns configurations of these names, with URLs in them.
    let others = all.replace("-webhook-configuration", "-webhook-configuration-too");
    own.with("apply --dry-run=server -f -", &others).good();
}

#[tokio::test]
async fn kubectl_explains_every_field() {
    let kubectl = kubectl("explain").await;
    for (field, word) in [
        ("at.spec.schedule", "RFC 3339"),
        ("at.status.result", "Succeeded"),
        (
            "mds.spec.updateStrategy.rollingUpdate.maxUnavailable",
            "unavailable",
        ),
        ("mds.spec.template.metadata.labels", "abels"),
    ] {
        let text = kubectl.run(&format!("explain {field}")).good();
        assert!(
            text.contains("DESCRIPTION") && text.contains(word),
            "{field}: {text}"
        );
    }
}
