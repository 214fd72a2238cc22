//! What the caches keep of Ats and their pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::admission::{AtRules, SCHEDULE_SET_AT, base};
use super::crd::{AtObject, AtStatus, Ending, Phase};
use super::observe::AtView;
use super::packed::{pack, unpack};
use super::pod::names::pod_name;
use super::pod::object::PodObject;
use super::pod::view::PodView;
use admission_rules::bounds;
use admission_rules::faults::Fault;
use admission_rules::rules::decode_and_validate;
use my_operator_kind::watched::utc;
use wall_clock_controller::reconcile::cache::Cache;
use wall_clock_controller::reconcile::write_cache::WriteCache;
use wall_clock_controller::reconcile::{Error, Key};

/// An At as the cache keeps it. A hundred thousand of them may wait for years, so spec and status
/// are kept as packed text and parsed when they are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredAt {
    /// `metadata.uid`.
    pub(crate) uid: Box<str>,
    resource_version: Box<str>,
    generation: Option<i64>,
    deleting: bool,
    created: Option<DateTime<Utc>>,
    schedule_set_at: Option<Box<str>>,
    /// Its phase, as far as its status can be decoded.
    pub(crate) phase: Phase,
    /// The instant at which it is to start, likewise.
    scheduled_time: Option<DateTime<Utc>>,
    /// How it ended, likewise.
    pub(crate) result: Option<Ending>,
    /// The spec, or why it is not even kept.
    spec: Result<Arc<[u8]>, Box<Fault>>,
    status: Box<[u8]>,
}

/// The phase and the instant in a status, as far as they can be decoded.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    phase: Phase,
    scheduled_time: Option<DateTime<Utc>>,
}

/// The result in a status, as far as it can be decoded.
fn result_of(status: &str) -> Option<Ending> {
    #[derive(Deserialize)]
    struct Ended {
        result: Ending,
    }
    let ended = serde_json::from_str(status).ok();
    ended.map(|Ended { result }| result)
}

impl StoredAt {
    /// The cached form of an object.
    pub(crate) fn from_object(object: AtObject) -> Self {
        let meta = object.metadata;
        let text = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
        let set_at = meta
            .annotations
            .and_then(|mut all| all.remove(SCHEDULE_SET_AT));
        let summary = serde_json::from_str(object.status.text());
        let Summary {
            phase,
            scheduled_time,
        } = summary.unwrap_or_default();
        let is_over = phase == Phase::Done;
        Self {
            uid: text(meta.uid),
            resource_version: text(meta.resource_version),
            generation: meta.generation,
            deleting: meta.deletion_timestamp.is_some(),
            created: utc(meta.creation_timestamp.as_ref()),
            schedule_set_at: set_at.map(String::into_boxed_str),
            phase,
            scheduled_time,
            result: is_over.then(|| result_of(object.status.text())).flatten(),
            spec: match bounds::exceeded("spec", object.spec.text()) {
                None => Ok(pack(object.spec.text()).into()),
                Some(fault) => Err(Box::new(fault)),
            },
            status: pack(object.status.text()).into(),
        }
    }

    /// The same, sharing the text of the spec with the cached object if it is equal: a write of the
    /// status delivers the whole object again.
    #[must_use]
    pub(crate) fn sharing(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before
            && before.spec == self.spec
        {
            self.spec.clone_from(&before.spec);
        }
        self
    }

    /// Whether the command may be due by then, by the status alone.
    pub(crate) fn is_due_by(&self, then: DateTime<Utc>) -> bool {
        self.phase == Phase::Pending && self.scheduled_time.is_none_or(|instant| instant <= then)
    }

    /// Whether it still has the spec of that view.
    pub(crate) fn has_spec_of(&self, at: &AtView) -> bool {
        *self.uid == *at.uid && self.generation == at.generation && !self.deleting
    }

