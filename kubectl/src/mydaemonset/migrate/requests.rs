//! The requests of a migration: what is in the cluster, and each step.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PostParams, Preconditions};
use kube::core::ApiResource;
use my_operator_kind::watched::controller;
use my_operator_mydaemonset::names::MIGRATION_ANNOTATION;
use serde_json::{Value, json};

use super::plan;
use super::steps::{Change, Live, MARK, Pod, Side, State, Step, count, mark, settled};
use super::translate::{member, selector};
use crate::connection::{Connection, Failure};
use crate::mydaemonset::cluster::{FIELD_MANAGER, pages, patching, selector as by_name};
use crate::mydaemonset::object;

/// Requests at a time.
const PARALLEL: usize = 16;

/// The requests about the objects of one name.
pub(super) struct Requests<'a> {
    pub(super) connection: &'a Connection,
    pub(super) name: &'a str,
    /// Which of them it leads to.
    pub(super) to: Side,
}

impl Requests<'_> {
    fn api(&self, side: Side) -> Api<DynamicObject> {
        let kind = match side {
            Side::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
            Side::Ours => object::resource(),
        };
        self.connection.api_of(&kind)
    }

    fn pods(&self) -> Api<v1::Pod> {
        self.connection.api()
    }

    /// The answer to a request about an object that may not be there.
    async fn if_there<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<Option<T>, Failure> {
        match self.connection.answer(request).await {
            Err(failure) if failure.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// The object of that side as it is stored.
    pub(super) async fn stored(&self, side: Side) -> Result<Option<Value>, Failure> {
        let object = self.if_there(self.api(side).get(self.name)).await?;
        Ok(object.map(serde_json::to_value).transpose()?)
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
        let mut pods: BTreeMap<String, Pod> = BTreeMap::new();
        for labels in labels {
            let params = ListParams::default().labels(&labels);
            let named = |pod| {
                let pod = slim(pod);
                Some((pod.name.clone(), pod))
            };
            pods.extend(pages(self.connection, &self.pods(), params, named).await?);
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
                    *member(&mut object, &MARK) = mark(self.to, name).into();
                }
                self.create(*side, &object, false).await?;
                Ok(format!("{} created", side.full_name(name)))
            }
            Step::Begin => {
                let mark = mark(self.to, name).into();
                self.merge(Side::Ours, state, mark, json!({})).await?;
                Ok(format!("{} annotated", Side::Ours.full_name(name)))
            }
            Step::Stop => {
                let strategy = state.daemon_set.as_ref();
                let strategy = strategy.map(|live| live.0["spec"]["updateStrategy"].to_string());
                let stopped = json!({"type": "OnDelete", "rollingUpdate": null});
                let change = json!({"spec": {"updateStrategy": stopped}});
                self.merge(Side::DaemonSet, state, strategy.into(), change)
                    .await?;
                Ok(format!("{} stopped", Side::DaemonSet.full_name(name)))
            }
            Step::Change(changes) => {
                self.change(changes).await?;
                let is_release = changes.iter().any(|change| change.owner.is_some());
                let verb = if is_release { "released" } else { "labelled" };
                Ok(format!("{} {verb}", count(changes.len())))
            }
            Step::Orphan(side) => {
                self.orphan(*side, state).await?;
                Ok(format!("{} deleted, its pods stay", side.full_name(name)))
            }
            Step::Delete(pods, why) => {
                self.delete(pods).await?;
                Ok(format!("{} {why} deleted", count(pods.len())))
            }
            Step::Finish(side) => {
                match side {
                    Side::DaemonSet => self.finish(state).await?,
                    Side::Ours => {
                        self.merge(Side::Ours, state, Value::Null, json!({}))
                            .await?;
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

    /// Changes an object as it was seen, and no other. `mark` is the new value of the annotation.
    async fn merge(
        &self,
        side: Side,
        state: &State,
        mark: Value,
        mut change: Value,
    ) -> Result<(), Failure> {
        let Some(live) = self.same(side, state).await? else {
            return Ok(());
        };
        *member(&mut change, &MARK) = mark;
        *member(&mut change, &["metadata", "uid"]) = live.uid().into();
        *member(&mut change, &["metadata", "resourceVersion"]) = live.version().into();
        let (api, params, patch) = (self.api(side), patching(false), Patch::Merge(change));
        let patched = api.patch(self.name, &params, &patch);
        self.connection.answer(patched).await.map(drop)
    }

    async fn change(&self, changes: &[Change]) -> Result<(), Failure> {
        let (pods, params) = (self.pods(), patching(false));
        each(changes, async |change| {
            // The UID is a precondition: a namesake is not changed.
            let mut metadata = json!({"uid": change.uid, "labels": change.labels});
            if let Some(owner) = &change.owner {
                metadata["ownerReferences"] = json!([{"$patch": "delete", "uid": owner}]);
            }
            let patch = Patch::Strategic(json!({"metadata": metadata}));
            let patched = pods.patch_metadata(&change.pod, &params, &patch);
            self.if_there(patched).await.map(drop)
        })
        .await
    }

    async fn orphan(&self, side: Side, state: &State) -> Result<(), Failure> {
        let Some(live) = self.same(side, state).await? else {
            return Ok(());
        };
        // With the version: the other object came from this one.
        let params = DeleteParams::orphan().preconditions(as_seen(live.uid(), live.version()));
        let api = self.api(side);
        let deleted = api.delete(self.name, &params);
        self.if_there(deleted).await.map(drop)
    }

    async fn delete(&self, pods: &[Pod]) -> Result<(), Failure> {
        let api = self.pods();
        each(pods, async |pod| {
            // A pod that was placed or got ready meanwhile has another version, and stays.
            let params = DeleteParams::default().preconditions(as_seen(&pod.uid, &pod.version));
            let deleted = api.delete(&pod.name, &params);
            self.if_there(deleted).await.map(drop)
        })
        .await
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
        let request = request.body(Vec::new());
        let request = request.map_err(|error| error.to_string())?;
        let text = self.connection.client.request_text(request);
        let text = self.connection.answer(text).await?;
        if text.contains(MIGRATION_ANNOTATION) {
            return Ok(());
        }
        let text = "the my-operator of this cluster is too old for migrations: upgrade it first";
        Err(text.into())
    }

    /// The rights that the migration needs and the user has not.
    pub(super) async fn missing_rights(&self) -> Result<Vec<String>, Failure> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.connection.client.clone());
        let namespace = &self.connection.namespace;
        let rights = plan::rights(self.to).iter();
        let calls = rights.flat_map(|(group, resource, verbs)| {
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

/// Makes a call for each item, several at a time.
async fn each<T>(
    items: &[T],
    call: impl AsyncFn(&T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let calls = stream::iter(items.iter().map(|item| call(item)));
    calls.buffer_unordered(PARALLEL).try_collect().await
}

/// That an object still is as it was seen.
fn as_seen(uid: &str, version: &str) -> Preconditions {
    Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: Some(version.to_owned()),
    }
}

fn posting(dry_run: bool) -> PostParams {
    PostParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    }
}

/// A pod without what is of no interest here: there may be thousands.
fn slim(pod: v1::Pod) -> Pod {
    let meant_for = meant_for(&pod).cloned();
    let (metadata, status) = (pod.metadata, pod.status.unwrap_or_default());
    let mut conditions = status.conditions.into_iter().flatten();
    Pod {
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        version: metadata.resource_version.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        controller: controller(metadata.owner_references.as_deref()).cloned(),
        meant_for: meant_for.unwrap_or_default(),
        node: pod.spec.and_then(|spec| spec.node_name).unwrap_or_default(),
        is_deleting: metadata.deletion_timestamp.is_some(),
        has_ended: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
        is_ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
        created: metadata
            .creation_timestamp
            .map_or(0, |time| time.0.as_second()),
    }
}

/// The node that the built-in controller makes a pod for: it leaves the placing to the scheduler.
fn meant_for(pod: &v1::Pod) -> Option<&String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?;
    let affinity = affinity.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let terms = required.node_selector_terms.iter();
    let fields = terms.flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name");
    names.find_map(|field| field.values.as_ref()?.first())
}
