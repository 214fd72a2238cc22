//! The requests to the API server.

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use my_operator_mydaemonset::names::NAME_LABEL;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::history::{Revision, history};
use super::object::{Object, resource};
use crate::connection::{Connection, Failure};
use crate::print::none_in;

/// Who the API server records as the one that changed a field.
pub(super) const FIELD_MANAGER: &str = "kubectl-mydaemonset";
/// Objects of one request for a list.
const PAGE: u32 = 500;

/// A list with more objects than this is cut: nothing is kept without bound.
const MAX_OBJECTS: usize = 50_000;

/// The objects of this kind.
pub(super) fn api(connection: &Connection) -> Api<DynamicObject> {
    within(connection, &connection.namespace)
}

/// The same of a namespace.
fn within(connection: &Connection, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(connection.client.clone(), namespace, &resource())
}

/// Those of the namespace, or of all. Says, as kubectl get does, that there are none.
pub(super) async fn objects(
    connection: &Connection,
    all_namespaces: bool,
) -> Result<Vec<DynamicObject>, Failure> {
    let (api, namespace) = if all_namespaces {
        let client = connection.client.clone();
        (Api::all_with(client, &resource()), None)
    } else {
        (api(connection), Some(connection.namespace.as_str()))
    };
    let objects = pages(connection, &api, ListParams::default(), Some).await?;
    if objects.is_empty() {
        none_in(namespace)?;
    }
    Ok(objects)
}

/// The object of that name.
pub(super) async fn get(connection: &Connection, name: &str) -> Result<Object, Failure> {
    let raw = connection.answer(api(connection).get(name)).await?;
    Ok(Object::decode(raw)?)
}

/// The same object, as it is now, whatever its namespace is. Another one of its name is an error.
pub(super) async fn get_again(connection: &Connection, object: &Object) -> Result<Object, Failure> {
    let api = within(connection, &object.namespace);
    let raw = connection.answer(api.get(&object.name)).await?;
    let now = Object::decode(raw)?;
    if now.uid == object.uid {
        return Ok(now);
    }
    Err(deleted())
}

/// What a command that waits for an object ends with when that is gone, in kubectl's words.
pub(super) fn deleted() -> Failure {
    "object has been deleted".into()
}

/// The revisions of an object, the oldest first.
pub(super) async fn revisions(
    connection: &Connection,
    object: &Object,
) -> Result<Vec<Revision>, Failure> {
    let api = connection.api::<ControllerRevision>();
    let stored = pages(connection, &api, labelled(&object.name), Some).await?;
    Ok(history(&object.uid, stored))
}

/// The pods and revisions of an object have this label.
pub(super) fn selector(name: &str) -> String {
    format!("{NAME_LABEL}={name}")
}

/// A list of those.
pub(super) fn labelled(name: &str) -> ListParams {
    ListParams::default().labels(&selector(name))
}

/// What is kept of each object, page by page. The rest of a page is dropped before the next one is read.
pub(super) async fn pages<K, T>(
    connection: &Connection,
    api: &Api<K>,
    params: ListParams,
    keep: impl Fn(K) -> Option<T>,
) -> Result<Vec<T>, Failure>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = params.limit(PAGE);
    let (mut kept, mut read) = (Vec::new(), 0);
    loop {
        let page = connection.answer(api.list(&params)).await?;
        read += page.items.len();
        kept.extend(page.items.into_iter().filter_map(&keep));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() || read >= MAX_OBJECTS {
            return Ok(kept);
        }
    }
}

/// Whether the user may not do that.
pub(super) fn is_forbidden(failure: &Failure) -> bool {
    matches!(failure, Failure::Server(status) if status.code == 403)
}

/// Sends a patch, or has it tried out only; returns the object as it is then. Its namespace may be another.
pub(super) async fn patch(
    connection: &Connection,
    object: &Object,
    patch: &Patch<Value>,
    dry_run: bool,
) -> Result<DynamicObject, Failure> {
    let params = patching(dry_run);
    let (api, name) = (within(connection, &object.namespace), &object.name);
    let patched = api.patch(name, &params, patch);
    connection.answer(patched).await
}

/// How a patch is sent, or tried out only.
pub(super) fn patching(dry_run: bool) -> PatchParams {
    PatchParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
