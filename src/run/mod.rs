//! The composition root: builds every part, and owns the order of start-up and shutdown.

mod api_server;
pub mod flags;
mod leadership;
mod scrapes;
mod thread;
mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use axum::Router;
use kube::Client;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use flags::{Flags, KindFlags};
use leadership::{Candidate, Leadership};
use thread::Thread;
use webhooks::{CertificateGates, Certificates};

use crate::kinds::{self, Kind};
use my_operator_runtime::reconcile::event::{self, EventPublisher};
use my_operator_runtime::reconcile::health::Health;
use my_operator_runtime::telemetry::probes::{Gate, Gates, Heartbeat};
use my_operator_runtime::telemetry::{metrics, probes};
use my_operator_runtime::{client, clock, reconcile};

/// Time limit for requests and reconciles in flight at shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the cluster gets to stop sending requests, unless a flag says otherwise.
const SHUTDOWN_DELAY_IN_CLUSTER: Duration = Duration::from_secs(5);

/// The stages of the shutdown, cancelled in this order.
#[derive(Clone, Default)]
struct Stop {
    /// Still answer, but ask every peer to reconnect elsewhere.
    draining: CancellationToken,
    /// Reconcilers finish their current keys; certificates are no longer renewed.
    operating: CancellationToken,
    /// Listeners close.
    serving: CancellationToken,
}

/// The long-running tasks, by name. If one ends before the shutdown, so does the process.
type Tasks = JoinSet<(&'static str, anyhow::Result<()>)>;

/// The metrics of every module.
struct Figures {
    admission: my_operator_admission::metrics::Metrics,
    client: client::Metrics,
    reconcile: reconcile::metrics::Metrics,
}

/// Runs the operator until a signal ends it.
///
/// # Errors
/// When something that it needs is missing, or a part of it fails.
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

    let probes_listener = bind("health-probe-bind-address", flags.health_probe_bind_address)?;
    let metrics_listener = bind("metrics-bind-address", scrapes::address(&flags))?;
    let webhook_address = flags.webhooks.then_some(flags.webhook_bind_address);
    let webhook_listener = bind("webhook-bind-address", webhook_address)?;
    let config = client::config(flags.context.as_deref()).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = %config.cluster_url,
        webhooks = flags.webhooks,
        "starting"
    );
    let server_clock = client::ServerClock::default();
    let client = client::connect(&config, &figures.client, &server_clock)?;
    let leadership = Leadership::new(
        &flags,
        &config,
        &client,
        &figures.client,
        &mut registry,
        &health,
    )?;

    // Closed before the probes are served: one may have been waiting since the port was bound.
    let api_server = gates.add("api-server", "not reached yet");
    if let Some(listener) = probes_listener {
        let router = probes::router(gates.clone(), leadership.notes(&health), Heartbeat::start());
        serve_probes(&mut tasks, listener, router, &stop)?;
    }
    let kinds: Vec<&'static Kind> = match flags.kinds.as_slice() {
        [] => kinds::by_default(),
        some => some.to_vec(),
    };
    let certificates = match webhook_listener {
        Some(listener) => {
            let certificates = Certificates::new(&flags, &kinds, &client, server_clock)?;
            let counters = Arc::default();
            webhooks::count(&mut registry, &certificates, &counters);
            let router = webhooks::router(&kinds, &figures.admission);
            let callers = webhooks::callers(&mut tasks, &flags, &stop)?;
            let tls = my_operator_serving::tls_config(certificates.resolver(), callers)?;
            let threads = flags.worker_threads();
            webhooks::serve(&mut tasks, listener, tls, router, counters, threads, &stop);
            Some((certificates, CertificateGates::new(&gates, &health)))
        }
        None => None,
    };
    let states = gates.clone();
    registry.register_collector(Box::new(metrics::Read {
        name: "my_operator_ready",
        help: "Whether a gate of /readyz is open (1) or not (0)",
        label: "gate",
        counts: false,
        read: Box::new(move || {
            let list = states.list().into_iter();
            list.map(|(name, closed)| (name, f64::from(u8::from(closed.is_none()))))
                .collect()
        }),
    }));
    let registry = Arc::new(Mutex::new(registry));
    if let Some(listener) = metrics_listener {
        let router = metrics::router(registry.clone());
        scrapes::serve(&mut tasks, listener, router, &flags, &client, &stop)?;
    }
    let (events, publisher) = event::events(leadership.client.clone(), clock::system());
    let operate = Operate {
        publisher,
        client,
        api_server,
        certificates,
        candidate: leadership.candidate,
        resign: stop.draining.clone(),
        context: reconcile::Context {
            namespaces: flags.namespaces.clone(),
            workers: usize::from(flags.max_concurrent_reconciles),
            clock: clock::system(),
            events,
            metrics: figures.reconcile,
            registry,
            health,
            stop: stop.operating.clone(),
            client: leadership.client,
        },
        kinds,
        kind_flags: flags.of_kinds,
    };
    let delay = flags.shutdown_delay.unwrap_or(if client::in_cluster() {
        SHUTDOWN_DELAY_IN_CLUSTER
    } else {
        Duration::ZERO
    });
    tasks.spawn(async move { ("operator", operate.run().await) });

    let mut operates = true;
    let cause = tokio::select! {
        name = signals.next() => {
            tracing::info!(signal = name, "ending");
            Ok(())
        }
        Some(ended) = tasks.join_next() => {
            operates = !matches!(ended, Err(_) | Ok(("operator", _)));
            Err(early_end(ended))
        }
    };
    if let Err(error) = &cause {
        if !gates.ready() {
            return cause;
        }
        // For example a lost leadership. The reconcilers send nothing more, but webhooks in flight are still answered.
        tracing::error!("ending: {error:#}");
    }
    tokio::select! {
        name = signals.next() => bail!("ended at once by a second {name}"),
        ended = end(tasks, &stop, &shutdown, delay, operates) => cause.and(ended),
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

/// Shuts down, stage by stage. `operates` is whether the operator is still one of the tasks.
async fn end(
    mut tasks: Tasks,
    stop: &Stop,
    shutdown: &Gate,
    delay: Duration,
    operates: bool,
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
    let operator = async {
        if operates {
            finish(Some("operator"), &mut tasks).await?;
        }
        Ok::<(), anyhow::Error>(())
    };
    let operator = timeout(END_TIMEOUT, operator).await;
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
            admission: my_operator_admission::metrics::Metrics::new(registry),
            client: client::Metrics::new(registry),
            reconcile: reconcile::metrics::Metrics::new(registry),
        }
    }
}

