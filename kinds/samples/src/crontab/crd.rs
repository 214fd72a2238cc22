//! The types of `CronTab`, and the CRD made from them. Rust clients may use the types (docs/clients.md).
//!
//! The schema bounds one field, `spec.replicas`: `kubectl scale` writes it past every webhook. All
//! other bounds are the webhook's to word.

// Each printer column is an attribute of the same name; clippy takes their fields for one list.
#![allow(clippy::duplicated_attributes)]

use chrono::{DateTime, Utc};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use my_operator_kind::schema;
use wall_clock_controller::reconcile::condition::Condition;

/// What runs, how often, and in how many pods.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "stable.example.com",
    version = "v1",
    kind = "CronTab",
    plural = "crontabs",
    shortname = "ct",
    category = "all",
    namespaced,
    status = "CronTabStatus",
    doc = "A CronTab runs an image again and again by a schedule, through a CronJob of the same name; its status says when it runs next.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas"
    ),
    printcolumn(
        name = "SPEC",
        type_ = "string",
        json_path = ".spec.cronSpec",
        description = "The schedule"
    ),
    printcolumn(
        name = "REPLICAS",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "How many pods each run has"
    ),
    // A date would be printed as the time since then, and `<invalid>` before it.
    printcolumn(
        name = "NEXT",
        type_ = "string",
        json_path = ".status.nextScheduleTime",
        description = "When it runs next, in UTC"
    ),
    printcolumn(
        name = "LAST",
        type_ = "string",
        json_path = ".status.lastScheduleTime",
        description = "For when it was started last, in UTC"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "ZONE",
        type_ = "string",
        json_path = ".spec.timeZone",
        priority = 1,
        description = "The time zone of the schedule"
    ),
    printcolumn(
        name = "SUSPEND",
        type_ = "boolean",
        json_path = ".spec.suspend",
        priority = 1,
        description = "Whether no run is started"
    ),
    printcolumn(
        name = "ACTIVE",
        type_ = "integer",
        json_path = ".status.active",
        priority = 1,
        description = "How many runs are going on"
    ),
    printcolumn(
        name = "IMAGE",
        type_ = "string",
        json_path = ".spec.image",
        priority = 1,
        description = "What is run"
    ),
    printcolumn(
        name = "STATE",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Degraded\")].reason",
        priority = 1,
        description = "AsDesired, or why the CronJob is not as it should be"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CronTabSpec {
    /// When to run: minute, hour, day of month, month and day of week, as in a CronJob, such as */30 9-17 * *
    /// mon-fri; @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually; or @every 1h30m. If both days
    /// are restricted, either will do. At most 1024 bytes, no time zone, no seconds, no days that never come.
    /// Default: 5 0 * * *.
    pub cron_spec: Option<String>,

    /// Image of the container, such as busybox:1.37. Required.
    pub image: Option<String>,

    /// Pods of each run, at a time and in all, 1 to 10; kubectl scale sets it too. A run that has begun keeps its
    /// number. Default: 1.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,

    /// Time zone of cronSpec, by its IANA name, such as Europe/Berlin. Default: Etc/UTC.
    pub time_zone: Option<String>,

    /// Whether no run is started; those that have begun go on. Default: false.
    pub suspend: Option<bool>,

    /// Program and arguments, as in any container: $(NAME) stands for an environment variable. At most 256 items of
    /// at most 32768 bytes each. Default: the image's.
    pub command: Option<Vec<String>>,
}

/// What is seen of the CronJob, and when it comes next.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronTabStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,

    /// Pods of the next run, as the CronJob says.
    pub replicas: Option<i32>,

    /// When the next run is due. Absent if none is.
    pub next_schedule_time: Option<DateTime<Utc>>,

    /// When the last run that was started was due.
    pub last_schedule_time: Option<DateTime<Utc>>,

    /// How many runs are going on.
    pub active: Option<i32>,

    /// Accepted: the spec is valid. Ready: the CronJob is as the spec says, and a next run is due. Degraded: the
    /// CronJob cannot be created or corrected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The CRD.
pub fn crd() -> CustomResourceDefinition {
    schema::finish(CronTab::crd())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_kubectl_scale_writes_has_its_bounds_in_the_schema_and_nothing_else_has() {
        let crd = serde_json::to_value(crd()).unwrap();
        let version = &crd["spec"]["versions"][0];
        let scale = &version["subresources"]["scale"];
        assert_eq!(scale["specReplicasPath"], ".spec.replicas");
        assert_eq!(scale["statusReplicasPath"], ".status.replicas");
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        for (name, field) in spec["properties"].as_object().unwrap() {
            let bounds = ["minimum", "maximum", "pattern", "maxLength"];
            let found: Vec<f64> = bounds.iter().filter_map(|b| field[b].as_f64()).collect();
            let expected: &[f64] = if name == "replicas" {
                &[1.0, 10.0]
            } else {
                &[]
            };
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn names_are_those_of_the_official_example() {
        let names = crd().spec.names;
        assert_eq!(names.plural, "crontabs");
        assert_eq!(names.short_names, Some(vec!["ct".to_owned()]));
        assert_eq!(names.categories, Some(vec!["all".to_owned()]));
    }
}
