//! How long work may go on after the stop.

use std::time::Duration;

/// How long reconciles may go on after the stop. A call may take longer, for example while a webhook hangs, and may or
/// may not be carried out. That must not keep the lease from the next leader.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(15);
