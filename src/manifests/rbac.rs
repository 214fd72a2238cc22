//! Roles: the least that the operator needs, and what people may be given.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{MUTATING, NAMESPACE, SERVICE_ACCOUNT, VALIDATING};
use crate::certs::secret;
use crate::kinds::Kind;
use crate::leader;

const ROLE: &str = "my-operator-manager-role";
const ELECTION_ROLE: &str = "my-operator-leader-election-role";
const API_GROUP: &str = "rbac.authorization.k8s.io";

/// The operator's ClusterRole, and its Role in its own namespace.
pub(super) fn manager(kinds: &[&Kind]) -> [Value; 2] {
    let mut rules = permissions(kinds);
    rules.push(json!({
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "resourceNames": [MUTATING, VALIDATING],
        "verbs": ["get", "list", "patch", "watch"],
    }));
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata(ROLE, None),
            "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata(ROLE, Some(NAMESPACE)),
            "rules": [
                // A create has no name yet that a rule could confine it to.
                { "apiGroups": [""], "resources": ["secrets"], "verbs": ["create"] },
                {
                    "apiGroups": [""],
                    "resources": ["secrets"],
                    "resourceNames": [secret::NAME],
                    "verbs": ["get", "update"],
                },
            ],
        }),
    ]
}

/// One rule for each group and set of verbs, so that the role reads well.
fn permissions(kinds: &[&Kind]) -> Vec<Value> {
    let mut by_resource: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for permission in kinds.iter().flat_map(|kind| kind.permissions) {
        let verbs = by_resource
            .entry((permission.group, permission.resource))
            .or_default();
        verbs.extend(permission.verbs);
        verbs.sort_unstable();
        verbs.dedup();
    }
    let mut by_verbs: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for ((group, resource), verbs) in by_resource {
        by_verbs.entry((group, verbs)).or_default().push(resource);
    }
    by_verbs
        .into_iter()
        .map(|((group, verbs), resources)| {
            json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
        })
        .collect()
}

/// What the election of a leader needs, in the operator's own namespace: a Role and its binding.
pub(super) fn leader_election() -> [Value; 2] {
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata(ELECTION_ROLE, Some(NAMESPACE)),
            "rules": [
                // A create has no name yet that a rule could confine it to.
                { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
                {
                    "apiGroups": ["coordination.k8s.io"],
                    "resources": ["leases"],
                    "resourceNames": [leader::LEASE],
                    "verbs": ["get", "update", "watch"],
                },
                // To tell who leads.
                { "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] },
            ],
        }),
        binding(
            "RoleBinding",
            "my-operator-leader-election-rolebinding",
            ("Role", ELECTION_ROLE),
            Some(NAMESPACE),
        ),
    ]
}

pub(super) fn service_account() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(SERVICE_ACCOUNT, Some(NAMESPACE)),
    })
}

pub(super) fn bindings() -> [Value; 2] {
    let name = "my-operator-manager-rolebinding";
    [
        binding("ClusterRoleBinding", name, ("ClusterRole", ROLE), None),
        binding("RoleBinding", name, ("Role", ROLE), Some(NAMESPACE)),
    ]
}

/// What serving metrics needs: to ask who a scraper is and whether they may; and the right that a
/// scraper needs.
pub(super) fn metrics() -> [(&'static str, Vec<Value>); 2] {
    const AUTH: &str = "my-operator-metrics-auth-role";
    let role = |name: &str, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata(name, None),
            "rules": rules,
        })
    };
    let ask = |group: &str, resource: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": ["create"] });
    let auth = role(
        AUTH,
        json!([
            ask("authentication.k8s.io", "tokenreviews"),
            ask("authorization.k8s.io", "subjectaccessreviews"),
        ]),
    );
    let binding = binding(
        "ClusterRoleBinding",
        "my-operator-metrics-auth-rolebinding",
        ("ClusterRole", AUTH),
        None,
    );
    let reader = role(
        "my-operator-metrics-reader",
        json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]),
    );
    [
        ("metrics_auth_role.yaml", vec![auth, binding]),
        ("metrics_reader_role.yaml", vec![reader]),
    ]
}

/// Gives the operator a role: (kind, name).
fn binding(kind: &str, name: &str, role: (&str, &str), namespace: Option<&str>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata(name, namespace),
        "roleRef": { "apiGroup": API_GROUP, "kind": role.0, "name": role.1 },
        "subjects": [{ "kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE }],
    })
}

/// The roles that people may be given for a kind: (editor or viewer, role). They add themselves to
/// the cluster's own admin, edit and view.
pub(super) fn people(kind: &Kind) -> [(&'static str, Value); 2] {
    let resource = (kind.admission.resource)();
    let status = format!("{}/status", resource.plural);
    let role = |who: &str, aggregate: &[&str], verbs: &[&str]| {
        let mut metadata = metadata(&format!("my-operator-{}-{who}-role", kind.name), None);
        for to in aggregate {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
            metadata["labels"][label] = "true".into();
        }
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": [
                { "apiGroups": [resource.group], "resources": [resource.plural], "verbs": verbs },
                { "apiGroups": [resource.group], "resources": [status], "verbs": ["get"] },
            ],
        })
    };
    let all = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    [
        ("editor", role("editor", &["admin", "edit"], &all)),
        (
            "viewer",
            role("viewer", &["view"], &["get", "list", "watch"]),
        ),
    ]
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": { "app.kubernetes.io/name": "my-operator" },
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    metadata
}
