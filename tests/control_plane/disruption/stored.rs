//! Objects that were stored while there was no webhook, and a webhook whose CA bundle is removed or whose operator is
//! dead.

use crate::disruption::{VALIDATING, cluster, webhook_plane};
use crate::harness::{Kubectl, Operator, http_get, wait_for};

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
async fn a_stored_invalid_object_is_reported_and_can_always_be_deleted() {
    let plane = webhook_plane().await;
    let cluster = *plane;
    let namespace = cluster.namespace("stored").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    kubectl.apply(INVALID).await.good();
    // This one and its managedFields nest so deeply that a list with it in it can hardly be read.
    let deep = format!("{}1{}", "{a: ".repeat(122), "}".repeat(122));
    let at = format!(
        "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: deep}}, spec: {{schedule: now, command: a, template: {{spec: {{x: {deep}}}}}}}}}"
    );
    kubectl.apply(&at).await.good();
    let operator = Operator::start(cluster, "stored", &["--namespace", &namespace]).await;

    for (object, fault) in [
        ("mds/x", "spec.image: Invalid value: \"Bad Image\": "),
        ("mds/x", "spec.minReadySeconds: Invalid value: -1: "),
        ("at/x", "spec.schedule: Invalid value: \"tomorrow\": "),
        ("at/deep", "spec: Forbidden: nested deeper than 100 levels"),
    ] {
        let accepted =
            |field: &str| format!("{{.status.conditions[?(@.type=='Accepted')].{field}}}");
        let message = if object == "at/deep" {
            // It nests too deeply to be read in this process.
            let path = format!("{}:{}", accepted("status"), accepted("message"));
            wait_for("condition Accepted of at/deep", async || {
                let mut get = kubectl.command(&format!("get {object} -o"));
                get.arg(format!("jsonpath={path}"));
                let said = crate::harness::run(&mut get, "").await.good();
                said.strip_prefix("False:").map(str::to_owned)
            })
            .await
        } else {
            let status = accepted("status");
            kubectl.until_field(object, &status, "False").await;
            kubectl.field(object, &accepted("message")).await
        };
        assert!(message.contains(fault), "{message}");
    }
    assert!(kubectl.names("pods").await.is_empty());

    // No new one comes in.
    let text = kubectl
        .apply(&at.replace("name: deep", "name: deeper"))
        .await
        .bad();
    assert!(text.contains("nested deeper than 100 levels"), "{text}");
    kubectl.run("label at/deep fine=yes").await.good();
    kubectl.run("delete at/deep").await.good();

    // The webhook is up: what was stored may stay as it is, a new fault may not come in.
    kubectl.run("label mds/x at/x fine=yes").await.good();
    let said = kubectl
        .run("patch mds/x --type=merge -p {\"spec\":{\"revisionHistoryLimit\":5}}")
        .await;
    assert!(
        said.ok && said.err.contains("Warning: already stored: spec.image"),
        "{said:?}"
    );
    let text = kubectl
        .run("patch mds/x --type=merge -p {\"spec\":{\"revisionHistoryLimit\":0}}")
        .await
        .bad();
    assert!(
        text.contains("The MyDaemonSet \"x\" is invalid: spec.revisionHistoryLimit: "),
        "{text}"
    );

    for_good(&kubectl, "mds/z").await;

    // The CA bundle is emptied by hand: it comes back.
    let path = "{.webhooks[*].clientConfig.caBundle}";
    let before = kubectl.field(VALIDATING, path).await;
    assert_eq!(before.split(' ').count(), 2);
    kubectl
        .run(&format!(
            "patch {VALIDATING} --type=json -p [{{\"op\":\"remove\",\"path\":\"/webhooks/0/clientConfig/caBundle\"}}]"
        )).await
        .good();
    kubectl.until_field(VALIDATING, path, &before).await;

    // The webhook is down, and its configuration says Fail: labels, finalizers, status and deletion
    // still pass, and the spec is held.
    operator.process.kill();
    operator.process.wait().await;
    assert!(http_get(&operator.probes, "/healthz").is_none());
    kubectl.run("label mds/x at/x still=fine").await.good();
    let text = kubectl
        .run("patch mds/x --type=merge -p {\"spec\":{\"image\":\"a:1\"}}")
        .await
        .bad();
    assert!(text.contains("failed calling webhook"), "{text}");
    let forged = "annotate at/x cnat.programming-kubernetes.info/created-by=mallory";
    assert!(
        kubectl
            .run(forged)
            .await
            .bad()
            .contains("failed calling webhook")
    );
    let emptied = "annotate at/x cnat.programming-kubernetes.info/created-by=";
    let text = kubectl.run(emptied).await.bad();
    assert!(text.contains("failed calling webhook"), "{text}");
    for_good(&kubectl, "mds/x").await;
    kubectl.run("delete at/x").await.good();
    for kind in ["mds", "at"] {
        assert!(kubectl.names(kind).await.is_empty(), "{kind}");
    }

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
/// `tests/control_plane/cluster/at/defects.rs`.
#[tokio::test]
async fn a_bad_schedule_was_retried_for_ever_and_reported_nowhere() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("bad-schedule").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let at = "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: x}, spec: {schedule: tomorrow, command: a}}";
    let flags = ["--webhooks=false", "--namespace", &namespace];
    let operator = Operator::start(cluster, "bad-schedule", &flags).await;
    kubectl.apply(at).await.good();
    kubectl
        .until_field("at/x", "{.status.reason}", "Invalid")
        .await;
    let message = kubectl.field("at/x", "{.status.message}").await;
    assert!(message.contains("at character 1: "), "{message}");
    let stalled = "{.status.conditions[?(@.type=='Stalled')].reason}";
    assert_eq!(kubectl.field("at/x", stalled).await, "Invalid");
    let table = kubectl.run("get at x -o wide").await.good();
    assert!(table.contains("spec.schedule: Invalid value"), "{table}");
    let version = async || kubectl.field("at/x", "{.metadata.resourceVersion}").await;
    let (before, looks) = (version().await, ended(&operator, "success"));
    // A new label makes the operator reconcile again: it has nothing to write, and must not requeue the object.
    kubectl.run("label at/x look=again").await.good();
    let labelled = version().await;
    assert_ne!(labelled, before);
    wait_for("the operator to be done with the label", async || {
        (ended(&operator, "success") > looks).then_some(())
    })
    .await;
    for result in ["requeue_after", "error"] {
        assert_eq!(ended(&operator, result), 0, "{result}");
    }
    assert_eq!(version().await, labelled);
    // A good schedule fixes it.
    kubectl
        .run("patch at/x --type=merge -p {\"spec\":{\"schedule\":\"now\"}}")
        .await
        .good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    let story = kubectl.run("describe at/x").await.good();
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
async fn for_good(kubectl: &Kubectl, object: &str) {
    for change in [
        "patch --subresource=status --type=merge -p {\"status\":{\"numberReady\":1}}",
        "delete --wait=false",
        "patch --type=merge -p {\"metadata\":{\"finalizers\":null}}",
    ] {
        kubectl.run(&format!("{change} {object}")).await.good();
    }
    assert_eq!(kubectl.get(object).await, None);
}
