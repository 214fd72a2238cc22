//! The control loop of the certificates: observe, decide, act, repeat.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, StreamExt};
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder};
use rustls::crypto::CryptoProvider;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::authority::{Anchor, Authority, Fingerprint, LeafFacts};
use super::bundle::{BundleTarget, Snapshot, Writer};
use super::call;
use super::clocks::{Clock, Clocks};
use super::drift::{self, Drift};
use super::error::Error;
use super::rotation::{self, Authorities, Change, Held, Observed, Periods, Step};
use super::secret::{Found, Store};
use super::served::{self, ServedCertificate, State};
use super::server_clock::{ServerClock, up};

/// How often the wall clock is read. A timer alone would sleep with the machine.
const TICK: Duration = Duration::from_secs(5);

/// Time limit for publishing an Event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of a [`CertManager`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the program: it reports Events and is the field manager of what it writes, and of what it creates the
    /// label `app.kubernetes.io/managed-by`. A bundle in configurations of others has a field manager of its own, with
    /// `-ca-bundle` after the name.
    pub manager: String,
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret that has the CA with its key. It is created if it is missing.
    pub secret: String,
    /// Whether to create that namespace when it is missing: for a program that runs outside the cluster.
    pub create_namespace: bool,
    /// The DNS names and IP addresses under which the API server calls the webhook: `SERVICE.NAMESPACE.svc` for a
    /// Service.
    pub hosts: Vec<String>,
    /// The lifetimes of the certificates.
    pub periods: Periods,
    /// Where the CA bundle is published.
    pub target: BundleTarget,
}

/// Manages the CA, this process's leaf and the published bundle: [`new`](Self::new), then [`run`](Self::run) on a task
/// of its own. Every replica has one.
pub struct CertManager {
    settings: Settings,
    clock: Clock,
    server_clock: ServerClock,
    store: Store,
    writer: Option<Writer>,
    recorder: Recorder,
    provider: CryptoProvider,
    served: Arc<ServedCertificate>,
    state: watch::Sender<State>,
    leaf: Option<LeafFacts>,
    /// When the served leaf expired, and the latest expiry for which an Event was published.
    expired: Option<DateTime<Utc>>,
    reported_expiry: Option<DateTime<Utc>>,
    /// The foreign CA that was reported last.
    foreign: Option<Fingerprint>,
    /// Since when this process has seen each CA in every bundle.
    trusted: BTreeMap<Fingerprint, Instant>,
    /// Both clocks in the last round.
    clocks: Option<Clocks>,
}

impl CertManager {
    /// Makes no requests before [`run`](Self::run).
    ///
    /// `clock` is this machine's (in a program, `Arc::new(Utc::now)`), and `server_clock` that of the API server, a layer of
    /// `client`. Without the layer, this machine's clock is believed.
    ///
    /// # Errors
    /// When the periods are inconsistent.
    pub fn new(
        client: Client,
        settings: Settings,
        clock: Clock,
        server_clock: ServerClock,
    ) -> Result<Self, Error> {
        settings.periods.check()?;
        Ok(Self {
            store: Store::new(
                client.clone(),
                &settings.namespace,
                &settings.secret,
                &settings.manager,
                settings.create_namespace,
            ),
            writer: Writer::new(&client, &settings.target, &settings.manager),
            recorder: Recorder::new(client, settings.manager.clone().into()),
            provider: rustls::crypto::aws_lc_rs::default_provider(),
            served: Arc::default(),
            state: watch::Sender::default(),
            leaf: None,
            expired: None,
            reported_expiry: None,
            foreign: None,
            trusted: BTreeMap::new(),
            clocks: None,
            settings,
            clock,
            server_clock,
        })
    }

    /// What the TLS listener presents, for `rustls::ServerConfig`. Empty until the first leaf is signed.
    pub fn resolver(&self) -> Arc<ServedCertificate> {
        self.served.clone()
    }

