//! The task that acquires the lease, renews it, acquires it again when it was lost, and releases it at the end.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::decision::{Decision, Election, Loss};
use super::fence::{Fence, up};
use super::lease::{Claim, Error, Lease, Leases};
use super::periods::{Periods, PeriodsError};
use super::rivals::Rivals;

/// The pause after another client wrote the Lease first: short, but never a busy loop.
const PAUSE_AFTER_RACE: Duration = Duration::from_millis(50);
/// Attempts to release the lease. One fails when another client edits the Lease.
const MAX_RELEASE_ATTEMPTS: usize = 3;

/// A function that is called with each new problem with the Lease, and with None once it is over.
pub type OnProblem = Arc<dyn Fn(Option<&str>) + Send + Sync>;

/// Whether the holder of the Lease of that name must not lead while this replica does.
pub type IsRival = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The settings of an [`Elector`].
pub struct Settings {
    /// The client of the election. It is not behind the fence, and best without retries of its own
    /// (`Config::default_retry`).
    pub client: Client,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub lease: String,
    /// The name of this replica in the Lease. It must be unique to the process: a restarted one needs another name.
    pub identity: String,
    /// The field manager of the writes.
    pub field_manager: String,
    /// The timing of the election.
    pub periods: Periods,
    /// Called with each new problem with the Lease, and with None once it is over.
    pub on_problem: OnProblem,
    /// Other Leases of the namespace: before this replica leads, each of them must be released, or have expired. It
    /// needs the right to list Leases. None, the default: there are none.
    pub is_rival: Option<IsRival>,
}

impl Settings {
    /// The periods of client-go, and problems in the log. The identity is the name of the pod (the environment variable
    /// `POD_NAME`), else of the machine (`HOSTNAME`), else of the lease, with a random suffix; the field manager is the
    /// name of the lease.
    pub fn new(client: Client, namespace: &str, lease: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            lease: lease.to_owned(),
            identity: identity(lease),
            field_manager: lease.to_owned(),
            periods: Periods::default(),
            on_problem: Arc::new(|problem| {
                if let Some(problem) = problem {
                    tracing::warn!("leader election: {problem}");
                } else {
                    tracing::info!("the leader election works again");
                }
            }),
            is_rival: None,
        }
    }
}

/// What the work of a leader is given: one for each time that the replica acquires the lease.
pub struct Term {
    /// A reference to the Lease, for Events about it.
    pub lease: ObjectReference,
    /// The name of this replica in the Lease.
    pub identity: String,
    /// For the connections of the work. Once it has closed, it never opens again: what an earlier term left in a buffer
    /// is not sent in a later one.
    pub fence: Fence,
}

/// One replica in the election: [`new`](Self::new), then [`lead`](Self::lead).
pub struct Elector {
    me: String,
    leases: Leases,
    periods: Periods,
    on_problem: OnProblem,
    rivals: Option<(IsRival, Rivals)>,
    /// It has to read the rivals' Leases once its claim is accepted.
    looks: bool,
    /// The current problem with the Lease, if any.
    problem: Option<String>,
    election: Election,
    fence: Fence,
    holder: watch::Sender<String>,
    /// The Lease as this replica wrote it last, to be renewed without a read.
    written: Option<Lease>,
    /// Reports changes of the Lease.
    lease_watch: LeaseWatch,
}

/// The result of an attempt to acquire or renew the lease.
enum Turn {
    Leads,
    Wait(Duration),
    /// The holder of another Lease may lead, or that is not known: a message.
    Excluded(String),
    Lost(Loss),
}

impl Elector {
    /// A replica with those settings. It makes no requests before [`lead`](Self::lead).
    ///
    /// # Errors
    /// When the periods are inconsistent.
    pub fn new(settings: Settings) -> Result<Self, PeriodsError> {
        let Settings {
            client,
            namespace,
            lease,
            identity: me,
            field_manager,
            periods,
            on_problem,
            is_rival,
        } = settings;
        periods.check()?;
        Ok(Self {
            leases: Leases::new(client, namespace, lease, field_manager),
            periods,
            on_problem,
            rivals: is_rival.map(|is_rival| (is_rival, Rivals::new(periods))),
            looks: false,
            problem: None,
            election: Election::new(me.clone(), periods),
            fence: Fence::default(),
            holder: watch::Sender::default(),
            written: None,
            lease_watch: LeaseWatch::default(),
            me,
        })
    }

