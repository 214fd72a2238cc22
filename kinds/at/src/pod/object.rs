//! A pod as the watch delivers it: the fields that the operator reads, and nothing else.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use my_operator_kind::watched::WatchedStatus;
use wall_clock_controller::reconcile::raw;

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
    pub(super) status: WatchedStatus,
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
