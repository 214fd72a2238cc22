//! Many Ats that wait, a change of some of them, and some that are due.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use simulated_apiserver::Resource;
use tokio::time::{Instant, sleep, sleep_until};

use super::plane::{Plane, failed};
use super::work::{Work, rest, settle};
use crate::at::at;
use crate::operator::{Operator, Page, Running};
use crate::plane::TIMEOUT;
use crate::table::{Aim, Figures};

const OPERATOR: Operator = Operator::Ours("at");
/// Of how many namespaces they are.
const NAMESPACES: usize = 10;
/// Ats beside those that are counted: what the first pages of a list take is not a part of their memory.
const BASE: usize = 1_000;
/// How many watch events come, and how many in a hundredth of a second.
const EVENTS: usize = 10_000;
const EVENTS_AT_ONCE: usize = 20;
/// How many Ats are due at one instant, and how long after they were created: less than a minute, so that no dry run
/// comes before.
const DUE: usize = 1_000;
const DUE_AFTER: TimeDelta = TimeDelta::seconds(50);
/// How often metrics are read.
const SCRAPES: u32 = 100;

/// Measures that many.
pub(super) async fn measure(
    count: usize,
    rest_seconds: u32,
    [flat, flat_memory]: [&'static [Aim]; 2],
    figures: &mut Figures,
) -> Result<()> {
    #[allow(clippy::cast_precision_loss)]
    let [number, all] = [count, count + BASE].map(|count| count as f64);
    let plane = Plane::start().await?;
    plane.server.register(kind());
    for number in 0..NAMESPACES {
        plane.server.direct().namespace(&namespace(number));
    }
    let running = plane.operator(OPERATOR).await?;
    let model = plane.model().await?;
    running.stop().await;
    plane.fill(count..count + BASE, &model)?;
    let running = plane.start_with_ats(BASE).await?;
    let base = running.memory()?;
    running.stop().await;
    plane.fill(0..count, &model)?;

    let begin = Instant::now();
    let running = plane.start_with_ats(count + BASE).await?;
    let took = begin.elapsed().as_secs_f64();
    let cpu = running.cpu()?;
    figures.add("Ats, start: processor, s", cpu, &[Aim::Most(60.0)]);
    figures.add("Ats, start: until the operator is at rest, s", took, &[]);
    figures.add("Ats, start: processor for each, µs", cpu / all * 1e6, &[]);
    let memory = (running.memory()? - base) / number;
    figures.add("Ats, waiting: memory of each, B", memory, flat_memory);
    let peak = (running.peak_memory()? - base) / number;
    figures.add(
        "Ats, waiting: most memory during the start, B for each",
        peak,
        &[],
    );
    let rest = rest(&running, rest_seconds).await?;
    figures.add(
        "Ats, waiting: processor, thousandths of a core",
        rest * 1e3,
        &[Aim::Most(1.0)],
    );

    let work = Work::begin(&running)?;
    for _ in 0..SCRAPES {
        running.page().await?;
    }
    let scrape = work.end(rest).await? / f64::from(SCRAPES);
    figures.add(
        "Ats, a scrape of the metrics: processor, µs",
        scrape * 1e6,
        flat,
    );

    let writes = running.page().await?.writes();
    let work = Work::begin(&running)?;
    plane.touch(count).await?;
    #[allow(clippy::cast_precision_loss)]
    let each = work.end(rest).await? / EVENTS as f64;
    figures.add("Ats, a watch event: processor, µs", each * 1e6, flat);
    let writes = running.page().await?.writes() - writes;
    figures.add("Ats, watch events: writes", writes, &[Aim::Most(0.0)]);

    let due = Utc::now() + DUE_AFTER;
    for number in 0..DUE {
        plane.create(at(&namespace(number), &format!("due-{number:04}"), due))?;
    }
    settle(&running).await?;
    ensure!(Utc::now() < due, "the Ats are due before they are accepted");
    let work = Work::begin(&running)?;
    plane.released().await?;
    #[allow(clippy::cast_precision_loss)]
    let each = work.end(rest).await? / DUE as f64;
    figures.add("Ats, a due At: processor, µs", each * 1e6, flat);
    running.stop().await;
    Ok(())
}

fn kind() -> Resource {
    Resource::custom("cnat.programming-kubernetes.info", "v1alpha1", "At", "ats")
}

fn namespace(number: usize) -> String {
    format!("team-{}", number % NAMESPACES)
}

fn name(number: usize) -> String {
    format!("at-{number:07}")
}

impl Plane {
    /// A waiting At with the status that the operator gives it.
    async fn model(&self) -> Result<Value> {
        let never = DateTime::from_timestamp(4_000_000_000, 0).unwrap_or_default();
        let namespace = namespace(0);
        self.create(at(&namespace, "model", never))?;
        let mut before = Value::Null;
        let begin = Instant::now();
        loop {
            sleep(Duration::from_secs(2)).await;
            let direct = self.server.direct();
            let model = direct.get("At", &namespace, "model");
            let model = model.context("the model is gone")?;
            if model == before && !model["status"].is_null() {
                let deleted = direct.delete("At", &namespace, "model");
                deleted.map_err(|status| failed(&status))?;
                return Ok(model);
            }
            ensure!(
                begin.elapsed() < TIMEOUT,
                "the model gets no status: {model}"
            );
            before = model;
        }
    }

    /// Starts the operator, and waits until it has looked at that many Ats and is at rest.
    async fn start_with_ats(&self, count: usize) -> Result<Running> {
        #[allow(clippy::cast_precision_loss)]
        let number = count as f64;
        let running = self.operator(OPERATOR).await?;
        let all = move |page: &Page| page.is_idle() && page.reconciles() >= number;
        running.until("the last At", all).await?;
        settle(&running).await?;
        Ok(running)
    }

    /// Creates the Ats of these numbers like it, as they are when the operator has accepted them.
    fn fill(&self, numbers: Range<usize>, model: &Value) -> Result<()> {
        // A creation drops the status of a kind that has an endpoint for it.
        self.server.register(kind().without_status());
        for number in numbers {
            let mut at = model.clone();
            at["metadata"] = json!({"name": name(number), "namespace": namespace(number)});
            self.create(at)?;
        }
        self.server.register(kind());
        Ok(())
    }

    /// Changes a label of one At after the other.
    async fn touch(&self, count: usize) -> Result<()> {
        let mut next = Instant::now();
        for event in 0..EVENTS {
            if event % EVENTS_AT_ONCE == 0 {
                next += Duration::from_millis(10);
                sleep_until(next).await;
            }
            // Prime to their number: all over the place, and each as often as the others.
            let number = event * 7_919 % count;
            let change = json!({"metadata": {"labels": {"event": event.to_string()}}});
            let direct = self.server.direct();
            let changed = direct.patch("At", &namespace(number), &name(number), &change);
            changed.map_err(|status| failed(&status))?;
        }
        Ok(())
    }

    /// Waits until a pod of every due At may be scheduled.
    async fn released(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let pods = self.server.direct().list("Pod", "");
            let is_released = |pod: &&Value| pod["spec"]["schedulingGates"].is_null();
            if pods.iter().filter(is_released).count() >= DUE {
                return Ok(());
            }
            ensure!(begin.elapsed() < TIMEOUT, "{} pods of {DUE}", pods.len());
            sleep(Duration::from_millis(200)).await;
        }
    }
}
