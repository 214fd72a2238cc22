//! MyDaemonSet on a real API server: every rule of placement and roll-out. One file per topic.
//!
//! Each test has a namespace and a pool of nodes of its own. The nodes are tainted, so that no pod of
//! another test is on a node that leaves or falls silent here.

#![allow(clippy::needless_pass_by_value)] // json!() reads better without a reference

mod adoption;
mod bugs;
mod deletion;
mod drain;
mod dry_run;
mod failures;
mod holding;
mod journal;
mod judgement;
mod placement;
mod revisions;
mod rollout;
mod selectors;
mod states;
mod status;
mod surge;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::{Node, Pod as CorePod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::{Api, Client};
use my_operator_cluster::FakeNode;
use serde_json::{Value, json};

use crate::cluster::kubectl;
use crate::harness::{Kubectl, TIMEOUT, time};

const REVISION_LABEL: &str = "apps.zhongmingmao.io/revision";
const NAME_LABEL: &str = "apps.zhongmingmao.io/mydaemonset";

/// How often a wait polls while nothing changes.
const A_WHILE: Duration = Duration::from_millis(500);

/// A pod with this annotation stays Pending: it is there and never ready.
const PENDING: (&str, &str) = ("kwok.my-operator.dev/phase", "Pending");
/// A pod with this annotation runs and is not ready.
const UNREADY: (&str, &str) = ("kwok.my-operator.dev/ready", "false");

/// A template whose pods stay Pending.
fn pending() -> Value {
    json!({"metadata": {"annotations": {PENDING.0: PENDING.1}}})
}

/// A template that reads differently when it is written in another way than the API server's.
fn awkward() -> Value {
    json!({"metadata": {"annotations": {
        "z": "<b>&amp;\u{2028}\u{e9}\u{1f600}\t\"\\", "a": "\u{1}", "Z": "",
    }}, "spec": {"terminationGracePeriodSeconds": 30, "containers": [{"name": "app", "env": [{"value": "1e3", "name": "N"}]}]}})
}

/// The status that a kubelet gives to a pod whose container does that.
fn container(restarts: u32, state: Value) -> Value {
    json!({"containerStatuses": [{
        "name": "app", "image": "b:1", "imageID": "", "ready": false, "restartCount": restarts, "state": state,
    }]})
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": "back-off"}})
}

/// The first pod of that image.
async fn first_of(place: &Place, image: &str) -> Pod {
    let sight = place
        .until(format!("a pod of {image}"), |s| s.of_image(image) > 0)
        .await;
    sight
        .pods
        .into_iter()
        .find(|pod| pod.image == image)
        .unwrap()
}

/// A namespace, a pool of nodes that no other pod runs on, and the MyDaemonSet under test.
#[derive(Clone)]
struct Place {
    kubectl: Kubectl,
    client: Client,
    pool: String,
    /// The name of the MyDaemonSet.
    name: String,
}

impl Place {
    /// A fresh namespace with so many nodes.
    async fn new(pool: &str, nodes: usize) -> Self {
        let kubectl = kubectl(&format!("mds-{pool}")).await;
        Self::within(kubectl, pool, nodes).await
    }

    /// So many nodes for that namespace.
    async fn within(kubectl: Kubectl, pool: &str, nodes: usize) -> Self {
        let place = Self {
            client: kubectl.cluster.client().await.unwrap(),
            kubectl,
            pool: pool.to_owned(),
            name: "x".to_owned(),
        };
        let all = (0..nodes).map(|number| place.add(place.fake(number)));
        futures::future::join_all(all).await;
        place
    }

    /// The same place, with another MyDaemonSet under test.
    fn called(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self.clone()
        }
    }

    /// The name of a node.
    fn node(&self, number: usize) -> String {
        format!("{}-{number}", self.pool)
    }

    /// The names of the first nodes.
    fn nodes(&self, count: usize) -> Vec<String> {
        (0..count).map(|number| self.node(number)).collect()
    }

    /// A node of the pool that is not there yet.
    fn fake(&self, number: usize) -> FakeNode {
        FakeNode::new(self.node(number))
            .label("pool", &self.pool)
            .taint("pool", &self.pool, "NoSchedule")
    }

    async fn add(&self, node: FakeNode) {
        self.kubectl.cluster.add_node(node).await.unwrap();
    }

