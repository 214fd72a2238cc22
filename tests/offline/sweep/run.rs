//! One run of a scenario, and what is wrong with it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use simulated_apiserver::{Decision, History, Site, Verb};

use super::changes;
use super::cluster::{
    Cluster, FIRST, NAMESPACE, OF_ANOTHER_SHARD, RETRY_AFTER, SECOND, on_virtual_time,
};
use super::faults::Fault;
use super::mutants::Mutant;
use super::subject::{Judged, Scenario, Seen, Special, Subject};

/// The longest run, in virtual time.
const MAX_RUN: Duration = Duration::from_mins(30);
/// How many requests more than without a fault, watches apart, may be made.
const MORE_REQUESTS: usize = 40;
/// The longest pause after a failure.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// After so many requests none is answered any more.
const MAX_REQUESTS: usize = 3_000;
/// One request of the operator in so many meets a fault in a run with faults at random, but not more faults than that.
const RANDOM_ONE_IN: u64 = 8;
const RANDOM_AT_MOST: usize = 4;

/// What goes wrong in a run.
pub enum Disturbance {
    None,
    One(Site, Fault),
    /// Several faults, by a seed.
    Random(u64),
}

/// What a run came to.
pub struct Run {
    pub history: History,
    /// The requests of the first operator.
    pub sites: Vec<Site>,
    /// The faults that befell it.
    pub befell: Vec<String>,
    faults: Vec<Fault>,
    /// When its processes started, in virtual time.
    starts: Vec<Duration>,
    /// The scenario ends as without them.
    keeps_the_end: bool,
    /// When the last of them did, in virtual time.
    last_fault: Duration,
    /// What the judge of the kind says.
    pub judged: Judged,
    pods_made: usize,
    /// A request of the first operator failed.
    failed: bool,
    /// How long they may delay it.
    recovery: Duration,
    /// How many requests the operators made, watches apart.
    requests: usize,
    /// The object was where the scenario leads to at the end.
    settled: bool,
    /// When the last act of the scenario was, in virtual time.
    acted: Duration,
    /// When the last change was, in virtual time; those of nodes and Events apart.
    took: Duration,
}

/// Runs a scenario of a kind.
pub fn run(
    subject: &'static dyn Subject,
    scenario: &Scenario,
    disturbance: &Disturbance,
    mutant: Option<&'static Mutant>,
) -> Run {
    on_virtual_time(async {
        let cluster = Cluster::new(subject, mutant);
        let befell = plan(subject, scenario.special, &cluster, disturbance);
        cluster.start(FIRST);
        if scenario.special == Special::TwoOperators {
            cluster.start(SECOND);
        }
        let whole = async {
            (scenario.script)(&cluster).await;
            let is_settled = |c: &Cluster| subject.is_settled(c, scenario.special);
            cluster.until(is_settled).await;
            tokio::time::sleep(subject.settle()).await;
            // Each of several faults takes its time. How long one alone may take is judged by itself.
            let late = subject.settle() * 3;
            let settled = tokio::time::timeout(late, cluster.until(is_settled)).await;
            settled.is_ok() && is_settled(&cluster)
        };
        // A run that does not end in time is judged by what is there.
        let settled = tokio::time::timeout(MAX_RUN, whole).await;
        let (history, starts) = (cluster.server.history(), cluster.starts());
        let figures = cluster.figures();
        let end = cluster.server.clock().elapsed();
        cluster.end();
        // The plan holds the cluster, and with it the server that holds the plan.
        cluster.server.on(|_: &Site| Decision::Forward);
        let befell = std::mem::take(&mut *befell.lock());
        // What is not settled may change while the metrics are read, and a process that started late may still be waiting
        // for its first list.
        let is_over = |blow: &Blow| blow.elapsed + blow.fault.recovery(&blow.site) <= end;
        let is_read = matches!(settled, Ok(true)) && befell.iter().all(is_over);
        let figures = figures.filter(|_| is_read);
        Run {
            settled: settled.unwrap_or(false),
            ..Run::new(
                subject,
                scenario,
                history,
                &befell,
                &starts,
                figures.as_deref(),
            )
        }
    })
}

/// A fault that befell a request, and when.
struct Blow {
    fault: Fault,
    site: Site,
    elapsed: Duration,
}

type Befell = Arc<Mutex<Vec<Blow>>>;

/// What a fault makes of a call; `None` if it befalls none.
type Decide = dyn Fn(&Site) -> Option<Decision> + Send + Sync;

