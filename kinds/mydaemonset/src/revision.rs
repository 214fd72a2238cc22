//! Revisions: what pods are built from, kept as `ControllerRevision` objects.
//!
//! A revision is named by the hash of its content: the user's image and template, and nothing of
//! the operator's. So an upgrade of the operator rolls nothing out, and an old spec applied again
//! is the old revision again.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::crd::MyDaemonSetSpec;
use super::decide::placement::Placement;
use super::names::{
    APP, CHANGE_CAUSE_ANNOTATION, CHANGED_FROM_ANNOTATION, NAME_LABEL, Owner, REVISION_LABEL,
    SINCE_ANNOTATION, base32,
};
use admission_rules::bounds;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use my_operator_kind::go_json::as_go;
use my_operator_kind::manager::MANAGER;
use my_operator_kind::template::PodTemplate;
use my_operator_kind::watched::{controller, utc};
use wall_clock_controller::reconcile::raw::{self, Raw};
use wall_clock_controller::reconcile::write::MANAGED_BY;

/// The content of a revision: the part of the spec that pods are built from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// `spec.image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// `spec.template`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<PodTemplate>,
}

impl Content {
    /// Parses the canonical form of a content.
    ///
    /// # Errors
    /// Never for what [`Content::canonical`] returned.
    pub(crate) fn from_canonical(canonical: &str) -> serde_json::Result<Self> {
        serde_json::from_str(canonical)
    }

    /// The content of a spec.
    pub fn from_spec(spec: &MyDaemonSetSpec) -> Self {
        Self {
            image: spec.image.clone(),
            template: spec.template.clone(),
        }
    }

    /// The image of the container that the object is about.
    pub fn container_image(&self) -> Option<&str> {
        let of_template = || Some(self.template.as_ref()?.container(APP)?.image());
        self.image.as_deref().or_else(of_template)
    }

    /// The content in the one form that the API server itself would write.
    ///
    /// The API server compares a revision's `data` byte by byte with what it gets when it decodes
    /// and encodes it again; with any other form each later patch, the garbage collector's too,
    /// would fail with `data: field is immutable`.
    pub fn canonical(&self) -> String {
        let mut value = Map::new();
        if let Some(image) = &self.image {
            value.insert("image".to_owned(), image.as_str().into());
        }
        if let Some(template) = &self.template {
            value.insert("template".to_owned(), template.0.clone());
        }
        as_go(value.into())
    }
}

/// Sets the image of the container `app`, unless it has its own, and adds the container if there is none.
pub fn add_app(containers: &mut Vec<Value>, image: &Value) {
    match containers.iter_mut().find(|it| it["name"] == APP) {
        None => containers.insert(0, json!({"name": APP, "image": image})),
        Some(app) if app["image"].as_str().is_none_or(str::is_empty) => {
            app["image"] = image.clone();
        }
        Some(_) => {}
    }
}

/// The length of the hash that names a revision.
pub(crate) const HASH_LEN: usize = 10;

/// The hash that names a revision: 50 bits of the SHA-256 of its content, in base 32.
pub fn hash(canonical: &str) -> String {
    base32(&Sha256::digest(canonical.as_bytes()), HASH_LEN)
}

/// The name of the `ControllerRevision`.
pub(crate) fn name(owner: &str, hash: &str) -> String {
    format!("{owner}-{hash}")
}

/// A `ControllerRevision` as it is watched.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = "k8s_openapi::api::apps::v1::ControllerRevision")]
#[serde(default)]
pub(crate) struct WatchedRevision {
    /// The object's metadata, as far as it is used.
    #[serde(deserialize_with = "raw::metadata")]
    pub(crate) metadata: ObjectMeta,
    pub(crate) data: Raw,
    /// Its number in the history: the newest has the highest.
    pub(crate) revision: i64,
}

/// What the cache holds of a revision: its hash and its requirements on nodes. Its content may be
/// as large as a spec. It is only needed to replace a pod that is held at an old revision, and is
/// then read from the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RevisionView {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The name of the object that controls the revision; for an orphan, the one in our label.
    pub(crate) owner: String,
    /// Its UID; empty for an orphan.
    pub(crate) owner_uid: String,
    /// The hash of the content.
    pub(crate) hash: String,
    /// Its number in the history: the newest has the highest.
    pub(crate) number: i64,
    /// Since when it is, or last was, the newest.
    pub(crate) since: DateTime<Utc>,
    /// Whether another one was the newest before that.
    pub(crate) again: bool,
    /// Which nodes its pods belong on.
    pub(crate) placement: Arc<Placement>,
}

