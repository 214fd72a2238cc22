//! Counts, as a person would try them.

use std::time::Instant;

use kube::Api;
use my_operator::kinds::count::crd::Count;

use crate::harness::record::Record;
use crate::harness::{self, Kubectl, PATIENCE, try_wait};
use crate::{environment, kubectl};

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

/// What condition Healthy of a Count says: status, reason and message.
fn healthy(kubectl: &Kubectl, object: &str) -> String {
    let of = ".status.conditions[?(@.type==\"Healthy\")]";
    let fields = ["status", "reason", "message"].map(|field| format!("{{{of}.{field}}}"));
    kubectl.field(object, &fields.join("|"))
}

async fn until_healthy_says(kubectl: &Kubectl, object: &str, text: &str) {
    let reached = try_wait(PATIENCE, || {
        (healthy(kubectl, object) == text).then_some(())
    });
    let reached = reached.await.is_some();
    let found = healthy(kubectl, object);
    assert!(reached, "{object} does not say {text:?} but {found:?}");
}

/// Waits until exactly these Events of a Count have been told.
async fn until_told(kubectl: &Kubectl, name: &str, told: &[&str]) {
    let get = format!(
        "get events --field-selector=involvedObject.name={name} --sort-by=.metadata.name \
         --no-headers -o custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message"
    );
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let events = || -> Vec<String> {
        let table = kubectl.run(&get).good();
        table.lines().map(words).collect()
    };
    let reached = try_wait(PATIENCE, || (events() == told).then_some(()));
    let reached = reached.await.is_some();
    assert!(reached, "not {told:?} but {:?}", events());
}

#[tokio::test]
async fn a_count_says_whether_a_deployment_has_its_pods() {
    let kubectl = kubectl("count-transcript").await;
    let said = kubectl.run(&format!("apply -f {SAMPLE}"));
    assert_eq!(said.good(), "count.demo.mark8s.io/test-count created\n");
    let few = "False|TooFewPods|0 of 3 ready pods labelled app=nginx";
    until_healthy_says(&kubectl, OBJECT, few).await;
    until_told(&kubectl, "test-count", &[SYNCED]).await;

    let create = "create deployment nginx --image=nginx:1.29 --replicas=3";
    kubectl.run(create).good();
    let wait = "wait --timeout=90s --for=condition=Healthy";
    kubectl.run(&format!("{wait} {OBJECT}")).good();
    let table = kubectl.run("get count").good();
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
    assert_eq!(healthy(&kubectl, OBJECT), is_so);
    // The second tells of the turn, and is counted as one of the same series.
    until_told(&kubectl, "test-count", &[SYNCED]).await;

    kubectl.run("scale deployment/nginx --replicas=2").good();
    kubectl.run(&format!("{wait}=false {OBJECT}")).good();
    until_healthy_says(
        &kubectl,
        OBJECT,
        "False|TooFewPods|2 of 3 ready pods labelled app=nginx",
    )
    .await;
    let turned = "Warning Unhealthy 2 of 3 ready pods labelled app=nginx";
    until_told(&kubectl, "test-count", &[SYNCED, turned]).await;
    assert_eq!(kubectl.field(OBJECT, "{.status.healthy}"), "false");
    assert_eq!(kubectl.field(OBJECT, "{.status.observed}"), "2");

    kubectl.run("scale deployment/nginx --replicas=3").good();
    kubectl.run(&format!("{wait} {OBJECT}")).good();
    kubectl.run("scale deployment/nginx --replicas=4").good();
    until_healthy_says(
        &kubectl,
        OBJECT,
        "False|TooManyPods|4 ready pods labelled app=nginx, 1 more than the 3 that should exist",
    )
    .await;
    let again = kubectl.run(&format!("apply -f {SAMPLE}"));
    assert_eq!(again.good(), "count.demo.mark8s.io/test-count unchanged\n");
    let story = kubectl.run(&format!("describe {OBJECT}")).good();
    assert!(story.contains("Count synced successfully"), "{story}");
}

