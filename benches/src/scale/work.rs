//! What an operator uses for some work, beside what it uses at rest.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use crate::operator::Running;
use crate::plane::TIMEOUT;

/// An operator that uses less than this part of a core is at rest.
const QUIET: f64 = 0.01;

/// The processor time of some work, from [`Work::begin`] on.
pub(super) struct Work<'a> {
    running: &'a Running,
    begin: Instant,
    cpu: f64,
}

impl<'a> Work<'a> {
    pub(super) fn begin(running: &'a Running) -> Result<Self> {
        Ok(Self {
            running,
            begin: Instant::now(),
            cpu: running.cpu()?,
        })
    }

    /// Waits until the operator is at rest. Returns the processor time of the work in seconds: without what the operator
    /// uses at rest, which is `rest` of a core.
    pub(super) async fn end(self, rest: f64) -> Result<f64> {
        settle(self.running).await?;
        let took = self.begin.elapsed().as_secs_f64();
        Ok(self.running.cpu()? - self.cpu - rest * took)
    }
}

/// Waits until an operator has had nothing to do for a second.
pub(super) async fn settle(running: &Running) -> Result<()> {
    let begin = Instant::now();
    loop {
        let before = running.cpu()?;
        sleep(Duration::from_secs(1)).await;
        if running.cpu()? - before < QUIET {
            return Ok(());
        }
        ensure!(
            begin.elapsed() < TIMEOUT,
            "the operator does not come to rest"
        );
    }
}

/// The part of a core that an operator at rest uses.
pub(super) async fn rest(running: &Running, seconds: u32) -> Result<f64> {
    let before = running.cpu()?;
    sleep(Duration::from_secs(seconds.into())).await;
    Ok((running.cpu()? - before) / f64::from(seconds))
}
