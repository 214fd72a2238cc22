//! Operators that are killed in the middle of roll-outs, and two of them at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use my_operator_cluster::Cluster;

use super::fleet::{Fleet, Strategy};
use super::{GRACE, Starts, assert_good, flags, record_nodes};
use crate::cluster;
use crate::harness::{operator_kubeconfig, seed};
use crate::kills::{Round, Start, Times, alone, plan};

const KILLS: usize = 100;
/// In rounds with two operators at a time.
const KILLS_OF_TWO: usize = 24;
const FLEETS: usize = 4;
const NODES: usize = 5;
pub(crate) const IMAGES: [&str; 2] = ["app:1", "app:2"];

/// Changes a fleet's image to and fro, until it is aborted.
pub(crate) async fn flip(fleet: &mut Fleet, pace: u64) {
    for image in IMAGES.iter().cycle() {
        fleet.apply(image, Strategy::plain()).await;
        let pause = fleet.random.u64(300..2_500) * pace;
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// The UIDs of all pods there are.
fn uids(fleets: &[Fleet]) -> BTreeSet<String> {
    let pods = fleets.iter().flat_map(Fleet::list);
    pods.filter_map(|pod| pod.metadata.uid).collect()
}

/// Rolls out to and fro under operators that come and are killed, and compares what it comes to with
/// what it comes to in peace. A pod's name is that of its node and revision.
async fn roll_out_under(
    cluster: &'static Cluster,
    seed: u64,
    two_operators: bool,
    rounds: impl FnOnce(&mut Times) -> Vec<Round>,
) {
    let mut random = Rng::with_seed(seed);
    let nodes = record_nodes(cluster).await;
    let mut fleets = Vec::new();
    for _ in 0..FLEETS {
        fleets.push(Fleet::new(cluster, "killed-rolling", NODES, random.fork()).await);
    }
    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: flags(&fleets),
    };
    let starts = Starts::default();
    starts.note(cluster).await;
    let pace = start.pace().await;
    let mut times = Times { random, pace };

    let operator = start.operator("rolling");
    let mut in_peace: Vec<Vec<BTreeMap<String, String>>> = Vec::new();
    for fleet in &mut fleets {
        let mut names = Vec::new();
        for image in IMAGES {
            fleet.apply(image, Strategy::plain()).await;
            fleet.until_settled().await;
            names.push(fleet.names());
        }
        in_peace.push(names);
    }
    operator.process.kill();
    operator.process.wait().await;

    let before = uids(&fleets);
    let rounds = rounds(&mut times);
    let kills = async {
        for round in &rounds {
            starts.note(cluster).await;
            start.round(round).await;
        }
    };
    let flips = fleets.iter_mut().map(|fleet| flip(fleet, pace));
    tokio::select! {
        () = kills => {}
        _ = futures::future::join_all(flips) => {}
    }

    let made = uids(&fleets).difference(&before).count();
    starts.note(cluster).await;
    let operator = start.operator("rolling");
    let mut verdicts = Vec::new();
    for (fleet, in_peace) in fleets.iter_mut().zip(&in_peace) {
        let at = times.random.usize(0..IMAGES.len());
        fleet.apply(IMAGES[at], Strategy::plain()).await;
        fleet.until_settled().await;
        assert_eq!(fleet.names(), in_peace[at], "{}", IMAGES[at]);
        assert_eq!(fleet.stopped, 0, "no pod failed");
    }
    operator.process.kill();
    operator.process.wait().await;
    for fleet in &fleets {
        verdicts.push(
            fleet
                .judge(&nodes, &starts.all(), GRACE, two_operators)
                .await,
        );
    }
    let held: usize = verdicts.iter().map(|v| v.held_against_limit).sum();
    let kills: usize = rounds.iter().map(Round::kills).sum();
    println!("{kills} kills, {held} Ready pods replaced, {made} pods made meanwhile are there yet");
    assert_good(&verdicts);
    // They did not all wait for the last operator: else no kill struck anything.
    assert!(made >= NODES, "{made}");
    for fleet in &fleets {
        fleet.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_operator_during_roll_outs_changes_no_final_state() {
    let seed = seed("the moments of the kills and of the changes");
    roll_out_under(cluster().await, seed, false, |times| alone(times, KILLS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_operators_at_once_make_no_second_pod_of_a_revision() {
    let seed = seed("the moments of the kills and of the changes");
    let rounds = |times: &mut Times| plan(times, KILLS_OF_TWO);
    roll_out_under(cluster().await, seed, true, rounds).await;
}
