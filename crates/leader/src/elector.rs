//! The task that acquires the lease, renews it, acquires it again when it was lost, and releases it at the end.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::candidate::{Candidate, Error, Step, Stored as _, Turn, after_race};
use super::decision::Loss;
use super::fence::{Fence, up};
use super::lease::{Lease, Leases};
use super::periods::{Periods, PeriodsError};

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
    on_problem: OnProblem,
    is_rival: Option<IsRival>,
    /// The current problem with the Lease, if any.
    problem: Option<String>,
    candidate: Candidate<Lease>,
    fence: Fence,
    holder: watch::Sender<String>,
    /// Reports changes of the Lease.
    lease_watch: LeaseWatch,
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
        let leases = Leases::new(client, namespace, lease, field_manager);
        let has_rivals = is_rival.is_some();
        Ok(Self {
            candidate: Candidate::new(me.clone(), leases.title(), periods, has_rivals),
            leases,
            on_problem,
            is_rival,
            problem: None,
            fence: Fence::default(),
            holder: watch::Sender::default(),
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
            let until = self.acquire(resign).await?;
            tracing::info!(identity = self.me, lease = self.name(), "leading");
            let lease = self.candidate.written();
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
                    loss = self.renew(until) => Err(loss),
                    ended = work => Ok(ended),
                }
            };
            self.fence.close();
            match ended {
                Ok(ended) => {
                    let release = self.candidate.release();
                    self.take(release).await;
                    return Some(ended);
                }
                Err(loss) => self.step_down(&loss),
            }
        }
    }

    /// Becomes a replica that waits to lead.
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
        self.candidate.step_down();
        self.fence = Fence::default();
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

    /// Waits until this replica leads, and returns until when, or until `resign` is cancelled.
    async fn acquire(&mut self, resign: &CancellationToken) -> Option<Duration> {
        while !resign.is_cancelled() {
            // A request is never cancelled: the API server may have received it.
            let turn = self.attempt().await;
            if let Turn::Leads { until } = turn {
                // A leader does not watch the Lease.
                self.lease_watch = LeaseWatch::default();
                return Some(until);
            }
            // Its own Lease has no news of the rival, but of the claim that this replica gave up.
            let is_excluded = matches!(turn, Turn::Excluded(_));
            tokio::select! {
                () = sleep(one_of(self.candidate.pause(&turn, up()))) => {}
                () = self.lease_watch.changed(&self.leases), if !is_excluded => {}
                () = resign.cancelled() => {}
            }
        }
        None
    }

    /// Renews the lease, which lasts until then, until it is lost.
    async fn renew(&mut self, until: Duration) -> Loss {
        let mut turn = Turn::Leads { until };
        loop {
            sleep(one_of(self.candidate.pause(&turn, up()))).await;
            turn = match self.attempt().await {
                Turn::Lost(loss) => return loss,
                Turn::Excluded(_) => return Loss::Excluded,
                turn => turn,
            };
        }
    }

    /// Reads the Lease, decides, and writes it if necessary, once. Opens the fence if this replica leads, and reports a
    /// problem or its end.
    async fn attempt(&mut self) -> Turn {
        let begin = self.candidate.begin(up());
        let turn = self.take(begin).await;
        match &turn {
            Turn::Leads { until } => {
                self.fence.open_until(*until);
                self.publish_holder(self.me.clone());
                self.report(None);
            }
            Turn::Wait { .. } => self.report(None),
            Turn::Excluded(problem) | Turn::Failed(Error::Other(problem)) => {
                self.report(Some(problem.clone()));
            }
            Turn::Lost(_) | Turn::Failed(Error::LostRace) | Turn::Ended => {}
        }
        turn
    }

    /// Takes this step and those that follow from it.
    async fn take(&mut self, mut step: Step<Lease>) -> Turn {
        loop {
            let call_timeout = self.candidate.call_timeout(up());
            step = match step {
                Step::Read => {
                    let found = self.leases.get(call_timeout).await;
                    if let Ok(found) = &found
                        && !self.candidate.is_releasing()
                    {
                        let found = found.as_ref();
                        self.lease_watch.since = found.map(|lease| lease.version().to_owned());
                        self.publish_holder(
                            found.map(|lease| lease.record().holder).unwrap_or_default(),
                        );
                    }
                    self.warn_if_not_released(&found);
                    self.candidate.read(found, up())
                }
                Step::ReadAgain => {
                    sleep(one_of(after_race())).await;
                    Step::Read
                }
                Step::Look => {
                    let is_rival = |name: &str| self.is_rival.as_ref().is_some_and(|is| is(name));
                    let found = self.leases.others(is_rival, call_timeout).await;
                    self.candidate.looked(found, up())
                }
                Step::Write { over, claim } => {
                    let sent = up();
                    if self.candidate.may_send(sent) {
                        let written = self.leases.write(over.as_ref(), &claim, call_timeout);
                        let written = written.await;
                        if self.candidate.is_releasing() && written.is_ok() {
                            tracing::info!(lease = self.name(), "released the lease");
                            self.publish_holder(String::new());
                        }
                        self.warn_if_not_released(&written);
                        self.candidate.wrote(written, sent, up())
                    } else {
                        self.candidate.too_late()
                    }
                }
                Step::End(turn) => return turn,
            };
        }
    }

    /// Warns if a call failed that was to release the lease.
    fn warn_if_not_released<T>(&self, result: &Result<T, Error>) {
        if let Err(Error::Other(problem)) = result
            && self.candidate.is_releasing()
        {
            tracing::warn!("cannot release the lease: {problem}");
        }
    }

    fn publish_holder(&self, holder: String) {
        self.holder.send_if_modified(|known| {
            let is_new = *known != holder;
            *known = holder;
            is_new
        });
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

/// A pause in that range, at random.
fn one_of(range: RangeInclusive<Duration>) -> Duration {
    let thousandths = u32::try_from(random() % 1_001).unwrap_or_default();
    *range.start() + range.end().saturating_sub(*range.start()) * thousandths / 1_000
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
        let lead = elector
            .unwrap()
            .lead(&resign, async |term| (term.fence.is_open(), term));
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
