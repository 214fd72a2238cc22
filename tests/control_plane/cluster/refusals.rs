//! Bad objects are rejected at `kubectl apply`, with every fault named, in the API's own words.

use crate::cluster::kubectl;

fn mydaemonset(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {{name: {name}}}, spec: {spec}}}"
    )
}

fn at(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {name}}}, spec: {spec}}}"
    )
}

#[tokio::test]
async fn an_empty_image_is_refused_as_kubectl_prints_it() {
    let kubectl = kubectl("empty-image").await;
    let sentence =
        "The MyDaemonSet \"bad\" is invalid: spec.image: Required value: image is required\n";
    for spec in ["{image: ''}", "{}", "{image: null}"] {
        assert_eq!(
            kubectl.apply(&mydaemonset("bad", spec)).await.bad(),
            sentence,
            "{spec}"
        );
    }
    // No spec at all.
    let none =
        "{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {name: bad}}";
    assert_eq!(kubectl.apply(none).await.bad(), sentence);
    assert_eq!(kubectl.names("mds").await, [""; 0]);
}

#[tokio::test]
async fn several_faults_are_named_in_one_answer() {
    let kubectl = kubectl("several").await;
    let spec = "{image: 'Bad Image', minReadySeconds: -1, updateStrategy: {type: Sometimes}}";
    let text = kubectl.apply(&mydaemonset("bad", spec)).await.bad();
    assert!(
        text.starts_with("The MyDaemonSet \"bad\" is invalid: \n* "),
        "{text}"
    );
    for fault in [
        "* spec.image: Invalid value: \"Bad Image\": ",
        "* spec.minReadySeconds: Invalid value: -1: ",
        "* spec.updateStrategy.type: Unsupported value: \"Sometimes\": supported values: \"RollingUpdate\", \"OnDelete\"",
    ] {
        assert!(text.contains(fault), "{fault} is not in {text}");
    }
    let spec = "{schedule: '2026-04-12 10:12:00Z', command: ' ', startingDeadlineSeconds: -5}";
    let text = kubectl.apply(&at("bad", spec)).await.bad();
    for fault in [
        "* spec.schedule: Invalid value: \"2026-04-12 10:12:00Z\": at character 11: ",
        "* spec.command: Required value: command is required",
        "* spec.startingDeadlineSeconds: Invalid value: -5: ",
    ] {
        assert!(text.contains(fault), "{fault} is not in {text}");
    }
}

