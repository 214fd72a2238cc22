//! Sends batches of spans to the collector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use axum::http::{Request, Response};
use futures::future::BoxFuture;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::Settings;

/// Sends one request. The program has the connections, as it has those to the API server.
pub type Send = Arc<
    dyn Fn(Request<Bytes>) -> BoxFuture<'static, anyhow::Result<Response<Bytes>>>
        + std::marker::Send
        + Sync,
>;

/// A failure is logged if there was none for this long: a collector that is away is one line.
const QUIET: Duration = Duration::from_mins(5);

/// The collector. The library calls it from a thread of its own, which has no runtime.
pub(super) struct Collector {
    runtime: Handle,
    send: Send,
    timeout: Duration,
    address: String,
    last_failure: Mutex<Option<Instant>>,
}

impl Collector {
    pub(super) fn new(settings: &Settings, send: Send) -> Self {
        Self {
            runtime: Handle::current(),
            send,
            timeout: settings.timeout,
            address: settings
                .endpoint
                .authority()
                .map(ToString::to_string)
                .unwrap_or_default(),
            last_failure: Mutex::default(),
        }
    }

    fn failed(&self, error: &anyhow::Error) {
        let before = self.last_failure.lock().replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() > QUIET) {
            let collector = &self.address;
            tracing::warn!(
                collector,
                "cannot send traces, which are lost if this lasts: {error:#}"
            );
        }
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (limit, sent) = (self.timeout, (self.send)(request));
        let sent = async move {
            let answer = timeout(limit, sent).await;
            answer.with_context(|| format!("no answer within {} ms", limit.as_millis()))?
        };
        let answer = match self.runtime.spawn(sent).await {
            // The process ends.
            Err(ended) if ended.is_cancelled() => return Err(ended.into()),
            answer => answer.context("a task died").flatten(),
        };
        let checked = answer
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error:#}"));
        let checked = checked.and_then(|answer| {
            ensure!(
                answer.status().is_success(),
                "it answers {}",
                answer.status()
            );
            Ok(())
        });
        if let Err(error) = checked {
            self.failed(&error);
        }
        Ok(answer?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::StatusCode;
    use futures::FutureExt as _;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::{Layer, Registry};

    use super::*;

    /// Counts events.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl Layer<Registry> for Lines {
        fn on_event(
            &self,
            event: &tracing::Event<'_>,
            _: tracing_subscriber::layer::Context<'_, Registry>,
        ) {
            let ours = event
                .metadata()
                .target()
                .starts_with(env!("CARGO_CRATE_NAME"));
            self.0.fetch_add(usize::from(ours), Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_collector_that_is_away_is_one_line() {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        let _subscriber = tracing::subscriber::set_default(subscriber);
        let settings = Settings {
            endpoint: "http://collector:4318/v1/traces".parse().unwrap(),
            certificate: None,
            timeout: Duration::from_secs(10),
            service: None,
            host: None,
        };
        let calls = Arc::<AtomicUsize>::default();
        let send: Send = Arc::new(move |_| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move {
                let mut answer = Response::default();
                match call % 4 {
                    0 => anyhow::bail!("connection refused"),
                    1 => std::future::pending().await,
                    2 => *answer.status_mut() = StatusCode::NOT_FOUND,
                    _ => {}
                }
                Ok(answer)
            }
            .boxed()
        });
        let collector = Collector::new(&settings, send);
        let mut outcomes = Vec::new();
        for _ in 0..8 {
            let answer = collector.send_bytes(Request::default()).await;
            outcomes.push(answer.map_or(0, |answer| answer.status().as_u16()));
        }
        assert_eq!(outcomes, [0, 0, 404, 200, 0, 0, 404, 200]);
        assert_eq!(lines.0.load(Ordering::SeqCst), 1);
        tokio::time::advance(QUIET + Duration::from_secs(1)).await;
        assert!(collector.send_bytes(Request::default()).await.is_err());
        assert_eq!(lines.0.load(Ordering::SeqCst), 2);
    }
}
