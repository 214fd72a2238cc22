//! What the spec says reaches the pod, and what it may not say.

use serde_json::{Value, json};

use super::{HOLD, at, at_with};
use crate::cluster::kubectl;
use crate::harness::Kubectl;

/// The pod of an At, as soon as there is one.
async fn pod(kubectl: &Kubectl, name: &str) -> Value {
    let pod = format!("pod/{name}-pod");
    kubectl
        .until(&pod, "to be there", |pod| Some(pod?.clone()))
        .await
}

#[tokio::test]
async fn fields_that_our_types_do_not_know_reach_the_pod() {
    let kubectl = kubectl("unknown-fields").await;
    // hostnameOverride is younger than the API types that this program is built with.
    let object = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: x}
spec:
  schedule: now
  command: echo YAY
  template:
    metadata: {labels: {team: a}}
    spec:
      hostnameOverride: somewhere
      terminationGracePeriodSeconds: 7
      containers: [{name: side, image: 'side:1', command: [sleep, '1']}]
";
    kubectl.apply(object).await.good();
    kubectl
        .until_field("pod/x-pod", "{.spec.hostnameOverride}", "somewhere")
        .await;
    let names = kubectl
        .field("pod/x-pod", "{.spec.containers[*].name}")
        .await;
    assert_eq!(names, "at side");
    assert_eq!(
        kubectl.field("pod/x-pod", "{.metadata.labels.team}").await,
        "a"
    );
}

#[tokio::test]
async fn image_and_shell_make_the_container_at() {
    let kubectl = kubectl("image").await;
    let shell = "image: 'busybox:1.37'\n  shell: [sh, -x, -c]";
    for (name, spec, image, command) in [
        ("default", "", "bash:5.3", json!(["bash", "-c", "echo YAY"])),
        (
            "own",
            shell,
            "busybox:1.37",
            json!(["sh", "-x", "-c", "echo YAY"]),
        ),
    ] {
        kubectl.apply(&at(name, spec, "")).await.good();
        let pod = pod(&kubectl, name).await;
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["name"], "at");
        assert_eq!(container["image"], image);
        assert_eq!(container["command"], command);
        assert_eq!(container["args"], Value::Null);
        assert_eq!(
            container["terminationMessagePolicy"],
            "FallbackToLogsOnError"
        );
        assert_eq!(pod["spec"]["restartPolicy"], "Never");
    }
}

#[tokio::test]
async fn a_template_gives_the_pod_everything_else() {
    let kubectl = kubectl("template").await;
    kubectl.run("create serviceaccount runner").await.good();
    kubectl
        .run("create configmap settings --from-literal=a=b")
        .await
        .good();
    let object = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: x}
spec:
  schedule: now
  command: echo $A
  image: unused:1
  activeDeadlineSeconds: 600
  template:
    metadata: {labels: {team: a}, annotations: {kwok.my-operator.dev/exit-code: hold, note: keep}}
    spec:
      serviceAccountName: runner
      nodeSelector: {kubernetes.io/hostname: node-2}
      initContainers:
      - {name: setup, image: 'setup:1'}
      - {name: proxy, image: 'proxy:1', restartPolicy: Always}
      containers:
      - {name: log, image: 'log:1'}
      - name: at
        image: own:2
        workingDir: /settings
        env: [{name: A, value: one}]
        terminationMessagePolicy: File
        volumeMounts: [{name: settings, mountPath: /settings}]
      volumes: [{name: settings, configMap: {name: settings}}]
";
    kubectl.apply(object).await.good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    let pod = pod(&kubectl, "x").await;
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccountName"], "runner");
    assert_eq!(spec["nodeName"], "node-2");
    assert_eq!(spec["activeDeadlineSeconds"], 600);
    assert_eq!(spec["volumes"][0]["configMap"]["name"], "settings");
    assert_eq!(spec["initContainers"][1]["restartPolicy"], "Always");
    let containers = spec["containers"].as_array().unwrap();
    let names: Vec<_> = containers.iter().map(|c| c["name"].clone()).collect();
    assert_eq!(names, ["log", "at"], "the order is the template's");
    let command = &containers[1];
    assert_eq!(command["image"], "own:2", "its own image wins");
    assert_eq!(command["command"], json!(["bash", "-c", "echo $$A"]));
    assert_eq!(command["env"], json!([{"name": "A", "value": "one"}]));
    assert_eq!(command["volumeMounts"][0]["name"], "settings");
    assert_eq!(command["terminationMessagePolicy"], "File");
    assert_eq!(containers[0]["image"], "log:1");
    let meta = &pod["metadata"];
    assert_eq!(meta["labels"]["team"], "a");
    assert_eq!(meta["annotations"]["note"], "keep");
    let uid = kubectl.field("at/x", "{.metadata.uid}").await;
    let owner = &meta["ownerReferences"][0];
    assert_eq!(owner["uid"], uid);
    assert_eq!(owner["controller"], true);
    // The sidecar has not ended, and the command has.
    kubectl
        .run("annotate --overwrite pod/x-pod kwok.my-operator.dev/exit-code=0")
        .await
        .good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    // The spec stays as it was written.
    let said = kubectl.apply(object).await;
    assert!(said.ok && said.out.contains("unchanged"), "{said:?}");
}

