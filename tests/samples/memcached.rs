//! Memcached as a user sees it.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::policies::Policy;
use crate::harness::{Kubectl, Said, wait_for};
use crate::kubectl;

const DEGRADED: &str = "{.status.conditions[?(@.type==\"Degraded\")].reason}";
const MESSAGE: &str = "{.status.conditions[?(@.type==\"Degraded\")].message}";

/// What is ours in a Deployment and a hand could change: replicas, image, command, ports, labels, owner.
const OURS: &str = concat!(
    "{.spec.replicas};",
    "{.spec.template.spec.containers[?(@.name==\"memcached\")].image};",
    "{.spec.template.spec.containers[?(@.name==\"memcached\")].command};",
    "{.spec.template.spec.containers[?(@.name==\"memcached\")].ports};",
    "{.metadata.labels};",
    "{.spec.selector.matchLabels};",
    "{.spec.template.metadata.labels};",
    "{.metadata.ownerReferences[*].name}",
);

fn memcached(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {{name: {name}}}, spec: {spec}}}"
    )
}

/// What [`OURS`] is for a Memcached that was given nothing but a size.
fn ours(name: &str, size: u32) -> String {
    let own = format!("\"app\":\"memcached\",\"memcached_cr\":\"{name}\"");
    format!(
        "{size};memcached:1.4.36-alpine;[\"memcached\",\"-m=64\",\"-o\",\"modern\",\"-v\"];\
         [{{\"containerPort\":11211,\"name\":\"memcached\",\"protocol\":\"TCP\"}}];\
         {{\"app\":\"memcached\",\"app.kubernetes.io/component\":\"memcached\",\
         \"app.kubernetes.io/managed-by\":\"my-operator\",\"memcached_cr\":\"{name}\"}};\
         {{{own}}};{{{own}}};{name}"
    )
}

/// Waits for an Event with that reason about an object; returns its note.
async fn event(kubectl: &Kubectl, name: &str, reason: &str) -> String {
    let get = format!(
        "get events --field-selector involvedObject.kind=Memcached,involvedObject.name={name},reason={reason} \
         -o jsonpath={{.items[*].type}}:{{.items[*].message}}"
    );
    wait_for(&format!("an Event {reason} about {name}"), || {
        let said = kubectl.run(&get).good();
        (said != ":").then_some(said)
    })
    .await
}

/// Makes a Memcached of that size and waits until all its servers are ready.
async fn ready(kubectl: &Kubectl, name: &str, size: u32) {
    kubectl
        .apply(&memcached(name, &format!("{{size: {size}}}")))
        .good();
    until_ready(kubectl, name, size).await;
}

async fn until_ready(kubectl: &Kubectl, name: &str, size: u32) {
    let object = format!("memcached/{name}");
    let ready = "{.status.readyReplicas}";
    kubectl.until_field(&object, ready, &size.to_string()).await;
}

