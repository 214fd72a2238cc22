//! The requests of a migration: what is in the cluster, and each step.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{
    DeleteParams, DynamicObject, NotUsed, Object, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::steps::{
    Direction, Kept, Live, Marker, Pod, Relabel, Side, State, Step, guarded, is_guarded, unmarked,
};
use super::translate::{MARKER, manifest, selector};
use crate::connection::{Connection, Failure};
use crate::mydaemonset::cluster::{FIELD_MANAGER, list, selector as by_name};
use crate::mydaemonset::object;

/// Requests at a time.
const PARALLEL: usize = 16;
/// Where the `ConfigMap` has the direction and the manifests.
const DIRECTION: &str = "direction";
const DAEMON_SET: &str = "daemonset.json";
const OURS: &str = "mydaemonset.json";

/// What is read of a pod's spec.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
    affinity: Value,
}

/// A pod without what is of no interest here: there may be thousands.
type SlimPod = Object<PodSpec, NotUsed>;

/// The requests about the objects of one name.
pub(super) struct Requests<'a> {
    pub(super) connection: &'a Connection,
    pub(super) name: &'a str,
}

/// The name of the `ConfigMap`.
pub(super) fn kept_name(name: &str) -> String {
    format!("{name}-migration")
}

/// What the API server says of an object that is not there.
fn if_there<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Ok(there) => Ok(Some(there)),
        Err(kube::Error::Api(status)) if status.reason == "NotFound" => Ok(None),
        Err(error) => Err(error),
    }
}

