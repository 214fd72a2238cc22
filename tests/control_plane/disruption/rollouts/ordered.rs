//! Roll-outs by domain, in soaks also in windows, under operators that come and go.

use fastrand::Rng;
use my_operator_rounds::lengths;
use serde_json::{Value, json};

use super::disturbed::restart;
use super::fleet::{Fleet, ZONE};
use super::{Run, assert_good, flags};
use crate::disruption::cluster;
use crate::disruption::kills::{Start, kill};
use crate::harness::{operator_kubeconfig, seed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_domain_comes_after_the_other_and_no_pod_goes_outside_the_windows() {
    let seed = seed("how long each operator lives");
    let mut random = Rng::with_seed(seed);
    let cluster = cluster().await;
    let run = Run::start(cluster, seed).await;
    let mut fleets = [Fleet::new(cluster, "ordered", 12, random.fork()).await];
    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: flags(&fleets),
    };
    run.note_start().await;
    let operator = start.operator("ordered");
    fleets[0].until_settled().await;
    kill(&operator).await;

    // Open for every other minute.
    let windows = json!([{"schedule": "*/2 * * * *", "duration": "1m"}]);
    let windows = if lengths::rollouts_have_windows() {
        windows
    } else {
        Value::Null
    };
    let fleet = &mut fleets[0];
    "app:1".clone_into(&mut fleet.image);
    let change = json!({"spec": {"image": "app:1", "updateStrategy": {"rollingUpdate": {
        "maxUnavailable": 2, "topologyKey": ZONE, "order": ["b"], "windows": windows}}}});
    fleet.patch_object(&change).await;
    tokio::select! {
        () = restart(&start, &run, random) => unreachable!("it never ends"),
        () = fleet.until_settled() => {}
    }
    assert_good(&run.judge(&fleets).await);
    fleets[0].remove().await;
}
