//! The types of the kind, and the CRD generated from them. Rust clients may use the types (docs/clients.md).

// Each printer column is an attribute of the same name, which clippy takes for duplicates.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use my_operator_kind::schema;
use wall_clock_controller::reconcile::condition::Condition;
use wall_clock_controller::reconcile::raw;

/// Which pods are counted, and how many there should be.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "demo.mark8s.io",
    version = "v1",
    kind = "Count",
    plural = "counts",
    shortname = "count",
    namespaced,
    status = "CountStatus",
    doc = "A Count asserts that exactly so many ready pods of an application exist in its namespace; its status says whether it is so.",
    printcolumn(
        name = "APP",
        type_ = "string",
        json_path = ".spec.name",
        description = "The value of the label app or app.kubernetes.io/name of the pods"
    ),
    printcolumn(
        name = "COUNT",
        type_ = "integer",
        json_path = ".spec.count",
        description = "How many ready pods there should be"
    ),
    printcolumn(
        name = "OBSERVED",
        type_ = "integer",
        json_path = ".status.observed",
        description = "How many ready pods there are"
    ),
    printcolumn(
        name = "HEALTHY",
        type_ = "boolean",
        json_path = ".status.healthy",
        description = "Whether there are exactly as many as there should be"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CountSpec {
    /// Label value of the pods that are counted: those with it in the label app or app.kubernetes.io/name, or both.
    /// Required.
    pub name: Option<String>,

    /// How many of them should be ready, no more and no fewer, 0 to 2147483647. Ready are those that run, have the
    /// condition Ready, and are not being deleted. Required.
    pub count: Option<i64>,
}

/// What the operator saw last.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CountStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,

    /// How many are ready, a second late. Absent while the spec is invalid.
    pub observed: Option<i64>,

    /// Whether exactly spec.count are ready. False while the spec is invalid.
    pub healthy: Option<bool>,

    /// Accepted: the spec is valid. Healthy: exactly spec.count pods are ready; else the reason is TooFewPods,
    /// TooManyPods or Invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A Count as stored.
pub type CountObject = raw::Object<Count>;

/// The CRD. Its schema has only the types: a rule in it would hide the webhook's complete list of errors.
pub fn crd() -> CustomResourceDefinition {
    schema::finish(Count::crd())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_crd_has_its_names_and_columns() {
        let crd = crd();
        assert_eq!(crd.metadata.name.as_deref(), Some("counts.demo.mark8s.io"));
        assert_eq!(crd.spec.names.short_names, Some(vec!["count".to_owned()]));
        assert_eq!(crd.spec.scope, "Namespaced");
        let version = &crd.spec.versions[0];
        assert!(version.subresources.as_ref().unwrap().status.is_some());
        let columns = version.additional_printer_columns.iter().flatten();
        let columns: Vec<_> = columns.map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["APP", "COUNT", "OBSERVED", "HEALTHY", "AGE"]);
    }

    #[test]
    fn any_stored_object_can_be_read() {
        for spec in ["null", "7", "[]", r#"{"count": {"a": 1}}"#] {
            let text = format!(r#"{{"metadata": {{"name": "x"}}, "spec": {spec}, "status": 1}}"#);
            serde_json::from_str::<CountObject>(&text).unwrap();
        }
    }
}
