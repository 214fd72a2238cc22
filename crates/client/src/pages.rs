//! A bound on the memory of one page of a list.
//!
//! The size of a page is a number of objects, and an object has 1 kB to 3 MB: five hundred large ones would exceed the
//! memory of the process. So reading a page that turns out to be too large fails, and the caller requests that page
//! again with fewer objects. [`Answers`](crate::Answers) has to be a layer of the client.

use std::error::Error;

use http_body_util::LengthLimitError;
use kube::api::{ListParams, ObjectList};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// The size limit of a page in bytes. Whole pages of 500 ordinary objects, of 1 to 8 kB, fit in. The client holds two
/// copies while it reads a page.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A page of at most this many objects has no size limit: etcd stores no object above 1.5 MiB.
pub const SMALLEST: u32 = 8;

/// The size limit of the answer to a query. A watch, or a list of everything at once, has no `limit`.
pub(super) fn most(query: &str) -> usize {
    let mut parameters = query.split('&');
    let limit = parameters.find_map(|parameter| parameter.strip_prefix("limit="));
    let limit: Option<u32> = limit.and_then(|limit| limit.parse().ok());
    let is_limited = limit.is_some_and(|limit| limit > SMALLEST);
    if is_limited { MAX_BYTES } else { usize::MAX }
}

/// Reads a page of a list. Returns its size in bytes, too.
///
/// # Errors
/// When the API server rejects the request, or the page is too large: [`is_too_large`].
pub async fn read<K>(api: &Api<K>, params: &ListParams) -> kube::Result<(ObjectList<K>, usize)>
where
    K: Resource + Clone + DeserializeOwned,
{
    let request = kube::core::Request::new(api.resource_url()).list(params);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let text = api.clone().into_client().request_text(request).await?;
    let list = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
    Ok((list, text.len()))
}

/// Whether a list failed because its page was too large.
pub fn is_too_large(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.is::<LengthLimitError>() {
            return true;
        }
        next = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ListParams;
    use kube::{Api, Client};
    use serde_json::json;
    use simulated_apiserver::{Options, Server};
    use tower::Layer as _;

    use super::*;
    use crate::Answers;

    /// The objects of a server with one object of that size.
    fn objects(bytes: usize) -> Api<ConfigMap> {
        let server = Server::new(Options::default());
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
            "data": {"a": "x".repeat(bytes)}});
        server.direct().create(object).unwrap();
        let connection = server.service("operator");
        Api::all(Client::new(Answers::default().layer(connection), "default"))
    }

    #[tokio::test]
    async fn oversized_pages_are_aborted_except_the_smallest() {
        let (small, large) = (objects(1_000), objects(MAX_BYTES));
        let page = ListParams::default().limit(500);
        assert_eq!(small.list(&page).await.unwrap().items.len(), 1);
        let error = large.list(&page).await.unwrap_err();
        assert!(is_too_large(&error), "{error:?}");
        let smallest = ListParams::default().limit(SMALLEST);
        assert_eq!(large.list(&smallest).await.unwrap().items.len(), 1);
        // A caller that does not ask for pages wants everything at once.
        let all = ListParams::default();
        assert_eq!(large.list(&all).await.unwrap().items.len(), 1);
    }
}
