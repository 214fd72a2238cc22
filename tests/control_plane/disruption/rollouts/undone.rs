//! A bad revision that its canaries find and that is undone by itself, under operators that come and go.

use fastrand::Rng;
use my_operator_rounds::lengths;
use serde_json::json;

use super::disturbed::restart;
use super::fleet::Fleet;
use super::{Run, assert_good, flags};
use crate::disruption::cluster;
use crate::disruption::kills::{Start, kill};
use crate::harness::{operator_kubeconfig, seed};

const CANARIES: usize = 2;
/// The fake kubelet lets its containers fail.
const BAD: &str = "app:fails";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_revision_reaches_its_canaries_alone_and_is_undone() {
    let seed = seed("how long each operator lives");
    let mut random = Rng::with_seed(seed);
    let cluster = cluster().await;
    let run = Run::start(cluster, seed).await;
    let nodes = lengths::undone_nodes();
    let mut fleets = [Fleet::new(cluster, "undone", nodes, random.fork()).await];
    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: flags(&fleets),
    };
    run.note_start().await;
    let operator = start.operator("undone");
    fleets[0].until_settled().await;
    kill(&operator).await;
    let before = fleets[0].names();

    let [fleet] = &fleets;
    // Without a canary, ten nodes would have it at once.
    let bad = json!({"spec": {"image": BAD, "updateStrategy": {"rollingUpdate": {
        "maxUnavailable": 10, "onFailure": "Undo", "canary": {"nodes": CANARIES, "soakSeconds": 5}}}}});
    fleet.patch_object(&bad).await;
    tokio::select! {
        () = restart(&start, &run, random) => unreachable!("it never ends"),
        // An ended pod holds up nothing, so the roll-out may be over before an operator has deleted it.
        () = async {
            fleet.until_state("RolledBack").await;
            fleet.until_names(&before).await;
        } => {}
    }
    let tried = fleet.nodes_ever_with(BAD);
    assert!((1..=CANARIES).contains(&tried.len()), "{tried:?}");
    assert_good(&run.judge(&fleets).await);
    fleets[0].remove().await;
}
