//! Waiting for conditions.

use std::time::{Duration, Instant};

/// For everything that is waited for: nothing takes that long unless something is broken.
pub const TIMEOUT: Duration = Duration::from_secs(90);

/// Between two looks at something that gives no notice of a change. Objects in the cluster do: wait for those with
/// [`Kubectl::until`](crate::Kubectl::until).
const POLL: Duration = Duration::from_millis(50);

/// Calls `look` until it returns something.
#[track_caller]
pub fn wait_for<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        match try_wait(TIMEOUT, look).await {
            Some(answer) => answer,
            None => panic!("{place}: timed out waiting for {what}"),
        }
    }
}

/// Calls `look` until it returns something or the timeout has passed.
pub async fn try_wait<T>(timeout: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = look().await {
            return Some(answer);
        }
        if start.elapsed() > timeout {
            return None;
        }
        tokio::time::sleep(POLL).await;
    }
}
