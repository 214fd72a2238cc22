//! Replicas of several shards, of which leaders die, while the number of shards changes.

use std::time::Duration;

use chrono::{DateTime, Utc};
use fastrand::Rng;
use serde_json::Value;

use super::audit::{Audit, credential};
use super::{Election, Replica};
use crate::disruption::killed;
use crate::harness::pods::Recorder;
use crate::harness::{Kubectl, seed, wait_for};
use wall_clock_controller::reconcile::Shard;

/// How many shards there are, one after the other.
const COUNTS: [u32; 5] = [1, 2, 3, 2, 1];
/// In each namespace, for each number of shards.
const ATS: usize = 3;

/// A namespace and what happens in it.
struct Place {
    kubectl: Kubectl,
    record: Recorder,
    /// When its Ats are due.
    instants: Vec<DateTime<Utc>>,
}

impl Place {
    /// Every At becomes DONE, and had one pod.
    async fn finish(self) {
        let all = self.instants.len();
        let done = |list: &Value| killed::with_phase(list, &["DONE"]) == all;
        self.kubectl
            .until("ats", "to be DONE", |list| done(list?).then_some(()))
            .await;
        self.record.end().await;
        for (number, due) in self.instants.iter().enumerate() {
            let name = format!("a{number}");
            let at = self.kubectl.object(&format!("at/{name}")).await;
            killed::check(&self.record, &name, *due, &at["status"]);
        }
    }
}

/// Two namespaces of each shard, however many there are.
async fn places(election: &Election) -> Vec<(String, Place)> {
    let mut places: Vec<(String, Place)> = Vec::new();
    let has_two = |places: &[(String, Place)], shard: Shard| {
        places.iter().filter(|(name, _)| shard.has(name)).count() > 1
    };
    let shards = || COUNTS.into_iter().flat_map(Shard::all);
    while !shards().all(|shard| has_two(&places, shard)) {
        let namespace = election.cluster.namespace("sharded").await.unwrap();
        let client = election.cluster.client().await.unwrap();
        let place = Place {
            kubectl: Kubectl::new(election.cluster, &namespace),
            record: Recorder::start(client, &namespace).await,
            instants: Vec::new(),
        };
        places.push((namespace, place));
    }
    places
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_shards_changes_and_no_two_numbers_are_at_work_at_once() {
    let mut random = Rng::with_seed(seed("who is killed, and when the Ats are due"));
    let election = Election::new("shards").await;
    let mut places = places(&election).await;
    let namespaces = places.iter().map(|(name, _)| format!("--namespace={name}"));
    let namespaces: Vec<String> = namespaces.collect();
    let audit = Audit::of(election.cluster);
    let mut before: Vec<Replica> = Vec::new();
    let mut latest = None;
    for (round, count) in COUNTS.into_iter().enumerate() {
        let mut replicas = Vec::new();
        for shard in Shard::all(count) {
            let shard_flag = format!("--shard={shard}");
            let flags = [shard_flag.as_str()].into_iter();
            let flags: Vec<&str> = flags.chain(namespaces.iter().map(String::as_str)).collect();
            let name = format!("shard-{round}-{}", shard.index());
            replicas.push(election.replica(&name, &flags).await);
        }
        for (_, place) in &mut places {
            killed::make_ats(&place.kubectl, &mut random, ATS, &mut place.instants).await;
        }
        if !before.is_empty() {
            // They wait for those of the other number, and say so.
            wait_for("the new shards to wait", async || {
                let waits = |replica: &Replica| replica.operator.log().contains("which excludes");
                replicas.iter().all(waits).then_some(())
            })
            .await;
        }
        for replica in &before {
            tokio::time::sleep(Duration::from_millis(random.u64(0..1_000))).await;
            if random.bool() {
                replica.operator.process.kill();
                replica.operator.process.wait().await;
            } else {
                replica.end().await;
            }
        }
        for replica in &replicas {
            replica.until_it_leads().await;
        }
        latest = ended(&audit, &before, latest);
        before = replicas;
    }
    for (_, place) in places {
        place.finish().await;
    }
    for replica in &before {
        replica.end().await;
    }
    ended(&audit, &before, latest);
}

/// Asserts that these replicas worked, and wrote to nothing but Leases before `latest`, the last such write of the replicas
/// before them. Returns their own last one.
fn ended(
    audit: &Audit,
    replicas: &[Replica],
    latest: Option<DateTime<Utc>>,
) -> Option<DateTime<Utc>> {
    let mut all = Vec::new();
    for replica in replicas {
        let writes = audit.writes(&credential(&replica.kubeconfig)).into_iter();
        let work = writes.filter(|write| {
            let what = &write.what;
            !what.contains("/leases") && !what.contains("/events") && !what.contains("reviews")
        });
        let times: Vec<_> = work.map(|write| write.at).collect();
        assert!(!times.is_empty(), "{} wrote nothing", replica.name);
        all.extend(times);
    }
    let first = all.iter().min().copied();
    assert!(first.is_none() || first > latest, "{first:?} {latest:?}");
    all.into_iter().max().or(latest)
}
