//! Who owns a pod or revision: adopting, releasing, and what a live object shows of it.

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::api::Patch;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::failure::done_or_gone;
use crate::crd::RawMyDaemonSet;
use crate::names::NAME_LABEL;
use crate::observe::pod::WatchedPod;
use crate::pass::Pass;
use my_operator_kind::manager::{MANAGER, patch_params};
use my_operator_kind::watched::controller;
use wall_clock_controller::reconcile::{Error, call, if_there, read, write};

/// Whether this very object exists and is not being deleted, by a live read. Otherwise it must
/// not adopt: what it adopts would be deleted with it.
pub(super) async fn is_still_there(pass: &Pass<'_>) -> Result<bool, Error> {
    let api = pass.api::<RawMyDaemonSet>();
    let request = api.get_metadata(&pass.key.name);
    let there = if_there(read("read the object", pass.key, request).await)?;
    Ok(there.is_some_and(|object| {
        object.metadata.uid.as_deref() == Some(&pass.object.uid)
            && object.metadata.deletion_timestamp.is_none()
    }))
}

/// Whether this object controls one with that metadata.
pub(super) fn is_ours(pass: &Pass<'_>, metadata: &ObjectMeta) -> bool {
    let owner = controller(metadata.owner_references.as_deref());
    owner.is_some_and(|owner| owner.uid == pass.object.uid)
}

/// Whether our watch shows an object with these labels.
pub(super) fn is_shown(pass: &Pass<'_>, metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    let is = |key, value| {
        let label = labels.and_then(|labels| labels.get(key));
        label.map(String::as_str) == Some(value)
    };
    is(write::MANAGED_BY, MANAGER) && is(NAME_LABEL, &pass.key.name)
}

/// Releases a pod of this object that the watch does not show because it lacks our labels.
/// Returns whether it is one.
pub(super) async fn release_unlabelled(
    pass: &Pass<'_>,
    metadata: &ObjectMeta,
) -> Result<bool, Error> {
    if is_shown(pass, metadata) {
        return Ok(false);
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    let uid = metadata.uid.as_deref().unwrap_or_default();
    set_owner::<WatchedPod>(pass, false, name, uid).await?;
    Ok(true)
}

/// Makes this object the controller of another one, or no longer so. A strategic merge leaves other owner references alone;
/// the UID is a precondition, so that a namesake is not changed.
pub(super) async fn set_owner<K>(
    pass: &Pass<'_>,
    adopt: bool,
    name: &str,
    uid: &str,
) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let (step, reference) = if adopt {
        ("adopt an orphan", json!(pass.owner().reference()))
    } else {
        let released = json!({"$patch": "delete", "uid": pass.object.uid});
        ("release a pod", released)
    };
    let patch = json!({"metadata": {"uid": uid, "ownerReferences": [reference]}});
    let params = patch_params();
    let api = pass.api::<K>();
    let patch = Patch::Strategic(&patch);
    let request = api.patch_metadata(name, &params, &patch);
    done_or_gone(call(step, pass.key, request).await.map(drop))
}
