//! How long calls in flight may go on after the stop, while the next leader waits.

use std::time::Duration;

/// The limit for calls with a precondition: one that lands after the next leader has decided is rejected, or does what
/// that leader wants, too. So no other object waits for a call that hangs.
pub(super) const CALLS_TIMEOUT: Duration = Duration::from_secs(2);

/// The limit while a call is in flight that [`Context::limited`](super::Context::limited) counts.
pub(super) const LIMITED_TIMEOUT: Duration = Duration::from_secs(15);