fn plan(
    subject: &'static dyn Subject,
    special: Special,
    cluster: &Cluster,
    disturbance: &Disturbance,
) -> Befell {
    let befell = Befell::default();
    let note = {
        let (befell, cluster) = (befell.clone(), cluster.clone());
        move |fault: Fault, site: &Site| {
            let mut befell = befell.lock();
            befell.push(Blow {
                fault,
                site: site.clone(),
                elapsed: cluster.server.clock().elapsed(),
            });
            drop(befell);
            cluster.decide(fault, site)
        }
    };
    let decide: Box<Decide> = match disturbance {
        Disturbance::None => Box::new(|_: &Site| None),
        Disturbance::One(site, fault) => {
            let (site, fault) = (site.clone(), *fault);
            Box::new(move |here: &Site| (*here == site).then(|| note(fault, here)))
        }
        Disturbance::Random(seed) => {
            let random = Mutex::new((fastrand::Rng::with_seed(*seed), 0));
            let during = cluster.clone();
            let faults = subject.faults();
            Box::new(move |here: &Site| {
                let mut random = random.lock();
                let (random, many) = &mut *random;
                if here.user != FIRST || *many == RANDOM_AT_MOST || random.u64(..RANDOM_ONE_IN) > 0
                {
                    return None;
                }
                let fault = faults[random.usize(..faults.len())];
                // A replica that has taken over may work beside one that was started again.
                let two = during.starts().iter().any(|(name, _)| *name == SECOND);
                let special = if two { Special::TwoOperators } else { special };
                if !fault.applies(here) || !subject.applies(fault, here, special) {
                    return None;
                }
                *many += 1;
                Some(note(fault, here))
            })
        }
    };
    let requests = AtomicUsize::new(0);
    let during = cluster.clone();
    cluster.server.on(move |here: &Site| {
        // Without an end to it, a hot loop would stop the clock.
        match requests.fetch_add(1, Ordering::Relaxed) {
            MAX_REQUESTS.. => Decision::Silent,
            _ => (during.during_outage(here))
                .or_else(|| decide(here))
                .unwrap_or_else(|| during.without_fault(here)),
        }
    });
    befell
}

