//! A MyDaemonSet with a namespace and a pool of nodes of its own, what is done to it, and what it must
//! come to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use my_operator::kinds::mydaemonset::crd::{MyDaemonSet, MyDaemonSetStatus};
use my_operator_cluster::{Cluster, FakeNode};
use serde_json::{Value, json};

use super::GRACE;
use super::judge::{History, POOL, PodState, Rules};
use crate::harness::pods::Recorder;
use crate::harness::record::{Record, version};
use crate::harness::{TIMEOUT, try_wait};

const NAME: &str = "x";
/// With it a pod of a fake node is Ready or not.
pub(super) const READY: &str = "kwok.my-operator.dev/ready";
/// The label with the zone of a node: one of three.
pub(super) const ZONE: &str = "zone.my-operator.test/name";
const RESUME: &str = "apps.zhongmingmao.io/resume-revision";

/// How a change is to reach the nodes.
#[derive(Clone, Debug)]
pub(crate) struct Strategy {
    pub(super) max_unavailable: Value,
    pub(super) max_surge: Value,
    pub(super) partition: usize,
    pub(super) min_ready: i64,
}

impl Strategy {
    /// One node after the other.
    pub(crate) fn plain() -> Self {
        Self {
            max_unavailable: 1.into(),
            max_surge: 0.into(),
            partition: 0,
            min_ready: 0,
        }
    }

    fn spec(&self, image: &str, paused: bool) -> Value {
        json!({"spec": {
            "image": image,
            "minReadySeconds": self.min_ready,
            "updateStrategy": {"rollingUpdate": {
                "maxUnavailable": self.max_unavailable,
                "maxSurge": self.max_surge,
                "partition": self.partition,
                "paused": paused,
            }},
        }})
    }
}

/// See the module.
pub(crate) struct Fleet {
    pub(super) cluster: &'static Cluster,
    /// The name of its pool.
    pub(super) pool: String,
    pub(crate) namespace: String,
    pub(crate) nodes: BTreeSet<String>,
    /// How many nodes it has had.
    born: usize,
    pub(super) pods: Api<Pod>,
    objects: Api<MyDaemonSet>,
    pub(crate) strategy: Strategy,
    pub(crate) image: String,
    pub(crate) random: Rng,
    /// The UIDs of the pods that were deleted here.
    pub(super) by_test: Mutex<BTreeSet<String>>,
    record: Recorder,
    record_of_object: Record<MyDaemonSet>,
    /// How many roll-outs stopped by themselves.
    pub(crate) stopped: usize,
}

impl Fleet {
    /// A fleet with that many nodes and its object, for which no operator runs yet.
    pub(crate) async fn new(
        cluster: &'static Cluster,
        prefix: &str,
        nodes: usize,
        random: Rng,
    ) -> Self {
        let pool = json!({"key": POOL, "operator": "Exists", "effect": "NoSchedule"});
        Self::with(cluster, prefix, nodes, random, pool).await
    }

    /// The same with pods that run on nodes that are not ready, like those of a network plugin.
    pub(super) async fn tolerating_everything(
        cluster: &'static Cluster,
        prefix: &str,
        nodes: usize,
        random: Rng,
    ) -> Self {
        let everything = json!({"operator": "Exists"});
        Self::with(cluster, prefix, nodes, random, everything).await
    }

    async fn with(
        cluster: &'static Cluster,
        prefix: &str,
        nodes: usize,
        random: Rng,
        toleration: Value,
    ) -> Self {
        let client: Client = cluster.client().await.unwrap();
        let namespace = cluster.namespace(prefix).await.unwrap();
        let objects = Api::namespaced(client.clone(), &namespace);
        let record = Recorder::start(client.clone(), &namespace).await;
        let mut fleet = Self {
            cluster,
            pool: namespace.clone(),
            nodes: BTreeSet::new(),
            born: 0,
            pods: Api::namespaced(client, &namespace),
            record_of_object: Record::start(objects.clone()).await,
            objects,
            namespace,
            strategy: Strategy::plain(),
            image: "app:0".to_owned(),
            random,
            by_test: Mutex::default(),
            record,
            stopped: 0,
        };
        let born = (0..nodes).map(|_| fleet.next_node()).collect::<Vec<_>>();
        cluster.add_nodes(&born).await.unwrap();
        let mut object = fleet.strategy.spec(&fleet.image, false);
        object["metadata"] = json!({"name": NAME});
        object["spec"]["template"] = json!({"spec": {
            "nodeSelector": {POOL: fleet.pool},
            "tolerations": [toleration],
        }});
        let object = serde_json::from_value(object).unwrap();
        let created = fleet.objects.create(&PostParams::default(), &object).await;
        let created = version(&created.unwrap());
        fleet.record_of_object.reach(created).await;
        fleet
    }

