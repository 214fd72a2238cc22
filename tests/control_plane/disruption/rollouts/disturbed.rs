//! Roll-outs, disturbed in every way, under operators that come and go.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use fastrand::Rng;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use my_operator_rounds::lengths;
use serde_json::{Value, json};

use super::fleet::{Fleet, READY, Strategy};
use super::judge::{POOL, PodState, Verdict};
use super::{Run, assert_good, flags};
use crate::disruption::cluster;
use crate::disruption::kills::Start;
use crate::harness::{operator_kubeconfig, seed};

/// With it a pod of a fake node fails.
const PHASE: &str = "kwok.my-operator.dev/phase";

impl Strategy {
    fn random(random: &mut Rng, nodes: usize) -> Self {
        let min_ready = random.i64(-3..3).max(0);
        // Each batch takes that long, so there must not be too many of them.
        let least = if min_ready > 0 { nodes.div_ceil(4) } else { 1 };
        let unavailable: Value = match random.u32(0..4) {
            0 => format!("{}%", random.u32(25..70)).into(),
            _ => (least + random.usize(0..2)).into(),
        };
        let surge: Value = match random.u32(0..3) {
            0 => format!("{}%", random.u32(25..70)).into(),
            _ => (least + random.usize(0..2)).into(),
        };
        let (max_unavailable, max_surge) = match random.u32(0..6) {
            0 => (0.into(), surge),
            1 => (unavailable, surge),
            _ => (unavailable, 0.into()),
        };
        let partition = match random.u32(0..5) {
            0 => random.usize(1..=nodes.div_ceil(2)),
            _ => 0,
        };
        Self {
            max_unavailable,
            max_surge,
            partition,
            min_ready,
        }
    }
}

/// A fleet that is disturbed.
struct Disturbed {
    fleet: Fleet,
    nodes: Api<Node>,
    /// How often each kind of disturbance was injected.
    harm: BTreeMap<&'static str, usize>,
}

impl Disturbed {
    fn new(fleet: Fleet, client: &Client) -> Self {
        Self {
            fleet,
            nodes: Api::all(client.clone()),
            harm: BTreeMap::new(),
        }
    }

    /// Another roll-out, disturbed on its way, to its end.
    async fn roll_out(&mut self, number: usize) {
        let strategy = Strategy::random(&mut self.fleet.random, self.fleet.nodes.len());
        // Now and then an undo.
        let number = match self.fleet.random.u32(0..6) {
            0 if number > 2 => number - 2,
            _ => number,
        };
        // Some disturbances come before the roll-out, and the operator may have seen them by then.
        for _ in 0..self.fleet.random.u32(0..2) {
            self.disturb().await;
        }
        self.fleet.apply(&format!("app:{number}"), strategy).await;
        for _ in 0..self.fleet.random.u32(0..5) {
            let pause = Duration::from_millis(self.fleet.random.u64(0..500));
            tokio::time::sleep(pause).await;
            self.disturb().await;
        }
        self.calm().await;
        self.fleet.until_settled().await;
    }

    fn any_node(&mut self) -> String {
        let at = self.fleet.random.usize(0..self.fleet.nodes.len());
        self.fleet.nodes.iter().nth(at).unwrap().clone()
    }

    fn any_pod(&mut self) -> Option<Pod> {
        let list = self.fleet.list();
        let at = self.fleet.random.usize(0..list.len().max(1));
        list.into_iter().nth(at)
    }

    /// Injects one disturbance.
    async fn disturb(&mut self) {
        let harm = match self.fleet.random.u32(0..20) {
            0..4 => "pod deleted",
            4..7 => "pod not ready",
            7 => "pod failed",
            8..11 => "pod crashes",
            11..13 => "node not ready",
            13..15 => "node cordoned",
            15 if self.fleet.nodes.len() > 3 => "node deleted",
            16 => "node added",
            17 => "node out of the pool",
            _ => "paused",
        };
        *self.harm.entry(harm).or_default() += 1;
        let node = self.any_node();
        match harm {
            "pod deleted" => {
                if let Some(pod) = self.any_pod() {
                    self.delete(&pod).await;
                }
            }
            "pod not ready" => self.annotate_any(READY, "false").await,
            "pod failed" => self.annotate_any(PHASE, "Failed").await,
            "pod crashes" => self.crash().await,
            "node not ready" => self.set_ready(&node, false).await,
            "node cordoned" => self.patch_node(&node, &cordon(true)).await,
            "node deleted" => {
                self.fleet.nodes.remove(&node);
                let deleted = self.nodes.delete(&node, &DeleteParams::default()).await;
                deleted.unwrap();
            }
            "node added" => {
                let node = self.fleet.next_node();
                self.fleet.cluster.add_node(node).await.unwrap();
            }
            "node out of the pool" => self.patch_node(&node, &label("elsewhere")).await,
            _ => self.fleet.pause(true).await,
        }
    }

