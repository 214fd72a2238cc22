//! What a Deployment reports about itself, for the kinds whose child it is.

use serde::Deserialize;

use super::parent::Trouble;
use super::view::ChildView;

/// Reason of `Degraded`, and the Deployment controller's own reason of `Progressing`: no progress
/// within `progressDeadlineSeconds`.
pub(crate) const DEADLINE: &str = "ProgressDeadlineExceeded";
/// Reason of `Degraded`, and the Deployment's condition: the API server rejects its pods, for
/// example because of a quota.
pub(crate) const REFUSED: &str = "ReplicaFailure";

/// The fields of a Deployment that are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DeploymentView {
    pub(crate) generation: Option<i64>,
    pub(crate) status: DeploymentStatus,
}

/// The status of a Deployment. An absent number is 0, as in Kubernetes' own type.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DeploymentStatus {
    /// The generation that the status belongs to.
    pub(crate) observed_generation: Option<i64>,
    pub(crate) replicas: i32,
    /// Pods of the current template.
    pub(crate) updated_replicas: i32,
    /// Ready pods.
    pub(crate) ready_replicas: i32,
    /// Pods that have been ready for `minReadySeconds`.
    pub(crate) available_replicas: i32,
    pub(crate) conditions: Vec<Condition>,
}

/// A condition of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl DeploymentView {
    /// Decodes the status of this child.
    pub(crate) fn new(child: &ChildView) -> Self {
        Self {
            generation: child.generation,
            status: child.status(),
        }
    }

    /// The condition of that type.
    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|said| said.type_ == type_)
    }

    /// Whether the Deployment controller has observed the current spec.
    pub(crate) fn is_observed(&self) -> bool {
        self.status.observed_generation >= self.generation
    }

    /// The `Progressing` condition, if the deadline was exceeded.
    pub(crate) fn stuck(&self) -> Option<&Condition> {
        let said = self.condition("Progressing")?;
        (said.status == "False" && said.reason == DEADLINE).then_some(said)
    }

    /// Whether the Deployment is paused.
    pub(crate) fn is_paused(&self) -> bool {
        let said = self.condition("Progressing");
        said.is_some_and(|said| said.reason == "DeploymentPaused")
    }

    /// Why pods are missing although the Deployment is as desired.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let refused = self.condition(REFUSED).filter(|said| said.status == "True");
        let (reason, said) = match refused {
            Some(said) => (REFUSED, said),
            None => (DEADLINE, self.stuck()?),
        };
        Some(Trouble {
            reason,
            message: said.message.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn saying(conditions: &Value) -> DeploymentView {
        let status = json!({"observedGeneration": 1, "conditions": conditions});
        DeploymentView {
            generation: Some(1),
            status: serde_json::from_value(status).unwrap(),
        }
    }

    #[test]
    fn what_blocks_its_pods_is_reported_in_its_words() {
        let quota = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                "message": "exceeded quota: q"});
        let slow = json!({"type": "Progressing", "status": "False", "reason": DEADLINE,
                "message": "timed out progressing"});
        let well = json!([
            {"type": "Available", "status": "False", "message": "not yet"},
            {"type": "ReplicaFailure", "status": "False", "message": "was"},
            {"type": "Progressing", "status": "True", "message": "on its way"}]);
        for (conditions, expected) in [
            (json!([]), None),
            (json!([{}]), None),
            (well, None),
            (
                json!([slow, quota]),
                Some(("ReplicaFailure", "exceeded quota: q")),
            ),
            (json!([slow]), Some((DEADLINE, "timed out progressing"))),
        ] {
            let expected = expected.map(|(reason, message)| Trouble {
                reason,
                message: message.to_owned(),
            });
            assert_eq!(saying(&conditions).trouble(), expected, "{conditions}");
        }
    }

    #[test]
    fn whatever_it_says_can_be_read() {
        for status in [
            json!({}),
            json!({"conditions": [{}]}),
            json!({"replicas": i32::MAX, "other": [1]}),
        ] {
            let status: DeploymentStatus = serde_json::from_value(status).unwrap();
            let deployment = DeploymentView {
                generation: None,
                status,
            };
            assert!(deployment.is_observed() && deployment.trouble().is_none());
            assert_eq!(deployment.status.available_replicas, 0);
        }
    }
}
