//! The wall clock, injected as an argument, so that tests can set it. And the uptime of the machine, for timeouts that
//! must hold even if the wall clock is set.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use rustix::time::{ClockId, clock_gettime};

/// A source of the wall clock's time. Tests set their own.
pub type Clock = Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>;

/// The machine's clock.
pub fn system() -> Clock {
    Arc::new(Utc::now)
}

/// The uptime of the machine. This clock cannot be set, and unlike [`std::time::Instant`] it counts the time that the
/// machine sleeps (`CLOCK_BOOTTIME`, clock_gettime(2)).
pub fn up() -> Duration {
    let up = clock_gettime(ClockId::Boottime);
    let nanoseconds = u32::try_from(up.tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(up.tv_sec).unwrap_or_default(), nanoseconds)
}

/// A machine whose clock is set, for tests under tokio's paused time.
#[cfg(test)]
pub mod simulated {

    use std::sync::atomic::{AtomicI64, Ordering};

    use chrono::TimeDelta;

    use super::{Arc, Clock, DateTime, Utc};

    /// Its wall clock advances with tokio's monotonic one, and can be set. To a machine that was suspended, its wall
    /// clock seems to have been set forward: the monotonic one stood still.
    #[derive(Clone)]
    pub struct Machine {
        booted: tokio::time::Instant,
        set_by: Arc<AtomicI64>,
    }

    impl Machine {
        /// It starts at second 0.
        pub fn boot() -> Self {
            Self {
                booted: tokio::time::Instant::now(),
                set_by: Arc::default(),
            }
        }

        /// How long it has been up, by the monotonic clock.
        pub fn up(&self) -> TimeDelta {
            TimeDelta::from_std(self.booted.elapsed()).unwrap_or(TimeDelta::MAX)
        }

        /// The time of the wall clock.
        pub fn now(&self) -> DateTime<Utc> {
            second(self.set_by.load(Ordering::SeqCst)) + self.up()
        }

        /// Sets the wall clock forward by so many seconds, or back.
        pub fn set(&self, seconds: i64) {
            self.set_by.fetch_add(seconds, Ordering::SeqCst);
        }

        /// The wall clock.
        pub fn clock(&self) -> Clock {
            let machine = self.clone();
            Arc::new(move || machine.now())
        }
    }

    /// The time that the wall clock of a new machine shows after so many seconds.
    pub fn second(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(1_800_000_000 + seconds)
    }
}
