//! Many Ats that wait.

use std::time::Duration;

use anyhow::Result;
use chrono::DateTime;

use super::writes;
use crate::operator::{Operator, Page};
use crate::table::{Aim, Figures};

/// Measures one operator.
pub(super) async fn measure(
    operator: Operator,
    count: usize,
    seconds: u32,
    figures: &mut Figures,
) -> Result<()> {
    let plane = writes::plane(0).await?;
    #[allow(clippy::cast_precision_loss)]
    let number = count as f64;
    let running = operator.start(&plane).await?;
    plane.settle().await?;
    let empty = running.memory()?;
    let never = DateTime::from_timestamp(4_000_000_000, 0).unwrap_or_default();
    plane.create_ats(count, never).await?;
    let all = move |page: &Page| page.is_idle() && page.reconciles() >= number;
    running.until("the last At", all).await?;
    plane.settle().await?;
    let each = (running.memory()? - empty) / number;
    let name = format!("{count} waiting, come one by one: memory of each, B");
    figures.add(name, each, &[]);

    let page = running.page().await?;
    let cpu = running.cpu()?;
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let (cpu, now) = (running.cpu()? - cpu, running.page().await?);
    let writes = now.writes() - page.writes();
    figures.add(
        format!("waiting: writes in {seconds} s"),
        writes,
        &[Aim::Most(0.0)],
    );
    let share = cpu / f64::from(seconds) * 1e3;
    figures.add(
        "waiting: processor, thousandths of a core",
        share,
        &[Aim::Most(1.0)],
    );
    running.stop().await;
    plane.settle().await?;

    let running = operator.start(&plane).await?;
    running.until("the last At", all).await?;
    let (cpu, page) = (running.cpu()?, running.page().await?);
    figures.add("restart: processor, s", cpu, &[Aim::Most(1.0)]);
    figures.add("restart: reads", page.reads(), &[]);
    figures.add("restart: writes", page.writes(), &[Aim::Most(0.0)]);
    plane.settle().await?;
    let each = (running.memory()? - empty) / number;
    let name = format!("{count} waiting, after a restart: memory of each, B");
    figures.add(name, each, &[Aim::Most(1500.0)]);
    running.stop().await;
    plane.stop().await;
    Ok(())
}
