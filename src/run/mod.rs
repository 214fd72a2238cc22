//! The composition root: builds every part, and owns the order of start-up and shutdown.

pub mod api_server;
pub mod flags;
mod leadership;
mod operate;
pub mod own_namespace;
mod process;
mod scrapes;
mod thread;
pub mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use flags::Flags;
use leadership::{Connection, Leadership};
use operate::Operate;
use process::{Process, Signals};
use thread::Thread;
use webhooks::Wiring;

use crate::kinds::{self, Kind};
use my_operator_runtime::reconcile::event;
use my_operator_runtime::telemetry::probes::{Gates, Heartbeat, Notes};
use my_operator_runtime::telemetry::{metrics, probes};
use my_operator_runtime::{client, clock, reconcile};

/// How long the cluster gets to stop sending requests, unless a flag says otherwise.
const SHUTDOWN_DELAY_IN_CLUSTER: Duration = Duration::from_secs(5);

/// Runs the operator until a signal ends it.
///
/// # Errors
/// When something that it needs is missing, or a part of it fails.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    process::raise_file_limit();
    let mut process = Process::new();
    let operate = build(&flags, &mut process).await?;
    process.operate(operate.run());
    let delay = flags.shutdown_delay.unwrap_or(if client::in_cluster() {
        SHUTDOWN_DELAY_IN_CLUSTER
    } else {
        Duration::ZERO
    });
    process.run(signals, delay).await
}

/// Builds every part, and starts those that serve without the API server: probes, webhooks and metrics.
async fn build(flags: &Flags, process: &mut Process) -> anyhow::Result<Operate> {
    let mut registry = metrics::registry();
    let figures = Figures::new(&mut registry);
    // A port that is in use ends the process before it serves anything.
    let listeners = Listeners::bind(flags)?;
    let server_clock = client::ServerClock::default();
    let (client, leadership) = connect(
        flags,
        process,
        &figures.client,
        &server_clock,
        &mut registry,
    )
    .await?;

    // Closed before the probes are served: one may have been waiting since the port was bound.
    let api_server = process.gates.add("api-server", "not reached yet");
    if let Some(listener) = listeners.probes {
        serve_probes(process, listener, leadership.notes(&process.health))?;
    }
    let kinds = selected_kinds(flags);
    let certificates = listeners.webhook.map(|listener| {
        let wiring = Wiring {
            kinds: &kinds,
            client: &client,
            server_clock,
            metrics: &figures.admission,
        };
        webhooks::serve(process, flags, listener, wiring, &mut registry)
    });
    let certificates = certificates.transpose()?;
    count_gates(&mut registry, &process.gates);
    let registry = Arc::new(Mutex::new(registry));
    if let Some(listener) = listeners.metrics {
        scrapes::serve(process, listener, &registry, flags, &client)?;
    }
    let (events, publisher) = event::events(leadership.client.clone(), clock::system());
    Ok(Operate {
        publisher,
        client,
        api_server,
        certificates,
        candidate: leadership.candidate,
        resign: process.stop.draining.clone(),
        context: reconcile::Context {
            namespaces: flags.namespaces.clone(),
            workers: usize::from(flags.max_concurrent_reconciles),
            clock: clock::system(),
            events,
            metrics: figures.reconcile,
            registry,
            health: process.health.clone(),
            stop: process.stop.operating.clone(),
            client: leadership.client,
        },
        kinds,
        kind_flags: flags.of_kinds.clone(),
    })
}

fn selected_kinds(flags: &Flags) -> Vec<&'static Kind> {
    match flags.kinds.as_slice() {
        [] => kinds::by_default(),
        some => some.to_vec(),
    }
}

/// The client of everything but the reconcilers; and the election, with theirs. Nothing is sent yet.
async fn connect(
    flags: &Flags,
    process: &Process,
    figures: &client::Metrics,
    server_clock: &client::ServerClock,
    registry: &mut Registry,
) -> anyhow::Result<(Client, Leadership)> {
    let config = client::config(flags.context.as_deref()).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = %config.cluster_url,
        webhooks = flags.webhooks,
        "starting"
    );
    let client = client::connect(&config, figures, server_clock)?;
    let connection = Connection {
        config: &config,
        client: &client,
        figures,
    };
    let leadership = Leadership::new(flags, &connection, registry, &process.health)?;
    Ok((client, leadership))
}

/// The metrics of every module.
struct Figures {
    admission: my_operator_admission::metrics::Metrics,
    client: client::Metrics,
    reconcile: reconcile::metrics::Metrics,
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

/// Shows which gates are open.
fn count_gates(registry: &mut Registry, gates: &Gates) {
    let gates = gates.clone();
    registry.register_collector(Box::new(metrics::Read {
        name: "my_operator_ready",
        help: "Whether a gate of /readyz is open (1) or not (0)",
        label: "gate",
        counts: false,
        read: Box::new(move || {
            let list = gates.list().into_iter();
            list.map(|(name, closed)| (name, f64::from(u8::from(closed.is_none()))))
                .collect()
        }),
    }));
}

/// The ports of the process; None where a flag turns the endpoint off.
struct Listeners {
    probes: Option<TcpListener>,
    metrics: Option<TcpListener>,
    webhook: Option<TcpListener>,
}

impl Listeners {
    fn bind(flags: &Flags) -> anyhow::Result<Self> {
        let webhook_address = flags.webhooks.then_some(flags.webhook_bind_address);
        Ok(Self {
            probes: bind("health-probe-bind-address", flags.health_probe_bind_address)?,
            metrics: bind("metrics-bind-address", scrapes::address(flags))?,
            webhook: bind("webhook-bind-address", webhook_address)?,
        })
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
fn serve_probes(process: &mut Process, listener: TcpListener, notes: Notes) -> anyhow::Result<()> {
    let router = probes::router(process.gates.clone(), notes, Heartbeat::start());
    let thread = Thread::start("probes")?;
    let stop = process.stop.serving.clone();
    process.tasks.spawn(async move {
        let served = thread.run(my_operator_serving::serve_plain(listener, router, stop));
        ("probes", served.await.and_then(|served| Ok(served?)))
    });
    Ok(())
}
