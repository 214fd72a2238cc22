//! All that needs the API server: certificates, the leader election, the reconcilers and their Events.

use std::sync::{Arc, Weak};

use kube::Client;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api_server;
use super::flags::KindFlags;
use super::leadership::{self, Candidate};
use super::process::{Tasks, until_ended};
use super::webhooks::{CertificateGates, Certificates};
use crate::kinds::Kind;
use fenced_lease::Term;
use my_operator_kind::manager::MANAGER;
use my_operator_telemetry::probes::Gate;
use resilient_kube_client::clock;
use wall_clock_controller::reconcile::event;
use wall_clock_controller::reconcile::health::Health;
use wall_clock_controller::reconcile::metrics::Metrics;
use wall_clock_controller::reconcile::{Context, Shard};

/// All that needs the API server.
pub(super) struct Operate {
    /// The client of everything but the reconcilers of a leader.
    pub(super) client: Client,
    pub(super) api_server: Gate,
    pub(super) certificates: Option<(Certificates, CertificateGates)>,
    pub(super) candidate: Option<Candidate>,
    /// Cancelled when a replica that does not lead must not start to lead.
    pub(super) resign: CancellationToken,
    pub(super) reconcilers: Reconcilers,
}

/// The reconcilers of all kinds. A replica that leads again runs them again.
pub(super) struct Reconcilers {
    pub(super) namespaces: Vec<String>,
    pub(super) shard: Shard,
    pub(super) workers: usize,
    pub(super) kinds: Vec<&'static Kind>,
    pub(super) flags: KindFlags,
    pub(super) health: Health,
    pub(super) stop: CancellationToken,
    pub(super) metrics: LeaderMetrics,
}

/// The registry of the reconcilers that run. It ends with them: a replica that does not lead has no figures of theirs, and
/// one that leads again starts with new ones.
pub(super) type LeaderMetrics = Arc<Mutex<Weak<Mutex<Registry>>>>;

impl Operate {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let stop = self.reconcilers.stop.clone();
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
        let reconcilers = Arc::new(self.reconcilers);
        match self.candidate {
            None => {
                let run = reconcilers.run(self.client, None);
                tasks.spawn(async move { ("reconcilers", run.await) });
            }
            Some(candidate) => {
                let (stop, resign) = (stop.clone(), self.resign);
                tasks.spawn(async move {
                    let run = move |client, term| reconcilers.clone().run(client, Some(term));
                    let ended = candidate.lead(resign, run).await;
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

impl Reconcilers {
    /// Runs the reconcilers, and the publisher of their Events, until the stop. What they know ends with them.
    async fn run(self: Arc<Self>, client: Client, term: Option<Term>) -> anyhow::Result<()> {
        let (events, publisher) = event::events(client.clone(), clock::system(), MANAGER);
        if let Some(term) = term {
            leadership::publish_leader(&events, term);
        }
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry, MANAGER);
        let registry = Arc::new(Mutex::new(registry));
        *self.metrics.lock() = Arc::downgrade(&registry);
        let mut tasks = Tasks::new();
        for &kind in &self.kinds {
            tracing::info!(kind = kind.name, "reconciling");
            let context = Context {
                client: client.clone(),
                namespaces: self.namespaces.clone(),
                shard: self.shard,
                workers: self.workers,
                clock: clock::system(),
                events: events.clone(),
                metrics: metrics.clone(),
                registry: registry.clone(),
                health: self.health.clone(),
                stop: self.stop.clone(),
                limited: TaskTracker::new(),
            };
            let reconciler = kind.start.run(context, self.flags.matches());
            tasks.spawn(async move { (kind.name, reconciler.await) });
        }
        // From here on only the reconcilers can publish Events: when they end, so does the publisher.
        drop(events);
        let stop = self.stop.clone();
        tasks.spawn(async move {
            publisher.run(stop).await;
            ("events", Ok(()))
        });
        until_ended(tasks, &self.stop).await
    }
}
