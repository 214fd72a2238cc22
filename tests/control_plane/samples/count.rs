//! Counts, as a user works with them.

use std::time::Instant;

use kube::Api;
use my_operator::kinds::count::crd::Count;

use crate::harness::record::Record;
use crate::harness::{self, Kubectl};
use crate::samples::{environment, kubectl};

const SAMPLE: &str = "config/samples/sample-kinds/demo_v1_count.yaml";
const OBJECT: &str = "count/test-count";
const SYNCED: &str = "Normal Synced Count synced successfully";

/// A Count with that spec as YAML.
fn count(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: demo.mark8s.io/v1, kind: Count, metadata: {{name: {name}}}, spec: {spec}}}"
    )
}

/// A pod with those labels as YAML.
fn pod(name: &str, labels: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {labels}}}, \
         spec: {{containers: [{{name: c, image: 'nginx:1.29'}}]}}}}"
    )
}

/// Condition Healthy of a Count: status, reason and message.
const HEALTHY: &str = concat!(
    "{.status.conditions[?(@.type==\"Healthy\")].status}|",
    "{.status.conditions[?(@.type==\"Healthy\")].reason}|",
    "{.status.conditions[?(@.type==\"Healthy\")].message}",
);

/// Waits for the last of these Events, and asserts that there are no others. The operator publishes Events in order.
async fn until_events(kubectl: &Kubectl, name: &str, expected: &[&str]) {
    let last = expected.last().unwrap();
    kubectl
        .until_event(name, last, |event| event == *last)
        .await;
    assert_eq!(kubectl.events(name).await, expected);
}

#[tokio::test]
async fn a_count_says_whether_a_deployment_has_its_pods() {
    let kubectl = kubectl("count-transcript").await;
    let said = kubectl.run(&format!("apply -f {SAMPLE}")).await;
    assert_eq!(said.good(), "count.demo.mark8s.io/test-count created\n");
    let few = "False|TooFewPods|0 of 3 ready pods labelled app=nginx";
    kubectl.until_field(OBJECT, HEALTHY, few).await;
    until_events(&kubectl, "test-count", &[SYNCED]).await;

    let create = "create deployment nginx --image=nginx:1.29 --replicas=3";
    kubectl.run(create).await.good();
    let wait = "wait --timeout=90s --for=condition=Healthy";
    kubectl.run(&format!("{wait} {OBJECT}")).await.good();
    let table = kubectl.run("get count").await.good();
    let mut lines = table.lines();
    let columns: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        columns,
        ["NAME", "APP", "COUNT", "OBSERVED", "HEALTHY", "AGE"]
    );
    let row: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        row[..5],
        ["test-count", "nginx", "3", "3", "true"],
        "{table}"
    );
    let is_so = "True|AsAsserted|3 of 3 ready pods labelled app=nginx";
    assert_eq!(kubectl.field(OBJECT, HEALTHY).await, is_so);
    // The Event of the change to healthy is the second of the same series.
    kubectl.until_published("test-count", "Synced", 2).await;
    assert_eq!(kubectl.events("test-count").await, [SYNCED]);

    kubectl
        .run("scale deployment/nginx --replicas=2")
        .await
        .good();
    kubectl.run(&format!("{wait}=false {OBJECT}")).await.good();
    let few = "False|TooFewPods|2 of 3 ready pods labelled app=nginx";
    kubectl.until_field(OBJECT, HEALTHY, few).await;
    let turned = "Warning Unhealthy 2 of 3 ready pods labelled app=nginx";
    until_events(&kubectl, "test-count", &[SYNCED, turned]).await;
    assert_eq!(kubectl.field(OBJECT, "{.status.healthy}").await, "false");
    assert_eq!(kubectl.field(OBJECT, "{.status.observed}").await, "2");

    kubectl
        .run("scale deployment/nginx --replicas=3")
        .await
        .good();
    kubectl.until_condition(OBJECT, "Healthy", "True").await;
    kubectl
        .run("scale deployment/nginx --replicas=4")
        .await
        .good();
    let many =
        "False|TooManyPods|4 ready pods labelled app=nginx, 1 more than the 3 that should exist";
    kubectl.until_field(OBJECT, HEALTHY, many).await;
    let again = kubectl.run(&format!("apply -f {SAMPLE}")).await;
    assert_eq!(again.good(), "count.demo.mark8s.io/test-count unchanged\n");
    let story = kubectl.run(&format!("describe {OBJECT}")).await.good();
    assert!(story.contains("Count synced successfully"), "{story}");
}

