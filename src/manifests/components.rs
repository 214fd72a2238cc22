//! The generated parts of `config/components`: what a platform team may add to `config/default`.

use serde_json::{Value, json};

use super::{MUTATING, SERVICE_ACCOUNT, VALIDATING, rbac, webhook};
use crate::kinds::Kind;

/// The policy that demands the right to create pods.
const POLICY: &str = "my-operator-pod-creators";

/// The files of the component `namespaced`, by name: the operator works in those namespaces, has rights in
/// no other, and only their objects are sent to its webhooks.
pub(super) fn namespaced(
    kinds: &[&Kind],
    namespaces: &[String],
) -> [(&'static str, Vec<Value>); 5] {
    let roles = namespaces
        .iter()
        .flat_map(|namespace| rbac::in_namespace(kinds, namespace))
        .collect();
    // Applied to config/webhook/manifests.yaml entry by entry, which are told apart by their names.
    let selectors = [
        ("MutatingWebhookConfiguration", MUTATING, "mutate"),
        ("ValidatingWebhookConfiguration", VALIDATING, "validate"),
    ]
    .map(|(kind, name, verb)| {
        let selector = webhook::in_namespaces(namespaces);
        let webhooks: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({ "name": webhook::name(kind, verb), "namespaceSelector": selector }))
            .collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": name },
            "webhooks": webhooks,
        })
    });
    let arguments = namespaces.iter().map(|namespace| {
        json!({
            "op": "add",
            "path": "/spec/template/spec/containers/0/args/-",
            "value": format!("--namespace={namespace}"),
        })
    });
    let deployment = json!({ "kind": "Deployment", "name": SERVICE_ACCOUNT });
    let component = component(
        &["roles.yaml"],
        &[
            json!({ "path": "cluster_role.yaml" }),
            json!({ "path": "webhooks.yaml" }),
            json!({ "path": "arguments.yaml", "target": deployment }),
        ],
    );
    [
        ("roles.yaml", roles),
        ("cluster_role.yaml", vec![rbac::without_namespaces(kinds)]),
        ("webhooks.yaml", selectors.to_vec()),
        ("arguments.yaml", vec![arguments.collect()]),
        ("kustomization.yaml", vec![component]),
    ]
}

/// The files of the component `policy`, by name: who creates an object from which pods are made, or changes
/// its spec, must be allowed to create pods there.
pub(super) fn policy(kinds: &[&Kind]) -> [(&'static str, Vec<Value>); 2] {
    let rules: Vec<Value> = kinds
        .iter()
        .filter(|kind| {
            kind.permissions
                .iter()
                .any(|p| p.resource == "pods" && p.verbs.contains(&"create"))
        })
        .map(|kind| webhook::rule(kind))
        .collect();
    let labels = json!({ "app.kubernetes.io/name": "my-operator" });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": POLICY, "labels": labels },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": rules },
            // Labels, finalizers and status stay everybody's who may write them.
            "matchConditions": [{
                "name": "spec-changed",
                "expression": webhook::changed(&[]),
            }],
            "validations": [{
                "expression": "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()",
                "messageExpression": "'this makes pods in namespace ' + request.namespace + ', which ' + request.userInfo.username + ' is not allowed to create there'",
                "reason": "Forbidden",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": POLICY, "labels": labels },
        "spec": { "policyName": POLICY, "validationActions": ["Deny"] },
    });
    [
        ("policy.yaml", vec![policy, binding]),
        ("kustomization.yaml", vec![component(&["policy.yaml"], &[])]),
    ]
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
