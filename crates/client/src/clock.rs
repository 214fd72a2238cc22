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

/// The clock of [`up`].
#[cfg(not(target_vendor = "apple"))]
const UPTIME: ClockId = ClockId::Boottime;
/// macOS has no `CLOCK_BOOTTIME`, but its monotonic clock counts the time asleep too (clock_gettime(3) there).
#[cfg(target_vendor = "apple")]
const UPTIME: ClockId = ClockId::Monotonic;

/// The uptime of the machine. This clock cannot be set, and unlike [`std::time::Instant`] it counts the time that the
/// machine sleeps (`CLOCK_BOOTTIME`, clock_gettime(2)).
pub fn up() -> Duration {
    let up = clock_gettime(UPTIME);
    let nanoseconds = u32::try_from(up.tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(up.tv_sec).unwrap_or_default(), nanoseconds)
}