#[tokio::test]
async fn every_name_of_the_kind_is_accepted() {
    let kubectl = kubectl("count-names").await;
    let crd = "crd/counts.demo.mark8s.io";
    let accepted = "{.status.conditions[?(@.type==\"NamesAccepted\")].status}";
    assert_eq!(kubectl.field(crd, accepted), "True");
    let short = kubectl.field(crd, "{.status.acceptedNames.shortNames}");
    assert_eq!(short, "[\"count\"]");
    kubectl.run(&format!("apply -f {SAMPLE}")).good();
    for name in ["count", "counts", "counts.demo.mark8s.io", "Count"] {
        let said = kubectl.run(&format!("get {name} test-count -o name"));
        assert_eq!(said.good(), "count.demo.mark8s.io/test-count\n", "{name}");
    }
}

#[tokio::test]
async fn a_pod_counts_once_by_either_label_while_it_is_ready_and_stays() {
    let kubectl = kubectl("count-labels").await;
    let elsewhere = crate::kubectl("count-elsewhere").await;
    kubectl.apply(&count("web", "{name: web, count: 4}")).good();
    kubectl
        .apply(&count("none", "{name: none, count: 0}"))
        .good();
    kubectl
        .run("wait --timeout=90s --for=condition=Healthy count/none")
        .good();
    let none = "True|AsAsserted|0 of 0 ready pods labelled app=none";
    assert_eq!(healthy(&kubectl, "count/none"), none);

    elsewhere.apply(&pod("far", "{app: web}")).good();
    for (name, labels) in [
        ("app", "{app: web}"),
        ("name", "{app.kubernetes.io/name: web}"),
        ("both", "{app: web, app.kubernetes.io/name: web}"),
        ("two", "{app: other, app.kubernetes.io/name: web}"),
        ("other", "{app: other}"),
    ] {
        kubectl.apply(&pod(name, labels)).good();
    }
    // It never runs.
    let gated =
        pod("gated", "{app: web}").replace("spec: {", "spec: {schedulingGates: [{name: a/b}], ");
    kubectl.apply(&gated).good();
    elsewhere
        .run("wait --timeout=90s --for=condition=Ready pod/far")
        .good();
    kubectl
        .run("wait --timeout=90s --for=condition=Healthy count/web")
        .good();

    // One that is being deleted counts no more, though it is there and still ready.
    let hold =
        "patch pod both --type=merge -p {\"metadata\":{\"finalizers\":[\"example.com/hold\"]}}";
    kubectl.run(hold).good();
    kubectl.run("delete pod both --wait=false").good();
    let few = "False|TooFewPods|3 of 4 ready pods labelled app=web";
    until_healthy_says(&kubectl, "count/web", few).await;
    let leaving = kubectl.field("pod/both", "{.metadata.deletionTimestamp}");
    assert!(!leaving.is_empty(), "it is gone already");
    let release = "patch pod both --type=merge -p {\"metadata\":{\"finalizers\":null}}";
    kubectl.run(release).good();
    kubectl.until_gone("pod/both").await;
    assert_eq!(healthy(&kubectl, "count/web"), few);

    // A label taken away or given.
    kubectl.run("label pod app app-").good();
    until_healthy_says(
        &kubectl,
        "count/web",
        "False|TooFewPods|2 of 4 ready pods labelled app=web",
    )
    .await;
    kubectl.run("label pod app app=none").good();
    until_healthy_says(
        &kubectl,
        "count/none",
        "False|TooManyPods|1 ready pods labelled app=none, 1 more than the 0 that should exist",
    )
    .await;
}

