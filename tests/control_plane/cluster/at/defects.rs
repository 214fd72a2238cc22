//! The seven defects of the programs that At comes from, each shown to be gone by a test that has
//! its name.

use std::collections::BTreeSet;
use std::process::Command;

use super::{HOLD, at, at_when, record, set_status, witness};
use crate::cluster::kubectl;
use crate::harness::policies::{BY_OPERATOR, Policy};
use crate::harness::{Kubectl, run, wait_for};

/// Creates the At `x`, whose pod runs until `end` ends it, and waits until the At is DONE. No later
/// reconcile creates a second pod.
async fn ended_from_outside(kubectl: &Kubectl, end: impl AsyncFn()) {
    let record = record(kubectl).await;
    kubectl.apply(&at("x", "", HOLD)).await.good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    let uid = kubectl.field("at/x", "{.status.podUID}").await;
    end().await;
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    kubectl.run("label at/x look=again").await.good();
    witness(kubectl, "witness", "now").await;
    record.end().await;
    assert_eq!(record.uids("x-pod"), BTreeSet::from([uid]));
}

async fn expect(kubectl: &Kubectl, fields: &[(&str, &str)]) {
    for (path, value) in fields {
        assert_eq!(kubectl.field("at/x", path).await, *value, "{path}");
    }
}

