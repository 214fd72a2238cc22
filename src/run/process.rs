//! The process: its long-running tasks, the signals that end it, and the stages of its shutdown.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use my_operator_telemetry::probes::{Gate, Gates};
use my_operator_telemetry::traces::Traces;
use wall_clock_controller::reconcile::health::Health;

/// Time limit for requests and reconciles in flight at shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// The task that has all reconcilers.
const OPERATOR: &str = "operator";

/// The stages of the shutdown, cancelled in this order.
#[derive(Clone, Default)]
pub(super) struct Stop {
    /// Still answer, but ask every peer to reconnect elsewhere.
    pub(super) draining: CancellationToken,
    /// Reconcilers finish their current keys; certificates are no longer renewed.
    pub(super) operating: CancellationToken,
    /// Listeners close.
    pub(super) serving: CancellationToken,
}

/// The long-running tasks, by name. If one ends before the shutdown, so does the process.
pub(super) type Tasks = JoinSet<(&'static str, anyhow::Result<()>)>;

/// The state that every part of the process shares.
pub(super) struct Process {
    pub(super) tasks: Tasks,
    pub(super) stop: Stop,
    pub(super) gates: Gates,
    pub(super) health: Health,
    /// Where spans are sent, if anywhere.
    pub(super) traces: Option<Traces>,
    /// Open until the process ends.
    shutdown: Gate,
}

impl Process {
    pub(super) fn new(traces: Option<Traces>) -> Self {
        let gates = Gates::default();
        let shutdown = gates.add("shutdown", "");
        shutdown.open();
        Self {
            tasks: Tasks::new(),
            stop: Stop::default(),
            gates,
            health: Health::default(),
            traces,
            shutdown,
        }
    }

    /// Starts the task that has all reconcilers. The shutdown waits for it before the listeners close.
    pub(super) fn operate(
        &mut self,
        operator: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.tasks.spawn(async move { (OPERATOR, operator.await) });
    }

    /// Waits for a signal, or for the end of a task that should not have ended, and shuts down. `delay` is how long the
    /// cluster gets to stop sending requests.
    pub(super) async fn run(mut self, mut signals: Signals, delay: Duration) -> anyhow::Result<()> {
        let mut operates = true;
        let cause = tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "ending");
                Ok(())
            }
            Some(ended) = self.tasks.join_next() => {
                operates = !matches!(ended, Err(_) | Ok((OPERATOR, _)));
                Err(early_end(ended))
            }
        };
        if let Err(error) = &cause {
            if !self.gates.ready() {
                return cause;
            }
            // For example a worker that died. Webhooks in flight are still answered.
            tracing::error!("ending: {error:#}");
        }
        tokio::select! {
            name = signals.next() => bail!("ended at once by a second {name}"),
            ended = self.end(delay, operates) => cause.and(ended),
        }
    }

    /// Shuts down, stage by stage. `operates` is whether the operator is still one of the tasks.
    async fn end(mut self, delay: Duration, operates: bool) -> anyhow::Result<()> {
        self.shutdown.close("the process is ending");
        self.stop.draining.cancel();
        sleep(delay).await;
        self.stop.operating.cancel();
        let operator = async {
            if operates {
                finish(Some(OPERATOR), &mut self.tasks).await?;
            }
            Ok::<(), anyhow::Error>(())
        };
        let operator = timeout(END_TIMEOUT, operator).await;
        self.stop.serving.cancel();
        let listeners = timeout(END_TIMEOUT, finish(None, &mut self.tasks)).await;
        if let Some(traces) = self.traces {
            traces.end().await;
        }
        operator.context("the reconcilers did not end in time")??;
        listeners.context("the listeners did not end in time")??;
        tracing::info!("ended");
        Ok(())
    }
}

/// Why a task that should not have ended did.
fn early_end(ended: Result<(&'static str, anyhow::Result<()>), JoinError>) -> anyhow::Error {
    match ended {
        Ok((name, Ok(()))) => anyhow!("{name} ended by itself"),
        Ok((_, Err(error))) => error,
        Err(error) => anyhow::Error::new(error).context("a task died"),
    }
}

/// Waits until the task of that name has ended, or all of them.
async fn finish(wanted: Option<&str>, tasks: &mut Tasks) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        let (name, result) = ended.context("a task died")?;
        result?;
        if wanted == Some(name) {
            break;
        }
    }
    Ok(())
}

/// Raises the soft limit of open files. Every connection is an open file, and the webhook's listener alone may have
/// 1,024, the usual soft limit. It protects programs that use select(2), which this one does not. Go's runtime raises
/// it, too.
pub(super) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let current = maximum;
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current, maximum }) {
            tracing::debug!(%error, "the limit of open files stays as it is");
        }
    }
}

/// Signals that end the process.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Waits for tasks that must end only after `stop`.
pub(super) async fn until_ended(mut tasks: Tasks, stop: &CancellationToken) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        let (name, result) = ended.context("a task died")?;
        result.with_context(|| format!("{name} failed"))?;
        if !stop.is_cancelled() {
            bail!("{name} ended by itself");
        }
    }
    Ok(())
}
