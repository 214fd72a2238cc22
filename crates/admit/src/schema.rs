//! The checks of a schema: unknown fields, JSON types, bounds of numbers, lists of allowed texts, required fields and
//! quantities. The API server makes them by the CRD before it calls the webhook, and by its own types for a pod.
//!
//! Only the schema keywords of this project's CRDs and of `pod-template.json` are implemented; a test fails at any
//! other. A `null` counts as an absent field, as in the API server (tried on 1.36).

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

use super::report::MAX_FIELD_LEN;
use admission_rules::faults::Fault;
use admission_rules::text::{cut, quoted};

/// Schemas by the name that a `$ref` gives.
pub type Definitions = BTreeMap<String, JSONSchemaProps>;

/// The most violations that are collected, as in the webhook: of more, the report would be long and no better.
const MAX_FINDINGS: usize = 1_000;

/// The longest name for which a similar one is searched.
const MAX_NAME_LEN: usize = 64;

/// The violations of the schema in an object.
#[derive(Debug, Default)]
pub struct Findings {
    /// The fields that the schema does not have.
    pub unknown: Vec<Unknown>,
    /// Values that the schema forbids, and required ones that are absent.
    pub values: Vec<Fault>,
}

impl Findings {
    fn is_full(&self) -> bool {
        self.unknown.len() + self.values.len() >= MAX_FINDINGS
    }
}

/// A field that the schema does not have.
#[derive(Debug)]
pub struct Unknown {
    /// Its path, with user input as is.
    pub field: String,
    /// The known name that was probably meant.
    pub nearest: Option<String>,
}

impl Unknown {
    /// The API server's sentence.
    pub fn message(&self) -> String {
        format!("unknown field {}", quoted(&cut(&self.field, MAX_FIELD_LEN)))
    }
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
    let none = Definitions::new();
    let mut walk = Walk::new(&none);
    for (name, value) in object.as_object().into_iter().flatten() {
        if walk.findings.is_full() {
            break;
        }
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                for name in value.as_object().into_iter().flat_map(Map::keys) {
                    if !METADATA.contains(&name.as_str()) {
                        walk.unknown(format!("metadata.{name}"), None);
                    }
                }
            }
            name => match schema.properties.as_ref().and_then(|all| all.get(name)) {
                None => walk.unknown(name.to_owned(), nearest(name, schema)),
                Some(schema) => walk.field(name, schema, value),
            },
        }
    }
    // On creation, the API server drops the status before it checks its types.
    walk.findings
        .values
        .retain(|fault| !fault.field.starts_with("status"));
    walk.findings
}

/// Checks the value of the field at `path` by the definition of that name.
pub fn check_by(definitions: &Definitions, name: &str, path: &str, value: &Value) -> Findings {
    let mut walk = Walk::new(definitions);
    if let Some(schema) = definitions.get(name) {
        walk.field(path, schema, value);
    }
    walk.findings
}

/// Goes through a value and its schema together.
struct Walk<'a> {
    definitions: &'a Definitions,
    findings: Findings,
}

impl<'a> Walk<'a> {
    fn new(definitions: &'a Definitions) -> Self {
        Self {
            definitions,
            findings: Findings::default(),
        }
    }

    fn unknown(&mut self, field: String, nearest: Option<String>) {
        if !self.findings.is_full() {
            self.findings.unknown.push(Unknown { field, nearest });
        }
    }

    fn field(&mut self, path: &str, schema: &'a JSONSchemaProps, value: &Value) {
        if !value.is_null() {
            self.value(path, schema, value);
        }
    }

