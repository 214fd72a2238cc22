//! Pod templates, checked by the API server's own schema of pods: most CRDs have none for them.
//!
//! `pod-template.json` is what the API server of a release serves as OpenAPI: names, types, lists of allowed texts,
//! quantities and required fields. The test `pod_schema` in `tests/control_plane` of the operator makes it, says what
//! it leaves out, and compares it with a real API server.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::report::{Found, Why};
use super::schema::{self, Definitions};
use super::yaml::Node;

/// The definition of a pod template.
const TEMPLATE: &str = "PodTemplateSpec";

/// A test reads it: it is not empty.
static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| serde_json::from_str(include_str!("pod-template.json")).unwrap_or_default());

#[derive(Debug, Default, Deserialize)]
struct Schema {
    /// The release, such as `1.36`.
    kubernetes: String,
    definitions: Definitions,
}

/// The faults of the template at that path of an object, with positions of its `node`. A template without containers has
/// none: its operator adds one.
pub fn check(at: &str, object: &Value, node: &Node) -> Vec<Found> {
    let mut names = at.split('.');
    let Some(template) = names.try_fold(object, |value, name| value.get(name)) else {
        return Vec::new();
    };
    let findings = schema::check_by(&SCHEMA.definitions, TEMPLATE, at, template);
    let by = format!("schema of pods, Kubernetes {}", SCHEMA.kubernetes);
    let found = |field: String, reason: Why, message: String| {
        let (line, column) = node.position_of(&field);
        Found {
            field,
            line,
            column,
            reason,
            message,
            by: Some(by.clone()),
        }
    };
    let unknown = findings.unknown.into_iter().map(|unknown| {
        let nearest = unknown.nearest.as_ref();
        let hint = nearest.map(|name| format!("; did you mean {name:?}?"));
        let message = unknown.message() + &hint.unwrap_or_default();
        found(unknown.field, Why::UnknownField, message)
    });
    let values = findings.values.into_iter();
    let values = values.map(|fault| found(fault.field, Why::Field(fault.reason), fault.message));
    unknown.chain(values).collect()
}
