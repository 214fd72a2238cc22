//! The composition root: builds every part, and owns the order of start-up and shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::certs::{self, BundleTarget, Files, Keeper, Named};
use crate::cli::Run;
use crate::kinds::{self, Kind};
use crate::manifests::{self, Reach};
use crate::reconcile::event::Events;
use crate::reconcile::runner::Health;
use crate::telemetry::probes::{Gate, Gates};
use crate::telemetry::{metrics, probes};
use crate::{admission, client, clock, reconcile, serving};

/// The oldest minor version of Kubernetes 1 that the API types know.
const OLDEST_MINOR: u32 = 33;
/// How long one attempt to reach the API server may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause between two attempts to reach the API server.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long what is in flight may take at the end.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the cluster gets to stop sending requests, unless a flag says otherwise.
const SHUTDOWN_DELAY_IN_CLUSTER: Duration = Duration::from_secs(5);
/// The namespace that a pod runs in, as the kubelet tells it.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

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
pub async fn run(flags: Run) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
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
            count_webhook(&mut registry, &certificates, &counters);
            let router = admission_router(&kinds, &figures);
            let tls = serving::tls_config(certificates.resolver())?;
            serve_webhooks(&mut tasks, listener, tls, router, counters, &stop);
            Some((certificates, CertificateGates::new(&gates)))
        }
        None => None,
    };
    if let Some(listener) = metrics_listener {
        serve_plain(
            &mut tasks,
            "metrics",
            listener,
            metrics::router(registry),
            &stop,
        );
    }
    let operate = Operate {
        api_server,
        certificates,
        context: reconcile::Context {
            namespaces: flags.namespaces.clone(),
            workers: usize::from(flags.max_concurrent_reconciles),
            clock: clock::system(),
            events: Events::new(client.clone()),
            metrics: figures.reconcile,
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

/// The figures of the webhook's listener and certificates.
fn count_webhook(
    registry: &mut Registry,
    certificates: &Certificates,
    counters: &Arc<serving::Counters>,
) {
    let counters = counters.clone();
    registry.register_collector(Box::new(metrics::Read {
        name: "my_operator_webhook_rejected_connections",
        help: "Connections to the webhook that were turned away or cut, by reason",
        label: "reason",
        counts: true,
        read: Box::new(move || {
            // Far below the 2^52 up to which a float is exact.
            #[allow(clippy::cast_precision_loss)]
            let count = |reason| counters.rejected(reason) as f64;
            let reasons = serving::Rejection::ALL;
            reasons
                .map(|reason| (reason.as_str(), count(reason)))
                .to_vec()
        }),
    }));
    let states = certificates.state();
    registry.register_collector(Box::new(metrics::Read {
        name: "my_operator_certificate_expiry_timestamp_seconds",
        help: "When the webhook's certificates expire, in seconds since 1970",
        label: "certificate",
        counts: false,
        read: Box::new(move || {
            let state = states.borrow();
            let ends = [("ca", state.ca_not_after), ("leaf", state.leaf_not_after)];
            // Exact until the year 142,000,000.
            #[allow(clippy::cast_precision_loss)]
            let seconds = |end: chrono::DateTime<chrono::Utc>| end.timestamp() as f64;
            ends.into_iter()
                .filter_map(|(name, end)| Some((name, seconds(end?))))
                .collect()
        }),
    }));
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

/// Where the webhooks' certificates come from.
enum Certificates {
    /// From an authority of our own.
    Kept(Box<Keeper>),
    /// From files that somebody else writes.
    Files(Box<Files>),
}

impl Certificates {
    fn new(flags: &Run, kinds: &[&Kind], client: &Client) -> anyhow::Result<Self> {
        let reach = match &flags.webhook_url {
            Some(url) => Reach::Url(url.clone()),
            None => Reach::Service {
                name: manifests::WEBHOOK_SERVICE,
                namespace: manifests::NAMESPACE,
            },
        };
        let [mutating, validating] = manifests::configurations(kinds, &reach, &flags.namespaces);
        let target = match (&flags.webhook_url, &flags.webhook_cert_path) {
            (Some(_), _) => BundleTarget::Own(vec![mutating, validating]),
            // Whoever writes the files writes the bundle: cert-manager's injector.
            (None, Some(_)) => BundleTarget::None,
            (None, None) => BundleTarget::Patch {
                mutating: named(&mutating),
                validating: named(&validating),
            },
        };
        if let Some(folder) = &flags.webhook_cert_path {
            return Ok(Self::Files(Box::new(Files::new(
                client,
                folder.clone(),
                &target,
            ))));
        }
        let namespace = operator_namespace(flags);
        let keeper = Keeper::new(
            client.clone(),
            certs::Settings {
                create_namespace: !client::in_cluster(),
                hosts: hosts(flags.webhook_url.as_deref(), &namespace),
                namespace,
                periods: certs::Periods {
                    leaf_validity: flags.webhook_leaf_validity,
                    ca_validity: flags.webhook_ca_validity,
                    propagation: flags.webhook_ca_propagation,
                },
                target,
            },
        )?;
        Ok(Self::Kept(Box::new(keeper)))
    }

    fn resolver(&self) -> Arc<certs::ServedCertificate> {
        match self {
            Self::Kept(keeper) => keeper.resolver(),
            Self::Files(files) => files.resolver(),
        }
    }

    fn state(&self) -> watch::Receiver<certs::State> {
        match self {
            Self::Kept(keeper) => keeper.state(),
            Self::Files(files) => files.state(),
        }
    }

    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        match self {
            Self::Kept(keeper) => keeper.run(stop).await?,
            Self::Files(files) => files.run(stop).await?,
        }
        Ok(())
    }
}

/// The names that a configuration and its entries have.
fn named(configuration: &serde_json::Value) -> Named {
    let name = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let webhooks = configuration["webhooks"].as_array();
    Named {
        name: name(&configuration["metadata"]["name"]),
        entries: webhooks
            .into_iter()
            .flatten()
            .map(|webhook| name(&webhook["name"]))
            .collect(),
    }
}

/// The pod's own namespace, unless a flag says otherwise.
fn operator_namespace(flags: &Run) -> String {
    flags
        .operator_namespace
        .clone()
        .or_else(|| std::fs::read_to_string(POD_NAMESPACE).ok())
        .map(|namespace| namespace.trim().to_owned())
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| manifests::NAMESPACE.to_owned())
}

/// The names under which the API server calls the webhooks.
fn hosts(url: Option<&str>, namespace: &str) -> Vec<String> {
    if let Some(url) = url {
        let host = url.strip_prefix("https://").unwrap_or(url);
        let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((address, _)) => address,
            None => host.split(':').next().unwrap_or(host),
        };
        return vec![name.to_owned()];
    }
    let service = format!("{}.{namespace}", manifests::WEBHOOK_SERVICE);
    let ends = ["", ".svc", ".svc.cluster.local"];
    ends.iter().map(|end| format!("{service}{end}")).collect()
}

