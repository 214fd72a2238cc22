//! Many MyDaemonSets with nothing to do.

use std::time::Duration;

use anyhow::Result;

use super::Plan;
use super::writes::Kind;
use crate::operator::Operator;
use crate::plane::Plane;
use crate::sightings::Pod;
use crate::table::{Aim, Figures};

/// Measures one operator.
pub(super) async fn measure(operator: Operator, plan: &Plan, figures: &mut Figures) -> Result<()> {
    let (sets, nodes, seconds) = (plan.sets, plan.rest_nodes, plan.rest_seconds);
    let plane = Plane::start(nodes, &[]).await?;
    let running = operator.start(&plane).await?;
    let pods = plane.watch_pods(sets * nodes, [Pod::is_ready]).await?;
    for number in 1..=sets {
        let name = format!("set-{number}");
        plane.create_set(Kind::MyDaemonSet, &name).await?;
    }
    pods.all().await?;
    plane.settle().await?;
    let (page, cpu) = (running.page().await?, running.cpu()?);
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let (cpu, now) = (running.cpu()? - cpu, running.page().await?);
    let title = format!("{sets} at rest on {nodes} nodes");
    let writes = now.writes() - page.writes();
    let name = format!("{title}: writes in {seconds} s");
    figures.add(name, writes, &[Aim::Most(0.0)]);
    let share = cpu / f64::from(seconds) * 1e3;
    let name = format!("{title}: processor, thousandths of a core");
    figures.add(name, share, &[Aim::Most(10.0)]);
    let memory = running.memory()? / 1024.0 / 1024.0;
    figures.add(format!("{title}: memory, MiB"), memory, &[]);
    running.stop().await;
    plane.stop().await;
    Ok(())
}
