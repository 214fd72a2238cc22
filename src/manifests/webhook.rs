//! The webhook configurations.

use serde_json::{Value, json};

use super::names::Names;
use crate::kinds::Kind;

/// How the API server reaches the webhooks.
#[derive(Clone, Debug)]
pub enum ClientConfig {
    /// Through the installation's Service, port 443.
    Service,
    /// At a URL such as `https://127.0.0.1:9443`, without a path.
    Url(String),
}

/// The two configurations, without `caBundle`. If there are `namespaces`, the API server sends only objects in them.
pub fn configurations(
    kinds: &[&Kind],
    names: &Names,
    reach: &ClientConfig,
    namespaces: &[String],
) -> [Value; 2] {
    let configuration = |kind: &str, name: String, verb: &str| {
        let webhooks: Vec<Value> = kinds
            .iter()
            .map(|kind| webhook(kind, verb, names, reach, namespaces))
            .collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "labels": { "app.kubernetes.io/name": "my-operator" },
            },
            "webhooks": webhooks,
        })
    };
    [
        configuration("MutatingWebhookConfiguration", names.mutating(), "mutate"),
        configuration(
            "ValidatingWebhookConfiguration",
            names.validating(),
            "validate",
        ),
    ]
}

pub(super) fn webhook(
    kind: &Kind,
    verb: &str,
    names: &Names,
    reach: &ClientConfig,
    namespaces: &[String],
) -> Value {
    let path = kind.admission.path(verb);
    let client = match reach {
        ClientConfig::Service => json!({ "service": {
            "name": names.webhook_service(),
            "namespace": names.namespace(),
            "path": path,
            "port": 443,
        } }),
        ClientConfig::Url(url) => json!({ "url": format!("{}{path}", url.trim_end_matches('/')) }),
    };
    let mut webhook = json!({
        "name": name(kind, verb),
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "rules": [rule(kind)],
        "matchConditions": [{
            "name": "spec-or-recorded-annotation-changed",
            "expression": changed(kind.admission.recorded),
        }],
    });
    if verb == "mutate" {
        webhook["reinvocationPolicy"] = "IfNeeded".into();
    }
    if !namespaces.is_empty() {
        webhook["namespaceSelector"] = in_namespaces(namespaces);
    }
    webhook
}

/// The name of a kind's entry for that verb, `mutate` or `validate`.
pub fn name(kind: &Kind, verb: &str) -> String {
    let resource = (kind.admission.resource)();
    format!("{}{}.kb.io", &verb[..1], resource.kind.to_lowercase())
}

/// The resources of a kind that are reviewed.
pub(super) fn rule(kind: &Kind) -> Value {
    let resource = (kind.admission.resource)();
    json!({
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "operations": ["CREATE", "UPDATE"],
        "resources": [resource.plural],
        "scope": "Namespaced",
    })
}

/// The API server labels every namespace with its name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Selects the namespaces of these names.
pub(super) fn in_namespaces(namespaces: &[String]) -> Value {
    json!({ "matchExpressions": [{
        "key": NAMESPACE_NAME,
        "operator": "In",
        "values": namespaces,
    }] })
}

/// An UPDATE is sent only if it changes a reviewed field, so that labels, finalizers and the like of a stored object
/// can change while the webhook is down.
pub(super) fn changed(recorded: &[&str]) -> String {
    let spec = "object.?spec.orValue({}) != oldObject.?spec.orValue({})".to_owned();
    let annotations = recorded.iter().map(|key| {
        // As optional values: an empty value differs from an absent one.
        let of = |object: &str| format!("{object}.metadata.?annotations[?'{key}']");
        format!("{} != {}", of("object"), of("oldObject"))
    });
    std::iter::once("request.operation != 'UPDATE'".to_owned())
        .chain(std::iter::once(spec))
        .chain(annotations)
        .collect::<Vec<_>>()
        .join(" || ")
}