    /// A manifest with that image, that template and those fields of the spec. The pods are bound to
    /// the pool.
    fn with(&self, image: &str, template: &Value, spec: &Value) -> Value {
        let mut all = json!({
            "image": image,
            "template": {"metadata": {"labels": {"team": "a"}}, "spec": {
                "nodeSelector": {"pool": self.pool},
                "tolerations": [{"key": "pool", "operator": "Exists", "effect": "NoSchedule"}],
            }},
        });
        json_patch::merge(&mut all, spec);
        json_patch::merge(&mut all["template"], template);
        json!({
            "apiVersion": "apps.zhongmingmao.io/v1beta1",
            "kind": "MyDaemonSet",
            "metadata": {"name": self.name},
            "spec": all,
        })
    }

    /// The same with `spec.updateStrategy.rollingUpdate`.
    fn rolling(&self, image: &str, rolling: Value) -> Value {
        let spec = json!({"updateStrategy": {"rollingUpdate": rolling}});
        self.with(image, &json!({}), &spec)
    }

    /// A manifest with that image and nothing special.
    fn plain(&self, image: &str) -> Value {
        self.with(image, &json!({}), &json!({}))
    }

    fn api(&self, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        let kind = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.client.clone(), &self.kubectl.namespace, &kind)
    }

    fn sets(&self) -> Api<DynamicObject> {
        self.api(
            "apps.zhongmingmao.io",
            "v1beta1",
            "MyDaemonSet",
            "mydaemonsets",
        )
    }

    /// The whole manifest is what is wanted from now on.
    async fn apply(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("test").force();
        let applied = self
            .sets()
            .patch(name, &params, &Patch::Apply(object))
            .await;
        applied.unwrap();
    }

    /// Merges into the MyDaemonSet.
    async fn merge(&self, patch: Value) {
        let params = PatchParams::default();
        let (sets, patch) = (self.sets(), Patch::Merge(patch));
        sets.patch(&self.name, &params, &patch).await.unwrap();
    }

    fn pods_api(&self) -> Api<CorePod> {
        Api::namespaced(self.client.clone(), &self.kubectl.namespace)
    }

    /// The pods of the MyDaemonSet, by name.
    async fn pods(&self) -> Vec<Pod> {
        let ours = ListParams::default().labels(&format!("{NAME_LABEL}={}", self.name));
        let list = self.api("", "v1", "Pod", "pods").list(&ours).await.unwrap();
        list.items.into_iter().map(Pod::of).collect()
    }

    /// The ControllerRevisions of the namespace, the oldest first.
    async fn revisions(&self) -> Vec<Value> {
        let api = self.api("apps", "v1", "ControllerRevision", "controllerrevisions");
        let list = api.list(&ListParams::default()).await.unwrap();
        let mut list: Vec<Value> = list
            .items
            .into_iter()
            .map(|revision| serde_json::to_value(revision).unwrap())
            .collect();
        list.sort_by_key(|revision| revision["revision"].as_i64());
        list
    }

    /// Merges into a pod.
    async fn patch_pod(&self, pod: &str, patch: Value) {
        let pods = self.pods_api();
        let params = PatchParams::default();
        pods.patch(pod, &params, &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Sets or removes an annotation that makes the fake kubelet play a pod in some way.
    async fn annotate(&self, pod: &str, key: &str, value: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        self.patch_pod(pod, patch).await;
    }

    /// Merges into a pod's status, as a kubelet would.
    async fn set_status(&self, pod: &str, status: Value) {
        let pods = self.pods_api();
        let params = PatchParams::default();
        let patch = Patch::Merge(json!({"status": status}));
        pods.patch_status(pod, &params, &patch).await.unwrap();
    }

    async fn delete_pod(&self, pod: &str) {
        let pods = self.pods_api();
        pods.delete(pod, &DeleteParams::default()).await.unwrap();
    }

    /// Merges into a node.
    async fn patch_node(&self, number: usize, patch: Value) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let params = PatchParams::default();
        let (node, patch) = (self.node(number), Patch::Merge(patch));
        nodes.patch(&node, &params, &patch).await.unwrap();
    }

    /// Cordons a node, or uncordons it.
    async fn cordon(&self, number: usize, cordoned: bool) {
        self.patch_node(number, json!({"spec": {"unschedulable": cordoned}}))
            .await;
    }

    /// Lets a node fall silent, or come back, as its kubelet or the node controller would say it.
    async fn silence(&self, number: usize, silent: bool) {
        let (status, reason) = if silent {
            ("Unknown", "NodeStatusUnknown")
        } else {
            ("True", "KubeletReady")
        };
        let condition = json!({
            "type": "Ready", "status": status, "reason": reason, "lastTransitionTime": Utc::now(),
        });
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let params = PatchParams::default();
        let patched = nodes
            .patch_status(&self.node(number), &params, &patch)
            .await;
        patched.unwrap();
    }

    /// Lets a node fall silent and its pod be not ready, and waits until the node controller has
    /// tainted it: until then it might be given a pod.
    async fn go_down(&self, sight: &Sight, number: usize) {
        let node = self.node(number);
        let pod = &sight.only(&node).name;
        self.annotate(pod, UNREADY.0, Some(UNREADY.1)).await;
        self.silence(number, true).await;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let tainted = async || {
            let node = nodes.get(&node).await.unwrap();
            let taints = node.spec.unwrap().taints.unwrap_or_default();
            taints
                .iter()
                .any(|taint| taint.key == "node.kubernetes.io/unreachable")
        };
        eventually("the taint of a silent node", tainted).await;
        let unready = |s: &Sight| !s.only(&node).ready;
        self.until("its pod to be not ready", unready).await;
    }

    /// Gives a node that taint beside the pool's.
    async fn taint(&self, number: usize, key: &str, value: &str, effect: &str) {
        let taints = json!([
            {"key": "pool", "value": self.pool, "effect": "NoSchedule"},
            {"key": key, "value": value, "effect": effect},
        ]);
        self.patch_node(number, json!({"spec": {"taints": taints}}))
            .await;
    }

    /// What can be seen now.
    async fn sight(&self) -> Sight {
        // In this order the pods are what the status is about, or later.
        let object = self.sets().get_opt(&self.name).await.unwrap();
        Sight {
            object: object.map_or(Value::Null, |o| serde_json::to_value(o).unwrap()),
            pods: self.pods().await,
        }
    }

    /// Waits until what can be seen is so.
    #[track_caller]
    fn until(
        &self,
        what: impl Into<String>,
        is: impl Fn(&Sight) -> bool,
    ) -> impl Future<Output = Sight> {
        let (place, what) = (std::panic::Location::caller(), what.into());
        async move {
            let start = Instant::now();
            let object = format!("mds/{}", self.name);
            let mut of_object = self.kubectl.changes(&object).await;
            let mut of_pods = self.kubectl.changes("pods").await;
            loop {
                // What is waited for may also depend on the time.
                let _ = tokio::time::timeout(A_WHILE, async {
                    tokio::select! {
                        () = of_object.next() => {}
                        () = of_pods.next() => {}
                    }
                })
                .await;
                let sight = self.sight().await;
                if is(&sight) {
                    return sight;
                }
                assert!(
                    start.elapsed() < TIMEOUT,
                    "{place}: timed out waiting for {what}:\n{sight}"
                );
            }
        }
    }

    /// Waits until the status is about the present spec and a condition is so: `True/Reason`.
    #[track_caller]
    fn until_condition(&self, type_: &str, state: &str) -> impl Future<Output = Sight> {
        self.until(format!("{type_}={state}"), move |sight| {
            sight.is_current() && sight.condition(type_) == state
        })
    }

    /// Waits until each of these nodes, and no other, has exactly one pod, ready and of that image,
    /// and the status says so.
    #[track_caller]
    fn served(&self, image: &str, nodes: &[String]) -> impl Future<Output = Sight> {
        let what = format!("one ready pod of {image} on each of {nodes:?}");
        self.until(what, move |sight| {
            let number = nodes.len();
            let all = |image: &str| {
                sight
                    .pods
                    .iter()
                    .all(|pod| pod.serves() && pod.image == image)
            };
            sight.is_current()
                && sight.pods.len() == number
                && nodes.iter().all(|node| sight.on(node).len() == 1)
                && all(image)
                && sight.condition("Progressing") == "False/Complete"
                && [
                    "desiredNumberScheduled",
                    "numberAvailable",
                    "updatedNumberScheduled",
                ]
                .iter()
                .all(|count| sight.count(count) == number)
        })
    }

    /// Shows that the operator is past whatever happened before: it has acted on another
    /// MyDaemonSet, which needs no pod.
    async fn witness(&self, name: &str) {
        let witness = self.called(name);
        let mut object = witness.plain("witness:1");
        object["spec"]["template"]["spec"]["nodeSelector"]["pool"] = "nowhere".into();
        witness.apply(&object).await;
        witness.until("the witness", Sight::is_current).await;
    }
}