    /// The identity of the known leader, and every change of it; empty before the lease was first read, and while no
    /// replica leads.
    pub fn holder(&self) -> watch::Receiver<String> {
        self.holder.subscribe()
    }

    /// Waits until this replica leads, then runs `work` for as long as it leads.
    ///
    /// - When `work` ends by itself, as it should when the process stops, the lease is released and its output
    ///   returned.
    /// - When the lease is lost, `work` is dropped, its clients send nothing more, and this replica waits again: `work`
    ///   may be called many times.
    /// - When `resign` is cancelled while this replica does not lead, it leaves the election: None. A leader ignores
    ///   `resign`, so `work` has to end by itself.
    pub async fn lead<W: Future>(
        mut self,
        resign: &CancellationToken,
        mut work: impl FnMut(Term) -> W,
    ) -> Option<W::Output> {
        loop {
            tracing::info!(identity = self.me, lease = self.name(), "waiting to lead");
            if !self.acquire(resign).await {
                return None;
            }
            tracing::info!(identity = self.me, lease = self.name(), "leading");
            let lease = self.written.as_ref();
            let term = Term {
                lease: lease
                    .map(|lease| lease.reference(&self.leases))
                    .unwrap_or_default(),
                identity: self.me.clone(),
                fence: self.fence.clone(),
            };
            let ended = {
                let work = work(term);
                tokio::select! {
                    biased;
                    loss = self.renew() => Err(loss),
                    ended = work => Ok(ended),
                }
            };
            self.fence.close();
            match ended {
                Ok(ended) => {
                    self.release().await;
                    return Some(ended);
                }
                Err(loss) => self.step_down(&loss),
            }
        }
    }

    /// Becomes a replica that waits to lead, which knows of the election what it knew.
    fn step_down(&mut self, loss: &Loss) {
        let lease = self.name();
        let problem = self.problem.as_ref();
        let problem = problem.map_or_else(String::new, |problem| format!(" ({problem})"));
        match loss {
            Loss::Late => tracing::error!(
                "lost the leadership: the lease {lease} was not renewed in time{problem}"
            ),
            Loss::Excluded => tracing::error!("lost the leadership of the lease {lease}{problem}"),
            Loss::Taken { by } => {
                tracing::error!("lost the leadership: the lease {lease} is now held by {by}");
            }
        }
        self.election.step_down();
        self.fence = Fence::default();
        self.written = None;
        self.publish_holder(String::new());
    }

    fn name(&self) -> String {
        self.leases.title()
    }

    /// Reports a problem with the Lease, or that there is none any more.
    fn report(&mut self, problem: Option<String>) {
        if self.problem != problem {
            self.problem = problem;
            (self.on_problem)(self.problem.as_deref());
        }
    }