#[tokio::test]
async fn a_pod_deleted_while_running_ran_twice() {
    let kubectl = kubectl("defect-deleted").await;
    let delete = async || {
        let now = "delete pod/x-pod --grace-period=0 --force";
        kubectl.run(now).await.good();
    };
    ended_from_outside(&kubectl, delete).await;
    expect(
        &kubectl,
        &[
            ("{.status.result}", "Unknown"),
            ("{.status.reason}", "PodLost"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_pod_evicted_through_the_api_while_running_ran_twice() {
    let kubectl = kubectl("defect-drained").await;
    let evict = async || {
        let namespace = &kubectl.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/pods/x-pod/eviction");
        let eviction = format!(
            "{{\"apiVersion\": \"policy/v1\", \"kind\": \"Eviction\", \"metadata\": {{\"name\": \"x-pod\", \"namespace\": \"{namespace}\"}}}}"
        );
        let call = format!("create --raw {path} -f -");
        kubectl.with(&call, &eviction).await.good();
    };
    ended_from_outside(&kubectl, evict).await;
    // The fake kubelet deletes the pod without reporting its end.
    expect(
        &kubectl,
        &[
            ("{.status.result}", "Unknown"),
            ("{.status.reason}", "PodLost"),
        ],
    )
    .await;
    let message = kubectl.field("at/x", "{.status.message}").await;
    assert!(message.contains("EvictionByEvictionAPI"), "{message}");
}

#[tokio::test]
async fn a_pod_evicted_by_its_node_while_running_ran_twice() {
    let kubectl = kubectl("defect-evicted").await;
    let status = "{phase: Failed, reason: Evicted, message: DiskPressure}";
    ended_from_outside(&kubectl, async || {
        set_status(&kubectl, "x-pod", status).await;
    })
    .await;
    expect(
        &kubectl,
        &[
            ("{.status.result}", "Failed"),
            ("{.status.reason}", "Evicted"),
        ],
    )
    .await;
    kubectl.absent("at/x", "{.status.exitCode}").await;
}

#[tokio::test]
async fn with_restart_policy_on_failure_the_kubelet_ran_it_again() {
    let kubectl = kubectl("defect-restart").await;
    let template = |spec: &str| {
        at("x", "", "").replace(
            "template: {metadata: {annotations: {}}}",
            &format!("template: {{spec: {spec}}}"),
        )
    };
    for (spec, field) in [
        ("{restartPolicy: OnFailure}", "restartPolicy"),
        ("{restartPolicy: Always}", "restartPolicy"),
        (
            "{containers: [{name: at, restartPolicy: OnFailure}]}",
            "containers[0].restartPolicy",
        ),
        (
            "{containers: [{name: at, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]}",
            "containers[0].restartPolicyRules",
        ),
    ] {
        let text = kubectl.apply(&template(spec)).await.bad();
        let field = format!("spec.template.spec.{field}: ");
        assert!(text.contains(&field), "{field} is not in {text}");
    }
    // What failed stays failed, in the pod that ran.
    let fails = "kwok.my-operator.dev/exit-code: '1'";
    kubectl.apply(&at("x", "", fails)).await.good();
    kubectl
        .until_field("at/x", "{.status.result}", "Failed")
        .await;
    for (path, value) in [
        ("{.spec.restartPolicy}", "Never"),
        ("{.status.phase}", "Failed"),
        ("{.status.containerStatuses[*].restartCount}", "0"),
    ] {
        assert_eq!(kubectl.field("pod/x-pod", path).await, value, "{path}");
    }
}

/// Kubernetes' expansion of `$(NAME)` in commands and args when no variable is defined
/// (k8s.io/kubernetes/third_party/forked/golang/expansion): `$$` is an escaped `$`, a reference to
/// an unknown variable stays as it is.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        out.push('$');
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
        } else if let Some(end) = rest.strip_prefix('(').and_then(|r| r.find(')')) {
            out.push_str(&rest[..end + 2]);
            rest = &rest[end + 2..];
        }
    }
    out + rest
}

#[test]
fn the_expansion_is_kubernetes_own() {
    for (text, expanded) in [
        ("a$$b", "a$b"),
        ("$(X)", "$(X)"),
        ("$$(X)", "$(X)"),
        ("$$$$", "$$"),
        ("$X $", "$X $"),
        ("$(X", "$(X"),
    ] {
        assert_eq!(expand(text), expanded, "{text}");
    }
}

/// It reaches bash unchanged, as a kubelet would hand it over.
#[tokio::test]
async fn the_command_was_split_at_blanks() {
    let kubectl = kubectl("bash").await;
    let commands = [
        "echo YAY",
        "echo $$ | grep -c '^[0-9]*$'",
        "echo '$(HOME)' \"$(echo inner)\" '$$(HOME)' '$$$'",
        "X=5; echo $X ${X} \"$X\" '$X' | tr 5 6",
        "printf '%s\\n' \"a  b\" 'c\"d' \\$e",
        "for i in 1 2 3; do\n  echo \"line $i\"\ndone\n",
        "echo \u{e9}\u{4e2d} && false || echo done",
    ];
    for (number, command) in commands.iter().enumerate() {
        let name = format!("c{number}");
        let object = serde_json::json!({
            "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
            "kind": "At",
            "metadata": { "name": name },
            "spec": { "schedule": "now", "command": command },
        });
        kubectl.apply(&object.to_string()).await.good();
        let pod = format!("pod/{name}-pod");
        let args = kubectl
            .until(&pod, "to be there", |pod| {
                let container = &pod?["spec"]["containers"][0];
                let texts = ["command", "args"]
                    .iter()
                    .flat_map(|list| container[*list].as_array().cloned().unwrap_or_default());
                Some(
                    texts
                        .map(|t| t.as_str().unwrap().to_owned())
                        .collect::<Vec<_>>(),
                )
            })
            .await;
        let args: Vec<String> = args.iter().map(|arg| expand(arg)).collect();
        assert_eq!(args, ["bash", "-c", command]);
        let as_in_pod = run(Command::new(&args[0]).args(&args[1..]), "").await;
        let as_typed = run(Command::new("bash").args(["-c", command]), "").await;
        assert_eq!(as_in_pod.good(), as_typed.good(), "{command}");
    }
}

/// At `kubectl apply` already. For one that is stored without the webhook, see the test of the same
/// name in `tests/control_plane/disruption`.
#[tokio::test]
async fn a_bad_schedule_was_retried_for_ever_and_reported_nowhere() {
    let kubectl = kubectl("defect-schedule").await;
    for (schedule, why) in [
        ("tomorrow", "at character 1: "),
        ("2026-04-12 10:12:00Z", "at character 11: "),
        ("2026-04-12T10:12:00", "at character 20: "),
        ("now + 5 lightyears", "at character 9: "),
    ] {
        let text = kubectl.apply(&at_when(schedule, "x", "", "")).await.bad();
        let fault = format!("spec.schedule: Invalid value: \"{schedule}\": {why}");
        assert!(text.contains(&fault), "{fault} is not in {text}");
    }
    assert_eq!(kubectl.names("at").await, [""; 0]);
}

#[tokio::test]
async fn a_foreign_pod_of_the_same_name_was_adopted() {
    let kubectl = kubectl("stranger").await;
    let foreign = "{apiVersion: v1, kind: Pod, metadata: {name: x-pod}, spec: {containers: [{name: c, image: i}]}}";
    kubectl.apply(foreign).await.good();
    let uid = kubectl.field("pod/x-pod", "{.metadata.uid}").await;
    kubectl.apply(&at("x", "", "")).await.good();
    let reason = "{.status.conditions[?(@.type=='Started')].reason}";
    kubectl.until_field("at/x", reason, "NameConflict").await;
    let message = kubectl
        .field("at/x", "{.status.conditions[?(@.type=='Started')].message}")
        .await;
    assert!(message.contains("x-pod"), "{message}");
    assert_eq!(kubectl.field("at/x", "{.status.phase}").await, "PENDING");
    kubectl.absent("at/x", "{.status.podUID}").await;
    assert_eq!(kubectl.field("pod/x-pod", "{.metadata.uid}").await, uid);
    kubectl
        .absent("pod/x-pod", "{.metadata.ownerReferences}")
        .await;
}

/// An At that is due while the API server rejects one of the three writes of the protocol runs
/// as soon as the API server accepts that write.
async fn stranded(namespace: &str, operation: &str, resource: &str) {
    let kubectl = kubectl(namespace).await;
    let policy = Policy::deny(&kubectl, operation, resource, BY_OPERATOR).await;
    let before = policy.refusals().await;
    kubectl.apply(&at("x", "", "")).await.good();
    wait_for("the operator's call to be refused", async || {
        (policy.refusals().await > before).then_some(())
    })
    .await;
    let phase = kubectl.field_if_any("at/x", "{.status.phase}").await;
    assert_ne!(phase, "DONE");
    policy.lift().await;
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    let uid = kubectl.field("at/x", "{.status.podUID}").await;
    assert_eq!(kubectl.field("pod/x-pod", "{.metadata.uid}").await, uid);
}

#[tokio::test]
async fn one_failed_creation_stranded_an_at() {
    stranded("defect-create", "CREATE", "pods").await;
}

#[tokio::test]
async fn one_failed_write_of_the_status_stranded_an_at() {
    stranded("defect-commit", "UPDATE", "ats/status").await;
}

#[tokio::test]
async fn one_failed_release_stranded_an_at() {
    stranded("defect-release", "UPDATE", "pods").await;
}

#[tokio::test]
async fn failed_and_succeeded_were_both_just_done() {
    let kubectl = kubectl("defect-done").await;
    kubectl.apply(&at("good", "", "")).await.good();
    let fails = "kwok.my-operator.dev/exit-code: '3'";
    kubectl.apply(&at("bad", "", fails)).await.good();
    kubectl
        .run("wait --for=condition=Finished --timeout=90s at/good at/bad")
        .await
        .good();
    for (name, result, code, condition) in [
        ("good", "Succeeded", "0", "Complete"),
        ("bad", "Failed", "3", "Failed"),
    ] {
        let object = format!("at/{name}");
        assert_eq!(kubectl.field(&object, "{.status.phase}").await, "DONE");
        assert_eq!(kubectl.field(&object, "{.status.result}").await, result);
        assert_eq!(kubectl.field(&object, "{.status.exitCode}").await, code);
        let table = kubectl
            .run(&format!("get {object} --no-headers"))
            .await
            .good();
        let row: Vec<&str> = table.split_whitespace().collect();
        assert_eq!(row[2..5], ["DONE", result, code], "{table}");
        let types = "{.status.conditions[?(@.status=='True')].type}";
        let types = kubectl.field(&object, types).await;
        for other in ["Complete", "Failed"] {
            let there = types.split(' ').any(|type_| type_ == other);
            assert_eq!(there, other == condition, "{types}");
        }
    }
}
