//! A ValidatingAdmissionPolicy with its binding.

use serde_json::{Value, json};

/// A policy that denies what one of the validations rejects, and its binding.
pub(super) fn admission_policy(
    name: &str,
    rules: &[Value],
    condition: &Value,
    validations: &[Value],
) -> [Value; 2] {
    let labels = json!({ "app.kubernetes.io/name": "my-operator" });
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": name, "labels": labels },
            "spec": spec,
        })
    };
    let policy = json!({
        "failurePolicy": "Fail",
        "matchConstraints": { "resourceRules": rules },
        "matchConditions": [condition],
        "validations": validations,
    });
    let binding = json!({ "policyName": name, "validationActions": ["Deny"] });
    [
        object("ValidatingAdmissionPolicy", policy),
        object("ValidatingAdmissionPolicyBinding", binding),
    ]
}
