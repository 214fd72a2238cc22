//! Operators that are killed in the middle of roll-outs, and two of them at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use fastrand::Rng;
use futures::future::join_all;
use my_operator_cluster::Cluster;
use my_operator_rounds::{Budget, is_soak, lengths};

use super::fleet::{Fleet, Strategy};
use super::{Run, assert_good, flags};
use crate::disruption::cluster;
use crate::disruption::kills::{Round, Start, kill};
use crate::harness::{TIMEOUT, operator_kubeconfig, seed};

const FLEETS: usize = 4;
const NODES: usize = 5;
pub(crate) const IMAGES: [&str; 2] = ["app:1", "app:2"];

/// Changes a fleet's image to and fro, until it is aborted.
pub(crate) async fn flip(fleet: &mut Fleet) {
    for image in IMAGES.iter().cycle() {
        fleet.apply(image, Strategy::plain()).await;
        let pause = fleet.random.u64(300..2_500);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// How many pods these fleets have had.
fn pods(fleets: &[Fleet]) -> usize {
    fleets.iter().map(Fleet::pods_ever).sum()
}

/// Rolls out to and fro under operators that come and are killed, and compares the final state with that of roll-outs
/// that nothing disturbed. A pod's name is that of its node and revision.
async fn roll_out_under(cluster: &'static Cluster, seed: u64, budget: Budget, two_operators: bool) {
    let mut random = Rng::with_seed(seed);
    let run = Run::start(cluster, seed).await;
    let mut fleets = Vec::new();
    for _ in 0..FLEETS {
        fleets.push(Fleet::new(cluster, "killed-rolling", NODES, random.fork()).await);
    }
    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: flags(&fleets),
    };
    run.note_start().await;
    let operator = start.operator("rolling");
    let in_peace = fleets.iter_mut().map(|fleet| async {
        let mut names: Vec<BTreeMap<String, String>> = Vec::new();
        for image in IMAGES {
            fleet.apply(image, Strategy::plain()).await;
            fleet.until_settled().await;
            names.push(fleet.names());
        }
        names
    });
    let in_peace = join_all(in_peace).await;
    kill(&operator).await;

    let before = pods(&fleets);
    let begin = Instant::now();
    let (mut count, mut frozen) = (0, Duration::ZERO);
    let mut spending = budget.start();
    // Some pods must be made under the kills: the operators did not all leave the work to the last one.
    let made = loop {
        let kills = async {
            while spending.another() {
                run.note_start().await;
                let round = if two_operators {
                    Round::random(&mut random)
                } else {
                    Round::alone(&mut random)
                };
                frozen = frozen.max(start.round(&round).await);
                count += round.kills();
            }
        };
        tokio::select! {
            () = kills => {}
            _ = join_all(fleets.iter_mut().map(flip)) => {}
        }
        let made = pods(&fleets) - before;
        if made >= NODES {
            break made;
        }
        assert!(begin.elapsed() < budget.time() * 2 + TIMEOUT, "{made} made");
        spending = Budget::new(Duration::ZERO, 1).start();
    };
    println!("{count} kills in {:?}", begin.elapsed());

    run.note_start().await;
    let operator = start.operator("rolling");
    let settled = fleets.iter_mut().zip(&in_peace).map(|(fleet, in_peace)| {
        let at = random.usize(0..IMAGES.len());
        async move {
            fleet.apply(IMAGES[at], Strategy::plain()).await;
            fleet.until_settled().await;
            assert_eq!(fleet.names(), in_peace[at], "{}", IMAGES[at]);
            assert_eq!(fleet.stopped, 0, "no pod failed");
        }
    });
    join_all(settled).await;
    kill(&operator).await;
    let verdicts = if two_operators {
        let frozen = TimeDelta::from_std(frozen).unwrap();
        run.judge_two(&fleets, frozen).await
    } else {
        run.judge(&fleets).await
    };
    let held: usize = verdicts.iter().map(|v| v.held_against_limit).sum();
    println!("{held} Ready pods replaced, {made} pods made under the kills");
    assert_good(&verdicts);
    for fleet in &fleets {
        fleet.remove().await;
    }
}

/// The sweep ends the process after a creation and after a deletion of a pod in each scenario, and `disturbed` kills one
/// operator at a time: only `make soak` runs this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_operator_during_roll_outs_changes_no_final_state() {
    if !is_soak() {
        return;
    }
    let seed = seed("the moments of the kills and of the changes");
    roll_out_under(cluster().await, seed, lengths::rollouts_killed(), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_operators_at_once_make_no_second_pod_of_a_revision() {
    let seed = seed("the moments of the kills and of the changes");
    let budget = lengths::rollouts_two_operators();
    roll_out_under(cluster().await, seed, budget, true).await;
}
