//! What the caches hold of parents and their children.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use my_operator_kind::manager::MANAGER;
use my_operator_kind::watched::utc;
use wall_clock_controller::reconcile::raw::{Object, Raw};
use wall_clock_controller::reconcile::write::MANAGED_BY;

/// The label that separates the children of one kind from those of another.
pub(crate) const COMPONENT: &str = "app.kubernetes.io/component";

/// What the cache holds of a parent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParentView {
    pub(crate) uid: String,
    pub(crate) version: String,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// It is being deleted.
    pub(crate) deleting: bool,
    /// The spec as stored.
    pub(crate) spec: Raw,
    /// The status as stored.
    pub(crate) status: Raw,
}

impl ParentView {
    /// The view of an object.
    pub(crate) fn new<K>(object: Object<K>) -> Self {
        let metadata = object.metadata;
        Self {
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            generation: metadata.generation,
            deleting: metadata.deletion_timestamp.is_some(),
            spec: object.spec,
            status: object.status,
        }
    }
}

/// What controls a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Belongs {
    /// The object of that name and UID.
    To { name: String, uid: String },
    /// Nothing controls it. We created it for the object of that name.
    Orphan { name: String },
    /// Foreign: not controlled by an object of this kind, and not created by us.
    Foreign,
}

/// What the cache holds of a child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChildView {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
    /// `metadata.generation`. The status may belong to an earlier one.
    pub(crate) generation: Option<i64>,
    /// What controls it.
    pub(crate) belongs: Belongs,
    /// It is being deleted.
    pub(crate) deleting: bool,
    /// `metadata.creationTimestamp`.
    pub(crate) created: Option<DateTime<Utc>>,
    /// `spec.suspend`, which Jobs have.
    pub(crate) suspended: bool,
    /// Hash of the fields that are ours and that others could change. Versions that differ only in
    /// status have the same print.
    pub(crate) print: u64,
    status: Raw,
}

#[derive(Default, Deserialize)]
struct Suspendable {
    suspend: Option<bool>,
}

impl ChildView {
    /// The view of a child whose owner has the kind `P`.
    pub(crate) fn new<P: Resource<DynamicType = ()>, C>(object: Object<C>) -> Self {
        let metadata = object.metadata;
        let (labels, annotations) = (metadata.labels, metadata.annotations);
        let owners = metadata.owner_references.unwrap_or_default();
        let annotation = annotations.and_then(|mut all| all.remove(&owner_annotation::<P>()));
        let is_marked = labels
            .as_ref()
            .and_then(|all| all.get(MANAGED_BY))
            .is_some_and(|manager| manager == MANAGER);
        let mut hasher = DefaultHasher::new();
        (&labels, &annotation, object.spec.text()).hash(&mut hasher);
        for owner in &owners {
            let OwnerReference {
                api_version,
                block_owner_deletion,
                controller,
                kind,
                name,
                uid,
            } = owner;
            (api_version, kind, name, uid).hash(&mut hasher);
            (block_owner_deletion, controller).hash(&mut hasher);
        }
        let controller = owners.into_iter().find(|o| o.controller == Some(true));
        let belongs = match (controller, annotation) {
            (Some(owner), _) if is_of::<P>(&owner) => Belongs::To {
                name: owner.name,
                uid: owner.uid,
            },
            (None, Some(name)) if is_marked => Belongs::Orphan { name },
            _ => Belongs::Foreign,
        };
        let spec: Suspendable = serde_json::from_str(object.spec.text()).unwrap_or_default();
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            generation: metadata.generation,
            suspended: spec.suspend == Some(true),
            belongs,
            deleting: metadata.deletion_timestamp.is_some(),
            created: utc(metadata.creation_timestamp.as_ref()),
            print: hasher.finish(),
            status: object.status,
        }
    }

    /// The name of the object that controls it, or did.
    pub(crate) fn owner(&self) -> Option<&str> {
        match &self.belongs {
            Belongs::To { name, .. } | Belongs::Orphan { name } => Some(name),
            Belongs::Foreign => None,
        }
    }

    /// The UID of the object that controls it.
    pub(crate) fn owner_uid(&self) -> Option<&str> {
        match &self.belongs {
            Belongs::To { uid, .. } => Some(uid),
            Belongs::Orphan { .. } | Belongs::Foreign => None,
        }
    }

    /// Its status, empty if it has none. The API server has validated it.
    pub(crate) fn status<T: DeserializeOwned + Default>(&self) -> T {
        let read: Result<Option<T>, _> = serde_json::from_str(self.status.text());
        read.ok().flatten().unwrap_or_default()
    }
}

/// Annotation of a child that names its object, and so identifies an orphan.
pub(crate) fn owner_annotation<P: Resource<DynamicType = ()>>() -> String {
    format!("{}/owner", P::group(&()))
}

fn is_of<P: Resource<DynamicType = ()>>(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(g, _)| g);
    group == P::group(&()) && owner.kind == P::kind(&())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use my_operator_retained as retained;

    #[test]
    fn cached_parents_and_children_take_little_more_memory_than_their_texts() {
        let object = json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1,
                "labels": {MANAGED_BY: MANAGER}, "annotations": {"/owner": "o"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o",
                    "controller": true}]},
            "spec": {"replicas": 1, "suspend": true, "template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": {"replicas": 1, "conditions": [{"type": "Available", "status": "True", "reason": "r"}]},
        });
        retained::check(&object, |object: Object<ConfigMap>| ParentView::new(object));
        retained::check(&object, ChildView::new::<ConfigMap, Deployment>);
    }
}
