//! One run: a simulated cluster, the program, the stages of a life, and what is wrong with the history.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use simulated_apiserver::{ChangeKind, Decision, History, Options, Server, Site, Verb};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use crate::cluster::{Cluster, effects, target};
use crate::faults::Fault;
use crate::listener::serve;
use crate::process::{FIRST, Operator, Program};
use crate::subjects::{NAMESPACE, Subject};

/// How long a stage may take after a fault. Every read of kube's client may take 295 s, and some operators wait for five
/// minutes after every error.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// How long the end of a stage must last.
const HOLD: Duration = Duration::from_secs(10);
/// How long requests are counted once everything is done.
const CALM: Duration = Duration::from_secs(60);
/// So many more requests than in the undisturbed run are allowed: in ten seconds, and in the calm.
const MORE_AT_ONCE: usize = 40;
const MORE_IN_CALM: usize = 5;

/// What is there, without what differs between two runs.
type Snapshot = BTreeMap<String, Value>;

/// What a run came to.
pub struct Run {
    pub history: History,
    pub sites: Vec<Site>,
    /// At the end of each stage.
    pub snapshots: Vec<Snapshot>,
    pub wrong: Vec<String>,
    /// What is no promise.
    pub notes: Vec<String>,
    /// Whether the fault befell a request.
    pub struck: bool,
    /// How long after the fault the last stage that it delayed was as it should be.
    pub recovery: Duration,
    at_once: usize,
    in_calm: usize,
    events: BTreeMap<String, i64>,
}

/// A fault at a site.
#[derive(Clone)]
pub struct Case {
    pub site: Site,
    pub fault: Fault,
}

impl Case {
    pub fn name(&self) -> String {
        format!("{} / {}", self.site, self.fault)
    }
}

/// Runs the program with a fault, and judges it by the run without one.
pub async fn run(
    subject: &'static dyn Subject,
    program: Program,
    tls: TlsAcceptor,
    case: Option<Case>,
    calm: Option<&Run>,
) -> Run {
    let server = Server::new(Options {
        start: chrono::Utc::now(),
        namespaces: vec![NAMESPACE.to_owned()],
        ..Options::default()
    });
    subject.register(&server);
    let listener = TcpListener::bind("127.0.0.1:443")
        .await
        .expect("port 443 is free");
    tokio::spawn(serve(server.clone(), listener, tls));
    tokio::spawn(others(subject, server.clone()));
    let (operator, task) = Operator::start(program);
    let cluster = Cluster {
        first: server.version(),
        server: server.clone(),
        operator: operator.clone(),
        subject,
        outage: Arc::default(),
    };
    let struck: Arc<Mutex<Option<Instant>>> = Arc::default();
    plan(cluster, case.clone(), Arc::clone(&struck));
    let mut walk = Walk {
        subject,
        server: &server,
        struck,
        case: case.as_ref(),
        wrong: Vec::new(),
        recovery: Duration::ZERO,
    };
    let snapshots = walk.stages(calm).await;
    let before = requests(&server.history());
    sleep(CALM).await;
    let history = server.history();
    operator.end();
    let _ = task.await;
    server.on(|_: &Site| Decision::Forward);
    let struck = walk.struck.lock().is_ok_and(|struck| struck.is_some());
    let mut run = Run {
        sites: sites(&history),
        snapshots,
        wrong: walk.wrong,
        notes: operator
            .exits()
            .iter()
            .map(|status| format!("the process ended: {status}"))
            .collect(),
        struck: struck || case.is_none(),
        recovery: walk.recovery,
        at_once: most_at_once(&history),
        in_calm: requests(&history) - before,
        events: events(&server),
        history,
    };
    run.judge(subject, calm);
    run
}

async fn others(subject: &'static dyn Subject, server: Server) {
    loop {
        sleep(Duration::from_secs(1)).await;
        subject.others(&server);
    }
}

