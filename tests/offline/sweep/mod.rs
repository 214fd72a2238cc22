//! The sweep: every fault at every call of an operator, one per run, on a simulated cluster and virtual time.
//!
//! Each scenario of a kind ([`subject`]) runs once undisturbed, which shows its sites: the requests of the operator. Then it
//! runs once for each site and fault, or in the ordinary length for a sample of them. Every history is judged by the
//! promises of the kind, and its end is that of the undisturbed run. docs/reliability.md has the figures, and how to replay a
//! failure.

mod at;
mod changes;
mod cluster;
mod count;
mod faults;
mod mutants;
mod owned;
mod patience;
mod policy;
mod run;
mod subject;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use faults::Fault;
use my_operator_rounds::{lengths, parallel_cases, seed};
use run::{Disturbance, Run, run};
use simulated_apiserver::{Site, Verb};
use subject::{Scenario, Subject};

/// A fault at a site of a scenario.
struct Case<'a> {
    scenario: &'static Scenario,
    site: &'a Site,
    fault: Fault,
}

impl Case<'_> {
    /// The name under which it is replayed.
    fn name(&self) -> String {
        format!("{} / {} / {}", self.scenario.name, self.site, self.fault)
    }

    /// Whether it is always a part of the sample: an unknown outcome of the first creation and the first deletion of a
    /// scenario.
    fn always_runs(&self) -> bool {
        let is_first = matches!(self.site.verb, Verb::Create | Verb::Delete) && self.site.nth == 0;
        is_first && self.site.resource != "events" && self.fault.hides_what_was_done()
    }
}

/// What the runs of a scenario found.
#[derive(Default)]
struct Figures {
    sites: usize,
    runs: usize,
    marks: BTreeSet<String>,
    failures: Vec<String>,
}

/// A read that is repeated as long as the run goes on: the first three stand for all.
fn is_repeated(site: &Site) -> bool {
    matches!(site.verb, Verb::Get | Verb::List | Verb::Watch) && site.nth > 2
}

/// Does something with each, on all cores.
fn each<'a, T: Sync, R: Send>(all: &'a [T], act: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
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
fn undisturbed(subject: &'static dyn Subject) -> BTreeMap<&'static str, Run> {
    let runs = each(subject.scenarios(), |scenario| {
        let calm = run(subject, scenario, &Disturbance::None, None);
        (scenario.name, calm)
    });
    runs.into_iter().collect()
}

/// Every fault at every site of every scenario.
fn cases<'a>(
    subject: &'static dyn Subject,
    calm: &'a BTreeMap<&'static str, Run>,
) -> Vec<Case<'a>> {
    let faults = subject.faults();
    let scenarios = subject.scenarios().iter();
    let sites = scenarios.flat_map(|scenario| {
        let sites = calm[scenario.name].sites.iter();
        let sites = sites.filter(|site| !is_repeated(site));
        sites.map(move |site| (scenario, site))
    });
    let cases = sites.flat_map(|(scenario, site)| {
        let applicable = faults.iter().filter(|fault| fault.applies(site));
        applicable.map(move |&fault| Case {
            scenario,
            site,
            fault,
        })
    });
    cases.collect()
}

