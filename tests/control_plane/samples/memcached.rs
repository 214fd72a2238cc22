//! Memcached, as a user works with it.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::policies::Policy;
use crate::harness::{Kubectl, wait_for};
use crate::samples::{kubectl, rejection};

const DEGRADED: &str = "{.status.conditions[?(@.type==\"Degraded\")].reason}";
const MEMORY: &str = "{.spec.memory}";
const MESSAGE: &str = "{.status.conditions[?(@.type==\"Degraded\")].message}";

/// What the operator owns in a Deployment and others could change: replicas, image, command, ports, labels, owner.
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

/// Waits for an Event with that reason about an object; returns its type, reason and note.
async fn event(kubectl: &Kubectl, name: &str, reason: &str) -> String {
    let is = |event: &str| event.split(' ').nth(1) == Some(reason);
    kubectl.until_event(name, reason, is).await
}

/// Makes a Memcached of that size and waits until all its servers are ready.
async fn ready(kubectl: &Kubectl, name: &str, size: u32) {
    kubectl
        .apply(&memcached(name, &format!("{{size: {size}}}")))
        .await
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
    let said = kubectl.run(&format!("apply -f {sample}")).await.good();
    assert_eq!(
        said,
        "memcached.cache.example.com/memcached-sample created\n"
    );
    let object = "memcached/memcached-sample";
    kubectl.until_condition(object, "Available", "True").await;
    until_ready(&kubectl, "memcached-sample", 3).await;
    let table = kubectl.run("get deployment memcached-sample").await.good();
    assert!(table.contains("3/3"), "{table}");
    let deployment = "deployment/memcached-sample";
    let found = kubectl.field(deployment, OURS).await;
    assert_eq!(found, ours("memcached-sample", 3));
    assert_eq!(
        kubectl
            .field(deployment, "{.metadata.ownerReferences[0].controller}")
            .await,
        "true"
    );
    let image = kubectl.field(object, "{.spec.image}").await;
    assert_eq!(image, "memcached:1.4.36-alpine");
    kubectl.absent(object, MEMORY).await;

    // The status has the names of its pods, sorted.
    let pods = kubectl.names("pods").await;
    assert_eq!(pods.len(), 3);
    let names = pods.join(" ");
    kubectl
        .until_field(object, "{.status.nodes[*]}", &names)
        .await;
    let table = kubectl.run("get memcached").await.good();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NAME", "SIZE", "READY", "AVAILABLE", "AGE"]);
    assert_eq!(row[..4], ["memcached-sample", "3", "3", "True"]);

    // Nothing changed: nothing is written.
    let again = kubectl.run(&format!("apply -f {sample}")).await.good();
    assert_eq!(
        again,
        "memcached.cache.example.com/memcached-sample unchanged\n"
    );
    let patch = "patch memcached/memcached-sample --type=merge -p {\"spec\":{\"size\":5}}";
    kubectl.run(patch).await.good();
    kubectl
        .until_condition(object, "Progressing", "False")
        .await;
    let table = kubectl.run("get deployment memcached-sample").await.good();
    assert!(table.contains("5/5"), "{table}");
    let note = event(&kubectl, "memcached-sample", "Created").await;
    assert_eq!(note, "Normal Created created Deployment memcached-sample");
    let note = event(&kubectl, "memcached-sample", "Scaled").await;
    assert_eq!(note, "Normal Scaled from 3 to 5 servers");

    kubectl.run(&format!("delete {object}")).await.good();
    kubectl.until_gone("deployments").await;
    kubectl.until_gone("pods").await;
}

#[tokio::test]
async fn it_is_scaled_as_a_deployment_is() {
    let kubectl = kubectl("memcached-scale").await;
    ready(&kubectl, "x", 1).await;
    for size in [5, 2, 0, 1] {
        let said = kubectl
            .run(&format!("scale memcached/x --replicas={size}"))
            .await;
        assert_eq!(said.good(), "memcached.cache.example.com/x scaled\n");
        until_ready(&kubectl, "x", size).await;
        kubectl
            .until("memcached/x", "to name as many pods", |found| {
                let names = found?["status"]["nodes"].as_array()?;
                (names.len() == size as usize).then_some(())
            })
            .await;
        kubectl
            .until_condition("memcached/x", "Available", "True")
            .await;
    }
    // What a HorizontalPodAutoscaler reads.
    let path = format!(
        "/apis/cache.example.com/v1alpha1/namespaces/{}/memcacheds/x/scale",
        kubectl.namespace
    );
    let scale = kubectl.raw(&path).await;
    let scale: Value = serde_json::from_str(&scale).unwrap();
    assert_eq!(scale["spec"]["replicas"], 1);
    assert_eq!(scale["status"]["replicas"], 1);
    let selector = "app=memcached,memcached_cr=x";
    assert_eq!(scale["status"]["selector"], selector);
    only_pod(&kubectl, selector).await;
}