impl WatchedRevision {
    /// The content; `None` beyond the limits of a spec: such a revision was not created by this
    /// operator, which does not read it.
    fn content(&self) -> Option<Content> {
        let text = self.data.text();
        if bounds::exceeded("data", text).is_some() {
            return None;
        }
        let mut data: Value = serde_json::from_str(text).ok()?;
        Some(Content {
            image: data.get("image").and_then(Value::as_str).map(str::to_owned),
            // Taken instead of copied: the tree may take megabytes.
            template: data.get_mut("template").map(Value::take).map(PodTemplate),
        })
    }

    /// The content in its canonical form, if it can be decoded.
    pub(crate) fn canonical(&self) -> Option<String> {
        self.content().map(|content| content.canonical())
    }
}

impl RevisionView {
    /// The view of one that a client read, as JSON; `None` if it is none.
    pub fn from_json(revision: &str) -> Option<Self> {
        let revision = serde_json::from_str(revision).ok()?;
        Some(Self::from_watched(revision))
    }

    /// The view of a watched revision.
    pub(crate) fn from_watched(revision: WatchedRevision) -> Self {
        // No pod and no spec asks for the hash of a revision that was tampered with.
        let content = revision.content();
        let placement = content
            .as_ref()
            .map(|content| Placement::from_template(content.template.as_ref()));
        let canonical = content.map(|content| content.canonical());
        let metadata = revision.metadata;
        let owner = controller(metadata.owner_references.as_deref());
        let label = metadata.labels.as_ref().and_then(|l| l.get(NAME_LABEL));
        Self {
            owner: owner
                .map(|o| &o.name)
                .or(label)
                .cloned()
                .unwrap_or_default(),
            owner_uid: owner.map(|o| o.uid.clone()).unwrap_or_default(),
            hash: canonical.as_deref().map(hash).unwrap_or_default(),
            number: revision.revision,
            since: since(&metadata).unwrap_or_default(),
            again: metadata
                .annotations
                .as_ref()
                .is_some_and(|annotations| annotations.contains_key(SINCE_ANNOTATION)),
            placement: Arc::new(placement.unwrap_or_default()),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
        }
    }
}

/// Since when a revision is, or last was, the newest, by its metadata. The first time begins with its creation: joining nodes
/// are compared with it, and their times are of the API server's clock, too.
pub fn since(metadata: &ObjectMeta) -> Option<DateTime<Utc>> {
    let annotations = metadata.annotations.as_ref();
    let again = annotations.and_then(|annotations| annotations.get(SINCE_ANNOTATION));
    let again = again.and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    let created = || utc(metadata.creation_timestamp.as_ref());
    again.map(|time| time.to_utc()).or_else(created)
}

/// A `ControllerRevision` as it is created, with exactly the canonical bytes as its content.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NewRevision {
    api_version: &'static str,
    kind: &'static str,
    metadata: Value,
    data: Box<RawValue>,
    revision: i64,
}

/// The body of the request that creates a revision.
///
/// # Errors
/// Never for content that came from JSON.
pub(crate) fn body(
    owner: &Owner<'_>,
    canonical: &str,
    cause: Option<&str>,
    place: Place<'_>,
) -> Result<Vec<u8>, serde_json::Error> {
    let hash = hash(canonical);
    let annotations = [
        (CHANGE_CAUSE_ANNOTATION, cause),
        (CHANGED_FROM_ANNOTATION, place.from),
    ];
    let annotations = annotations.into_iter();
    let annotations: Map<String, Value> = annotations
        .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
        .collect();
    serde_json::to_vec(&NewRevision {
        api_version: "apps/v1",
        kind: "ControllerRevision",
        metadata: json!({
            "name": name(owner.name, &hash),
            "namespace": owner.namespace,
            "labels": {NAME_LABEL: owner.name, REVISION_LABEL: hash, MANAGED_BY: MANAGER},
            "annotations": annotations,
            "ownerReferences": [owner.reference()],
        }),
        data: RawValue::from_string(canonical.to_owned())?,
        revision: place.number,
    })
}

