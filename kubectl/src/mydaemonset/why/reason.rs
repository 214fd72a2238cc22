//! A cause with what is known of it, and what a person can do about it.

use chrono::{DateTime, Utc};
use my_operator_mydaemonset::cause::Cause;
use serde::Serialize;

use crate::mydaemonset::object::Object;

/// A message of the cluster is cut after so many characters.
const MAX_MESSAGE: usize = 1024;
/// What a person can do about each cause, one on each line. `NAMESPACE`, `NAME`, `NODE` and `POD` stand for those concerned.
pub(super) const ADVICE: &str = include_str!("advice.txt");

/// Why a node is as it is, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reason {
    pub(super) cause: Cause,
    /// Since when, if a condition says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<DateTime<Utc>>,
    /// The pod that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<String>,
    /// The words of the kubelet, the API server or the operator; empty if there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

impl Reason {
    pub(super) fn new(cause: Cause, message: &str, since: Option<DateTime<Utc>>) -> Self {
        Self {
            cause,
            since,
            pod: None,
            message: message.chars().take(MAX_MESSAGE).collect(),
        }
    }

    /// What a person can do about it, in a sentence.
    pub(super) fn advice(&self, object: &Object, node: &str) -> String {
        let cause = format!("{:?}: ", self.cause);
        let mut lines = ADVICE.lines();
        let advice = lines.find_map(|line| line.strip_prefix(&cause));
        // No name has upper case letters, so none of them is taken for another.
        advice
            .unwrap_or_default()
            .replace("THAT-NODE", "<node>")
            .replace("NAMESPACE", &object.namespace)
            .replace("NAME", &object.name)
            .replace("NODE", node)
            .replace("POD", self.pod.as_deref().unwrap_or("<pod>"))
    }
}