fn plan(cluster: Cluster, case: Option<Case>, struck: Arc<Mutex<Option<Instant>>>) {
    let server = cluster.server.clone();
    let addresses = Mutex::new(Addresses::default());
    server.on(move |here: &Site| {
        let Some(address) = addresses
            .lock()
            .ok()
            .map(|mut addresses| addresses.of(here))
        else {
            return Decision::Forward;
        };
        if let Some(decision) = cluster.during_outage(here) {
            return decision;
        }
        match &case {
            Some(case) if case.site == address => {
                if let Ok(mut struck) = struck.lock() {
                    *struck = Some(Instant::now());
                }
                cluster.decide(case.fault, here)
            }
            _ => Decision::Forward,
        }
    });
}

/// The sites by which faults are placed. The names of Events contain the time.
#[derive(Default)]
struct Addresses {
    reached: BTreeMap<Site, u32>,
}

impl Addresses {
    fn of(&mut self, site: &Site) -> Site {
        if site.resource != "events" {
            return site.clone();
        }
        let mut address = Site {
            name: "*".to_owned(),
            nth: 0,
            ..site.clone()
        };
        let reached = self.reached.entry(address.clone()).or_default();
        address.nth = *reached;
        *reached += 1;
        address
    }
}

/// The addresses of the requests of the first operator.
fn sites(history: &History) -> Vec<Site> {
    let mut addresses = Addresses::default();
    let requests = history.requests.iter();
    let sites = requests.map(|request| addresses.of(&request.site));
    sites.filter(|site| site.user == FIRST).collect()
}

/// A run on its way through the stages.
struct Walk<'a> {
    subject: &'static dyn Subject,
    server: &'a Server,
    struck: Arc<Mutex<Option<Instant>>>,
    case: Option<&'a Case>,
    wrong: Vec<String>,
    recovery: Duration,
}

