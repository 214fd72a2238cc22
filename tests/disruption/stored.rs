//! Objects that were stored while no webhook was there, and a webhook that somebody breaks.

use crate::harness::{Kubectl, Operator, http_get, wait_for};
use crate::{VALIDATING, cluster, webhooks};

const INVALID: &str = "
apiVersion: apps.zhongmingmao.io/v1beta1
kind: MyDaemonSet
metadata: {name: x, finalizers: [example.com/hold]}
spec: {image: 'Bad Image', minReadySeconds: -1}
---
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: x}
spec: {schedule: tomorrow, command: echo YAY}
---
apiVersion: apps.zhongmingmao.io/v1beta1
kind: MyDaemonSet
metadata: {name: z, finalizers: [example.com/hold]}
spec: {image: 'Bad Image'}
";

#[tokio::test]
async fn a_stored_invalid_object_is_told_so_and_never_held_hostage() {
    let cluster = cluster().await;
    let _webhooks = webhooks().await;
    let namespace = cluster.namespace("stored").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    kubectl.apply(INVALID).good();
    // This one and its managedFields nest so deeply that a list with it in it can hardly be read.
    let deep = format!("{}1{}", "{a: ".repeat(122), "}".repeat(122));
    let at = format!(
        "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: deep}}, spec: {{schedule: now, command: a, template: {{spec: {{x: {deep}}}}}}}}}"
    );
    kubectl.apply(&at).good();
    let operator = Operator::start(cluster, "stored", &["--namespace", &namespace]).await;

    for (object, fault) in [
        ("mds/x", "spec.image: Invalid value: \"Bad Image\": "),
        ("mds/x", "spec.minReadySeconds: Invalid value: -1: "),
        ("at/x", "spec.schedule: Invalid value: \"tomorrow\": "),
        ("at/deep", "spec: Forbidden: nested deeper than 100 levels"),
    ] {
        let accepted = |field: &str| {
            let path = format!("{{.status.conditions[?(@.type=='Accepted')].{field}}}");
            kubectl.field(object, &path)
        };
        wait_for("condition Accepted=False", || {
            (accepted("status") == "False").then_some(())
        })
        .await;
        assert!(
            accepted("message").contains(fault),
            "{}",
            accepted("message")
        );
    }
    assert_eq!(kubectl.run("get pods -o name").good(), "");

    // No new one comes in.
    let text = kubectl
        .apply(&at.replace("name: deep", "name: deeper"))
        .bad();
    assert!(text.contains("nested deeper than 100 levels"), "{text}");
    kubectl.run("label at/deep fine=yes").good();
    kubectl.run("delete at/deep").good();

    // The webhook is up: what was stored may stay as it is, a new fault may not come in.
    kubectl.run("label mds/x at/x fine=yes").good();
    let said = kubectl.run("patch mds/x --type=merge -p {\"spec\":{\"revisionHistoryLimit\":5}}");
    assert!(
        said.ok && said.err.contains("Warning: already stored: spec.image"),
        "{said:?}"
    );
    let text = kubectl
        .run("patch mds/x --type=merge -p {\"spec\":{\"revisionHistoryLimit\":0}}")
        .bad();
    assert!(
        text.contains("The MyDaemonSet \"x\" is invalid: spec.revisionHistoryLimit: "),
        "{text}"
    );

    for_good(&kubectl, "mds/z");

    // The CA bundle is emptied by hand: it comes back.
    let path = "{.webhooks[*].clientConfig.caBundle}";
    let before = kubectl.field(VALIDATING, path);
    assert_eq!(before.split(' ').count(), 2);
    kubectl
        .run(&format!(
            "patch {VALIDATING} --type=json -p [{{\"op\":\"remove\",\"path\":\"/webhooks/0/clientConfig/caBundle\"}}]"
        ))
        .good();
    wait_for("the CA bundle to come back", || {
        (kubectl.field(VALIDATING, path) == before).then_some(())
    })
    .await;

    // The webhook is down, and its configuration says Fail: labels, finalizers, status and deletion
    // still pass, and the spec is held.
    operator.process.kill();
    operator.process.wait().await;
    assert!(http_get(&operator.probes, "/healthz").is_none());
    kubectl.run("label mds/x at/x still=fine").good();
    let text = kubectl
        .run("patch mds/x --type=merge -p {\"spec\":{\"image\":\"a:1\"}}")
        .bad();
    assert!(text.contains("failed calling webhook"), "{text}");
    let forged = "annotate at/x cnat.programming-kubernetes.info/created-by=mallory";
    assert!(kubectl.run(forged).bad().contains("failed calling webhook"));
    let emptied = "annotate at/x cnat.programming-kubernetes.info/created-by=";
    let text = kubectl.run(emptied).bad();
    assert!(text.contains("failed calling webhook"), "{text}");
    for_good(&kubectl, "mds/x");
    kubectl.run("delete at/x").good();
    assert_eq!(kubectl.run("get mds,at -o name").good(), "");

    // It starts again by itself, and a good object passes.
    let operator = Operator::start(cluster, "stored", &["--namespace", &namespace]).await;
    let spec = "{image: 'a:1', template: {spec: {nodeSelector: {no: where}}}}";
    let object = format!(
        "{{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {{name: good}}, spec: {spec}}}"
    );
    kubectl.until_applied(&object).await;
    drop(operator);
}

