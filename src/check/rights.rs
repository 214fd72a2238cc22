//! Whether the operator has its rights, asked of the API server one by one.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::fetch::{Cluster, Fetched};
use super::report::Finding;
use crate::manifests::Right;

const GROUP: &str = "authorization.k8s.io";
/// How many reviews are under way at once.
const AT_ONCE: usize = 16;
/// How many missing rights a line names.
const MAX_NAMED: usize = 6;

/// Whose rights.
#[derive(Clone, Debug)]
pub(super) enum User {
    /// The caller's own.
    Caller,
    /// Those of a ServiceAccount (namespace, name).
    ServiceAccount(String, String),
}

impl User {
    /// That ServiceAccount; the caller, if it has its token. Anyone may ask for the rights of one's own.
    pub(super) async fn service_account(cluster: &Cluster, namespace: &str, name: &str) -> Self {
        let review = cluster.review(
            "authentication.k8s.io",
            "selfsubjectreviews",
            "SelfSubjectReview",
            &Value::Null,
        );
        let caller = review.await.ok();
        let caller = caller
            .as_ref()
            .map(|status| &status["userInfo"]["username"]);
        let account = format!("system:serviceaccount:{namespace}:{name}");
        if caller.is_some_and(|caller| *caller == account.as_str()) {
            return Self::Caller;
        }
        Self::ServiceAccount(namespace.to_owned(), name.to_owned())
    }
}

/// The rights that the user does not have.
pub(super) async fn missing(
    cluster: &Cluster,
    user: &User,
    rights: impl IntoIterator<Item = Right>,
) -> Fetched<Vec<Right>> {
    let asked = rights.into_iter().map(async |right| {
        let allowed = is_allowed(cluster, user, &right).await?;
        Ok((!allowed).then_some(right))
    });
    let answers = futures::stream::iter(asked).buffered(AT_ONCE);
    let missing: Vec<Option<Right>> = answers.try_collect().await?;
    Ok(missing.into_iter().flatten().collect())
}

async fn is_allowed(cluster: &Cluster, user: &User, right: &Right) -> Fetched<bool> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, subresource),
        None => (right.resource.as_str(), ""),
    };
    let attributes = json!({
        "namespace": right.namespace,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
        "verb": right.verb,
    });
    let review = match user {
        User::Caller => {
            let spec = json!({ "resourceAttributes": attributes });
            cluster
                .review(
                    GROUP,
                    "selfsubjectaccessreviews",
                    "SelfSubjectAccessReview",
                    &spec,
                )
                .await?
        }
        User::ServiceAccount(namespace, name) => {
            let spec = json!({
                "resourceAttributes": attributes,
                "user": format!("system:serviceaccount:{namespace}:{name}"),
                "groups": [
                    "system:serviceaccounts",
                    format!("system:serviceaccounts:{namespace}"),
                    "system:authenticated",
                ],
            });
            cluster
                .review(GROUP, "subjectaccessreviews", "SubjectAccessReview", &spec)
                .await?
        }
    };
    Ok(review["allowed"] == true)
}

/// The finding on the operator's rights: `count` were asked for.
pub(super) fn judge(account: &str, count: usize, missing: Fetched<Vec<Right>>) -> Finding {
    const CHECK: &str = "rights";
    match missing {
        Err(unread) => unread.finding(CHECK),
        Ok(missing) if missing.is_empty() => {
            Finding::passed(CHECK, format!("ServiceAccount {account} has all {count}"))
        }
        Ok(missing) => {
            let text = format!("ServiceAccount {account} may not {}", named(&missing));
            Finding::failed(CHECK, text).action(
                "apply the roles of this version (kubectl apply -k config/rbac, or your chart)",
            )
        }
    }
}

/// Rights in one line: the verbs of each resource together.
pub(super) fn named(rights: &[Right]) -> String {
    let mut verbs: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for right in rights {
        let dot = if right.group.is_empty() { "" } else { "." };
        let mut object = format!("{}{dot}{}", right.resource, right.group);
        if let Some(name) = &right.name {
            object = format!("{object} {name}");
        }
        if let Some(namespace) = &right.namespace {
            object = format!("{object} in namespace {namespace}");
        }
        verbs.entry(object).or_default().push(&right.verb);
    }
    let all = verbs.iter();
    let lines = all.map(|(object, verbs)| format!("{} {object}", verbs.join(", ")));
    let mut lines: Vec<String> = lines.collect();
    if lines.len() > MAX_NAMED {
        let more = lines.len() - MAX_NAMED;
        lines.truncate(MAX_NAMED);
        lines.push(format!("{more} more"));
    }
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::fetch::Unread;
    use crate::check::report::Level;

    fn right(resource: &str, verb: &str) -> Right {
        Right {
            namespace: None,
            group: "g".to_owned(),
            resource: resource.to_owned(),
            name: None,
            verb: verb.to_owned(),
        }
    }

    #[test]
    fn missing_rights_are_named_by_resource_in_one_line() {
        let few = judge(
            "n/a",
            9,
            Ok(vec![right("pods", "list"), right("pods", "watch")]),
        );
        assert_eq!(few.level, Level::Failed);
        assert_eq!(few.message, "ServiceAccount n/a may not list, watch pods.g");
        let many: Vec<Right> = (0..40).map(|n| right(&format!("r{n}"), "get")).collect();
        let many = judge("n/a", 40, Ok(many));
        assert!(many.message.ends_with("34 more"), "{many:?}");
        assert_eq!(judge("n/a", 9, Ok(Vec::new())).level, Level::Passed);
    }

    #[test]
    fn what_may_not_be_asked_is_a_warning() {
        let unread = Unread::Forbidden {
            call: "create subjectaccessreviews.authorization.k8s.io".to_owned(),
            message: String::new(),
        };
        let finding = judge("n/a", 9, Err(unread));
        assert_eq!(finding.level, Level::Warning);
        assert!(
            finding.message.starts_with("unknown: no right to create"),
            "{finding:?}"
        );
    }
}
