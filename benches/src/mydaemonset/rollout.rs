//! A fresh object on many nodes, and a change of its image.

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};

use super::writes::{CHANGED, Kind};
use super::{BARE, DEFAULTS, OURS, PEER_1, PEER_32, Plan, RAISED};
use crate::operator::Running;
use crate::plane::Plane;
use crate::sightings::Pod;
use crate::table::{Aim, Figures};

/// The limits of client-go, which the local control plane raises.
const DEFAULT_LIMITS: [&str; 2] = ["--kube-api-qps=20", "--kube-api-burst=30"];
const NAME: &str = "web";

const CREATED: &[Aim] = &[
    Aim::LeastTimes(0.85, BARE),
    Aim::LeastTimes(1.0, PEER_1),
    Aim::LeastTimes(1.0, PEER_32),
];
const BOUND: &[Aim] = &[
    Aim::LeastTimes(1.8, RAISED),
    Aim::LeastTimes(20.0, DEFAULTS),
];
const PROCESSOR: &[Aim] = &[Aim::MostTimes(0.5, PEER_1)];

/// Measures one column.
pub(super) async fn measure(column: &str, plan: &Plan, figures: &mut Figures) -> Result<()> {
    let (nodes, limits): (_, &[&str]) = match column {
        DEFAULTS => (plan.few_nodes, &DEFAULT_LIMITS),
        _ => (plan.nodes, &[]),
    };
    let plane = Plane::start(nodes, limits).await?;
    let running = match super::operator(column) {
        Some(operator) => Some(operator.start(&plane).await?),
        None => None,
    };
    let kind = match column {
        RAISED | DEFAULTS => Kind::DaemonSet,
        _ => Kind::MyDaemonSet,
    };
    let stage = Stage {
        plane: &plane,
        running: running.as_ref(),
        kind,
        nodes,
        title: format!("fresh on {} nodes", plan.nodes),
    };
    stage.fresh(column == BARE, figures).await?;
    if [OURS, RAISED].contains(&column) {
        stage.change(figures).await?;
    }
    if let Some(running) = running {
        running.stop().await;
    }
    plane.stop().await;
    Ok(())
}

struct Stage<'a> {
    plane: &'a Plane,
    running: Option<&'a Running>,
    kind: Kind,
    nodes: usize,
    title: String,
}

impl Stage<'_> {
    async fn fresh(&self, bare: bool, figures: &mut Figures) -> Result<()> {
        let (plane, title) = (self.plane, &self.title);
        let mut owner = None;
        if bare {
            owner = Some(plane.create_set(self.kind, NAME).await?);
        }
        plane.settle().await?;
        let pods = plane.watch_pods(self.nodes, [|_| true, Pod::is_bound, Pod::is_ready]);
        let pods = pods.await?;
        let right = plane.watch_status(self.kind, NAME, 1, self.nodes).await?;
        let work = Work::of(self.running).await?;
        let all = plane.cpu_with_bench()? + work.cpu;
        let begin = Utc::now();
        if let Some(owner) = &owner {
            plane.create_pods(owner, self.nodes).await?;
        } else {
            plane.create_set(self.kind, NAME).await?;
        }
        let [created, bound, ready] = pods.all().await?;
        let now = self.running.map_or(Ok(0.0), Running::cpu)?;
        let all = plane.cpu_with_bench()? + now - all;
        for (what, seen, aims) in [
            ("created", &created, CREATED),
            ("bound", &bound, BOUND),
            ("Ready", &ready, &[][..]),
        ] {
            let seconds = (last(seen)? - begin).as_seconds_f64();
            let rate = number(self.nodes) / seconds;
            figures.add(format!("{title}: pods {what} per second"), rate, aims);
        }
        let each = all * 1e3 / number(self.nodes);
        let name = "fresh: processor time of all by the last Ready, ms for each pod";
        figures.add(name, each, &[]);
        if bare {
            right.abort();
            return Ok(());
        }
        let right = (right.await?? - last(&ready)?).as_seconds_f64() * 1e3;
        let name = "fresh: status right after the last Ready, ms";
        figures.add(name, right, &[Aim::Most(150.0)]);
        self.worked("fresh", work, PROCESSOR, figures).await
    }

    async fn change(&self, figures: &mut Figures) -> Result<()> {
        let plane = self.plane;
        let changed: [crate::sightings::Predicate; 1] = [|pod| pod.runs(CHANGED) && pod.is_ready()];
        let pods = plane.watch_pods(self.nodes, changed).await?;
        let right = plane.watch_status(self.kind, NAME, 2, self.nodes).await?;
        let work = Work::of(self.running).await?;
        let begin = Utc::now();
        plane.change_set(self.kind, NAME).await?;
        let [ready] = pods.all().await?;
        let seconds = (last(&ready)? - begin).as_seconds_f64();
        let name = "change, maxUnavailable 10 %: s until all pods are new and Ready";
        figures.add(name, seconds, &[]);
        let right = (right.await?? - last(&ready)?).as_seconds_f64() * 1e3;
        let name = "change: status right after the last Ready, ms";
        figures.add(name, right, &[]);
        self.worked("change", work, &[], figures).await
    }

    /// What the operator did since then, until nothing is left to do.
    async fn worked(
        &self,
        what: &str,
        before: Work,
        aims: &'static [Aim],
        figures: &mut Figures,
    ) -> Result<()> {
        self.plane.settle().await?;
        if self.running.is_some() {
            let now = Work::of(self.running).await?;
            let cpu = now.cpu - before.cpu;
            let name = format!("{what}: processor time of the operator, s");
            figures.add(name, cpu, aims);
            let writes = (now.writes - before.writes) / number(self.nodes);
            figures.add(format!("{what}: writes for each pod"), writes, &[]);
        }
        Ok(())
    }
}

/// What an operator did so far.
struct Work {
    cpu: f64,
    writes: f64,
}

impl Work {
    async fn of(running: Option<&Running>) -> Result<Self> {
        Ok(match running {
            Some(running) => Self {
                cpu: running.cpu()?,
                writes: running.page().await?.writes(),
            },
            None => Self {
                cpu: 0.0,
                writes: 0.0,
            },
        })
    }
}

fn last(seen: &[DateTime<Utc>]) -> Result<DateTime<Utc>> {
    seen.last().copied().context("no pod was seen")
}

#[allow(clippy::cast_precision_loss)]
fn number(count: usize) -> f64 {
    count as f64
}