#[tokio::test]
async fn three_servers_come_and_become_five() {
    let kubectl = kubectl("memcached-transcript").await;
    let sample = "config/samples/sample-kinds/cache_v1alpha1_memcached.yaml";
    let said = kubectl.run(&format!("apply -f {sample}")).good();
    assert_eq!(
        said,
        "memcached.cache.example.com/memcached-sample created\n"
    );
    let object = "memcached/memcached-sample";
    kubectl
        .run(&format!(
            "wait --for=condition=Available --timeout=90s {object}"
        ))
        .good();
    until_ready(&kubectl, "memcached-sample", 3).await;
    let table = kubectl.run("get deployment memcached-sample").good();
    assert!(table.contains("3/3"), "{table}");
    let deployment = "deployment/memcached-sample";
    let found = kubectl.field(deployment, OURS);
    assert_eq!(found, ours("memcached-sample", 3));
    assert_eq!(
        kubectl.field(deployment, "{.metadata.ownerReferences[0].controller}"),
        "true"
    );
    let image = kubectl.field(object, "{.spec.image};{.spec.memory}");
    assert_eq!(image, "memcached:1.4.36-alpine;");

    // Its pods are named, sorted.
    let pods = kubectl.run("get pods -o jsonpath={.items[*].metadata.name}");
    let mut pods: Vec<String> = pods.good().split(' ').map(str::to_owned).collect();
    pods.sort_unstable();
    assert_eq!(pods.len(), 3);
    let names = pods.join(" ");
    kubectl
        .until_field(object, "{.status.nodes[*]}", &names)
        .await;
    let table = kubectl.run("get memcached").good();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NAME", "SIZE", "READY", "AVAILABLE", "AGE"]);
    assert_eq!(row[..4], ["memcached-sample", "3", "3", "True"]);

    // Nothing changed: nothing is written.
    let again = kubectl.run(&format!("apply -f {sample}")).good();
    assert_eq!(
        again,
        "memcached.cache.example.com/memcached-sample unchanged\n"
    );
    let patch = "patch memcached/memcached-sample --type=merge -p {\"spec\":{\"size\":5}}";
    kubectl.run(patch).good();
    kubectl
        .run(&format!(
            "wait --for=condition=Progressing=False --timeout=90s {object}"
        ))
        .good();
    let table = kubectl.run("get deployment memcached-sample").good();
    assert!(table.contains("5/5"), "{table}");
    let note = event(&kubectl, "memcached-sample", "Created").await;
    assert_eq!(note, "Normal:created Deployment memcached-sample");
    let note = event(&kubectl, "memcached-sample", "Scaled").await;
    assert_eq!(note, "Normal:from 3 to 5 servers");

    kubectl.run(&format!("delete {object}")).good();
    kubectl.until_gone("deployments").await;
    kubectl.until_gone("pods").await;
}

#[tokio::test]
async fn it_is_scaled_as_a_deployment_is() {
    let kubectl = kubectl("memcached-scale").await;
    ready(&kubectl, "x", 1).await;
    for size in [5, 2, 0, 1] {
        let said = kubectl.run(&format!("scale memcached/x --replicas={size}"));
        assert_eq!(said.good(), "memcached.cache.example.com/x scaled\n");
        until_ready(&kubectl, "x", size).await;
        let pods = "{.status.nodes}";
        wait_for("as many names", || {
            let names: Vec<String> =
                serde_json::from_str(&kubectl.field("memcached/x", pods)).ok()?;
            (names.len() == size as usize).then_some(())
        })
        .await;
        let wait = "wait --for=condition=Available --timeout=90s memcached/x";
        kubectl.run(wait).good();
    }
    // What a HorizontalPodAutoscaler reads.
    let path = format!(
        "/apis/cache.example.com/v1alpha1/namespaces/{}/memcacheds/x/scale",
        kubectl.namespace
    );
    let scale = kubectl.run(&format!("get --raw {path}")).good();
    let scale: Value = serde_json::from_str(&scale).unwrap();
    assert_eq!(scale["spec"]["replicas"], 1);
    assert_eq!(scale["status"]["replicas"], 1);
    let selector = "app=memcached,memcached_cr=x";
    assert_eq!(scale["status"]["selector"], selector);
    only_pod(&kubectl, selector).await;
}

/// The built-in controller, which reads and writes the scale subresource. It needs no figures of any pod
/// to keep to its own bounds.
#[tokio::test]
async fn a_horizontal_pod_autoscaler_scales_it() {
    let kubectl = kubectl("memcached-autoscaler").await;
    ready(&kubectl, "x", 1).await;
    let autoscaler = |least: u32, most: u32| {
        let target = "{apiVersion: cache.example.com/v1alpha1, kind: Memcached, name: x}";
        format!(
            "{{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {{name: x}}, \
             spec: {{scaleTargetRef: {target}, minReplicas: {least}, maxReplicas: {most}}}}}"
        )
    };
    kubectl.apply(&autoscaler(3, 4)).good();
    until_ready(&kubectl, "x", 3).await;
    kubectl.apply(&autoscaler(1, 2)).good();
    until_ready(&kubectl, "x", 2).await;
    let able = "wait --for=condition=AbleToScale --timeout=90s hpa/x";
    kubectl.run(able).good();
}