/// One of the seven defects of the programs that At comes from; the others are in
/// `tests/cluster/at/defects.rs`.
#[tokio::test]
async fn a_bad_schedule_was_tried_for_ever_and_told_nowhere() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("bad-schedule").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let at = "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: x}, spec: {schedule: tomorrow, command: a}}";
    let flags = ["--webhooks=false", "--namespace", &namespace];
    let operator = Operator::start(cluster, "bad-schedule", &flags).await;
    kubectl.apply(at).good();
    kubectl
        .until_field("at/x", "{.status.reason}", "Invalid")
        .await;
    let message = kubectl.field("at/x", "{.status.message}");
    assert!(message.contains("at character 1: "), "{message}");
    let stalled = "{.status.conditions[?(@.type=='Stalled')].reason}";
    assert_eq!(kubectl.field("at/x", stalled), "Invalid");
    let table = kubectl.run("get at x -o wide").good();
    assert!(table.contains("spec.schedule: Invalid value"), "{table}");
    let version = || kubectl.field("at/x", "{.metadata.resourceVersion}");
    let (before, looks) = (version(), ended(&operator, "success"));
    // Somebody's label makes the operator look again: it has nothing to write, and is not to come
    // back by itself.
    kubectl.run("label at/x look=again").good();
    let labelled = version();
    assert_ne!(labelled, before);
    wait_for("the operator to be done with the label", || {
        (ended(&operator, "success") > looks).then_some(())
    })
    .await;
    for result in ["requeue_after", "error"] {
        assert_eq!(ended(&operator, result), 0, "{result}");
    }
    assert_eq!(version(), labelled);
    // The cure is a good schedule.
    kubectl
        .run("patch at/x --type=merge -p {\"spec\":{\"schedule\":\"now\"}}")
        .good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    let story = kubectl.run("describe at/x").good();
    assert!(story.contains("at character 1: "), "{story}");
}

/// How many reconciles of Ats have ended so.
fn ended(operator: &Operator, result: &str) -> u64 {
    let name =
        format!("controller_runtime_reconcile_total{{controller=\"at\",result=\"{result}\"}} ");
    let page = operator.figures();
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// A status change, deletion, and the removal of the finalizer: what nothing may hold up.
fn for_good(kubectl: &Kubectl, object: &str) {
    for change in [
        "patch --subresource=status --type=merge -p {\"status\":{\"numberReady\":1}}",
        "delete --wait=false",
        "patch --type=merge -p {\"metadata\":{\"finalizers\":null}}",
    ] {
        kubectl.run(&format!("{change} {object}")).good();
    }
    let left = kubectl.run(&format!("get {object} --ignore-not-found -o name"));
    assert_eq!(left.good(), "");
}
