//! A `MyDaemonSet` as this program reads it, and the names by which a user refers to one.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::core::ApiResource;
use my_operator_mydaemonset::crd::{
    MyDaemonSet, MyDaemonSetSpec, MyDaemonSetStatus, RollingUpdate,
};
use my_operator_mydaemonset::decide::strategy::Strategy;
use my_operator_mydaemonset::observe::node::NodeView;
use my_operator_mydaemonset::observe::pod::PodView;
use my_operator_mydaemonset::revision::{Content, RevisionView, hash};
use my_operator_mydaemonset::status::{
    AVAILABLE, DEGRADED, FROZEN, INVALID, PAUSED, PROGRESSING, UNAVAILABLE, is_auto_paused,
    is_on_canaries, is_undone, needs_no_canary, progress_of, resumable,
};
use my_operator_mydaemonset::why::Seen;
use serde::Deserialize as _;
use wall_clock_controller::reconcile::condition::{self, ACCEPTED, Condition};

use crate::connection::Kind;

/// The resource in kubectl's messages about an error, such as `mydaemonsets.apps.zhongmingmao.io "web" is not paused`.
pub(crate) const RESOURCE: &str = "mydaemonsets.apps.zhongmingmao.io";

/// The state of an object whose present spec the operator has not seen.
pub(crate) const UNOBSERVED: &str = "Unobserved";

/// How the kind is spelled before a name.
pub(crate) const KIND: Kind = Kind {
    words: &[
        "mydaemonset",
        "mydaemonsets",
        "mds",
        "mydaemonset.apps.zhongmingmao.io",
        "mydaemonsets.apps.zhongmingmao.io",
        "mydaemonsets.v1beta1.apps.zhongmingmao.io",
    ],
    mistake: "is not a mydaemonset: use kubectl rollout for other kinds",
};

/// The kind, as requests name it.
pub(crate) fn resource() -> ApiResource {
    ApiResource::erase::<MyDaemonSet>(&())
}

/// The name in an argument: `NAME` or `mydaemonset/NAME`.
pub(crate) fn parse_name(argument: &str) -> Result<String, String> {
    KIND.name(argument).map(str::to_owned)
}

/// A `MyDaemonSet` with its spec and status decoded.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    /// `metadata.resourceVersion`.
    pub(crate) version: String,
    pub(crate) generation: i64,
    pub(crate) spec: MyDaemonSetSpec,
    pub(crate) status: MyDaemonSetStatus,
    /// The object as the API server returned it.
    pub(crate) raw: DynamicObject,
}

impl Object {
    /// Decodes an object. A status that cannot be decoded counts as empty, as it does for the operator.
    pub(crate) fn decode(raw: DynamicObject) -> Result<Self, String> {
        let metadata = raw.metadata.clone();
        let name = metadata.name.unwrap_or_default();
        let spec = raw.data.get("spec").filter(|spec| !spec.is_null());
        let spec = spec.map(MyDaemonSetSpec::deserialize).transpose();
        let spec = spec.map_err(|error| format!("{RESOURCE} {name:?} cannot be read: {error}"))?;
        let status = raw.data.get("status").map(MyDaemonSetStatus::deserialize);
        Ok(Self {
            name,
            namespace: metadata.namespace.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            spec: spec.unwrap_or_default(),
            status: status.and_then(Result::ok).unwrap_or_default(),
            raw,
        })
    }

