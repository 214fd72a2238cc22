//! Writes under the caller's field manager, with strict field validation, and with preconditions on the UID.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

#[cfg(feature = "client")]
mod calls;

#[cfg(feature = "client")]
pub use calls::{create, only, status, would_create};

/// The label for the name of the program that manages an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// A controller owner reference to the object `name` with that UID.
pub fn controller_reference<K>(name: &str, uid: &str) -> OwnerReference
where
    K: Resource<DynamicType = ()>,
{
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
