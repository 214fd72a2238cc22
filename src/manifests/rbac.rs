//! Roles: the operator's, with least privilege, and those for users.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::names::Names;
use crate::kinds::{Kind, Permission};

const ROLE: &str = "manager-role";
const WEBHOOK_CA_ROLE: &str = "webhook-ca-role";
const ELECTION_ROLE: &str = "leader-election-role";
const AUTH_ROLE: &str = "metrics-auth-role";
const SAMPLES_ROLE: &str = "sample-kinds-role";
const NAMESPACE_ROLE: &str = "namespace-role";
/// The API group of the webhook configurations.
pub(super) const ADMISSION: &str = "admissionregistration.k8s.io";
/// The resources of the operator's two webhook configurations.
pub(super) const WEBHOOK_CONFIGURATIONS: [&str; 2] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
];
const API_GROUP: &str = "rbac.authorization.k8s.io";
const CHECK_ROLE: &str = "check-role";
/// The namespace of the dry runs of `my-operator check`, unless the operator works in other ones only.
const DRY_RUN_NAMESPACE: &str = "default";

/// The operator's ClusterRole, and its Role in its own namespace.
pub(super) fn manager(kinds: &[&Kind], names: &Names) -> [Value; 2] {
    let mut rules = everywhere(kinds);
    rules.push(webhook_configurations(names, &["get", "list", "watch"]));
    [
        role(names, ROLE, None, &rules),
        role(names, ROLE, Some(names.namespace()), &[events()]),
    ]
}

/// The permissions of an operator with its own certificate authority: to write `caBundle`, and the Secret with the key.
/// They are roles of their own, so that the component `cert-manager` can empty them in combination with any other.
pub(super) fn webhook_ca(names: &Names) -> [Value; 4] {
    let secrets =
        |verbs: &[&str]| json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": verbs });
    // RBAC cannot restrict a create to a name: the object has none yet when it is authorized. The component
    // `operator-policy` does.
    let create = secrets(&["create"]);
    let mut keep = secrets(&["get", "list", "update", "watch"]);
    keep["resourceNames"] = json!([names.ca_secret()]);
    let binding_name = "webhook-ca-rolebinding";
    let namespace = Some(names.namespace());
    [
        role(
            names,
            WEBHOOK_CA_ROLE,
            None,
            &[webhook_configurations(names, &["patch"])],
        ),
        binding(names, binding_name, None, WEBHOOK_CA_ROLE),
        role(names, WEBHOOK_CA_ROLE, namespace, &[create, keep]),
        binding(names, binding_name, namespace, WEBHOOK_CA_ROLE),
    ]
}

/// The ClusterRole for kinds that are off by default, and its binding.
pub(super) fn added(kinds: &[&Kind], names: &Names) -> [Value; 2] {
    let binding_name = "sample-kinds-rolebinding";
    [
        role(names, SAMPLES_ROLE, None, &everywhere(kinds)),
        binding(names, binding_name, None, SAMPLES_ROLE),
    ]
}

fn everywhere(kinds: &[&Kind]) -> Vec<Value> {
    let of_each = kinds.iter();
    rules(of_each.flat_map(|kind| [kind.permissions, kind.cluster_permissions]))
}

/// The ClusterRole of an operator that works only in some namespaces: the cluster-scoped resources.
pub(super) fn without_namespaces(kinds: &[&Kind], names: &Names) -> Value {
    let mut rules = rules(kinds.iter().map(|kind| of_cluster(kind, true)));
    rules.push(webhook_configurations(names, &["get", "list", "watch"]));
    role(names, ROLE, None, &rules)
}

/// The permissions of a kind on cluster-scoped resources: those of every operator, or those that only one that works in
/// all namespaces has besides.
pub(super) fn of_cluster(kind: &Kind, every: bool) -> impl Iterator<Item = &'static Permission> {
    let all = kind.cluster_permissions.iter();
    all.filter(move |it| (**it != Permission::NAMESPACES) == every)
}

