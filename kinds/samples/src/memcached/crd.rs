//! The types of `Memcached`, and the CRD generated from them. Rust clients may use the types (docs/clients.md).
//!
//! The schema bounds one field, `spec.size`, because `kubectl scale` bypasses the webhooks. The
//! webhook words all other bounds.

// Each printer column is an attribute of the same name, which clippy takes for duplicates.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use my_operator_kind::schema;
use wall_clock_controller::reconcile::condition::Condition;

/// How many memcached servers to run, and what they run.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cache.example.com",
    version = "v1alpha1",
    kind = "Memcached",
    plural = "memcacheds",
    namespaced,
    status = "MemcachedStatus",
    doc = "Memcached servers: a Deployment of the same name that is kept as the spec says.",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "SIZE",
        type_ = "integer",
        json_path = ".spec.size",
        description = "How many servers to run"
    ),
    printcolumn(
        name = "READY",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "How many servers are ready"
    ),
    printcolumn(
        name = "AVAILABLE",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status",
        description = "Whether enough servers are available"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "DEGRADED",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Degraded\")].reason",
        description = "What is in the way, if anything is",
        priority = 1
    ),
    printcolumn(
        name = "IMAGE",
        type_ = "string",
        json_path = ".spec.image",
        description = "The image that the servers run",
        priority = 1
    ),
    printcolumn(
        name = "MEMORY",
        type_ = "integer",
        json_path = ".spec.memory",
        description = "How much memory a server has for its items, in MiB, where it was given",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedSpec {
    /// How many servers to run, 0 to 2147483647. Required. kubectl scale sets it too.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub size: Option<i32>,

    /// Image of the servers; it must have memcached, which runs as user 1001. Default: memcached:1.4.36-alpine.
    pub image: Option<String>,

    /// MiB for the items of each server, 2 to 1048576. Default: 64; with the default image no limit, as it reads
    /// -m=64.
    pub memory: Option<i64>,
}

/// What the operator saw last.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,

    /// Pods of the Deployment, those of an earlier spec included.
    pub replicas: Option<i32>,

    /// How many of them are ready.
    pub ready_replicas: Option<i32>,

    /// How many of them are available.
    pub available_replicas: Option<i32>,

    /// How many of them are of the present spec.
    pub updated_replicas: Option<i32>,

    /// Labels of the pods as a selector, for a HorizontalPodAutoscaler.
    pub selector: Option<String>,

    /// Names of the pods, sorted, without those that have ended or are being deleted; the first 1000.
    pub nodes: Option<Vec<String>>,

    /// Accepted: the spec is valid. Available: as many servers are available as the Deployment promises. Progressing:
    /// a change has not reached every server. Degraded: the Deployment's name is taken, the API server refuses it or
    /// its pods, or a change does not progress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The CRD.
pub fn crd() -> CustomResourceDefinition {
    schema::finish(Memcached::crd())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn version() -> Value {
        let crd = serde_json::to_value(crd()).unwrap();
        crd["spec"]["versions"][0].clone()
    }

    #[test]
    fn the_schema_bounds_what_scale_writes_and_nothing_else() {
        let spec = version()["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
        assert!(spec["required"].is_null(), "{spec}");
        let size = &spec["properties"]["size"];
        assert_eq!(
            (size["minimum"].as_f64(), size["maximum"].as_f64()),
            (Some(0.0), Some(f64::from(i32::MAX)))
        );
        for field in ["image", "memory"] {
            for bound in [
                "minimum",
                "maximum",
                "pattern",
                "minLength",
                "maxLength",
                "enum",
            ] {
                assert!(
                    spec["properties"][field].get(bound).is_none(),
                    "{field}: {spec}"
                );
            }
        }
    }

    #[test]
    fn it_can_be_scaled() {
        assert_eq!(
            version()["subresources"],
            json!({"status": {}, "scale": {
                "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector"}})
        );
    }

    #[test]
    fn the_columns_are_those_of_the_manual() {
        let version = version();
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        let names: Vec<&str> = columns
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        let expected = [
            "SIZE",
            "READY",
            "AVAILABLE",
            "AGE",
            "DEGRADED",
            "IMAGE",
            "MEMORY",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_zero_is_written_and_what_is_not_known_is_not() {
        let status = MemcachedStatus {
            ready_replicas: Some(0),
            nodes: Some(vec![]),
            ..MemcachedStatus::default()
        };
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            json!({"readyReplicas": 0, "nodes": []})
        );
    }
}
