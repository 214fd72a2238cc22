//! `kubectl mydaemonset migrate`, while the client and the operator are killed: the judge sees both directions as
//! roll-outs, of which no pod is an older one with the same image but another container.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use chrono::Utc;
use fastrand::Rng;
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::PostParams;
use kube::{Api, Client};
use my_operator::kinds::mydaemonset::crd::MyDaemonSet;
use my_operator_cluster::{Cluster, FakeNode};
use my_operator_rounds::lengths;
use serde_json::{Value, json};

use super::judge::{History, POOL, PodState, Rules, Verdict};
use super::{GRACE, Run, assert_good};
use crate::disruption::cluster;
use crate::disruption::kills::{Start, kill};
use crate::harness::pods::Recorder;
use crate::harness::record::Record;
use crate::harness::{Kubectl, Operator, TIMEOUT, operator_kubeconfig, seed, wait_for};

const NAME: &str = "x";
/// Of these limits one is drawn.
const LIMITS: [&str; 3] = ["1", "2", "30%"];
/// Migrations side by side.
const PARALLEL: usize = 4;

/// A `DaemonSet` or `MyDaemonSet` with a namespace and a pool of nodes of its own.
struct Migration {
    cluster: &'static Cluster,
    kubectl: Kubectl,
    nodes: Vec<String>,
    daemon_sets: Api<DaemonSet>,
    pods: Recorder,
    record_of_daemon_set: Record<DaemonSet>,
    record_of_object: Record<MyDaemonSet>,
    random: Rng,
}

/// What a migration went through.
#[derive(Debug, Default)]
struct Tally {
    clients_killed: usize,
    operators_killed: usize,
    turned_round: usize,
}

impl Migration {
    async fn new(cluster: &'static Cluster, mut random: Rng) -> Self {
        let namespace = cluster.namespace("migrated").await.unwrap();
        let client: Client = cluster.client().await.unwrap();
        let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
        let count = random.usize(4..8);
        let nodes: Vec<String> = (0..count).map(|n| format!("{namespace}-{n}")).collect();
        let fakes = nodes.iter().map(|name| {
            FakeNode::new(name.clone()).label(POOL, &namespace).taint(
                POOL,
                &namespace,
                "NoSchedule",
            )
        });
        cluster.add_nodes(&fakes.collect::<Vec<_>>()).await.unwrap();
        let migration = Self {
            cluster,
            kubectl: Kubectl::new(cluster, &namespace),
            pods: Recorder::start(client.clone(), &namespace).await,
            record_of_daemon_set: Record::start(daemon_sets.clone()).await,
            record_of_object: Record::start(Api::namespaced(client, &namespace)).await,
            daemon_sets,
            nodes,
            random,
        };
        migration.create().await;
        migration
    }

