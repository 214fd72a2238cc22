//! The promise that matters most: never twice and never early, whenever the operator dies.

use std::fmt::Write as _;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::Value;

use crate::cluster;
use crate::harness::pods::Recorder;
use crate::harness::{Kubectl, operator_kubeconfig, seed, time, try_wait};
use crate::kills::{Round, Start, Times, plan};

const KILLS: usize = 200;
const ATS: usize = 200;
/// So many Ats are due at the same instant.
const AT_ONCE: usize = 4;
/// Of so many more, somebody deletes the pods at random.
const SPOILED: usize = 40;

/// When the Ats are due: all through the time of the kills, a few at each instant.
fn instants(random: &mut Rng, span: Duration) -> Vec<DateTime<Utc>> {
    let now = Utc::now() + TimeDelta::seconds(5);
    let span = i64::try_from(span.as_millis()).unwrap();
    let all = (0..(ATS + SPOILED).div_ceil(AT_ONCE)).flat_map(|_| {
        let due = now + TimeDelta::milliseconds(random.i64(0..span));
        let due = due.to_rfc3339_opts(SecondsFormat::Millis, true);
        std::iter::repeat_n(time(&due), AT_ONCE)
    });
    all.take(ATS + SPOILED).collect()
}

/// Whether somebody deletes the pods of that At.
fn is_spoiled(number: usize) -> bool {
    number >= ATS
}

/// The number in the name of an At or its pod.
fn number(name: &str) -> usize {
    let digits = name.trim_start_matches('a').trim_end_matches("-pod");
    digits.parse().unwrap()
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
            if is_spoiled(number(&name)) && random.u32(0..3) == 0 {
                let _ = pods.delete(&name, &at_once).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_killed_at_random_releases_one_pod_of_each_at() {
    let random = Rng::with_seed(seed("the moments of the kills and the instants of the Ats"));
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

    let pace = start.pace().await;
    let mut times = Times { random, pace };
    let rounds = plan(&mut times, KILLS);
    let mut random = times.random;
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

    let pods = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    let spoiler = tokio::spawn(spoil(pods, random.fork()));
    for round in &rounds {
        start.round(round).await;
    }
    spoiler.abort();
    // They did not all wait for the one that lives: else no kill struck anything.
    let phases = kubectl.field("ats", "{.items[*].status.phase}");
    let started = phases.matches("DONE").count() + phases.matches("RUNNING").count();
    assert!(started >= ATS / 10, "{started} started under the kills");
    let operator = start.operator("killed");
    let done = try_wait(crate::harness::PATIENCE, || {
        let phases = kubectl.field("ats", "{.items[*].status.phase}");
        (phases.matches("DONE").count() == ATS + SPOILED).then_some(())
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
        check(&record, name, instants[number(name)], &at["status"]);
    }
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
        (Some("Unknown"), Some("NeverStarted")) if is_spoiled(number(at)) => {
            assert_eq!(uids, [""; 0], "{at}");
            return;
        }
        (Some("Unknown"), Some("PodLost")) if is_spoiled(number(at)) => {
            assert!(uids.is_empty() || uids == recorded, "{at}: {uids:?}");
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
        // Here an event comes after what it tells of, by the clock of the same machine.
        assert!(release.seen >= due, "{at}: seen at {}", release.seen);
    }
}