impl Walk<'_> {
    async fn stages(&mut self, calm: Option<&Run>) -> Vec<Snapshot> {
        let mut snapshots = Vec::new();
        // The program's start is a part of the first stage: its first requests meet what is there.
        let stages = self.subject.stages();
        for (index, stage) in stages.iter().enumerate() {
            (stage.act)(self.server);
            let least = Duration::from_secs(stage.seconds);
            let expected = calm.map(|calm| &calm.snapshots[index]);
            match expected.filter(|_| index + 1 == stages.len() || self.keeps_the_end()) {
                None => sleep(least).await,
                Some(expected) => {
                    if let Err(difference) = self.reach(expected, least).await {
                        self.wrong
                            .push(format!("stage {}: {difference}", stage.name));
                    }
                }
            }
            snapshots.push(snapshot(self.subject, self.server));
        }
        snapshots
    }

    /// Whether the fault leaves the object as the scenario wants it.
    fn keeps_the_end(&self) -> bool {
        self.case.is_none_or(|case| {
            let removes = matches!(
                case.fault,
                Fault::DeleteBefore | Fault::DeleteHalfDone | Fault::RecreateBefore
            );
            !(removes && target(self.subject, &case.site).0 == self.subject.object().0)
        })
    }

    async fn reach(&mut self, expected: &Snapshot, least: Duration) -> Result<(), String> {
        let start = Instant::now();
        let mut since: Option<Instant> = None;
        loop {
            let found = snapshot(self.subject, self.server);
            let now = Instant::now();
            let struck = self.struck.lock().ok().and_then(|struck| *struck);
            since = (found == *expected).then(|| since.unwrap_or(now));
            let over = self
                .case
                .zip(struck)
                .map(|(case, struck)| struck + effects(case.fault));
            if let Some(since) = since {
                let from = over.unwrap_or(since).max(since);
                if now >= from + HOLD && now >= start + least {
                    if let Some(struck) = struck.filter(|struck| *struck >= start) {
                        self.recovery = self.recovery.max(since.saturating_duration_since(struck));
                    }
                    return Ok(());
                }
            } else if now > over.unwrap_or(start).max(start) + LONGEST {
                return Err(differences(expected, &found));
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}

fn differences(expected: &Snapshot, found: &Snapshot) -> String {
    let mut lines = Vec::new();
    for key in expected
        .keys()
        .chain(found.keys().filter(|key| !expected.contains_key(*key)))
    {
        let (wanted, got) = (expected.get(key), found.get(key));
        if wanted != got {
            let text = |value: Option<&Value>| {
                value.map_or_else(|| "nothing".to_owned(), Value::to_string)
            };
            lines.push(format!(
                "{key} is {} instead of {}",
                text(got),
                text(wanted)
            ));
        }
    }
    lines.join("; ")
}

/// The objects, Events and those of the cluster apart.
fn snapshot(subject: &dyn Subject, server: &Server) -> Snapshot {
    let mut found = Snapshot::new();
    for version in &server.history().versions {
        if ["events", "namespaces"].contains(&version.resource.as_str()) {
            continue;
        }
        let key = format!(
            "{} {}/{}",
            version.resource, version.namespace, version.name
        );
        if version.kind == ChangeKind::Deleted {
            found.remove(&key);
            continue;
        }
        let mut object = version.object().clone();
        let metadata = object["metadata"].take();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let owners: Vec<Value> = owners
            .map(|owner| json!([owner["kind"], owner["name"]]))
            .collect();
        object["metadata"] = json!({"labels": metadata["labels"], "finalizers": metadata["finalizers"],
            "owners": owners, "deleted": metadata["deletionTimestamp"].is_string()});
        subject.trim(&mut object);
        found.insert(key, object);
    }
    found
}

/// How often each Event was published.
fn events(server: &Server) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    let direct = server.direct();
    for event in [
        direct.list("events.events.k8s.io", ""),
        direct.list("Event.", ""),
    ]
    .into_iter()
    .flatten()
    {
        let reason = event["reason"].as_str().unwrap_or_default().to_owned();
        let count = event["series"]["count"]
            .as_i64()
            .or(event["count"].as_i64());
        *found.entry(reason).or_default() += count.unwrap_or(1);
    }
    found
}

fn requests(history: &History) -> usize {
    history
        .requests
        .iter()
        .filter(|r| r.site.verb != Verb::Watch)
        .count()
}

/// The most requests within ten seconds.
fn most_at_once(history: &History) -> usize {
    let times: Vec<Duration> = history.requests.iter().map(|r| r.elapsed).collect();
    let within = |from: usize| {
        times[from..]
            .iter()
            .take_while(|t| **t < times[from] + Duration::from_secs(10))
            .count()
    };
    (0..times.len()).map(within).max().unwrap_or_default()
}

impl Run {
    fn judge(&mut self, subject: &dyn Subject, calm: Option<&Self>) {
        self.wrong.extend(subject.judge(&self.history));
        let (plural, name) = subject.object();
        let versions = &self.history.versions;
        let is_ours = |v: &&simulated_apiserver::Version| v.resource == plural && v.name == name;
        if let Some(gone) = versions
            .iter()
            .filter(is_ours)
            .next_back()
            .filter(|v| v.kind == ChangeKind::Deleted)
        {
            let late = versions
                .iter()
                .filter(|v| v.version > gone.version && v.by.starts_with("operator-"));
            let late = late.filter(|v| {
                v.kind != ChangeKind::Deleted && v.resource != "events" && v.resource != plural
            });
            self.wrong.extend(
                late.map(|v| format!("{} {} was written after the deletion", v.resource, v.name)),
            );
        }
        let Some(calm) = calm else { return };
        if self.at_once > calm.at_once + MORE_AT_ONCE {
            self.wrong.push(format!(
                "{} requests in ten seconds instead of {}",
                self.at_once, calm.at_once
            ));
        }
        if self.in_calm > calm.in_calm + MORE_IN_CALM {
            self.wrong.push(format!(
                "{} requests in the calm instead of {}",
                self.in_calm, calm.in_calm
            ));
        }
        for reason in calm.events.keys().chain(
            self.events
                .keys()
                .filter(|key| !calm.events.contains_key(*key)),
        ) {
            let count = |run: &Self| run.events.get(reason).copied().unwrap_or_default();
            if count(self) != count(calm) {
                self.notes.push(format!(
                    "Event {reason}: {} instead of {}",
                    count(self),
                    count(calm)
                ));
            }
        }
    }

    /// In one line.
    pub fn summary(&self) -> String {
        let Self {
            at_once,
            in_calm,
            events,
            ..
        } = self;
        format!(
            "{} requests, {at_once} within ten seconds, {in_calm} in the calm; Events {events:?}",
            self.sites.len()
        )
    }
}
