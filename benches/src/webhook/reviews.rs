//! The reviews that are sent: those of a CREATE of a `MyDaemonSet`, as a Kubernetes 1.36 API server
//! writes them, inside the HTTP request that its webhook client writes.

use serde_json::{Map, Value, json};

/// Which of a webhook's two sides is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Defaulting: the object comes without defaults, so that there is a patch to make.
    Mutate,
    /// Validation: the object comes as the defaulting side left it.
    Validate,
}

impl Side {
    /// As in the webhook's path.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

/// How long a review is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// An ordinary one.
    Small,
    /// One with a long template, which occurs twice: in the spec, and in the annotation of `kubectl apply`.
    Large,
}

impl Length {
    /// In bytes, as the tables call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "2.9 kB",
            Self::Large => "64 kB",
        }
    }

    /// Containers in the template, and variables in each.
    fn shape(self) -> (usize, usize) {
        match self {
            Self::Small => (1, 0),
            Self::Large => (12, 36),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Small => 2_900,
            Self::Large => 64_000,
        }
    }
}

const API_VERSION: &str = "apps.zhongmingmao.io/v1beta1";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const CREATED: &str = "2026-11-20T10:12:00Z";
/// That of every review.
pub(crate) const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// The whole HTTP request that is measured.
pub(crate) fn request(side: Side, length: Length) -> Vec<u8> {
    http(side, &measured(side, length))
}

/// An object, and what every server that reviews makes of it.
pub(crate) struct Case {
    /// For messages.
    pub(crate) name: String,
    pub(crate) side: Side,
    pub(crate) object: Value,
    /// The object with the answer's patch applied; `None` if the object is rejected.
    pub(crate) expected: Option<Value>,
}

impl Case {
    /// One that gets defaults, `spec.updateStrategy` this one.
    fn defaulted(what: &str, object: Value, strategy: Value) -> Self {
        Self {
            name: format!("mutate {what}"),
            side: Side::Mutate,
            expected: Some(with_defaults(object.clone(), strategy)),
            object,
        }
    }

    fn accepted(what: &str, object: Value) -> Self {
        Self {
            expected: Some(object.clone()),
            ..Self::rejected(what, object)
        }
    }

    fn rejected(what: &str, object: Value) -> Self {
        Self {
            name: format!("validate {what}"),
            side: Side::Validate,
            object,
            expected: None,
        }
    }

    /// The whole HTTP request.
    pub(crate) fn request(&self) -> Vec<u8> {
        http(self.side, &self.object)
    }
}

/// All reviews that are measured, and others with parts of the defaults or with bad images.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for length in [Length::Small, Length::Large] {
        let object = measured(Side::Mutate, length);
        cases.push(Case::defaulted(length.name(), object, strategy()));
        let object = measured(Side::Validate, length);
        cases.push(Case::accepted(length.name(), object));
    }

    let with_strategy = |strategy: &Value| {
        let mut object = measured(Side::Mutate, Length::Small);
        object["spec"]["updateStrategy"] = strategy.clone();
        object
    };
    let on_delete = json!({"type": "OnDelete"});
    let object = with_strategy(&on_delete);
    cases.push(Case::defaulted("OnDelete", object, on_delete));
    let object = with_strategy(&json!({"rollingUpdate": {"maxUnavailable": "20%"}}));
    let mut filled = strategy();
    filled["rollingUpdate"]["maxUnavailable"] = "20%".into();
    cases.push(Case::defaulted("a percentage", object, filled));

    for (what, image) in [("no image", ""), ("an empty tag", "nginx:")] {
        let mut object = measured(Side::Validate, Length::Small);
        object["spec"]["image"] = image.into();
        cases.push(Case::rejected(what, object));
    }
    let mut object = measured(Side::Validate, Length::Large);
    let sidecar = &mut object["spec"]["template"]["spec"]["containers"][1];
    sidecar["image"] = "r.io/Team/sidecar:1".into();
    cases.push(Case::rejected("a sidecar's image in capitals", object));
    cases
}

/// The object with the defaults of its spec, and this strategy.
fn with_defaults(mut object: Value, strategy: Value) -> Value {
    let spec = &mut object["spec"];
    spec["minReadySeconds"] = 0.into();
    spec["revisionHistoryLimit"] = 10.into();
    spec["updateStrategy"] = strategy;
    object
}

/// The default of `spec.updateStrategy`.
fn strategy() -> Value {
    json!({
        "type": "RollingUpdate",
        "rollingUpdate": {
            "maxUnavailable": 1,
            "maxSurge": 0,
            "partition": 0,
            "paused": false,
            "autoPause": {"enabled": true, "windowSeconds": 600},
            "onFailure": "Pause",
        },
    })
}

/// The request with the review of this object.
fn http(side: Side, object: &Value) -> Vec<u8> {
    let review = envelope(object).to_string();
    let path = format!("/{}-apps-zhongmingmao-io-v1beta1-mydaemonset", side.verb());
    let mut request = format!(
        "POST {path}?timeout=10s HTTP/1.1\r\nHost: my-operator-webhook-service.my-operator-system.svc:443\r\nUser-Agent: kube-apiserver-admission\r\nContent-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n",
        review.len()
    )
    .into_bytes();
    request.extend_from_slice(review.as_bytes());
    request
}