/// The one pod with these labels, when those that are on their way out are gone.
async fn only_pod(kubectl: &Kubectl, selector: &str) -> String {
    wait_for("one pod", || {
        let pods = kubectl
            .run(&format!("get pods -l {selector} -o name"))
            .good();
        (pods.lines().count() == 1).then_some(pods)
    })
    .await
}

#[tokio::test]
async fn bad_sizes_and_names_are_refused() {
    let kubectl = kubectl("memcached-bad").await;
    let apply = |spec: &str| kubectl.apply(&memcached("x", spec));
    kubectl.apply(&memcached("good", "{size: 0}")).good();
    kubectl
        .until_field("deployment/good", "{.spec.replicas}", "0")
        .await;
    let wait = "wait --for=condition=Available --timeout=90s memcached/good";
    kubectl.run(wait).good();

    for (spec, words) in [
        (
            "{size: -1}",
            "spec.size in body should be greater than or equal to 0",
        ),
        (
            "{size: 2147483648}",
            "spec.size in body should be less than or equal to 2147483647",
        ),
        ("{size: 1.5}", "spec.size"),
        ("{size: '3'}", "spec.size"),
        ("{}", "spec.size: Required value"),
        ("{size: null}", "spec.size: Required value"),
        (
            "{size: 1, memory: 1}",
            "spec.memory: Invalid value: 1: must be between 2 and 1048576 (MiB), inclusive",
        ),
        ("{size: 1, memory: 64Mi}", "spec.memory"),
    ] {
        let text = apply(spec).bad();
        assert!(text.contains(words), "{spec}: {text}");
    }
    // As the API's own fields are: all faults at once.
    let text = apply("{image: A b, memory: 0}").bad();
    assert_eq!(text.matches("\n* ").count(), 3, "{text}");

    // Scale goes past the webhooks.
    let scale = |replicas: &str| {
        let patch = format!("{{\"spec\":{{\"replicas\":{replicas}}}}}");
        kubectl.run(&format!(
            "patch memcached/good --subresource=scale --type=merge -p {patch}"
        ))
    };
    for replicas in ["-1", "2147483648", "1.5", "\"1\""] {
        scale(replicas).bad();
    }
    for replicas in ["-1", "2147483648"] {
        let said: Said = kubectl.run(&format!("scale memcached/good --replicas={replicas}"));
        said.bad();
    }
    assert_eq!(kubectl.field("memcached/good", "{.spec.size}"), "0");

    for length in [64, 253] {
        let name = "x".repeat(length);
        let text = kubectl.apply(&memcached(&name, "{size: 1}")).bad();
        let words = "metadata.name: Too long: may not be more than 63 bytes";
        assert!(text.contains(words), "{text}");
    }
    // Longer than any object's name: the API server's own answer.
    kubectl
        .apply(&memcached(&"x".repeat(300), "{size: 1}"))
        .bad();
    let names = kubectl.run("get memcached,deployments -o name").good();
    assert_eq!(names.lines().count(), 2, "{names}");
    // The longest name, and one with a dot.
    let longest = "x".repeat(63);
    for name in [longest.as_str(), "a.b-c"] {
        ready(&kubectl, name, 1).await;
        let deployment = format!("deployment/{name}");
        assert_eq!(kubectl.field(&deployment, OURS), ours(name, 1));
    }
}

