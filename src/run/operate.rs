//! All that needs the API server: certificates, the leader election, the reconcilers and their Events.

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::api_server;
use super::flags::KindFlags;
use super::leadership::{self, Candidate};
use super::process::{Tasks, until_ended};
use super::webhooks::{CertificateGates, Certificates};
use crate::kinds::Kind;
use my_operator_runtime::reconcile;
use my_operator_runtime::reconcile::event::EventPublisher;
use my_operator_runtime::telemetry::probes::Gate;

/// All that needs the API server.
pub(super) struct Operate {
    pub(super) publisher: EventPublisher,
    /// The client of everything but the reconcilers.
    pub(super) client: Client,
    pub(super) api_server: Gate,
    pub(super) certificates: Option<(Certificates, CertificateGates)>,
    pub(super) candidate: Option<Candidate>,
    /// Cancelled when a replica that does not lead must not start to lead.
    pub(super) resign: CancellationToken,
    pub(super) context: reconcile::Context,
    pub(super) kinds: Vec<&'static Kind>,
    pub(super) kind_flags: KindFlags,
}

impl Operate {
    pub(super) async fn run(self) -> anyhow::Result<()> {
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