    pub(super) fn next_node(&mut self) -> FakeNode {
        // In no order of their names.
        let name = format!("{}-{}{}", self.pool, self.random.alphabetic(), self.born);
        let name = name.to_lowercase();
        let zone = ["a", "b", "c"][self.born % 3];
        self.born += 1;
        self.nodes.insert(name.clone());
        // Tainted, so that no pod of another test is there when the node goes.
        FakeNode::new(name)
            .label(POOL, &self.pool)
            .label(ZONE, zone)
            .taint(POOL, &self.pool, "NoSchedule")
    }

    /// Changes the object's image, and how it is rolled out.
    pub(crate) async fn apply(&mut self, image: &str, strategy: Strategy) {
        image.clone_into(&mut self.image);
        self.strategy = strategy;
        self.pause(false).await;
    }

    pub(super) async fn pause(&self, paused: bool) {
        self.patch_object(&self.strategy.spec(&self.image, paused))
            .await;
    }

    pub(super) async fn patch_object(&self, patch: &Value) {
        let patch = Patch::Merge(patch);
        let params = PatchParams::default();
        let patched = self.objects.patch(NAME, &params, &patch).await.unwrap();
        self.record_of_object.reach(version(&patched)).await;
    }

    /// The object as it is now.
    fn object(&self) -> MyDaemonSet {
        self.record_of_object
            .look(|events| events.last().unwrap().object.clone())
    }

    /// The pods as they are now.
    pub(super) fn list(&self) -> Vec<Pod> {
        self.record.events.look(|events| {
            let mut list: BTreeMap<&str, &Pod> = BTreeMap::new();
            for event in events {
                let name = event.object.metadata.name.as_deref().unwrap_or_default();
                if event.gone {
                    list.remove(name);
                } else {
                    list.insert(name, &event.object);
                }
            }
            list.into_values().cloned().collect()
        })
    }

    /// How many events its pods have had.
    pub(super) fn events(&self) -> usize {
        self.record.events.look(<[_]>::len)
    }

    /// The largest number of its nodes without an available pod at a time, from that event on.
    pub(super) async fn most_unavailable(&self, begin: usize) -> usize {
        self.record.end().await;
        self.record.events.look(|events| {
            let mut ready: BTreeMap<&str, String> = BTreeMap::new();
            let mut most = 0;
            for (number, event) in events.iter().enumerate() {
                let name = event.object.metadata.name.as_deref().unwrap_or_default();
                let pod = PodState::of(&event.object);
                ready.remove(name);
                if !event.gone && pod.is_ready() {
                    ready.insert(name, pod.node);
                }
                if number >= begin {
                    let served: BTreeSet<&String> = ready.values().collect();
                    most = most.max(self.nodes.len() - served.len());
                }
            }
            most
        })
    }

    /// The nodes that ever had a pod of that image.
    pub(super) fn nodes_ever_with(&self, image: &str) -> BTreeSet<String> {
        self.record.events.look(|events| {
            let pods = events.iter().map(|event| PodState::of(&event.object));
            let with_it = pods.filter(|pod| pod.image == image);
            with_it.map(|pod| pod.node).collect()
        })
    }

    /// Waits until the status says so in a word.
    pub(super) async fn until_state(&self, state: &str) {
        let status = || self.object().status.unwrap_or_default();
        let is_so = async || (status().state.as_deref() == Some(state)).then_some(());
        let seen = try_wait(TIMEOUT, is_so).await;
        assert!(seen.is_some(), "not {state}: {:#?}", status());
    }

    /// How many pods it has had.
    pub(super) fn pods_ever(&self) -> usize {
        self.record.events.look(|events| {
            let uids = events.iter().map(|event| &event.object.metadata.uid);
            uids.collect::<BTreeSet<_>>().len()
        })
    }

    pub(super) async fn annotate(&self, pod: &Pod, key: &str, value: &str) {
        let patch = json!({"metadata": {"uid": pod.uid(), "annotations": {key: value}}});
        let patch = Patch::Merge(patch);
        let params = PatchParams::default();
        // It may be gone by now.
        if let Ok(patched) = self.pods.patch(&pod.name_any(), &params, &patch).await {
            self.record.events.reach(version(&patched)).await;
        }
    }

    /// Pods that were made unready, or crash, recover.
    async fn recover(&self, pods: &[Pod]) {
        for pod in pods {
            if pod.annotations().get(READY).is_some_and(|v| v == "false") {
                self.annotate(pod, READY, "true").await;
            }
        }
    }

