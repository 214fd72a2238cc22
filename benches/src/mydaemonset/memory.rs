//! What nodes, their heartbeats and pods take.

use std::time::Instant;

use anyhow::Result;

use super::Plan;
use super::writes::Kind;
use crate::operator::Operator;
use crate::plane::Plane;
use crate::sightings::Pod;
use crate::table::{Aim, Figures};

/// Heartbeats per second: those of 2,000 nodes, each every ten seconds.
const BEATS: u32 = 200;

/// Measures one operator.
pub(super) async fn measure(operator: Operator, plan: &Plan, figures: &mut Figures) -> Result<()> {
    let nodes = plan.nodes;
    #[allow(clippy::cast_precision_loss)]
    let number = nodes as f64;
    let plane = Plane::start(0, &[]).await?;
    let running = operator.start(&plane).await?;
    plane.settle().await?;
    let idle = running.memory()?;
    plane.add_nodes(nodes).await?;
    plane.settle().await?;
    let with_nodes = running.memory()?;
    let each = (with_nodes - idle) / number;
    let name = format!("{nodes} nodes: memory of each, B");
    figures.add(name, each, &[Aim::Most(1500.0)]);

    let pods = plane.watch_pods(nodes, [Pod::is_ready]).await?;
    let right = plane
        .watch_status(Kind::MyDaemonSet, "web", 1, nodes)
        .await?;
    plane.create_set(Kind::MyDaemonSet, "web").await?;
    pods.all().await?;
    right.await??;
    plane.settle().await?;
    let each = (running.memory()? - with_nodes) / number;
    let name = format!("{nodes} pods: memory of each, B");
    figures.add(name, each, &[Aim::Most(2500.0)]);

    // The cost at rest is not a part of the heartbeats' cost.
    let (begin, cpu) = (Instant::now(), running.cpu()?);
    plane.settle().await?;
    let at_rest = (running.cpu()? - cpu) / begin.elapsed().as_secs_f64();
    let (begin, cpu) = (Instant::now(), running.cpu()?);
    let beats = plan.beat_seconds * BEATS;
    plane.beat(nodes, usize::try_from(beats)?, BEATS).await?;
    plane.settle().await?;
    let cpu = running.cpu()? - cpu - at_rest * begin.elapsed().as_secs_f64();
    let each = cpu * 1e6 / f64::from(beats);
    let name = "a node's heartbeat: processor, µs";
    figures.add(name, each, &[Aim::Most(20.0)]);
    running.stop().await;

    let running = operator.start(&plane).await?;
    plane.settle().await?;
    let each = (running.memory()? - idle) / number;
    let name = "after a restart: memory of a node and its pod, B";
    figures.add(name, each, &[]);
    running.stop().await;
    plane.stop().await;
    Ok(())
}
