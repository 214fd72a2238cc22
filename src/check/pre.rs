//! Before an installation: whether the caller may make it, and what it would overwrite.

use std::collections::BTreeSet;

use super::crds;
use super::fetch::{Cluster, Fetched};
use super::report::Finding;
use super::rights::{User, missing, named};
use crate::kinds::{self, Kind};
use crate::manifests::{Names, PREFIX, Right, Scope, rights};

const CHECK: &str = "install-rights";
const RBAC: &str = "rbac.authorization.k8s.io";

/// What `dist/install.yaml` has: group, resource, whether it is in the operator's namespace.
const OBJECTS: [(&str, &str, bool); 12] = [
    ("", "namespaces", false),
    ("apiextensions.k8s.io", "customresourcedefinitions", false),
    (RBAC, "clusterroles", false),
    (RBAC, "clusterrolebindings", false),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        false,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        false,
    ),
    (RBAC, "roles", true),
    (RBAC, "rolebindings", true),
    ("", "serviceaccounts", true),
    ("", "services", true),
    ("apps", "deployments", true),
    ("policy", "poddisruptionbudgets", true),
];

/// Whether an operator of these kinds can be installed in that namespace by the caller.
pub(super) async fn check(
    cluster: &Cluster,
    namespace: &str,
    kinds: &[&'static Kind],
) -> Vec<Finding> {
    let crds = kinds.iter().map(|kind| crds::check_before(cluster, kind));
    let (objects, roles, crds) = tokio::join!(
        missing(cluster, &User::Caller, objects(namespace)),
        roles(cluster, needed(namespace, kinds)),
        futures::future::join_all(crds)
    );
    let names = kinds::names(kinds).join(", ");
    let give = format!("give the operator its rights for {names}");
    let mut findings = vec![
        judge(CHECK, "create every object of the installation", objects),
        judge("role-rights", &give, roles),
    ];
    findings.extend(crds);
    findings
}

/// `kubectl apply` reads, creates and patches.
fn objects(namespace: &str) -> Vec<Right> {
    let all = OBJECTS.iter().flat_map(|(group, resource, own)| {
        ["get", "create", "patch"].map(|verb| Right {
            namespace: own.then(|| namespace.to_owned()),
            group: (*group).to_owned(),
            resource: (*resource).to_owned(),
            name: None,
            verb: verb.to_owned(),
        })
    });
    all.collect()
}

/// The rights of an operator of these kinds, as its roles will have them.
fn needed(namespace: &str, kinds: &[&Kind]) -> BTreeSet<Right> {
    rights(&Scope {
        kinds,
        namespaces: &[],
        names: &Names::new(PREFIX, namespace),
        own_authority: true,
        own_configurations: true,
        leader_election: true,
    })
}

/// RBAC lets a user create only roles with rights that the user has, unless the user may `escalate` and `bind`.
async fn roles(cluster: &Cluster, needed: BTreeSet<Right>) -> Fetched<Vec<Right>> {
    let escalate = [
        ("clusterroles", "escalate"),
        ("clusterroles", "bind"),
        ("roles", "escalate"),
        ("roles", "bind"),
    ];
    let escalate = escalate.map(|(resource, verb)| Right {
        namespace: None,
        group: RBAC.to_owned(),
        resource: resource.to_owned(),
        name: None,
        verb: verb.to_owned(),
    });
    if missing(cluster, &User::Caller, escalate).await?.is_empty() {
        return Ok(Vec::new());
    }
    missing(cluster, &User::Caller, needed).await
}

fn judge(check: &'static str, what: &str, missing: Fetched<Vec<Right>>) -> Finding {
    match missing {
        Err(unread) => unread.finding(check),
        Ok(missing) if missing.is_empty() => Finding::passed(check, format!("you may {what}")),
        Ok(missing) => Finding::failed(check, format!("you may not {}", named(&missing)))
            .action("install as a user with cluster-admin"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_rights_are_those_of_the_kinds() {
        let needs = |names: &str, right: &str| {
            let needed = needed("own", &kinds::named(names).unwrap());
            let mut all = needed
                .iter()
                .map(|it| format!("{} {}", it.verb, it.resource));
            all.any(|it| it == right)
        };
        for (names, right, is_needed) in [
            ("memcached", "create deployments", true),
            ("memcached", "create pods", false),
            ("at,mydaemonset", "create deployments", false),
            ("at,mydaemonset", "create pods", true),
            ("at", "list nodes", false),
            ("mydaemonset", "list nodes", true),
        ] {
            assert_eq!(needs(names, right), is_needed, "{names}: {right}");
        }
    }

    #[test]
    fn the_objects_are_those_of_the_installer() {
        let file = include_str!("../../dist/install.yaml");
        let kinds = file.lines().filter_map(|line| line.strip_prefix("kind: "));
        let plural = |kind: &str| format!("{}s", kind.to_lowercase());
        let installed: BTreeSet<String> = kinds.map(plural).collect();
        let known = OBJECTS
            .iter()
            .map(|(_, resource, _)| (*resource).to_owned());
        assert_eq!(installed, known.collect());
    }
}
