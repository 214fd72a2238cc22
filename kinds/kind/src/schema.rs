//! Adjustments that every kind's generated CRD needs.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::json;

/// Adjusts a derived CRD: no `spec` that the schema requires (the webhook rejects its absence, with
/// its complete list of errors), a status from the start, conditions keyed by their type,
/// descriptions in one piece, our label.
pub fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(root) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            root.required = None;
            default_status(root);
            key_conditions(root);
            unwrap_lines(root);
        }
    }
    crd.metadata.labels = Some(BTreeMap::from([(
        "app.kubernetes.io/name".to_owned(),
        "my-operator".to_owned(),
    )]));
    crd
}

/// Gives an object that no operator has seen the status that Flux's own kinds have. kstatus takes an object without a
/// status for Current, so that Flux would not wait for the operator. An observed generation other than the object's
/// makes it InProgress.
fn default_status(root: &mut JSONSchemaProps) {
    let Some(status) = root
        .properties
        .as_mut()
        .and_then(|all| all.get_mut("status"))
    else {
        return;
    };
    status.default = Some(JSON(json!({"observedGeneration": -1})));
    let fields = status.properties.as_mut();
    let generation = fields.and_then(|all| all.get_mut("observedGeneration"));
    if let Some(text) = generation.and_then(|it| it.description.as_mut()) {
        text.push_str(" -1 until the operator has seen the object.");
    }
}

/// Makes `status.conditions` what it is in Kubernetes' own kinds: at most one of each type, and merged by it.
fn key_conditions(root: &mut JSONSchemaProps) {
    let mut at = root;
    for name in ["status", "conditions"] {
        let below = at.properties.as_mut().and_then(|all| all.get_mut(name));
        let Some(below) = below else { return };
        at = below;
    }
    at.x_kubernetes_list_type = Some("map".to_owned());
    at.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
}

/// Joins the lines of every description: the source's line breaks mean nothing to readers of
/// `kubectl explain`, which wraps by itself.
fn unwrap_lines(schema: &mut JSONSchemaProps) {
    if let Some(text) = &mut schema.description {
        *text = text.replace('\n', " ");
    }
    for property in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        unwrap_lines(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        unwrap_lines(items);
    }
}