    /// Waits until this replica leads, and returns true, or until `resign` is cancelled, and returns false.
    async fn acquire(&mut self, resign: &CancellationToken) -> bool {
        while !resign.is_cancelled() {
            // A request is never cancelled: the API server may have received it.
            let pause = match self.try_lead().await {
                Ok(Turn::Leads) => {
                    // A leader does not watch the Lease.
                    self.lease_watch = LeaseWatch::default();
                    return true;
                }
                Ok(Turn::Wait(until)) => {
                    self.report(None);
                    until
                        .saturating_sub(up())
                        .min(jittered(self.periods.retry_period))
                }
                Ok(Turn::Excluded(problem)) => {
                    self.report(Some(problem));
                    // Its own Lease has no news of the rival, but of the claim that this replica gave up.
                    tokio::select! {
                        () = sleep(scattered(self.periods.retry_period)) => {}
                        () = resign.cancelled() => {}
                    }
                    continue;
                }
                Ok(Turn::Lost(_)) | Err(Error::LostRace) => jittered(PAUSE_AFTER_RACE),
                Err(Error::Other(problem)) => {
                    self.report(Some(problem));
                    jittered(self.periods.retry_period)
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.lease_watch.changed(&self.leases) => {}
                () = resign.cancelled() => {}
            }
        }
        false
    }

    /// Renews the lease until it is lost.
    async fn renew(&mut self) -> Loss {
        let mut pause = self.periods.retry_period;
        loop {
            let left = |election: &Election| {
                let until = election.leads_until().unwrap_or_default();
                until.saturating_sub(up())
            };
            sleep(pause.min(left(&self.election))).await;
            if left(&self.election).is_zero() {
                return Loss::Late;
            }
            pause = match self.try_lead().await {
                Ok(Turn::Lost(loss)) => return loss,
                Ok(Turn::Excluded(problem)) => {
                    self.report(Some(problem));
                    return Loss::Excluded;
                }
                Ok(Turn::Leads | Turn::Wait(_)) => {
                    self.report(None);
                    self.periods.retry_period
                }
                Err(Error::LostRace) => jittered(PAUSE_AFTER_RACE),
                Err(Error::Other(problem)) => {
                    self.report(Some(problem));
                    self.periods.retry_period
                }
            };
        }
    }

    /// Reads the Lease, decides, and writes it if necessary, once.
    async fn try_lead(&mut self) -> Result<Turn, Error> {
        let lease = if let Some(written) = self.written.take() {
            Some(written)
        } else {
            let lease = self.leases.get(self.call_timeout()).await?;
            let record = lease.as_ref().map(Lease::record);
            self.election.observe(record.as_ref(), up());
            self.lease_watch.since = lease.as_ref().map(|lease| lease.version().to_owned());
            self.publish_holder(record.map(|record| record.holder).unwrap_or_default());
            lease
        };
        let record = lease.as_ref().map(Lease::record);
        let (transitions, is_new) = match self.election.decide(record.as_ref(), up()) {
            Decision::Wait { until } => {
                // A claim that no process renews is over by the time at which this replica could lead.
                if let Some((_, rivals)) = &self.rivals
                    && !rivals.are_over(up())
                {
                    self.excluded().await;
                }
                return Ok(Turn::Wait(until));
            }
            Decision::Lost(loss) => return Ok(Turn::Lost(loss)),
            Decision::Acquire { transitions } => (transitions, true),
            Decision::Renew { transitions } => (transitions, false),
        };
        // A leader that finds no claim of its own does not know who has read which. The answer to its next one may be lost.
        self.looks |= is_new || record.is_none_or(|record| record.holder != self.me);
        if is_new && let Some(excluded) = self.excluded().await {
            return Ok(excluded);
        }
        let claim = Claim {
            holder: &self.me,
            seconds: self.periods.lease_seconds(),
            transitions,
            is_new,
            now: Timestamp::now(),
        };
        let call_timeout = self.call_timeout();
        let sent = up();
        if !self.election.may_send(sent) {
            return Ok(Turn::Lost(Loss::Late));
        }
        let written = self
            .leases
            .write(lease.as_ref(), &claim, call_timeout)
            .await?;
        let until = self.election.won(&written.record(), sent, up());
        self.written = Some(written);
        // A rival may have written its Lease at the same time. From here on, each rival reads this claim.
        if self.looks
            && let Some(excluded) = self.excluded().await
        {
            // A leader keeps its claim: calls of its work may be in flight until it is over.
            if is_new {
                self.release().await;
                self.election.step_down();
            }
            return Ok(excluded);
        }
        self.looks = false;
        self.fence.open_until(until);
        self.publish_holder(self.me.clone());
        Ok(Turn::Leads)
    }

    /// Reads the rivals' Leases. Says so if the holder of one may lead, or if they cannot be read.
    async fn excluded(&mut self) -> Option<Turn> {
        let call_timeout = self.call_timeout();
        let (is_rival, rivals) = self.rivals.as_mut()?;
        let found = self.leases.others(|name| is_rival(name), call_timeout);
        match found.await {
            Ok(found) => rivals.observe(found, up()),
            Err(problem) => return Some(Turn::Excluded(problem)),
        }
        let (lease, holder) = rivals.first(up())?;
        let ours = self.leases.title();
        Some(Turn::Excluded(format!(
            "{holder} may lead by the lease {lease}, which excludes {ours}"
        )))
    }

    /// The time limit of a call that starts now. A leader's call ends before its time to lead.
    fn call_timeout(&self) -> Duration {
        let left = self
            .election
            .leads_until()
            .map(|until| until.saturating_sub(up()));
        self.periods.call().min(left.unwrap_or(Duration::MAX))
    }

    fn publish_holder(&self, holder: String) {
        self.holder.send_if_modified(|known| {
            let is_new = *known != holder;
            *known = holder;
            is_new
        });
    }

    /// Releases the lease, so that another replica leads at once. If that fails, the others wait until the lease
    /// expires.
    async fn release(&mut self) {
        for _ in 0..MAX_RELEASE_ATTEMPTS {
            match self.try_to_release().await {
                Ok(()) => return,
                Err(Error::LostRace) => sleep(jittered(PAUSE_AFTER_RACE)).await,
                Err(Error::Other(problem)) => {
                    tracing::warn!("cannot release the lease: {problem}");
                    return;
                }
            }
        }
    }

    async fn try_to_release(&mut self) -> Result<(), Error> {
        let lease = match self.written.take() {
            Some(lease) => Some(lease),
            None => self.leases.get(self.call_timeout()).await?,
        };
        let Some(lease) = lease.filter(|lease| lease.record().holder == self.me) else {
            return Ok(());
        };
        let claim = Claim {
            holder: "",
            seconds: 1,
            transitions: lease.record().transitions,
            is_new: true,
            now: Timestamp::now(),
        };
        let call_timeout = self.call_timeout();
        if !self.election.may_send(up()) {
            return Ok(());
        }
        self.leases
            .write(Some(&lease), &claim, call_timeout)
            .await?;
        tracing::info!(lease = self.name(), "released the lease");
        self.publish_holder(String::new());
        Ok(())
    }
}

/// A watch of the Lease, so that a replica need not poll often. If the watch does not work, the reads after every pause
/// are enough.
#[derive(Default)]
struct LeaseWatch {
    watch: Option<Pin<Box<dyn Stream<Item = ()> + Send>>>,
    /// The resource version read last.
    since: Option<String>,
}

impl LeaseWatch {
    /// Returns when the Lease has changed; never if the watch does not work.
    async fn changed(&mut self, leases: &Leases) {
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

/// The pause plus up to a fifth, so that replicas do not act in lockstep.
fn jittered(pause: Duration) -> Duration {
    pause + pause * thousandths() / 5_000
}

/// Half the pause to one and a half. Rivals that claim their Leases at the same time all give up their claims: the next
/// time, one of them has to be well before the others.
fn scattered(pause: Duration) -> Duration {
    pause / 2 + pause * thousandths() / 1_000
}

/// At random below a thousand.
fn thousandths() -> u32 {
    u32::try_from(random() % 1_000).unwrap_or_default()
}

/// A hasher's keys are random, and come from the system.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// The name of the pod, or of the machine, or else of the lease, and a random suffix: a pod keeps its name when its
/// container restarts.
fn identity(lease: &str) -> String {
    let names = ["POD_NAME", "HOSTNAME"].into_iter();
    let mut names = names.filter_map(|name| std::env::var(name).ok());
    let name = names.find(|name| !name.is_empty());
    format!("{}_{:016x}", name.as_deref().unwrap_or(lease), random())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use simulated_apiserver::{Decision, Options, Server, Site, Status, Verb};

    use super::*;

    const QUICK: Periods = Periods {
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_secs(1),
        retry_period: Duration::from_millis(100),
    };

    /// A candidate for a lease that excludes every other, and its problems.
    fn candidate(server: &Server, lease: &'static str) -> (Elector, Arc<Mutex<Vec<String>>>) {
        let problems = Arc::<Mutex<Vec<String>>>::default();
        let seen = problems.clone();
        let settings = Settings {
            periods: QUICK,
            on_problem: Arc::new(move |problem| {
                seen.lock().unwrap().extend(problem.map(str::to_owned));
            }),
            is_rival: Some(Arc::new(move |other| other != lease)),
            identity: format!("replica of {lease}"),
            ..Settings::new(server.client(lease), "default", lease)
        };
        (Elector::new(settings).unwrap(), problems)
    }

    /// A candidate whose work takes 300 ms.
    async fn excluding(server: &Server, lease: &'static str, leading: &AtomicUsize) -> String {
        let (elector, problems) = candidate(server, lease);
        let resign = CancellationToken::new();
        let lead = elector.lead(&resign, async |_| {
            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
            sleep(Duration::from_millis(300)).await;
            leading.fetch_sub(1, Ordering::SeqCst);
        });
        lead.await.unwrap();
        problems.lock().unwrap().join("; ")
    }

    #[tokio::test]
    async fn replicas_of_leases_that_exclude_each_other_lead_one_after_another() {
        let server = Server::new(Options::default());
        let leading = AtomicUsize::new(0);
        let replicas = ["a", "b", "c", "d"].map(|lease| excluding(&server, lease, &leading));
        let problems = futures::future::join_all(replicas).await;
        // The first to lead may not have met another.
        assert!(problems.iter().filter(|all| !all.is_empty()).count() >= 3);
        for problem in problems.iter().flat_map(|all| all.split("; ")) {
            let says = [
                "replica of ",
                " may lead by the lease ",
                ", which excludes default/",
            ];
            let said = says.iter().all(|words| problem.contains(words));
            assert!(said || problem.is_empty(), "{problem}");
        }
    }

    #[tokio::test]
    async fn a_leader_whose_lease_was_released_by_hand_makes_way_for_the_rival_that_leads() {
        let server = Server::new(Options::default());
        let ([a, b], resign) = (["a", "b"], CancellationToken::new());
        let (first, problems) = candidate(&server, a);
        let (second, _) = candidate(&server, b);
        let (leads, released) = (CancellationToken::new(), CancellationToken::new());
        let first = first.lead(&resign, async |_| {
            let _ended = released.clone().drop_guard();
            leads.cancel();
            std::future::pending::<()>().await;
        });
        let second = async {
            leads.cancelled().await;
            let spec = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
            server
                .direct()
                .patch("leases", "default", a, &spec)
                .unwrap();
            let lead = second.lead(&resign, async |_| released.cancelled().await);
            tokio::time::timeout(Duration::from_secs(60), lead).await
        };
        tokio::select! {
            _ = first => unreachable!("its work never ends"),
            ended = second => assert_eq!(ended.unwrap(), Some(())),
        }
        let problem = "replica of b may lead by the lease b, which excludes default/a";
        assert_eq!(*problems.lock().unwrap(), [problem]);
    }

    #[tokio::test]
    async fn a_replica_that_cannot_list_the_rivals_does_not_lead_and_holds_no_lease() {
        for which in [0, 1] {
            let server = Server::new(Options::default());
            // The list before the claim fails, or the one after it.
            server.on(move |site: &Site| {
                if site.verb == Verb::List && site.nth == which {
                    return Decision::Answer(Status::new(403, "Forbidden", "no right to list"));
                }
                Decision::Forward
            });
            let leading = AtomicUsize::new(0);
            let problems = excluding(&server, "a", &leading).await;
            assert_eq!(
                problems,
                "cannot list the leases of default: no right to list"
            );
            let lease = server.direct().get("Lease", "default", "a").unwrap();
            // The claim that was given up counts.
            let transitions = lease["spec"]["leaseTransitions"].as_u64();
            assert_eq!(transitions, Some(u64::from(which)));
        }
    }

    #[tokio::test]
    async fn a_problem_and_its_end_are_reported_once_and_the_end_of_the_work_releases_the_lease() {
        let server = Server::new(Options::default());
        server.on(|site: &Site| {
            if site.verb == Verb::Get && site.nth < 2 {
                Decision::Answer(Status::new(403, "Forbidden", "no right to get leases"))
            } else {
                Decision::Forward
            }
        });
        let reports = Arc::<Mutex<Vec<Option<String>>>>::default();
        let seen = reports.clone();
        let elector = Elector::new(Settings {
            identity: "me".to_owned(),
            periods: QUICK,
            on_problem: Arc::new(move |problem| {
                seen.lock().unwrap().push(problem.map(str::to_owned));
            }),
            ..Settings::new(server.client("me"), "default", "example")
        });
        let resign = CancellationToken::new();
        let lead = elector.unwrap().lead(&resign, async |term| {
            // Longer than until the first renewal.
            sleep(Duration::from_millis(300)).await;
            (term.fence.is_open(), term)
        });
        let (was_open, term) = lead.await.unwrap();
        assert!(was_open && !term.fence.is_open());
        assert_eq!(term.identity, "me");
        let problem = "cannot get the lease default/example: no right to get leases".to_owned();
        assert_eq!(*reports.lock().unwrap(), [Some(problem), None]);
        let lease = server.direct().get("Lease", "default", "example").unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "");
        assert_eq!(
            Some(lease["metadata"]["uid"].as_str().unwrap()),
            term.lease.uid.as_deref()
        );
    }
}
