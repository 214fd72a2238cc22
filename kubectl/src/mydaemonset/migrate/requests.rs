//! The requests of a migration: what is in the cluster, and each step.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::PodCondition;
use kube::Api;
use kube::api::{
    DeleteParams, DynamicObject, Object, Patch, PostParams, Preconditions, PropagationPolicy,
};
use kube::core::ApiResource;
use my_operator_mydaemonset::names::MIGRATION_ANNOTATION;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::steps::{Change, Direction, Live, Pod, Side, State, Step, mark, settled};
use super::translate::{member, selector};
use crate::connection::{Connection, Failure};
use crate::mydaemonset::cluster::{FIELD_MANAGER, list, patching, selector as by_name};
use crate::mydaemonset::object;

/// Requests at a time.
const PARALLEL: usize = 16;

/// What is read of a pod's spec.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
    affinity: Value,
}

/// What is read of its status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
    conditions: Vec<PodCondition>,
}

/// A pod without what is of no interest here: there may be thousands.
type SlimPod = Object<PodSpec, PodStatus>;

/// The requests about the objects of one name.
pub(super) struct Requests<'a> {
    pub(super) connection: &'a Connection,
    pub(super) name: &'a str,
    pub(super) direction: Direction,
}

/// What the API server says of an object that is not there.
fn if_there<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(there) => Ok(Some(there)),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}

