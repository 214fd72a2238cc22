//! The promise that matters most: never twice and never early, whenever the operator dies.

use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use my_operator_rounds::lengths;
use serde_json::Value;

use crate::disruption::kills::{Round, Start};
use crate::disruption::{cluster, report};
use crate::harness::pods::Recorder;
use crate::harness::{Kubectl, TIMEOUT, operator_kubeconfig, seed, time};

/// So many Ats are due at the same instant.
const AT_ONCE: usize = 4;

/// When so many Ats are due: all through the time of the kills, a few at each instant.
fn instants(random: &mut Rng, span: Duration, count: usize) -> Vec<DateTime<Utc>> {
    let now = Utc::now() + TimeDelta::seconds(2);
    let span = i64::try_from(span.as_millis()).unwrap();
    let all = (0..count.div_ceil(AT_ONCE)).flat_map(|_| {
        let due = now + TimeDelta::milliseconds(random.i64(0..span));
        let due = due.to_rfc3339_opts(SecondsFormat::Millis, true);
        std::iter::repeat_n(time(&due), AT_ONCE)
    });
    all.take(count).collect()
}

/// Whether the test deletes the pods of that At.
fn is_spoiled(name: &str) -> bool {
    name.starts_with("spoiled")
}

/// The number in the name of an At or its pod.
fn number(name: &str) -> usize {
    let digits = name.trim_start_matches(char::is_alphabetic);
    digits.trim_end_matches("-pod").parse().unwrap()
}

/// Deletes pods, waiting, running or ended ones, until it is aborted.
async fn spoil(pods: Api<Pod>, mut random: Rng) {
    let at_once = DeleteParams::default().grace_period(0);
    loop {
        tokio::time::sleep(Duration::from_millis(random.u64(0..500))).await;
        // The API server may be busy; the next round comes soon.
        for pod in pods
            .list(&ListParams::default())
            .await
            .into_iter()
            .flatten()
        {
            let name = pod.name_any();
            if is_spoiled(&name) && random.u32(0..3) == 0 {
                let _ = pods.delete(&name, &at_once).await;
            }
        }
    }
}

/// The manifest of an At.
fn at(name: &str, due: DateTime<Utc>) -> String {
    let due = due.to_rfc3339_opts(SecondsFormat::Millis, true);
    format!(
        "---\n{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {name}}}, spec: {{schedule: '{due}', command: echo YAY}}}}\n"
    )
}

/// Makes so many Ats that are due soon, `a0` and so on; adds when.
pub(crate) async fn make_ats(
    kubectl: &Kubectl,
    random: &mut Rng,
    count: usize,
    instants: &mut Vec<DateTime<Utc>>,
) {
    let mut objects = String::new();
    let now = Utc::now();
    for _ in 0..count {
        let due = now + TimeDelta::milliseconds(random.i64(500..5_500));
        let due = time(&due.to_rfc3339_opts(SecondsFormat::Millis, true));
        objects += &at(&format!("a{}", instants.len()), due);
        instants.push(due);
    }
    kubectl.with("create -f -", &objects).await.good();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_killed_at_random_releases_one_pod_of_each_at() {
    let mut random = Rng::with_seed(seed("the moments of the kills and the instants of the Ats"));
    let cluster = cluster().await;
    let namespace = cluster.namespace("killed").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let record = Recorder::start(cluster.client().await.unwrap(), &namespace).await;
    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: ["--webhooks=false", "--namespace", &namespace]
            .map(str::to_owned)
            .to_vec(),
    };

    let budget = lengths::kills();
    let (ats, spoiled) = (lengths::kills_ats(), lengths::kills_spoiled_ats());
    let instants = instants(&mut random, budget.time(), ats + spoiled);
    let mut objects = String::new();
    for (number, due) in instants.iter().enumerate() {
        let prefix = if number < ats { "a" } else { "spoiled" };
        objects += &at(&format!("{prefix}{number}"), *due);
    }
    kubectl.with("create -f -", &objects).await.good();

    let pods = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    let deleting = tokio::spawn(spoil(pods, random.fork()));
    let begin = Instant::now();
    let mut spending = budget.start();
    let mut kills = 0;
    // Some must start under the kills, or else no kill struck anything.
    let started = loop {
        let started = count(&kubectl, &["DONE", "RUNNING"]).await;
        // A slow machine does its least number of rounds, however long that takes it.
        let most = budget.time() * 2 + TIMEOUT;
        assert!(begin.elapsed() < most, "{started} Ats started in {most:?}");
        if !spending.another() && started >= ats / 4 {
            break started;
        }
        let round = Round::random(&mut random);
        start.round(&round).await;
        kills += round.kills();
    };
    deleting.abort();
    let operator = start.operator("killed");
    let all = instants.len();
    kubectl
        .until("ats", "to be DONE", |list| {
            (with_phase(list?, &["DONE"]) == all).then_some(())
        })
        .await;
    operator.process.stop(Duration::from_secs(10)).await;
    record.end().await;
    report(&format!(
        "{kills} kills in {:?}, {started} of {all} Ats started meanwhile",
        begin.elapsed()
    ));

    let ats = kubectl.object("ats").await;
    for at in ats["items"].as_array().unwrap() {
        let name = at["metadata"]["name"].as_str().unwrap();
        check(&record, name, instants[number(name)], &at["status"]);
    }
}

