//! The task that waits for its turn to lead, stays the leader, and gives the lease up at the end.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::decision::{Decision, Election, Loss};
use super::fence::Fence;
use super::lease::{Claim, Error, Lease, Leases};
use super::{LEASE, Periods};
use crate::clock::{self, Clock};
use crate::reconcile::health::Health;

/// The source of its faults, in logs and in `/readyz?verbose`.
const SOURCE: &str = "leader election";
/// The pause after somebody else was faster: nobody waits for long, nobody asks without a pause.
const PAUSE_AFTER_RACE: Duration = Duration::from_millis(50);
/// How often a lease is tried to be given up: against edits by others.
const ATTEMPTS_TO_GIVE_UP: usize = 3;

/// What an elector must know.
pub struct Settings {
    /// A client without retries.
    pub client: Client,
    /// Where the Lease is.
    pub namespace: String,
    /// How long things take.
    pub periods: Periods,
    /// The wall clock: only for times that people read.
    pub clock: Clock,
    /// Where lasting faults go.
    pub health: Health,
}

/// Who leads, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The holder of the lease; empty before it was first read.
    pub holder: String,
}

/// One replica in the election.
pub struct Elector {
    me: String,
    leases: Leases,
    periods: Periods,
    clock: Clock,
    health: Health,
    election: Election,
    fence: Fence,
    state: watch::Sender<State>,
    /// The Lease as this replica wrote it last, to be written anew without looking.
    written: Option<Lease>,
    /// Rings when somebody writes the Lease.
    bell: LeaseWatch,
}

/// What a look at the Lease came to.
enum Turn {
    Leads,
    Wait(Duration),
    Lost(Loss),
}

impl Elector {
    /// A replica with a name of its own.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let me = identity()?;
        Ok(Self {
            leases: Leases::new(settings.client, settings.namespace),
            periods: settings.periods,
            clock: settings.clock,
            health: settings.health,
            election: Election::new(me.clone(), settings.periods),
            fence: Fence::default(),
            state: watch::Sender::default(),
            written: None,
            bell: LeaseWatch::default(),
            me,
        })
    }

    /// What the clients of the reconcilers are to run their connections with.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Who leads, now and at every change.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Waits until it is this replica's turn to lead, then works for as long as it is. `work` is given
    /// the Lease, to tell Events of, and this replica's name in it. It ends by itself when it is told
    /// to, and only then the lease is given up. When `retire` is cancelled, a replica that does not
    /// lead leaves the election.
    ///
    /// # Errors
    /// When the leadership is lost: by then the work is cancelled, and nothing of it is sent any more.
    /// Or the error of the work.
    pub async fn lead<W>(
        mut self,
        retire: &CancellationToken,
        work: impl FnOnce(ObjectReference, String) -> W,
    ) -> anyhow::Result<()>
    where
        W: Future<Output = anyhow::Result<()>>,
    {
        tracing::info!(identity = self.me, lease = self.name(), "waiting to lead");
        if !self.acquire(retire).await {
            return Ok(());
        }
        tracing::info!(identity = self.me, lease = self.name(), "leading");
        let about = self
            .written
            .as_ref()
            .map(|lease| lease.reference(self.leases.namespace()));
        let ended = {
            let work = work(about.unwrap_or_default(), self.me.clone());
            tokio::select! {
                biased;
                loss = self.keep() => Err(loss),
                ended = work => Ok(ended),
            }
        };
        self.fence.close();
        match ended {
            Ok(ended) => {
                self.give_up().await;
                ended
            }
            Err(Loss::Late) => bail!(
                "lost the leadership: the lease {} was not renewed in time{}",
                self.name(),
                self.trouble()
            ),
            Err(Loss::Taken { by }) => {
                bail!(
                    "lost the leadership: the lease {} is {by}'s now",
                    self.name()
                )
            }
        }
    }

    fn name(&self) -> String {
        format!("{}/{LEASE}", self.leases.namespace())
    }

    /// What did not work last, if something did not.
    fn trouble(&self) -> String {
        let problems = self.health.problems().into_iter();
        let mut ours = problems.filter(|(source, _)| source == SOURCE);
        ours.next()
            .map(|(_, problem)| format!(" ({problem})"))
            .unwrap_or_default()
    }

    /// Whether this replica leads; else it was told to retire.
    async fn acquire(&mut self, retire: &CancellationToken) -> bool {
        while !retire.is_cancelled() {
            // A call is never cut short: it may have been heard.
            let pause = match self.turn().await {
                Ok(Turn::Leads) => {
                    // Nobody listens to it any more.
                    self.bell = LeaseWatch::default();
                    return true;
                }
                Ok(Turn::Wait(until)) => {
                    self.health.well(SOURCE);
                    until
                        .saturating_sub(clock::up())
                        .min(jittered(self.periods.retry_period))
                }
                Ok(Turn::Lost(_)) | Err(Error::LostRace) => jittered(PAUSE_AFTER_RACE),
                Err(Error::Other(problem)) => {
                    self.health.ill(SOURCE, &problem);
                    jittered(self.periods.retry_period)
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.bell.ring(&self.leases) => {}
                () = retire.cancelled() => {}
            }
        }
        false
    }

    /// Renews until that is not possible any more.
    async fn keep(&mut self) -> Loss {
        let mut pause = self.periods.retry_period;
        loop {
            let left = |election: &Election| {
                let until = election.leads_until().unwrap_or_default();
                until.saturating_sub(clock::up())
            };
            sleep(pause.min(left(&self.election))).await;
            if left(&self.election).is_zero() {
                return Loss::Late;
            }
            pause = match self.turn().await {
                Ok(Turn::Lost(loss)) => return loss,
                Ok(Turn::Leads | Turn::Wait(_)) => {
                    self.health.well(SOURCE);
                    self.periods.retry_period
                }
                Err(Error::LostRace) => jittered(PAUSE_AFTER_RACE),
                Err(Error::Other(problem)) => {
                    self.health.ill(SOURCE, &problem);
                    self.periods.retry_period
                }
            };
        }
    }

    /// Looks, decides and acts once.
    async fn turn(&mut self) -> Result<Turn, Error> {
        let lease = if let Some(written) = self.written.take() {
            Some(written)
        } else {
            let lease = self.leases.get(self.patience()).await?;
            let record = lease.as_ref().map(Lease::record);
            self.election.see(record.as_ref(), clock::up());
            self.bell.since = lease.as_ref().map(|lease| lease.version().to_owned());
            self.tell(record.map(|record| record.holder).unwrap_or_default());
            lease
        };
        let record = lease.as_ref().map(Lease::record);
        let (transitions, is_new) = match self.election.decide(record.as_ref(), clock::up()) {
            Decision::Wait { until } => return Ok(Turn::Wait(until)),
            Decision::Lost(loss) => return Ok(Turn::Lost(loss)),
            Decision::Acquire { transitions } => (transitions, true),
            Decision::Renew { transitions } => (transitions, false),
        };
        let claim = Claim {
            holder: &self.me,
            seconds: self.periods.lease_seconds(),
            transitions,
            is_new,
            now: (self.clock)(),
        };
        let patience = self.patience();
        let sent = clock::up();
        if !self.election.may_send(sent) {
            return Ok(Turn::Lost(Loss::Late));
        }
        let written = self.leases.write(lease.as_ref(), &claim, patience).await?;
        let until = self.election.won(&written.record(), sent, clock::up());
        self.fence.open_until(until);
        self.written = Some(written);
        self.tell(self.me.clone());
        Ok(Turn::Leads)
    }

    /// How long a call may take now: never longer than the time to lead.
    fn patience(&self) -> Duration {
        let left = self
            .election
            .leads_until()
            .map(|until| until.saturating_sub(clock::up()));
        self.periods.call().min(left.unwrap_or(Duration::MAX))
    }

    fn tell(&self, holder: String) {
        let state = State { holder };
        self.state.send_if_modified(|known| {
            known != &state && {
                *known = state;
                true
            }
        });
    }

    /// Lets another replica lead at once. Should that fail, it waits until the lease ends.
    async fn give_up(&mut self) {
        for _ in 0..ATTEMPTS_TO_GIVE_UP {
            match self.try_to_give_up().await {
                Ok(()) => return,
                Err(Error::LostRace) => sleep(jittered(PAUSE_AFTER_RACE)).await,
                Err(Error::Other(problem)) => {
                    tracing::warn!("the lease is not given up: {problem}");
                    return;
                }
            }
        }
    }

    async fn try_to_give_up(&mut self) -> Result<(), Error> {
        let lease = match self.written.take() {
            Some(lease) => Some(lease),
            None => self.leases.get(self.patience()).await?,
        };
        let Some(lease) = lease.filter(|lease| lease.record().holder == self.me) else {
            return Ok(());
        };
        let claim = Claim {
            holder: "",
            seconds: 1,
            transitions: lease.record().transitions,
            is_new: true,
            now: (self.clock)(),
        };
        let patience = self.patience();
        if !self.election.may_send(clock::up()) {
            return Ok(());
        }
        self.leases.write(Some(&lease), &claim, patience).await?;
        tracing::info!(lease = self.name(), "gave the lease up");
        self.tell(String::new());
        Ok(())
    }
}

