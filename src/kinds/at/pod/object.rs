//! A pod as the watch delivers it: the fields that the operator reads, and nothing else.

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use my_operator_runtime::reconcile::raw;

/// A pod as it is watched: the fields that the operator reads.
#[derive(Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = Pod)]
pub(crate) struct PodObject {
    /// The fields of the object's metadata that are read.
    #[serde(deserialize_with = "raw::metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: RawSpec,
    #[serde(default)]
    pub(super) status: RawStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawSpec {
    pub(super) node_name: Option<String>,
    pub(super) restart_policy: Option<String>,
    pub(super) scheduling_gates: Option<Vec<RawGate>>,
    pub(super) containers: Option<Vec<RawContainer>>,
    pub(super) init_containers: Option<Vec<RawContainer>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RawGate {
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawContainer {
    pub(super) name: String,
    pub(super) restart_policy: Option<String>,
    pub(super) restart_policy_rules: Option<Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawStatus {
    pub(super) phase: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) start_time: Option<Instant>,
    pub(super) conditions: Option<Vec<RawCondition>>,
    pub(super) init_container_statuses: Option<Vec<RawContainerStatus>>,
    pub(super) container_statuses: Option<Vec<RawContainerStatus>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RawCondition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    #[serde(rename = "lastTransitionTime")]
    pub(super) since: Option<Instant>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RawContainerStatus {
    pub(super) name: String,
    pub(super) state: Option<RawState>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RawState {
    pub(super) waiting: Option<RawWaiting>,
    pub(super) running: Option<RawRunning>,
    pub(super) terminated: Option<RawTerminated>,
}

/// Nothing of it is read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RawRunning {}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RawWaiting {
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawTerminated {
    #[serde(default)]
    pub(super) exit_code: i32,
    pub(super) signal: Option<i32>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) finished_at: Option<Instant>,
}

/// A time in the status of a pod; `None` if it is malformed. The API server accepts
/// 9999-12-31T23:59:59-01:00 and returns it as a time of the year 10000, which no parser here
/// accepts: an error would block the watch of all other pods.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Instant(pub(super) Option<DateTime<Utc>>);

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let text = String::deserialize(reader)?;
        let time = DateTime::parse_from_rfc3339(&text).ok();
        // Times in the API are whole seconds.
        Ok(Self(time.and_then(|time| {
            DateTime::from_timestamp(time.timestamp(), 0)
        })))
    }
}
