//! The reads: the nodes, the pods by their label, and Events only where a pod needs them. What a user may not list is
//! left out, and named.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::{Api, Resource};
use my_operator_mydaemonset::revision::RevisionView;
use serde_json::Value;

use super::facts::{Fleet, NodeFacts, PodFacts, Warning};
use crate::connection::{Connection, Failure};
use crate::mydaemonset::cluster;

/// All that there is to read of an object, but for Events. Where the user may not list a kind, that is in `missing`.
pub(crate) async fn fleet(
    connection: &Connection,
    name: &str,
    now: DateTime<Utc>,
) -> Result<Fleet, Failure> {
    let mut fleet = Fleet::default();
    let labelled = || cluster::labelled(name);
    // The nodes last: that of a pod which is listed is among them, unless it is gone.
    let keep = |pod| PodFacts::read(pod, now);
    let pods = list::<Pod, _>(connection, labelled(), keep, &mut fleet).await?;
    fleet.pods = pods.unwrap_or_default();
    let keep = |revision: Value| RevisionView::from_json(&revision.to_string()).map(Arc::new);
    let revisions = list::<ControllerRevision, _>(connection, labelled(), keep, &mut fleet).await?;
    fleet.revisions = revisions.unwrap_or_default();
    let keep = |node| NodeFacts::read(node, now).map(|node| (node.view.name.clone(), node));
    let nodes = list::<Node, _>(connection, ListParams::default(), keep, &mut fleet).await?;
    fleet.nodes = nodes.map(|nodes| nodes.into_iter().collect());
    Ok(fleet)
}

/// What is kept of each object of a kind; `None` if the user may not list them.
async fn list<K, T>(
    connection: &Connection,
    params: ListParams,
    keep: impl Fn(Value) -> Option<T>,
    fleet: &mut Fleet,
) -> Result<Option<Vec<T>>, Failure>
where
    K: Resource<DynamicType = ()>,
{
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = if K::plural(&()) == "nodes" {
        Api::all_with(connection.client.clone(), &kind)
    } else {
        connection.api_of(&kind)
    };
    match cluster::pages(connection, &api, params, |object| keep(value(object))).await {
        Ok(read) => Ok(Some(read)),
        Err(failure) if cluster::is_forbidden(&failure) => {
            fleet.missing.push((K::plural(&()), failure));
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Adds the Warnings about the pods of these UIDs.
pub(super) async fn warnings(
    connection: &Connection,
    pods: &BTreeSet<String>,
    fleet: &mut Fleet,
) -> Result<(), Failure> {
    let about = match pods.first() {
        Some(pod) if pods.len() == 1 => format!("involvedObject.uid={pod}"),
        // The API server looks at all of the namespace either way.
        _ => "involvedObject.kind=Pod".to_owned(),
    };
    let params = ListParams::default().fields(&format!("{about},type=Warning"));
    let keep = |event| Warning::read(event).filter(|(uid, _)| pods.contains(uid));
    let found = list::<Event, _>(connection, params, keep, fleet).await?;
    for (uid, warning) in found.into_iter().flatten() {
        fleet.warnings.entry(uid).or_default().push(warning);
    }
    Ok(())
}

/// The object as one value, without `managedFields`.
fn value(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    serde_json::to_value(object).unwrap_or_default()
}
