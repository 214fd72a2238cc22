//! A leader that is stopped for longer than its lease, and goes on.

use std::time::{Duration, Instant};

use chrono::Utc;
use fastrand::Rng;
use my_operator_rounds::lengths;
use rustix::process::Signal;

use super::audit::{Audit, credential};
use super::{Election, LEASE, Replica, assert_in_time};
use crate::disruption::rollouts::killed::{IMAGES, flip};
use crate::disruption::rollouts::{Fleet, GRACE, Run, Strategy, assert_good};
use crate::disruption::{cluster, killed};
use crate::harness::pods::Recorder;
use crate::harness::{Kubectl, seed};

/// Become due in each round, before, while and after the leader is stopped.
const ATS: usize = 5;
const NODES: usize = 4;

/// What the rounds came to.
#[derive(Default)]
struct Figures {
    takeovers: Vec<Duration>,
    ends: Vec<Duration>,
    writes_before: usize,
}

/// Stops the leader for longer than its lease, and lets it go on. The other leads by then.
async fn round(
    leader: Replica,
    other: &Replica,
    random: &mut Rng,
    audit: &Audit,
    figures: &mut Figures,
) {
    let token = credential(&leader.kubeconfig);
    tokio::time::sleep(Duration::from_millis(random.u64(0..1_000))).await;
    let before = Utc::now();
    leader.operator.process.signal(Signal::STOP);
    let stopped = Instant::now();
    other.until_it_leads().await;
    let took = stopped.elapsed();
    assert_in_time(took);
    let at_least = LEASE + Duration::from_millis(random.u64(0..800));
    tokio::time::sleep(at_least.saturating_sub(stopped.elapsed())).await;

    let went_on = Utc::now();
    let start = Instant::now();
    leader.operator.process.signal(Signal::CONT);
    leader.until_it_steps_down().await;
    figures.takeovers.push(took);
    figures.ends.push(start.elapsed());
    let writes = audit.writes(&token);
    // A renewal that was being sent when the leader was frozen may still arrive. The API server rejects it: it names the
    // version of the lease that the other has replaced.
    let after = writes.iter().filter(|w| w.at >= went_on);
    let after = after.filter(|write| !write.is_failed_renewal);
    let after: Vec<String> = after.map(|w| format!("{} {}", w.at, w.what)).collect();
    assert!(
        after.is_empty(),
        "{} wrote after it went on at {went_on}: {after:#?}",
        leader.name
    );
    leader.end().await;
    // Or else its writes are not to be seen here at all: it has written the lease.
    let earlier = writes.iter().filter(|write| write.at < before).count();
    assert!(earlier > 0, "no write of {} in the audit log", leader.name);
    figures.writes_before += earlier;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_stopped_writes_nothing_when_it_goes_on() {
    let seed = seed("the moments of the stops and of the Ats");
    let mut random = Rng::with_seed(seed);
    let begin = Instant::now();
    let cluster = cluster().await;
    let election = Election::new("stopped").await;
    let kubectl = Kubectl::new(cluster, &election.namespace);
    let record = Recorder::start(cluster.client().await.unwrap(), &election.namespace).await;
    let run = Run::start(cluster, seed).await;
    let mut fleet = Fleet::new(cluster, "stopped-rolling", NODES, random.fork()).await;
    let audit = Audit::of(cluster);
    let flags = [
        format!("--namespace={}", fleet.namespace),
        format!("--node-not-ready-grace={}s", GRACE.num_seconds()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    run.note_start().await;
    let mut leader = election.replica("stopped-0", &flags).await;
    leader.until_it_leads().await;

    let mut instants = Vec::new();
    let mut figures = Figures::default();
    let rounds = async {
        let mut spending = lengths::leader_stopped().start();
        while spending.another() {
            let number = spending.rounds();
            let other = election.replica(&format!("stopped-{number}"), &flags).await;
            killed::make_ats(&kubectl, &mut random, ATS, &mut instants).await;
            run.note_start().await;
            round(leader, &other, &mut random, &audit, &mut figures).await;
            leader = other;
        }
        (leader, spending.rounds())
    };
    let (leader, stops) = tokio::select! {
        ended = rounds => ended,
        () = flip(&mut fleet) => unreachable!("it never ends"),
    };

    let all = instants.len();
    kubectl
        .until("ats", "to be DONE", |list| {
            (killed::with_phase(list?, &["DONE"]) == all).then_some(())
        })
        .await;
    fleet.apply(IMAGES[0], Strategy::plain()).await;
    fleet.until_settled().await;
    assert_eq!(fleet.stopped, 0, "no pod failed");
    leader.end().await;
    record.end().await;

    let ats = kubectl.object("ats").await;
    let mut late = Vec::new();
    for (number, due) in instants.iter().enumerate() {
        let name = format!("a{number}");
        let items = ats["items"].as_array().unwrap().iter();
        let mut at = items.filter(|at| at["metadata"]["name"] == name.as_str());
        let status = &at.next().unwrap()["status"];
        killed::check(&record, &name, *due, status);
        late.push(status["latenessMilliseconds"].as_i64().unwrap());
    }
    let verdicts = run.judge([&fleet]).await;
    let held = verdicts[0].held_against_limit;
    println!(
        "{stops} leaders stopped in {:?}: takeover after {:?} at most (lease {LEASE:?}), end after {:?} at most; {} writes before the stops, 0 after; {all} Ats, each with one pod, {} ms late at most; {held} Ready pods replaced",
        begin.elapsed(),
        figures.takeovers.iter().max().unwrap(),
        figures.ends.iter().max().unwrap(),
        figures.writes_before,
        late.iter().max().unwrap(),
    );
    assert!(held > stops);
    assert_good(&verdicts);
    fleet.remove().await;
}
