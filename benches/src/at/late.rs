//! How late a single At is on an idle system.

use anyhow::Result;
use chrono::{TimeDelta, Utc};

use super::writes;
use crate::operator::Operator;
use crate::plane::NAMESPACE;
use crate::sightings::Pod;
use crate::table::{Aim, Figures, Spread};

/// Between two instants: each At is over before the next is due.
const APART: TimeDelta = TimeDelta::seconds(2);
/// From the creation to the first instant.
const LEAD: TimeDelta = TimeDelta::seconds(4);

/// Measures one operator.
pub(super) async fn measure(operator: Operator, count: u32, figures: &mut Figures) -> Result<()> {
    let plane = writes::plane(250).await?;
    let running = operator.start(&plane).await?;
    plane.settle().await?;
    let releases = plane
        .watch_pods(usize::try_from(count)?, [Pod::is_released])
        .await?;
    let first = Utc::now() + LEAD;
    let mut due = Vec::new();
    for number in 0..count {
        let instant = first + APART * i32::try_from(number)?;
        let name = format!("single-{number}");
        plane.create_at(NAMESPACE, &name, instant).await?;
        due.push(instant);
    }
    let [seen] = releases.all().await?;
    let late = |(seen, due): (&chrono::DateTime<Utc>, &chrono::DateTime<Utc>)| {
        (*seen - *due).as_seconds_f64() * 1e3
    };
    let late: Vec<f64> = seen.iter().zip(&due).map(late).collect();
    figures.add(
        "single At: released pod seen by a watch after, ms",
        Spread::new(late).median,
        &[],
    );
    if operator == super::OPERATOR {
        let mut answered = Vec::new();
        for number in 0..count {
            answered.extend(plane.lateness(&format!("single-{number}")).await?);
        }
        figures.add(
            "single At: release answered after, ms",
            Spread::new(answered).median,
            &[Aim::Most(30.0)],
        );
    }
    running.stop().await;
    plane.stop().await;
    Ok(())
}