    /// The condition of that type.
    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        condition::get(&self.status.conditions, type_)
    }

    /// The same, if it is so.
    pub(crate) fn holds(&self, type_: &str) -> Option<&Condition> {
        self.condition(type_).filter(|c| c.status == "True")
    }

    /// The reason of the condition `Progressing`; empty if there is none.
    pub(crate) fn progress(&self) -> &str {
        progress_of(&self.status)
    }

    /// Whether the status is about the present spec.
    pub(crate) fn is_observed(&self) -> bool {
        self.status.observed_generation.unwrap_or_default() >= self.generation
    }

    /// The state in a word, as the operator has it.
    pub(crate) fn state(&self) -> &str {
        let state = self.status.state.as_deref();
        state.filter(|_| self.is_observed()).unwrap_or(UNOBSERVED)
    }

    /// Why it is in that state: the message of the condition that the state is about.
    pub(crate) fn reason(&self) -> &str {
        if !self.is_observed() {
            return "the operator has not seen this spec yet";
        }
        let type_ = match self.state() {
            INVALID => ACCEPTED,
            DEGRADED => DEGRADED,
            UNAVAILABLE => AVAILABLE,
            _ => PROGRESSING,
        };
        self.message(type_)
    }

    /// The message of the condition of that type; empty if there is none.
    pub(crate) fn message(&self, type_: &str) -> &str {
        self.condition(type_).map_or("", |c| c.message.as_str())
    }

    /// The image, or that of the template's own container `app`.
    pub(crate) fn image(&self) -> String {
        let content = Content::from_spec(&self.spec);
        content.container_image().unwrap_or_default().to_owned()
    }

    /// The revision of the present spec.
    pub(crate) fn revision(&self) -> String {
        hash(&Content::from_spec(&self.spec).canonical())
    }

    /// Whether the roll-out of the present spec stopped by itself. A status about an earlier spec does not count.
    pub(crate) fn is_auto_paused(&self) -> bool {
        is_auto_paused(&self.status, &self.revision())
    }

    /// Whether the present spec has not gone beyond its canaries.
    pub(crate) fn is_on_canaries(&self) -> bool {
        let is_this = self.status.update_revision.as_deref() == Some(&self.revision());
        is_this && is_on_canaries(&self.status)
    }

    /// Whether the present spec has a canary that it has not passed, and a pause or a freeze hides how far that is.
    pub(crate) fn holds_its_canaries(&self) -> bool {
        let revision = self.revision();
        let status = &self.status;
        let is_it = |hash: &Option<String>| hash.as_ref() == Some(&revision);
        let is_held = [PAUSED, FROZEN].contains(&self.progress());
        let is_over = needs_no_canary(status, &revision)
            || is_it(&status.current_revision)
            || self.is_undone();
        let has_canary = self.rolling_update().is_some_and(|it| it.canary.is_some());
        is_held && has_canary && is_it(&status.update_revision) && !is_over
    }

    fn rolling_update(&self) -> Option<&RollingUpdate> {
        self.spec.update_strategy.as_ref()?.rolling_update.as_ref()
    }

    /// The label whose values are domains, one of which is rolled out to after the other.
    pub(crate) fn topology_key(&self) -> Option<&str> {
        self.rolling_update()?.topology_key.as_deref()
    }

    /// The object with what was read of its cluster.
    pub(crate) fn seen(
        &self,
        nodes: Option<Vec<Arc<NodeView>>>,
        pods: Vec<Arc<PodView>>,
        revisions: Vec<Arc<RevisionView>>,
    ) -> Seen<'_> {
        Seen {
            metadata: &self.raw.metadata,
            spec: &self.spec,
            status: &self.status,
            nodes,
            pods,
            revisions,
        }
    }

    /// Whether the revision of the present spec failed, and the pods went back from it by themselves, or do so.
    pub(crate) fn is_undone(&self) -> bool {
        is_undone(&self.status, &self.revision())
    }

    /// The revision whose roll-out the operator stopped, if a user may resume it.
    pub(crate) fn stopped(&self) -> Option<String> {
        resumable(&self.status, &self.revision()).map(str::to_owned)
    }

    /// Whether it goes back to the revision of the last roll-out that was completed, and is not there yet.
    pub(crate) fn goes_back(&self) -> bool {
        let is_rolling = || self.holds(PROGRESSING).is_some();
        let is_last = self.status.complete_revisions.first() == Some(&self.revision());
        is_last && !self.strategy().on_delete && (!self.is_observed() || is_rolling())
    }

    /// How a change reaches the nodes.
    pub(crate) fn strategy(&self) -> Strategy {
        Strategy::from_spec(&self.spec)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    /// An object with that spec and status.
    pub(crate) fn object(spec: &Value, status: &Value) -> Object {
        let object = json!({
            "apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3},
            "spec": spec, "status": status,
        });
        Object::decode(serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn a_stop_of_an_earlier_revision_is_not_one_of_the_present_spec() {
        let stopped = |revision: &str| {
            let condition = json!({"type": "Progressing", "status": "False", "reason": "AutoPaused",
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            object(
                &json!({"image": "nginx:1.29"}),
                &json!({"updateRevision": revision, "conditions": [condition]}),
            )
        };
        assert_eq!(stopped("x").revision(), "5djmrzzhj3");
        assert!(stopped("5djmrzzhj3").is_auto_paused());
        assert!(!stopped("zzzzzzzzzz").is_auto_paused());
    }

    #[test]
    fn an_object_that_cannot_be_read_is_one_line() {
        let bad = json!({"metadata": {"name": "web"}, "spec": {"image": 7}});
        let error = Object::decode(serde_json::from_value(bad).unwrap()).unwrap_err();
        assert!(error.starts_with("mydaemonsets.apps.zhongmingmao.io \"web\" cannot be read"));
        let odd = json!({"metadata": {"name": "web"}, "spec": null, "status": 1});
        assert_eq!(
            Object::decode(serde_json::from_value(odd).unwrap())
                .unwrap()
                .generation,
            0
        );
    }
}
