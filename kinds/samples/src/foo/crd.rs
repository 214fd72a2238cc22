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

/// Groups below k8s.io are the Kubernetes project's own: the API server accepts a CRD of such a
/// group only with this annotation, the address of its approval or a text that begins with
/// "unapproved".
const APPROVAL: &str = "api-approved.kubernetes.io";
/// This kind has no approval: the example of Kubernetes says the same of itself.
const UNAPPROVED: &str = "unapproved, experimental-only: this is the kind of kubernetes/sample-controller, for trying out";

/// Which Deployment is to be there, and how large.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    plural = "foos",
    namespaced,
    status = "FooStatus",
    doc = "A Foo keeps one Deployment of nginx, of the name and the size that it says. It is the example of Kubernetes' own sample-controller.",
    printcolumn(
        name = "DEPLOYMENT",
        type_ = "string",
        json_path = ".spec.deploymentName",
        description = "The name of the Deployment"
    ),
    printcolumn(
        name = "REPLICAS",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "How many pods the Deployment is to have"
    ),
    printcolumn(
        name = "AVAILABLE",
        type_ = "integer",
        json_path = ".status.availableReplicas",
        description = "How many of its pods are available"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "STATE",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Degraded\")].reason",
        priority = 1,
        description = "AsDesired, or why the Deployment is not as the spec says"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// Name of the Deployment, a DNS label of at most 63 characters. Required. If it changes, the old Deployment is
    /// deleted once the new one can be created; a Deployment that is not this Foo's is left alone.
    pub deployment_name: Option<String>,

    /// Pods of the Deployment, 1 to 10. Default: 1.
    pub replicas: Option<i32>,
}

/// What the operator saw last.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,

    /// Available pods of the Deployment, 0 without one.
    pub available_replicas: Option<i32>,

    /// Accepted: the spec is valid. Available: the Deployment has all its pods, and they are available. Degraded:
    /// something keeps the Deployment from being as the spec says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The CRD, marked as unapproved.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = schema::finish(Foo::crd());
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert(APPROVAL.to_owned(), UNAPPROVED.to_owned());
    crd
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_crd_says_of_itself_that_it_is_not_approved() {
        let annotations = crd().metadata.annotations.unwrap();
        // The annotation that the API server requires.
        assert!(annotations[APPROVAL].starts_with("unapproved"));
    }

    #[test]
    fn the_crd_has_the_names_of_the_original_and_bounds_nothing() {
        let crd = serde_json::to_value(crd()).unwrap();
        assert_eq!(crd["metadata"]["name"], "foos.samplecontroller.k8s.io");
        assert_eq!(crd["spec"]["scope"], "Namespaced");
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["name"], "v1alpha1");
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        let names: Vec<_> = columns
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["DEPLOYMENT", "REPLICAS", "AVAILABLE", "AGE", "STATE"]
        );
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert_eq!(spec["required"], Value::Null);
        for field in ["deploymentName", "replicas"] {
            for bound in ["minimum", "maximum", "pattern", "maxLength"] {
                assert_eq!(spec["properties"][field][bound], Value::Null, "{field}");
            }
        }
    }

    #[test]
    fn the_status_is_written_as_documented() {
        let status = FooStatus {
            observed_generation: Some(2),
            available_replicas: Some(0),
            conditions: Vec::new(),
        };
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            json!({"observedGeneration": 2, "availableReplicas": 0})
        );
    }
}
