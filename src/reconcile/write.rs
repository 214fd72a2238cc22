//! How this operator writes: in its own name, strictly, and only to the very object it means.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Key;

/// The operator's name: field manager of its writes and value of [`MANAGED_BY`].
pub const MANAGER: &str = "my-operator";
/// The label that the objects of this operator carry, with [`MANAGER`] as its value.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Parameters of a write in the operator's name.
pub fn params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Parameters of a patch in the operator's name.
pub fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Creates an object from its JSON. A field that the API server does not know would be dropped in
/// silence, and the object would not be what was asked for: it is an error instead.
///
/// # Errors
/// The API server's refusal, or an answer that is no `A`.
pub async fn create<K, A>(client: &Client, namespace: &str, body: Vec<u8>) -> Result<A, kube::Error>
where
    K: Resource<DynamicType = ()>,
    A: DeserializeOwned,
{
    post::<K, A>(client, namespace, body, &params()).await
}

/// Asks how the object would be created as [`create`] does it, and creates nothing.
///
/// # Errors
/// As for [`create`].
pub async fn would_create<K, A>(
    client: &Client,
    namespace: &str,
    body: Vec<u8>,
) -> Result<A, kube::Error>
where
    K: Resource<DynamicType = ()>,
    A: DeserializeOwned,
{
    let params = PostParams {
        dry_run: true,
        ..params()
    };
    post::<K, A>(client, namespace, body, &params).await
}

async fn post<K, A>(
    client: &Client,
    namespace: &str,
    body: Vec<u8>,
    params: &PostParams,
) -> Result<A, kube::Error>
where
    K: Resource<DynamicType = ()>,
    A: DeserializeOwned,
{
    let mut request = Request::new(K::url_path(&(), Some(namespace)))
        .create(params, body)
        .map_err(kube::Error::BuildRequest)?;
    let strict = format!("{}&fieldValidation=Strict", request.uri()).parse();
    *request.uri_mut() =
        strict.map_err(|error| kube::Error::HttpError(axum::http::Error::from(error)))?;
    client.request(request).await
}

/// Writes the status of an object, if it is as it was looked at, and returns the object as it is then.
///
/// # Errors
/// The API server's refusal: a conflict when somebody else wrote meanwhile.
pub async fn status<K, S>(
    client: &Client,
    key: &Key,
    uid: &str,
    resource_version: &str,
    status: &S,
) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
    S: Serialize,
{
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {
            "name": &*key.name,
            "namespace": &*key.namespace,
            "uid": uid,
            "resourceVersion": resource_version,
        },
        "status": status,
    });
    let body = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), Some(&key.namespace)))
        .replace_subresource("status", &key.name, &params(), body)
        .map_err(kube::Error::BuildRequest)?;
    client.request(request).await
}

/// The owner reference that makes the object `name` with that UID the controller of another.
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

/// Deletes this very object and no namesake; with a version, only if it is as it was looked at.
pub fn only(uid: &str, resource_version: Option<&str>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: resource_version.map(str::to_owned),
        }),
        ..DeleteParams::default()
    }
}