/// The Role in one namespace to work in, and its binding.
pub(super) fn in_namespace(kinds: &[&Kind], names: &Names, namespace: &str) -> [Value; 2] {
    let rules = rules(kinds.iter().map(|kind| kind.permissions));
    let binding_name = "namespace-rolebinding";
    [
        role(names, NAMESPACE_ROLE, Some(namespace), &rules),
        binding(names, binding_name, Some(namespace), NAMESPACE_ROLE),
    ]
}

/// A Role with a namespace, a ClusterRole without one.
fn role(names: &Names, name: &str, namespace: Option<&str>, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": role_kind(namespace),
        "metadata": metadata(&names.with(name), namespace),
        "rules": rules,
    })
}

fn role_kind(namespace: Option<&str>) -> &'static str {
    if namespace.is_some() {
        "Role"
    } else {
        "ClusterRole"
    }
}

/// A list or watch is confined to a name by a field selector.
fn webhook_configurations(names: &Names, verbs: &[&str]) -> Value {
    json!({
        "apiGroups": [ADMISSION],
        "resources": WEBHOOK_CONFIGURATIONS,
        "resourceNames": [names.mutating(), names.validating()],
        "verbs": verbs,
    })
}

/// Events about objects in the operator's own namespace, about cluster-scoped objects, and about objects of our kinds.
fn events() -> Value {
    json!({ "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] })
}

/// One rule for each group and set of verbs of a list, so that the role reads well, and each rule once. The rules of
/// several kinds are those of each kind and nothing more: the chart selects each by the kinds that it is for.
pub(super) fn rules<'a>(
    lists: impl Iterator<Item: IntoIterator<Item = &'a Permission>>,
) -> Vec<Value> {
    let mut rules = BTreeSet::new();
    for list in lists {
        let mut by_verbs: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
        for permission in list {
            let mut verbs = permission.verbs.to_vec();
            verbs.sort_unstable();
            let resources = by_verbs.entry((permission.group, verbs)).or_default();
            resources.push(permission.resource);
            resources.sort_unstable();
        }
        rules.extend(by_verbs);
    }
    rules
        .into_iter()
        .map(|((group, verbs), resources)| {
            json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
        })
        .collect()
}

/// The permissions for leader election, in the operator's own namespace: a Role and its binding.
pub(super) fn leader_election(names: &Names) -> [Value; 2] {
    let namespace = Some(names.namespace());
    // Of any name: while the number of shards changes, leaders of the old one keep and release their Leases. The list
    // shows whether they do.
    let leases = json!({
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create", "get", "list", "update", "watch"],
    });
    let binding_name = "leader-election-rolebinding";
    [
        role(names, ELECTION_ROLE, namespace, &[leases, events()]),
        binding(names, binding_name, namespace, ELECTION_ROLE),
    ]
}

/// The permissions for serving metrics: to authenticate and authorize a scraper; and the permission that a scraper
/// needs.
pub(super) fn metrics(names: &Names) -> [(&'static str, Vec<Value>); 2] {
    let ask = |group: &str, resource: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": ["create"] });
    let auth = [
        ask("authentication.k8s.io", "tokenreviews"),
        ask("authorization.k8s.io", "subjectaccessreviews"),
    ];
    let auth = vec![
        role(names, AUTH_ROLE, None, &auth),
        binding(names, "metrics-auth-rolebinding", None, AUTH_ROLE),
    ];
    let read = [json!({ "nonResourceURLs": ["/metrics"], "verbs": ["get"] })];
    let reader = vec![role(names, "metrics-reader", None, &read)];
    [
        ("metrics_auth_role.yaml", auth),
        ("metrics_reader_role.yaml", reader),
    ]
}

/// The token is not mounted into pods that use the ServiceAccount: config/manager mounts one with a shorter lifetime.
pub(super) fn service_account(names: &Names) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(&names.service_account(), Some(names.namespace())),
        "automountServiceAccountToken": false,
    })
}

pub(super) fn bindings(names: &Names) -> [Value; 2] {
    let name = "manager-rolebinding";
    [
        binding(names, name, None, ROLE),
        binding(names, name, Some(names.namespace()), ROLE),
    ]
}

