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

/// What is to run, and with what input.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "k8s.io",
    version = "v1",
    kind = "FooBar",
    plural = "foobars",
    namespaced,
    status = "FooBarStatus",
    doc = "A FooBar runs a command once for every version of its spec, in a Job of its own; its status keeps the result.",
    // Groups of k8s.io are the Kubernetes project's own, and a CRD in one must say whether that
    // project approved it (KEP-1111).
    annotation(
        "api-approved.kubernetes.io",
        "unapproved, an example of custom controllers that is no part of Kubernetes"
    ),
    printcolumn(
        name = "PHASE",
        type_ = "string",
        json_path = ".status.phase",
        description = "Pending, Running, Succeeded or Failed"
    ),
    printcolumn(
        name = "JOB",
        type_ = "string",
        json_path = ".status.jobName",
        description = "The Job of the present generation"
    ),
    printcolumn(
        name = "EXIT",
        type_ = "integer",
        json_path = ".status.exitCode",
        description = "The exit code of the command"
    ),
    printcolumn(
        name = "COMMAND",
        type_ = "string",
        json_path = ".spec.command",
        priority = 1,
        description = "The command"
    ),
    printcolumn(
        name = "FOO",
        type_ = "string",
        json_path = ".spec.foo",
        priority = 1,
        description = "What the command gets as FOO"
    ),
    printcolumn(
        name = "BARZ",
        type_ = "string",
        json_path = ".spec.barz",
        priority = 1,
        description = "What the command gets as BARZ"
    ),
    printcolumn(
        name = "STATE",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Degraded\")].reason",
        priority = 1,
        description = "AsDesired, or why the Job is not as it should be"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FooBarSpec {
    /// Value of the environment variable FOO, exactly as written: no $(NAME) is expanded. At most 32768 bytes, no
    /// NUL. Default: empty.
    pub foo: Option<String>,

    /// Value of the environment variable BARZ, by the rules of foo. It is text: quote "false" and "1" in YAML.
    /// Default: empty.
    pub barz: Option<String>,

    /// The command, one argument of sh -c, exactly as written: Kubernetes expands no $(NAME) in it. At most 32768
    /// bytes, no NUL. Required.
    pub command: Option<String>,

    /// Image of the container; it must have sh, and work without root. Default: bash:5.3.
    pub image: Option<String>,
}

/// Where the run of the present generation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The command has not begun.
    Pending,
    /// The command runs.
    Running,
    /// The command ended with exit code 0.
    Succeeded,
    /// It ended in any other way, or its end was not seen.
    Failed,
}

impl Phase {
    /// Whether the run of this generation is over.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// What became of the command, as the operator saw it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooBarStatus {
    /// Where the run of this generation stands: Pending (not begun), Running, Succeeded (exit code
    /// 0) or Failed (any other end, also an end that was not seen).
    pub phase: Option<Phase>,

    /// The metadata.generation that this status is about. If it is behind the object's, the rest is of an earlier
    /// run.
    pub observed_generation: Option<i64>,

    /// Name of the Job: the object's, a hyphen, and the generation.
    pub job_name: Option<String>,

    /// UID of the one Job that may run this generation; no other is created for it.
    #[serde(rename = "jobUID")]
    pub job_uid: Option<String>,

    /// Exit code of the command, if its end was seen.
    pub exit_code: Option<i32>,

    /// Accepted: the spec is valid; if not, nothing runs, and phase, jobName and exitCode stay those of the run
    /// before. Complete: the command ended with exit code 0. Failed, only while True: it ended otherwise, or its end
    /// was not seen. Degraded: the Job cannot be created or run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The CRD. Nothing in it is required: the API server validates the schema before it calls
/// webhooks, so a rule here would hide the webhook's complete and better worded list.
pub fn crd() -> CustomResourceDefinition {
    schema::finish(FooBar::crd())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_protected_group_is_used_without_approval_and_says_so() {
        let annotations = crd().metadata.annotations.unwrap();
        let approved = &annotations["api-approved.kubernetes.io"];
        assert!(approved.starts_with("unapproved"), "{approved}");
    }

    #[test]
    fn the_columns_are_those_of_the_manual() {
        let crd = serde_json::to_value(crd()).unwrap();
        let version = &crd["spec"]["versions"][0];
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        let columns: Vec<(&str, &str, bool)> = columns
            .iter()
            .map(|c| {
                let wide = c["priority"] == 1;
                (
                    c["name"].as_str().unwrap(),
                    c["type"].as_str().unwrap(),
                    wide,
                )
            })
            .collect();
        let expected = [
            ("PHASE", "string", false),
            ("JOB", "string", false),
            ("EXIT", "integer", false),
            ("COMMAND", "string", true),
            ("FOO", "string", true),
            ("BARZ", "string", true),
            ("STATE", "string", true),
            ("AGE", "date", false),
        ];
        assert_eq!(columns, expected);
        assert!(version["subresources"]["status"].is_object());
        assert_eq!(crd["metadata"]["name"], "foobars.k8s.io");
    }

    #[test]
    fn the_status_is_written_as_documented() {
        let status = FooBarStatus {
            phase: Some(Phase::Succeeded),
            job_uid: Some("u".to_owned()),
            exit_code: Some(0),
            ..FooBarStatus::default()
        };
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            serde_json::json!({"phase": "Succeeded", "jobUID": "u", "exitCode": 0})
        );
    }
}
