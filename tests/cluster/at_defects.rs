//! The seven defects of the programs that At comes from, each shown to be gone by a test that has
//! its name.

use std::collections::BTreeSet;
use std::process::Command;

use crate::at::{HOLD, at};
use crate::harness::{Kubectl, run, wait_for};
use crate::kubectl;

/// The UIDs of all pods of the At `x` that a watch has told of.
fn uids(log: &std::path::Path) -> BTreeSet<String> {
    let said = std::fs::read_to_string(log).unwrap_or_default();
    let lines = said.lines();
    lines
        .filter_map(|line| line.strip_prefix("x-pod/"))
        .map(str::to_owned)
        .collect()
}

/// Runs the At `x`, which goes on until `end` ends its pod, and waits until it is DONE. Nothing
/// that makes the operator look again brings a second pod.
async fn ended_from_outside(kubectl: &Kubectl, end: impl Fn()) {
    let watch = "get pods -w -o jsonpath={.metadata.name}/{.metadata.uid}{\"\\n\"}";
    let watch = kubectl.spawn(watch, &kubectl.namespace);
    kubectl.apply(&at("x", "", HOLD)).good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    let uid = kubectl.field("at/x", "{.status.podUID}");
    wait_for("the watch to tell of the pod", || {
        uids(watch.log()).contains(&uid).then_some(())
    })
    .await;
    end();
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    kubectl.run("label at/x look=again").good();
    kubectl.apply(&at("witness", "", "")).good();
    kubectl
        .until_field("at/witness", "{.status.phase}", "DONE")
        .await;
    assert_eq!(uids(watch.log()), BTreeSet::from([uid]));
}

#[tokio::test]
async fn a_pod_deleted_while_running_ran_twice() {
    let kubectl = kubectl("defect-deleted").await;
    let delete = || {
        let now = "delete pod/x-pod --grace-period=0 --force";
        kubectl.run(now).good();
    };
    ended_from_outside(&kubectl, delete).await;
    assert_eq!(kubectl.field("at/x", "{.status.result}"), "Unknown");
    assert_eq!(kubectl.field("at/x", "{.status.reason}"), "PodLost");
    assert_eq!(kubectl.run("get pods -o name").good(), "pod/witness-pod\n");
}

#[tokio::test]
async fn a_pod_evicted_through_the_api_while_running_ran_twice() {
    let kubectl = kubectl("defect-drained").await;
    let evict = || {
        let namespace = &kubectl.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/pods/x-pod/eviction");
        let eviction = format!(
            "{{\"apiVersion\": \"policy/v1\", \"kind\": \"Eviction\", \"metadata\": {{\"name\": \"x-pod\", \"namespace\": \"{namespace}\"}}}}"
        );
        let call = format!("create --raw {path} -f -");
        kubectl.with(&call, &eviction).good();
    };
    ended_from_outside(&kubectl, evict).await;
    // A kubelet may or may not have told the end of the pod before it went.
    let result = kubectl.field("at/x", "{.status.result}");
    assert!(["Unknown", "Failed"].contains(&result.as_str()), "{result}");
}

