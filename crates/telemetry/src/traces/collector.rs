//! Sends batches of spans to the collector.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use axum::http::{Request, Response};
use futures::future::BoxFuture;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Settings;

/// Sends one request. The program has the connections, as it has those to the API server.
pub type Send = Arc<
    dyn Fn(Request<Bytes>) -> BoxFuture<'static, anyhow::Result<Response<Bytes>>>
        + std::marker::Send
        + Sync,
>;

/// A failure is logged if there was none for this long: a collector that is away is one line.
const QUIET: Duration = Duration::from_secs(300);

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
                "traces are lost until the collector takes them: {error:#}"
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
        let answer = self
            .runtime
            .spawn(sent)
            .await
            .context("a task died")
            .flatten();
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