/// Binds a role to the operator: a Role of that namespace, or without one a ClusterRole.
fn binding(names: &Names, name: &str, namespace: Option<&str>, role: &str) -> Value {
    let account = names.service_account();
    binding_of(names, &account, name, namespace, role)
}

fn binding_of(
    names: &Names,
    account: &str,
    name: &str,
    namespace: Option<&str>,
    role: &str,
) -> Value {
    let kind = role_kind(namespace);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{kind}Binding"),
        "metadata": metadata(&names.with(name), namespace),
        "roleRef": { "apiGroup": API_GROUP, "kind": kind, "name": names.with(role) },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": names.namespace() }],
    })
}

/// The ServiceAccount of `my-operator check` in a pod, with exactly the rights of a check that sees everything.
pub(super) fn check(kinds: &[&Kind], names: &Names) -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let mut crds = rule(
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["get"],
    );
    let resources: Vec<_> = kinds
        .iter()
        .map(|kind| (kind.admission.resource)())
        .collect();
    let all = resources
        .iter()
        .map(|it| format!("{}.{}", it.plural, it.group));
    crds["resourceNames"] = all.collect();
    let everywhere = [
        // By label, since their names may be others.
        rule(ADMISSION, &WEBHOOK_CONFIGURATIONS, &["list"]),
        crds,
        // To ask for the operator's rights.
        rule(
            "authorization.k8s.io",
            &["subjectaccessreviews"],
            &["create"],
        ),
    ];
    let own = [
        rule("", &["namespaces", "services"], &["get"]),
        rule("", &["pods"], &["list"]),
        rule("apps", &["deployments"], &["list"]),
        rule("coordination.k8s.io", &["leases"], &["get"]),
    ];
    let created = resources
        .iter()
        .map(|it| rule(&it.group, &[it.plural.as_str()], &["create"]));
    let dry_runs: Vec<Value> = created.collect();
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(&names.check_account(), Some(names.namespace())),
    });
    let mut objects = vec![account];
    // The dry runs may be in the operator's own namespace.
    for (namespace, name, binding, rules) in [
        (None, CHECK_ROLE, "check-rolebinding", everywhere.as_slice()),
        (
            Some(names.namespace()),
            CHECK_ROLE,
            "check-rolebinding",
            &own,
        ),
        (
            Some(DRY_RUN_NAMESPACE),
            "check-dry-run-role",
            "check-dry-run-rolebinding",
            &dry_runs,
        ),
    ] {
        objects.push(role(names, name, namespace, rules));
        objects.push(binding_of(
            names,
            &names.check_account(),
            binding,
            namespace,
            name,
        ));
    }
    objects
}

/// The user-facing roles of a kind, by file name. They aggregate to the cluster's admin, edit and view.
pub(super) fn people(kind: &Kind, names: &Names) -> [(String, Value); 2] {
    let resource = (kind.admission.resource)();
    let status = format!("{}/status", resource.plural);
    let scales = kind.scales();
    let role = |who: &str, aggregate: &[&str], verbs: &[&str], scale: &[&str]| {
        let mut metadata = metadata(&names.with(&format!("{}-{who}-role", kind.name)), None);
        for to in aggregate {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
            metadata["labels"][label] = "true".into();
        }
        let mut rules = vec![
            json!({ "apiGroups": [resource.group], "resources": [resource.plural], "verbs": verbs }),
            json!({ "apiGroups": [resource.group], "resources": [status], "verbs": ["get"] }),
        ];
        if scales {
            let resource_scale = format!("{}/scale", resource.plural);
            rules.push(
                json!({ "apiGroups": [resource.group], "resources": [resource_scale], "verbs": scale }),
            );
        }
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": rules,
        });
        (format!("{}_{who}_role.yaml", kind.name), role)
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
        role(
            "editor",
            &["admin", "edit"],
            &all,
            &["get", "patch", "update"],
        ),
        role("viewer", &["view"], &["get", "list", "watch"], &["get"]),
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
