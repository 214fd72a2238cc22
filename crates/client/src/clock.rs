//! The wall clock as an argument, so that tests can set it.

use std::sync::Arc;

use chrono::{DateTime, Utc};

/// A source of the wall clock's time. Tests set their own.
pub type Clock = Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>;

/// The machine's clock.
pub fn system() -> Clock {
    Arc::new(Utc::now)
}