    /// The state of the certificates, and every change of it.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Runs until `shutdown`. Errors of the API server are retried.
    ///
    /// # Errors
    /// None at present; the type allows for errors that a retry cannot fix.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), Error> {
        let configurations = match &self.writer {
            Some(writer) => writer.changes(),
            None => stream::pending().boxed(),
        };
        let mut changes = stream::select(configurations, self.store.changes());
        let mut pauses = Pauses::default();
        loop {
            let round = tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                round = self.round() => round,
            };
            let pause = pauses.after(&round);
            let due = self.conclude(round);
            self.report_expiry((self.clock)()).await;
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = self.wait_until(due) => {}
                Some(()) = changes.next() => {}
            }
        }
    }

    /// Sleeps until the wall clock reaches `until`, or was set back: the last decision may be wrong then.
    async fn wait_until(&self, until: DateTime<Utc>) {
        let longest = rotation::longest_wait(&self.settings.periods);
        loop {
            let now = (self.clock)();
            self.refresh(now);
            let Ok(rest) = (until - now).to_std() else {
                return;
            };
            if rest.is_zero() || until - now > longest {
                return;
            }
            tokio::time::sleep(rest.min(TICK)).await;
        }
    }

    /// Both clocks now.
    fn both_clocks(&self) -> Clocks {
        Clocks::new((self.clock)(), self.server_clock.now())
    }

    /// Observes, decides and acts once.
    async fn round(&mut self) -> Result<Round, Error> {
        let seen = self.observe().await?;
        self.note_trust(seen.snapshot.as_ref());
        if let Some(authorities) = seen.authorities() {
            self.report_foreign(&authorities.current, &seen.found).await;
        }
        let step = self.decide(&seen);
        let mut acted = false;
        let mut failure = None;
        if let Some(authorities) = seen.authorities() {
            // The leaf comes first: it needs no call. A failed call stops none of the others.
            if step.sign {
                self.sign(authorities, seen.clocks)?;
            }
            if let Some(published) = self.publish(authorities, step.publish, &seen).await {
                acted = true;
                failure = published.err();
            }
        }
        if let Some(change) = step.change {
            acted = true;
            if let Err(error) = self.change_secret(change, &seen.found).await? {
                failure = failure.or(Some(error));
            }
        }
        match failure {
            Some(error) if !error.lost_race() => Err(error.into()),
            _ => Ok(self.finish(&seen, step.next_decision, acted)),
        }
    }

    /// Reads the configurations and the Secret.
    async fn observe(&mut self) -> Result<Seen, Error> {
        // Decisions and leaves use the time before the first read, writes the time after the last. So every wait is
        // long enough, even if this process is suspended in between.
        let (now, began, up) = ((self.clock)(), Instant::now(), up());
        // The configurations come first: see `bundle`.
        let mut snapshot = self.snapshot().await;
        let found = self.store.read().await;
        // Any answer carries the server's time, even an error.
        let clocks = Clocks::new(now, self.server_clock.at(up));
        self.clocks = Some(clocks);
        let found = found?;
        if !matches!(found.held, Held::Authorities(_)) {
            // A new CA must not end the trust in the published ones, so read the bundle again: since the first read,
            // another replica may have published its CA, and the Secret may have been deleted.
            snapshot = self.snapshot().await;
        }
        match snapshot.transpose() {
            Ok(snapshot) => Ok(Seen {
                clocks,
                began,
                found,
                snapshot,
            }),
            Err(error) => {
                // The CAs that the API servers trust are unknown, so nothing may change. But a new leaf of the same CA
                // is as good as the old one.
                self.renew_in_place(&found, clocks)?;
                Err(error.into())
            }
        }
    }

    fn decide(&self, seen: &Seen) -> Step {
        let trusted = self.trusted.iter().map(|(fingerprint, since)| {
            let time = seen.began.saturating_duration_since(*since);
            (
                *fingerprint,
                TimeDelta::from_std(time).unwrap_or(TimeDelta::MAX),
            )
        });
        let snapshot = seen.snapshot.as_ref();
        let observed = Observed {
            held: &seen.found.held,
            published: snapshot.map(|snapshot| &snapshot.published),
            trusted: &trusted.collect(),
            leaf: self.leaf,
            read_at: self.both_clocks(),
        };
        rotation::decide(observed, seen.clocks, &self.settings.periods)
    }

    /// Publishes the bundle that was decided, or the present one if this process has not applied its configurations
    /// yet. Returns None if nothing is to be published.
    async fn publish(
        &mut self,
        authorities: &Authorities,
        decided: Option<Vec<Anchor>>,
        seen: &Seen,
    ) -> Option<Result<(), call::Error>> {
        let (writer, snapshot) = (self.writer.as_mut()?, seen.snapshot.as_ref()?);
        let first = writer.must_apply().then(|| authorities.bundle());
        let bundle = decided.or(first)?;
        let published = writer.publish(snapshot, &bundle).await;
        if matches!(published, Ok(true)) {
            let names = bundle.iter().map(|a| a.fingerprint().to_string());
            let names = names.collect::<Vec<_>>().join(", ");
            tracing::info!(bundle = names, "CA bundle published");
        }
        Some(published.map(drop))
    }

    /// What a round found and did. Called after the leaf was signed: the bundle must have the CA of the new leaf.
    fn finish(&self, seen: &Seen, due: DateTime<Utc>, acted: bool) -> Round {
        let snapshot = seen.snapshot.as_ref();
        let bundle_published = match (snapshot, self.leaf) {
            (None, _) => true,
            (Some(snapshot), Some(leaf)) => snapshot.published.everywhere.contains(&leaf.issuer),
            (Some(_), None) => false,
        };
        let creates = self.writer.as_ref().is_some_and(Writer::creates);
        let authorities = seen.authorities();
        Round {
            due,
            acted,
            ca_not_after: authorities.map(|a| a.current.anchor().not_after()),
            bundle_published,
            drift: snapshot.map_or_else(Vec::new, |s| s.drift.clone()),
            problem: problem(&seen.found.held, snapshot, creates),
        }
    }

    async fn snapshot(&self) -> Option<Result<Snapshot, call::Error>> {
        Some(self.writer.as_ref()?.read().await)
    }

    async fn change_secret(
        &self,
        change: Change,
        found: &Found,
    ) -> Result<Result<(), call::Error>, Error> {
        let clocks = self.both_clocks();
        let loss = self.loss(&found.held, clocks.local());
        let begins = matches!(change, Change::Begin { .. });
        let what = format!("{change:?}");
        let what = what
            .split([' ', '(', '{'])
            .next()
            .unwrap_or_default()
            .to_owned();
        let Some(authorities) = change.apply(&found.held, clocks, &self.settings.periods)? else {
            return Ok(Ok(()));
        };
        if let Err(error) = self.store.write(found, &authorities).await {
            return Ok(Err(error));
        }
        let signing = authorities.current.anchor().fingerprint();
        tracing::info!(change = what, %signing, "webhook CA Secret written");
        if let Some((reason, fault)) = loss.filter(|_| begins) {
            tracing::warn!(
                fault,
                "the webhook CA Secret was unusable: a new CA replaces it"
            );
            let note = format!("{fault}; a new CA replaces it");
            self.publish_warning(Some(found), reason, "ReplaceAuthority", note)
                .await;
        }
        Ok(Ok(()))
    }

    /// What was wrong with the Secret that a new CA replaces. None at the very first start.
    fn loss(&self, held: &Held, now: DateTime<Utc>) -> Option<(&'static str, String)> {
        match held {
            Held::Garbage { fault, .. } => Some(("UnusableAuthority", fault.clone())),
            Held::Missing => {
                let served = self.leaf.filter(|leaf| leaf.not_after > now);
                served.map(|_| ("MissingAuthority", "the Secret did not exist".to_owned()))
            }
            Held::Authorities(authorities) => {
                let anchor = authorities.current.anchor();
                let (start, end) = (anchor.not_before(), anchor.not_after());
                Some(if end <= now {
                    ("ExpiredAuthority", format!("the CA expired at {end}"))
                } else {
                    let fault =
                        format!("the CA is not valid before {start}: a wrong clock made it");
                    ("NotYetValidAuthority", fault)
                })
            }
        }
    }

    /// Reports once that a foreign CA is used: the holder of its key can impersonate the webhooks.
    async fn report_foreign(&mut self, authority: &Authority, found: &Found) {
        let fingerprint = authority.anchor().fingerprint();
        if authority.is_ours() || self.foreign == Some(fingerprint) {
            return;
        }
        self.foreign = Some(fingerprint);
        let note = format!(
            "the CA {fingerprint} was not made by {}, and the holder of its key can impersonate the webhooks: delete this Secret if you did not put it there",
            self.settings.manager
        );
        tracing::warn!("{note}");
        self.publish_warning(Some(found), "ForeignAuthority", "UseAuthority", note)
            .await;
    }

    /// Publishes once, in an Event, that calls fail or failed because the leaf has expired. It retries until the API
    /// server accepts the Event: usually the leaf was not renewed because the API server was down.
    async fn report_expiry(&mut self, now: DateTime<Utc>) {
        self.note_expiry(now);
        let Some(end) = self
            .expired
            .filter(|end| self.reported_expiry != Some(*end))
        else {
            return;
        };
        let mut note =
            format!("the serving certificate expired at {end} before it could be renewed");
        if let Some(warning) = self.clocks.and_then(Clocks::warning) {
            note = format!("{note}; {warning}");
        }
        let reason = "ServingCertificateExpired";
        if self
            .publish_warning(None, reason, "RenewCertificate", note)
            .await
        {
            self.reported_expiry = Some(end);
        }
    }

    fn note_expiry(&mut self, now: DateTime<Utc>) {
        let end = self.leaf.map(|leaf| leaf.not_after);
        if let Some(end) = end.filter(|end| *end <= now && self.expired != Some(*end)) {
            tracing::error!(%end, "the serving certificate has expired: calls to the webhook fail");
            self.expired = Some(end);
        }
    }

    /// Publishes a Warning about the Secret, and returns whether the API server accepted it.
    async fn publish_warning(
        &self,
        found: Option<&Found>,
        reason: &str,
        action: &str,
        note: String,
    ) -> bool {
        let reference = self.store.reference(found);
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        let publish = self.recorder.publish(&event, &reference);
        match tokio::time::timeout(EVENT_TIMEOUT, publish).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "an Event could not be published");
                false
            }
            Err(_) => false,
        }
    }

    fn renew_in_place(&mut self, found: &Found, clocks: Clocks) -> Result<(), Error> {
        let Held::Authorities(authorities) = &found.held else {
            return Ok(());
        };
        let current = authorities.current.anchor().fingerprint();
        let leaf = self
            .leaf
            .filter(|leaf| leaf.fault(clocks.local()).is_none());
        if leaf.is_some_and(|leaf| leaf.issuer != current) {
            return Ok(());
        }
        let observed = Observed {
            held: &found.held,
            published: None,
            trusted: &BTreeMap::new(),
            leaf: self.leaf,
            read_at: clocks,
        };
        if rotation::decide(observed, clocks, &self.settings.periods).sign {
            self.sign(authorities, clocks)?;
        }
        Ok(())
    }

    fn sign(&mut self, authorities: &Authorities, clocks: Clocks) -> Result<(), Error> {
        let now = clocks.local();
        self.note_expiry(now);
        let Settings { hosts, periods, .. } = &self.settings;
        let validity = rotation::leaf_validity(&authorities.current, clocks, periods);
        let leaf = authorities.current.issue_between(hosts, now, validity)?;
        self.served.set(leaf.certified_key(&self.provider)?);
        self.leaf = Some(leaf.facts());
        tracing::info!(issuer = %leaf.issuer, not_after = %leaf.not_after, "serving certificate signed");
        self.refresh(now);
        Ok(())
    }

    fn note_trust(&mut self, snapshot: Option<&Snapshot>) {
        let now = Instant::now();
        let Some(snapshot) = snapshot else { return };
        let everywhere = &snapshot.published.everywhere;
        self.trusted
            .retain(|fingerprint, _| everywhere.contains(fingerprint));
        for fingerprint in everywhere {
            self.trusted.entry(*fingerprint).or_insert(now);
        }
    }

    /// Publishes the result of a round and returns when the next one is due.
    fn conclude(&self, round: Result<Round, Error>) -> DateTime<Utc> {
        let (problem, due) = match &round {
            Ok(round) => (round.problem.clone(), round.due),
            Err(error) => (Some(error.to_string()), (self.clock)()),
        };
        // A wrong clock comes first: it causes the other problems.
        let problems = [self.clocks.and_then(Clocks::warning), problem];
        let problems: Vec<_> = problems.into_iter().flatten().collect();
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        served::update(&self.state, "webhook", |state| {
            state.problem = problem;
            if let Ok(round) = round {
                state.drift = drift::count(&round.drift);
                state.note = drift::note(&round.drift);
                state.ca_not_after = round.ca_not_after;
                state.bundle_published = round.bundle_published;
            }
        });
        due
    }

    /// Updates the part of the state that depends only on the leaf and the clock.
    fn refresh(&self, now: DateTime<Utc>) {
        served::update(&self.state, "webhook", |state| {
            state.leaf_not_after = self.leaf.map(|leaf| leaf.not_after);
            state.leaf_fault = self.leaf.and_then(|leaf| leaf.fault(now));
            state.leaf_ready = self.leaf.is_some() && state.leaf_fault.is_none();
        });
    }
}

