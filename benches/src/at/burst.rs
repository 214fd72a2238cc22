//! Many Ats due at one instant.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};

use super::{BARE, JOBS, PEER_1, PEER_10, writes};
use crate::operator::{Operator, Running};
use crate::plane::Plane;
use crate::sightings::{Pod, Sightings};
use crate::table::{Aim, Figures};

/// How long before the instant Ats are created: a fixed number of seconds, and a time for each.
const LEAD: (f64, f64) = (8.0, 0.02);

/// The most reliable figure on a busy machine.
const EVERYTHING: &str = "burst: processor time of all by then, ms for each";

const RATE: &[Aim] = &[
    Aim::LeastTimes(0.85, BARE),
    Aim::LeastTimes(1.4, JOBS),
    Aim::LeastTimes(1.0, PEER_1),
    Aim::LeastTimes(1.0, PEER_10),
];

/// Measures one column.
pub(super) async fn measure(column: &str, count: usize, figures: &mut Figures) -> Result<()> {
    let plane = writes::plane(count.max(250)).await?;
    match super::operator(column) {
        Some(operator) => operated(&plane, operator, count, figures).await?,
        None => unaided(&plane, column, count, figures).await?,
    }
    plane.stop().await;
    Ok(())
}

/// An operator starts Ats at their instant.
async fn operated(
    plane: &Plane,
    operator: Operator,
    count: usize,
    figures: &mut Figures,
) -> Result<()> {
    let running = operator.start(plane).await?;
    #[allow(clippy::cast_precision_loss)]
    let lead = Duration::from_secs_f64(LEAD.0 + LEAD.1 * count as f64);
    let due = Utc::now() + TimeDelta::from_std(lead)?;
    plane.create_ats(count, due).await?;
    plane.settle().await?;
    let left = (due - Utc::now()).to_std();
    let left = left.context("the instant had come before all was ready for it")?;
    let releases = plane.watch_pods(count, [Pod::is_released]).await?;
    tokio::time::sleep(left.saturating_sub(Duration::from_millis(200))).await;
    ensure!(releases.so_far() == 0, "a pod was released too early");
    let before = Usage::of(&running).await?;
    let all = plane.cpu_with_bench()? + before.cpu;
    let last = rate(releases, due, count, figures).await?;
    let after = running.cpu()?;
    #[allow(clippy::cast_precision_loss)]
    let count = count as f64;
    let each = |seconds: f64| seconds * 1e3 / count;
    figures.add(EVERYTHING, each(plane.cpu_with_bench()? + after - all), &[]);
    let name = "burst: processor time of the operator by then, ms for each";
    figures.add(name, each(after - before.cpu), &[]);
    plane.settle().await?;
    let end = Usage::of(&running).await?;
    let calls = (end.calls - before.calls) / count;
    figures.add("burst: calls until all is over, for each", calls, &[]);
    let memory = running.memory()? / 1024.0 / 1024.0;
    figures.add("burst: memory of the operator afterwards, MiB", memory, &[]);
    if operator == super::OPERATOR {
        eprintln!("the last of {count} was released after {last:.2} s");
    }
    running.stop().await;
    Ok(())
}

struct Usage {
    cpu: f64,
    calls: f64,
}

impl Usage {
    async fn of(running: &Running) -> Result<Self> {
        Ok(Self {
            cpu: running.cpu()?,
            calls: running.page().await?.calls(),
        })
    }
}

/// Measures a column without an operator, on a plane with as many Ats.
async fn unaided(plane: &Plane, column: &str, count: usize, figures: &mut Figures) -> Result<()> {
    let never = DateTime::from_timestamp(4_000_000_000, 0).unwrap_or_default();
    let ats = plane.create_ats(count, never).await?;
    plane.settle().await?;
    let releases = plane.watch_pods(count, [Pod::is_released]).await?;
    let before = plane.cpu_with_bench()?;
    let begin = Utc::now();
    if column == JOBS {
        plane.create_jobs(count).await?;
    } else {
        plane.start_bare(&ats).await?;
    }
    rate(releases, begin, count, figures).await?;
    #[allow(clippy::cast_precision_loss)]
    let each = (plane.cpu_with_bench()? - before) * 1e3 / count as f64;
    figures.add(EVERYTHING, each, &[]);
    Ok(())
}

/// Waits for the last release; seconds from the beginning to it.
async fn rate(
    releases: Sightings<1>,
    begin: DateTime<Utc>,
    count: usize,
    figures: &mut Figures,
) -> Result<f64> {
    let [all] = releases.all().await?;
    let last = all.iter().max().context("no release")?;
    let first = all.iter().min().context("no release")?;
    ensure!(*first >= begin, "a pod was released too early");
    let seconds = (*last - begin).as_seconds_f64();
    #[allow(clippy::cast_precision_loss)]
    let rate = count as f64 / seconds;
    figures.add(
        format!("burst of {count}: pods released per second"),
        rate,
        RATE,
    );
    Ok(seconds)
}