/// The patch that makes an old revision the newest one again, or restores its owner and its labels.
pub(crate) fn patch(owner: &Owner<'_>, uid: &str, place: Place<'_>, now: DateTime<Utc>) -> Value {
    json!({
        "metadata": {
            "uid": uid,
            "labels": {NAME_LABEL: owner.name, MANAGED_BY: MANAGER},
            "annotations": {
                SINCE_ANNOTATION: now.to_rfc3339_opts(SecondsFormat::Secs, true),
                // Null takes away what it replaced the last time.
                CHANGED_FROM_ANNOTATION: place.from,
            },
            "ownerReferences": [owner.reference()],
        },
        "revision": place.number,
    })
}

/// The place in the history of a revision that becomes the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    /// Its number: one above all others.
    pub(crate) number: i64,
    /// The hash of the one that it replaces, the newest until then. None for the first one, and where that was tampered
    /// with.
    pub(crate) from: Option<&'a str>,
}

impl<'a> Place<'a> {
    /// The place of the revision of that hash, which may be one of those.
    pub(crate) fn after(
        revisions: impl Iterator<Item = &'a RevisionView> + Clone,
        hash: &str,
    ) -> Self {
        let newest = revisions.clone().map(|r| r.number).max().unwrap_or(0);
        let others = revisions.filter(|r| r.hash != hash);
        let from = others.max_by_key(|r| (r.number, r.name.as_str()));
        Self {
            number: newest.saturating_add(1),
            from: from.map(|r| r.hash.as_str()).filter(|r| !r.is_empty()),
        }
    }
}

