//! The known bugs of the built-in DaemonSet controller, each shown not to be here by a test that has
//! its number (of an issue or pull request of kubernetes/kubernetes).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use chrono::{TimeDelta, Utc};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::journal::{Journal, Moment, most_alike};
use super::{Place, Pod, pending};
use crate::harness::{Operator, operator_kubeconfig};

/// Every pod that there ever was, one for each UID.
fn all_pods(moments: &[Moment]) -> Vec<&Pod> {
    let mut seen = BTreeSet::new();
    let pods = moments.iter().flat_map(|moment| moment.values());
    pods.filter(|pod| seen.insert(&pod.uid)).collect()
}

/// 6,596 pods on 4 nodes: a controller with a stale cache made one after the other.
#[tokio::test]
async fn bug_14528_creating_a_pod_a_second_time_is_rejected() {
    let place = Place::new("bug-14528", 4).await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &place.nodes(4)).await;
    // A controller that saw no pods would send these.
    for pod in &sight.pods {
        let mut again = pod.json.clone();
        again.as_object_mut().unwrap().remove("status");
        let metadata = &pod.json["metadata"];
        again["metadata"] = json!({"name": metadata["name"], "labels": metadata["labels"],
            "annotations": metadata["annotations"], "ownerReferences": metadata["ownerReferences"]});
        let again = serde_json::from_value(again).unwrap();
        let made = place
            .pods_api()
            .create(&PostParams::default(), &again)
            .await;
        let refused = made.unwrap_err().to_string();
        assert!(refused.contains("already exists"), "{refused}");
    }
    // And an operator that has just started finds nothing to do.
    let before = place.served("a:1", &place.nodes(4)).await;
    let journal = Journal::start(&place).await;
    let second = another_operator(&place, "second-14528").await;
    place.witness("meanwhile").await;
    second.process.kill();
    let moments = journal.moments().await;
    assert_eq!(all_pods(&moments).len(), 4);
    assert_eq!(place.sight().await.uids(), before.uids());
}

/// An operator beside the one of all tests, for this namespace alone.
async fn another_operator(place: &Place, name: &str) -> Operator {
    let kubeconfig = operator_kubeconfig(place.kubectl.cluster).await;
    let namespace = format!("--namespace={}", place.kubectl.namespace);
    let extra = ["--kinds=mydaemonset", "--webhooks=false", &namespace];
    let operator = Operator::spawn(place.kubectl.cluster, name, &kubeconfig, &extra);
    operator.until_ready().await;
    operator
}

/// Old pods that were not ready were not counted: three bad changes, and no pod was ready.
#[tokio::test]
async fn bug_123232_three_bad_changes_take_down_no_more_than_one() {
    let place = Place::new("bug-123232", 3).await;
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &place.nodes(3)).await;
    let journal = Journal::start(&place).await;
    for image in ["a:2", "a:3", "a:4"] {
        place
            .apply(&place.with(image, &pending(), &json!({})))
            .await;
        place
            .until(image, |s| s.is_current() && s.of_image(image) == 1)
            .await;
    }
    place.witness("meanwhile").await;
    let sight = place.sight().await;
    assert_eq!(sight.serving("a:1").len(), 2, "{sight}");
    assert_eq!(journal.least_serving().await, 2);
}

/// Nodes that were NotReady used up maxUnavailable, and the roll-out stood still for as long as they
/// were.
#[tokio::test]
async fn bug_117658_silent_nodes_do_not_stop_a_roll_out() {
    let place = Place::new("bug-117658", 4).await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &place.nodes(4)).await;
    for number in [1, 3] {
        place.go_down(&sight, number).await;
    }
    let journal = Journal::start(&place).await;
    place.apply(&place.plain("a:2")).await;
    place
        .until("the others", |s| {
            s.only_serving(&place.node(0), "a:2") && s.only_serving(&place.node(2), "a:2")
        })
        .await;
    assert!(journal.least_serving().await >= 1, "one after the other");
    for number in [1, 3] {
        place.silence(number, false).await;
    }
    place.served("a:2", &place.nodes(4)).await;
}

/// With the clock of a node ahead, a pod was ready in the future and never became available.
#[tokio::test]
async fn bug_77203_a_node_whose_clock_is_ahead_does_not_stop_a_roll_out() {
    let place = Place::new("bug-77203", 2).await;
    let spec = json!({"minReadySeconds": 1});
    place.apply(&place.with("a:1", &json!({}), &spec)).await;
    place.served("a:1", &place.nodes(2)).await;
    place.apply(&place.with("a:2", &pending(), &spec)).await;
    let ahead = Utc::now() + TimeDelta::hours(1);
    let status = json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ahead}],
    });
    for _ in 0..2 {
        let waits = |p: &&Pod| p.image == "a:2" && !p.ready;
        let sight = place
            .until("a new pod", |s| s.pods.iter().any(|p| waits(&p)))
            .await;
        let pod = sight.pods.iter().find(waits).unwrap();
        place.set_status(&pod.name, status.clone()).await;
    }
    place.served("a:2", &place.nodes(2)).await;
}