    /// `metadata.resourceVersion`.
    pub(crate) fn version(&self) -> &str {
        &self.resource_version
    }

    /// Decodes the cached At of that key.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if the status is not one of ours. Treating it as empty could run a command twice.
    pub(crate) fn read(&self, key: &Key, now: DateTime<Utc>) -> Result<AtView, Error> {
        let unreadable = |error: serde_json::Error| Error::Unreadable {
            object: key.clone(),
            reason: format!("its status is not one that this program wrote: {error}"),
        };
        let status: Option<AtStatus> =
            serde_json::from_str(&unpack(&self.status)).map_err(unreadable)?;
        let recorded = self.schedule_set_at.as_deref();
        let annotations: BTreeMap<String, String> = recorded
            .map(|text| (SCHEDULE_SET_AT.to_owned(), text.to_owned()))
            .into_iter()
            .collect();
        Ok(AtView {
            key: key.clone(),
            uid: self.uid.to_string(),
            resource_version: self.resource_version.to_string(),
            generation: self.generation,
            deleting: self.deleting,
            base: self.created.map(|created| base(&annotations, created)),
            spec: match &self.spec {
                Ok(spec) => {
                    decode_and_validate::<AtRules>(&key.name, &annotations, &unpack(spec), now)
                }
                Err(fault) => Err(vec![(**fault).clone()]),
            },
            status: status.unwrap_or_default(),
        })
    }
}

/// The watched objects, and the answers to our own writes that the watches have yet to deliver.
/// Without those answers, a pass would decide on the state from before its last write.
pub(crate) struct Caches {
    pub(crate) ats: Arc<Cache<StoredAt>>,
    pub(crate) pods: Arc<Cache<PodView>>,
    pub(crate) own_ats: WriteCache<StoredAt>,
    pub(crate) own_pods: WriteCache<PodView>,
}

impl Caches {
    /// Empty caches that so many watches will fill.
    pub(crate) fn new(at_watches: usize, pod_watches: usize) -> Self {
        // The pod of an At is found by its name.
        Self {
            ats: Arc::new(Cache::new(at_watches, |_| Vec::new())),
            pods: Arc::new(Cache::new(pod_watches, |_| Vec::new())),
            own_ats: WriteCache::default(),
            own_pods: WriteCache::default(),
        }
    }

    /// The pod from the cache, or from our own last response if that is newer.
    pub(crate) fn pod_of(&self, at: &Key) -> KnownPod {
        let key = pod_key(at);
        let cached = self.pods.get(&key);
        let version = cached.as_deref().map(PodView::version).map(str::to_owned);
        let pod = self.own_pods.newer(&key, cached, PodView::version);
        let own = pod.as_deref().map(PodView::version) != version.as_deref();
        KnownPod {
            pod,
            live: false,
            own,
        }
    }

    /// Remembers the answer to a write of a pod of that At.
    pub(crate) fn remember_pod(&self, at: &AtView, pod: PodObject) -> PodView {
        let key = Key::of(&pod.metadata);
        let view = PodView::from_object(pod);
        // A pod that the watch will never deliver is not remembered either.
        if view.is_of(&at.uid) {
            let kept = Arc::new(view.clone());
            self.own_pods.put(&key, &view.resource_version, kept);
        }
        view
    }

    /// Remembers the answer to a write of an At.
    pub(crate) fn remember_at(&self, key: &Key, object: AtObject) -> Arc<StoredAt> {
        let stored = StoredAt::from_object(object).sharing(self.ats.get(key).as_deref());
        let stored = Arc::new(stored);
        self.own_ats.put(key, stored.version(), stored.clone());
        stored
    }

    pub(crate) fn forget_pod_of(&self, at: &Key) {
        self.own_pods.forget(&pod_key(at));
    }
}

/// The key of an At's pod.
fn pod_key(at: &Key) -> Key {
    Key::new(&at.namespace, pod_name(&at.name))
}