    fn value(&mut self, path: &str, schema: &'a JSONSchemaProps, value: &Value) {
        let definitions = self.definitions;
        let schema = match &schema.ref_path {
            None => schema,
            Some(name) => match definitions.get(name) {
                Some(schema) => schema,
                None => return,
            },
        };
        let is = type_of(value);
        let wanted = if schema.x_kubernetes_int_or_string == Some(true) {
            "integer,string"
        } else if is_quantity(schema) {
            "integer,number,string"
        } else {
            schema.type_.as_deref().unwrap_or(is)
        };
        if !wanted.split(',').any(|wanted| wanted == is) {
            let detail = format!("{path} in body must be of type {wanted}: {is:?}");
            let fault = Fault::type_invalid(path, &is.into(), &detail);
            self.findings.values.push(fault);
            return;
        }
        match value {
            Value::String(text) => self.findings.values.extend(wrong_text(path, schema, text)),
            Value::Number(number) => {
                if let Some(number) = number.as_i64() {
                    let fault = out_of_bounds(path, schema, number);
                    self.findings.values.extend(fault);
                }
            }
            Value::Object(fields) => self.object(path, schema, fields),
            Value::Array(items) => self.list(path, schema, items),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn object(&mut self, path: &str, schema: &'a JSONSchemaProps, fields: &Map<String, Value>) {
        for (name, value) in fields {
            if self.findings.is_full() {
                return;
            }
            let path = format!("{path}.{name}");
            let property = schema.properties.as_ref().and_then(|all| all.get(name));
            match (property, &schema.additional_properties) {
                (Some(property), _) => self.field(&path, property, value),
                (None, Some(JSONSchemaPropsOrBool::Schema(any))) => self.field(&path, any, value),
                _ if schema.x_kubernetes_preserve_unknown_fields == Some(true) => {}
                _ => self.unknown(path, nearest(name, schema)),
            }
        }
        for name in schema.required.iter().flatten() {
            // Go does not distinguish an empty text from an absent one.
            let absent = |value: &Value| value.is_null() || value.as_str() == Some("");
            if fields.get(name).is_none_or(absent) && !self.findings.is_full() {
                let fault = Fault::required(format!("{path}.{name}"), "");
                self.findings.values.push(fault);
            }
        }
    }

    fn list(&mut self, path: &str, schema: &'a JSONSchemaProps, items: &[Value]) {
        let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items else {
            return;
        };
        for (i, item) in items.iter().enumerate() {
            if self.findings.is_full() {
                return;
            }
            if !(item.is_null() && schema.nullable == Some(true)) {
                self.value(&format!("{path}[{i}]"), schema, item);
            }
        }
    }
}

/// The property that was probably meant: it differs in a letter or two, or in capitals.
fn nearest(name: &str, schema: &JSONSchemaProps) -> Option<String> {
    if !(3..=MAX_NAME_LEN).contains(&name.len()) {
        return None;
    }
    let limit = if name.len() < 5 { 1 } else { 2 };
    let name = name.to_lowercase();
    let names = schema.properties.iter().flat_map(BTreeMap::keys);
    let distances = names.map(|known| {
        let distance = strsim::osa_distance(&name, &known.to_lowercase());
        (distance, known)
    });
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= limit).then(|| known.clone())
}

/// A text that is not in the schema's list, or no quantity.
fn wrong_text(path: &str, schema: &JSONSchemaProps, text: &str) -> Option<Fault> {
    if is_quantity(schema) {
        let detail = "must be a quantity, such as 1.5, 500m or 128Mi";
        return (!reads_as_quantity(text)).then(|| Fault::invalid(path, text, detail));
    }
    let supported = schema.enum_.as_ref()?.iter();
    let supported: Vec<&str> = supported.filter_map(|one| one.0.as_str()).collect();
    // An empty text is an absent one to Go, and most of these fields have a default.
    (!text.is_empty() && !supported.contains(&text))
        .then(|| Fault::not_supported(path, text, &supported))
}

/// Whether the schema is that of `pod-template.json` for amounts, such as `500m` of a CPU.
fn is_quantity(schema: &JSONSchemaProps) -> bool {
    schema.format.as_deref() == Some("quantity")
}

/// The units of quantities; those with exponents, such as `1e3`, come in addition.
const UNITS: [&str; 16] = [
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
];

/// Whether the API server reads the text as a quantity, as `ParseQuantity` in `k8s.io/apimachinery/pkg/api/resource`
/// does: no digits are 0.
fn reads_as_quantity(text: &str) -> bool {
    let text = text.trim();
    let is_digit = |c: char| c.is_ascii_digit();
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    let behind = number.trim_start_matches(is_digit);
    let unit = match behind.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(is_digit),
        None => behind,
    };
    let exponent = unit.strip_prefix(['e', 'E']);
    let has_exponent = exponent.is_some_and(|exponent| exponent.parse::<i64>().is_ok());
    !text.is_empty() && (UNITS.contains(&unit) || has_exponent)
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
