//! What the cluster's admission refuses, or changes, of what operators write.

use serde_json::Value;
use simulated_apiserver::{Review, Status, Verb};

use super::changes::is_operator;

/// Looks at a write of an operator: refuses it, changes it, or lets it pass.
type Rule = Box<dyn Fn(&mut Review<'_>) -> Result<(), Status> + Send>;

/// See the module.
#[derive(Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

impl Policy {
    /// One more rule.
    pub fn rule(&mut self, rule: impl Fn(&mut Review<'_>) -> Result<(), Status> + Send + 'static) {
        self.rules.push(Box::new(rule));
    }

    /// Refuses what fits.
    pub fn refuse(&mut self, fits: impl Fn(&Review<'_>) -> bool + Send + 'static) {
        self.rule(move |review| {
            if !fits(review) {
                return Ok(());
            }
            let message = "a policy of the cluster does not allow this";
            Err(Status::new(422, "Invalid", message))
        });
    }

    /// No pod may be created.
    pub fn refuse_pods(&mut self) {
        self.refuse(|review| (review.verb, review.resource) == (Verb::Create, "pods"));
    }

    /// No revision may be stored.
    pub fn refuse_revisions(&mut self) {
        self.refuse(|review| review.resource == "controllerrevisions");
    }

    /// No operator may change a pod.
    pub fn refuse_updates_of_pods(&mut self) {
        self.refuse(|review| (review.verb, review.resource) == (Verb::Update, "pods"));
    }

    /// No operator may delete a pod.
    pub fn refuse_deletions_of_pods(&mut self) {
        self.refuse(|review| (review.verb, review.resource) == (Verb::Delete, "pods"));
    }

    /// New pods are changed so.
    pub fn alter_pods(&mut self, change: Value) {
        self.rule(move |review| {
            if (review.verb, review.resource) == (Verb::Create, "pods") {
                json_patch::merge(review.object, &change);
            }
            Ok(())
        });
    }

    /// The end of all that.
    pub fn allow_everything(&mut self) {
        self.rules.clear();
    }

    /// Judges a write of an operator.
    pub fn review(&self, review: &mut Review<'_>) -> Result<(), Status> {
        if !is_operator(review.user) {
            return Ok(());
        }
        self.rules.iter().try_for_each(|rule| rule(review))
    }
}