impl Requests<'_> {
    fn api(&self, side: Side) -> Api<DynamicObject> {
        let kind = match side {
            Side::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
            Side::Ours => object::resource(),
        };
        let client = self.connection.client.clone();
        Api::namespaced_with(client, &self.connection.namespace, &kind)
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.connection.client.clone(), &self.connection.namespace)
    }

    fn pods(&self) -> Api<SlimPod> {
        let kind = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        let client = self.connection.client.clone();
        Api::namespaced_with(client, &self.connection.namespace, &kind)
    }

    fn failed(&self) -> impl Fn(kube::Error) -> Failure + '_ {
        |error| self.connection.failure(error)
    }

    /// The object of that side as it is stored.
    pub(super) async fn stored(&self, side: Side) -> Result<Option<Value>, Failure> {
        let got = if_there(self.api(side).get(self.name).await).map_err(self.failed())?;
        let Some(object) = got else {
            return Ok(None);
        };
        let value = serde_json::to_value(object);
        value
            .map(Some)
            .map_err(|error| Failure::Message(error.to_string()))
    }

    /// Everything that the next step depends on.
    pub(super) async fn observe(&self) -> Result<State, Failure> {
        let kept = self.kept().await?;
        let daemon_set = self.stored(Side::DaemonSet).await?;
        let ours = self.stored(Side::Ours).await?;
        let selected = match (&kept, &daemon_set) {
            (Some(kept), _) => kept.daemon_set["spec"]["selector"].clone(),
            (None, Some(daemon_set)) => daemon_set["spec"]["selector"].clone(),
            (None, None) => Value::Null,
        };
        let pods = self.pods_of(&selected).await?;
        Ok(State {
            name: self.name.to_owned(),
            kept,
            daemon_set: daemon_set.as_ref().map(live),
            ours: ours.as_ref().map(live),
            pods,
        })
    }

    async fn kept(&self) -> Result<Option<Kept>, Failure> {
        let name = kept_name(self.name);
        let got = if_there(self.config_maps().get(&name).await).map_err(self.failed())?;
        let Some(stored) = got else {
            return Ok(None);
        };
        let labels = stored.metadata.labels.unwrap_or_default();
        let is_ours = labels.get(MARKER).is_some_and(|it| it == self.name);
        let data = stored.data.filter(|_| is_ours).unwrap_or_default();
        kept(&data).map(Some).ok_or_else(|| {
            Failure::Message(format!(
                "configmap/{name} is not one of a migration: rename or delete it"
            ))
        })
    }

    async fn pods_of(&self, selected: &Value) -> Result<Vec<Pod>, Failure> {
        let mut labels = vec![by_name(self.name)];
        if !selected.is_null() {
            labels.push(selector(selected).map_err(Failure::Message)?.to_string());
        }
        let mut pods = BTreeMap::new();
        for labels in labels {
            for pod in list(self.connection, &self.pods(), Some(&labels)).await? {
                let pod = slim(pod);
                pods.insert(pod.name.clone(), pod);
            }
        }
        Ok(pods.into_values().collect())
    }

    /// Carries out a step. Returns what happened, as kubectl says it.
    pub(super) async fn act(&self, step: &Step, state: &State) -> Result<String, Failure> {
        let name = self.name;
        match step {
            Step::Keep(kept) => self.keep(kept, state.kept.is_some()).await,
            Step::Stop(side) => {
                self.stop(*side, state).await?;
                Ok(format!("{} stopped", side.full_name(name)))
            }
            Step::Label(relabels) => {
                self.label(relabels).await?;
                Ok(format!("{} labelled", count(relabels.len(), "pod")))
            }
            Step::Orphan(side) => {
                self.orphan(*side, state).await?;
                Ok(format!("{} deleted, its pods stay", side.full_name(name)))
            }
            Step::DeleteUnplaced(pods) => {
                self.delete_unplaced(pods).await?;
                Ok(format!(
                    "{} without a node deleted",
                    count(pods.len(), "pod")
                ))
            }
            Step::Create(side) => {
                if let Some(kept) = &state.kept {
                    let manifest = kept.manifest(*side);
                    let manifest = match side {
                        Side::Ours => manifest.clone(),
                        Side::DaemonSet => guarded(manifest, name),
                    };
                    self.create(*side, &manifest, false).await?;
                }
                Ok(format!("{} created", side.full_name(name)))
            }
            Step::Finish(side) => {
                self.finish(*side, state).await?;
                Ok(format!("{} takes over", side.full_name(name)))
            }
            Step::Wait(_) | Step::Follow => Ok(String::new()),
        }
    }

    async fn keep(&self, kept: &Kept, exists: bool) -> Result<String, Failure> {
        let name = kept_name(self.name);
        let direction = match kept.direction {
            Direction::Forward => "forward",
            Direction::Back => "back",
        };
        let data = json!({
            DIRECTION: direction,
            DAEMON_SET: kept.daemon_set.to_string(),
            OURS: kept.ours.to_string(),
        });
        if exists {
            let patch = Patch::Merge(json!({"data": data}));
            let patched = self.config_maps().patch(&name, &patching(), &patch).await;
            patched.map_err(self.failed())?;
            return Ok(format!("configmap/{name} configured"));
        }
        let object =
            json!({"metadata": {"name": name, "labels": {MARKER: self.name}}, "data": data});
        let object = serde_json::from_value(object);
        let object: ConfigMap = object.map_err(|error| Failure::Message(error.to_string()))?;
        let created = self.config_maps().create(&posting(false), &object).await;
        created.map_err(self.failed())?;
        Ok(format!("configmap/{name} created"))
    }

    /// Deletes what was kept. Returns what had to stay.
    pub(super) async fn forget(&self) -> Result<Option<String>, Failure> {
        let left = match self.kept().await? {
            Some(kept) => self.delete_guarded_revisions(&kept.daemon_set).await?,
            None => None,
        };
        let name = kept_name(self.name);
        let params = DeleteParams::default();
        let deleted = self.config_maps().delete(&name, &params).await;
        if_there(deleted).map_err(self.failed())?;
        Ok(left)
    }

    /// Deletes the revisions of the guarded `DaemonSet`: `kubectl rollout undo` would go back to one. The role edit may not.
    async fn delete_guarded_revisions(
        &self,
        daemon_set: &Value,
    ) -> Result<Option<String>, Failure> {
        let client = self.connection.client.clone();
        let api: Api<ControllerRevision> = Api::namespaced(client, &self.connection.namespace);
        let selector = selector(&daemon_set["spec"]["selector"]).map_err(Failure::Message)?;
        let revisions = list(self.connection, &api, Some(&selector.to_string())).await?;
        for revision in revisions {
            let content = revision.data.map(|data| data.0).unwrap_or_default();
            if !is_guarded(&content, self.name) || is_guarded(daemon_set, self.name) {
                continue;
            }
            let name = revision.metadata.name.unwrap_or_default();
            match if_there(api.delete(&name, &DeleteParams::default()).await) {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    return Ok(Some(format!(
                        "You may not delete controllerrevisions.apps: {name} stays, which kubectl rollout undo must not go back to"
                    )));
                }
                Err(error) => return Err(self.connection.failure(error)),
            }
        }
        Ok(None)
    }

    async fn stop(&self, side: Side, state: &State) -> Result<(), Failure> {
        let Some(live) = state.live(side) else {
            return Ok(());
        };
        let strategy = match side {
            Side::DaemonSet => json!({"type": "OnDelete", "rollingUpdate": null}),
            Side::Ours if live.manifest["spec"]["updateStrategy"]["type"] == "OnDelete" => {
                json!({})
            }
            Side::Ours => json!({"rollingUpdate": {"paused": true}}),
        };
        let patch = json!({
            "metadata": {
                "uid": live.uid, "resourceVersion": live.version,
                "annotations": {MARKER: Marker::Stopped.text()},
            },
            "spec": {"updateStrategy": strategy},
        });
        let api = self.api(side);
        let patch = Patch::Merge(patch);
        let patched = api.patch(self.name, &patching(), &patch).await;
        patched.map_err(self.failed())?;
        Ok(())
    }

    async fn label(&self, relabels: &[Relabel]) -> Result<(), Failure> {
        let pods = self.pods();
        let calls = relabels.iter().map(|relabel| {
            let pods = &pods;
            async move {
                // The UID is a precondition: a namesake is not changed.
                let patch = json!({"metadata": {"uid": relabel.uid, "labels": relabel.labels}});
                let patch = Patch::Merge(patch);
                let patched = pods.patch_metadata(&relabel.pod, &patching(), &patch).await;
                if_there(patched).map(drop)
            }
        });
        let calls = stream::iter(calls).buffer_unordered(PARALLEL);
        calls.try_collect::<()>().await.map_err(self.failed())
    }

    async fn orphan(&self, side: Side, state: &State) -> Result<(), Failure> {
        let Some(live) = state.live(side) else {
            return Ok(());
        };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            // With the version: what is kept is of this one.
            preconditions: Some(Preconditions {
                uid: Some(live.uid.clone()),
                resource_version: Some(live.version.clone()),
            }),
            ..DeleteParams::default()
        };
        let deleted = self.api(side).delete(self.name, &params).await;
        if_there(deleted).map_err(self.failed())?;
        Ok(())
    }

    async fn delete_unplaced(&self, pods: &[Pod]) -> Result<(), Failure> {
        let api = self.pods();
        let calls = pods.iter().map(|pod| {
            let api = &api;
            async move {
                let params = DeleteParams {
                    // The scheduler's binding changes the version: a pod that has a node by now stays.
                    preconditions: Some(Preconditions {
                        uid: Some(pod.uid.clone()),
                        resource_version: Some(pod.version.clone()),
                    }),
                    ..DeleteParams::default()
                };
                if_there(api.delete(&pod.name, &params).await).map(drop)
            }
        });
        let calls = stream::iter(calls).buffer_unordered(PARALLEL);
        calls.try_collect::<()>().await.map_err(self.failed())
    }

    /// Creates an object, or has the API server judge it only.
    pub(super) async fn create(
        &self,
        side: Side,
        manifest: &Value,
        dry_run: bool,
    ) -> Result<(), Failure> {
        let object = serde_json::from_value(manifest.clone());
        let object: DynamicObject = object.map_err(|error| Failure::Message(error.to_string()))?;
        let created = self.api(side).create(&posting(dry_run), &object).await;
        created.map_err(self.failed())?;
        Ok(())
    }

    async fn finish(&self, side: Side, state: &State) -> Result<(), Failure> {
        let (Some(live), Some(kept)) = (state.live(side), &state.kept) else {
            return Ok(());
        };
        let wanted = unmarked(side, live, kept, self.name);
        let marker = MARKER.replace('/', "~1");
        let mut operations = vec![
            json!({"op": "replace", "path": "/metadata/uid", "value": live.uid}),
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": live.version}),
            json!({"op": "remove", "path": format!("/metadata/annotations/{marker}")}),
        ];
        // Nothing else was changed.
        for path in ["/spec/updateStrategy", "/spec/template/spec/affinity"] {
            match (live.manifest.pointer(path), wanted.pointer(path)) {
                (before, after) if before == after => {}
                (_, Some(value)) => {
                    operations.push(json!({"op": "add", "path": path, "value": value}));
                }
                (_, None) => operations.push(json!({"op": "remove", "path": path})),
            }
        }
        let operations = serde_json::from_value(operations.into());
        let operations = operations.map_err(|error| Failure::Message(error.to_string()))?;
        let patch: Patch<()> = Patch::Json(operations);
        let patched = self.api(side).patch(self.name, &patching(), &patch).await;
        patched.map_err(self.failed())?;
        Ok(())
    }

    /// The rights that a migration in that direction needs and the user has not.
    pub(super) async fn missing_rights(
        &self,
        rights: &[(&'static str, &'static str, &[&'static str])],
    ) -> Result<Vec<String>, Failure> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.connection.client.clone());
        let namespace = &self.connection.namespace;
        let calls = rights.iter().flat_map(|(group, resource, verbs)| {
            let api = &api;
            verbs.iter().map(move |verb| async move {
                let review = json!({"spec": {"resourceAttributes": {
                    "namespace": namespace, "verb": verb, "group": group, "resource": resource,
                }}});
                let review: SelfSubjectAccessReview = serde_json::from_value(review)
                    .map_err(|error| Failure::Message(error.to_string()))?;
                let answer = api.create(&PostParams::default(), &review).await;
                let answer = answer.map_err(self.failed())?;
                let is_allowed = answer.status.is_some_and(|status| status.allowed);
                let dot = if group.is_empty() { "" } else { "." };
                Ok::<_, Failure>((!is_allowed).then(|| format!("{verb} {resource}{dot}{group}")))
            })
        });
        let calls: Vec<_> = calls.collect();
        let missing = stream::iter(calls).buffered(PARALLEL);
        let missing: Vec<Option<String>> = missing.try_collect().await?;
        Ok(missing.into_iter().flatten().collect())
    }
}

