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
mod mydaemonset;
mod owned;
mod patience;
mod policy;
mod run;
mod subject;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use faults::Fault;
use mutants::Mutant;
use my_operator_rounds::{lengths, parallel_cases, seed};
use parking_lot::Mutex;
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
                    found.lock().push(result);
                }
            });
        }
    });
    found.into_inner()
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
        let applicable = faults.iter().filter(|fault| {
            fault.applies(site) && subject.applies(**fault, site, scenario.special)
        });
        applicable.map(move |&fault| Case {
            scenario,
            site,
            fault,
        })
    });
    cases.collect()
}

/// Puts the cases into a random order. First come those that always run, and how many they are: of each scenario a creation
/// and a deletion of a pod whose outcome is unknown, with each such fault.
fn shuffle(cases: &mut [Case<'_>]) -> usize {
    fastrand::Rng::with_seed(seed("this order of faults")).shuffle(cases);
    let mut classes = BTreeSet::new();
    let mut always = 0;
    for place in 0..cases.len() {
        let case = &cases[place];
        let matters = matches!(case.site.verb, Verb::Create | Verb::Delete)
            && case.site.resource == "pods"
            && case.fault.hides_what_was_done();
        let class = (case.scenario.name, case.site.verb, case.fault.to_string());
        if matters && classes.insert(class) {
            cases.swap(place, always);
            always += 1;
        }
    }
    always
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
    let mut cases = cases(subject, &calm);
    let all = cases.len();
    let only = std::env::var("REPLAY").ok();
    let always = if let Some(only) = &only {
        cases.retain(|case| case.name().contains(only.as_str()));
        cases.len()
    } else {
        shuffle(&mut cases)
    };
    let taken = AtomicUsize::new(0);
    let spending = Mutex::new(subject.runs().start());
    let goes_on = || {
        let mut spending = spending.lock();
        spending.another() || taken.load(Ordering::Relaxed) < always
    };
    let mut found: BTreeMap<&str, Figures> = BTreeMap::new();
    for (name, calm) in &calm {
        let sites = calm.sites.iter().filter(|site| !is_repeated(site));
        let broken = calm.broken().into_iter();
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
        if !goes_on() {
            return None;
        }
        taken.fetch_add(1, Ordering::Relaxed);
        let disturbance = Disturbance::One(case.site.clone(), case.fault);
        let disturbed = run(subject, case.scenario, &disturbance, None);
        let failure = failure(subject, case, &calm[case.scenario.name], &disturbed);
        Some((case.scenario.name, disturbed.judged.marks, failure))
    });
    let runs: Vec<_> = runs.into_iter().flatten().collect();
    let done = runs.len();
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
        done,
        start.elapsed()
    );
    let failures = found.values().flat_map(|figures| &figures.failures);
    let failures: Vec<&str> = failures.map(String::as_str).collect();
    let shown: Vec<&str> = failures.iter().take(20).copied().collect();
    let all = run::write(&format!("{} failures.txt", subject.kind()), |to| {
        to.write_all(failures.join("\n\n").as_bytes())
    });
    assert!(
        failures.is_empty(),
        "{} failures, all of them in {all}:\n{}",
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

/// An operator or a server with a bug is caught, or the sweep would prove nothing. In the ordinary length, a sample of the
/// bugs.
fn every_mutant_is_caught(subject: &'static dyn Subject) {
    let calm = undisturbed(subject);
    // The connection of mutants by itself changes nothing.
    let by_itself = each(subject.scenarios(), |scenario| {
        let run = run(subject, scenario, &Disturbance::None, Some(&mutants::NONE));
        (
            scenario.name,
            run.faults(&calm[scenario.name], subject, scenario),
        )
    });
    for (scenario, faults) in by_itself {
        assert!(faults.is_empty(), "{scenario}: {}", faults.join("\n"));
    }
    let mut tried: Vec<&Mutant> = subject.mutants().iter().collect();
    fastrand::Rng::with_seed(seed("these mutants")).shuffle(&mut tried);
    tried.truncate(lengths::tried_mutants());
    let caught = each(&tried, |mutant| {
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