#[tokio::test]
async fn what_others_change_of_ours_is_put_back_and_what_is_theirs_stays() {
    let kubectl = kubectl("memcached-drift").await;
    ready(&kubectl, "x", 2).await;
    let uid = kubectl.field("deployment/x", "{.metadata.uid}");
    // Another operator's fields, beside ours.
    let theirs = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, annotations: {theirs: kept}}, \
        spec: {minReadySeconds: 1, template: {metadata: {annotations: {theirs: kept}}, spec: {\
        terminationGracePeriodSeconds: 7, containers: [\
        {name: memcached, resources: {limits: {memory: 80Mi}}}, {name: sidecar, image: 'exporter:1'}]}}}}";

    let apply = "apply --server-side --field-manager=theirs -f -";
    kubectl.with(apply, theirs).good();

    let expected = ours("x", 2);
    let container = "/spec/template/spec/containers/0";
    let forced = "apply --server-side --force-conflicts --field-manager=writer -f -";
    let all = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, labels: {app: other}}, \
        spec: {replicas: 1, template: {spec: {containers: [{name: memcached, image: 'other:1', \
        command: [sleep], ports: [{containerPort: 11211, protocol: TCP, name: other}]}]}}}}";
    let json = |patch: &str| format!("patch deployment/x --type=json -p {patch}");
    for (drift, input) in [
        ("scale deployment/x --replicas=7".to_owned(), ""),
        ("set image deployment/x memcached=other:1".to_owned(), ""),
        (
            json(&format!(
                "[{{\"op\":\"replace\",\"path\":\"{container}/ports/0/containerPort\",\"value\":11999}}]"
            )),
            "",
        ),
        (
            json(&format!(
                "[{{\"op\":\"remove\",\"path\":\"{container}/command\"}},\
                 {{\"op\":\"remove\",\"path\":\"{container}/ports\"}}]"
            )),
            "",
        ),
        (
            "label deployment/x --overwrite app=other memcached_cr- app.kubernetes.io/managed-by-"
                .to_owned(),
            "",
        ),
        (
            json("[{\"op\":\"remove\",\"path\":\"/metadata/ownerReferences\"}]"),
            "",
        ),
        (forced.to_owned(), all),
    ] {
        kubectl.with(&drift, input).good();
        kubectl.until_field("deployment/x", OURS, &expected).await;
        kubectl
            .until_field("memcached/x", DEGRADED, "AsDesired")
            .await;
    }
    let note = event(&kubectl, "x", "Restored").await;
    assert!(note.starts_with("Normal:"), "{note}");

    let kept = concat!(
        "{.metadata.annotations.theirs};{.spec.minReadySeconds};{.spec.template.metadata.annotations.theirs};",
        "{.spec.template.spec.terminationGracePeriodSeconds};",
        "{.spec.template.spec.containers[0].resources.limits.memory};{.spec.template.spec.containers[1].image}",
    );
    assert_eq!(
        kubectl.field("deployment/x", kept),
        "kept;1;kept;7;80Mi;exporter:1"
    );
    assert_eq!(kubectl.field("deployment/x", "{.metadata.uid}"), uid);
    until_ready(&kubectl, "x", 2).await;
}

