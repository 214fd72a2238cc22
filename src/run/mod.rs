//! The composition root: builds every part, and owns the order of start-up and shutdown.

pub mod api_server;
pub mod flags;
mod leadership;
mod operate;
pub mod own_namespace;
mod process;
mod scrapes;
mod thread;
pub mod traces;
pub mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Config;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use flags::Flags;
use leadership::{Candidate, Connection};
use operate::{LeaderMetrics, Operate, Reconcilers};
use process::{Process, Signals};
use thread::Thread;
use webhooks::Wiring;

use my_operator_telemetry::probes::{Gates, Heartbeat, Notes};
use my_operator_telemetry::traces::{Calls, Traces};
use my_operator_telemetry::{metrics, probes};
use resilient_kube_client as client;
use webhook_certs::ServerClock;

/// How long the cluster gets to stop sending requests, unless a flag says otherwise.
const SHUTDOWN_DELAY_IN_CLUSTER: Duration = Duration::from_secs(5);

/// Runs the operator until a signal ends it. `traces`, if any, gets its spans.
///
/// # Errors
/// When something that it needs is missing, or a part of it fails.
pub async fn run(flags: Flags, traces: Option<Traces>) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    process::raise_file_limit();
    let mut process = Process::new(traces);
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
    let server_clock = ServerClock::default();
    let config = configure(flags).await?;
    // Nothing is sent yet.
    let client = client::connect(&config, &figures.client, client::tcp())?;
    let client = client.with_layer(&server_clock).with_layer(&Calls).build();
    let connection = Connection {
        config,
        figures: figures.client,
    };
    let candidate = Candidate::new(flags, connection, &mut registry, &process.health)?;

    // Closed before the probes are served: one may have been waiting since the port was bound.
    let api_server = process.gates.add("api-server", "not reached yet");
    if let Some(listener) = listeners.probes {
        let notes = leadership::notes(candidate.as_ref(), &process.health);
        serve_probes(process, listener, notes)?;
    }
    let kinds = flags.selected_kinds();
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
    let metrics = LeaderMetrics::default();
    if let Some(listener) = listeners.metrics {
        let (registry, of_leader) = (Arc::new(Mutex::new(registry)), metrics.clone());
        let registries = move || [Some(registry.clone()), of_leader.lock().upgrade()];
        let router = metrics::router(move || registries().into_iter().flatten());
        scrapes::serve(process, listener, router, flags, &client)?;
    }
    Ok(Operate {
        client,
        api_server,
        certificates,
        candidate,
        resign: process.stop.draining.clone(),
        reconcilers: Reconcilers {
            namespaces: flags.namespaces.clone(),
            shard: flags.shard,
            workers: usize::from(flags.max_concurrent_reconciles),
            kinds,
            flags: flags.of_kinds.clone(),
            health: process.health.clone(),
            stop: process.stop.operating.clone(),
            metrics,
        },
    })
}

async fn configure(flags: &Flags) -> anyhow::Result<Config> {
    let config = client::config(flags.context.as_deref()).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = %config.cluster_url,
        webhooks = flags.webhooks,
        shard = %flags.shard,
        "starting"
    );
    Ok(config)
}

/// The metrics of every module that works whether or not this replica leads.
struct Figures {
    admission: admission_rules::metrics::Metrics,
    client: client::Metrics,
}

impl Figures {
    fn new(registry: &mut Registry) -> Self {
        Self {
            admission: admission_rules::metrics::Metrics::new(
                registry,
                "my_operator_webhook_faults",
            ),
            client: client::Metrics::new(registry),
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
    bounded_listener::bind(address)
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
        let served = thread.run(bounded_listener::serve_plain(listener, router, stop));
        ("probes", served.await.and_then(|served| Ok(served?)))
    });
    Ok(())
}
