//! The checks that the API server makes before it calls the webhook: fields that the CRD does not have, JSON types, and
//! the bounds of numbers.
//!
//! Only the schema keywords of this project's CRDs are implemented; a test fails at any other. A `null` counts as an
//! absent field, as in the API server (tried on 1.36).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use my_operator_admission::faults::Fault;

/// The violations of the schema in an object.
#[derive(Debug, Default)]
pub struct Findings {
    /// The paths of fields that the schema does not have.
    pub unknown: Vec<String>,
    /// Values of the wrong JSON type, and numbers out of bounds.
    pub values: Vec<Fault>,
}

/// The fields of `metadata`, which the API server knows without a schema.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Checks a whole object.
pub fn check(schema: &JSONSchemaProps, object: &Value) -> Findings {
    let mut findings = Findings::default();
    let properties = schema.properties.iter().flatten();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                let fields = value.as_object().into_iter().flatten();
                let unknown = fields.filter(|(name, _)| !METADATA.contains(&name.as_str()));
                findings
                    .unknown
                    .extend(unknown.map(|(name, _)| format!("metadata.{name}")));
            }
            name => match properties.clone().find(|(property, _)| *property == name) {
                None => findings.unknown.push(name.to_owned()),
                Some((_, schema)) => walk_field(name, schema, value, &mut findings),
            },
        }
    }
    // On creation, the API server drops the status before it checks its types.
    findings
        .values
        .retain(|fault| !fault.field.starts_with("status"));
    findings
}

fn walk_field(path: &str, schema: &JSONSchemaProps, value: &Value, findings: &mut Findings) {
    if !value.is_null() {
        walk(path, schema, value, findings);
    }
}

fn walk(path: &str, schema: &JSONSchemaProps, value: &Value, findings: &mut Findings) {
    let is = type_of(value);
    let wanted = if schema.x_kubernetes_int_or_string == Some(true) {
        "integer,string"
    } else {
        schema.type_.as_deref().unwrap_or(is)
    };
    if !wanted.split(',').any(|wanted| wanted == is) {
        let detail = format!("{path} in body must be of type {wanted}: {is:?}");
        let fault = Fault::type_invalid(path, &is.into(), &detail);
        findings.values.push(fault);
        return;
    }
    match value {
        Value::Number(number) => {
            if let Some(number) = number.as_i64() {
                findings.values.extend(out_of_bounds(path, schema, number));
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                let property = schema.properties.as_ref().and_then(|p| p.get(name));
                let schema = match (property, &schema.additional_properties) {
                    (Some(property), _) => property,
                    (None, Some(JSONSchemaPropsOrBool::Schema(any))) => any,
                    _ if schema.x_kubernetes_preserve_unknown_fields == Some(true) => continue,
                    _ => {
                        findings.unknown.push(path);
                        continue;
                    }
                };
                walk_field(&path, schema, value, findings);
            }
        }
        Value::Array(items) => {
            let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items else {
                return;
            };
            for (i, item) in items.iter().enumerate() {
                if !(item.is_null() && schema.nullable == Some(true)) {
                    walk(&format!("{path}[{i}]"), schema, item, findings);
                }
            }
        }
        _ => {}
    }
}

/// In the API server's wording. Its format for a number that is not an integer is not known here.
fn out_of_bounds(path: &str, schema: &JSONSchemaProps, number: i64) -> Option<Fault> {
    // As wide as the bounds; those of Kubernetes' numbers are exact.
    #[allow(clippy::cast_precision_loss)]
    let wide = number as f64;
    let (word, bound) = match (schema.minimum, schema.maximum) {
        (Some(least), _) if wide < least => ("greater", least),
        (_, Some(most)) if wide > most => ("less", most),
        _ => return None,
    };
    let detail = format!("{path} in body should be {word} than or equal to {bound}");
    Some(Fault::invalid(path, number, &detail))
}

/// The API server's name of the JSON type.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
