//! Many calls of one kind: few at a time at first, and more while they succeed.

use futures::StreamExt;
use futures::stream::FuturesUnordered;

/// The maximum number of pods created, and of pods deleted, in one pass; the next pass follows at once.
pub(super) const MAX_PODS_PER_PASS: usize = 500;
/// How many calls for one object are in flight at a time.
const MAX_CALLS: usize = 32;

/// How to continue after a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// With one more call at a time.
    Faster,
    /// As before.
    Steady,
    /// Start no other call. Calls in flight are awaited: a dropped one may be carried out all the same.
    Stop,
}

/// Makes the calls of one pass: one first, more at a time as they succeed.
pub(super) async fn run_batched<C: Future>(
    calls: impl Iterator<Item = C>,
    mut ended: impl FnMut(C::Output) -> Flow,
) {
    let mut waiting = calls.take(MAX_PODS_PER_PASS);
    let mut window = 1;
    let mut in_flight = FuturesUnordered::new();
    let mut stopped = false;
    loop {
        while !stopped && in_flight.len() < window {
            let Some(call) = waiting.next() else {
                break;
            };
            in_flight.push(call);
        }
        let Some(output) = in_flight.next().await else {
            return;
        };
        match ended(output) {
            Flow::Faster => window = (window + 1).min(MAX_CALLS),
            Flow::Steady => {}
            Flow::Stop => stopped = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_stop_starts_no_other_call() {
        let started = Cell::new(0);
        let calls = (0..10).map(|nth| {
            let started = &started;
            async move {
                started.set(started.get() + 1);
                nth
            }
        });
        let mut ended = Vec::new();
        run_batched(calls, |nth| {
            ended.push(nth);
            if nth == 2 { Flow::Stop } else { Flow::Steady }
        })
        .await;
        assert_eq!((started.get(), ended), (3, vec![0, 1, 2]));
    }
}