#[tokio::test]
async fn fields_that_run_a_command_twice_or_belong_to_the_operator_are_rejected() {
    let kubectl = kubectl("template-rules").await;
    let once = "Forbidden: a command runs once and is never restarted";
    let containers = "spec.template.spec.containers[0]";
    let init = "spec.template.spec.initContainers[0]";
    let gate = "spec.template.spec.schedulingGates[0].name";
    let own = "cnat.programming-kubernetes.info";
    for (template, fault) in [
        (
            "{spec: {restartPolicy: Always}}",
            "spec.template.spec.restartPolicy: Unsupported value: \"Always\": supported values: \"Never\"".to_owned(),
        ),
        (
            "{spec: {restartPolicy: OnFailure}}",
            "spec.template.spec.restartPolicy: Unsupported value: \"OnFailure\": supported values: \"Never\"".to_owned(),
        ),
        (
            "{spec: {containers: [{name: at, restartPolicy: Never}]}}",
            format!("{containers}.restartPolicy: {once}"),
        ),
        (
            "{spec: {containers: [{name: at, restartPolicyRules: [{action: Restart}]}]}}",
            format!("{containers}.restartPolicyRules: {once}"),
        ),
        (
            "{spec: {initContainers: [{name: i, image: 'i:1', restartPolicy: OnFailure}]}}",
            format!("{init}.restartPolicy: Unsupported value: \"OnFailure\": supported values: \"Always\""),
        ),
        (
            "{spec: {initContainers: [{name: i, image: 'i:1', restartPolicyRules: [{action: Restart}]}]}}",
            format!("{init}.restartPolicyRules: {once}"),
        ),
        (
            "{spec: {containers: [{name: at, command: [sh]}]}}",
            format!("{containers}.command: Forbidden: spec.command and spec.shell say what this container runs"),
        ),
        (
            "{spec: {containers: [{name: at, args: [x]}]}}",
            format!("{containers}.args: Forbidden: spec.command and spec.shell say what this container runs"),
        ),
        (
            &format!("{{spec: {{schedulingGates: [{{name: {own}/armed}}]}}}}"),
            format!("{gate}: Forbidden: gates of this name are the operator's"),
        ),
        (
            &format!("{{metadata: {{labels: {{{own}/at-uid: x}}}}}}"),
            format!("spec.template.metadata.labels[{own}/at-uid]: Forbidden: the operator sets it"),
        ),
        (
            &format!("{{metadata: {{annotations: {{{own}/spec-hash: x}}}}}}"),
            format!("spec.template.metadata.annotations[{own}/spec-hash]: Forbidden: the operator sets it"),
        ),
    ] {
        let object = at_with("x", &format!("{{schedule: now, command: a, template: {template}}}"));
        let text = kubectl.apply(&object).await.bad();
        assert_eq!(text, format!("The At \"x\" is invalid: {fault}\n"), "{template}");
    }
    let node = "{schedule: now, command: a, template: {spec: {nodeName: node-1}}}";
    let text = kubectl.apply(&at_with("x", node)).await.bad();
    assert!(
        text.contains("spec.template.spec.nodeName: Forbidden: "),
        "{text}"
    );
    assert_eq!(kubectl.run("get at,pods -o name").await.good(), "");
}

#[tokio::test]
async fn a_started_at_is_immutable_except_for_its_time_to_live() {
    let kubectl = kubectl("fixed").await;
    kubectl.apply(&at("x", "suspend: false", HOLD)).await.good();
    kubectl
        .until_field("at/x", "{.status.phase}", "RUNNING")
        .await;
    let generation = kubectl.field("at/x", "{.metadata.generation}").await;
    let patch = async |spec: &str| {
        let patch = format!("spec: {spec}");
        kubectl
            .with("patch at/x --type=merge --patch-file=/dev/stdin", &patch)
            .await
    };
    for (spec, field) in [
        ("{schedule: now + 1 day}", "schedule"),
        ("{command: echo NAY}", "command"),
        ("{image: 'other:1'}", "image"),
        ("{shell: [sh, -c]}", "shell"),
        ("{template: {metadata: {labels: {a: b}}}}", "template"),
    ] {
        let fault =
            format!("The At \"x\" is invalid: spec.{field}: Forbidden: the command has started\n");
        assert_eq!(patch(spec).await.bad(), fault);
    }
    let text = patch("{command: echo NAY, image: 'other:1'}").await.bad();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[1..].sort_unstable();
    assert_eq!(
        lines,
        [
            "The At \"x\" is invalid: ",
            "* spec.command: Forbidden: the command has started",
            "* spec.image: Forbidden: the command has started",
        ]
    );
    assert_eq!(
        kubectl.field("at/x", "{.metadata.generation}").await,
        generation
    );
    for (spec, warning) in [
        (
            "{suspend: true}",
            "suspend: has no effect now that the command has started",
        ),
        (
            "{startingDeadlineSeconds: 1}",
            "startingDeadlineSeconds: has no effect once the pod was released",
        ),
        (
            "{activeDeadlineSeconds: 7}",
            "activeDeadlineSeconds: has no effect once a node has taken the pod",
        ),
    ] {
        let said = patch(spec).await;
        let warning = format!("Warning: spec.{warning}");
        assert!(said.ok && said.err.contains(&warning), "{said:?}");
    }
    let said = patch("{ttlSecondsAfterFinished: 3600}").await;
    assert!(said.ok && !said.err.contains("no effect"), "{said:?}");
    // Suspended or not, the run goes on to its end.
    kubectl
        .run("annotate --overwrite pod/x-pod kwok.my-operator.dev/exit-code=0")
        .await
        .good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    let text = patch("{command: echo NAY}").await.bad();
    assert!(text.contains("the command has started"), "{text}");
    assert_eq!(
        kubectl.field("at/x", "{.status.observedGeneration}").await,
        kubectl.field("at/x", "{.metadata.generation}").await
    );
}
