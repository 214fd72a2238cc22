//! The rights of the operator, one by one, as an access review asks for them. They are read from the roles that
//! `config/rbac` and the components have, so the two cannot differ.

use std::collections::BTreeSet;

use serde_json::Value;

use super::names::Names;
use super::rbac;
use crate::kinds::Kind;

/// What an installation is set to, as far as its rights depend on it.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// The kinds in force.
    pub kinds: &'a [&'a Kind],
    /// The namespaces to work in; all if there are none.
    pub namespaces: &'a [String],
    /// The names of its objects.
    pub names: &'a Names,
    /// Whether the operator keeps a certificate authority of its own.
    pub own_authority: bool,
    /// Whether it looks at the webhook configurations; with OLM it does not.
    pub own_configurations: bool,
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
    let names = scope.names;
    let own = Some(names.namespace());
    let [everywhere, events] = rbac::manager(scope.kinds, names);
    let mut roles = vec![(events, own)];
    if scope.namespaces.is_empty() {
        roles.push((everywhere, None));
    } else {
        roles.push((rbac::without_namespaces(scope.kinds, names), None));
    }
    for namespace in scope.namespaces {
        let [role, _] = rbac::in_namespace(scope.kinds, names, namespace);
        roles.push((role, Some(namespace)));
    }
    if scope.own_authority {
        let [cluster, _, namespaced, _] = rbac::webhook_ca(names);
        roles.extend([(cluster, None), (namespaced, own)]);
    }
    if scope.leader_election {
        let [role, _] = rbac::leader_election(names);
        roles.push((role, own));
    }
    let [(_, auth), _] = rbac::metrics(names);
    let auth = auth.into_iter().filter(|it| it["kind"] == "ClusterRole");
    roles.extend(auth.map(|role| (role, None)));
    let all = roles.iter();
    all.flat_map(|(role, at)| of_role(role, names, *at))
        .filter(|right| scope.own_configurations || right.group != rbac::ADMISSION)
        .collect()
}

fn of_role(role: &Value, own: &Names, namespace: Option<&str>) -> Vec<Right> {
    let configurations = [own.mutating(), own.validating()];
    // One rule covers both webhook configurations; each name belongs to one of the resources.
    let is_about = |resource: &str, name: Option<&str>| {
        let mut pairs = rbac::WEBHOOK_CONFIGURATIONS.iter().zip(&configurations);
        pairs.all(|(of, configuration)| name != Some(configuration) || resource == *of)
    };
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

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    let all = rule[field].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn shown(namespaces: &[String], own: bool) -> Vec<String> {
        let kinds = kinds::by_default();
        let scope = Scope {
            kinds: &kinds,
            namespaces,
            names: &Names::new("our", "own"),
            own_authority: own,
            own_configurations: own,
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
            "*: watch namespaces. ",
            "*: patch mutatingwebhookconfigurations.admissionregistration.k8s.io our-mutating-webhook-configuration",
            "*: create tokenreviews.authentication.k8s.io ",
            "own: update secrets. our-webhook-ca",
            "own: update leases.coordination.k8s.io ",
            "own: create events.events.k8s.io ",
        ] {
            assert!(has(&all, right), "{right}: {all:#?}");
        }
        let crossed = "mutatingwebhookconfigurations.admissionregistration.k8s.io our-validating-webhook-configuration";
        assert!(all.iter().all(|it| !it.ends_with(crossed)), "{all:#?}");

        let one = shown(&["team".to_owned()], false);
        assert!(has(&one, "team: create pods. ") && !has(&one, "*: create pods. "));
        assert!(has(&one, "*: list nodes. "));
        for foreign in ["secrets", "webhookconfigurations", " namespaces."] {
            assert!(one.iter().all(|it| !it.contains(foreign)), "{one:#?}");
        }
    }
}
