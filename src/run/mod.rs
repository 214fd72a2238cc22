//! The composition root: builds every part, and owns the order of start-up and shutdown.

mod api_server;
pub mod flags;
mod webhooks;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use flags::Flags;
use webhooks::{CertificateGates, Certificates};

use crate::kinds::{self, Kind};
use crate::reconcile::event::{self, Teller};
use crate::reconcile::health::Health;
use crate::telemetry::probes::{Gate, Gates};
use crate::telemetry::{metrics, probes};
use crate::{admission, client, clock, reconcile, serving};

/// How long what is in flight may take at the end.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the cluster gets to stop sending requests, unless a flag says otherwise.
const SHUTDOWN_DELAY_IN_CLUSTER: Duration = Duration::from_secs(5);

/// The stages of the end, each cancelled once, in this order.
#[derive(Clone, Default)]
struct Stop {
    /// Answer on, but ask every peer to go elsewhere.
    draining: CancellationToken,
    /// Reconcilers finish what they have in hand; certificates are no longer kept.
    operating: CancellationToken,
    /// Listeners close.
    serving: CancellationToken,
}

/// Every long task, by name. The first to end before it was told to ends the process.
type Tasks = JoinSet<(&'static str, anyhow::Result<()>)>;

/// What every room counts.
struct Figures {
    admission: admission::metrics::Metrics,
    client: client::Metrics,
    reconcile: reconcile::metrics::Metrics,
}

/// Runs the operator until a signal ends it.
///
/// # Errors
/// When something that it needs cannot be had, or a part of it fails.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    raise_file_limit();
    let stop = Stop::default();
    let mut tasks = Tasks::new();
    let gates = Gates::default();
    let shutdown = gates.add("shutdown", "");
    shutdown.open();
    let health = Health::default();
    let mut registry = metrics::registry();
    let figures = Figures::new(&mut registry);

    let probes_listener =
        bind("health-probe-bind-address", flags.health_probe_bind_address).await?;
    let metrics_listener = bind("metrics-bind-address", flags.metrics_bind_address).await?;
    let webhook_address = flags.webhooks.then_some(flags.webhook_bind_address);
    let webhook_listener = bind("webhook-bind-address", webhook_address).await?;
    let config = client::config(flags.context.as_deref()).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = %config.cluster_url,
        webhooks = flags.webhooks,
        "starting"
    );
    let client = client::connect(config, &figures.client)?;

    if let Some(listener) = probes_listener {
        let notes = health.clone();
        let router = probes::router(gates.clone(), Arc::new(move || notes.problems()));
        serve_plain(&mut tasks, "probes", listener, router, &stop);
    }
    let api_server = gates.add("api-server", "not reached yet");
    let kinds: Vec<&'static Kind> = match flags.kinds.as_slice() {
        [] => kinds::REGISTRY.to_vec(),
        some => some.to_vec(),
    };
    let certificates = match webhook_listener {
        Some(listener) => {
            let certificates = Certificates::new(&flags, &kinds, &client)?;
            let counters = Arc::default();
            webhooks::count(&mut registry, &certificates, &counters);
            let router = webhooks::router(&kinds, &figures.admission);
            let tls = serving::tls_config(certificates.resolver())?;
            webhooks::serve(&mut tasks, listener, tls, router, counters, &stop);
            Some((certificates, CertificateGates::new(&gates)))
        }
        None => None,
    };
    let registry = Arc::new(Mutex::new(registry));
    if let Some(listener) = metrics_listener {
        let router = metrics::router(registry.clone());
        serve_plain(&mut tasks, "metrics", listener, router, &stop);
    }
    let (events, teller) = event::events(client.clone(), clock::system());
    let operate = Operate {
        teller,
        api_server,
        certificates,
        context: reconcile::Context {
            namespaces: flags.namespaces.clone(),
            workers: usize::from(flags.max_concurrent_reconciles),
            node_not_ready_grace: flags.node_not_ready_grace,
            clock: clock::system(),
            events,
            metrics: figures.reconcile,
            registry,
            health,
            stop: stop.operating.clone(),
            client,
        },
        kinds,
    };
    let delay = flags.shutdown_delay.unwrap_or(if client::in_cluster() {
        SHUTDOWN_DELAY_IN_CLUSTER
    } else {
        Duration::ZERO
    });
    tasks.spawn(async move { ("operator", operate.run().await) });

    tokio::select! {
        name = signals.next() => tracing::info!(signal = name, "ending"),
        Some(ended) = tasks.join_next() => {
            let (name, result) = ended.context("a task died")?;
            result?;
            bail!("{name} ended by itself");
        }
    }
    tokio::select! {
        name = signals.next() => bail!("ended at once by a second {name}"),
        ended = end(tasks, &stop, &shutdown, delay) => ended,
    }
}