impl Requests<'_> {
    fn api(&self, side: Side) -> Api<DynamicObject> {
        let kind = match side {
            Side::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
            Side::Ours => object::resource(),
        };
        self.connection.api_of(&kind)
    }

    fn pods(&self) -> Api<SlimPod> {
        let kind = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        self.connection.api_of(&kind)
    }

    /// The object of that side as it is stored.
    pub(super) async fn stored(&self, side: Side) -> Result<Option<Value>, Failure> {
        let got = self.connection.answer(self.api(side).get(self.name)).await;
        let Some(object) = if_there(got)? else {
            return Ok(None);
        };
        Ok(Some(serde_json::to_value(object)?))
    }

    /// Everything that the next step depends on.
    pub(super) async fn observe(&self) -> Result<State, Failure> {
        let daemon_set = self.stored(Side::DaemonSet).await?;
        let ours = self.stored(Side::Ours).await?.map(Live);
        let kept = ours.as_ref().and_then(Live::kept);
        let selected = daemon_set.as_ref().or(kept.as_ref());
        let selected = selected.map_or(&Value::Null, |it| &it["spec"]["selector"]);
        let pods = self.pods_of(selected).await?;
        Ok(State {
            name: self.name.to_owned(),
            daemon_set: daemon_set.map(Live),
            ours,
            pods,
        })
    }

    async fn pods_of(&self, selected: &Value) -> Result<Vec<Pod>, Failure> {
        let mut labels = vec![by_name(self.name)];
        if !selected.is_null() {
            labels.push(selector(selected)?.to_string());
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
            Step::Create(side, object) => {
                let mut object = object.clone();
                if *side == Side::Ours {
                    let place = ["metadata", "annotations", MIGRATION_ANNOTATION];
                    *member(&mut object, &place) = mark(self.direction, name).into();
                }
                self.create(*side, &object, false).await?;
                Ok(format!("{} created", side.full_name(name)))
            }
            Step::Begin => {
                let annotations = json!({MIGRATION_ANNOTATION: mark(self.direction, name)});
                let change = json!({"metadata": {"annotations": annotations}});
                self.merge(Side::Ours, state, change).await?;
                Ok(format!("{} annotated", Side::Ours.full_name(name)))
            }
            Step::Stop => {
                self.stop(state).await?;
                Ok(format!("{} stopped", Side::DaemonSet.full_name(name)))
            }
            Step::Change(changes) => {
                self.change(changes).await?;
                let is_release = changes.iter().any(|change| change.owner.is_some());
                let verb = if is_release { "released" } else { "labelled" };
                Ok(format!("{} {verb}", count(changes.len(), "pod")))
            }
            Step::Orphan(side) => {
                self.orphan(*side, state).await?;
                Ok(format!("{} deleted, its pods stay", side.full_name(name)))
            }
            Step::Delete(pods, why) => {
                self.delete(pods).await?;
                Ok(format!("{} {why} deleted", count(pods.len(), "pod")))
            }
            Step::Finish(side) => {
                match side {
                    Side::DaemonSet => self.finish(state).await?,
                    Side::Ours => {
                        let annotations = json!({MIGRATION_ANNOTATION: null});
                        let change = json!({"metadata": {"annotations": annotations}});
                        self.merge(Side::Ours, state, change).await?;
                    }
                }
                Ok(format!("{} takes over", side.full_name(name)))
            }
            Step::Wait(_) | Step::Follow => Ok(String::new()),
        }
    }

    /// An object as it is now, if a step that was decided on by what was seen still fits: only its status has changed.
    async fn same(&self, side: Side, state: &State) -> Result<Option<Live>, Failure> {
        let means = |live: &Live| {
            let metadata = &live.0["metadata"];
            ["uid", "generation", "annotations"].map(|field| metadata[field].clone())
        };
        let now = self.stored(side).await?.map(Live);
        let seen = state.live(side);
        let is_same = seen.map(means) == now.as_ref().map(means);
        // One that was changed meanwhile fails with a conflict.
        Ok(if is_same { now } else { seen.cloned() })
    }

    /// Changes an object as it was seen, and no other.
    async fn merge(&self, side: Side, state: &State, mut change: Value) -> Result<(), Failure> {
        let Some(live) = self.same(side, state).await? else {
            return Ok(());
        };
        *member(&mut change, &["metadata", "uid"]) = live.uid().into();
        *member(&mut change, &["metadata", "resourceVersion"]) = live.version().into();
        let (api, patch) = (self.api(side), Patch::Merge(change));
        let params = patching(false);
        let patched = api.patch(self.name, &params, &patch);
        self.connection.answer(patched).await.map(drop)
    }

    async fn stop(&self, state: &State) -> Result<(), Failure> {
        let object = state.daemon_set.as_ref().map(|live| &live.0);
        let strategy = object.map(|object| object["spec"]["updateStrategy"].to_string());
        let change = json!({
            "metadata": {"annotations": {MIGRATION_ANNOTATION: strategy}},
            "spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}},
        });
        self.merge(Side::DaemonSet, state, change).await
    }

    async fn change(&self, changes: &[Change]) -> Result<(), Failure> {
        let (connection, pods) = (self.connection, self.pods());
        let calls = changes.iter().map(|change| {
            let pods = &pods;
            async move {
                // The UID is a precondition: a namesake is not changed.
                let mut metadata = json!({"uid": change.uid, "labels": change.labels});
                if let Some(owner) = &change.owner {
                    metadata["ownerReferences"] = json!([{"$patch": "delete", "uid": owner}]);
                }
                let patch = Patch::Strategic(json!({"metadata": metadata}));
                let params = patching(false);
                let patched = pods.patch_metadata(&change.pod, &params, &patch);
                if_there(connection.answer(patched).await).map(drop)
            }
        });
        let calls = stream::iter(calls).buffer_unordered(PARALLEL);
        calls.try_collect::<()>().await
    }

    async fn orphan(&self, side: Side, state: &State) -> Result<(), Failure> {
        let Some(live) = self.same(side, state).await? else {
            return Ok(());
        };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            // With the version: the other object came from this one.
            preconditions: Some(Preconditions {
                uid: Some(live.uid().to_owned()),
                resource_version: Some(live.version().to_owned()),
            }),
            ..DeleteParams::default()
        };
        let api = self.api(side);
        let deleted = api.delete(self.name, &params);
        if_there(self.connection.answer(deleted).await).map(drop)
    }

    async fn delete(&self, pods: &[Pod]) -> Result<(), Failure> {
        let (connection, api) = (self.connection, self.pods());
        let calls = pods.iter().map(|pod| {
            let api = &api;
            async move {
                let params = DeleteParams {
                    // A pod that was placed or got ready meanwhile has another version, and stays.
                    preconditions: Some(Preconditions {
                        uid: Some(pod.uid.clone()),
                        resource_version: Some(pod.version.clone()),
                    }),
                    ..DeleteParams::default()
                };
                let deleted = api.delete(&pod.name, &params);
                if_there(connection.answer(deleted).await).map(drop)
            }
        });
        let calls = stream::iter(calls).buffer_unordered(PARALLEL);
        calls.try_collect::<()>().await
    }

    /// Creates an object, or has the API server judge it only.
    pub(super) async fn create(
        &self,
        side: Side,
        manifest: &Value,
        dry_run: bool,
    ) -> Result<(), Failure> {
        let object: DynamicObject = serde_json::from_value(manifest.clone())?;
        let (api, params) = (self.api(side), posting(dry_run));
        let created = api.create(&params, &object);
        self.connection.answer(created).await.map(drop)
    }

    /// Gives the `DaemonSet` its own template and strategy, if it still is as it was seen.
    async fn finish(&self, state: &State) -> Result<(), Failure> {
        let Some(live) = self.same(Side::DaemonSet, state).await? else {
            return Ok(());
        };
        let object: DynamicObject = serde_json::from_value(settled(&live, self.name)?)?;
        let (api, params) = (self.api(Side::DaemonSet), posting(false));
        let replaced = api.replace(self.name, &params, &object);
        self.connection.answer(replaced).await.map(drop)
    }

    /// Fails if the cluster has an older operator, which would make a second pod on each node at once: the CRD, which is
    /// installed with it, names the annotation.
    pub(super) async fn is_understood(&self) -> Result<(), Failure> {
        let request = http::Request::get("/openapi/v3/apis/apps.zhongmingmao.io/v1beta1");
        let request = request
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        let text = self.connection.client.request_text(request);
        let text = self.connection.answer(text).await?;
        if text.contains(MIGRATION_ANNOTATION) {
            return Ok(());
        }
        let text = "the my-operator of this cluster is too old for migrations: upgrade it first";
        Err(text.into())
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
                let review: SelfSubjectAccessReview = serde_json::from_value(review)?;
                let params = PostParams::default();
                let answer = self.connection.answer(api.create(&params, &review)).await?;
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

fn slim(pod: SlimPod) -> Pod {
    let metadata = pod.metadata;
    let owners = metadata.owner_references.unwrap_or_default();
    let controller = owners.into_iter().find(|it| it.controller == Some(true));
    let status = pod.status.unwrap_or_default();
    let mut conditions = status.conditions.into_iter();
    Pod {
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        version: metadata.resource_version.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        controller,
        meant_for: meant_for(&pod.spec.affinity),
        node: pod.spec.node_name,
        is_deleting: metadata.deletion_timestamp.is_some(),
        has_ended: ["Succeeded", "Failed"].contains(&status.phase.as_str()),
        is_ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
        created: metadata
            .creation_timestamp
            .map_or(0, |time| time.0.as_second()),
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