/// Waits until that is so.
#[track_caller]
fn eventually<F: Future<Output = bool>>(
    what: &str,
    is: impl Fn() -> F,
) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let start = Instant::now();
        while !is().await {
            assert!(
                start.elapsed() < TIMEOUT,
                "{place}: timed out waiting for {what}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A pod, as far as the tests read it.
#[derive(Clone, Debug, PartialEq)]
struct Pod {
    name: String,
    uid: String,
    node: String,
    image: String,
    revision: String,
    phase: String,
    ready: bool,
    leaving: bool,
    /// All of it.
    json: Value,
}

impl Pod {
    fn of(pod: impl serde::Serialize) -> Self {
        let json = serde_json::to_value(pod).unwrap();
        let text = |path: &str| {
            let text = json.pointer(path).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let conditions = json["status"]["conditions"].as_array();
        let is_ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
        Self {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            node: text("/spec/nodeName"),
            image: text("/spec/containers/0/image"),
            revision: json["metadata"]["labels"][REVISION_LABEL]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            phase: text("/status/phase"),
            ready: conditions.into_iter().flatten().any(is_ready),
            leaving: json["metadata"]["deletionTimestamp"].is_string(),
            json,
        }
    }

    /// Whether it is a pod of the MyDaemonSet under test.
    fn is_of(&self, place: &Place) -> bool {
        self.json["metadata"]["labels"][NAME_LABEL] == place.name.as_str()
    }

    /// When the API server made it, to the second.
    fn created(&self) -> DateTime<Utc> {
        let created = &self.json["metadata"]["creationTimestamp"];
        time(created.as_str().unwrap())
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.json["metadata"]["annotations"][key].as_str()
    }

    /// Whether it is there to stay, and ready.
    fn serves(&self) -> bool {
        self.ready && !self.leaving
    }
}

/// A MyDaemonSet and its pods at a moment.
#[derive(Debug)]
struct Sight {
    object: Value,
    pods: Vec<Pod>,
}

impl Sight {
    /// The pods on a node.
    fn on(&self, node: &str) -> Vec<&Pod> {
        self.pods.iter().filter(|pod| pod.node == node).collect()
    }

    /// The only pod on a node.
    #[track_caller]
    fn only(&self, node: &str) -> &Pod {
        match self.on(node)[..] {
            [pod] => pod,
            _ => panic!("not one pod on {node}:\n{self}"),
        }
    }

    /// Whether the node has one pod, of that image and serving.
    fn only_serving(&self, node: &str, image: &str) -> bool {
        matches!(self.on(node)[..], [pod] if pod.serves() && pod.image == image)
    }

    /// The nodes with a pod of that image that serves.
    fn serving(&self, image: &str) -> Vec<&str> {
        let pods = self.pods.iter();
        pods.filter(|pod| pod.serves() && pod.image == image)
            .map(|pod| pod.node.as_str())
            .collect()
    }

    /// How many pods have that image.
    fn of_image(&self, image: &str) -> usize {
        self.pods.iter().filter(|pod| pod.image == image).count()
    }

    /// UIDs of the pods by node.
    fn uids(&self) -> BTreeMap<&str, &str> {
        let pods = self.pods.iter();
        pods.map(|pod| (pod.node.as_str(), pod.uid.as_str()))
            .collect()
    }

    /// A count of the status.
    fn count(&self, field: &str) -> usize {
        let count = self.object["status"][field].as_u64();
        count.map_or(usize::MAX, |count| usize::try_from(count).unwrap())
    }

    fn text(&self, field: &str) -> &str {
        self.object["status"][field].as_str().unwrap_or_default()
    }

    fn find_condition(&self, type_: &str) -> &Value {
        let list = self.object["status"]["conditions"].as_array();
        let found = list.into_iter().flatten().find(|c| c["type"] == type_);
        found.unwrap_or(&Value::Null)
    }

    /// A condition as `Status/Reason`; empty when it is not there.
    fn condition(&self, type_: &str) -> String {
        let condition = self.find_condition(type_);
        match (condition["status"].as_str(), condition["reason"].as_str()) {
            (Some(status), Some(reason)) => format!("{status}/{reason}"),
            _ => String::new(),
        }
    }

    fn message(&self, type_: &str) -> &str {
        self.find_condition(type_)["message"]
            .as_str()
            .unwrap_or_default()
    }

    /// Whether the status is about the present spec.
    fn is_current(&self) -> bool {
        let generation = &self.object["metadata"]["generation"];
        generation.is_number() && self.object["status"]["observedGeneration"] == *generation
    }
}

impl std::fmt::Display for Sight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for pod in &self.pods {
            let Pod {
                name, image, phase, ..
            } = pod;
            let (ready, leaving) = (pod.ready, pod.leaving);
            writeln!(f, "{name} {image} {phase} ready={ready} leaving={leaving}")?;
        }
        let (spec, status) = (&self.object["spec"], &self.object["status"]);
        write!(f, "{spec:#}\n{status:#}")
    }
}