/// How many of these Ats are in one of these phases.
pub(crate) fn with_phase(list: &Value, phases: &[&str]) -> usize {
    let items = list["items"].as_array().unwrap().iter();
    let phase = |at: &Value| {
        at["status"]["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    items
        .filter(|at| phases.contains(&phase(at).as_str()))
        .count()
}

async fn count(kubectl: &Kubectl, phases: &[&str]) -> usize {
    with_phase(&kubectl.object("ats").await, phases)
}

/// Asserts that one pod of the At was released, that of the status, and not early. Of an At whose
/// pods were deleted, none may have been, and then the status must not say that it ran.
pub(crate) fn check(record: &Recorder, at: &str, due: DateTime<Utc>, status: &Value) {
    let released = record.released(&format!("{at}-pod"));
    let uids: Vec<&str> = released.keys().map(String::as_str).collect();
    let recorded = [status["podUID"].as_str().unwrap()];
    let of = |field: &str| time(status[field].as_str().unwrap_or_default());
    let (result, reason) = (status["result"].as_str(), status["reason"].as_str());
    match (result, reason) {
        (Some("Unknown"), Some("NeverStarted")) if is_spoiled(at) => {
            assert_eq!(uids, [""; 0], "{at}");
            return;
        }
        (Some("Unknown"), Some("PodLost")) if is_spoiled(at) => {
            assert!(uids.is_empty() || uids == recorded, "{at}: {uids:?}");
            if status["startTime"].is_null() {
                return;
            }
            // It was seen released.
            assert_eq!(uids, recorded, "{at}: {status}");
        }
        _ => {
            assert_eq!(result, Some("Succeeded"), "{at}: {status}");
            assert_eq!(uids, recorded, "{at}");
        }
    }

    // By the operator's own clock not by a millisecond.
    assert_eq!(of("scheduledTime"), due, "{at}");
    assert!(of("startTime") >= due, "{at}: {status}");
    let late = status["latenessMilliseconds"].as_i64();
    assert!(late.is_some_and(|late| late >= 0), "{at}: {status}");

    // The API server cuts its times to the second. Nothing is released before it is made, so this
    // holds for the release too.
    for release in released.values() {
        let created = release.created();
        let early = created <= due - TimeDelta::seconds(1);
        assert!(!early, "{at}: made at {created} for {due}");
        // An event comes after the change that it reports, and one machine's clock dates both.
        assert!(release.seen >= due, "{at}: seen at {}", release.seen);
    }
}
