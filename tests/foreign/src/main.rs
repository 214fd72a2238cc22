//! The sweep over the operator of others, as a program; README.md says how to run it.
//!
//! `list SUBJECT PROGRAM [ARGUMENT]...` runs it undisturbed, and prints the name of each pair of site and fault.
//! `run SUBJECT PROGRAM [ARGUMENT]...` reads such names, runs each, and prints what came of it.

mod cluster;
#[path = "../../offline/sweep/faults.rs"]
#[allow(dead_code, reason = "the judges of the sweep use the rest")]
mod faults;
mod listener;
mod process;
mod run;
mod subjects;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufRead as _;
use std::path::PathBuf;

use simulated_apiserver::{Site, Verb};
use tokio_rustls::TlsAcceptor;

use faults::Fault;
use process::Program;
use run::{Case, Run};
use subjects::{ALL, NAMESPACE, Subject};

struct Harness {
    subject: &'static dyn Subject,
    path: String,
    arguments: Vec<String>,
    tls: TlsAcceptor,
    folder: PathBuf,
}

impl Harness {
    /// A run with a runtime of its own, so that nothing of it is left.
    fn run(&self, name: &str, case: Option<Case>, calm: Option<&Run>) -> Run {
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let log = self.folder.join(format!("{name}.log"));
        let program = Program {
            path: self.path.clone(),
            arguments: self.arguments.clone(),
            environment: self.subject.environment(),
            log: File::create(&log).expect("the log is created"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let tls = self.tls.clone();
        let run = runtime.block_on(run::run(self.subject, program, tls, case, calm));
        let file = File::create(self.folder.join(format!("{name}.jsonl")));
        file.and_then(|file| run.history.write(file))
            .expect("the history is written");
        run
    }
}

/// A read that is repeated as long as the run goes on: the first three stand for all.
fn is_repeated(site: &Site) -> bool {
    matches!(site.verb, Verb::Get | Verb::List | Verb::Watch) && site.nth > 2
}

fn cases(subject: &dyn Subject, calm: &Run) -> Vec<Case> {
    let sites: BTreeSet<&Site> = calm
        .sites
        .iter()
        .filter(|site| !is_repeated(site))
        .collect();
    let faults = || Fault::GENERAL.iter().chain(subject.faults()).copied();
    let pairs = sites.into_iter().flat_map(|site| {
        faults().map(move |fault| Case {
            site: site.clone(),
            fault,
        })
    });
    // Our reconcilers go on when an Event fails; others may not.
    let is_of_event =
        |case: &Case| case.site.resource == "events" && !case.fault.is_a_foreign_hand();
    pairs
        .filter(|case| case.fault.applies(&case.site) || is_of_event(case))
        .collect()
}

fn main() {
    let mut words = std::env::args().skip(1);
    let usage = "usage: foreign (list|run) SUBJECT PROGRAM [ARGUMENT]...";
    let (Some(command), Some(name), Some(path)) = (words.next(), words.next(), words.next()) else {
        panic!("{usage}");
    };
    let subject = ALL.iter().find(|subject| subject.name() == name);
    let subject = *subject.unwrap_or_else(|| panic!("no such subject: {name}"));
    let folder = PathBuf::from(std::env::var_os("OUT").unwrap_or_else(|| "out".into()));
    std::fs::create_dir_all(&folder).expect("OUT is a folder");
    let tls = listener::acceptor(NAMESPACE).expect("a certificate");
    let harness = Harness {
        subject,
        path,
        arguments: words.collect(),
        tls,
        folder,
    };
    let calm = harness.run("undisturbed", None, None);
    eprintln!(
        "undisturbed: {}; wrong {:?}; {:?}",
        calm.summary(),
        calm.wrong,
        calm.notes
    );
    let cases = cases(subject, &calm);
    if command == "list" {
        cases.iter().for_each(|case| println!("{}", case.name()));
        return;
    }
    for name in std::io::stdin().lock().lines() {
        let name = name.expect("a line");
        let Some(case) = cases.iter().find(|case| case.name() == name) else {
            println!("unknown\t{name}");
            continue;
        };
        let run = harness.run(&name, Some(case.clone()), Some(&calm));
        let verdict = match (run.struck, run.wrong.is_empty()) {
            (false, _) => "unmet",
            (true, true) => "right",
            (true, false) => "wrong",
        };
        let text: Vec<String> = run.wrong.iter().chain(&run.notes).cloned().collect();
        println!(
            "{verdict}\t{name}\t{:.1}\t{}",
            run.recovery.as_secs_f64(),
            text.join(" | ")
        );
    }
}