/// The built-in controller, which reads and writes the scale subresource. It keeps to its own bounds without the metrics
/// of any pod.
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
    kubectl.apply(&autoscaler(3, 4)).await.good();
    until_ready(&kubectl, "x", 3).await;
    kubectl.apply(&autoscaler(1, 2)).await.good();
    until_ready(&kubectl, "x", 2).await;
    kubectl
        .until_condition("hpa/x", "AbleToScale", "True")
        .await;
}

/// The name of the one pod with these labels, when the terminating ones are gone.
async fn only_pod(kubectl: &Kubectl, selector: &str) -> String {
    let pods = format!("pods -l {selector}");
    kubectl
        .until(&pods, "to be one", |list| {
            let [pod] = &list?["items"].as_array()?[..] else {
                return None;
            };
            Some(pod["metadata"]["name"].as_str()?.to_owned())
        })
        .await
}

#[tokio::test]
async fn bad_sizes_and_names_are_rejected() {
    let kubectl = kubectl("memcached-bad").await;
    kubectl.apply(&memcached("good", "{size: 0}")).await.good();
    kubectl
        .until_field("deployment/good", "{.spec.replicas}", "0")
        .await;
    kubectl
        .until_condition("memcached/good", "Available", "True")
        .await;

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
        // kubectl apply leaves a null out.
        ("{size: null}", "spec.size"),
        (
            "{size: 1, memory: 1}",
            "spec.memory: Invalid value: 1: must be between 2 and 1048576 (MiB), inclusive",
        ),
        ("{size: 1, memory: 64Mi}", "spec.memory"),
    ] {
        let text = rejection(&kubectl, "memcacheds", &memcached("x", spec)).await;
        assert!(text.contains(words), "{spec}: {text}");
    }
    // All faults at once, as for the built-in kinds.
    let bad = memcached("x", "{image: A b, memory: 0}");
    let text = kubectl.apply(&bad).await.bad();
    assert_eq!(text.matches("\n* ").count(), 3, "{text}");

    // The API server calls no webhook for the scale subresource.
    let scale = async |replicas: &str| {
        let patch = format!("{{\"spec\":{{\"replicas\":{replicas}}}}}");
        kubectl
            .run(&format!(
                "patch memcached/good --subresource=scale --type=merge -p {patch}"
            ))
            .await
    };
    for replicas in ["1.5", "\"1\""] {
        scale(replicas).await.bad();
    }
    for replicas in ["-1", "2147483648"] {
        let scale = format!("scale memcached/good --replicas={replicas}");
        kubectl.run(&scale).await.bad();
    }
    assert_eq!(kubectl.field("memcached/good", "{.spec.size}").await, "0");

    for length in [64, 253] {
        let name = "x".repeat(length);
        let text = rejection(&kubectl, "memcacheds", &memcached(&name, "{size: 1}")).await;
        let words = "metadata.name: Too long: may not be more than 63 bytes";
        assert!(text.contains(words), "{text}");
    }
    // Longer than the name of any object: the API server itself rejects it.
    let longer = memcached(&"x".repeat(300), "{size: 1}");
    rejection(&kubectl, "memcacheds", &longer).await;
    for kind in ["memcacheds", "deployments"] {
        assert_eq!(kubectl.names(kind).await, ["good"]);
    }
    // The longest name, and one with a dot.
    let longest = "x".repeat(63);
    for name in [longest.as_str(), "a.b-c"] {
        ready(&kubectl, name, 1).await;
        let deployment = format!("deployment/{name}");
        assert_eq!(kubectl.field(&deployment, OURS).await, ours(name, 1));
    }
}

