//! The fields that nodes and pods have in common, as they are watched.
//!
//! The watched structs are lenient (an absent field is empty) and name only the fields that are
//! used.

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::{Deserialize, Serialize};

use wall_clock_controller::reconcile::raw;

/// The fields of a node's or pod's status that are used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchedStatus {
    /// Of a pod: Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
    /// Of a pod: why it is in that phase, such as Evicted.
    pub reason: String,
    /// Of a pod: more about that reason.
    pub message: String,
    /// Of a pod: when its kubelet took it up.
    pub start_time: Option<String>,
    /// Its conditions.
    pub conditions: Vec<WatchedCondition>,
    /// Of a pod: its ordinary containers.
    pub container_statuses: Vec<WatchedContainer>,
    /// Of a pod: its init containers.
    pub init_container_statuses: Vec<WatchedContainer>,
}

impl WatchedStatus {
    /// The condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&WatchedCondition> {
        self.conditions.iter().find(|c| c.type_ == type_)
    }

    /// Whether it is Ready, and since when that is so or not: since it was created, if the condition does not say.
    pub fn ready(&self, created: DateTime<Utc>) -> (bool, DateTime<Utc>) {
        let ready = self.condition("Ready");
        let changed = ready.and_then(|condition| condition.last_transition_time);
        let is_ready = ready.is_some_and(|condition| condition.status == "True");
        (is_ready, changed.unwrap_or(created))
    }
}

/// A condition of a node or pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchedCondition {
    /// Such as Ready.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// CamelCase: why the status is that.
    pub reason: String,
    /// More about that reason.
    pub message: String,
    /// When the status last changed.
    #[serde(deserialize_with = "raw::time")]
    pub last_transition_time: Option<DateTime<Utc>>,
}

/// The state of one container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchedContainer {
    /// The container's name.
    pub name: String,
    /// How often the kubelet restarted it.
    pub restart_count: i32,
    /// What it does now.
    pub state: WatchedState,
    /// How it ended before its last restart.
    pub last_state: WatchedState,
}

/// The state of a container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchedState {
    /// It waits, and for what.
    pub waiting: Option<WatchedReason>,
    /// It runs. Nothing of that is read.
    pub running: Option<WatchedReason>,
    /// It has ended, and how.
    pub terminated: Option<WatchedReason>,
}

/// Why a container waits or has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchedReason {
    /// CamelCase, such as `CrashLoopBackOff`.
    pub reason: String,
    /// More about that, or the termination message.
    pub message: String,
    /// With which code it ended.
    pub exit_code: i32,
    /// The signal that ended it, if the runtime reports it.
    pub signal: Option<i32>,
    /// When it ended.
    #[serde(deserialize_with = "raw::time")]
    pub finished_at: Option<DateTime<Utc>>,
}

/// The owner reference of the controller, of which an object has at most one.
pub fn controller(references: Option<&[OwnerReference]>) -> Option<&OwnerReference> {
    references?.iter().find(|r| r.controller == Some(true))
}

/// Converts a time of the API, which is cut to the second.
pub fn utc(time: Option<&Time>) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(time?.0.as_second(), 0)
}