#[tokio::test]
async fn every_reason_reads_as_kubectl_prints_it_for_a_builtin_kind() {
    let kubectl = kubectl("reasons").await;
    let name = "n".repeat(100);
    let spec = "{image: '', minReadySeconds: -1, updateStrategy: {type: Sometimes}, template: {spec: {
        nodeName: node-1, tolerations: {}, initContainers: [{name: a, image: 'b:1'}, {name: a, image: 'b:1'}]}}}";
    let text = kubectl.apply(&mydaemonset(&name, spec)).await.bad();
    let expected = [
        format!("The MyDaemonSet \"{name}\" is invalid: "),
        "* metadata.name: Too long: may not be more than 63 bytes".into(),
        "* spec.image: Required value: image is required".into(),
        "* spec.template.spec.nodeName: Forbidden: the node is not the template's to choose".into(),
        "* spec.template.spec.tolerations: Invalid value: {}: must be an array".into(),
        "* spec.template.spec.initContainers[1].name: Duplicate value: \"a\"".into(),
        "* spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0".into(),
        "* spec.updateStrategy.type: Unsupported value: \"Sometimes\": supported values: \"RollingUpdate\", \"OnDelete\"".into(),
    ];
    let mut lines: Vec<&str> = text.lines().collect();
    let mut wanted: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(lines[0], wanted[0]);
    lines.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(lines, wanted);

    // Where a built-in kind can have the same faults, the API server reports them in the same lines.
    let spec = "{minReadySeconds: -1, updateStrategy: {type: Sometimes}, selector: {matchLabels: {a: b}},
        template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: 'b:1'}, {name: a, image: 'b:1'}]}}}";
    let text = kubectl
        .apply(&format!(
            "{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: x}}, spec: {spec}}}"
        ))
        .await
        .bad();
    assert!(
        text.starts_with("The DaemonSet \"x\" is invalid: \n* "),
        "{text}"
    );
    for line in [
        "* spec.template.spec.containers[1].name: Duplicate value: \"a\"",
        "* spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
        ": supported values: \"RollingUpdate\", \"OnDelete\"",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn the_bad_samples_are_refused() {
    let kubectl = kubectl("bad-samples").await;
    for (file, first) in [
        (
            "apps_v1beta1_mydaemonset.yaml",
            "* spec.image: Required value: image is required",
        ),
        ("cnat_v1alpha1_at.yaml", "* spec.schedule: Invalid value: "),
    ] {
        let text = kubectl
            .run(&format!("apply -f config/samples/bad/{file}"))
            .await
            .bad();
        assert!(text.contains("is invalid: "), "{text}");
        assert!(text.matches("\n* ").count() >= 2, "one fault only: {text}");
        assert!(text.lines().nth(1).unwrap().starts_with(first), "{text}");
    }
}

#[tokio::test]
async fn a_spec_of_another_type_is_refused_by_its_field() {
    let kubectl = kubectl("types").await;
    for (object, field) in [
        (mydaemonset("bad", "[1]"), "spec"),
        (mydaemonset("bad", "{image: 5}"), "spec.image"),
        (at("bad", "{schedule: now, command: [a]}"), "spec.command"),
        (
            at(
                "bad",
                "{schedule: now, command: a, template: {spec: {containers: 7}}}",
            ),
            "containers",
        ),
    ] {
        let text = kubectl.apply(&object).await.bad();
        assert!(
            text.contains("is invalid") && text.contains(field),
            "{object}: {text}"
        );
    }
}

#[tokio::test]
async fn warnings_reach_the_user_who_goes_on() {
    let kubectl = kubectl("warnings").await;
    let said = kubectl
        .apply(&mydaemonset(
            "untagged",
            "{image: nginx, template: {spec: {nodeSelector: {no: where}}}}",
        ))
        .await;
    assert!(said.ok && said.err.contains("Warning: "), "{said:?}");
    let said = kubectl
        .apply(&at(
            "past",
            "{schedule: '2020-01-01T00:00:00Z', command: a, suspend: true}",
        ))
        .await;
    assert!(said.ok && said.err.contains("past"), "{said:?}");
}

#[tokio::test]
async fn defaults_are_added_and_nothing_else_is_touched() {
    let kubectl = kubectl("defaults").await;
    let spec =
        "{image: 'nginx:1', template: {spec: {nodeSelector: {no: where}, aFieldToBe: [1, 2]}}}";
    kubectl.apply(&mydaemonset("defaulted", spec)).await.good();
    let field = async |path: &str| kubectl.field("mds/defaulted", path).await;
    assert_eq!(field("{.spec.updateStrategy.type}").await, "RollingUpdate");
    assert_eq!(
        field("{.spec.updateStrategy.rollingUpdate.maxUnavailable}").await,
        "1"
    );
    assert_eq!(field("{.spec.revisionHistoryLimit}").await, "10");
    assert_eq!(field("{.spec.template.spec.aFieldToBe}").await, "[1,2]");
    kubectl
        .apply(&at(
            "defaulted",
            "{schedule: '2099-01-01T00:00:00Z', command: a, ttlSecondsAfterFinished: 5}",
        ))
        .await
        .good();
    let field = async |path: &str| kubectl.field("at/defaulted", path).await;
    assert_eq!(field("{.spec.image}").await, "bash:5.3");
    assert_eq!(field("{.spec.shell}").await, r#"["bash","-c"]"#);
    assert_eq!(field("{.spec.startingDeadlineSeconds}").await, "3600");
}

#[tokio::test]
async fn the_creator_annotation_cannot_be_forged() {
    let kubectl = kubectl("forged").await;
    let key = "cnat.programming-kubernetes.info/created-by";
    let path = r"{.metadata.annotations.cnat\.programming-kubernetes\.info/created-by}";
    let forged = format!(
        "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: x, annotations: {{{key}: mallory}}}}, spec: {{schedule: '2099-01-01T00:00:00Z', command: a}}}}"
    );
    kubectl.apply(&forged).await.good();
    let creator = kubectl.field("at/x", path).await;
    assert!(!creator.is_empty() && creator != "mallory", "{creator}");
    kubectl
        .run(&format!("annotate --overwrite at/x {key}=mallory"))
        .await
        .good();
    assert_eq!(kubectl.field("at/x", path).await, creator);
    kubectl.run(&format!("annotate at/x {key}-")).await.good();
    assert_eq!(kubectl.field("at/x", path).await, creator);
}

#[tokio::test]
async fn what_has_started_cannot_be_changed() {
    let kubectl = kubectl("immutable").await;
    let spec = |command: &str| {
        at(
            "started",
            &format!(
                "{{schedule: now, command: {command}, template: {{metadata: {{annotations: {{kwok.my-operator.dev/exit-code: hold}}}}}}}}"
            ),
        )
    };
    kubectl.apply(&spec("a")).await.good();
    kubectl
        .until_field("at/started", "{.status.phase}", "RUNNING")
        .await;
    let text = kubectl.apply(&spec("b")).await.bad();
    assert_eq!(
        text,
        "The At \"started\" is invalid: spec.command: Forbidden: the command has started\n"
    );
    kubectl.run("label at/started fine=yes").await.good();
}

#[tokio::test]
async fn a_generated_name_and_a_dry_run_are_judged_alike() {
    let kubectl = kubectl("generate-name").await;
    let object = |image: &str| {
        format!(
            "{{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {{generateName: some-}}, spec: {{image: '{image}', template: {{spec: {{nodeSelector: {{no: where}}}}}}}}}}"
        )
    };
    let text = kubectl.with("create -f -", &object("")).await.bad();
    assert!(
        text.contains("spec.image: Required value: image is required"),
        "{text}"
    );
    let text = kubectl
        .with("create --dry-run=server -f -", &object("nginx:1"))
        .await
        .good();
    assert!(text.contains("created (server dry run)"), "{text}");
    assert_eq!(kubectl.names("mds").await, [""; 0]);
    kubectl.with("create -f -", &object("nginx:1")).await.good();
}
