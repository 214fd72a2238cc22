//! The component `operator-policy`: restrictions of the operator's ServiceAccount that RBAC cannot express. RBAC grants
//! it pods in every namespace and two webhook configurations. These policies restrict that to what the operator does,
//! so that a stolen token allows little more. Generated from the registry, as the roles are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::admission_policy::admission_policy;
use super::names::Names;
use super::rbac;
use crate::kinds::Kind;
use my_operator_kind::manager::MANAGER;
use wall_clock_controller::reconcile::Shard;
use wall_clock_controller::reconcile::write::MANAGED_BY;

/// What the policies' names begin with, after the prefix of all names.
const RESTRICTION: &str = "restriction";

/// The name of the condition that selects the operator's requests.
const CONDITION: &str = "operator";

/// The fields of a webhook, except `clientConfig.caBundle`. A new field of the API must be added here to be restricted.
const WEBHOOK_FIELDS: [&str; 12] = [
    "admissionReviewVersions",
    "clientConfig.?service",
    "clientConfig.?url",
    "failurePolicy",
    "matchConditions",
    "matchPolicy",
    "name",
    "namespaceSelector",
    "objectSelector",
    "rules",
    "sideEffects",
    "timeoutSeconds",
];

/// A rule of a policy: a CEL expression that must be true, and the message if it is not.
struct Validation {
    expression: String,
    message: &'static str,
}