/// What a pass knows of the pod with the At's pod name.
#[derive(Default)]
pub(crate) struct KnownPod {
    pub(crate) pod: Option<Arc<PodView>>,
    pub(crate) live: bool,
    /// The pod is the answer to a write of our own, which the watch has not delivered.
    pub(crate) own: bool,
}

impl KnownPod {
    pub(crate) fn live(pod: Option<PodView>) -> Self {
        Self {
            pod: pod.map(Arc::new),
            live: true,
            own: false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use my_operator_retained as retained;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn key() -> Key {
        Key::new("ns", "a")
    }

    fn stored(object: &Value) -> StoredAt {
        StoredAt::from_object(serde_json::from_str(&object.to_string()).unwrap())
    }

    #[test]
    fn a_stored_object_is_read_with_its_defaults() {
        let view = stored(&json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-04-12T10:00:00Z",
                "annotations": {SCHEDULE_SET_AT: "2026-04-12T11:00:00.5Z"}},
            "spec": {"schedule": "now + 1 minute", "command": "x"},
            "status": {"phase": "PENDING"},
        }))
        .read(&key(), now())
        .unwrap();
        assert_eq!(
            view.spec.as_ref().unwrap().image.as_deref(),
            Some("bash:5.3")
        );
        assert_eq!(
            view.instant().unwrap().to_rfc3339(),
            "2026-04-12T11:01:00.500+00:00"
        );
        assert_eq!((view.phase(), view.generation), (Phase::Pending, Some(3)));
    }

    #[test]
    fn a_spec_beyond_the_limits_is_reported_and_not_kept() {
        let long = "x".repeat(bounds::MAX_BYTES);
        let stored = stored(&json!({
            "metadata": {"name": "a"},
            "spec": {"schedule": "now", "command": "x", "template": {"metadata": {"annotations": {"a": long}}}},
        }));
        assert!(format!("{stored:?}").len() < 2_000);
        let faults = stored.read(&key(), now()).unwrap().spec.unwrap_err();
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            ["spec: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn the_text_of_an_unchanged_spec_is_shared() {
        let at = |command: &str, phase: &str| {
            stored(&json!({
                "metadata": {"name": "a"},
                "spec": {"schedule": "now", "command": command},
                "status": {"phase": phase},
            }))
        };
        let before = at("x", "PENDING");
        let address = |at: &StoredAt| at.spec.as_ref().unwrap().as_ptr();
        assert_eq!(
            address(&at("x", "RUNNING").sharing(Some(&before))),
            address(&before)
        );
        assert_ne!(
            address(&at("y", "RUNNING").sharing(Some(&before))),
            address(&before)
        );
    }

    #[test]
    fn an_object_without_spec_and_status_is_pending_and_invalid() {
        let view = stored(&json!({"metadata": {"name": "a"}}))
            .read(&key(), now())
            .unwrap();
        assert_eq!(view.phase(), Phase::Pending);
        assert_eq!(view.spec.unwrap_err().len(), 2);
    }

    #[test]
    fn a_malformed_status_is_never_treated_as_empty() {
        for status in [
            json!({"phase": "STARTED"}),
            json!("x"),
            json!({"podUID": 7}),
        ] {
            let at = stored(&json!({"metadata": {"name": "a"}, "status": status}));
            assert!(
                matches!(at.read(&key(), now()), Err(Error::Unreadable { .. })),
                "{at:?}"
            );
        }
    }

    #[test]
    fn a_cached_at_takes_little_more_memory_than_its_text() {
        let at = serde_json::json!({
            "apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "annotations": {SCHEDULE_SET_AT: "t"}},
            "spec": {"schedule": "now", "command": "true", "template": {"spec": {"nodeSelector": {"a": "b"}}}},
            "status": {"phase": "DONE", "result": {"outcome": "Succeeded"}},
        });
        retained::check(&at, StoredAt::from_object);
    }
}
