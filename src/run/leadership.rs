//! Wiring of the leader election: flags, the reconcilers' client, metrics, Events.

use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::flags::Flags;
use super::thread::Thread;
use crate::manifests::PREFIX;
use my_operator_leader::{Elector, Periods, Settings};
use my_operator_runtime::client::ServerClock;
use my_operator_runtime::reconcile::event::{Events, NewEvent, Severity};
use my_operator_runtime::reconcile::health::Health;
use my_operator_runtime::telemetry::metrics;
use my_operator_runtime::telemetry::probes::{Note, Notes};
use my_operator_runtime::{client, clock};

/// This process in the leader election.
pub(super) struct Leadership {
    /// None without an election: then this process always leads.
    pub(super) candidate: Option<Candidate>,
    /// The client of the reconcilers. It sends nothing once the lease has expired.
    pub(super) client: Client,
}

/// The connection to the API server that everything else uses.
pub(super) struct Connection<'a> {
    pub(super) config: &'a Config,
    pub(super) client: &'a Client,
    pub(super) figures: &'a client::Metrics,
}

/// A replica that waits to lead. It renews its lease on a thread and connections of its own, so that no load of reviews
/// and reconciles makes it lose the leadership.
pub(super) struct Candidate {
    elector: Elector,
    thread: Thread,
}

impl Candidate {
    /// Leads as [`Elector::lead`] does. `work` runs on the caller's runtime, not on the thread.
    pub(super) async fn lead<F, W>(self, resign: CancellationToken, work: F) -> anyhow::Result<()>
    where
        F: FnOnce(ObjectReference, String) -> W + Send + 'static,
        W: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let Self { elector, thread } = self;
        let here = Handle::current();
        let lead = async move {
            let lead = elector.lead(&resign, async |lease, identity| {
                let work = here.spawn(work(lease, identity));
                AbortOnDropHandle::new(work).await.context("a task died")?
            });
            lead.await
        };
        thread.run(lead).await?
    }
}

impl Leadership {
    pub(super) fn new(
        flags: &Flags,
        connection: &Connection<'_>,
        registry: &mut Registry,
        health: &Health,
    ) -> anyhow::Result<Self> {
        let Connection {
            config,
            client,
            figures,
        } = *connection;
        if !flags.leader_elect() {
            let client = client.clone();
            count(registry, || true);
            return Ok(Self {
                candidate: None,
                client,
            });
        }
        let thread = Thread::start("leader-election")?;
        // The answers to the other client show the server's time often enough.
        let unused = ServerClock::default();
        let connect = || client::connect(config, figures, &unused);
        let names = flags.names();
        let elector = Elector::new(Settings {
            client: thread.within(connect)?,
            namespace: names.namespace().to_owned(),
            lease: names.lease().to_owned(),
            periods: flags.leader_election_periods(),
            clock: clock::system(),
            health: health.clone(),
        })
        .context("cannot take part in the leader election")?;
        let fence = elector.fence();
        let client = client::connect_over(config, figures, &unused, fence.connector())?;
        count(registry, move || fence.is_open());
        Ok(Self {
            candidate: Some(Candidate { elector, thread }),
            client,
        })
    }

    /// The lasting problems and the current leader, for the probes' pages.
    pub(super) fn notes(&self, health: &Health) -> Notes {
        let candidate = self.candidate.as_ref();
        let state = candidate.map(|candidate| candidate.elector.state());
        let health = health.clone();
        Arc::new(move || {
            let leader = state.as_ref().map(|state| {
                let words = match state.borrow().holder.as_str() {
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
}

/// Whether this replica leads, under controller-runtime's name. The label is the same in every installation: the alerts
/// ask for it.
fn count(registry: &mut Registry, leads: impl Fn() -> bool + Send + Sync + 'static) {
    registry.register_collector(Box::new(metrics::Read {
        name: "leader_election_master_status",
        help: "Whether this replica leads (1) or not (0)",
        label: "name",
        counts: false,
        read: Box::new(move || vec![(PREFIX, f64::from(u8::from(leads())))]),
    }));
}

/// Publishes the Event that this replica leads from now on, as client-go does.
pub(super) fn publish_leader(events: &Events, lease: ObjectReference, identity: &str) {
    let event = NewEvent {
        severity: Severity::Normal,
        reason: "LeaderElection",
        action: "Lead",
        note: format!("{identity} became leader"),
    };
    events.publish(lease, event);
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