/// The policies, each followed by its binding. One for each resource where the expressions name its fields, so that the
/// API server can check them by its type.
pub(super) fn policies(kinds: &[&Kind], names: &Names) -> Vec<Value> {
    let [mutating, validating] = rbac::WEBHOOK_CONFIGURATIONS;
    [
        children(kinds, names),
        pods(names),
        webhook_configuration(names, mutating, Some("reinvocationPolicy")),
        webhook_configuration(names, validating, None),
        secrets(names),
        leases(names),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What an overlay with `namespace:` lists among its `transformers`: kustomize does not change the user name in the
/// expressions of the policies. The component cannot do it, as its own replacements run before the overlay sets the
/// namespace.
pub(super) fn namespace(policies: &[Value], names: &Names) -> Value {
    let targets: Vec<Value> = policies
        .iter()
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicy")
        .map(|policy| {
            json!({
                "select": { "kind": policy["kind"], "name": policy["metadata"]["name"] },
                "fieldPaths": [format!("spec.matchConditions.[name={CONDITION}].expression")],
                // system:serviceaccount:<namespace>:<name>
                "options": { "delimiter": ":", "index": 2 },
            })
        })
        .collect();
    json!({
        "apiVersion": "builtin",
        "kind": "ReplacementTransformer",
        "metadata": { "name": "operator-policy-namespace" },
        "replacements": [{
            "source": {
                "kind": "Deployment",
                "name": names.service_account(),
                "fieldPath": "metadata.namespace",
            },
            "targets": targets,
        }],
    })
}

/// The objects that the reconcilers write besides those of their own kind: pods, revisions, Deployments and others.
fn children(kinds: &[&Kind], names: &Names) -> [Value; 2] {
    let (rules, owners) = written_by(kinds);
    let controllers = |object: &str| {
        format!(
            "{object} == null ? [] : {object}.metadata.?ownerReferences.orValue([])\
             .filter(owner, owner.?controller.orValue(false))\
             .map(owner, owner.apiVersion.split('/')[0] + '/' + owner.kind)"
        )
    };
    let variables = json!([
        { "name": "kinds", "expression": format!("[{}]", owners.join(", ")) },
        // Group and kind of the controller. There is at most one.
        { "name": "before", "expression": controllers("oldObject") },
        { "name": "after", "expression": controllers("object") },
    ]);
    policy(
        names,
        "children",
        &rules,
        Some(variables),
        &child_validations(),
    )
}

/// The rules for the resources that the kinds' reconcilers write; and those kinds, as CEL strings `'group/kind'`.
fn written_by(kinds: &[&Kind]) -> (Vec<Value>, Vec<String>) {
    let mut resources: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut owners = BTreeSet::new();
    for kind in kinds {
        let names = (kind.admission.resource)();
        let children = kind.permissions.iter().filter(|permission| {
            let writes = permission
                .verbs
                .iter()
                .any(|verb| ["create", "update", "patch", "delete"].contains(verb));
            // Events are about any object, and start nothing.
            writes && permission.group != names.group && permission.resource != "events"
        });
        for child in children {
            resources
                .entry(child.group)
                .or_default()
                .insert(child.resource);
            owners.insert(format!("'{}/{}'", names.group, names.kind));
        }
    }
    let rules = resources
        .iter()
        .map(|(group, resources)| {
            let resources: Vec<&str> = resources.iter().copied().collect();
            rule(group, &resources, &["CREATE", "UPDATE", "DELETE"])
        })
        .collect();
    (rules, owners.into_iter().collect())
}

fn child_validations() -> [Validation; 3] {
    let labelled = |object: &str| {
        format!("{object}.metadata.?labels[?'{MANAGED_BY}'].orValue('') == '{MANAGER}'")
    };
    [
        Validation {
            expression: format!(
                "request.operation != 'CREATE' || ({} && variables.after.exists(it, it in variables.kinds))",
                labelled("object")
            ),
            message: "the operator creates only objects that carry its label and are controlled by an object of its kinds",
        },
        // An object without a controller is adopted by its label. A pod that lost its labels is released.
        Validation {
            expression: format!(
                "request.operation == 'CREATE' || variables.before.exists(it, it in variables.kinds) || \
                 (variables.before.size() == 0 && {})",
                labelled("oldObject")
            ),
            message: "the operator changes and deletes only objects that are controlled by an object of its kinds, \
                      or that carry its label and have no controller",
        },
        Validation {
            expression: "variables.after.all(it, it in variables.kinds)".to_owned(),
            message: "the operator makes nothing but objects of its kinds the controller of an object",
        },
    ]
}

/// The operator changes only the owner references of a pod, and the scheduling gate of an At's pod.
fn pods(names: &Names) -> [Value; 2] {
    let validation = Validation {
        expression: "object.spec.containers == oldObject.spec.containers && \
                     object.spec.?initContainers == oldObject.spec.?initContainers"
            .to_owned(),
        message: "the operator does not change the containers of a pod",
    };
    let rules = [rule("", &["pods"], &["UPDATE"])];
    policy(names, "pods", &rules, None, &[validation])
}

/// The operator writes `caBundle` of its two webhook configurations. RBAC restricts it to these two by name. One kind
/// of webhook has a field that the other lacks.
fn webhook_configuration(names: &Names, resource: &str, own_field: Option<&str>) -> [Value; 2] {
    let mut configurations = rule(
        "admissionregistration.k8s.io",
        &[resource],
        &["CREATE", "UPDATE", "DELETE"],
    );
    configurations["scope"] = "Cluster".into();
    // As optional values: two absent fields are equal.
    let same: Vec<String> = WEBHOOK_FIELDS
        .into_iter()
        .chain(own_field)
        .map(|field| format!("webhook.?{field} == old.?{field}"))
        .collect();
    // The API server keeps names unique within a configuration.
    let webhooks = format!(
        "object.webhooks.size() == oldObject.webhooks.size() && \
         object.webhooks.all(webhook, oldObject.webhooks.exists(old, {}))",
        same.join(" && ")
    );
    let metadata = ["annotations", "finalizers", "labels", "ownerReferences"]
        .map(|field| format!("object.metadata.?{field} == oldObject.metadata.?{field}"));
    let validations = [
        Validation {
            expression: "request.operation == 'UPDATE'".to_owned(),
            message: "the operator neither creates nor deletes webhook configurations",
        },
        Validation {
            expression: format!("request.operation != 'UPDATE' || ({webhooks})"),
            message: "the operator changes clientConfig.caBundle of a webhook and nothing else",
        },
        Validation {
            expression: format!(
                "request.operation != 'UPDATE' || ({})",
                metadata.join(" && ")
            ),
            message: "the operator does not change the metadata of a webhook configuration",
        },
    ];
    policy(names, resource, &[configurations], None, &validations)
}

/// RBAC cannot restrict a create to a name. The operator may create any Secret in its namespace, and so also a token of
/// any ServiceAccount there.
fn secrets(names: &Names) -> [Value; 2] {
    let validation = Validation {
        expression: format!(
            "object.metadata.name == '{}' && object.type == 'Opaque'",
            names.ca_secret()
        ),
        message: "the operator creates no Secret but that of its certificate authority",
    };
    let rules = [rule("", &["secrets"], &["CREATE"])];
    policy(names, "secrets", &rules, None, &[validation])
}

/// The same for Leases.
fn leases(names: &Names) -> [Value; 2] {
    let validation = Validation {
        expression: format!(
            "object.metadata.name == '{}' || object.metadata.name.startsWith('{}')",
            names.lease(Shard::ALL),
            names.lease_of_shards()
        ),
        message: "the operator writes no Lease but those of its leader election",
    };
    let rules = [rule(
        "coordination.k8s.io",
        &["leases"],
        &["CREATE", "UPDATE"],
    )];
    policy(names, "leases", &rules, None, &[validation])
}

fn rule(group: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": operations,
        "resources": resources,
        "scope": "Namespaced",
    })
}

/// A policy on requests of the operator's ServiceAccount, and its binding.
fn policy(
    names: &Names,
    name: &str,
    rules: &[Value],
    variables: Option<Value>,
    validations: &[Validation],
) -> [Value; 2] {
    let validations: Vec<Value> = validations
        .iter()
        .map(|it| json!({ "expression": it.expression, "message": it.message, "reason": "Forbidden" }))
        .collect();
    let condition = json!({
        "name": CONDITION,
        "expression": format!(
            "request.userInfo.username == 'system:serviceaccount:{}:{}'",
            names.namespace(),
            names.service_account()
        ),
    });
    let name = names.with(&format!("{RESTRICTION}-{name}"));
    let [mut policy, binding] = admission_policy(&name, rules, &condition, &validations);
    if let Some(variables) = variables {
        policy["spec"]["variables"] = variables;
    }
    [policy, binding]
}