/// The end, stage by stage.
async fn end(
    mut tasks: Tasks,
    stop: &Stop,
    shutdown: &Gate,
    delay: Duration,
) -> anyhow::Result<()> {
    shutdown.close("the process is ending");
    stop.draining.cancel();
    sleep(delay).await;
    stop.operating.cancel();
    let finish = async |wanted: Option<&str>, tasks: &mut Tasks| -> anyhow::Result<()> {
        while let Some(ended) = tasks.join_next().await {
            let (name, result) = ended.context("a task died")?;
            result?;
            if wanted == Some(name) {
                break;
            }
        }
        Ok(())
    };
    let operator = timeout(END_TIMEOUT, finish(Some("operator"), &mut tasks)).await;
    stop.serving.cancel();
    let listeners = timeout(END_TIMEOUT, finish(None, &mut tasks)).await;
    operator.context("the reconcilers did not end in time")??;
    listeners.context("the listeners did not end in time")??;
    tracing::info!("ended");
    Ok(())
}

/// Signals that end the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
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

impl Figures {
    fn new(registry: &mut Registry) -> Self {
        Self {
            admission: admission::metrics::Metrics::new(registry),
            client: client::Metrics::new(registry),
            reconcile: reconcile::metrics::Metrics::new(registry),
        }
    }
}

/// Every connection is an open file, and 1,024, the usual soft limit, is no more than the webhook's
/// listener alone may have. The soft limit protects programs that use select(2), which this one does not;
/// Go's runtime raises it as well.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let current = maximum;
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current, maximum }) {
            tracing::debug!(%error, "the limit of open files stays as it is");
        }
    }
}

async fn bind(flag: &str, address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address).await;
    listener
        .map(Some)
        .with_context(|| format!("cannot listen on {address} (choose another with --{flag})"))
}

fn serve_plain(
    tasks: &mut Tasks,
    name: &'static str,
    listener: TcpListener,
    router: Router,
    stop: &Stop,
) {
    let stop = stop.serving.clone();
    tasks.spawn(async move {
        serving::serve_plain(listener, router, stop).await;
        (name, Ok(()))
    });
}

/// All that needs the API server.
struct Operate {
    teller: Teller,
    api_server: Gate,
    certificates: Option<(Certificates, CertificateGates)>,
    context: reconcile::Context,
    kinds: Vec<&'static Kind>,
}

impl Operate {
    async fn run(self) -> anyhow::Result<()> {
        let stop = self.context.stop.clone();
        tokio::select! {
            reached = api_server::reach(&self.context.client, &self.api_server) => reached?,
            () = stop.cancelled() => return Ok(()),
        }
        let mut tasks = Tasks::new();
        if let Some((certificates, gates)) = self.certificates {
            let states = certificates.state();
            let stop = stop.clone();
            tasks.spawn(async move {
                let result = tokio::select! {
                    kept = certificates.run(stop) => kept,
                    followed = gates.follow(states) => followed,
                };
                ("certificates", result)
            });
        }
        for kind in self.kinds {
            tracing::info!(kind = kind.name, "reconciling");
            let reconciler = (kind.start)(self.context.clone());
            tasks.spawn(async move { (kind.name, reconciler.await) });
        }
        let (teller, until) = (self.teller, stop.clone());
        tasks.spawn(async move {
            teller.run(until).await;
            ("events", Ok(()))
        });
        // From here on only the reconcilers can bring news: when they end, so does the teller.
        drop(self.context);
        while let Some(ended) = tasks.join_next().await {
            let (name, result) = ended.context("a task died")?;
            result.with_context(|| format!("{name} failed"))?;
            if !stop.is_cancelled() {
                bail!("{name} ended by itself");
            }
        }
        Ok(())
    }
}
