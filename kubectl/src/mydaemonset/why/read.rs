//! The reads: the nodes, the pods by their label, and Events only where a pod needs them. What a user may not list is
//! left out, and named.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::{DynamicObject, ListParams, ObjectMeta};
use kube::core::ApiResource;
use serde_json::Value;

use super::facts::{NodeFacts, PodFacts, Warning};
use crate::connection::{Connection, Failure};
use crate::mydaemonset::{cluster, view};

/// The nodes, by name; `None` if the user may not list them.
pub(super) async fn nodes(
    connection: &Connection,
    now: DateTime<Utc>,
) -> Result<Option<BTreeMap<String, NodeFacts>>, Failure> {
    let kind = ApiResource::erase::<Node>(&());
    let api: Api<DynamicObject> = Api::all_with(connection.client.clone(), &kind);
    let read = |object| NodeFacts::read(value(object), now);
    let nodes = cluster::pages(connection, &api, ListParams::default(), read).await;
    let nodes = permitted(nodes)?;
    let by_name = |node: NodeFacts| (node.view.name.clone(), node);
    Ok(nodes.map(|nodes| nodes.into_iter().map(by_name).collect()))
}

/// The pods with the label of an object of that name; `None` if the user may not list them.
pub(super) async fn pods(
    connection: &Connection,
    name: &str,
    now: DateTime<Utc>,
) -> Result<Option<Vec<PodFacts>>, Failure> {
    let api = namespaced(connection, &ApiResource::erase::<Pod>(&()));
    let params = ListParams {
        label_selector: Some(cluster::selector(name)),
        ..ListParams::default()
    };
    let read = |object| PodFacts::read(value(object), now);
    permitted(cluster::pages(connection, &api, params, read).await)
}

/// The Warnings about the pods of these UIDs; `None` if the user may not list Events.
pub(super) async fn warnings(
    connection: &Connection,
    pods: &BTreeSet<&str>,
) -> Result<Option<BTreeMap<String, Vec<Warning>>>, Failure> {
    let about = match pods.iter().next() {
        None => return Ok(Some(BTreeMap::new())),
        Some(pod) if pods.len() == 1 => format!("involvedObject.uid={pod}"),
        // The API server looks at all of the namespace either way.
        Some(_) => "involvedObject.kind=Pod".to_owned(),
    };
    let api = namespaced(connection, &ApiResource::erase::<Event>(&()));
    let params = ListParams {
        field_selector: Some(format!("{about},type=Warning")),
        ..ListParams::default()
    };
    let read = |event| {
        let (uid, warning) = Warning::read(&value(event))?;
        pods.contains(uid.as_str()).then_some((uid, warning))
    };
    let found = permitted(cluster::pages(connection, &api, params, read).await)?;
    Ok(found.map(|found| {
        let mut by_pod: BTreeMap<String, Vec<Warning>> = BTreeMap::new();
        for (uid, warning) in found {
            by_pod.entry(uid).or_default().push(warning);
        }
        by_pod
    }))
}

fn namespaced(connection: &Connection, kind: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(connection.client.clone(), &connection.namespace, kind)
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

/// What was read, unless the user may not read it.
fn permitted<T>(read: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(failure) if view::is_forbidden(&failure) => Ok(None),
        Err(failure) => Err(failure),
    }
}
