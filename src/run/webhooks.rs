//! Wiring of the webhooks: certificates, listener, readiness, metrics.

use std::sync::Arc;

use anyhow::Context as _;
use kube::Client;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use rustls::server::danger::ClientCertVerifier;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::flags::Flags;
use super::process::Process;
use crate::kinds::Kind;
use crate::manifests::{self, ClientConfig, Names};
use my_operator_kind::manager::MANAGER;
use my_operator_telemetry::probes::{Gate, Gates};
use my_operator_telemetry::{metrics, traces};
use resilient_kube_client::{self as client, clock};
use wall_clock_controller::reconcile::health::Health;
use webhook_certs::{BundleTarget, CertManager, Files, Named, ServerClock};

/// The source of the webhooks' certificates.
pub(super) enum Certificates {
    /// A CA of our own.
    Managed(Box<CertManager>),
    /// Files that another program writes, such as cert-manager.
    Files(Box<Files>),
}

impl Certificates {
    fn new(
        flags: &Flags,
        kinds: &[&Kind],
        client: &Client,
        server_clock: ServerClock,
    ) -> anyhow::Result<Self> {
        let client_config = match &flags.webhook_url {
            Some(url) => ClientConfig::Url(url.clone()),
            None => ClientConfig::Service,
        };
        let names = flags.names();
        let [mutating, validating] =
            manifests::configurations(kinds, &names, &client_config, &flags.namespaces);
        let target = match (&flags.webhook_url, &flags.webhook_cert_path) {
            _ if !flags.webhook_configurations => BundleTarget::None,
            (Some(_), _) => BundleTarget::Own(vec![mutating, validating]),
            // The writer of the files writes the bundle: cert-manager's injector.
            (None, Some(_)) => {
                BundleTarget::Foreign(vec![Named::of(&mutating), Named::of(&validating)])
            }
            (None, None) => BundleTarget::Patch(vec![Named::of(&mutating), Named::of(&validating)]),
        };
        let hosts = if flags.webhook_configurations {
            hosts(flags.webhook_url.as_deref(), &names)
        } else {
            // The creator of the configurations chose the name of the Service.
            Vec::new()
        };
        if let Some(folder) = &flags.webhook_cert_path {
            return Ok(Self::Files(Box::new(Files::new(
                client,
                MANAGER,
                "webhook",
                folder.clone(),
                &target,
                hosts,
                clock::system(),
            ))));
        }
        let manager = CertManager::new(
            client.clone(),
            webhook_certs::Settings {
                manager: MANAGER.to_owned(),
                create_namespace: !client::in_cluster(),
                hosts,
                namespace: names.namespace().to_owned(),
                secret: names.ca_secret(),
                periods: flags.certificate_periods(),
                target,
            },
            clock::system(),
            server_clock,
        )?;
        Ok(Self::Managed(Box::new(manager)))
    }

    fn resolver(&self) -> Arc<webhook_certs::ServedCertificate> {
        match self {
            Self::Managed(manager) => manager.resolver(),
            Self::Files(files) => files.resolver(),
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<webhook_certs::State> {
        match self {
            Self::Managed(manager) => manager.state(),
            Self::Files(files) => files.state(),
        }
    }

    pub(super) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        match self {
            Self::Managed(manager) => manager.run(stop).await?,
            Self::Files(files) => files.run(stop).await?,
        }
        Ok(())
    }
}

/// The names under which the API server calls the webhooks.
fn hosts(url: Option<&str>, names: &Names) -> Vec<String> {
    if let Some(url) = url {
        let host = url.strip_prefix("https://").unwrap_or(url);
        let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((address, _)) => address,
            None => host.split(':').next().unwrap_or(host),
        };
        return vec![name.to_owned()];
    }
    service_names(&names.webhook_service(), names.namespace())
}

/// The DNS names of a Service.
pub(super) fn service_names(service: &str, namespace: &str) -> Vec<String> {
    let ends = ["", ".svc", ".svc.cluster.local"];
    let name = |end: &&str| format!("{service}.{namespace}{end}");
    ends.iter().map(name).collect()
}

/// What the webhooks are made of.
pub(super) struct Wiring<'a> {
    pub(super) kinds: &'a [&'static Kind],
    pub(super) client: &'a Client,
    /// The clock of the API server that `client` calls.
    pub(super) server_clock: ServerClock,
    pub(super) metrics: &'a admission_rules::metrics::Metrics,
}

/// Serves the webhooks from the start. Until there is a certificate, handshakes fail and the replica is unready. The
/// caller runs the certificates, which need the API server.
pub(super) fn serve(
    process: &mut Process,
    flags: &Flags,
    listener: TcpListener,
    wiring: Wiring<'_>,
    registry: &mut Registry,
) -> anyhow::Result<(Certificates, CertificateGates)> {
    let Wiring { kinds, client, .. } = wiring;
    let certificates = Certificates::new(flags, kinds, client, wiring.server_clock)?;
    let counters = Arc::default();
    count(registry, &certificates, &counters);
    let admissions: Vec<_> = kinds.iter().map(|kind| kind.admission).collect();
    let clock = clock::system();
    let router = admission_rules::router::router(&admissions, &clock, wiring.metrics);
    let router = match &process.traces {
        Some(_) => traces::with_parents(router),
        None => router,
    };
    let callers = callers(process, flags)?;
    let tls = bounded_listener::tls_config(certificates.resolver(), callers)?;
    let shutdown = bounded_listener::Shutdown {
        draining: process.stop.draining.clone(),
        stop: process.stop.serving.clone(),
    };
    let limits = bounded_listener::Limits::default();
    process.tasks.spawn(async move {
        let served =
            bounded_listener::serve(listener, tls, router, limits, shutdown, counters).await;
        ("webhook server", served.map_err(Into::into))
    });
    let gates = CertificateGates::new(&process.gates, &process.health);
    Ok((certificates, gates))
}