/// Two pods on a node after another controller had become the leader.
#[tokio::test]
async fn bug_54096_two_operators_at_once_make_no_second_pod_on_a_node() {
    let place = Place::new("bug-54096", 6).await;
    let nodes = place.nodes(6);
    let three = json!({"maxUnavailable": 3});
    place.apply(&place.rolling("a:1", three.clone())).await;
    place.served("a:1", &nodes).await;
    let journal = Journal::start(&place).await;
    // The new one starts in the midst of a roll-out, and the old one does not know that it is one.
    place.apply(&place.rolling("a:2", three.clone())).await;
    let second = another_operator(&place, "second-54096").await;
    place.served("a:2", &nodes).await;
    for image in ["a:3", "a:4"] {
        for pod in place.pods().await.iter().take(3) {
            place.delete_pod(&pod.name).await;
        }
        place.apply(&place.rolling(image, three.clone())).await;
        place.served(image, &nodes).await;
    }
    second.process.kill();
    let moments = journal.moments().await;
    assert_eq!(most_alike(&moments, |pod| &pod.revision), 1);
    assert!(all_pods(&moments).iter().all(|pod| !pod.node.is_empty()));
}

/// A hot loop with a kubelet that fails each pod at once; and the fix of it, under which one failing
/// pod kept a roll-out from going on (63465, also openkruise/kruise#744).
#[tokio::test]
async fn bug_65309_failing_pods_are_no_hot_loop_and_do_not_block_a_roll_out() {
    let place = Place::new("bug-65309", 2).await;
    let nodes = place.nodes(2);
    let journal = Journal::start(&place).await;
    // The fake kubelet fails each of these as soon as it sees it.
    place.apply(&place.plain("fail:1")).await;
    let attempt = |pod: &Pod| {
        pod.annotation("apps.zhongmingmao.io/attempt") == Some("1") && pod.phase == "Failed"
    };
    place
        .until("a second pod on each", |s| {
            s.pods.len() == 2 && s.pods.iter().all(attempt)
        })
        .await;
    // The next pause is longer, and a new spec does not wait for it.
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &nodes).await;
    let moments = journal.moments().await;
    for node in &nodes {
        let pods = all_pods(&moments).into_iter();
        let failed = pods.filter(|pod| pod.node == *node && pod.image == "fail:1");
        let times: Vec<_> = failed.map(Pod::created).collect();
        for (pair, pause) in times.windows(2).zip([10, 20, 40]) {
            let pause = TimeDelta::seconds(pause);
            assert!(pair[1] - pair[0] >= pause, "{times:?}");
        }
    }
}

/// The controller makes pods on a node that is being drained as fast as they are evicted.
#[tokio::test]
async fn drain_and_the_operator_do_not_fight() {
    let place = Place::new("drain-fight", 2).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(2)).await;
    let journal = Journal::start(&place).await;
    let node = place.node(0);
    for _ in 0..2 {
        place
            .kubectl
            .run(&format!("drain {node} --timeout=60s"))
            .await
            .good();
    }
    place.served("a:1", &place.nodes(2)[1..]).await;
    let moments = journal.moments().await;
    assert_eq!(all_pods(&moments).len(), 2, "none was made");
    place.kubectl.run(&format!("uncordon {node}")).await.good();
    let after = place.served("a:1", &place.nodes(2)).await;
    assert_eq!(after.only(&node).name, before.only(&node).name);
}

/// On 5,000 nodes whose heartbeats the controller worked off one by one, a new node waited two hours.
#[tokio::test]
async fn bug_121474_heartbeats_do_not_keep_a_new_node_waiting() {
    let place = Place::new("bug-121474", 4).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(4)).await;
    let (enough, beats) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(place.client.clone());
    let storm = place.nodes(4).into_iter().map(|node| {
        let (nodes, enough, beats) = (nodes.clone(), enough.clone(), beats.clone());
        async move {
            while !enough.load(Ordering::Relaxed) {
                let now = Utc::now();
                let beat = json!({"status": {"conditions": [{"type": "MemoryPressure", "lastHeartbeatTime": now}]}});
                let patch = Patch::Strategic(beat);
                nodes.patch_status(&node, &PatchParams::default(), &patch).await.unwrap();
                beats.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let (client, version) = (&place, &before.object["metadata"]["resourceVersion"]);
    let calm = async {
        super::eventually("a storm", || async { beats.load(Ordering::Relaxed) > 100 }).await;
        let during = client.sight().await;
        let unwritten = during.object["metadata"]["resourceVersion"] == *version;
        // The storm goes on until the new node has its pod.
        client.add(client.fake(4)).await;
        client.served("a:1", &client.nodes(5)).await;
        enough.store(true, Ordering::Relaxed);
        unwritten
    };
    let (_, unwritten) = futures::join!(futures::future::join_all(storm), calm);
    assert!(unwritten, "heartbeats change nothing");
}
