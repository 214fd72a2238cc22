//! The calls that write.

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::reconcile::Key;

/// Parameters of a write with that field manager.
fn params(manager: &str) -> PostParams {
    PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    }
}

/// Creates an object of the kind `K` from its JSON, with the field manager `manager`, and reads the answer as an `A`:
/// `K` itself, or a smaller type. A field unknown to the API server is an error: dropped silently, it would leave an
/// object other than the requested one.
///
/// # Errors
/// When the API server rejects the object, or its answer cannot be read as an `A`.
pub async fn create<K, A>(
    client: &Client,
    namespace: &str,
    body: Vec<u8>,
    manager: &str,
) -> Result<A, kube::Error>
where
    K: Resource<DynamicType = ()>,
    A: DeserializeOwned,
{
    post::<K, A>(client, namespace, body, &params(manager)).await
}

/// A dry run of [`create`]: returns the object as it would be created.
///
/// # Errors
/// As for [`create`].
pub async fn would_create<K, A>(
    client: &Client,
    namespace: &str,
    body: Vec<u8>,
    manager: &str,
) -> Result<A, kube::Error>
where
    K: Resource<DynamicType = ()>,
    A: DeserializeOwned,
{
    let params = PostParams {
        dry_run: true,
        ..params(manager)
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
        strict.map_err(|error| kube::Error::HttpError(http::Error::from(error)))?;
    client.request(request).await
}

/// Writes the status of an object if its resource version has not changed, and returns the updated object.
///
/// # Errors
/// When the API server rejects the write: a conflict when another client wrote meanwhile.
pub async fn status<K, S>(
    client: &Client,
    key: &Key,
    uid: &str,
    resource_version: &str,
    status: &S,
    manager: &str,
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
        .replace_subresource("status", &key.name, &params(manager), body)
        .map_err(kube::Error::BuildRequest)?;
    client.request(request).await
}

/// Deletes the object with this UID; with a version, only if its resource version has not changed.
pub fn only(uid: &str, resource_version: Option<&str>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: resource_version.map(str::to_owned),
        }),
        ..DeleteParams::default()
    }
}
