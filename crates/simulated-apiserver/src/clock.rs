//! The wall clock of a simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// A wall clock that can be stepped. Cheap to clone; clones share the steps.
///
/// It shows a base instant plus the time elapsed by tokio's clock, so that it follows virtual time. A step forward also
/// simulates a machine that was suspended: its monotonic clock stood still.
#[derive(Clone, Debug)]
pub struct Clock {
    base: DateTime<Utc>,
    started: Instant,
    /// Milliseconds by which it was stepped.
    stepped: Arc<AtomicI64>,
}

impl Clock {
    /// A clock that shows `base` now.
    pub fn starting_at(base: DateTime<Utc>) -> Self {
        Self {
            base,
            started: Instant::now(),
            stepped: Arc::default(),
        }
    }

    /// A clock that shows the default start of a simulation now: [`second(0)`](second).
    pub fn boot() -> Self {
        Self::starting_at(second(0))
    }

    /// The time it shows.
    pub fn now(&self) -> DateTime<Utc> {
        let stepped = TimeDelta::milliseconds(self.stepped.load(Ordering::Relaxed));
        let elapsed = TimeDelta::from_std(self.elapsed()).unwrap_or_default();
        self.base + elapsed + stepped
    }

    /// How long the simulation has run. Steps do not change it.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Steps the clock forward, or back.
    pub fn step(&self, by: TimeDelta) {
        self.stepped
            .fetch_add(by.num_milliseconds(), Ordering::Relaxed);
    }

    /// The clock as a function, for code that takes its source of time as an argument.
    pub fn source(&self) -> Arc<dyn Fn() -> DateTime<Utc> + Send + Sync> {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// The time so many seconds after the default start of a simulation (2027-01-15T08:00:00Z), by a clock that was not
/// stepped.
pub fn second(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(1_800_000_000 + seconds)
}