/// What a round has read, and when.
struct Seen {
    /// Both clocks before the first read.
    clocks: Clocks,
    /// The same instant by the monotonic clock.
    began: Instant,
    found: Found,
    /// None if there are no configurations.
    snapshot: Option<Snapshot>,
}

impl Seen {
    /// The content of the Secret, if it is valid.
    fn authorities(&self) -> Option<&Authorities> {
        match &self.found.held {
            Held::Authorities(authorities) => Some(authorities),
            _ => None,
        }
    }
}

/// The result of one round.
struct Round {
    due: DateTime<Utc>,
    acted: bool,
    ca_not_after: Option<DateTime<Utc>>,
    bundle_published: bool,
    drift: Vec<Drift>,
    problem: Option<String>,
}

fn problem(held: &Held, snapshot: Option<&Snapshot>, creates: bool) -> Option<String> {
    // Configurations that the program creates itself are not reported as missing.
    let missing = snapshot.iter().filter(|_| !creates);
    let missing = missing.flat_map(|snapshot| &snapshot.missing);
    let fault = match held {
        Held::Garbage { fault, .. } => Some(fault),
        _ => None,
    };
    let all: Vec<_> = missing.chain(fault).map(String::as_str).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The first pause after a round that failed, and the longest.
const FAILED: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// The same of a round that had something to do. It grows when there is always something: another client reverts our
/// writes.
const BUSY: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(6_400)];
/// A rotation needs no more rounds in a row: they follow each other without growing pauses.
const ORDINARY_ROUNDS: u32 = 3;

/// The pauses between rounds.
#[derive(Default)]
struct Pauses {
    failures: u32,
    busy: u32,
}

impl Pauses {
    fn after(&mut self, round: &Result<Round, Error>) -> Duration {
        match round {
            Err(_) => {
                let pause = doubled(FAILED, self.failures);
                self.failures += 1;
                pause
            }
            Ok(round) => {
                self.failures = 0;
                self.busy = if round.acted { self.busy + 1 } else { 0 };
                doubled(BUSY, self.busy.saturating_sub(ORDINARY_ROUNDS))
            }
        }
    }
}

/// The first pause, doubled so many times, up to the longest.
fn doubled([first, longest]: [Duration; 2], times: u32) -> Duration {
    first
        .saturating_mul(2_u32.saturating_pow(times))
        .min(longest)
}

#[cfg(test)]
mod tests;