impl Run {
    fn new(
        subject: &dyn Subject,
        scenario: &Scenario,
        history: History,
        befell: &[Blow],
        starts: &[(&'static str, Duration)],
        figures: Option<&str>,
    ) -> Self {
        let faults: Vec<Fault> = befell.iter().map(|blow| blow.fault).collect();
        let sites = history.requests.iter().map(|request| &request.site);
        let struck: Vec<&Site> = befell.iter().map(|blow| &blow.site).collect();
        let requests = sites
            .clone()
            .filter(|site| site.verb != Verb::Watch)
            .count();
        let sites = sites.filter(|site| site.user == FIRST).cloned().collect();
        let versions = history.versions.iter();
        let changes =
            versions.filter(|v| !["events", "nodes", "namespaces"].contains(&v.resource.as_str()));
        let seen = Seen {
            history: &history,
            faults: &faults,
            sites: &struck,
            special: scenario.special,
            starts,
            figures,
        };
        Self {
            judged: subject.judge(&seen),
            starts: starts
                .iter()
                .filter(|(name, _)| *name == FIRST)
                .map(|(_, start)| *start)
                .collect(),
            pods_made: changes::made(&history, "pods"),
            keeps_the_end: befell
                .iter()
                .all(|blow| subject.keeps_the_end(blow.fault, &blow.site)),
            failed: history
                .requests
                .iter()
                .any(|r| r.site.user == FIRST && r.code.is_some_and(|code| code >= 400)),
            sites,
            befell: befell
                .iter()
                .map(|blow| format!("{} / {}", blow.site, blow.fault))
                .collect(),
            recovery: befell
                .iter()
                .map(|blow| blow.fault.recovery(&blow.site))
                .sum(),
            last_fault: befell.last().map(|blow| blow.elapsed).unwrap_or_default(),
            faults,
            requests,
            settled: false,
            acted: history
                .versions
                .iter()
                .rfind(|version| version.by == "kubectl")
                .map(|version| version.elapsed)
                .unwrap_or_default(),
            took: changes
                .map(|version| version.elapsed)
                .max()
                .unwrap_or_default(),
            history,
        }
    }

    /// What is wrong with this run by itself.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = self.judged.broken.clone();
        if self.keeps_the_end && !self.settled && !self.judged.end_may_differ {
            broken.push("the object did not get to where the scenario leads".to_owned());
        }
        let strays = self.history.requests.iter().filter(|request| {
            let site = &request.site;
            site.user == OF_ANOTHER_SHARD && site.namespace == NAMESPACE
        });
        broken.extend(
            strays
                .map(|stray| format!("not of that shard: {}", stray.site))
                .take(1),
        );
        broken
    }

    /// What is wrong with this run of a scenario, beside the undisturbed one.
    pub fn faults(&self, calm: &Self, subject: &dyn Subject, scenario: &Scenario) -> Vec<String> {
        let mut wrong = self.broken();
        let (expected, found) = (&calm.judged.outcome, &self.judged.outcome);
        if self.keeps_the_end && expected != found && !self.judged.end_may_differ {
            wrong.push(format!(
                "the end differs\n--- undisturbed\n{expected}\n--- disturbed\n{found}"
            ));
        }
        let (expected, made) = (calm.pods_made, self.pods_made);
        let many = self.faults.len().max(1);
        if made > expected + many * subject.wasted_pods() {
            wrong.push(format!("{made} pods were made instead of {expected}"));
        }
        // What is in the way for ever is tried again for ever.
        let end = |run: &Self| run.history.requests.last().map(|request| request.elapsed);
        let longer = end(self).unwrap_or_default();
        let longer = longer.saturating_sub(end(calm).unwrap_or_default());
        let longer = longer.as_secs() / 3;
        let longer = usize::try_from(longer).unwrap_or_default();
        let longer = if self.keeps_the_end { 0 } else { longer };
        // Each wasted pod costs a request.
        let more = many * (MORE_REQUESTS + subject.wasted_pods());
        if self.requests > calm.requests + more + longer {
            wrong.push(format!(
                "{} requests instead of {}",
                self.requests, calm.requests
            ));
        }
        // After failures that the scenario itself brings, the next pause may be the longest.
        let pause = if calm.failed {
            MAX_PAUSE
        } else {
            Duration::ZERO
        };
        let begun = calm.took.max(calm.acted).max(self.last_fault);
        let latest = begun + self.recovery + self.judged.patience + pause;
        if self.keeps_the_end && !self.judged.end_may_differ && self.took > latest {
            wrong.push(format!(
                "it took {:.1?} instead of {:.1?}",
                self.took, calm.took
            ));
        }
        // With several faults, the news that ends a pause may be old, and a new process knows of no pause.
        if scenario.special != Special::ClockIsSet && self.faults.len() == 1 {
            let several = scenario.special == Special::Neighbours;
            wrong.extend(self.impatience(subject.object().0, several));
        }
        wrong
    }

    /// Requests that came before the pause was over that the API server had asked for. A changed spec ends the pause of its
    /// object when the operator is sent it, and so does a clock that is set back. A new process knows of no pause.
    ///
    /// Where there are `several` objects, each has a pause of its own.
    fn impatience(&self, plural: &str, several: bool) -> Vec<String> {
        let requests = &self.history.requests;
        let asked = requests
            .iter()
            .filter(|r| matches!(r.code, Some(429 | 503)) && r.site.user == FIRST);
        let early = asked.flat_map(|asked| {
            let after = requests
                .iter()
                .filter(|r| r.elapsed > asked.elapsed && r.site.user == FIRST);
            let object = |site: &Site| site.name.split('-').next().map(str::to_owned);
            let early = after.filter(move |r| {
                r.elapsed < asked.elapsed + RETRY_AFTER
                    && is_a_retry(&asked.site, &r.site)
                    && (!several || object(&asked.site) == object(&r.site))
            });
            let edits = self
                .history
                .versions
                .iter()
                .filter(|v| v.resource == plural && !changes::is_operator(&v.by));
            let deliveries = &self.history.deliveries;
            let seen = |version: u64| {
                deliveries
                    .iter()
                    .find(|d| *d.user == *FIRST && *d.resource == *plural && d.version >= version)
            };
            let edits = edits.filter_map(|edit| Some(seen(edit.version)?.elapsed));
            let edits: Vec<Duration> = edits.collect();
            let early = early.filter(move |r| {
                !edits
                    .iter()
                    .chain(&self.starts)
                    .any(|edit| (asked.elapsed..=r.elapsed).contains(edit))
            });
            early.map(|r| {
                format!(
                    "{} came {:.1?} after {}",
                    r.site,
                    r.elapsed.saturating_sub(asked.elapsed),
                    asked.site
                )
            })
        });
        early.take(1).collect()
    }

    /// Writes the history to a file, and says where.
    pub fn save(&self, name: &str) -> String {
        write(&format!("{name}.jsonl"), |to| self.history.write(to))
    }
}

/// Writes a file for the reader of a failure, and says where it is.
pub fn write(name: &str, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let (name, extension) = name.rsplit_once('.').unwrap_or((name, "txt"));
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sweep");
    let file = folder.join(format!("{name}.{extension}"));
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::File::create(&file))
        .and_then(|to| content(&mut io::BufWriter::new(to)));
    match written {
        Ok(()) => file.display().to_string(),
        Err(error) => format!("no file: {error}"),
    }
}

/// Whether a request does the same again: each write and read on the object and what it owns is a part of one reconcile, and
/// lists, watches and Events have pauses of their own.
fn is_a_retry(failed: &Site, site: &Site) -> bool {
    let kind = |site: &Site| match (site.verb, site.resource.as_str()) {
        (Verb::List | Verb::Watch, resource) => resource.to_owned(),
        (_, "events") => "events".to_owned(),
        _ => "reconcile".to_owned(),
    };
    kind(failed) == kind(site) && failed.namespace == site.namespace
}
