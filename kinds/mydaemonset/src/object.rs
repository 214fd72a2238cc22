//! `MyDaemonSet` objects: what the cache keeps of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Namespace;

use super::admission::{MAX_HISTORY, MyDaemonSetRules};
use super::crd::{MyDaemonSetSpec, RawMyDaemonSet};
use super::decide::canary::Canary;
use super::decide::domains::Domains;
use super::decide::freeze::Freeze;
use super::decide::placement::Placement;
use super::decide::strategy::Strategy;
use super::decide::window::{self, Window};
use super::names::{
    APPROVE_ANNOTATION, CHANGE_CAUSE_ANNOTATION, FREEZE_ANNOTATION, MIGRATION_ANNOTATION,
    RESUME_ANNOTATION,
};
use super::revision::{self, Content, RevisionView};
use admission_rules::faults::join;
use admission_rules::rules::decode_and_validate;
use admission_rules::text::cut;
use wall_clock_controller::reconcile::raw::{self, Raw};

/// The longest text about an invalid spec, in characters: with three dots after it, that of a condition.
const MAX_REASON_LEN: usize = 1021;
/// The longest part of the annotation of a migration or a freeze that a condition repeats, in characters.
const MAX_NOTE_LEN: usize = 200;
/// The longest cause of a change that a revision keeps, in characters.
const MAX_CAUSE_LEN: usize = 200;

/// What the cache holds of a `MyDaemonSet`.
#[derive(Debug, PartialEq)]
pub(crate) struct ObjectView {
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
    pub(crate) version: String,
    pub(crate) deleting: bool,
    /// The value of the annotation that resumes a stopped roll-out.
    pub(crate) resume: Option<String>,
    /// The value of the annotation that ends the canary of a revision.
    pub(crate) approve: Option<String>,
    /// The value of the annotation by which pods change hands.
    pub(crate) migration: Option<Box<str>>,
    /// The value of the annotation that freezes the object, if it does.
    pub(crate) freeze: Option<Box<str>>,
    /// The value of the annotation that says why the spec was changed.
    pub(crate) cause: Option<Box<str>>,
    /// The spec, decoded and validated once for each version of the object, or why it is invalid.
    pub(crate) parsed: Result<ParsedSpec, Box<str>>,
    /// As text: of a list of conditions that many clients write to, the tree takes a multiple of the memory.
    pub(crate) status: Raw,
}

/// A valid spec in the forms in which it is used.
#[derive(Debug, PartialEq)]
pub(crate) struct ParsedSpec {
    pub(crate) strategy: Strategy,
    pub(crate) placement: Arc<Placement>,
    /// How many unused revisions are kept.
    pub(crate) history: usize,
    /// The content of the revision, as text: a value tree takes many times the memory, and is
    /// needed only while a pod is built. `None` on the way back to a revision: it is stored.
    pub(crate) canonical: Option<Arc<str>>,
    pub(crate) hash: String,
    pub(crate) canary: Option<Canary>,
    pub(crate) windows: Vec<Window>,
    pub(crate) domains: Option<Arc<Domains>>,
}

impl ObjectView {
    /// Whether the same is to be done for both.
    pub(crate) fn asks_for_the_same_as(&self, other: &Self) -> bool {
        let asks = |it: &Self| (it.generation, it.deleting);
        asks(self) == asks(other)
            && self.uid == other.uid
            && self.resume == other.resume
            && self.approve == other.approve
            && self.migration == other.migration
            && self.freeze == other.freeze
    }

    pub(crate) fn from_object(object: RawMyDaemonSet, now: DateTime<Utc>) -> Self {
        let metadata = object.metadata;
        let name = metadata.name.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let revision = |annotation: &str| {
            let hash: Option<&String> = annotations.get(annotation);
            hash.filter(|hash| hash.len() == revision::HASH_LEN)
                .cloned()
        };
        let parsed =
            decode_and_validate::<MyDaemonSetRules>(&name, &annotations, object.spec.text(), now);
        Self {
            uid: metadata.uid.unwrap_or_default(),
            generation: metadata.generation,
            version: metadata.resource_version.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            resume: revision(RESUME_ANNOTATION),
            approve: revision(APPROVE_ANNOTATION),
            migration: annotations
                .get(MIGRATION_ANNOTATION)
                .map(|value| cut(value, MAX_NOTE_LEN).into()),
            freeze: freeze(&annotations),
            cause: annotations
                .get(CHANGE_CAUSE_ANNOTATION)
                .map(|value| cut(value, MAX_CAUSE_LEN).into()),
            parsed: parsed
                .map(|spec| ParsedSpec::new(&spec))
                .map_err(|faults| cut(&join(&faults), MAX_REASON_LEN).into()),
            status: object.status,
        }
    }
}

impl ParsedSpec {
    pub(crate) fn new(spec: &MyDaemonSetSpec) -> Self {
        let canonical = Content::from_spec(spec).canonical();
        Self {
            strategy: Strategy::from_spec(spec),
            placement: Arc::new(Placement::from_template(spec.template.as_ref())),
            history: history(spec),
            hash: revision::hash(&canonical),
            canonical: Some(canonical.into()),
            canary: Canary::from_spec(spec),
            windows: window::from_spec(spec),
            domains: Domains::from_spec(spec).map(Arc::new),
        }
    }

    /// What is to be done in place of the spec to go back to that revision.
    pub(crate) fn back_to(&self, revision: &RevisionView) -> Self {
        Self {
            strategy: self.strategy.for_the_way_back(),
            placement: revision.placement.clone(),
            history: self.history,
            hash: revision.hash.clone(),
            canonical: None,
            // What failed is replaced at once, by what has been on the nodes before.
            canary: None,
            windows: Vec::new(),
            domains: None,
        }
    }
}

/// A namespace as stored.
pub(crate) type RawNamespace = raw::Object<Namespace>;

/// The value of the annotation that freezes a namespace, if it does.
pub(crate) fn frozen_namespace(namespace: RawNamespace) -> Option<Box<str>> {
    freeze(&namespace.metadata.annotations?)
}

/// The value of the annotation that freezes, if it does.
fn freeze(annotations: &BTreeMap<String, String>) -> Option<Box<str>> {
    let value = annotations.get(FREEZE_ANNOTATION)?;
    Freeze::parse(value)?;
    Some(cut(value, MAX_NOTE_LEN).into())
}

/// How many unused revisions are kept. An object from before the limit had a maximum may ask for more.
fn history(spec: &MyDaemonSetSpec) -> usize {
    let limit = spec.revision_history_limit.map_or(10, i64::from);
    usize::try_from(limit.clamp(1, MAX_HISTORY)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use my_operator_retained as retained;

    #[test]
    fn a_cached_object_takes_little_more_memory_than_its_text() {
        let object = json!({
            "metadata": {"name": "x", "uid": "u", "resourceVersion": "1", "annotations": {"a": "b"}},
            "spec": {"image": "r.io/a:1", "template": {"spec": {
                "nodeSelector": {"a": "b"},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}]}]}}},
                "tolerations": [{"operator": "Exists"}]}}},
            "status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "r", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}], "failedNodes": [{"node": "n", "reason": "r"}]},
        });
        let now = DateTime::from_timestamp(1_000, 0).unwrap();
        retained::check(&object, |object| ObjectView::from_object(object, now));
    }
}
