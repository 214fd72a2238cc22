//! Many nodes with a pod of each of some MyDaemonSets, heartbeats of the nodes, and pods that stop being ready.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use simulated_apiserver::{Behavior, KubeletOptions, Resource};
use tokio::time::{Instant, sleep, sleep_until};

use super::plane::{Plane, failed};
use super::work::{Work, rest, settle};
use crate::operator::{Operator, Running};
use crate::plane::{NAMESPACE, TIMEOUT};
use crate::table::{Aim, Figures};

const OPERATOR: Operator = Operator::Ours("mydaemonset");
/// How many MyDaemonSets there are.
const SETS: usize = 20;
/// Nodes beside those that are counted: what the first pages of a list take is not a part of the memory of pods.
const BASE: usize = 50;
/// How many heartbeats come, and how many in a hundredth of a second: those of 15,000 nodes, each every 7.5 s.
const BEATS: usize = 10_000;
const BEATS_AT_ONCE: usize = 20;
/// How many pods stop being ready and are ready again, one after the other.
const CHANGES: usize = 1_000;
const CHANGE_EVERY: Duration = Duration::from_millis(10);

/// Measures with that many nodes.
pub(super) async fn measure(
    nodes: usize,
    rest_seconds: u32,
    flat: &'static [Aim],
    figures: &mut Figures,
) -> Result<()> {
    #[allow(clippy::cast_precision_loss)]
    let pods = (nodes * SETS) as f64;
    let plane = Plane::start().await?;
    plane.server.register(Resource::custom(
        "apps.zhongmingmao.io",
        "v1beta1",
        "MyDaemonSet",
        "mydaemonsets",
    ));
    let running = plane.operator(OPERATOR).await?;
    plane.first_node().await?;
    settle(&running).await?;
    running.stop().await;
    plane.add_nodes(1..BASE)?;
    let running = plane.start_with_nodes(BASE).await?;
    let base = running.memory()?;
    running.stop().await;
    let all = BASE + nodes;
    plane.add_nodes(BASE..all)?;

    let running = plane.start_with_nodes(all).await?;
    let cpu = running.cpu()?;
    figures.add("MyDaemonSets, start: processor, s", cpu, &[Aim::Most(60.0)]);
    #[allow(clippy::cast_precision_loss)]
    let each = cpu / (all * SETS) as f64 * 1e6;
    figures.add("MyDaemonSets, start: processor for each pod, µs", each, &[]);
    let memory = (running.memory()? - base) / pods;
    figures.add("MyDaemonSets, at rest: memory of each pod, B", memory, flat);
    let peak = (running.peak_memory()? - base) / pods;
    let name = "MyDaemonSets, at rest: most memory during the start, B for each pod";
    figures.add(name, peak, &[]);
    let rest = rest(&running, rest_seconds).await?;
    let name = "MyDaemonSets, at rest: processor, thousandths of a core";
    figures.add(name, rest * 1e3, &[]);

    let work = Work::begin(&running)?;
    plane.beat(all).await?;
    #[allow(clippy::cast_precision_loss)]
    let each = work.end(rest).await? / BEATS as f64;
    let name = "MyDaemonSets, a heartbeat of a node: processor, µs";
    figures.add(name, each * 1e6, flat);

    let work = Work::begin(&running)?;
    plane.disturb(all).await?;
    plane.statuses(all).await?;
    #[allow(clippy::cast_precision_loss)]
    let each = work.end(rest).await? / (2 * CHANGES) as f64;
    let name = "MyDaemonSets, a pod that becomes ready or not: processor, µs";
    figures.add(name, each * 1e6, flat);
    running.stop().await;
    Ok(())
}

fn node(number: usize) -> String {
    format!("node-{number:05}")
}

fn set(number: usize) -> String {
    format!("set-{number:02}")
}

/// Pods, whose creation keeps the status or drops it.
fn pods(keep_status: bool) -> Resource {
    Resource {
        status: !keep_status,
        returns_deleted: true,
        unconditional_update: true,
        behavior: if keep_status {
            Behavior::Plain
        } else {
            Behavior::Pod
        },
        ..Resource::custom("", "v1", "Pod", "pods")
    }
}