/// Raises the soft limit of open files. Every connection is an open file, and the webhook's listener alone may have
/// 1,024, the usual soft limit. It protects programs that use select(2), which this one does not. Go's runtime raises
/// it, too.
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

fn bind(flag: &str, address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else {
        return Ok(None);
    };
    my_operator_serving::bind(address)
        .map(Some)
        .with_context(|| format!("cannot listen on {address} (choose another with --{flag})"))
}

/// Serves probes on a thread of their own: the kubelet restarts a pod that does not answer within a second, even under
/// a high load of webhooks.
fn serve_probes(
    tasks: &mut Tasks,
    listener: TcpListener,
    router: Router,
    stop: &Stop,
) -> anyhow::Result<()> {
    let thread = Thread::start("probes")?;
    let listener = thread.adopt(listener)?;
    let stop = stop.serving.clone();
    tasks.spawn(async move {
        let served = thread.run(my_operator_serving::serve_plain(listener, router, stop));
        ("probes", served.await)
    });
    Ok(())
}

/// All that needs the API server.
struct Operate {
    publisher: EventPublisher,
    /// The client of everything but the reconcilers.
    client: Client,
    api_server: Gate,
    certificates: Option<(Certificates, CertificateGates)>,
    candidate: Option<Candidate>,
    /// Cancelled when a replica that does not lead must not start to lead.
    resign: CancellationToken,
    context: reconcile::Context,
    kinds: Vec<&'static Kind>,
    kind_flags: KindFlags,
}

impl Operate {
    async fn run(self) -> anyhow::Result<()> {
        let stop = self.context.stop.clone();
        tokio::select! {
            reached = api_server::reach(&self.client, &self.api_server) => reached?,
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
        let (context, kinds, publisher) = (self.context, self.kinds, self.publisher);
        let flags = self.kind_flags;
        match self.candidate {
            None => start_reconcilers(&mut tasks, context, kinds, &flags, publisher),
            Some(candidate) => {
                let (stop, resign) = (stop.clone(), self.resign);
                tasks.spawn(async move {
                    let lead = candidate.lead(resign, async move |lease, identity| {
                        leadership::publish_leader(&context.events, lease, &identity);
                        let mut tasks = Tasks::new();
                        let stop = context.stop.clone();
                        start_reconcilers(&mut tasks, context, kinds, &flags, publisher);
                        until_ended(tasks, &stop).await
                    });
                    let ended = lead.await;
                    if ended.is_ok() {
                        // A replica that resigned before it led has nothing else to do.
                        stop.cancelled().await;
                    }
                    ("leader election", ended)
                });
            }
        }
        until_ended(tasks, &stop).await
    }
}

/// Starts the reconcilers, and the publisher of their Events.
fn start_reconcilers(
    tasks: &mut Tasks,
    context: reconcile::Context,
    kinds: Vec<&'static Kind>,
    flags: &KindFlags,
    publisher: EventPublisher,
) {
    let stop = context.stop.clone();
    for kind in kinds {
        tracing::info!(kind = kind.name, "reconciling");
        let reconciler = kind.start.run(context.clone(), flags.matches());
        tasks.spawn(async move { (kind.name, reconciler.await) });
    }
    // From here on only the reconcilers can publish Events: when they end, so does the publisher.
    drop(context);
    tasks.spawn(async move {
        publisher.run(stop).await;
        ("events", Ok(()))
    });
}

/// Waits for tasks that must end only after `stop`.
async fn until_ended(mut tasks: Tasks, stop: &CancellationToken) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        let (name, result) = ended.context("a task died")?;
        result.with_context(|| format!("{name} failed"))?;
        if !stop.is_cancelled() {
            bail!("{name} ended by itself");
        }
    }
    Ok(())
}
