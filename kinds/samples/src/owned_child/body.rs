//! The desired child as it is sent to the API server.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kube::Resource as _;
use serde_json::{Value, json};

use super::parent::{Desired, ObjectOf, Owner, Parent};
use super::view::{COMPONENT, owner_annotation};
use my_operator_kind::manager::MANAGER;
use wall_clock_controller::reconcile::write::{self, MANAGED_BY};

/// The child with everything that is ours: the kind's fields, the owner reference, and the labels
/// and the annotation that show whose it is should it lose that reference.
pub(crate) fn body<P: Parent>(owner: &Owner<'_, P>, desired: &Desired) -> Value {
    let mut body = desired.fields.clone();
    body["apiVersion"] = P::Child::api_version(&()).into();
    body["kind"] = P::Child::kind(&()).into();
    let metadata = &mut body["metadata"];
    metadata["name"] = desired.name.as_str().into();
    metadata["namespace"] = (*owner.key.namespace).into();
    metadata["labels"][MANAGED_BY] = MANAGER.into();
    metadata["labels"][COMPONENT] = P::NAME.into();
    metadata["annotations"][owner_annotation::<ObjectOf<P>>()] = (*owner.key.name).into();
    let reference = write::controller_reference::<ObjectOf<P>>(&owner.key.name, owner.uid);
    metadata["ownerReferences"] = json!([reference]);
    body
}

/// A number that differs between two desired states.
pub(crate) fn hash(body: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.to_string().hash(&mut hasher);
    hasher.finish()
}