/// The verifier of client certificates, if callers need one. A task reads its file again when it changes.
fn callers(
    process: &mut Process,
    flags: &Flags,
) -> anyhow::Result<Option<Arc<dyn ClientCertVerifier>>> {
    let Some(bundle) = &flags.webhook_client_ca else {
        return Ok(None);
    };
    let names = flags.webhook_client_cn.clone();
    let authority = bounded_listener::ClientAuthority::read(bundle.clone(), names)
        .context("cannot use --webhook-client-ca")?;
    let (verifier, until) = (authority.verifier(), process.stop.serving.clone());
    process.tasks.spawn(async move {
        authority.run(until).await;
        ("client CA of the webhooks", Ok(()))
    });
    Ok(Some(verifier))
}

/// The names of the gates.
const LEAF: &str = "certificate";
const BUNDLE: &str = "webhook-configuration";

/// The readiness gates of the certificates.
pub(super) struct CertificateGates {
    leaf: Gate,
    bundle: Gate,
    health: Health,
}

impl CertificateGates {
    fn new(gates: &Gates, health: &Health) -> Self {
        Self {
            health: health.clone(),
            leaf: gates.add(LEAF, "not there yet"),
            bundle: gates.add(BUNDLE, "it does not contain our CA yet"),
        }
    }

    /// Opens and closes the gates with the state of the certificates, until dropped.
    pub(super) async fn follow(
        self,
        mut states: watch::Receiver<webhook_certs::State>,
    ) -> anyhow::Result<()> {
        loop {
            {
                let state = states.borrow_and_update();
                let problem = state.problem.as_deref();
                match &state.leaf_fault {
                    _ if state.leaf_ready => self.leaf.open(),
                    Some(fault) => {
                        let reason = problem.unwrap_or("about to be renewed");
                        self.leaf.close(&format!("{fault}: {reason}"));
                    }
                    None => self.leaf.close(problem.unwrap_or("not there yet")),
                }
                // A gate at start-up only. A bundle that is removed later is restored, and an unready pod would not
                // help with that.
                if state.bundle_published {
                    self.bundle.open();
                } else if !self.bundle.is_open() {
                    self.bundle
                        .close(problem.unwrap_or("it does not contain our CA yet"));
                }
                // A problem that closes no gate is shown as a line of its own, under the same name.
                let all_open = self.leaf.is_open() && self.bundle.is_open();
                self.health.show(LEAF, problem.filter(|_| all_open));
                match &state.note {
                    Some(note) => self.health.report(BUNDLE, note),
                    None => self.health.clear(BUNDLE),
                }
            }
            states
                .changed()
                .await
                .context("the certificate manager ended")?;
        }
    }
}

/// The figures of the webhook's listener and certificates.
fn count(
    registry: &mut Registry,
    certificates: &Certificates,
    counters: &Arc<bounded_listener::Counters>,
) {
    count_requests(registry, counters);
    show_drift(registry, certificates.state());
    show_expiry(registry, certificates.state());
}

fn count_requests(registry: &mut Registry, counters: &Arc<bounded_listener::Counters>) {
    registry.register_collector(Box::new(Panics(counters.clone())));
    let counters = counters.clone();
    registry.register_collector(Box::new(metrics::Read {
        name: "my_operator_webhook_rejected_connections",
        help: "Connections to the webhook, and requests on them, that were turned away or cut, by reason",
        label: "reason",
        counts: true,
        read: Box::new(move || {
            // Far below the 2^52 up to which a float is exact.
            #[allow(clippy::cast_precision_loss)]
            let count = |reason| counters.rejected(reason) as f64;
            let reasons = bounded_listener::Rejection::ALL;
            let counts = reasons.map(|(reason, name)| (name, count(reason)));
            counts.to_vec()
        }),
    }));
}

/// The panics of the webhooks, under the name that controller-runtime has for them.
#[derive(Debug)]
struct Panics(Arc<bounded_listener::Counters>);

impl Collector for Panics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let panics = ConstCounter::new(self.0.panics());
        let name = "controller_runtime_webhook_panics";
        let help = "Panics of admission webhooks, each answered with a 500";
        panics.encode(encoder.encode_descriptor(name, help, None, panics.metric_type())?)
    }
}

fn show_drift(registry: &mut Registry, states: watch::Receiver<webhook_certs::State>) {
    registry.register_collector(Box::new(metrics::Read {
        name: "my_operator_webhook_configuration_drift",
        help: "Entries of the webhook configurations that differ from what this version expects, by field",
        label: "field",
        counts: false,
        read: Box::new(move || {
            let found = states.borrow().drift.clone();
            let mut all = webhook_certs::drift::count(&[]);
            all.extend(found);
            // A handful.
            #[allow(clippy::cast_precision_loss)]
            let figures = all.into_iter().map(|(field, count)| (field, count as f64));
            figures.collect()
        }),
    }));
}

fn show_expiry(registry: &mut Registry, states: watch::Receiver<webhook_certs::State>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_that_the_api_server_calls() {
        let names = Names::new("release", "ns");
        assert_eq!(hosts(Some("https://127.0.0.1:9443"), &names), ["127.0.0.1"]);
        assert_eq!(hosts(Some("https://[::1]:9443"), &names), ["::1"]);
        assert_eq!(hosts(Some("https://host"), &names), ["host"]);
        assert_eq!(
            hosts(None, &names),
            [
                "release-webhook-service.ns",
                "release-webhook-service.ns.svc",
                "release-webhook-service.ns.svc.cluster.local"
            ]
        );
    }
}