#[tokio::test]
async fn what_the_spec_asked_for_and_asks_for_no_more_goes() {
    let kubectl = kubectl("memcached-unset").await;
    ready(&kubectl, "x", 1).await;
    let run =
        "{.spec.template.spec.containers[*].image};{.spec.template.spec.containers[*].command}";
    let usual = "memcached:1.4.36-alpine;[\"memcached\",\"-m=64\",\"-o\",\"modern\",\"-v\"]";
    for (spec, expected) in [
        (
            "{size: 1, memory: 128}",
            "memcached:1.4.36-alpine;[\"memcached\",\"-m\",\"128\",\"-o\",\"modern\",\"-v\"]",
        ),
        ("{size: 1}", usual),
        (
            "{size: 1, image: 'memcached:1.6'}",
            "memcached:1.6;[\"memcached\",\"-m\",\"64\",\"-o\",\"modern\",\"-v\"]",
        ),
        ("{size: 1}", usual),
    ] {
        kubectl.apply(&memcached("x", spec)).good();
        kubectl.until_field("deployment/x", run, expected).await;
        kubectl
            .run("wait --for=condition=Progressing=False --timeout=90s memcached/x")
            .good();
        wait_for("its pods to be those in its status", || {
            let pods = "get pods -l memcached_cr=x -o jsonpath={.items[*].metadata.name}";
            let pods = kubectl.run(pods).good();
            (kubectl.field("memcached/x", "{.status.nodes[*]}") == pods).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_deployment_that_is_deleted_is_made_again_and_an_orphan_is_taken_back() {
    let kubectl = kubectl("memcached-gone").await;
    ready(&kubectl, "x", 1).await;
    let uid = |kubectl: &Kubectl| kubectl.field("deployment/x", "{.metadata.uid}");
    let first = uid(&kubectl);
    kubectl.run("delete deployment/x").good();
    wait_for("another Deployment", || {
        let now = uid(&kubectl);
        (!now.is_empty() && now != first).then_some(())
    })
    .await;
    kubectl
        .until_field("deployment/x", OURS, &ours("x", 1))
        .await;
    until_ready(&kubectl, "x", 1).await;

    let kept = uid(&kubectl);
    let pod = only_pod(&kubectl, "memcached_cr=x").await;
    kubectl.run("delete memcached/x --cascade=orphan").good();
    kubectl
        .until_field("deployment/x", "{.metadata.ownerReferences}", "")
        .await;
    kubectl.apply(&memcached("x", "{size: 1}")).good();
    kubectl
        .until_field("deployment/x", OURS, &ours("x", 1))
        .await;
    assert_eq!(uid(&kubectl), kept);
    until_ready(&kubectl, "x", 1).await;
    assert_eq!(only_pod(&kubectl, "memcached_cr=x").await, pod);
    let owner = kubectl.field("deployment/x", "{.metadata.ownerReferences[*].uid}");
    assert_eq!(owner, kubectl.field("memcached/x", "{.metadata.uid}"));
}

#[tokio::test]
async fn a_deployment_of_somebody_else_is_left_alone_until_it_goes() {
    let kubectl = kubectl("memcached-foreign").await;
    kubectl
        .run("create deployment x --image=nginx:1 --replicas=1")
        .good();
    // One that has its own is not disturbed.
    ready(&kubectl, "other", 1).await;
    let before = kubectl.deployment_at_rest("x").await;

    kubectl.apply(&memcached("x", "{size: 2}")).good();
    kubectl
        .until_field("memcached/x", DEGRADED, "DeploymentExists")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE);
    assert!(message.contains("Deployment \"x\" exists"), "{message}");
    let note = event(&kubectl, "x", "DeploymentExists").await;
    assert!(
        note.starts_with("Warning:Deployment \"x\" exists"),
        "{note}"
    );
    let states = "{.status.conditions[?(@.type==\"Available\")].status};\
        {.status.conditions[?(@.type==\"Progressing\")].reason};{.status.readyReplicas};{.status.nodes}";
    assert_eq!(kubectl.field("memcached/x", states), "False;Blocked;0;[]");
    // A change of the spec is another attempt.
    kubectl.apply(&memcached("x", "{size: 3}")).good();
    let seen = "{.status.observedGeneration}";
    kubectl.until_field("memcached/x", seen, "2").await;
    let after = kubectl.run("get deployment/x -o yaml").good();
    assert_eq!(after, before);

    kubectl.run("delete deployment/x").good();
    kubectl
        .until_field("deployment/x", OURS, &ours("x", 3))
        .await;
    until_ready(&kubectl, "x", 3).await;
    kubectl
        .until_field("memcached/x", DEGRADED, "AsDesired")
        .await;
}

#[tokio::test]
async fn a_quota_that_refuses_is_named_and_all_is_well_when_it_is_lifted() {
    let kubectl = kubectl("memcached-quota").await;
    let quota = |name: &str, what: &str| {
        format!(
            "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: {name}}}, spec: {{hard: {{{what}: '0'}}}}}}"
        )
    };
    // No Deployment.
    kubectl
        .apply(&quota("none", "count/deployments.apps"))
        .good();
    kubectl
        .until_refused("create deployment probe --image=probe:1", "exceeded quota")
        .await;
    kubectl.apply(&memcached("x", "{size: 1}")).good();
    kubectl
        .until_field("memcached/x", DEGRADED, "Refused")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE);
    assert!(message.contains("exceeded quota"), "{message}");
    let note = event(&kubectl, "x", "Refused").await;
    assert!(
        note.starts_with("Warning:") && note.contains("exceeded quota"),
        "{note}"
    );
    kubectl.run("delete resourcequota/none").good();
    until_ready(&kubectl, "x", 1).await;
    kubectl
        .until_field("memcached/x", DEGRADED, "AsDesired")
        .await;

    // A Deployment, and no pods: its own words.
    kubectl.apply(&quota("empty", "pods")).good();
    kubectl
        .until_refused("run probe --image=probe:1", "exceeded quota: empty")
        .await;
    kubectl.run("scale memcached/x --replicas=2").good();
    kubectl
        .until_field("memcached/x", DEGRADED, "ReplicaFailure")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE);
    assert!(message.contains("exceeded quota"), "{message}");
    let note = event(&kubectl, "x", "ReplicaFailure").await;
    assert!(note.starts_with("Warning:"), "{note}");
    kubectl.run("delete resourcequota/empty").good();
    // The built-in controller waits long before it tries again; a new spec is another reason to.
    kubectl.run("scale memcached/x --replicas=3").good();
    until_ready(&kubectl, "x", 3).await;
    kubectl
        .until_field("memcached/x", DEGRADED, "AsDesired")
        .await;
}

#[tokio::test]
async fn what_a_policy_refuses_costs_nobody_a_port() {
    let kubectl = kubectl("memcached-policy").await;
    ready(&kubectl, "x", 1).await;
    let metrics = "{\"name\":\"metrics\",\"containerPort\":9150}";
    let patch = format!(
        "patch deployment/x -p {{\"spec\":{{\"template\":{{\"spec\":{{\"containers\":[{{\"name\":\"memcached\",\"ports\":[{metrics}]}}]}}}}}}}}"
    );
    kubectl.run(&patch).good();
    let policy = Policy::deny(
        &kubectl,
        "UPDATE",
        "deployments",
        "object.spec.replicas > 2",
    )
    .await;
    let generation = kubectl.field("deployment/x", "{.metadata.generation}");
    kubectl.run("scale memcached/x --replicas=3").good();
    kubectl
        .until_field("memcached/x", DEGRADED, "Refused")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE);
    assert!(message.contains("held back by a test"), "{message}");
    let now = kubectl.field("deployment/x", "{.metadata.generation}");
    assert_eq!(now, generation, "the Deployment was changed");
    drop(policy);
    until_ready(&kubectl, "x", 3).await;
    let ports = "{.spec.template.spec.containers[0].ports[*].name}";
    assert_eq!(kubectl.field("deployment/x", ports), "metrics memcached");
}

