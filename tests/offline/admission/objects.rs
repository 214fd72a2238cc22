//! Objects to send: the samples of every kind, and its schema.

use my_operator::kinds::Kind;
use serde_json::{Value, json};

/// A good object of the kind, as a user would write it.
pub fn sample(kind: &Kind) -> Value {
    let sample = kind
        .samples
        .iter()
        .find(|sample| !sample.file.contains("bad/"));
    serde_saphyr::from_str(sample.unwrap().text).unwrap()
}

/// The same with these fields in its spec.
pub fn sample_with(kind: &Kind, fields: &Value) -> Value {
    let mut object = sample(kind);
    for (key, value) in fields.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

/// The kind's schema, with what every object has besides.
pub fn schema(kind: &Kind) -> Value {
    let crd = serde_json::to_value((kind.crd)()).unwrap();
    let mut schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    schema["properties"]["metadata"] = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "generateName": {"type": "string"},
        "namespace": {"type": "string"}, "labels": texts, "annotations": texts,
        "finalizers": {"type": "array", "items": {"type": "string"}},
    }});
    schema
}

/// Whether the kind's spec has that field.
pub fn has_field(kind: &Kind, field: &str) -> bool {
    schema(kind)["properties"]["spec"]["properties"]
        .get(field)
        .is_some()
}