    /// Waits until every node has its one available pod and the status says so. A roll-out that
    /// stopped by itself is resumed.
    pub(crate) async fn until_settled(&mut self) {
        let begin = Instant::now();
        let mut since = begin;
        let mut before = Vec::new();
        loop {
            let pods = self.list();
            self.recover(&pods).await;
            let object = self.object();
            let status = object.status.clone().unwrap_or_default();
            let current = status.observed_generation == object.metadata.generation;
            let reason = reason(&status, "Progressing");
            let revision = status.update_revision.clone().unwrap_or_default();
            let resumed = object.annotations().get(RESUME) == Some(&revision);
            if current && reason == "AutoPaused" && !resumed {
                self.stopped += 1;
                self.patch_object(&json!({"metadata": {"annotations": {RESUME: revision}}}))
                    .await;
            }
            let unsettled = self.unsettled(&pods, &object);
            if unsettled.is_empty() {
                return;
            }
            // A long way takes long on a slow machine; what must not happen is that nothing does.
            if unsettled != before {
                before.clone_from(&unsettled);
                since = Instant::now();
            }
            assert!(
                since.elapsed() < TIMEOUT && begin.elapsed() < 4 * TIMEOUT,
                "{} with {} by {:?}, nodes {:?}, does not settle: {unsettled:#?}\n{:#?}\n{:#?}",
                self.namespace,
                self.image,
                self.strategy,
                self.nodes,
                pods.iter().map(PodState::of).collect::<Vec<_>>(),
                status
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What is not yet as it must be in the end.
    fn unsettled(&self, pods: &[Pod], object: &MyDaemonSet) -> Vec<String> {
        let mut unsettled = Vec::new();
        let mut expect = |what: &str, is: &dyn std::fmt::Debug, right: bool| {
            if !right {
                unsettled.push(format!("{what}: {is:?}"));
            }
        };
        let all: Vec<PodState> = pods.iter().map(PodState::of).collect();
        let min_ready = TimeDelta::seconds(self.strategy.min_ready);
        let nodes = self.nodes.len();
        let held = self.strategy.partition;
        for node in &self.nodes {
            let here: Vec<&PodState> = all.iter().filter(|pod| pod.node == *node).collect();
            let available = |pod: &&PodState| pod.is_available(min_ready, Utc::now());
            let right = here.len() == 1 && here.iter().all(available);
            expect("one available pod", &(node, &here), right);
        }
        expect("no pod elsewhere", &all.len(), all.len() == nodes);
        let new = all.iter().filter(|pod| pod.image == self.image).count();
        let behind = nodes.saturating_sub(new);
        expect("nodes that are behind", &behind, behind <= held);
        let status = object.status.clone().unwrap_or_default();
        let counts = [
            ("desired", status.desired_number_scheduled, nodes),
            ("current", status.current_number_scheduled, nodes),
            ("ready", status.number_ready, nodes),
            ("available", status.number_available, nodes),
            ("availableReplicas", status.available_replicas, nodes),
            ("updated", status.updated_number_scheduled, new),
            ("unavailable", status.number_unavailable, 0),
            ("misscheduled", status.number_misscheduled, 0),
        ];
        for (what, is, right) in counts {
            expect(what, &is, is == i32::try_from(right).ok());
        }
        let seen = status.observed_generation == object.metadata.generation;
        expect("observed", &status.observed_generation, seen);
        expect(
            "Available",
            &"",
            reason(&status, "Available") == "EnoughNodesAvailable",
        );
        expect("Degraded", &"", reason(&status, "Degraded") == "NoPodFails");
        let progress = reason(&status, "Progressing");
        if new == nodes {
            expect("Progressing", &progress, progress == "Complete");
            let same = status.current_revision == status.update_revision;
            expect("currentRevision", &status.current_revision, same);
        } else {
            expect("Progressing", &progress, progress == "Partitioned");
        }
        unsettled
    }

    /// The pods, each by its node.
    pub(crate) fn names(&self) -> BTreeMap<String, String> {
        let list = self.list();
        let names = list.iter().map(|pod| {
            let pod = PodState::of(pod);
            (pod.node, pod.name)
        });
        names.collect()
    }

    /// Waits until these are its pods and no others. A name is that of the node and the revision.
    pub(super) async fn until_names(&self, names: &BTreeMap<String, String>) {
        let is_so = async || {
            let is_so = self.list().len() == names.len() && self.names() == *names;
            is_so.then_some(())
        };
        let seen = try_wait(TIMEOUT, is_so).await;
        assert!(seen.is_some(), "{:?}\nare not {names:?}", self.names());
    }

    /// All events of the pods and of the object up to now.
    pub(super) async fn history(&self) -> History {
        self.record.end().await;
        let object = self.objects.get(NAME).await.unwrap();
        self.record_of_object.reach(version(&object)).await;
        let mut history = History::default();
        self.record.events.look(|events| history.pods(events));
        self.record_of_object.look(|events| history.objects(events));
        history
    }

    /// How its history is to be judged.
    pub(super) fn rules(&self, latest: TimeDelta, two_operators: bool) -> Rules {
        Rules {
            pool: self.pool.clone(),
            by_test: self.by_test.lock().unwrap().clone(),
            grace: GRACE,
            latest,
            two_operators,
        }
    }

    /// Takes the object and the nodes away, and waits for the pods to go.
    pub(crate) async fn remove(&self) {
        self.objects
            .delete(NAME, &DeleteParams::default())
            .await
            .unwrap();
        for node in &self.nodes {
            self.cluster.remove_node(node).await.unwrap();
        }
    }
}

/// The reason of a condition; empty without one.
fn reason(status: &MyDaemonSetStatus, kind: &str) -> String {
    let condition = status.conditions.iter().find(|c| c.type_ == kind);
    condition.map(|c| c.reason.clone()).unwrap_or_default()
}