fn admission_router(kinds: &[&Kind], figures: &Figures) -> Router {
    let admissions: Vec<_> = kinds.iter().map(|kind| kind.admission).collect();
    admission::router::router(&admissions, &clock::system(), &figures.admission)
}

/// Serves the webhooks from the start: until there is a certificate, handshakes fail and the probe
/// says unready.
fn serve_webhooks(
    tasks: &mut Tasks,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    counters: Arc<serving::Counters>,
    stop: &Stop,
) {
    let shutdown = serving::Shutdown {
        draining: stop.draining.clone(),
        stop: stop.serving.clone(),
    };
    tasks.spawn(async move {
        serving::serve(
            listener,
            tls,
            router,
            serving::Limits::default(),
            shutdown,
            counters,
        )
        .await;
        ("webhook server", Ok(()))
    });
}

/// What readiness asks of the certificates.
struct CertificateGates {
    leaf: Gate,
    bundle: Gate,
}

impl CertificateGates {
    fn new(gates: &Gates) -> Self {
        Self {
            leaf: gates.add("certificate", "not there yet"),
            bundle: gates.add("webhook-configuration", "our CA is not in it yet"),
        }
    }

    /// Opens and closes the gates as the certificates come and go, until dropped.
    async fn follow(self, mut states: watch::Receiver<certs::State>) -> anyhow::Result<()> {
        loop {
            {
                let state = states.borrow_and_update();
                let problem = state.problem.as_deref();
                if state.leaf_ready {
                    self.leaf.open();
                } else {
                    self.leaf.close(problem.unwrap_or("not there yet"));
                }
                // A gate at start-up only: a bundle that somebody takes away later is put back, and
                // an unready pod would not help with that.
                if state.bundle_published {
                    self.bundle.open();
                } else if !self.bundle.is_open() {
                    self.bundle
                        .close(problem.unwrap_or("our CA is not in it yet"));
                }
            }
            states
                .changed()
                .await
                .context("the keeper of certificates ended")?;
        }
    }
}