#[tokio::test]
async fn every_name_of_the_kind_is_accepted() {
    let kubectl = kubectl("count-names").await;
    let crd = "crd/counts.demo.mark8s.io";
    let accepted = "{.status.conditions[?(@.type==\"NamesAccepted\")].status}";
    assert_eq!(kubectl.field(crd, accepted).await, "True");
    let short = kubectl
        .field(crd, "{.status.acceptedNames.shortNames}")
        .await;
    assert_eq!(short, "[\"count\"]");
    kubectl.run(&format!("apply -f {SAMPLE}")).await.good();
    for name in ["count", "counts", "counts.demo.mark8s.io", "Count"] {
        let said = kubectl.run(&format!("get {name} test-count -o name")).await;
        assert_eq!(said.good(), "count.demo.mark8s.io/test-count\n", "{name}");
    }
}

#[tokio::test]
async fn a_pod_counts_once_by_either_label_while_it_is_ready_and_stays() {
    let kubectl = kubectl("count-labels").await;
    let elsewhere = crate::samples::kubectl("count-elsewhere").await;
    let counts = [
        count("web", "{name: web, count: 4}"),
        count("none", "{name: none, count: 0}"),
    ];
    kubectl.apply(&counts.join("\n---\n")).await.good();
    let none = "True|AsAsserted|0 of 0 ready pods labelled app=none";
    kubectl.until_field("count/none", HEALTHY, none).await;

    elsewhere.apply(&pod("far", "{app: web}")).await.good();
    // It never runs.
    let gated =
        pod("gated", "{app: web}").replace("spec: {", "spec: {schedulingGates: [{name: a/b}], ");
    let pods = [
        pod("app", "{app: web}"),
        pod("name", "{app.kubernetes.io/name: web}"),
        pod("both", "{app: web, app.kubernetes.io/name: web}"),
        pod("two", "{app: other, app.kubernetes.io/name: web}"),
        pod("other", "{app: other}"),
        gated,
    ];
    kubectl.apply(&pods.join("\n---\n")).await.good();
    elsewhere.until_condition("pod/far", "Ready", "True").await;
    kubectl
        .until_condition("count/web", "Healthy", "True")
        .await;

    // A pod that is being deleted does not count, although it is there and still ready.
    let hold =
        "patch pod both --type=merge -p {\"metadata\":{\"finalizers\":[\"example.com/hold\"]}}";
    kubectl.run(hold).await.good();
    kubectl.run("delete pod both --wait=false").await.good();
    let few = "False|TooFewPods|3 of 4 ready pods labelled app=web";
    kubectl.until_field("count/web", HEALTHY, few).await;
    kubectl
        .field("pod/both", "{.metadata.deletionTimestamp}")
        .await;
    let release = "patch pod both --type=merge -p {\"metadata\":{\"finalizers\":null}}";
    kubectl.run(release).await.good();
    kubectl.until_gone("pod/both").await;
    assert_eq!(kubectl.field("count/web", HEALTHY).await, few);

    // A label is removed, and another one added.
    kubectl.run("label pod app app-").await.good();
    let few = "False|TooFewPods|2 of 4 ready pods labelled app=web";
    kubectl.until_field("count/web", HEALTHY, few).await;
    kubectl.run("label pod app app=none").await.good();
    let many =
        "False|TooManyPods|1 ready pods labelled app=none, 1 more than the 0 that should exist";
    kubectl.until_field("count/none", HEALTHY, many).await;
}

