//! The component `operator-policy`: what the operator does passes, and what a thief of its token would do does not.

use std::process::Command;

use my_operator::kinds::REGISTRY;
use my_operator_cluster::{Options, free_ports};
use serde_json::{Value, json};

use crate::harness::install::restart_controller_manager;
use crate::harness::{
    Kubectl, NAMESPACE, Operator, OwnPlane, SERVICE_ACCOUNT, every_kind, operator_kubeconfig,
    operator_program, sample_path, wait_for,
};
use crate::install::{kubectl, part, rendered};

/// What the message of a denial begins with.
const DENIED: &str = "ValidatingAdmissionPolicy 'my-operator-restriction-";

/// A plane with the rights and webhook configurations that `config/default` and the sample kinds have, the policies in
/// force, and the operator with every kind.
async fn start() -> (OwnPlane, Operator) {
    let plane = OwnPlane::start(Options::with_nodes(&["node-1", "node-2"])).await;
    let cluster = plane.cluster;
    let own = Kubectl::new(cluster, NAMESPACE);
    own.run(&format!("create namespace {NAMESPACE}"))
        .await
        .good();
    let mut components = "operator-policy".to_owned();
    own.run("apply -k config/crd").await.good();
    if REGISTRY.iter().any(|kind| !kind.by_default) {
        own.run("apply -k config/crd/sample-kinds").await.good();
        components += " sample-kinds";
    }
    own.run("wait --for=condition=Established --timeout=60s crd --all")
        .await
        .good();
    restart_controller_manager(cluster).await;
    let all = rendered(cluster, &components).await;
    for words in [
        "kind: ValidatingAdmissionPolicy",
        "rbac.authorization.k8s.io",
        "kind: ServiceAccount\nmetadata",
        "WebhookConfiguration",
    ] {
        let objects = part(&all, &[words]);
        kubectl(cluster, "apply -f -", &objects).await.good();
    }
    wait_for("the policies to be in force", async || {
        let secret = thief(&own, "create secret generic other --dry-run=server", "").await;
        let lone = thief(&own, "create --dry-run=server -f -", &pod(&json!({}))).await;
        let webhook = thief(
            &own,
            "label mutatingwebhookconfiguration/my-operator-mutating-webhook-configuration a=b --dry-run=server",
            "",
        )
        .await;
        [secret, lone, webhook]
            .iter()
            .all(|said| said.contains(DENIED))
            .then_some(())
    })
    .await;

    let [webhook, probes, metrics] = free_ports()
        .unwrap()
        .map(|port| format!("127.0.0.1:{port}"));
    let mut command = Command::new(operator_program());
    command
        .args(["run", &every_kind()])
        .arg(format!("--webhook-bind-address={webhook}"))
        .arg(format!("--health-probe-bind-address={probes}"))
        .arg(format!("--metrics-bind-address={metrics}"))
        .env("KUBECONFIG", operator_kubeconfig(cluster).await);
    let operator = Operator {
        process: cluster.spawn("operator-policy", &mut command).unwrap(),
        probes,
        metrics,
        webhook,
    };
    // It has created the Secret and the Lease, and patched caBundle.
    operator.until_ready().await;
    (plane, operator)
}

/// What `kubectl ARGS` of a thief of the operator's token says.
async fn thief(kubectl: &Kubectl, args: &str, input: &str) -> String {
    let user = format!("--as=system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}");
    let said = kubectl.with(&format!("{args} {user}"), input).await;
    format!("{}{}", said.out, said.err)
}

/// A pod with that metadata, which is named `lone` unless that says otherwise.
fn pod(metadata: &Value) -> String {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "lone" },
        "spec": { "containers": [{ "name": "c", "image": "x" }] },
    });
    for (key, value) in metadata.as_object().unwrap() {
        pod["metadata"][key] = value.clone();
    }
    pod.to_string()
}

/// Owner references to the controller `x` of that kind.
fn owned_by(api_version: &str, kind: &str, uid: &str) -> Value {
    json!([{ "apiVersion": api_version, "kind": kind, "name": "x", "uid": uid, "controller": true }])
}