#[tokio::test]
async fn owned_fields_are_restored_and_the_fields_of_others_stay() {
    let kubectl = kubectl("memcached-drift").await;
    ready(&kubectl, "x", 2).await;
    let uid = kubectl.field("deployment/x", "{.metadata.uid}").await;
    // Another operator's fields, beside ours.
    let theirs = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, annotations: {theirs: kept}}, \
        spec: {minReadySeconds: 1, template: {metadata: {annotations: {theirs: kept}}, spec: {\
        terminationGracePeriodSeconds: 7, containers: [\
        {name: memcached, resources: {limits: {memory: 80Mi}}}, {name: sidecar, image: 'exporter:1'}]}}}}";

    let apply = "apply --server-side --field-manager=theirs -f -";
    kubectl.with(apply, theirs).await.good();

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
        kubectl.with(&drift, input).await.good();
        kubectl.until_field("deployment/x", OURS, &expected).await;
        kubectl
            .until_field("memcached/x", DEGRADED, "AsDesired")
            .await;
    }
    let note = event(&kubectl, "x", "Restored").await;
    assert!(note.starts_with("Normal "), "{note}");

    let kept = concat!(
        "{.metadata.annotations.theirs};{.spec.minReadySeconds};{.spec.template.metadata.annotations.theirs};",
        "{.spec.template.spec.terminationGracePeriodSeconds};",
        "{.spec.template.spec.containers[0].resources.limits.memory};{.spec.template.spec.containers[1].image}",
    );
    assert_eq!(
        kubectl.field("deployment/x", kept).await,
        "kept;1;kept;7;80Mi;exporter:1"
    );
    assert_eq!(kubectl.field("deployment/x", "{.metadata.uid}").await, uid);
    until_ready(&kubectl, "x", 2).await;
}

#[tokio::test]
async fn what_is_removed_from_the_spec_is_removed_from_the_deployment() {
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
        kubectl.apply(&memcached("x", spec)).await.good();
        kubectl.until_field("deployment/x", run, expected).await;
        kubectl
            .until_condition("memcached/x", "Progressing", "False")
            .await;
        wait_for("its pods to be those in its status", async || {
            let pods = kubectl.names("pods -l memcached_cr=x").await.join(" ");
            let nodes = kubectl.field_if_any("memcached/x", "{.status.nodes[*]}");
            (nodes.await == pods).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_deleted_deployment_is_created_again_and_an_orphan_is_adopted() {
    let kubectl = kubectl("memcached-gone").await;
    ready(&kubectl, "x", 1).await;
    let uid = async |kubectl: &Kubectl| kubectl.field("deployment/x", "{.metadata.uid}").await;
    let first = uid(&kubectl).await;
    kubectl.run("delete deployment/x").await.good();
    kubectl.until_replaced("deployment/x", &first).await;
    kubectl
        .until_field("deployment/x", OURS, &ours("x", 1))
        .await;
    until_ready(&kubectl, "x", 1).await;

    let kept = uid(&kubectl).await;
    let pod = only_pod(&kubectl, "memcached_cr=x").await;
    kubectl
        .run("delete memcached/x --cascade=orphan")
        .await
        .good();
    kubectl
        .until_absent("deployment/x", "{.metadata.ownerReferences[*].uid}")
        .await;
    kubectl.apply(&memcached("x", "{size: 1}")).await.good();
    kubectl
        .until_field("deployment/x", OURS, &ours("x", 1))
        .await;
    assert_eq!(uid(&kubectl).await, kept);
    until_ready(&kubectl, "x", 1).await;
    assert_eq!(only_pod(&kubectl, "memcached_cr=x").await, pod);
    let owner = kubectl
        .field("deployment/x", "{.metadata.ownerReferences[*].uid}")
        .await;
    assert_eq!(owner, kubectl.field("memcached/x", "{.metadata.uid}").await);
}

#[tokio::test]
async fn a_foreign_deployment_is_left_alone_until_it_is_deleted() {
    let kubectl = kubectl("memcached-foreign").await;
    kubectl
        .run("create deployment x --image=nginx:1 --replicas=1")
        .await
        .good();
    // A Memcached with a Deployment of its own is not affected.
    ready(&kubectl, "other", 1).await;
    let before = kubectl.deployment_at_rest("x").await;

    kubectl.apply(&memcached("x", "{size: 2}")).await.good();
    kubectl
        .until_field("memcached/x", DEGRADED, "DeploymentExists")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE).await;
    assert!(message.contains("Deployment \"x\" exists"), "{message}");
    let note = event(&kubectl, "x", "DeploymentExists").await;
    assert!(
        note.starts_with("Warning DeploymentExists Deployment \"x\" exists"),
        "{note}"
    );
    let states = "{.status.conditions[?(@.type==\"Available\")].status};\
        {.status.conditions[?(@.type==\"Progressing\")].reason};{.status.readyReplicas};{.status.nodes}";
    assert_eq!(
        kubectl.field("memcached/x", states).await,
        "False;Blocked;0;[]"
    );
    // A change of the spec is another attempt.
    kubectl.apply(&memcached("x", "{size: 3}")).await.good();
    let seen = "{.status.observedGeneration}";
    kubectl.until_field("memcached/x", seen, "2").await;
    let after = kubectl.run("get deployment/x -o yaml").await.good();
    assert_eq!(after, before);

    kubectl.run("delete deployment/x").await.good();
    kubectl
        .until_field("deployment/x", OURS, &ours("x", 3))
        .await;
    until_ready(&kubectl, "x", 3).await;
    kubectl
        .until_field("memcached/x", DEGRADED, "AsDesired")
        .await;
}

#[tokio::test]
async fn an_exceeded_quota_is_reported_until_it_is_gone() {
    let kubectl = kubectl("memcached-quota").await;
    let quota = |name: &str, what: &str| {
        format!(
            "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: {name}}}, spec: {{hard: {{{what}: '0'}}}}}}"
        )
    };
    // No Deployment.
    kubectl
        .apply(&quota("none", "count/deployments.apps"))
        .await
        .good();
    kubectl
        .until_refused("create deployment probe --image=probe:1", "exceeded quota")
        .await;
    kubectl.apply(&memcached("x", "{size: 1}")).await.good();
    kubectl
        .until_field("memcached/x", DEGRADED, "Refused")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE).await;
    assert!(message.contains("exceeded quota"), "{message}");
    let note = event(&kubectl, "x", "Refused").await;
    assert!(
        note.starts_with("Warning ") && note.contains("exceeded quota"),
        "{note}"
    );
    kubectl.run("delete resourcequota/none").await.good();
    until_ready(&kubectl, "x", 1).await;
    kubectl
        .until_field("memcached/x", DEGRADED, "AsDesired")
        .await;

    // A Deployment, and no pods: the Deployment itself reports it.
    kubectl.apply(&quota("empty", "pods")).await.good();
    kubectl
        .until_refused("run probe --image=probe:1", "exceeded quota: empty")
        .await;
    kubectl.run("scale memcached/x --replicas=2").await.good();
    kubectl
        .until_field("memcached/x", DEGRADED, "ReplicaFailure")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE).await;
    assert!(message.contains("exceeded quota"), "{message}");
    let note = event(&kubectl, "x", "ReplicaFailure").await;
    assert!(note.starts_with("Warning "), "{note}");
    kubectl.run("delete resourcequota/empty").await.good();
    // The built-in controller waits long before it tries again; a new spec is another reason to.
    kubectl.run("scale memcached/x --replicas=3").await.good();
    until_ready(&kubectl, "x", 3).await;
    kubectl
        .until_field("memcached/x", DEGRADED, "AsDesired")
        .await;
}