#[tokio::test]
async fn a_pod_evicted_by_its_node_while_running_ran_twice() {
    let kubectl = kubectl("defect-evicted").await;
    let evict = || {
        let status = "{\"status\":{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"DiskPressure\"}}";
        kubectl
            .run(&format!(
                "patch pod/x-pod --subresource=status --type=merge -p {status}"
            ))
            .good();
    };
    ended_from_outside(&kubectl, evict).await;
    for (path, value) in [
        ("{.status.result}", "Failed"),
        ("{.status.reason}", "Evicted"),
        ("{.status.exitCode}", ""),
    ] {
        assert_eq!(kubectl.field("at/x", path), value, "{path}");
    }
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
        let text = kubectl.apply(&template(spec)).bad();
        let field = format!("spec.template.spec.{field}: ");
        assert!(text.contains(&field), "{field} is not in {text}");
    }
    // What failed stays failed, in the pod that ran.
    let fails = "kwok.my-operator.dev/exit-code: '1'";
    kubectl.apply(&at("x", "", fails)).good();
    kubectl
        .until_field("at/x", "{.status.result}", "Failed")
        .await;
    for (path, value) in [
        ("{.spec.restartPolicy}", "Never"),
        ("{.status.phase}", "Failed"),
        ("{.status.containerStatuses[*].restartCount}", "0"),
    ] {
        assert_eq!(kubectl.field("pod/x-pod", path), value, "{path}");
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
        kubectl.apply(&object.to_string()).good();
        let args = wait_for("the pod", || {
            let said = kubectl.run(&format!("get pod {name}-pod -o json"));
            let pod: serde_json::Value = serde_json::from_str(&said.out).ok()?;
            let container = &pod["spec"]["containers"][0];
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
        let as_in_pod = run(Command::new(&args[0]).args(&args[1..]), "");
        let as_typed = run(Command::new("bash").args(["-c", command]), "");
        assert_eq!(as_in_pod.good(), as_typed.good(), "{command}");
    }
}

/// At `kubectl apply` already. For one that is stored without the webhook, see the test of the same
/// name in `tests/disruption`.
#[tokio::test]
async fn a_bad_schedule_was_tried_for_ever_and_told_nowhere() {
    let kubectl = kubectl("defect-schedule").await;
    for (schedule, why) in [
        ("tomorrow", "at character 1: "),
        ("2026-04-12 10:12:00Z", "at character 11: "),
        ("2026-04-12T10:12:00", "at character 20: "),
        ("now + 5 lightyears", "at character 9: "),
    ] {
        let object = at("x", "", "").replace("now", &format!("'{schedule}'"));
        let text = kubectl.apply(&object).bad();
        let fault = format!("spec.schedule: Invalid value: \"{schedule}\": {why}");
        assert!(text.contains(&fault), "{fault} is not in {text}");
    }
    assert_eq!(kubectl.run("get at -o name").good(), "");
}

#[tokio::test]
async fn a_strangers_pod_of_the_same_name_was_adopted() {
    let kubectl = kubectl("stranger").await;
    let stranger = "{apiVersion: v1, kind: Pod, metadata: {name: x-pod}, spec: {containers: [{name: c, image: i}]}}";
    kubectl.apply(stranger).good();
    let uid = kubectl.field("pod/x-pod", "{.metadata.uid}");
    kubectl.apply(&at("x", "", "")).good();
    let reason = "{.status.conditions[?(@.type=='Started')].reason}";
    kubectl.until_field("at/x", reason, "NameConflict").await;
    let message = kubectl.field("at/x", "{.status.conditions[?(@.type=='Started')].message}");
    assert!(message.contains("x-pod"), "{message}");
    assert_eq!(kubectl.field("at/x", "{.status.phase}"), "PENDING");
    assert_eq!(kubectl.field("at/x", "{.status.podUID}"), "");
    assert_eq!(kubectl.field("pod/x-pod", "{.metadata.uid}"), uid);
    let owners = kubectl.field("pod/x-pod", "{.metadata.ownerReferences}");
    assert_eq!(owners, "");
}

/// A policy that forbids one kind of call in the namespace, and how often it has.
struct Forbids<'a> {
    kubectl: &'a Kubectl,
    name: String,
}

