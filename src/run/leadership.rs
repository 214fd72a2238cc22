//! Wiring of the leader election: flags, the reconcilers' client, metrics, Events.

use std::sync::Arc;

use anyhow::Context as _;
use kube::{Client, Config};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::flags::Flags;
use super::thread::Thread;
use crate::manifests::PREFIX;
use fenced_lease::{Elector, Fence, Periods, Settings, Term};
use my_operator_kind::manager::MANAGER;
use my_operator_telemetry::metrics;
use my_operator_telemetry::probes::{Note, Notes};
use my_operator_telemetry::traces::Calls;
use resilient_kube_client as client;
use wall_clock_controller::reconcile::Shard;
use wall_clock_controller::reconcile::event::{Events, NewEvent, Severity};
use wall_clock_controller::reconcile::health::Health;

/// The source of the election's problems, in logs and in `/readyz?verbose`.
const SOURCE: &str = "leader election";

/// A replica that waits to lead. It renews its lease on a thread and connections of its own, so that no load of reviews
/// and reconciles makes it lose the leadership.
pub(super) struct Candidate {
    elector: Elector,
    thread: Thread,
    connection: Connection,
    /// That of the current term, or of the last one.
    fence: Arc<Mutex<Fence>>,
    /// How often this replica began to lead.
    terms: Counter,
}

/// How the API server is reached.
pub(super) struct Connection {
    pub(super) config: Config,
    pub(super) figures: client::Metrics,
}

impl Candidate {
    /// None without an election: then this process always leads.
    pub(super) fn new(
        flags: &Flags,
        connection: Connection,
        registry: &mut Registry,
        health: &Health,
    ) -> anyhow::Result<Option<Self>> {
        let terms = Counter::default();
        registry.register(
            "my_operator_leader_terms",
            "How often this replica began to lead",
            terms.clone(),
        );
        if !flags.leader_elect() {
            terms.inc();
            count(registry, flags.shard, || true);
            return Ok(None);
        }
        let thread = Thread::start("leader-election")?;
        let Connection { config, figures } = &connection;
        let connect = || anyhow::Ok(client::connect(config, figures, client::tcp())?.build());
        let (names, shard, health) = (flags.names(), flags.shard, health.clone());
        let (lease, installed) = (names.lease(shard), names.clone());
        let elector = Elector::new(Settings {
            field_manager: MANAGER.to_owned(),
            periods: flags.leader_election_periods(),
            // A shard has namespaces of some shards of any other number.
            is_rival: Some(Arc::new(move |lease| {
                let shards = installed.shards_of(lease);
                shards.is_some_and(|shards| shards != shard.count())
            })),
            on_problem: Arc::new(move |problem| match problem {
                Some(problem) => health.report(SOURCE, problem),
                None => health.clear(SOURCE),
            }),
            ..Settings::new(thread.within(connect)?, names.namespace(), &lease)
        })?;
        let fence = Arc::<Mutex<Fence>>::default();
        let current = fence.clone();
        count(registry, shard, move || current.lock().is_open());
        Ok(Some(Self {
            elector,
            thread,
            connection,
            fence,
            terms,
        }))
    }

    /// Leads as [`Elector::lead`] does. `work` gets a client that sends nothing once the lease has expired. It runs on
    /// the caller's runtime, not on the thread.
    pub(super) async fn lead<F, W>(self, resign: CancellationToken, work: F) -> anyhow::Result<()>
    where
        F: Fn(Client, Term) -> W + Send + Sync + 'static,
        W: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let Self {
            elector,
            thread,
            connection: Connection { config, figures },
            fence,
            terms,
        } = self;
        let (here, work) = (Handle::current(), Arc::new(work));
        let lead = async move {
            let lead = elector.lead(&resign, async |term| -> anyhow::Result<()> {
                *fence.lock() = term.fence.clone();
                terms.inc();
                let (config, figures, work) = (config.clone(), figures.clone(), work.clone());
                let work = here.spawn(async move {
                    let connector = term.fence.connector(client::tcp());
                    let client = client::connect(&config, &figures, connector)?;
                    work(client.with_layer(&Calls).build(), term).await
                });
                AbortOnDropHandle::new(work).await.context("a task died")?
            });
            lead.await.unwrap_or(Ok(()))
        };
        thread.run(lead).await?
    }
}

/// The lasting problems and the current leader, for the probes' pages.
pub(super) fn notes(candidate: Option<&Candidate>, health: &Health) -> Notes {
    let holder = candidate.map(|candidate| candidate.elector.holder());
    let health = health.clone();
    Arc::new(move || {
        let leader = holder.as_ref().map(|holder| {
            let words = match holder.borrow().as_str() {
                "" => "no leader is known".to_owned(),
                holder => format!("{holder} leads"),
            };
            Note::Remark("leader", words)
        });
        let problems = health.problems().into_iter();
        let faults = problems.map(|(source, problem)| Note::Fault(source, problem));
        faults.chain(leader).collect()
    })
}

/// Whether this replica leads, under controller-runtime's name, and how many leaders there should be. The label is the same
/// in every installation: the alerts ask for it.
fn count(registry: &mut Registry, shard: Shard, leads: impl Fn() -> bool + Send + Sync + 'static) {
    let shards = "Among how many shards the namespaces are divided, each with a leader";
    registry.register("my_operator_shards", shards, ConstGauge::new(shard.count()));
    registry.register_collector(Box::new(metrics::Read {
        name: "leader_election_master_status",
        help: "Whether this replica leads (1) or not (0)",
        label: "name",
        counts: false,
        read: Box::new(move || vec![(PREFIX, f64::from(u8::from(leads())))]),
    }));
}

/// Publishes the Event that this replica leads from now on, as client-go does.
pub(super) fn publish_leader(events: &Events, term: Term) {
    let event = NewEvent {
        severity: Severity::Normal,
        reason: "LeaderElection",
        action: "Lead",
        note: format!("{} became leader", term.identity),
    };
    events.publish(term.lease, event);
}

impl Flags {
    /// Whether the replicas elect a leader.
    fn leader_elect(&self) -> bool {
        self.leader_elect.unwrap_or_else(client::in_cluster)
    }

    pub(super) fn leader_election_periods(&self) -> Periods {
        Periods {
            lease_duration: self.leader_election_lease_duration,
            renew_deadline: self.leader_election_renew_deadline,
            retry_period: self.leader_election_retry_period,
        }
    }
}