#[tokio::test]
async fn another_name_or_number_is_another_assertion() {
    let kubectl = kubectl("count-change").await;
    let pods = ["a", "b-1", "b-2"];
    let yaml = pods.map(|name| pod(name, &format!("{{app: {}}}", &name[..1])));
    kubectl.apply(&yaml.join("\n---\n")).await.good();
    for name in pods {
        let pod = format!("pod/{name}");
        kubectl.until_condition(&pod, "Ready", "True").await;
    }
    kubectl
        .apply(&count("test-count", "{name: a, count: 1}"))
        .await
        .good();
    kubectl.until_condition(OBJECT, "Healthy", "True").await;

    kubectl
        .apply(&count("test-count", "{name: b, count: 1}"))
        .await
        .good();
    let more = "2 ready pods labelled app=b, 1 more than the 1 that should exist";
    let many = format!("False|TooManyPods|{more}");
    kubectl.until_field(OBJECT, HEALTHY, &many).await;
    assert_eq!(
        kubectl.field(OBJECT, "{.status.observedGeneration}").await,
        "2"
    );
    kubectl
        .apply(&count("test-count", "{name: b, count: 2}"))
        .await
        .good();
    kubectl.until_condition(OBJECT, "Healthy", "True").await;
    until_events(
        &kubectl,
        "test-count",
        &[SYNCED, &format!("Warning Unhealthy {more}")],
    )
    .await;

    // A pod that the spec no longer names, and a change that has nothing to do with readiness, cause no write.
    let version = async || kubectl.field(OBJECT, "{.metadata.resourceVersion}").await;
    let before = version().await;
    kubectl.run("delete pod a --now").await.good();
    kubectl.until_gone("pod/a").await;
    kubectl.run("annotate pod b-1 touched=yes").await.good();
    kubectl
        .apply(&count("barrier", "{name: b, count: 2}"))
        .await
        .good();
    kubectl
        .until_condition("count/barrier", "Healthy", "True")
        .await;
    assert_eq!(version().await, before);
}

#[tokio::test]
async fn bad_counts_are_rejected_with_every_fault() {
    let kubectl = kubectl("count-bad").await;
    let rejected = async |spec: &str| kubectl.apply(&count("bad", spec)).await.bad();
    let least = "Invalid value: -1: must be greater than or equal to 0";
    assert_eq!(
        rejected("{name: nginx, count: -1}").await,
        format!("The Count \"bad\" is invalid: spec.count: {least}\n")
    );
    assert_eq!(
        rejected("{name: nginx, count: 2147483648}").await,
        "The Count \"bad\" is invalid: spec.count: Invalid value: 2147483648: must be less than or equal to 2147483647\n"
    );
    assert_eq!(
        rejected("{}").await,
        "The Count \"bad\" is invalid: \n\
         * spec.name: Required value: name is required\n\
         * spec.count: Required value: count is required\n"
    );
    let long = "-".repeat(64);
    let text = rejected(&format!("{{name: '{long}', count: -1}}")).await;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    for (line, start) in lines.iter().zip([
        "The Count \"bad\" is invalid: ".to_owned(),
        format!("* spec.name: Invalid value: \"{long}\": must be no more than 63 characters"),
        format!("* spec.name: Invalid value: \"{long}\": a valid label must be an empty string or consist"),
        format!("* spec.count: {least}"),
    ]) {
        assert!(line.starts_with(&start), "{text}");
    }
    // The schema rejects other types, before any webhook is called.
    let text = rejected("{name: 5, count: x}").await;
    for fault in [
        "spec.name: Invalid value: \"integer\": spec.name in body must be of type string: \"integer\"",
        "spec.count: Invalid value: \"string\": spec.count in body must be of type integer: \"string\"",
    ] {
        assert!(text.contains(fault), "{text}");
    }
    assert!(kubectl.names("counts").await.is_empty());
}

#[tokio::test]
async fn a_burst_of_pods_is_written_a_few_times() {
    const PODS: usize = 100;
    let kubectl = kubectl("count-burst").await;
    let client = harness::client(environment().await.cluster).await;
    let counts: Api<Count> = Api::namespaced(client, &kubectl.namespace);
    let spec = format!("{{name: nginx, count: {PODS}}}");
    kubectl.apply(&count("test-count", &spec)).await.good();
    let few = format!("False|TooFewPods|0 of {PODS} ready pods labelled app=nginx");
    kubectl.until_field(OBJECT, HEALTHY, &few).await;

    let record = Record::start(counts).await;
    let start = Instant::now();
    let create = format!("create deployment nginx --image=nginx:1.29 --replicas={PODS}");
    kubectl.run(&create).await.good();
    kubectl.until_condition(OBJECT, "Healthy", "True").await;
    kubectl.run("rollout restart deployment/nginx").await.good();
    kubectl
        .run("rollout status deployment/nginx --timeout=90s")
        .await
        .good();
    kubectl.until_condition(OBJECT, "Healthy", "True").await;
    let took = start.elapsed().as_secs();
    let last = kubectl.field(OBJECT, "{.metadata.resourceVersion}").await;
    record.reach(last.parse().unwrap()).await;
    // The first is the object as it was.
    let writes = record.look(|events| events.len() as u64) - 1;
    assert!(writes > 0, "it became healthy unseen");
    assert!(
        writes <= took + 1,
        "{writes} writes of a status in {took} s, for {PODS} pods made and replaced"
    );
}
