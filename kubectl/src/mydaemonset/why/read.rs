//! The reads: the nodes, the pods by their label, and Events only where a pod needs them. What a user may not list is
//! left out, and named.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Event;
use kube::api::{DynamicObject, ListParams, ObjectMeta};
use kube::core::ApiResource;
use kube::{Api, Resource};
use serde_json::Value;

use super::facts::Warning;
use crate::connection::{Connection, Failure};
use crate::mydaemonset::{cluster, view};

/// What is kept of each object of a kind; `None` if the user may not list them.
pub(super) async fn list<K, T>(
    connection: &Connection,
    params: ListParams,
    keep: impl Fn(Value) -> Option<T>,
) -> Result<Option<Vec<T>>, Failure>
where
    K: Resource<DynamicType = ()>,
{
    let kind = ApiResource::erase::<K>(&());
    let client = connection.client.clone();
    let api: Api<DynamicObject> = if K::plural(&()) == "nodes" {
        Api::all_with(client, &kind)
    } else {
        Api::namespaced_with(client, &connection.namespace, &kind)
    };
    match cluster::pages(connection, &api, params, |object| keep(value(object))).await {
        Ok(read) => Ok(Some(read)),
        Err(failure) if view::is_forbidden(&failure) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Those with the label of an object of that name.
pub(super) fn labelled(name: &str) -> ListParams {
    ListParams::default().labels(&cluster::selector(name))
}

/// The Warnings about the pods of these UIDs; `None` if the user may not list Events.
pub(super) async fn warnings(
    connection: &Connection,
    pods: &BTreeSet<&str>,
) -> Result<Option<BTreeMap<String, Vec<Warning>>>, Failure> {
    let about = match pods.iter().next() {
        Some(pod) if pods.len() == 1 => format!("involvedObject.uid={pod}"),
        // The API server looks at all of the namespace either way.
        _ => "involvedObject.kind=Pod".to_owned(),
    };
    let params = ListParams::default().fields(&format!("{about},type=Warning"));
    let keep = |event| Warning::read(event).filter(|(uid, _)| pods.contains(uid.as_str()));
    let found = list::<Event, _>(connection, params, keep).await?;
    Ok(found.map(|found| {
        let mut by_pod: BTreeMap<String, Vec<Warning>> = BTreeMap::new();
        for (uid, warning) in found {
            by_pod.entry(uid).or_default().push(warning);
        }
        by_pod
    }))
}

/// The object as one value, without `managedFields`.
fn value(object: DynamicObject) -> Value {
    let metadata = ObjectMeta {
        managed_fields: None,
        ..object.metadata
    };
    let mut value = object.data;
    if let Some(fields) = value.as_object_mut() {
        let metadata = serde_json::to_value(metadata).unwrap_or_default();
        fields.insert("metadata".to_owned(), metadata);
    }
    value
}
