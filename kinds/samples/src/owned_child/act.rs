//! The calls to the API server. Each names its precondition, and what would go wrong without it.

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams, PropagationPolicy, ValidationDirective};
use kube::{Api, Client, Resource};
use serde_json::Value;

use super::observe::{StoredChild, StoredObject, child_view};
use super::parent::{Creation, DriftPolicy, Owner, Parent, StatusOf};
use super::view::{ChildView, ParentView};
use my_operator_kind::manager::{MANAGER, patch_params};
use wall_clock_controller::reconcile::write;
use wall_clock_controller::reconcile::{Error, Key, call, call_status, if_there, read};

/// The calls of one pass.
pub(crate) struct Calls<'a, P: Parent> {
    pub(crate) client: &'a Client,
    pub(crate) owner: &'a Owner<'a, P>,
}

/// A write that brings the child to the desired state.
pub(crate) struct ChildWrite<'a> {
    pub(crate) name: &'a str,
    pub(crate) body: &'a Value,
    /// The child as it was read; none if it is to be created.
    pub(crate) present: Option<&'a ChildView>,
    pub(crate) creation: Creation,
    pub(crate) policy: &'a DriftPolicy,
    /// This process has not applied the object's child yet.
    pub(crate) is_first: bool,
}

impl<P: Parent> Calls<'_, P> {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.owner.key.namespace)
    }

    pub(crate) async fn get_live(&self, name: &str) -> Result<Option<ChildView>, Error> {
        let api = self.api::<StoredChild<P>>();
        let found = if_there(read("read the child", self.owner.key, api.get(name)).await)?;
        Ok(found.map(child_view::<P>))
    }

    /// Whether, by a live read, the object exists, is not being deleted, and has this generation.
    /// The object's watch may lag behind the child's.
    pub(crate) async fn is_current(&self) -> Result<bool, Error> {
        let api = self.api::<StoredObject<P>>();
        let request = api.get_metadata(&self.owner.key.name);
        let there = if_there(read("read the object", self.owner.key, request).await)?;
        Ok(there.is_some_and(|object| {
            let meta = object.metadata;
            meta.uid.as_deref() == Some(self.owner.uid)
                && meta.deletion_timestamp.is_none()
                && meta.generation == self.owner.generation
        }))
    }

    /// Brings the child to the desired state.
    pub(crate) async fn write(&self, write: &ChildWrite<'_>) -> Result<ChildView, Error> {
        match (write.present, write.policy) {
            (None, _) if write.creation == Creation::Create => self.create(write.body).await,
            (Some(child), DriftPolicy::Patch(patch)) => self.patch(child, patch, write.body).await,
            _ => self.apply(write).await,
        }
    }

    /// Creates the child; fails if one of its name exists.
    async fn create(&self, body: &Value) -> Result<ChildView, Error> {
        let key = self.owner.key;
        let request = async {
            let body = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
            write::create::<P::Child, StoredChild<P>>(self.client, &key.namespace, body, MANAGER)
                .await
        };
        Ok(child_view::<P>(
            call("create the child", key, request).await?,
        ))
    }

    /// Sends the patch that the kind asks for. An orphan also gets the owner reference.
    async fn patch(
        &self,
        child: &ChildView,
        patch: &Value,
        body: &Value,
    ) -> Result<ChildView, Error> {
        let mut patch = patch.clone();
        if !self.owner.controls(child) {
            patch["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"].clone();
        }
        self.merge("change the child", child, patch).await
    }

    /// Replaces the list that made the API server reject an apply, if the child still has the
    /// version that was read. `None` if the API server rejects that too.
    pub(crate) async fn replace_list(
        &self,
        child: &ChildView,
        patch: Value,
    ) -> Result<Option<ChildView>, Error> {
        let step = "replace the conflicting list in the child";
        match self.merge(step, child, patch).await {
            Ok(child) => Ok(Some(child)),
            Err(error) if error.refusal().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a strategic merge patch that applies only to this UID and version of the child: what
    /// it says was decided on these. Another client may have changed the child since, or replaced it.
    async fn merge(
        &self,
        step: &'static str,
        child: &ChildView,
        mut patch: Value,
    ) -> Result<ChildView, Error> {
        let metadata = &mut patch["metadata"];
        metadata["uid"] = child.uid.as_str().into();
        metadata["resourceVersion"] = child.version.as_str().into();
        let api = self.api::<StoredChild<P>>();
        let (params, patch) = (patch_params(), Patch::Strategic(&patch));
        let request = api.patch(&child.name, &params, &patch);
        Ok(child_view::<P>(call(step, self.owner.key, request).await?))
    }

    /// Creates the child, or applies to this one. An orphan, and the first child after a start, are
    /// written only at the version that was read: the lists of a new process may come from an API
    /// server that lags behind, and by then the child may have been orphaned and adopted by a
    /// successor of the object. Applying the old owner would get the child garbage-collected.
    async fn apply(&self, write: &ChildWrite<'_>) -> Result<ChildView, Error> {
        let params = PatchParams {
            // An absent child has no fields of others. If it has some, it is another child of that
            // name, and must be left alone.
            force: write.present.is_some(),
            field_validation: Some(ValidationDirective::Strict),
            ..patch_params()
        };
        let mut body = write.body.clone();
        let mut step = "create the child";
        if let Some(present) = write.present {
            step = "correct the child";
            // Otherwise the apply would create a child that was deleted since, without a live read
            // of the object, or take over a foreign one that has the name by now.
            body["metadata"]["uid"] = present.uid.as_str().into();
            if write.is_first || !self.owner.controls(present) {
                body["metadata"]["resourceVersion"] = present.version.as_str().into();
            }
        }
        let api = self.api::<StoredChild<P>>();
        let patch = Patch::Apply(&body);
        let request = api.patch(write.name, &params, &patch);
        Ok(child_view::<P>(call(step, self.owner.key, request).await?))
    }

    /// Deletes a child of an earlier spec, at the version for which that was decided: it may have
    /// been adopted, or started to run, since. Returns whether it was there.
    pub(crate) async fn delete(&self, other: &ChildView) -> Result<bool, Error> {
        let mut params = write::only(&other.uid, Some(&other.version));
        // Jobs default to orphaning their pods.
        params.propagation_policy = Some(PropagationPolicy::Background);
        let api = self.api::<StoredChild<P>>();
        let request = api.delete(&other.name, &params);
        let answer = call("delete the earlier child", self.owner.key, request).await;
        Ok(if_there(answer)?.is_some())
    }
}

/// The patch that may make the child writable after this error: the API server rejected an entry of
/// a list (`FieldValueDuplicate`) that the kind can replace.
pub(crate) fn conflicting_list_patch<P: Parent>(error: &Error) -> Option<Value> {
    let status = error.status().filter(|status| status.code == 422)?;
    // Admission policies reject with 422 too, but name no field.
    let causes = &status.details.as_ref()?.causes;
    let mut twice = causes
        .iter()
        .filter(|cause| cause.reason == "FieldValueDuplicate");
    twice.find_map(|cause| P::replace_conflicting_list(&cause.field))
}

/// Writes the status at the version of the object that was read: it reports on that spec and
/// continues that status. Returns the resulting version; none if the object is gone.
pub(crate) async fn write_status<P: Parent>(
    client: &Client,
    key: &Key,
    parent: &ParentView,
    status: &StatusOf<P>,
) -> Result<Option<String>, Error> {
    let (uid, version) = (&parent.uid, &parent.version);
    let request = write::status::<StoredObject<P>, _>(client, key, uid, version, status, MANAGER);
    let written = call_status::<StoredObject<P>, _>(client, key, uid, request).await;
    let written = if_there(written)?;
    Ok(written.and_then(|object| object.metadata.resource_version))
}
