//! A change of the spec that moves the pods to other nodes, or to none. It may be a slip of the pen.

use serde_json::{Value, json};

use super::journal::Journal;
use super::{Place, Pod, Sight, eventually};

/// A template for nodes with that disk.
fn disk(disk: &str) -> Value {
    json!({"spec": {"nodeSelector": {"disk": disk}}})
}

/// A place with so many nodes of each of two disks, the first ones with the first.
async fn place_with(pool: &str, ssd: usize, nvme: usize) -> Place {
    let place = Place::new(pool, 0).await;
    for number in 0..ssd + nvme {
        let disk = if number < ssd { "ssd" } else { "nvme" };
        place.add(place.fake(number).label("disk", disk)).await;
    }
    place
}

/// Keeps a pod in the API when it is deleted, until its finalizers are taken off.
async fn keep(place: &Place, pod: &Pod, kept: bool) {
    let finalizers = if kept {
        json!(["example.com/keep"])
    } else {
        Value::Null
    };
    let patch = json!({"metadata": {"finalizers": finalizers}});
    place.patch_pod(&pod.name, patch).await;
}

fn leaving(sight: &Sight) -> Vec<&Pod> {
    sight.pods.iter().filter(|pod| pod.leaving).collect()
}

#[tokio::test]
async fn a_new_selector_moves_the_pods_within_the_limits() {
    let place = place_with("moves", 3, 2).await;
    let nodes = place.nodes(5);
    place
        .apply(&place.with("a:1", &disk("ssd"), &json!({})))
        .await;
    let before = place.served("a:1", &nodes[..3]).await;
    for pod in &before.pods {
        keep(&place, pod, true).await;
    }
    place
        .apply(&place.with("a:1", &disk("nvme"), &json!({})))
        .await;
    // maxUnavailable is 1, so one pod goes at a time.
    for left in (0..3).rev() {
        let sight = place
            .until("the next pod to go", |s| leaving(s).len() == 1)
            .await;
        place.witness(&format!("meanwhile-{left}")).await;
        let gone = leaving(&sight)[0].clone();
        let sight = place.sight().await;
        let [one] = leaving(&sight)[..] else {
            panic!("{sight}");
        };
        assert_eq!(one.uid, gone.uid, "{sight}");
        let stays = |p: &&Pod| before.pods.iter().any(|b| b.uid == p.uid) && !p.leaving;
        assert_eq!(sight.pods.iter().filter(stays).count(), left, "{sight}");
        keep(&place, &gone, false).await;
        place
            .until("it to be gone", |s| {
                s.pods.iter().all(|p| p.uid != gone.uid)
            })
            .await;
    }
    place.served("a:1", &nodes[3..]).await;
}

/// As with a typo in a value, which no rule can find.
#[tokio::test]
async fn a_selector_that_matches_no_node_takes_no_pod_until_a_user_asks_for_it() {
    let place = Place::new("nowhere", 4).await;
    let nodes = place.nodes(4);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    for pod in &before.pods {
        keep(&place, pod, true).await;
    }
    place
        .apply(&place.with("a:1", &disk("sdd"), &json!({})))
        .await;
    let stands = place
        .until_condition("Progressing", "False/NoEligibleNodes")
        .await;
    let message = stands.message("Progressing");
    assert!(
        message.contains("nodeSelector does not match: 4"),
        "{message}"
    );
    assert_eq!(stands.condition("Stalled"), "True/NoEligibleNodes");
    place
        .kubectl
        .until_event("x", "that says so", |event| {
            event.starts_with("Warning NoEligibleNodes") && event.contains("4 nodes")
        })
        .await;
    place.witness("before").await;
    let sight = place.sight().await;
    assert_eq!((sight.pods.len(), leaving(&sight).len()), (4, 0), "{sight}");
    // Then they go one at a time.
    let revision = stands.text("updateRevision");
    let annotations = json!({"apps.zhongmingmao.io/resume-revision": revision});
    place
        .merge(json!({"metadata": {"annotations": annotations}}))
        .await;
    let sight = place
        .until("the first pod to go", |s| {
            s.is_current() && leaving(s).len() == 1
        })
        .await;
    place.witness("meanwhile").await;
    let after = place.sight().await;
    assert_eq!(leaving(&after).len(), 1, "{after}");
    assert_eq!(sight.pods.len(), 4, "{sight}");
    assert_ne!(after.condition("Progressing"), "False/Complete", "{after}");
    let message = after.message("Progressing");
    assert!(message.contains("nodeSelector does not match"), "{message}");
    place
        .kubectl
        .until_event("x", "that says how many nodes lose their pod", |event| {
            event.starts_with("Warning NodesExcluded") && event.contains("4 nodes")
        })
        .await;
    // The change is taken back before the others go.
    place.apply(&place.plain("a:1")).await;
    place.until("the undo to be seen", Sight::is_current).await;
    for pod in &before.pods {
        keep(&place, pod, false).await;
    }
    let served = place.served("a:1", &nodes).await;
    let kept = |node: &&String| served.only(node).uid == before.only(node).uid;
    assert_eq!(nodes.iter().filter(kept).count(), 3, "{served}");
}

/// Every pod that there was is on a node that its own selector matches: the kubelet rejects any other for ever.
async fn all_fit(place: &Place, journal: &Journal, ssd: usize) {
    let nodes = place.nodes(ssd);
    for moment in journal.moments().await {
        for pod in moment.values() {
            let selected = pod.json["spec"]["nodeSelector"]["disk"].as_str();
            let disk = if nodes.contains(&pod.node) {
                "ssd"
            } else {
                "nvme"
            };
            assert_eq!(selected, Some(disk), "{} on {}", pod.name, pod.node);
        }
    }
}

#[tokio::test]
async fn a_held_roll_out_moves_no_pod_to_other_nodes() {
    for (hold, pool) in [
        (json!({"paused": true}), "paused-moves"),
        (json!({"partition": 9}), "partition-moves"),
    ] {
        let place = place_with(pool, 2, 2).await;
        let nodes = place.nodes(4);
        let with = |disk: &str, hold: &Value| {
            let template = json!({"spec": {"nodeSelector": {"disk": disk}}});
            let spec = json!({"updateStrategy": {"rollingUpdate": hold}});
            place.with("a:1", &template, &spec)
        };
        place.apply(&with("ssd", &json!({}))).await;
        let before = place.served("a:1", &nodes[..2]).await;
        let journal = Journal::start(&place).await;
        place.apply(&with("nvme", &hold)).await;
        place
            .until("the change to be seen", Sight::is_current)
            .await;
        place.witness("meanwhile").await;
        let sight = place.sight().await;
        for node in &nodes[..2] {
            assert_eq!(sight.only(node).uid, before.only(node).uid, "{sight}");
        }
        // A held node that loses its pod gets one that fits it again.
        place.delete_pod(&before.only(&nodes[0]).name).await;
        let back = async || {
            let sight = place.sight().await;
            sight.only_serving(&nodes[0], "a:1")
                && sight.only(&nodes[0]).uid != before.only(&nodes[0]).uid
        };
        eventually("the pod of a held node", back).await;
        all_fit(&place, &journal, 2).await;
        place.apply(&with("nvme", &json!({}))).await;
        place.served("a:1", &nodes[2..]).await;
        all_fit(&place, &journal, 2).await;
    }
}