#[tokio::test]
async fn the_operator_works_under_its_policies_and_a_stolen_token_does_nothing_else() {
    let (plane, operator) = start().await;
    let cluster = plane.cluster;
    let team = Kubectl::fresh(cluster, "team").await;
    let own = Kubectl::new(cluster, NAMESPACE);

    // The controller manager has compared the expressions with the types of the API, and found no fault.
    let checked = "to be checked by types";
    let warnings = own
        .until("validatingadmissionpolicies", checked, |list| {
            let policies = list?["items"].as_array()?.iter();
            let status = policies.map(|policy| policy["status"]["typeChecking"].as_object());
            status.collect::<Option<Vec<_>>>().map(|all| {
                let warnings = all.iter().filter_map(|it| it.get("expressionWarnings"));
                warnings.cloned().collect::<Vec<Value>>()
            })
        })
        .await;
    assert!(warnings.is_empty(), "{warnings:#?}");
    only_the_bundle_of_a_webhook_may_change(&own).await;

    // The API server cannot reach the webhooks here.
    team.run("delete mutatingwebhookconfigurations,validatingwebhookconfigurations -l app.kubernetes.io/name=my-operator")
        .await
        .good();
    wait_for("the webhooks to be gone", async || {
        let sample = "create -f config/samples/cnat_v1alpha1_at.yaml";
        team.run(sample).await.ok.then_some(())
    })
    .await;
    only_objects_of_its_kinds_may_be_touched(&own, &team).await;
    for kind in REGISTRY.iter().filter(|kind| kind.name != "at") {
        let sample = sample_path(kind, kind.samples[0].file);
        team.run(&format!("create -f {sample}")).await.good();
    }
    let mds = "mds/mydaemonset-sample";
    team.until_field(mds, "{.status.numberAvailable}", "2")
        .await;
    // An At that has ended is deleted, and so is its pod.
    team.apply(
        "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: brief}, \
         spec: {schedule: now, command: echo YAY, ttlSecondsAfterFinished: 0}}",
    )
    .await
    .good();
    team.until_gone("at/brief").await;
    team.until_field("at/example-at", "{.status.phase}", "DONE")
        .await;

    // A roll-out replaces pods and adds a revision; a pod that has lost its labels is released, and adopted with them.
    let one = team.names("pods -l apps.zhongmingmao.io/mydaemonset").await;
    let pod = format!("pod/{}", one[0]);
    team.run(&format!("label {pod} app.kubernetes.io/managed-by-"))
        .await
        .good();
    team.until_absent(&pod, "{.metadata.ownerReferences}").await;
    team.run(&format!(
        "label {pod} app.kubernetes.io/managed-by=my-operator"
    ))
    .await
    .good();
    team.until_any(&pod, "{.metadata.ownerReferences[0].uid}")
        .await;
    let image = r#"{"spec":{"image":"nginx:1.27"}}"#;
    team.run(&format!("patch {mds} --type=merge --patch={image}"))
        .await
        .good();
    team.until_field(mds, "{.status.updatedNumberScheduled}", "2")
        .await;
    team.until_field(mds, "{.status.numberAvailable}", "2")
        .await;

    // The sample kinds have their Deployments, CronJobs and Jobs.
    for kind in REGISTRY.iter().filter(|kind| !kind.by_default) {
        for child in kind.permissions.iter().filter(|permission| {
            permission.resource != "events" && permission.verbs.contains(&"create")
        }) {
            let children = format!(
                "{} -l app.kubernetes.io/managed-by=my-operator",
                child.resource
            );
            wait_for("a child", async || {
                (!team.names(&children).await.is_empty()).then_some(())
            })
            .await;
        }
    }
    let log = operator.log();
    assert!(!log.contains("ValidatingAdmissionPolicy"), "{log}");
    drop(operator);
    plane.stop().await;
}