impl<'a> Forbids<'a> {
    /// Returns when the API server obeys it: when it refuses `probe`, which is a dry run.
    async fn new(kubectl: &'a Kubectl, rule: &str, probe: impl Fn() -> bool) -> Self {
        let (namespace, name) = (&kubectl.namespace, format!("{}-forbids", kubectl.namespace));
        kubectl
            .apply(&format!(
                "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
    resourceRules: [{rule}]
  validations: [{{expression: 'false', message: not now}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
"
            ))
            .good();
        wait_for("the policy to be obeyed", || probe().then_some(())).await;
        Self { kubectl, name }
    }

    /// How often the API server has refused a call for it.
    fn count(&self) -> u64 {
        let page = self.kubectl.run("get --raw /metrics").good();
        let policy = format!("policy=\"{}\"", self.name);
        page.lines()
            .filter(|line| line.starts_with("apiserver_validating_admission_policy_check_total{"))
            .filter(|line| line.contains(&policy) && line.contains("enforcement_action=\"deny\""))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    async fn until_more_than(&self, count: u64) {
        wait_for("the operator's call to be refused", || {
            (self.count() > count).then_some(())
        })
        .await;
    }

    fn lift(self) {
        for kind in [
            "validatingadmissionpolicybinding",
            "validatingadmissionpolicy",
        ] {
            let said = self.kubectl.run(&format!("delete {kind}/{}", self.name));
            said.good();
        }
    }
}

/// An At that is due while the API server refuses one of the three writes of the protocol runs
/// when it does so no more.
async fn stranded(namespace: &str, rule: &str, probe: &str) {
    let kubectl = kubectl(namespace).await;
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: probe}, spec: {schedulingGates: [{name: a/b}], containers: [{name: c, image: i}]}}";
    kubectl.apply(pod).good();
    kubectl.apply(&at("probe", "suspend: true", "")).good();
    kubectl
        .until_field("at/probe", "{.status.reason}", "Suspended")
        .await;
    let refused = || {
        let other = pod.replace("name: probe", "name: other");
        let said = kubectl.with(&format!("{probe} --dry-run=server"), &other);
        said.err.contains("not now")
    };
    let forbids = Forbids::new(&kubectl, rule, refused).await;
    let before = forbids.count();
    kubectl.apply(&at("x", "", "")).good();
    forbids.until_more_than(before).await;
    assert_ne!(kubectl.field("at/x", "{.status.phase}"), "DONE");
    forbids.lift();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    let uid = kubectl.field("at/x", "{.status.podUID}");
    assert_eq!(kubectl.field("pod/x-pod", "{.metadata.uid}"), uid);
}

#[tokio::test]
async fn one_failed_creation_stranded_an_at() {
    let rule = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}";
    stranded("defect-create", rule, "create -f -").await;
}

#[tokio::test]
async fn one_failed_write_of_the_status_stranded_an_at() {
    let rule = "{apiGroups: [cnat.programming-kubernetes.info], apiVersions: ['*'], operations: [UPDATE], resources: [ats/status]}";
    let probe =
        "patch at/probe --subresource=status --type=merge -p {\"status\":{\"message\":\"x\"}}";
    stranded("defect-commit", rule, probe).await;
}

#[tokio::test]
async fn one_failed_release_stranded_an_at() {
    let rule = "{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [pods]}";
    stranded("defect-release", rule, "label pod/probe a=b").await;
}

#[tokio::test]
async fn failed_and_succeeded_were_both_just_done() {
    let kubectl = kubectl("defect-done").await;
    kubectl.apply(&at("good", "", "")).good();
    let fails = "kwok.my-operator.dev/exit-code: '3'";
    kubectl.apply(&at("bad", "", fails)).good();
    kubectl
        .run("wait --for=condition=Finished --timeout=90s at/good at/bad")
        .good();
    for (name, result, code, condition) in [
        ("good", "Succeeded", "0", "Complete"),
        ("bad", "Failed", "3", "Failed"),
    ] {
        let object = format!("at/{name}");
        assert_eq!(kubectl.field(&object, "{.status.phase}"), "DONE");
        assert_eq!(kubectl.field(&object, "{.status.result}"), result);
        assert_eq!(kubectl.field(&object, "{.status.exitCode}"), code);
        let table = kubectl.run(&format!("get {object} --no-headers")).good();
        let row: Vec<&str> = table.split_whitespace().collect();
        assert_eq!(row[2..5], ["DONE", result, code], "{table}");
        let types = "{.status.conditions[?(@.status=='True')].type}";
        let types = kubectl.field(&object, types);
        for other in ["Complete", "Failed"] {
            let there = types.split(' ').any(|type_| type_ == other);
            assert_eq!(there, other == condition, "{types}");
        }
    }
}