    /// Creates the `DaemonSet`, and waits until each node has its pod.
    async fn create(&self) {
        let limit = LIMITS[self.random.clone().usize(0..LIMITS.len())];
        let limit: Value = limit.parse::<i32>().map_or(limit.into(), Value::from);
        let pool = json!({"key": POOL, "operator": "Exists", "effect": "NoSchedule"});
        let object = json!({
            "metadata": {"name": NAME},
            "spec": {
                "selector": {"matchLabels": {"app": NAME}},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit}},
                "template": {
                    "metadata": {"labels": {"app": NAME}},
                    "spec": {
                        "nodeSelector": {POOL: self.kubectl.namespace},
                        "tolerations": [pool],
                        "containers": [{"name": "agent", "image": "app:1"}],
                    },
                },
            },
        });
        let object = serde_json::from_value(object).unwrap();
        let params = PostParams::default();
        self.daemon_sets.create(&params, &object).await.unwrap();
        wait_for("a pod on each node", async || {
            let stored = self.daemon_sets.get(NAME).await.unwrap();
            let available = stored.status.unwrap_or_default().number_available;
            (available == i32::try_from(self.nodes.len()).ok()).then_some(())
        })
        .await;
    }

    /// Runs the command for a while only.
    async fn killed_client(&self, object: &str, life: Duration) {
        let args = ["mydaemonset", "migrate", object, "--yes"];
        let mut command = self.kubectl.plugin(&args);
        let mut client = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        tokio::time::sleep(life).await;
        client.kill().unwrap();
        client.wait().unwrap();
    }

    /// Runs the command to its end.
    async fn whole_client(&self, object: &str) {
        let args = ["mydaemonset", "migrate", object, "--yes"];
        let ended = tokio::time::timeout(TIMEOUT * 2, self.kubectl.run_plugin(&args, "")).await;
        let ended = ended.unwrap_or_else(|_| panic!("{object} does not end"));
        // A client that was killed in its last moment has left nothing to do.
        let is_over = ended.err.contains("there is no MyDaemonSet");
        assert!(ended.code == Some(0) || is_over, "{ended:?}");
    }

    /// Migrates there and back under kills, and there again halfway, in some runs.
    async fn both_ways(&mut self, run: &Run, start: &Start<'_>) -> Tally {
        let mut tally = Tally::default();
        run.note_start().await;
        let mut operator = start.operator("migrated");
        operator.until_ready().await;
        let ways = ["daemonset/x", "mydaemonset/x"];
        for (object, back) in [(ways[0], ways[1]), (ways[1], ways[0])] {
            for _ in 0..self.random.usize(2..6) {
                // Some turn round halfway. An object that is there already is no reason to fail.
                let object = if tally.clients_killed > 0 && self.random.u32(0..5) == 0 {
                    tally.turned_round += 1;
                    back
                } else {
                    object
                };
                let life = Duration::from_millis(self.random.u64(30..900));
                self.killed_client(object, life).await;
                tally.clients_killed += 1;
                if self.random.u32(0..3) == 0 {
                    operator = self.restarted(run, start, operator).await;
                    tally.operators_killed += 1;
                }
            }
            self.whole_client(object).await;
            if object == ways[1] {
                self.rolled_out().await;
            }
        }
        kill(&operator).await;
        tally
    }

    /// Waits for the roll-out of the `DaemonSet`, which the command leaves to kubectl.
    async fn rolled_out(&self) {
        let rollout = format!("rollout status daemonset/{NAME} --timeout=120s");
        self.kubectl.run(&rollout).await.good();
    }

    async fn restarted(&mut self, run: &Run, start: &Start<'_>, operator: Operator) -> Operator {
        kill(&operator).await;
        tokio::time::sleep(Duration::from_millis(self.random.u64(0..500))).await;
        run.note_start().await;
        start.operator("migrated")
    }

    async fn history(&self) -> History {
        self.pods.end().await;
        let mut history = History::default();
        self.pods.events.look(|events| history.pods(events));
        self.record_of_object.look(|events| history.objects(events));
        self.record_of_daemon_set
            .look(|events| history.daemon_sets(events));
        history
    }

    /// The most placed pods on one node at a time, whatever their state.
    fn most_on_a_node(&self) -> usize {
        self.pods.events.look(|events| {
            let mut placed: BTreeMap<String, String> = BTreeMap::new();
            let mut most = 0;
            for event in events {
                let pod = PodState::of(&event.object);
                placed.remove(&pod.uid);
                if !event.gone && !pod.node.is_empty() {
                    placed.insert(pod.uid, pod.node);
                }
                let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
                for node in placed.values() {
                    *counts.entry(node).or_default() += 1;
                }
                most = most.max(counts.into_values().max().unwrap_or_default());
            }
            most
        })
    }

    /// At the end all is as before: one pod on each node, of the container that the `DaemonSet` has, and without our labels.
    async fn assert_as_before(&self) {
        let client: Client = self.cluster.client().await.unwrap();
        let pods: Api<k8s_openapi::api::core::v1::Pod> =
            Api::namespaced(client, &self.kubectl.namespace);
        let pods = pods.list(&kube::api::ListParams::default()).await.unwrap();
        let placed = pods.items.iter().filter(|pod| {
            let deleting = pod.metadata.deletion_timestamp.is_some();
            !deleting && pod.spec.as_ref().unwrap().node_name.is_some()
        });
        let placed: Vec<_> = placed.collect();
        let nodes: BTreeSet<String> = placed.iter().map(|pod| PodState::of(pod).node).collect();
        assert_eq!(
            (placed.len(), nodes.len()),
            (self.nodes.len(), self.nodes.len())
        );
        for pod in placed {
            assert_eq!(PodState::of(pod).image, "app:1 (agent)");
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            assert!(
                labels.keys().all(|key| !key.contains("zhongmingmao")),
                "{labels:?}"
            );
        }
    }
}

async fn migrate(cluster: &'static Cluster, seed: u64) -> (Tally, Verdict) {
    println!("SEED={seed}");
    let run = Run::start(cluster, seed).await;
    let mut migration = Migration::new(cluster, Rng::with_seed(seed)).await;
    let namespace = migration.kubectl.namespace.clone();
    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: vec![
            "--webhooks=false".to_owned(),
            "--kinds=mydaemonset".to_owned(),
            format!("--node-not-ready-grace={}s", GRACE.num_seconds()),
            format!("--namespace={namespace}"),
        ],
    };
    let tally = migration.both_ways(&run, &start).await;
    migration.assert_as_before().await;
    let history = migration.history().await;
    let rules = Rules {
        pool: namespace.clone(),
        by_test: BTreeSet::new(),
        grace: GRACE,
        latest: run.delivery.latest().await,
        two_operators: false,
    };
    let verdict = run.verdict(history, &rules, &namespace);
    assert_eq!(migration.most_on_a_node(), 1, "SEED={seed}");
    let [held, at_limit] = [verdict.held_against_limit, verdict.at_limit];
    println!(
        "SEED={seed}: {tally:?}, {} nodes, {held} Ready pods replaced, {at_limit} at the limit, other deletions {:?}, {}",
        migration.nodes.len(),
        verdict.excused,
        Utc::now().format("%T")
    );
    for node in &migration.nodes {
        migration.cluster.remove_node(node).await.unwrap();
    }
    (tally, verdict)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_whose_client_and_operator_are_killed_keeps_the_limits_both_ways() {
    let first = seed("the limits, the moments of the kills and the directions");
    let cluster = cluster().await;
    let seeds = (0..lengths::migrations()).map(|number| first.wrapping_add(number));
    let runs = seeds.map(|seed| migrate(cluster, seed));
    let done: Vec<_> = stream::iter(runs).buffered(PARALLEL).collect().await;
    let (tallies, verdicts): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let kills: usize = tallies.iter().map(|tally| tally.clients_killed).sum();
    let held: usize = verdicts.iter().map(|v| v.held_against_limit).sum();
    let over: usize = verdicts.iter().map(|v| v.over_by_built_in).sum();
    println!(
        "{} migrations both ways, {kills} clients killed, {held} Ready pods replaced, {over} by the built-in controller above its limit",
        verdicts.len()
    );
    assert_good(&verdicts);
    // Both directions replaced pods under the judge's eyes.
    assert!(
        verdicts.iter().all(|v| v.held_against_limit >= 4),
        "{verdicts:?}"
    );
}