impl Side {
    /// As kubectl names an object.
    pub(super) fn full_name(self, name: &str) -> String {
        match self {
            Self::DaemonSet => format!("daemonset.apps/{name}"),
            Self::Ours => format!("mydaemonset.apps.zhongmingmao.io/{name}"),
        }
    }
}

fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

fn posting(dry_run: bool) -> PostParams {
    PostParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    }
}

fn patching() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn kept(data: &BTreeMap<String, String>) -> Option<Kept> {
    let manifest = |key: &str| serde_json::from_str(data.get(key)?).ok();
    Some(Kept {
        direction: match data.get(DIRECTION)?.as_str() {
            "forward" => Direction::Forward,
            "back" => Direction::Back,
            _ => return None,
        },
        daemon_set: manifest(DAEMON_SET)?,
        ours: manifest(OURS)?,
    })
}

/// Kind and name of the controller in the metadata of an object.
fn controller(metadata: &Value) -> Option<String> {
    let owners = metadata["ownerReferences"].as_array();
    let owner = owners?.iter().find(|owner| owner["controller"] == true)?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    Some(format!("{} {}", text("kind"), text("name")))
}

fn live(object: &Value) -> Live {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let generation = metadata["generation"].as_i64();
    let observed = object["status"]["observedGeneration"].as_i64();
    Live {
        uid: text("uid"),
        version: text("resourceVersion"),
        is_observed: observed >= generation,
        is_deleting: metadata.get("deletionTimestamp").is_some(),
        is_as_created: generation == Some(1),
        controller: controller(metadata),
        marker: metadata["annotations"][MARKER].as_str().map(Marker::parse),
        manifest: manifest(object),
    }
}

fn slim(pod: SlimPod) -> Pod {
    let metadata = pod.metadata;
    let owners = metadata.owner_references.unwrap_or_default();
    let controller = owners.into_iter().find(|it| it.controller == Some(true));
    Pod {
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        version: metadata.resource_version.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        controller: controller.map(|owner| (owner.kind, owner.name)),
        meant_for: meant_for(&pod.spec.affinity),
        node: pod.spec.node_name,
        is_deleting: metadata.deletion_timestamp.is_some(),
    }
}

/// The node that the built-in controller makes a pod for: it leaves the placing to the scheduler.
fn meant_for(affinity: &Value) -> String {
    let required = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = required["nodeSelectorTerms"].as_array();
    let fields = terms
        .into_iter()
        .flatten()
        .filter_map(|term| term["matchFields"].as_array())
        .flatten();
    let mut names = fields
        .filter(|field| field["key"] == "metadata.name")
        .filter_map(|field| field["values"][0].as_str());
    names.next().unwrap_or_default().to_owned()
}
