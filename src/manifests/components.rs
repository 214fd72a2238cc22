//! The generated parts of `config/components`: options that a platform team may add to `config/default`.

use serde_json::{Value, json};

use super::admission_policy::admission_policy;
use super::names::Names;
use super::webhook::ClientConfig;
use super::{operator_policy, rbac, webhook};
use crate::kinds::{Kind, Permission};

/// The policy that requires the permission to create pods, after the prefix.
const POLICY: &str = "pod-creators";

/// The files of the component `namespaced`, by name: the operator works only in those namespaces, has permissions in no
/// other, and its webhooks receive only their objects.
pub(super) fn namespaced(
    kinds: &[&Kind],
    names: &Names,
    namespaces: &[String],
) -> [(&'static str, Vec<Value>); 5] {
    let roles = namespaces
        .iter()
        .flat_map(|namespace| rbac::in_namespace(kinds, names, namespace))
        .collect();
    let selector = webhook::in_namespaces(namespaces);
    let selectors = entries(
        kinds,
        names,
        |kind, verb| json!({ "name": webhook::name(kind, verb), "namespaceSelector": selector }),
    );
    let arguments = namespaces
        .iter()
        .map(|namespace| argument(&format!("--namespace={namespace}")));
    let component = component(
        &["roles.yaml"],
        &[
            json!({ "path": "cluster_role.yaml" }),
            json!({ "path": "webhooks.yaml" }),
            arguments_patch(names),
        ],
    );
    [
        ("roles.yaml", roles),
        (
            "cluster_role.yaml",
            vec![rbac::without_namespaces(kinds, names)],
        ),
        ("webhooks.yaml", selectors.to_vec()),
        ("arguments.yaml", vec![arguments.collect()]),
        ("kustomization.yaml", vec![component]),
    ]
}

/// The files of the component `sample-kinds`, by name: it adds those kinds to an operator.
pub(super) fn sample_kinds(kinds: &[&Kind], names: &Names) -> Vec<(String, Vec<Value>)> {
    let mut roles = vec![("role.yaml".to_owned(), rbac::added(kinds, names).to_vec())];
    let people = kinds.iter().flat_map(|kind| rbac::people(kind, names));
    roles.extend(people.map(|(name, role)| (name, vec![role])));
    let resources: Vec<&str> = std::iter::once("../../crd/sample-kinds")
        .chain(roles.iter().map(|(name, _)| name.as_str()))
        .collect();
    let component = component(
        &resources,
        &[json!({ "path": "webhooks.yaml" }), arguments_patch(names)],
    );
    let webhooks = entries(kinds, names, |kind, verb| {
        webhook::webhook(kind, verb, names, &ClientConfig::Service, &[])
    });
    roles.extend([
        ("webhooks.yaml".to_owned(), webhooks.to_vec()),
        ("arguments.yaml".to_owned(), vec![kind_arguments(kinds)]),
        ("kustomization.yaml".to_owned(), vec![component]),
    ]);
    roles
}

/// Patches of both webhook configurations, with an entry for each kind. kustomize merges them into
/// config/webhook/manifests.yaml by the names of the entries.
fn entries(kinds: &[&Kind], names: &Names, entry: impl Fn(&Kind, &str) -> Value) -> [Value; 2] {
    [
        ("MutatingWebhookConfiguration", names.mutating(), "mutate"),
        (
            "ValidatingWebhookConfiguration",
            names.validating(),
            "validate",
        ),
    ]
    .map(|(configuration, name, verb)| {
        let webhooks: Vec<Value> = kinds.iter().map(|kind| entry(kind, verb)).collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": configuration,
            "metadata": { "name": name },
            "webhooks": webhooks,
        })
    })
}

/// The patch of the manager's arguments by which it serves these kinds.
pub(super) fn kind_arguments(kinds: &[&Kind]) -> Value {
    let arguments = kinds.iter();
    arguments
        .map(|kind| argument(&format!("--kinds={}", kind.name)))
        .collect()
}

/// An argument that is added to the manager's.
fn argument(value: &str) -> Value {
    json!({
        "op": "add",
        "path": "/spec/template/spec/containers/0/args/-",
        "value": value,
    })
}

fn arguments_patch(names: &Names) -> Value {
    let deployment = json!({ "kind": "Deployment", "name": names.service_account() });
    json!({ "path": "arguments.yaml", "target": deployment })
}

/// The files of the component `policy`, by name: a user who creates an object from which pods are made, or changes its
/// spec, must be allowed to create pods there. A rule for a kind that is not installed does no harm.
pub(super) fn policy(kinds: &[&Kind], names: &Names) -> [(&'static str, Vec<Value>); 2] {
    let rules: Vec<Value> = kinds
        .iter()
        .filter(|kind| kind.permissions.iter().any(makes_pods))
        .map(|kind| with_scale(kind))
        .collect();
    // The policy does not restrict labels, finalizers and status.
    let condition = json!({ "name": "spec-changed", "expression": webhook::changed(&[]) });
    let validation = json!({
        "expression": "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()",
        "messageExpression": "'this makes pods in namespace ' + request.namespace + ', which ' + request.userInfo.username + ' is not allowed to create there'",
        "reason": "Forbidden",
    });
    let objects = admission_policy(&names.with(POLICY), &rules, &condition, &[validation]);
    [
        ("policy.yaml", objects.into()),
        ("kustomization.yaml", vec![component(&["policy.yaml"], &[])]),
    ]
}

/// The files of the component `operator-policy`, by name: it restricts the operator's ServiceAccount to what the
/// operator does.
pub(super) fn operator_policy(kinds: &[&Kind], names: &Names) -> [(&'static str, Vec<Value>); 4] {
    let policies = operator_policy::policies(kinds, names);
    let transformer = operator_policy::namespace(&policies, names);
    [
        ("policy.yaml", policies),
        ("kustomization.yaml", vec![component(&["policy.yaml"], &[])]),
        ("namespace/replacements.yaml", vec![transformer]),
        (
            "namespace/kustomization.yaml",
            vec![super::kustomization(&["replacements.yaml".to_owned()])],
        ),
    ]
}

/// The resources of a kind that the policy covers, including the subresource that also writes its spec.
fn with_scale(kind: &Kind) -> Value {
    let mut rule = webhook::rule(kind);
    if kind.scales() {
        let plural = (kind.admission.resource)().plural;
        rule["resources"] = json!([plural, format!("{plural}/scale")]);
    }
    rule
}

/// Whether that permission allows creating pods, directly or indirectly.
fn makes_pods(permission: &Permission) -> bool {
    const FROM: [(&str, &str); 4] = [
        ("", "pods"),
        ("apps", "deployments"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
    ];
    // A server-side apply creates an object with `patch` and `create`.
    FROM.contains(&(permission.group, permission.resource)) && permission.verbs.contains(&"create")
}

fn component(resources: &[&str], patches: &[Value]) -> Value {
    let mut component = json!({
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": resources,
    });
    if !patches.is_empty() {
        component["patches"] = patches.into();
    }
    component
}