#[tokio::test]
async fn another_name_or_number_is_another_assertion() {
    let kubectl = kubectl("count-change").await;
    for name in ["a", "b-1", "b-2"] {
        let app = &name[..1];
        kubectl.apply(&pod(name, &format!("{{app: {app}}}"))).good();
    }
    kubectl
        .run("wait --timeout=90s --for=condition=Ready pod --all")
        .good();
    kubectl
        .apply(&count("test-count", "{name: a, count: 1}"))
        .good();
    let wait = "wait --timeout=90s --for=condition=Healthy";
    kubectl.run(&format!("{wait} {OBJECT}")).good();

    kubectl
        .apply(&count("test-count", "{name: b, count: 1}"))
        .good();
    let more = "2 ready pods labelled app=b, 1 more than the 1 that should exist";
    until_healthy_says(&kubectl, OBJECT, &format!("False|TooManyPods|{more}")).await;
    assert_eq!(kubectl.field(OBJECT, "{.status.observedGeneration}"), "2");
    kubectl
        .apply(&count("test-count", "{name: b, count: 2}"))
        .good();
    kubectl.run(&format!("{wait} {OBJECT}")).good();
    until_told(
        &kubectl,
        "test-count",
        &[SYNCED, &format!("Warning Unhealthy {more}")],
    )
    .await;

    // A pod that it names no more, and what is no matter of readiness, write nothing.
    let version = || kubectl.field(OBJECT, "{.metadata.resourceVersion}");
    let before = version();
    kubectl.run("delete pod a --now").good();
    kubectl.until_gone("pod/a").await;
    kubectl.run("annotate pod b-1 touched=yes").good();
    kubectl
        .apply(&count("barrier", "{name: b, count: 2}"))
        .good();
    kubectl.run(&format!("{wait} count/barrier")).good();
    assert_eq!(version(), before);
}

#[tokio::test]
async fn bad_counts_are_refused_with_every_fault() {
    let kubectl = kubectl("count-bad").await;
    let refused = |spec: &str| kubectl.apply(&count("bad", spec)).bad();
    let least = "Invalid value: -1: must be greater than or equal to 0";
    assert_eq!(
        refused("{name: nginx, count: -1}"),
        format!("The Count \"bad\" is invalid: spec.count: {least}\n")
    );
    assert_eq!(
        refused("{name: nginx, count: 2147483648}"),
        "The Count \"bad\" is invalid: spec.count: Invalid value: 2147483648: must be less than or equal to 2147483647\n"
    );
    assert_eq!(
        refused("{}"),
        "The Count \"bad\" is invalid: \n\
         * spec.name: Required value: name is required\n\
         * spec.count: Required value: count is required\n"
    );
    let long = "-".repeat(64);
    let text = refused(&format!("{{name: '{long}', count: -1}}"));
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
    // Another type is the schema's to refuse, before any webhook is asked.
    let text = refused("{name: 5, count: x}");
    for fault in [
        "spec.name: Invalid value: \"integer\": spec.name in body must be of type string: \"integer\"",
        "spec.count: Invalid value: \"string\": spec.count in body must be of type integer: \"string\"",
    ] {
        assert!(text.contains(fault), "{text}");
    }
    assert_eq!(kubectl.run("get counts -o name").good(), "");
}

#[tokio::test]
async fn a_burst_of_pods_is_written_a_few_times() {
    const PODS: usize = 100;
    let kubectl = kubectl("count-burst").await;
    let client = harness::client(environment().await.cluster).await;
    let counts: Api<Count> = Api::namespaced(client, &kubectl.namespace);
    let spec = format!("{{name: nginx, count: {PODS}}}");
    kubectl.apply(&count("test-count", &spec)).good();
    let few = format!("False|TooFewPods|0 of {PODS} ready pods labelled app=nginx");
    until_healthy_says(&kubectl, OBJECT, &few).await;

    let record = Record::start(counts).await;
    let start = Instant::now();
    let create = format!("create deployment nginx --image=nginx:1.29 --replicas={PODS}");
    kubectl.run(&create).good();
    let wait = "wait --timeout=90s --for=condition=Healthy";
    kubectl.run(&format!("{wait} {OBJECT}")).good();
    kubectl.run("rollout restart deployment/nginx").good();
    kubectl
        .run("rollout status deployment/nginx --timeout=90s")
        .good();
    kubectl.run(&format!("{wait} {OBJECT}")).good();
    let took = start.elapsed().as_secs();
    let last = kubectl.field(OBJECT, "{.metadata.resourceVersion}");
    record.reach(last.parse().unwrap()).await;
    // The first is the object as it was.
    let writes = record.look(|events| events.len() as u64) - 1;
    assert!(writes > 0, "it became healthy unseen");
    assert!(
        writes <= took + 1,
        "{writes} writes of a status in {took} s, for {PODS} pods made and replaced"
    );
}