#[tokio::test]
async fn an_update_that_a_policy_denies_keeps_the_ports_of_others() {
    let kubectl = kubectl("memcached-policy").await;
    ready(&kubectl, "x", 1).await;
    let metrics = "{\"name\":\"metrics\",\"containerPort\":9150}";
    let patch = format!(
        "patch deployment/x -p {{\"spec\":{{\"template\":{{\"spec\":{{\"containers\":[{{\"name\":\"memcached\",\"ports\":[{metrics}]}}]}}}}}}}}"
    );
    kubectl.run(&patch).await.good();
    let policy = Policy::deny(
        &kubectl,
        "UPDATE",
        "deployments",
        "object.spec.replicas > 2",
    )
    .await;
    let generation = kubectl
        .field("deployment/x", "{.metadata.generation}")
        .await;
    kubectl.run("scale memcached/x --replicas=3").await.good();
    kubectl
        .until_field("memcached/x", DEGRADED, "Refused")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE).await;
    assert!(message.contains("held back by a test"), "{message}");
    let now = kubectl
        .field("deployment/x", "{.metadata.generation}")
        .await;
    assert_eq!(now, generation, "the Deployment was changed");
    policy.lift().await;
    until_ready(&kubectl, "x", 3).await;
    let ports = "{.spec.template.spec.containers[0].ports[*].name}";
    assert_eq!(
        kubectl.field("deployment/x", ports).await,
        "metrics memcached"
    );
}

