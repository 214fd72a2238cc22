//! The rights of the operator, one by one, as an access review asks for them. They are read from the roles that
//! `config/rbac` and the components have, so the two cannot differ.

use std::collections::BTreeSet;

use serde_json::Value;

use super::names::{MUTATING, VALIDATING};
use super::rbac;
use crate::kinds::Kind;

/// What an installation is set to, as far as its rights depend on it.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// The kinds in force.
    pub kinds: &'a [&'a Kind],
    /// The namespaces to work in; all if there are none.
    pub namespaces: &'a [String],
    /// The namespace of the operator's own objects.
    pub own_namespace: &'a str,
    /// The names of the mutating and the validating webhook configuration.
    pub configurations: [&'a str; 2],
    /// Whether the operator keeps a certificate authority of its own.
    pub own_authority: bool,
    /// Whether the replicas elect a leader.
    pub leader_election: bool,
}

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Without one, everywhere.
    pub namespace: Option<String>,
    /// The API group; empty for the core one.
    pub group: String,
    /// The resource, with its subresource: `ats/status`.
    pub resource: String,
    /// The name of the only object that it is about.
    pub name: Option<String>,
    /// The verb.
    pub verb: String,
}

/// Every right that an operator of that scope needs, sorted.
pub fn rights(scope: &Scope<'_>) -> BTreeSet<Right> {
    let own = Some(scope.own_namespace);
    let [everywhere, events] = rbac::manager(scope.kinds);
    let mut roles = vec![(events, own)];
    if scope.namespaces.is_empty() {
        roles.push((everywhere, None));
    } else {
        roles.push((rbac::without_namespaces(scope.kinds), None));
    }
    for namespace in scope.namespaces {
        let [role, _] = rbac::in_namespace(scope.kinds, namespace);
        roles.push((role, Some(namespace)));
    }
    if scope.own_authority {
        let [cluster, _, namespaced, _] = rbac::webhook_ca();
        roles.extend([(cluster, None), (namespaced, own)]);
    }
    if scope.leader_election {
        let [role, _] = rbac::leader_election();
        roles.push((role, own));
    }
    let [(_, auth), _] = rbac::metrics();
    let auth = auth.into_iter().filter(|it| it["kind"] == "ClusterRole");
    roles.extend(auth.map(|role| (role, None)));
    let all = roles.iter().flat_map(|(role, at)| of_role(role, *at));
    all.map(|right| renamed(right, scope.configurations))
        .collect()
}

/// The configurations have other names in an installation with other names.
fn renamed(mut right: Right, [mutating, validating]: [&str; 2]) -> Right {
    let name = right.name.as_deref().map(|name| match name {
        MUTATING => mutating,
        VALIDATING => validating,
        other => other,
    });
    right.name = name.map(str::to_owned);
    right
}

fn of_role(role: &Value, namespace: Option<&str>) -> Vec<Right> {
    let mut rights = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = texts(rule, "resourceNames");
        // An empty list stands for every object.
        let names: Vec<Option<&str>> = match names.as_slice() {
            [] => vec![None],
            some => some.iter().map(|name| Some(*name)).collect(),
        };
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for name in names.iter().filter(|name| is_about(resource, **name)) {
                    for verb in texts(rule, "verbs") {
                        rights.push(Right {
                            namespace: namespace.map(str::to_owned),
                            group: group.to_owned(),
                            resource: resource.to_owned(),
                            name: name.map(str::to_owned),
                            verb: verb.to_owned(),
                        });
                    }
                }
            }
        }
    }
    rights
}

/// One rule covers both webhook configurations; each name belongs to one of the resources.
fn is_about(resource: &str, name: Option<&str>) -> bool {
    match name {
        Some(MUTATING) => resource == rbac::WEBHOOK_CONFIGURATIONS[0],
        Some(VALIDATING) => resource == rbac::WEBHOOK_CONFIGURATIONS[1],
        _ => true,
    }
}

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    let all = rule[field].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn shown(namespaces: &[String], own_authority: bool) -> Vec<String> {
        let kinds = kinds::by_default();
        let scope = Scope {
            kinds: &kinds,
            namespaces,
            own_namespace: "own",
            configurations: ["m", "v"],
            own_authority,
            leader_election: true,
        };
        let line = |it: Right| {
            let name = it.name.unwrap_or_default();
            let at = it.namespace.unwrap_or("*".to_owned());
            format!("{at}: {} {}.{} {name}", it.verb, it.resource, it.group)
        };
        rights(&scope).into_iter().map(line).collect()
    }

    #[test]
    fn rights_follow_the_settings() {
        let all = shown(&[], true);
        let has = |all: &[String], right: &str| all.iter().any(|it| it == right);
        for right in [
            "*: create pods. ",
            "*: update ats/status.cnat.programming-kubernetes.info ",
            "*: list nodes. ",
            "*: patch mutatingwebhookconfigurations.admissionregistration.k8s.io m",
            "*: create tokenreviews.authentication.k8s.io ",
            "own: update secrets. my-operator-webhook-ca",
            "own: update leases.coordination.k8s.io my-operator",
            "own: create events.events.k8s.io ",
        ] {
            assert!(has(&all, right), "{right}: {all:#?}");
        }
        let crossed = "mutatingwebhookconfigurations.admissionregistration.k8s.io v";
        assert!(all.iter().all(|it| !it.ends_with(crossed)), "{all:#?}");

        let one = shown(&["team".to_owned()], false);
        assert!(has(&one, "team: create pods. ") && !has(&one, "*: create pods. "));
        assert!(has(&one, "*: list nodes. "));
        assert!(one.iter().all(|it| !it.contains("secrets")), "{one:#?}");
    }
}