/// The object whose review has that length.
fn measured(side: Side, length: Length) -> Value {
    let (containers, variables) = length.shape();
    let without = envelope(&object(side, containers, variables, 0));
    // Whatever is missing goes into an annotation.
    let padding = length.bytes().saturating_sub(without.to_string().len());
    object(side, containers, variables, padding)
}

fn envelope(object: &Value) -> Value {
    let kind =
        json!({"group": "apps.zhongmingmao.io", "version": "v1beta1", "kind": "MyDaemonSet"});
    let resource =
        json!({"group": "apps.zhongmingmao.io", "version": "v1beta1", "resource": "mydaemonsets"});
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": "node-exporter",
            "namespace": "monitoring",
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:flux-system:kustomize-controller",
                "uid": "5b1f0c1e-2f6f-4f2b-9f5c-3f3c6a0a7d11",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:flux-system", "system:authenticated"],
                "extra": {
                    "authentication.kubernetes.io/credential-id": ["JTI=6a3f3f0e-3a0f-4d53-8a0c-0f3f9b6b7f9e"],
                },
            },
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": {
                "kind": "CreateOptions",
                "apiVersion": "meta.k8s.io/v1",
                "fieldManager": "kubectl-client-side-apply",
                "fieldValidation": "Strict",
            },
        },
    })
}

fn object(side: Side, containers: usize, variables: usize, padding: usize) -> Value {
    let template = template(containers, variables);
    let spec = json!({"image": "quay.io/prometheus/node-exporter:v1.9.1", "template": template});
    let labels = json!({"app.kubernetes.io/name": "node-exporter", "app.kubernetes.io/part-of": "monitoring"});
    let applied = json!({
        "apiVersion": API_VERSION,
        "kind": "MyDaemonSet",
        "metadata": {"annotations": {}, "labels": labels, "name": "node-exporter", "namespace": "monitoring"},
        "spec": spec,
    });
    let mut annotations = json!({LAST_APPLIED: format!("{applied}\n")});
    if padding > 0 {
        // Quotes, colon and comma are a part of it.
        let rest = padding.saturating_sub("\"example.com/note\":\"\",".len());
        annotations["example.com/note"] = "x".repeat(rest).into();
    }
    let mut metadata = json!({
        "name": "node-exporter",
        "namespace": "monitoring",
        "labels": labels,
        "annotations": annotations,
        "managedFields": [{
            "manager": "kubectl-client-side-apply",
            "operation": "Update",
            "apiVersion": API_VERSION,
            "time": CREATED,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {
                    "f:annotations": {".": {}, format!("f:{LAST_APPLIED}"): {}},
                    "f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:app.kubernetes.io/part-of": {}},
                },
                "f:spec": owned(&spec),
            },
        }],
    });
    if side == Side::Validate {
        metadata["uid"] = "f6a1c7a5-5f5e-4c36-9a3f-0a6e6c1a2b3d".into();
        metadata["creationTimestamp"] = CREATED.into();
        metadata["generation"] = 1.into();
    }
    let object = json!({
        "apiVersion": API_VERSION,
        "kind": "MyDaemonSet",
        "metadata": metadata,
        "spec": spec,
    });
    match side {
        Side::Mutate => object,
        Side::Validate => with_defaults(object, strategy()),
    }
}

fn template(containers: usize, variables: usize) -> Value {
    let container = |i: usize| {
        let mut container = json!({
            "name": if i == 0 { "app".to_owned() } else { format!("sidecar-{i}") },
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        });
        if i > 0 {
            container["image"] =
                format!("registry.example.com:5000/team/sidecar-{i}:1.{i}.0").into();
        }
        if variables > 0 {
            let variable = |n: usize| json!({"name": format!("SETTING_NUMBER_{n}"), "value": format!("value-{n}-of-container-{i}")});
            container["env"] = (0..variables).map(variable).collect();
        }
        container
    };
    json!({"spec": {
        "containers": (0..containers).map(container).collect::<Vec<_>>(),
        "tolerations": [{"operator": "Exists"}],
    }})
}

/// The field set of `managedFields` for a value. A template is of no type that the API server knows,
/// so its lists are owned as a whole.
fn owned(value: &Value) -> Value {
    let members = value.as_object().into_iter().flatten();
    let fields = members.map(|(name, member)| (format!("f:{name}"), owned(member)));
    fields.collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_have_the_sizes_that_the_tables_name() {
        for side in [Side::Mutate, Side::Validate] {
            for length in [Length::Small, Length::Large] {
                let bytes = envelope(&measured(side, length)).to_string().len();
                let off = bytes.abs_diff(length.bytes());
                assert!(off < 20, "{side:?} {length:?}: {bytes}");
            }
        }
    }

    #[test]
    fn rejected_objects_differ_from_accepted_ones() {
        let (accepted, rejected): (Vec<_>, Vec<_>) = cases()
            .into_iter()
            .filter(|case| case.side == Side::Validate)
            .partition(|case| case.expected.is_some());
        assert!(!accepted.is_empty() && !rejected.is_empty());
        for case in rejected {
            let same = accepted.iter().any(|other| other.object == case.object);
            assert!(!same, "{}", case.name);
        }
    }
}