/// The same object with another node's name wherever its own is.
fn moved(object: &Value, to: &str) -> Result<Value> {
    let mut moved: Value = serde_json::from_str(&object.to_string().replace(&node(0), to))?;
    if let Some(metadata) = moved["metadata"].as_object_mut() {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
    }
    Ok(moved)
}

/// The condition of that type.
fn condition<'a>(object: &'a mut Value, type_: &str) -> Option<&'a mut Value> {
    let conditions = object["status"]["conditions"].as_array_mut()?;
    conditions.iter_mut().find(|it| it["type"] == type_)
}

impl Plane {
    /// Creates the objects, and one node where a pod of each gets ready.
    async fn first_node(&self) -> Result<()> {
        let kubelet = self.server.kubelet(KubeletOptions::default());
        kubelet.add_node(&node(0));
        for number in 0..SETS {
            self.create(json!({
                "apiVersion": "apps.zhongmingmao.io/v1beta1",
                "kind": "MyDaemonSet",
                "metadata": {"name": set(number), "namespace": NAMESPACE},
                "spec": {"image": "nginx:stable-alpine3.17"},
            }))?;
        }
        self.statuses(1).await
    }

    /// Waits until the status of each object shows that many ready pods.
    async fn statuses(&self, nodes: usize) -> Result<()> {
        let begin = Instant::now();
        loop {
            let sets = self.server.direct().list("MyDaemonSet", NAMESPACE);
            let is_right = |set: &Value| {
                let status = &set["status"];
                status["numberReady"] == nodes && status["numberAvailable"] == nodes
            };
            if sets.iter().all(is_right) {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < TIMEOUT,
                "the status does not get right: {}",
                sets[0]
            );
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Starts the operator, and waits until it is at rest with that many nodes.
    async fn start_with_nodes(&self, nodes: usize) -> Result<Running> {
        let running = self.operator(OPERATOR).await?;
        self.statuses(nodes).await?;
        settle(&running).await?;
        Ok(running)
    }

    /// Adds nodes like the first one, with its pods.
    fn add_nodes(&self, numbers: Range<usize>) -> Result<()> {
        let direct = self.server.direct();
        let first = direct.get("Node", "", &node(0)).context("no first node")?;
        let mut first_pods = direct.list("Pod", NAMESPACE);
        first_pods.retain(|pod| pod["spec"]["nodeName"] == node(0));
        self.server.register(pods(true));
        for number in numbers {
            let name = node(number);
            self.create(moved(&first, &name)?)?;
            for pod in &first_pods {
                self.create(moved(pod, &name)?)?;
            }
        }
        self.server.register(pods(false));
        Ok(())
    }

    /// Sends heartbeats of all nodes in turn.
    async fn beat(&self, nodes: usize) -> Result<()> {
        let mut next = Instant::now();
        for beat in 0..BEATS {
            if beat % BEATS_AT_ONCE == 0 {
                next += Duration::from_millis(10);
                sleep_until(next).await;
            }
            let beats = |node: &mut Value| {
                if let Some(ready) = condition(node, "Ready") {
                    ready["lastHeartbeatTime"] = json!(format!("beat {beat}"));
                }
            };
            let name = node(beat * 7_919 % nodes);
            let done = self.server.direct().edit_status("Node", "", &name, beats);
            done.map_err(|status| failed(&status))?;
        }
        Ok(())
    }

    /// Makes pods of all objects unready, and ready again.
    async fn disturb(&self, nodes: usize) -> Result<()> {
        let pods = self.server.direct().list("Pod", NAMESPACE);
        let first = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node(0));
        let names = first.filter_map(|pod| pod["metadata"]["name"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        ensure!(
            names.len() == SETS,
            "{} pods on the first node",
            names.len()
        );
        drop(pods);
        let mut next = Instant::now();
        for change in 0..CHANGES {
            let name = names[change % SETS].replace(&node(0), &node(change * 7_919 % nodes));
            for status in ["False", "True"] {
                next += CHANGE_EVERY;
                sleep_until(next).await;
                let change = |pod: &mut Value| {
                    for type_ in ["Ready", "ContainersReady"] {
                        if let Some(condition) = condition(pod, type_) {
                            condition["status"] = json!(status);
                        }
                    }
                };
                let direct = self.server.direct();
                let done = direct.edit_status("Pod", NAMESPACE, &name, change);
                done.map_err(|status| failed(&status))?;
            }
        }
        Ok(())
    }
}
