//! The promise that matters most: never twice and never early, whenever the operator dies.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use fastrand::Rng;
use my_operator_cluster::Cluster;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::cluster;
use crate::harness::pods::Recorder;
use crate::harness::{Kubectl, Operator, operator_kubeconfig, try_wait};

const KILLS: usize = 200;
const ATS: usize = 200;
/// So many Ats are due at the same instant.
const AT_ONCE: usize = 4;

/// Long enough to come to its work most times, short enough to die in the middle of it.
fn lifetime(random: &mut Rng) -> Duration {
    Duration::from_millis(random.u64(100..1_300))
}

// Shown when the test fails.
#[allow(clippy::print_stdout)]
fn seed() -> u64 {
    let seed = match std::env::var("SEED") {
        Ok(text) => text.parse().expect("SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("SEED={seed} replays the moments of the kills and the instants of the Ats");
    seed
}

/// An operator, how long it lives, and in some rounds a second one beside it.
struct Round {
    life: Duration,
    second: Option<Second>,
}

struct Second {
    /// It comes that long after the first.
    delay: Duration,
    life: Duration,
    /// The first is frozen meanwhile, and goes on afterwards with what it knew before.
    freezes: bool,
}

impl Round {
    fn kills(&self) -> usize {
        1 + usize::from(self.second.is_some())
    }

    fn length(&self) -> Duration {
        match &self.second {
            None => self.life,
            Some(second) if second.freezes => second.delay + second.life + self.life,
            Some(second) => self.life.max(second.delay + second.life),
        }
    }
}

/// Rounds with that many kills in all.
fn plan(random: &mut Rng) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut left = KILLS;
    while left > 0 {
        let life = lifetime(random);
        let twice = left > 1 && random.bool();
        let second = twice.then(|| Second {
            delay: Duration::from_millis(random.u64(0..500)),
            life: lifetime(random),
            freezes: random.u32(0..4) == 0,
        });
        let round = Round { life, second };
        left -= round.kills();
        rounds.push(round);
    }
    rounds
}

/// How the operators of a test are started.
struct Start<'a> {
    cluster: &'a Cluster,
    kubeconfig: PathBuf,
    flags: [&'a str; 3],
}

impl Start<'_> {
    fn operator(&self, name: &str) -> Operator {
        Operator::spawn(self.cluster, name, &self.kubeconfig, &self.flags)
    }

    async fn round(&self, round: &Round) {
        let first = self.operator("killed");
        let Some(second) = &round.second else {
            return end_after(&first, round.life).await;
        };
        let other = async {
            tokio::time::sleep(second.delay).await;
            if second.freezes {
                signal(&first, Signal::STOP);
            }
            end_after(&self.operator("killed-too"), second.life).await;
        };
        if second.freezes {
            other.await;
            signal(&first, Signal::CONT);
            end_after(&first, round.life).await;
        } else {
            tokio::join!(end_after(&first, round.life), other);
        }
    }
}

/// Lets an operator live for that long.
async fn end_after(operator: &Operator, life: Duration) {
    tokio::time::sleep(life).await;
    operator.process.kill();
    operator.process.wait().await;
}

fn signal(operator: &Operator, signal: Signal) {
    let pid = i32::try_from(operator.process.pid()).ok();
    rustix::process::kill_process(pid.and_then(Pid::from_raw).unwrap(), signal).unwrap();
}

/// When the Ats are due: all through the time of the kills, a few at each instant.
fn instants(random: &mut Rng, span: Duration) -> Vec<DateTime<Utc>> {
    let now = Utc::now() + TimeDelta::seconds(5);
    let span = i64::try_from(span.as_millis()).unwrap();
    let all = (0..ATS.div_ceil(AT_ONCE)).flat_map(|_| {
        let due = now + TimeDelta::milliseconds(random.i64(0..span));
        let due = due.to_rfc3339_opts(SecondsFormat::Millis, true);
        std::iter::repeat_n(time(&due), AT_ONCE)
    });
    all.take(ATS).collect()
}

fn time(text: &str) -> DateTime<Utc> {
    let time = DateTime::parse_from_rfc3339(text);
    time.unwrap_or_else(|error| panic!("{text:?}: {error}"))
        .to_utc()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_killed_at_random_releases_one_pod_of_each_at() {
    let mut random = Rng::with_seed(seed());
    let cluster = cluster().await;
    let namespace = cluster.namespace("killed").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let record = Recorder::start(cluster.client().await.unwrap(), &namespace).await;

    let rounds = plan(&mut random);
    let instants = instants(&mut random, rounds.iter().map(Round::length).sum());
    let mut objects = String::new();
    for (number, due) in instants.iter().enumerate() {
        let due = due.to_rfc3339_opts(SecondsFormat::Millis, true);
        writeln!(
            objects,
            "---\n{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: a{number}}}, spec: {{schedule: '{due}', command: echo YAY}}}}",
        )
        .unwrap();
    }
    kubectl.with("create -f -", &objects).good();

    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: ["--webhooks=false", "--namespace", &namespace],
    };
    for round in &rounds {
        start.round(round).await;
    }
    // They did not all wait for the one that lives: else no kill struck anything.
    let phases = kubectl.field("ats", "{.items[*].status.phase}");
    let started = phases.matches("DONE").count() + phases.matches("RUNNING").count();
    assert!(started >= ATS / 10, "{started} started under the kills");
    let operator = start.operator("killed");
    let done = try_wait(crate::harness::PATIENCE, || {
        let phases = kubectl.field("ats", "{.items[*].status.phase}");
        (phases.matches("DONE").count() == ATS).then_some(())
    });
    assert!(
        done.await.is_some(),
        "not every At is DONE:\n{}\n{}",
        kubectl.run("get ats").out,
        operator.process.log_tail(30)
    );
    operator.process.stop(Duration::from_secs(10)).await;
    record.end().await;

    let ats: Value = serde_json::from_str(&kubectl.run("get ats -o json").good()).unwrap();
    for at in ats["items"].as_array().unwrap() {
        let name = at["metadata"]["name"].as_str().unwrap();
        let due = instants[name[1..].parse::<usize>().unwrap()];
        check(&record, name, due, &at["status"]);
    }
}

/// Asserts that one pod of the At was released, that of the status, and not early.
fn check(record: &Recorder, at: &str, due: DateTime<Utc>, status: &Value) {
    let released = record.released(&format!("{at}-pod"));
    let uids: Vec<&str> = released.keys().map(String::as_str).collect();
    assert_eq!(uids, [status["podUID"].as_str().unwrap()], "{at}");
    assert_eq!(status["result"], "Succeeded", "{at}");

    // By the operator's own clock not by a millisecond.
    let of = |field: &str| time(status[field].as_str().unwrap_or_default());
    assert_eq!(of("scheduledTime"), due, "{at}");
    assert!(of("startTime") >= due, "{at}: {status}");
    let late = status["latenessMilliseconds"].as_i64();
    assert!(late.is_some_and(|late| late >= 0), "{at}: {status}");

    // The API server cuts its times to the second. Its clock and ours are one machine's.
    let second = TimeDelta::seconds(1);
    for release in released.values() {
        for written in [release.created(), release.time()] {
            assert!(written > due - second, "{at}: {written} for {due}");
        }
        assert!(release.time() >= of("startTime") - second - second, "{at}");
        assert!(release.seen >= due, "{at}: seen at {}", release.seen);
    }
}