#[tokio::test]
async fn a_conflicting_writer_is_reported_and_restores_are_paced() {
    let kubectl = kubectl("memcached-contested").await;
    ready(&kubectl, "x", 1).await;
    // Without the label no watch has the Deployment any more.
    let label = "app.kubernetes.io/managed-by";
    let rival = async || {
        let change = format!("label deployment/x {label}=Helm --overwrite");
        kubectl.run(&change).await.good();
    };
    let manager = format!("{{.metadata.labels.{}}}", label.replace('.', "\\."));
    wait_for("the status to say Contested", async || {
        rival().await;
        kubectl
            .until_field("deployment/x", &manager, "my-operator")
            .await;
        (kubectl.field("memcached/x", DEGRADED).await == "Contested").then_some(())
    })
    .await;
    event(&kubectl, "x", "Contested").await;
    let mut pauses: Vec<Duration> = Vec::new();
    // A pause that is long enough to be seen while nothing is restored.
    while pauses.iter().all(|pause| pause.as_secs() < 3) {
        assert!(pauses.len() < 10, "the pauses do not grow: {pauses:?}");
        let start = Instant::now();
        rival().await;
        wait_for("it to be restored", async || {
            let available = "{.status.conditions[?(@.type==\"Available\")].reason}";
            let found = kubectl.field("memcached/x", available).await;
            assert_ne!(found, "NoDeployment");
            let found = kubectl.field("deployment/x", &manager).await;
            (found == "my-operator").then_some(())
        })
        .await;
        pauses.push(start.elapsed());
    }
    // For a while it counts as contested, until the spec is another.
    assert_eq!(kubectl.field("memcached/x", DEGRADED).await, "Contested");
    kubectl.run("scale memcached/x --replicas=2").await.good();
    until_ready(&kubectl, "x", 2).await;
    kubectl
        .until_field("memcached/x", DEGRADED, "AsDesired")
        .await;
}

#[tokio::test]
async fn its_pods_are_admitted_where_pod_security_is_restricted() {
    let kubectl = kubectl("memcached-restricted").await;
    let namespace = &kubectl.namespace;
    kubectl
        .run(&format!(
            "label namespace {namespace} pod-security.kubernetes.io/enforce=restricted"
        ))
        .await
        .good();
    kubectl
        .until_refused("run probe --image=probe:1", "PodSecurity")
        .await;
    ready(&kubectl, "x", 2).await;
}

/// How often the API server answered a request for Deployments with 403.
async fn denials(kubectl: &Kubectl) -> u64 {
    let page = kubectl.raw("/metrics").await;
    page.lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .filter(|line| line.contains("code=\"403\"") && line.contains("resource=\"deployments\""))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[tokio::test]
async fn in_a_terminating_namespace_it_retries_with_pauses() {
    let kubectl = kubectl("memcached-ending").await;
    let namespace = kubectl.namespace.clone();
    ready(&kubectl, "x", 1).await;
    // The Memcached outlives its Deployment, as in a namespace of very many objects.
    let policy = Policy::deny(&kubectl, "DELETE", "memcacheds", "true").await;
    kubectl
        .run(&format!("delete namespace {namespace} --wait=false"))
        .await
        .good();
    kubectl
        .until_field("memcached/x", DEGRADED, "Refused")
        .await;
    let message = kubectl.field("memcached/x", MESSAGE).await;
    assert!(message.contains("being terminated"), "{message}");

    // It tries again, with pauses, and does not write its status for that.
    let version = kubectl
        .field("memcached/x", "{.metadata.resourceVersion}")
        .await;
    let (start, before) = (Instant::now(), denials(&kubectl).await);
    let tried = wait_for("two more attempts", async || {
        // The page is long.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let tried = denials(&kubectl).await - before;
        (tried >= 2).then_some(tried)
    })
    .await;
    // The test of the quota may add as many, and either may have begun before.
    let most = 2 * start.elapsed().as_secs() + 6;
    assert!(tried <= most, "{tried} attempts in {:?}", start.elapsed());
    let now = kubectl
        .field("memcached/x", "{.metadata.resourceVersion}")
        .await;
    assert_eq!(now, version);

    policy.lift().await;
    kubectl.until_gone(&format!("namespace/{namespace}")).await;
}

#[tokio::test]
async fn a_paused_deployment_is_reported_and_continues_when_it_is_resumed() {
    let kubectl = kubectl("memcached-paused").await;
    ready(&kubectl, "x", 2).await;
    kubectl.run("rollout pause deployment/x").await.good();
    kubectl
        .apply(&memcached("x", "{size: 2, memory: 32}"))
        .await
        .good();
    let progressing = "{.status.conditions[?(@.type==\"Progressing\")].reason}";
    kubectl
        .until_field("memcached/x", progressing, "Paused")
        .await;
    kubectl.run("rollout resume deployment/x").await.good();
    kubectl
        .until_field("memcached/x", progressing, "Complete")
        .await;
    kubectl
        .until_field("memcached/x", "{.status.updatedReplicas}", "2")
        .await;
}