/// What the roles allow, and the policies on children and on names deny.
async fn only_objects_of_its_kinds_may_be_touched(own: &Kubectl, team: &Kubectl) {
    let labels = json!({ "app.kubernetes.io/managed-by": "my-operator" });
    // Owners that exist: the garbage collector deletes the pods of others.
    team.run("create configmap x").await.good();
    team.apply(
        "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: x}, \
         spec: {schedule: '2099-01-01T00:00:00Z', command: echo YAY}}",
    )
    .await
    .good();
    let uid = async |object: &str| team.field(object, "{.metadata.uid}").await;
    let at = owned_by(
        "cnat.programming-kubernetes.info/v1alpha1",
        "At",
        &uid("at/x").await,
    );
    let foreign = owned_by("v1", "ConfigMap", &uid("configmap/x").await);
    let invented = owned_by("cnat.programming-kubernetes.info/v1alpha1", "At", "u");
    // One of the operator's, one of another controller, one without a controller.
    for (name, labels, owners) in [
        ("ours", &labels, &at),
        ("theirs", &json!({}), &foreign),
        ("orphan", &json!({}), &json!([])),
    ] {
        let metadata = json!({ "name": name, "labels": labels, "ownerReferences": owners });
        team.apply(&pod(&metadata)).await.good();
    }
    let create = "create --dry-run=server -f -";
    let patch = |object: &str, patch: Value| {
        format!("patch {object} --dry-run=server --type=merge --patch={patch}")
    };
    let revision = |owners: &Value| {
        json!({
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": { "name": "r", "ownerReferences": owners },
            "data": {},
            "revision": 1,
        })
        .to_string()
    };
    let image = json!([{ "op": "replace", "path": "/spec/containers/0/image", "value": "evil" }]);
    let owners = |owners: &Value| json!({ "metadata": { "ownerReferences": owners } });
    let pods = [
        (create.to_owned(), pod(&json!({}))),
        (create.to_owned(), pod(&json!({ "labels": labels }))),
        (create.to_owned(), pod(&json!({ "ownerReferences": at }))),
        (
            create.to_owned(),
            pod(&json!({ "labels": labels, "ownerReferences": foreign })),
        ),
        (create.to_owned(), revision(&at)),
        (create.to_owned(), revision(&json!([]))),
        (
            "delete pod/theirs --dry-run=server".to_owned(),
            String::new(),
        ),
        (
            "delete pod/orphan --dry-run=server".to_owned(),
            String::new(),
        ),
        (
            patch("pod/theirs", json!({ "metadata": { "labels": labels } })),
            String::new(),
        ),
        (patch("pod/orphan", owners(&at)), String::new()),
        (patch("pod/ours", owners(&foreign)), String::new()),
        (
            format!("patch pod/ours --dry-run=server --type=json --patch={image}"),
            String::new(),
        ),
    ];
    for (args, input) in pods {
        let said = thief(team, &args, &input).await;
        assert!(said.contains(DENIED), "{args} {input}: {said}");
    }

    // No policy can look up the owner. If there is none, the garbage collector deletes the pod.
    let invented = json!({ "name": "invented", "labels": labels, "ownerReferences": invented });
    let said = thief(team, "create -f -", &pod(&invented)).await;
    assert!(said.contains("created"), "{said}");
    team.until_gone("pod/invented").await;

    let token = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "my-operator-webhook-ca",
            "annotations": { "kubernetes.io/service-account.name": "default" },
        },
        "type": "kubernetes.io/service-account-token",
    });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "other" },
    });
    for object in [token, lease] {
        let said = thief(own, create, &object.to_string()).await;
        assert!(said.contains(DENIED), "{object}: {said}");
    }
    team.run("delete pod/ours pod/theirs pod/orphan at/x")
        .await
        .good();
}

/// The same of the policy on webhook configurations.
async fn only_the_bundle_of_a_webhook_may_change(own: &Kubectl) {
    for (kind, name) in [
        (
            "mutatingwebhookconfiguration",
            "my-operator-mutating-webhook-configuration",
        ),
        (
            "validatingwebhookconfiguration",
            "my-operator-validating-webhook-configuration",
        ),
    ] {
        let object = format!("{kind}/{name}");
        let json =
            |patch: Value| format!("patch {object} --dry-run=server --type=json --patch={patch}");
        let replace =
            |path: &str, value: Value| json(json!([{ "op": "add", "path": path, "value": value }]));
        let first = "/webhooks/0";
        let elsewhere = json!({ "url": "https://example.com/x", "caBundle": "" });
        let everything = json!([{
            "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"],
        }]);
        for args in [
            replace(&format!("{first}/failurePolicy"), json!("Ignore")),
            replace(&format!("{first}/rules"), everything),
            replace(&format!("{first}/clientConfig"), elsewhere),
            replace(
                &format!("{first}/clientConfig/service/name"),
                json!("other"),
            ),
            replace(&format!("{first}/timeoutSeconds"), json!(30)),
            replace(&format!("{first}/matchConditions"), json!([])),
            replace(
                &format!("{first}/namespaceSelector"),
                json!({ "matchLabels": { "a": "b" } }),
            ),
            replace(
                &format!("{first}/objectSelector"),
                json!({ "matchLabels": { "a": "b" } }),
            ),
            json(json!([{ "op": "remove", "path": first }])),
            format!("label {object} a=b --dry-run=server"),
            format!("annotate {object} a=b --dry-run=server"),
        ] {
            let said = thief(own, &args, "").await;
            assert!(said.contains(DENIED), "{args}: {said}");
        }
        let bundle = own
            .until_any(&object, "{.webhooks[0].clientConfig.caBundle}")
            .await;
        let said = thief(
            own,
            &replace(&format!("{first}/clientConfig/caBundle"), json!(bundle)),
            "",
        )
        .await;
        assert!(!said.contains(DENIED) && said.contains("patched"), "{said}");
    }
}