#[tokio::test]
async fn who_writes_against_it_all_the_time_is_named_and_the_status_stays_true() {
    let kubectl = kubectl("memcached-contested").await;
    ready(&kubectl, "x", 1).await;
    // Without the label no watch has the Deployment any more.
    let label = "app.kubernetes.io/managed-by";
    let rival = || {
        let change = format!("label deployment/x {label}=Helm --overwrite");
        kubectl.run(&change).good();
    };
    wait_for("the contest to be told", || {
        rival();
        (kubectl.field("memcached/x", DEGRADED) == "Contested").then_some(())
    })
    .await;
    event(&kubectl, "x", "Contested").await;
    let manager = format!("{{.metadata.labels.{}}}", label.replace('.', "\\."));
    let mut pauses: Vec<Duration> = Vec::new();
    // Long enough for kubectl to look while nothing is put back.
    while pauses.iter().all(|pause| pause.as_secs() < 3) {
        assert!(pauses.len() < 10, "the pauses do not grow: {pauses:?}");
        let start = Instant::now();
        rival();
        wait_for("it to be put back", || {
            let available = "{.status.conditions[?(@.type==\"Available\")].reason}";
            let found = kubectl.field("memcached/x", available);
            assert_ne!(found, "NoDeployment");
            let found = kubectl.field("deployment/x", &manager);
            (found == "my-operator").then_some(())
        })
        .await;
        pauses.push(start.elapsed());
    }
    // For a while it counts as contested, until the spec is another.
    assert_eq!(kubectl.field("memcached/x", DEGRADED), "Contested");
    kubectl.run("scale memcached/x --replicas=2").good();
    until_ready(&kubectl, "x", 2).await;
    kubectl
        .until_field("memcached/x", DEGRADED, "AsDesired")
        .await;
}

