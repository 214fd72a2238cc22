//! The sweep: every fault at every call of an operator, one per run, on a simulated cluster and virtual time.
//!
//! Each scenario runs once undisturbed, which shows its sites: the requests of the operator. Then it runs once for each
//! site and fault. Every history is judged by the promises of the kind, and its end is that of the undisturbed run.
//! docs/reliability.md has the figures, and how to replay a failure.

mod at;
mod cluster;
mod faults;
mod judge;
mod mutants;
mod policy;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use at::{SCENARIOS, Scenario};
use faults::Fault;
use my_operator_rounds::{lengths, parallel_cases};
use run::{Disturbance, Run, run};
use simulated_apiserver::{Site, Verb};

/// The reasons that the sweep must have led to at least once: the rare branches of the protocol.
const RARE: &[&str] = &[
    "Committed",
    "DeadlineExceeded",
    "DeleteRefused",
    "Evicted",
    "GateViolated",
    "Invalid",
    "NameConflict",
    "NeverStarted",
    "PodAltered",
    "PodLost",
    "PodRefused",
    "PodTerminating",
    "ReleaseRefused",
    "StartingDeadlineExceeded",
    "Suspended",
    "Unschedulable",
];

/// What a sweep of a scenario found.
#[derive(Default)]
struct Figures {
    sites: usize,
    runs: usize,
    reasons: BTreeSet<String>,
    failures: Vec<String>,
}

/// A read that is repeated as long as the run goes on: the first three stand for all.
fn is_repeated(site: &Site) -> bool {
    matches!(site.verb, Verb::Get | Verb::List | Verb::Watch) && site.nth > 2
}

/// The name under which a disturbed run is replayed.
fn name(scenario: &Scenario, site: &Site, fault: Fault) -> String {
    format!("{} / {site} / {fault}", scenario.name)
}

/// Every fault at every site of a scenario, or those alone whose name contains a text.
fn sweep(scenario: &Scenario, only: Option<&str>) -> Figures {
    let calm = run(scenario, &Disturbance::None, None);
    let sites: Vec<&Site> = calm
        .sites
        .iter()
        .filter(|site| !is_repeated(site))
        .collect();
    let mut figures = Figures {
        sites: sites.len(),
        reasons: judge::reasons(&calm.history),
        failures: calm.broken.clone(),
        ..Figures::default()
    };
    for site in sites {
        for &fault in Fault::ALL.iter().filter(|fault| fault.applies(site)) {
            let name = name(scenario, site, fault);
            if only.is_some_and(|only| !name.contains(only)) {
                continue;
            }
            let disturbed = run(scenario, &Disturbance::One(site.clone(), fault), None);
            figures.runs += 1;
            figures.reasons.extend(judge::reasons(&disturbed.history));
            let mut wrong = disturbed.faults(&calm, scenario);
            if disturbed.befell.is_empty() {
                wrong.push("the fault befell no call".to_owned());
            }
            if !wrong.is_empty() {
                let file = disturbed.save(&name);
                let wrong = wrong.join("\n");
                figures
                    .failures
                    .push(format!("{name}\n{wrong}\nThe history is in {file}"));
            }
        }
    }
    figures
}

/// Does something with each, on all cores.
fn each<T: Sync, R: Send>(all: &'static [T], act: impl Fn(&'static T) -> R + Sync) -> Vec<R> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = act(one);
                    found
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(result);
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// The undisturbed run of each scenario.
fn undisturbed() -> BTreeMap<&'static str, Run> {
    let runs = each(SCENARIOS, |scenario| {
        (scenario.name, run(scenario, &Disturbance::None, None))
    });
    runs.into_iter().collect()
}

/// `REPLAY=<part of a name>` runs a part alone.
#[test]
fn an_at_stays_true_whatever_fails_at_whichever_call() {
    let start = Instant::now();
    let only = std::env::var("REPLAY").ok();
    let found = each(SCENARIOS, |scenario| {
        (scenario.name, sweep(scenario, only.as_deref()))
    });
    let found: BTreeMap<_, _> = found.into_iter().collect();
    let sum = |of: fn(&Figures) -> usize| found.values().map(of).sum::<usize>();
    let failures: Vec<&String> = found
        .values()
        .flat_map(|figures| &figures.failures)
        .collect();
    for (name, figures) in &found {
        println!(
            "{name:34} {:3} sites {:4} runs {:3} failures",
            figures.sites,
            figures.runs,
            figures.failures.len()
        );
    }
    println!(
        "{} scenarios, {} sites, {} faults, {} runs in {:.1?}",
        found.len(),
        sum(|figures| figures.sites),
        Fault::ALL.len(),
        sum(|figures| figures.runs),
        start.elapsed()
    );
    let shown: Vec<&str> = failures
        .iter()
        .take(20)
        .map(|failure| failure.as_str())
        .collect();
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        shown.join("\n\n")
    );
    if only.is_none() {
        let reached: BTreeSet<&str> = found
            .values()
            .flat_map(|f| &f.reasons)
            .map(String::as_str)
            .collect();
        let missed: Vec<_> = RARE
            .iter()
            .filter(|reason| !reached.contains(*reason))
            .collect();
        assert!(
            missed.is_empty(),
            "no run led to {missed:?}; reached: {reached:?}"
        );
    }
}

/// Several faults in one run, at random.
#[test]
fn an_at_stays_true_under_faults_at_random() {
    let calm = undisturbed();
    parallel_cases(lengths::random_faults(), |seed| {
        let scenario = &SCENARIOS[usize::try_from(seed % SCENARIOS.len() as u64).unwrap()];
        let disturbed = run(scenario, &Disturbance::Random(seed), None);
        let wrong = disturbed.faults(&calm[scenario.name], scenario);
        if !wrong.is_empty() {
            let file = disturbed.save(&format!("random {seed}"));
            let befell = disturbed.befell.join("\n");
            panic!(
                "{} with\n{befell}\n{}\nThe history is in {file}",
                scenario.name,
                wrong.join("\n")
            );
        }
    });
}

/// An operator or a server with a fault of its own is caught, or the sweep would prove nothing.
#[test]
fn every_mutant_is_caught() {
    let calm = undisturbed();
    let caught = each(mutants::ALL, |mutant| {
        let caught = SCENARIOS
            .iter()
            .find_map(|scenario| mutant.is_caught_by(scenario, &calm[scenario.name]));
        (mutant.name, caught)
    });
    for (mutant, by) in caught {
        println!("{mutant:50} {}", by.as_deref().unwrap_or("NOT CAUGHT"));
        assert!(by.is_some(), "no run catches the mutant: {mutant}");
    }
}