    async fn delete(&self, pod: &Pod) {
        let uid = pod.uid().unwrap();
        self.fleet.by_test.lock().unwrap().insert(uid.clone());
        let params = DeleteParams {
            preconditions: Some(kube::api::Preconditions {
                uid: Some(uid),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        // It may be gone by now.
        let _ = self.fleet.pods.delete(&pod.name_any(), &params).await;
    }

    async fn annotate_any(&mut self, key: &str, value: &str) {
        if let Some(pod) = self.any_pod() {
            self.fleet.annotate(&pod, key, value).await;
        }
    }

    /// A pod of the newest revision is seen in a crash loop.
    async fn crash(&mut self) {
        let list = self.fleet.list();
        let new = list
            .iter()
            .find(|pod| PodState::of(pod).image == self.fleet.image);
        let Some(pod) = new else {
            return;
        };
        let now = now();
        let container = json!({
            "name": "app", "image": self.fleet.image, "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        });
        let condition = |kind: &str| json!({"type": kind, "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": now});
        let patch = json!({
            // The fake kubelet would start it again.
            "metadata": {"uid": pod.uid(), "annotations": {READY: "false"}},
            "status": {
                "phase": "Running",
                "conditions": [condition("Ready"), condition("ContainersReady")],
                "containerStatuses": [container],
            },
        });
        let params = PatchParams::default();
        let patch = Patch::Strategic(patch);
        let _ = self
            .fleet
            .pods
            .patch_status(&pod.name_any(), &params, &patch)
            .await;
    }

    async fn patch_node(&self, node: &str, patch: &Value) {
        let patch = Patch::Merge(patch);
        let patched = self
            .nodes
            .patch(node, &PatchParams::default(), &patch)
            .await;
        patched.unwrap();
    }

    async fn set_ready(&self, node: &str, ready: bool) {
        let (status, reason) = if ready {
            ("True", "KubeletReady")
        } else {
            ("False", "KubeletNotReady")
        };
        let patch = json!({"status": {"conditions": [
            {"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": now()}]}});
        let patch = Patch::Strategic(patch);
        let patched = self
            .nodes
            .patch_status(node, &PatchParams::default(), &patch)
            .await;
        patched.unwrap();
    }

    /// Removes every disturbance.
    async fn calm(&mut self) {
        self.fleet.pause(false).await;
        for name in self.fleet.nodes.clone() {
            let node = self.nodes.get(&name).await.unwrap();
            if node.labels().get(POOL) != Some(&self.fleet.pool) {
                self.patch_node(&name, &label(&self.fleet.pool)).await;
            }
            if node.spec.and_then(|s| s.unschedulable) == Some(true) {
                self.patch_node(&name, &cordon(false)).await;
            }
            let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
            let ready = |c: &NodeCondition| c.type_ == "Ready" && c.status == "True";
            if !conditions.iter().any(ready) {
                self.set_ready(&name, true).await;
            }
        }
    }
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn cordon(cordoned: bool) -> Value {
    json!({"spec": {"unschedulable": cordoned}})
}

fn label(pool: &str) -> Value {
    json!({"metadata": {"labels": {POOL: pool}}})
}

/// Ends and starts operators until it is aborted. Each comes to its work first: those that do not are
/// another test's.
pub(super) async fn restart(start: &Start<'_>, run: &Run, mut random: Rng) {
    loop {
        run.note_start().await;
        let operator = start.operator("rolling");
        operator.until_ready().await;
        let life = Duration::from_millis(random.u64(0..5_000));
        tokio::time::sleep(life).await;
        if random.bool() {
            operator.process.kill();
            operator.process.wait().await;
        } else {
            operator.process.stop(Duration::from_secs(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_roll_out_makes_more_nodes_unavailable_than_it_may() {
    let seed = seed("the roll-outs and what disturbs them");
    let mut random = Rng::with_seed(seed);
    let cluster = cluster().await;
    let run = Run::start(cluster, seed).await;
    let mut fleets = Vec::new();
    for _ in 0..lengths::disturbed_fleets() {
        let size = random.usize(3..=12);
        fleets.push(Fleet::new(cluster, "rolling", size, random.fork()).await);
    }
    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: flags(&fleets),
    };
    let client = cluster.client().await.unwrap();
    let disturbed = fleets.into_iter().map(|f| Disturbed::new(f, &client));
    let mut disturbed: Vec<Disturbed> = disturbed.collect();
    let all = disturbed.iter_mut().map(|disturbed| async {
        disturbed.fleet.until_settled().await;
        let mut spending = lengths::disturbed_roll_outs().start();
        while spending.another() {
            disturbed.roll_out(spending.rounds()).await;
        }
        spending.rounds()
    });
    let roll_outs: Vec<usize> = tokio::select! {
        () = restart(&start, &run, random) => unreachable!("it never ends"),
        roll_outs = futures::future::join_all(all) => roll_outs,
    };
    let roll_outs: usize = roll_outs.iter().sum();

    let verdicts = run.judge(disturbed.iter().map(|one| &one.fleet)).await;
    let mut harm: BTreeMap<&str, usize> = BTreeMap::new();
    for one in &disturbed {
        for (what, count) in &one.harm {
            *harm.entry(what).or_default() += count;
        }
    }
    let sum = |count: fn(&Verdict) -> usize| verdicts.iter().map(count).sum::<usize>();
    let stopped: usize = disturbed.iter().map(|one| one.fleet.stopped).sum();
    let held = sum(|v| v.held_against_limit);
    let at_limit = sum(|v| v.at_limit);
    let mut excused: BTreeMap<&str, usize> = BTreeMap::new();
    for (what, count) in verdicts.iter().flat_map(|v| &v.excused) {
        *excused.entry(what).or_default() += count;
    }
    println!(
        "{roll_outs} roll-outs, {} restarts, {stopped} roll-outs stopped by themselves, {} pods surged, {held} deletions held against the limit, {at_limit} of them at it; other deletions: {excused:?}; harm: {harm:?}",
        run.starts() - 1,
        sum(|v| v.surges),
    );
    assert_good(&verdicts);
    // Else this has shown nothing. How often a deletion was at the limit is chance in the few roll-outs of a short run.
    assert!(held > 0, "{held}");
    if roll_outs >= 50 {
        assert!(held > roll_outs, "{held}");
        assert!(at_limit > roll_outs * 3 / 10, "{at_limit}");
    }
    for one in &disturbed {
        one.fleet.remove().await;
    }
}