/// Rings when somebody writes the Lease, so that nobody has to look often. Where watching does not
/// work, the looks at every pause are enough.
#[derive(Default)]
struct LeaseWatch {
    watch: Option<Pin<Box<dyn Stream<Item = ()> + Send>>>,
    /// The version that was read last.
    since: Option<String>,
}

impl LeaseWatch {
    /// Ends when it rings; else never.
    async fn ring(&mut self, leases: &Leases) {
        if self.watch.is_none() {
            let since = self.since.as_deref().unwrap_or("0");
            if let Ok(watch) = leases.changes(since).await {
                self.watch = Some(Box::pin(watch));
            }
        }
        if let Some(watch) = &mut self.watch {
            if watch.next().await.is_some() {
                return;
            }
            self.watch = None;
        }
        std::future::pending::<()>().await;
    }
}

/// Up to a fifth longer, so that replicas do not go in step.
fn jittered(pause: Duration) -> Duration {
    // A hasher's keys are random.
    let random = u32::try_from(RandomState::new().hash_one(0) % 1_000).unwrap_or_default();
    pause + pause * random / 5_000
}

/// The pod's name, or the machine's, and something that no other process has: a pod keeps its name when
/// its container is started anew.
fn identity() -> anyhow::Result<String> {
    let name = ["POD_NAME", "HOSTNAME"].into_iter();
    let name = name
        .filter_map(|name| std::env::var(name).ok())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| LEASE.to_owned());
    let mut random = [0; 8];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut random)
        .ok()
        .context("the system has no random numbers")?;
    let mut identity = format!("{name}_");
    for byte in random {
        let _ = write!(identity, "{byte:02x}");
    }
    Ok(identity)
}
