//! What the cluster's admission refuses, or changes, of what operators write.

use serde_json::Value;
use simulated_apiserver::{Review, Status, Verb};

/// See the module.
#[derive(Default)]
pub struct Policy {
    refuse_pods: bool,
    refuse_updates_of_pods: bool,
    refuse_deletions_of_pods: bool,
    refuse_status: Option<&'static str>,
    alter_pods: Option<Value>,
}

impl Policy {
    /// No pod may be created.
    pub fn refuse_pods(&mut self) {
        self.refuse_pods = true;
    }

    /// No operator may change a pod.
    pub fn refuse_updates_of_pods(&mut self) {
        self.refuse_updates_of_pods = true;
    }

    /// No operator may delete a pod.
    pub fn refuse_deletions_of_pods(&mut self) {
        self.refuse_deletions_of_pods = true;
    }

    /// No status with that phase may be written.
    pub fn refuse_status(&mut self, phase: &'static str) {
        self.refuse_status = Some(phase);
    }

    /// New pods are changed so.
    pub fn alter_pods(&mut self, change: Value) {
        self.alter_pods = Some(change);
    }

    /// The end of all that.
    pub fn allow_everything(&mut self) {
        *self = Self::default();
    }

    /// Judges a write of an operator.
    pub fn review(&self, review: &mut Review<'_>) -> Result<(), Status> {
        if !review.user.starts_with("operator") {
            return Ok(());
        }
        let phase = review.object["status"]["phase"].as_str();
        let is_refused = match (review.verb, review.resource) {
            (Verb::Create, "pods") => self.refuse_pods,
            (Verb::Update, "pods") => self.refuse_updates_of_pods,
            (Verb::Delete, "pods") => self.refuse_deletions_of_pods,
            (Verb::Update, "ats/status") => {
                self.refuse_status.is_some() && self.refuse_status == phase
            }
            _ => false,
        };
        if is_refused {
            return Err(Status::new(
                422,
                "Invalid",
                "a policy of the cluster does not allow this",
            ));
        }
        if let Some(change) = self.alter_pods.as_ref()
            && (review.verb, review.resource) == (Verb::Create, "pods")
        {
            json_patch::merge(review.object, change);
        }
        Ok(())
    }
}
