//! The clock of the API server, as its answers show it.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use chrono::{DateTime, TimeDelta, Utc};
use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use http::{Response, header};
use rustix::time::{ClockId, clock_gettime};
use tower::{Layer, Service};

/// The clock of [`up`].
#[cfg(not(target_vendor = "apple"))]
const UPTIME: ClockId = ClockId::Boottime;
/// macOS has no `CLOCK_BOOTTIME`, but its monotonic clock counts the time asleep too (clock_gettime(3) there).
#[cfg(target_vendor = "apple")]
const UPTIME: ClockId = ClockId::Monotonic;

/// The uptime of the machine. This clock cannot be set, and unlike [`std::time::Instant`] it counts the time that the
/// machine sleeps.
pub(crate) fn up() -> Duration {
    let up = clock_gettime(UPTIME);
    let nanoseconds = u32::try_from(up.tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(up.tv_sec).unwrap_or_default(), nanoseconds)
}

/// The clock of the API server, from the `Date` header of its last answer. It is independent of this machine's wall
/// clock. As a layer of a client, it reads the answers that the client gets.
#[derive(Clone, Debug, Default)]
pub struct ServerClock {
    last: Arc<ArcSwapOption<Noted>>,
}

/// The time in an answer.
#[derive(Debug)]
struct Noted {
    date: DateTime<Utc>,
    /// The uptime of this machine then.
    up: Duration,
}

impl ServerClock {
    /// Records the time of an answer. Errors are ignored: they may come from a proxy.
    fn note<B>(&self, answer: &Response<B>) {
        if !answer.status().is_success() {
            return;
        }
        let date = answer.headers().get(header::DATE);
        let date = date.and_then(|date| date.to_str().ok());
        // The form of HTTP's dates is one of those of RFC 2822.
        let date = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
        if let Some(date) = date {
            self.last.store(Some(Arc::new(Noted {
                date: date.with_timezone(&Utc),
                up: up(),
            })));
        }
    }

    /// The time of the API server now, if any answer had the time.
    pub fn now(&self) -> Option<DateTime<Utc>> {
        self.at(up())
    }

    /// Its time at that uptime of this machine.
    pub(crate) fn at(&self, up: Duration) -> Option<DateTime<Utc>> {
        let last = self.last.load_full()?;
        let since_boot = |up| TimeDelta::from_std(up).unwrap_or(TimeDelta::MAX);
        last.date
            .checked_add_signed(since_boot(up) - since_boot(last.up))
    }
}

impl<S> Layer<S> for ServerClock {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        let clock = self.clone();
        Noting { inner, clock }
    }
}

/// A service whose answers set a [`ServerClock`].
#[derive(Clone, Debug)]
pub struct Noting<S> {
    inner: S,
    clock: ServerClock,
}

impl<S, A, B> Service<A> for Noting<S>
where
    S: Service<A, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: A) -> Self::Future {
        let clock = self.clock.clone();
        let answer = self.inner.call(request);
        answer.inspect_ok(move |answer| clock.note(answer)).boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_servers_clock_goes_on_from_the_last_good_answer() {
        let clock = ServerClock::default();
        assert_eq!(clock.now(), None);
        let answer = |status: u16, date: &str| {
            let answer = Response::builder().status(status).header("date", date);
            clock.note(&answer.body(()).unwrap());
        };
        answer(200, "Tue, 15 Nov 2033 08:12:31 GMT");
        answer(502, "Tue, 15 Nov 1994 08:12:31 GMT");
        answer(200, "yesterday");
        let minute = Duration::from_secs(60);
        let said: DateTime<Utc> = "2033-11-15T08:12:31Z".parse().unwrap();
        let later = clock.at(up() + minute).unwrap();
        assert!(later >= said + TimeDelta::minutes(1) && later < said + TimeDelta::minutes(2));
        // A time before the answer came.
        assert!(clock.at(up().saturating_sub(minute)).unwrap() <= said);
    }
}