/// The revisions beyond the limit that are no longer used, the oldest first; those whose roll-out was completed last go
/// after the others, since an undo leads to them.
pub(crate) fn superfluous<'a>(
    revisions: &'a [&'a RevisionView],
    used: &BTreeSet<String>,
    complete: &[String],
    limit: usize,
) -> Vec<&'a RevisionView> {
    let mut unused: Vec<&RevisionView> = revisions
        .iter()
        .copied()
        .filter(|r| !used.contains(r.hash.as_str()))
        .collect();
    let rank = |r: &RevisionView| (complete.contains(&r.hash), r.number, r.name.clone());
    unused.sort_by_cached_key(|revision| rank(revision));
    unused.truncate(unused.len().saturating_sub(limit));
    unused
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use chrono::TimeZone as _;

    use super::*;
    use my_operator_retained as retained;

    #[test]
    fn the_hash_depends_on_the_content_alone() {
        let spec =
            |text: &str| Content::from_spec(&serde_json::from_str(text).unwrap()).canonical();
        let one = spec(
            r#"{"image": "a:1", "template": {"spec": {"x": 1, "a": 2}}, "minReadySeconds": 3}"#,
        );
        assert_eq!(one, r#"{"image":"a:1","template":{"spec":{"a":2,"x":1}}}"#);
        assert_eq!(
            one,
            spec(r#"{"template": {"spec": {"a": 2, "x": 1}}, "image": "a:1"}"#)
        );
        assert_ne!(hash(&one), hash(&spec(r#"{"image": "a:2"}"#)));
        // Pinned: another value here would roll every pod of every user at an upgrade.
        assert_eq!(hash(r#"{"image":"nginx:1.29"}"#), "5djmrzzhj3");
    }

    #[test]
    fn a_revision_survives_the_way_through_the_api() {
        let owner = Owner {
            namespace: "ns",
            name: "web",
            uid: "u",
        };
        let content = Content {
            image: Some("a:1".into()),
            template: Some(PodTemplate(json!({"spec": {"future": [1.5, "<"]}}))),
        };
        let place = Place {
            number: 7,
            from: None,
        };
        let body = body(&owner, &content.canonical(), Some("a new image"), place).unwrap();
        let text = String::from_utf8(body).unwrap();
        assert!(
            text.contains(&format!("\"data\":{},", content.canonical())),
            "{text}"
        );
        let stored: WatchedRevision = serde_json::from_str(&text).unwrap();
        let canonical = stored.canonical().unwrap();
        assert_eq!(Content::from_canonical(&canonical).unwrap(), content);
        let view = RevisionView::from_watched(stored);
        assert_eq!(view.name, format!("web-{}", view.hash));
        assert_eq!((view.owner.as_str(), view.owner_uid.as_str()), ("web", "u"));
        assert_eq!(view.number, 7);
        assert_eq!(view.hash, hash(&content.canonical()));
    }

    #[test]
    fn a_revision_is_the_newest_since_its_creation_or_its_renewal() {
        let created = json!({"creationTimestamp": "2026-01-01T00:00:00Z"});
        let mut metadata: ObjectMeta = serde_json::from_value(created).unwrap();
        let at = |day| Utc.with_ymd_and_hms(2026, 1, day, 0, 0, 0).single();
        assert_eq!(since(&metadata), at(1));
        let renewal = (
            SINCE_ANNOTATION.to_owned(),
            "2026-01-02T00:00:00Z".to_owned(),
        );
        metadata.annotations = Some([renewal].into());
        assert_eq!(since(&metadata), at(2));
    }

    #[test]
    fn only_unused_revisions_beyond_the_limit_go_oldest_first() {
        let revision = |hash: &str, number| RevisionView {
            name: format!("x-{hash}"),
            hash: hash.into(),
            number,
            ..RevisionView::default()
        };
        let all: Vec<_> = [("a", 4), ("b", 1), ("c", 3), ("d", 2), ("e", 5)]
            .map(|(hash, number)| revision(hash, number))
            .into();
        let all: Vec<_> = all.iter().collect();
        for (used, complete, limit, gone) in [
            (&["e"][..], &[][..], 10, &[][..]),
            (&["e"], &[], 2, &["b", "d"]),
            (&["e", "b"], &[], 1, &["d", "c"]),
            (&["e"], &["e", "b"], 1, &["d", "c", "a"]),
            (&["a", "b", "c", "d", "e"], &[], 1, &[]),
        ] {
            let used: BTreeSet<String> = used.iter().map(|hash| (*hash).to_owned()).collect();
            let complete: Vec<String> = complete.iter().map(|hash| (*hash).to_owned()).collect();
            let found: Vec<_> = superfluous(&all, &used, &complete, limit)
                .iter()
                .map(|r| r.hash.as_str())
                .collect();
            assert_eq!(found, gone);
        }
    }

    #[test]
    fn a_revision_becomes_the_newest_in_place_of_the_newest_other_one() {
        let revision = |hash: &str, number| RevisionView {
            name: format!("x-{hash}"),
            hash: hash.into(),
            number,
            ..RevisionView::default()
        };
        let place = |revisions: &[RevisionView], hash: &str| {
            let place = Place::after(revisions.iter(), hash);
            (place.number, place.from.map(str::to_owned))
        };
        let some = |hash: &str| Some(hash.to_owned());
        let mut all = vec![revision("a", 4), revision("b", 1), revision("c", 3)];
        assert_eq!(place(&[], "a"), (1, None));
        assert_eq!(place(&all, "d"), (5, some("a")));
        assert_eq!(place(&all, "b"), (5, some("a")));
        // The newest one, again.
        assert_eq!(place(&all, "a"), (5, some("c")));
        assert_eq!(place(&all[..1], "a"), (5, None));
        // Its content cannot be read.
        all.push(revision("", 5));
        assert_eq!(place(&all, "d"), (6, None));
    }

    #[test]
    fn a_revision_is_stored_with_the_one_that_it_replaces() {
        let owner = Owner {
            namespace: "ns",
            name: "web",
            uid: "u",
        };
        let place = |from| Place { number: 7, from };
        let created = |cause, from| {
            let body = body(&owner, "{}", cause, place(from)).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            body["metadata"]["annotations"].clone()
        };
        assert_eq!(created(None, None), json!({}));
        assert_eq!(
            created(Some("why"), Some("abc")),
            json!({"kubernetes.io/change-cause": "why", "apps.zhongmingmao.io/changed-from": "abc"})
        );
        let renewed = |from| {
            let patch = patch(&owner, "v", place(from), DateTime::default());
            assert_eq!(patch["revision"], 7);
            patch["metadata"]["annotations"]["apps.zhongmingmao.io/changed-from"].clone()
        };
        assert_eq!(renewed(Some("abc")), json!("abc"));
        assert_eq!(renewed(None), Value::Null);
    }

    #[test]
    fn a_cached_revision_is_about_as_large_as_what_it_says_about_nodes() {
        let revision = json!({
            "metadata": {"name": "x-abc", "uid": "u", "labels": {NAME_LABEL: "x"}, "annotations": {"a": "b"}},
            "data": {"image": "r.io/a:1", "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "containers": [{"name": "c", "env": [{"name": "E", "value": "v"}]}],
                "nodeSelector": {"a": "b"},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                    ]}}},
                "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v"}],
            }}},
            "revision": 3,
        });
        retained::check(&revision, RevisionView::from_watched);
    }
}