#[tokio::test]
async fn its_pods_are_let_in_where_pod_security_is_restricted() {
    let kubectl = kubectl("memcached-restricted").await;
    let namespace = &kubectl.namespace;
    kubectl
        .run(&format!(
            "label namespace {namespace} pod-security.kubernetes.io/enforce=restricted"
        ))
        .good();
    wait_for("Pod Security to be in force", || {
        let said = kubectl.run("run probe --image=probe:1 --dry-run=server");
        said.err.contains("PodSecurity").then_some(())
    })
    .await;
    ready(&kubectl, "x", 2).await;
}

/// How often Deployments were refused with 403, whoever asked.
fn refusals(kubectl: &Kubectl) -> u64 {
    let page = kubectl.run("get --raw /metrics").good();
    page.lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .filter(|line| line.contains("code=\"403\"") && line.contains("resource=\"deployments\""))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[tokio::test]
async fn in_a_namespace_that_ends_it_waits_for_the_end() {
    let kubectl = kubectl("memcached-ending").await;
    let namespace = kubectl.namespace.clone();
    ready(&kubectl, "x", 1).await;
    // Something that stays holds up the end; the Memcached stays with it, as in a namespace of very many
    // objects, of which the Deployment went first.
    let policy = Policy::deny(&kubectl, "DELETE", "memcacheds", "true").await;
    kubectl
        .run(&format!("delete namespace {namespace} --wait=false"))
        .good();
    kubectl
        .until_field("memcached/x", DEGRADED, "Refused")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE);
    assert!(message.contains("being terminated"), "{message}");

    // It tries again, now and then, and writes nothing of it.
    let version = kubectl.field("memcached/x", "{.metadata.resourceVersion}");
    let (start, before) = (Instant::now(), refusals(&kubectl));
    let tried = wait_for("two more attempts", || {
        let tried = refusals(&kubectl) - before;
        (tried >= 2).then_some(tried)
    })
    .await;
    // The test of the quota may add as many, and either may have begun before.
    let most = 2 * start.elapsed().as_secs() + 6;
    assert!(tried <= most, "{tried} attempts in {:?}", start.elapsed());
    let now = kubectl.field("memcached/x", "{.metadata.resourceVersion}");
    assert_eq!(now, version);

    drop(policy);
    kubectl.until_gone(&format!("namespace/{namespace}")).await;
}

#[tokio::test]
async fn a_deployment_that_somebody_paused_is_told_of_and_goes_on_when_it_is_resumed() {
    let kubectl = kubectl("memcached-paused").await;
    ready(&kubectl, "x", 2).await;
    kubectl.run("rollout pause deployment/x").good();
    kubectl
        .apply(&memcached("x", "{size: 2, memory: 32}"))
        .good();
    let progressing = "{.status.conditions[?(@.type==\"Progressing\")].reason}";
    kubectl
        .until_field("memcached/x", progressing, "Paused")
        .await;
    kubectl.run("rollout resume deployment/x").good();
    kubectl
        .until_field("memcached/x", progressing, "Complete")
        .await;
    kubectl
        .until_field("memcached/x", "{.status.updatedReplicas}", "2")
        .await;
}