/// So many of the cases, at random, and those that always run.
fn sample(mut cases: Vec<Case<'_>>) -> Vec<Case<'_>> {
    let size = lengths::swept_faults();
    if size < cases.len() {
        fastrand::Rng::with_seed(seed("this sample of faults")).shuffle(&mut cases);
        // A stable sort keeps the random order of the others.
        cases.sort_by_key(|case| !case.always_runs());
        let always = cases.iter().filter(|case| case.always_runs()).count();
        cases.truncate(size.max(always));
    }
    cases
}

/// What is wrong with a disturbed run.
fn failure(
    subject: &'static dyn Subject,
    case: &Case<'_>,
    calm: &Run,
    disturbed: &Run,
) -> Option<String> {
    let mut wrong = disturbed.faults(calm, subject, case.scenario);
    if disturbed.befell.is_empty() {
        wrong.push("the fault befell no call".to_owned());
    }
    if wrong.is_empty() {
        return None;
    }
    let (name, wrong) = (case.name(), wrong.join("\n"));
    let file = disturbed.save(&format!("{} {name}", subject.kind()));
    Some(format!("{name}\n{wrong}\nThe history is in {file}"))
}

/// A fault at a call in each run: all of them, or a sample. `REPLAY=<part of a name>` runs a part alone.
fn every_fault(subject: &'static dyn Subject) {
    let start = Instant::now();
    let calm = undisturbed(subject);
    let cases = cases(subject, &calm);
    let all = cases.len();
    let only = std::env::var("REPLAY").ok();
    let cases = match &only {
        Some(only) => {
            let chosen = cases
                .into_iter()
                .filter(|case| case.name().contains(only.as_str()));
            chosen.collect()
        }
        None => sample(cases),
    };
    let mut found: BTreeMap<&str, Figures> = BTreeMap::new();
    for (name, calm) in &calm {
        let sites = calm.sites.iter().filter(|site| !is_repeated(site));
        let broken = calm.judged.broken.iter();
        let mut failures: Vec<String> = broken.map(|what| format!("{name}\n{what}")).collect();
        if let Some(last) = failures.last_mut() {
            let file = calm.save(&format!("{} {name}", subject.kind()));
            *last = format!("{last}\nThe history is in {file}");
        }
        let figures = Figures {
            sites: sites.count(),
            marks: calm.judged.marks.clone(),
            failures,
            ..Figures::default()
        };
        found.insert(name, figures);
    }
    let runs = each(&cases, |case| {
        let disturbance = Disturbance::One(case.site.clone(), case.fault);
        let disturbed = run(subject, case.scenario, &disturbance, None);
        let failure = failure(subject, case, &calm[case.scenario.name], &disturbed);
        (case.scenario.name, disturbed.judged.marks, failure)
    });
    for (scenario, marks, failure) in runs {
        let figures = found.entry(scenario).or_default();
        figures.runs += 1;
        figures.marks.extend(marks);
        figures.failures.extend(failure);
    }
    for (name, figures) in &found {
        println!(
            "{name:34} {:3} sites {:4} runs {:3} failures",
            figures.sites,
            figures.runs,
            figures.failures.len()
        );
    }
    println!(
        "{}: {} scenarios, {} sites, {} faults, {} of {all} runs in {:.1?}",
        subject.kind(),
        found.len(),
        found.values().map(|figures| figures.sites).sum::<usize>(),
        subject.faults().len(),
        cases.len(),
        start.elapsed()
    );
    let failures = found.values().flat_map(|figures| &figures.failures);
    let failures: Vec<&str> = failures.map(String::as_str).collect();
    let shown: Vec<&str> = failures.iter().take(20).copied().collect();
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        shown.join("\n\n")
    );
    if only.is_none() {
        let reached = found.values().flat_map(|figures| &figures.marks);
        let reached: BTreeSet<&str> = reached.map(String::as_str).collect();
        let rare = subject.rare().iter();
        let missed: Vec<_> = rare.filter(|mark| !reached.contains(*mark)).collect();
        assert!(
            missed.is_empty(),
            "no run led to {missed:?}; reached: {reached:?}"
        );
    }
}

/// Several faults in one run, at random.
fn faults_at_random(subject: &'static dyn Subject) {
    let calm = undisturbed(subject);
    let scenarios = subject.scenarios();
    parallel_cases(subject.random_runs(), |seed| {
        let scenario = &scenarios[usize::try_from(seed % scenarios.len() as u64).unwrap()];
        let disturbed = run(subject, scenario, &Disturbance::Random(seed), None);
        let wrong = disturbed.faults(&calm[scenario.name], subject, scenario);
        if !wrong.is_empty() {
            let file = disturbed.save(&format!("{} random {seed}", subject.kind()));
            let befell = disturbed.befell.join("\n");
            panic!(
                "{} with\n{befell}\n{}\nThe history is in {file}",
                scenario.name,
                wrong.join("\n")
            );
        }
    });
}

/// An operator or a server with a bug is caught, or the sweep would prove nothing.
fn every_mutant_is_caught(subject: &'static dyn Subject) {
    let calm = undisturbed(subject);
    let caught = each(subject.mutants(), |mutant| {
        let caught = subject
            .scenarios()
            .iter()
            .find_map(|scenario| mutant.is_caught_by(subject, scenario, &calm[scenario.name]));
        (mutant.name, caught)
    });
    for (mutant, by) in &caught {
        println!("{mutant:50} {}", by.as_deref().unwrap_or("NOT CAUGHT"));
    }
    let missed: Vec<_> = caught.iter().filter(|(_, by)| by.is_none()).collect();
    assert!(
        missed.is_empty(),
        "no run catches these mutants: {missed:?}"
    );
}