/// All that needs the API server.
struct Operate {
    api_server: Gate,
    certificates: Option<(Certificates, CertificateGates)>,
    context: reconcile::Context,
    kinds: Vec<&'static Kind>,
}

impl Operate {
    async fn run(self) -> anyhow::Result<()> {
        let stop = self.context.stop.clone();
        tokio::select! {
            reached = reach(&self.context.client, &self.api_server) => reached?,
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

/// Waits until the API server answers, and makes sure that it is new enough.
async fn reach(client: &Client, gate: &Gate) -> anyhow::Result<()> {
    let mut pause = Duration::from_millis(500);
    let mut known = String::new();
    loop {
        let problem = match timeout(ATTEMPT_TIMEOUT, client.apiserver_version()).await {
            Ok(Ok(version)) => {
                new_enough(&version.major, &version.minor)?;
                tracing::info!(version = version.git_version, "the API server answers");
                gate.open();
                return Ok(());
            }
            Ok(Err(error)) => explain(&error),
            Err(_) => format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs()),
        };
        gate.close(&problem);
        if problem != known {
            tracing::warn!("cannot reach the API server, trying on: {problem}");
            known = problem;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// An error and its causes as one line: of each only the first line, and nothing twice.
pub(crate) fn explain(error: &dyn std::error::Error) -> String {
    let mut line = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        let text = text.lines().next().unwrap_or_default();
        if line.is_empty() {
            text.clone_into(&mut line);
        } else if !line.contains(text) {
            line = format!("{line}: {text}");
        }
        next = cause.source();
    }
    line
}

/// A provider may write the minor as `33+`.
fn new_enough(major: &str, minor: &str) -> anyhow::Result<()> {
    let digits = |text: &str| {
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        text[..end].parse::<u32>().ok()
    };
    match (digits(major), digits(minor)) {
        (Some(1), Some(minor)) if minor < OLDEST_MINOR => bail!(
            "the API server is Kubernetes {major}.{minor}; my-operator needs 1.{OLDEST_MINOR} or newer"
        ),
        (Some(_), Some(_)) => Ok(()),
        _ => bail!("the API server does not tell its version ({major:?}, {minor:?})"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn old_servers_are_refused_in_one_line() {
        new_enough("1", "33").unwrap();
        new_enough("1", "33+").unwrap();
        new_enough("1", "40-gke.1").unwrap();
        let refusal = new_enough("1", "32+").unwrap_err().to_string();
        assert!(refusal.contains("needs 1.33 or newer"), "{refusal}");
        assert!(new_enough("", "").is_err());
    }

    #[test]
    fn hosts_are_those_that_the_api_server_calls() {
        assert_eq!(hosts(Some("https://127.0.0.1:9443"), "ns"), ["127.0.0.1"]);
        assert_eq!(hosts(Some("https://[::1]:9443"), "ns"), ["::1"]);
        assert_eq!(hosts(Some("https://host"), "ns"), ["host"]);
        assert_eq!(
            hosts(None, "ns"),
            [
                "my-operator-webhook-service.ns",
                "my-operator-webhook-service.ns.svc",
                "my-operator-webhook-service.ns.svc.cluster.local"
            ]
        );
    }
}
