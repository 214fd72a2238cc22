//! What holds a roll-out back: partition, paused, OnDelete, and the roll-out that stops by itself.

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

use super::journal::Journal;
use super::{Place, Sight, UNREADY, container, eventually, first_of, pending, waiting};

#[tokio::test]
async fn a_partition_holds_the_last_nodes_by_name() {
    let place = Place::new("partition", 4).await;
    let nodes = place.nodes(4);
    let last = |nodes: u32| json!({"partition": nodes});
    place.apply(&place.rolling("a:1", last(3))).await;
    let first = place.served("a:1", &nodes).await;
    place.apply(&place.rolling("a:2", last(3))).await;
    let sight = place
        .until("the first node", |s| {
            s.condition("Progressing") == "False/Partitioned" && s.only_serving(&nodes[0], "a:2")
        })
        .await;
    assert_eq!(sight.serving("a:1"), [&nodes[1], &nodes[2], &nodes[3]]);
    assert_eq!(sight.text("currentRevision"), first.text("updateRevision"));
    place
        .until("the count", |s| s.count("updatedNumberScheduled") == 1)
        .await;
    // A held node that loses its pod gets its own revision again.
    let held = sight.only(&nodes[3]).clone();
    place.delete_pod(&held.name).await;
    let back =
        |s: &Sight| matches!(s.on(&nodes[3])[..], [pod] if pod.serves() && pod.uid != held.uid);
    let sight = place.until("the pod to come back", back).await;
    assert_eq!(sight.only(&nodes[3]).revision, held.revision);
    assert_eq!(sight.only(&nodes[3]).image, "a:1");
    // A new node never had another one: it gets the newest, though it is the last by name. The API
    // server records creation times in whole seconds.
    let now = Utc::now();
    let later = async || Utc::now() - now > TimeDelta::seconds(1);
    eventually("a second to pass", later).await;
    place.add(place.fake(4)).await;
    let sight = place
        .until("the new node's", |s| s.on(&place.node(4)).len() == 1)
        .await;
    assert_eq!(sight.only(&place.node(4)).image, "a:2");
    // Step by step.
    place.apply(&place.rolling("a:2", last(2))).await;
    let sight = place.until("1 more", |s| s.serving("a:2").len() == 3).await;
    assert_eq!(sight.serving("a:1"), [&nodes[2], &nodes[3]]);
    place.apply(&place.rolling("a:2", last(0))).await;
    place.served("a:2", &place.nodes(5)).await;
}

#[tokio::test]
async fn a_node_held_for_two_revisions_gets_its_own_and_no_other_again() {
    let place = Place::new("held-twice", 2).await;
    let nodes = place.nodes(2);
    let held = json!({"partition": 1});
    for image in ["a:1", "a:2", "a:3"] {
        place.apply(&place.rolling(image, held.clone())).await;
        place
            .until(image, |s| {
                s.is_current() && s.only_serving(&nodes[0], image)
            })
            .await;
    }
    let old = place.sight().await.only(&nodes[1]).clone();
    assert_eq!(old.image, "a:1");
    place.delete_pod(&old.name).await;
    let sight = place
        .until("the pod to come back", |s| {
            s.only_serving(&nodes[1], "a:1") && s.only(&nodes[1]).uid != old.uid
        })
        .await;
    assert_eq!(sight.only(&nodes[1]).name, old.name);
}

#[tokio::test]
async fn paused_holds_every_node_and_makes_missing_pods_all_the_same() {
    let place = Place::new("paused", 3).await;
    let nodes = place.nodes(3);
    let paused = |paused: bool| json!({"paused": paused});
    place.apply(&place.rolling("a:1", paused(false))).await;
    let before = place.served("a:1", &nodes).await;
    place.apply(&place.rolling("a:2", paused(true))).await;
    let sight = place.until_condition("Progressing", "False/Paused").await;
    assert_eq!(sight.uids(), before.uids());
    // Neither an unready pod nor a lost one is a reason to go on.
    let [unready, lost] = [sight.only(&nodes[0]).clone(), sight.only(&nodes[1]).clone()];
    place
        .annotate(&unready.name, UNREADY.0, Some(UNREADY.1))
        .await;
    place.delete_pod(&lost.name).await;
    place
        .until("the pod to come back", |s| s.only_serving(&nodes[1], "a:1"))
        .await;
    assert_eq!(place.sight().await.only(&nodes[0]).uid, unready.uid);
    // A pause in the midst of a roll-out: what was begun is not undone.
    let mut slow = place.rolling("a:2", paused(false));
    slow["spec"]["minReadySeconds"] = 3600.into();
    place.apply(&slow).await;
    place.until("a first pod", |s| s.of_image("a:2") > 0).await;
    slow["spec"]["updateStrategy"]["rollingUpdate"]["paused"] = true.into();
    place.apply(&slow).await;
    let sight = place.until_condition("Progressing", "False/Paused").await;
    assert!((1..3).contains(&sight.of_image("a:2")), "{sight}");
    place.apply(&place.rolling("a:2", paused(false))).await;
    place.served("a:2", &nodes).await;
}

#[tokio::test]
async fn with_on_delete_a_pod_is_replaced_when_a_user_deletes_it() {
    let place = Place::new("on-delete", 3).await;
    let nodes = place.nodes(3);
    let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
    place
        .apply(&place.with("a:1", &json!({}), &on_delete))
        .await;
    let before = place.served("a:1", &nodes).await;
    place
        .apply(&place.with("a:2", &json!({}), &on_delete))
        .await;
    let sight = place.until_condition("Progressing", "False/OnDelete").await;
    assert_eq!(sight.uids(), before.uids());
    place.delete_pod(&before.only(&nodes[1]).name).await;
    let sight = place
        .until("the new one", |s| {
            s.only_serving(&nodes[1], "a:2") && s.count("updatedNumberScheduled") == 1
        })
        .await;
    assert_eq!(sight.only(&nodes[0]).uid, before.only(&nodes[0]).uid);
    for node in [0, 2] {
        place.delete_pod(&before.only(&nodes[node]).name).await;
    }
    let sight = place.served("a:2", &nodes).await;
    assert_eq!(sight.text("currentRevision"), sight.text("updateRevision"));
}

#[tokio::test]
async fn a_revision_that_fails_on_its_first_node_stops_by_itself() {
    let place = Place::new("auto-pause", 3).await;
    let nodes = place.nodes(3);
    let begin = async |place: &Place| {
        place.apply(&place.plain("a:1")).await;
        place.served("a:1", &nodes).await;
    };
    let cases = [
        (
            "no-secret",
            container(0, waiting("CreateContainerConfigError")),
        ),
        ("no-name", container(0, waiting("InvalidImageName"))),
        ("crash", container(1, waiting("CrashLoopBackOff"))),
        ("restarts", container(2, json!({"running": {}}))),
        (
            "failed",
            json!({"phase": "Failed", "reason": "UnexpectedAdmissionError"}),
        ),
    ];
    let all = cases.into_iter().map(|(name, status)| {
        let place = place.called(name);
        let (nodes, begin) = (&nodes, &begin);
        async move {
            begin(&place).await;
            let journal = Journal::start(&place).await;
            place
                .apply(&place.with("b:1", &pending(), &json!({})))
                .await;
            let bad = first_of(&place, "b:1").await;
            place.set_status(&bad.name, status).await;
            let sight = place
                .until_condition("Progressing", "False/AutoPaused")
                .await;
            let message = sight.message("Progressing");
            assert!(message.contains(&bad.node), "{name}: {message}");
            let others = nodes.iter().filter(|node| **node != bad.node);
            assert!(
                !others.clone().any(|node| message.contains(node.as_str())),
                "{name}: {message}"
            );
            assert_eq!(sight.condition("Stalled"), "True/AutoPaused");
            place.witness(&format!("witness-{name}")).await;
            let sight = place.sight().await;
            assert_eq!(sight.serving("a:1").len(), 2, "{name}: {sight}");
            assert_eq!(journal.least_serving().await, 2, "{name}");
        }
    });
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn a_node_that_falls_silent_after_it_got_a_revision_stops_it() {
    let place = Place::new("silent-culprit", 3).await;
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &place.nodes(3)).await;
    // The API says to the second what was first: the node was Ready, then it got its pod, then it failed.
    let a_second = async || {
        let now = Utc::now();
        let later = async || Utc::now() - now > TimeDelta::seconds(1);
        eventually("a second to pass", later).await;
    };
    a_second().await;
    place
        .apply(&place.with("b:1", &pending(), &json!({})))
        .await;
    let bad = first_of(&place, "b:1").await;
    a_second().await;
    let number = place.nodes(3).iter().position(|node| *node == bad.node);
    place.silence(number.unwrap(), true).await;
    let sight = place
        .until_condition("Progressing", "False/AutoPaused")
        .await;
    assert!(sight.message("Progressing").contains(&bad.node), "{sight}");
    place.silence(number.unwrap(), false).await;
    place.apply(&place.plain("a:2")).await;
    place.served("a:2", &place.nodes(3)).await;
}

#[tokio::test]
async fn an_auto_paused_roll_out_continues_when_it_is_resumed_or_the_spec_changes() {
    let place = Place::new("resume", 3).await;
    let nodes = place.nodes(3);
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &nodes).await;
    let bad = place.with("b:1", &pending(), &json!({}));
    place.apply(&bad).await;
    let culprit = first_of(&place, "b:1").await;
    let crash = || container(0, waiting("InvalidImageName"));
    place.set_status(&culprit.name, crash()).await;
    let stopped = place
        .until_condition("Progressing", "False/AutoPaused")
        .await;
    // It stays stopped, and keeps its reason, when the node recovers.
    let key = super::PENDING.0;
    place.annotate(&culprit.name, key, None).await;
    place
        .until("the pod to recover, and the status to say so", |s| {
            s.serving("b:1").len() == 1 && s.count("numberReady") == 3
        })
        .await;
    place.witness("recovered").await;
    let sight = place.sight().await;
    assert_eq!(sight.condition("Progressing"), "False/AutoPaused");
    assert_eq!(sight.message("Progressing"), stopped.message("Progressing"));
    // Applying an equal spec again does not resume it.
    place.apply(&bad).await;
    place.witness("again").await;
    let again = place.sight().await;
    assert_eq!(again.object["metadata"], sight.object["metadata"]);
    // Nor is a resumption of another revision.
    let resume = |revision: &str| json!({"metadata": {"annotations": {"apps.zhongmingmao.io/resume-revision": revision}}});
    place.merge(resume(stopped.text("currentRevision"))).await;
    place.witness("wrong").await;
    let sight = place.sight().await;
    assert_eq!(sight.condition("Progressing"), "False/AutoPaused");
    assert_eq!(sight.of_image("b:1"), 1, "{sight}");
    // To resume it, a user names the revision.
    place.merge(resume(stopped.text("updateRevision"))).await;
    let second = place
        .until("a second pod", |s| s.of_image("b:1") == 2)
        .await;
    let second = second
        .pods
        .iter()
        .find(|p| p.image == "b:1" && p.uid != culprit.uid)
        .unwrap();
    // From now on the roll-out does not stop by itself.
    place.set_status(&second.name, crash()).await;
    place
        .until("the failure to be seen", |s| {
            s.condition("Degraded") == "True/PodsFail"
        })
        .await;
    place.witness("resumed").await;
    assert_eq!(
        place.sight().await.condition("Progressing"),
        "True/RollingOut"
    );
    // A new revision is judged for itself.
    place.apply(&place.plain("a:2")).await;
    place.served("a:2", &nodes).await;
    let worse = place.with("b:2", &pending(), &json!({}));
    place.apply(&worse).await;
    let culprit = first_of(&place, "b:2").await;
    place.set_status(&culprit.name, crash()).await;
    place
        .until_condition("Progressing", "False/AutoPaused")
        .await;
    place.apply(&place.plain("a:3")).await;
    let sight = place.served("a:3", &nodes).await;
    assert_eq!(sight.condition("Stalled"), "");
    // Events reported all of it.
    let reported = async || {
        let story = place.kubectl.run("describe mds/x").await.good();
        ["AutoPaused", "RolloutStarted", "RolloutComplete"]
            .iter()
            .all(|word| story.contains(word))
    };
    eventually("the Events", reported).await;
}

#[tokio::test]
async fn fewer_failing_nodes_than_max_unavailable_do_not_stop_a_roll_out() {
    let place = Place::new("one-of-two", 4).await;
    let nodes = place.nodes(4);
    let two = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}});
    place.apply(&place.with("a:1", &json!({}), &two)).await;
    place.served("a:1", &nodes).await;
    // The new pods wait for this test, one of them for ever.
    place.apply(&place.with("b:1", &pending(), &two)).await;
    let bad = first_of(&place, "b:1").await;
    place
        .set_status(&bad.name, container(3, waiting("CrashLoopBackOff")))
        .await;
    let mut good = 0;
    while good < 3 {
        let waits = |p: &&super::Pod| p.image == "b:1" && p.uid != bad.uid && !p.ready;
        let sight = place
            .until("another pod", |s| s.pods.iter().any(|p| waits(&p)))
            .await;
        let pod = sight.pods.iter().find(waits).unwrap();
        place.annotate(&pod.name, super::PENDING.0, None).await;
        good += 1;
        place
            .until("it to be ready", |s| s.serving("b:1").len() == good)
            .await;
    }
    let sight = place.until_condition("Degraded", "True/PodsFail").await;
    assert_ne!(sight.condition("Progressing"), "False/AutoPaused");
    // A second one does. What the first node had before must have been available.
    place.apply(&place.with("a:2", &json!({}), &two)).await;
    place.served("a:2", &nodes).await;
    place.apply(&place.with("b:2", &pending(), &two)).await;
    for _ in 0..2 {
        let fresh =
            |p: &&super::Pod| p.image == "b:2" && p.json["status"]["containerStatuses"].is_null();
        let sight = place
            .until("another pod", |s| s.pods.iter().any(|p| fresh(&p)))
            .await;
        let pod = sight.pods.iter().find(fresh).unwrap();
        place
            .set_status(&pod.name, container(3, waiting("CrashLoopBackOff")))
            .await;
    }
    place
        .until_condition("Progressing", "False/AutoPaused")
        .await;
}

#[tokio::test]
async fn a_partitions_step_is_not_over_before_its_new_pods_are_available() {
    let place = Place::new("partition-step", 3).await;
    let partition = json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}});
    place
        .apply(&place.with("a:1", &json!({}), &partition))
        .await;
    place.served("a:1", &place.nodes(3)).await;
    place
        .apply(&place.with("a:2", &pending(), &partition))
        .await;
    let new = first_of(&place, "a:2").await;
    place
        .until("the new pod to be counted", |s| {
            s.is_current() && s.count("updatedNumberScheduled") == 1
        })
        .await;
    place.witness("meanwhile").await;
    let sight = place.sight().await;
    assert_eq!(sight.condition("Progressing"), "True/RollingOut");
    assert!(sight.message("Progressing").contains(&new.node), "{sight}");
    place.annotate(&new.name, super::PENDING.0, None).await;
    place
        .until_condition("Progressing", "False/Partitioned")
        .await;
}

#[tokio::test]
async fn a_joining_node_releases_no_node_from_the_partition() {
    let place = Place::new("partition-join", 5).await;
    let nodes = place.nodes(5);
    let held = json!({"partition": 3});
    place.apply(&place.rolling("a:1", held.clone())).await;
    place.served("a:1", &nodes).await;
    place.apply(&place.rolling("a:2", held)).await;
    let sight = place
        .until("the first two", |s| s.serving("a:2").len() == 2)
        .await;
    assert_eq!(sight.serving("a:1"), [&nodes[2], &nodes[3], &nodes[4]]);
    // They are the last by name, and get the newest revision.
    for number in [7, 8, 9] {
        place.add(place.fake(number)).await;
        let node = place.node(number);
        place
            .until("its pod", |s| s.only_serving(&node, "a:2"))
            .await;
    }
    let sight = place
        .until("all to be counted", |s| {
            s.count("updatedNumberScheduled") == 5 && s.count("desiredNumberScheduled") == 8
        })
        .await;
    assert_eq!(sight.condition("Progressing"), "False/Partitioned");
    place.witness("meanwhile").await;
    let after = place.sight().await;
    assert_eq!(after.uids(), sight.uids());
    assert_eq!(after.serving("a:1"), [&nodes[2], &nodes[3], &nodes[4]]);
    assert_ne!(after.text("currentRevision"), after.text("updateRevision"));
}

/// A set that tolerates everything, as one of a network plugin, runs on a node before that is Ready.
fn tolerant() -> Value {
    json!({"spec": {"tolerations": [{"operator": "Exists"}]}})
}

#[tokio::test]
async fn a_node_that_joins_does_not_stop_a_roll_out() {
    let place = Place::new("joins-midway", 3).await;
    let mut unfinished = pending();
    json_patch::merge(&mut unfinished, &tolerant());
    place
        .apply(&place.with("a:1", &tolerant(), &json!({})))
        .await;
    place.served("a:1", &place.nodes(3)).await;
    place
        .apply(&place.with("a:2", &unfinished, &json!({})))
        .await;
    let first = first_of(&place, "a:2").await;
    // Node and pod mostly have the same creation time: the API server cuts it to whole seconds.
    for number in 3..8 {
        place.add(place.fake(number).not_ready()).await;
        let node = place.node(number);
        place.until("its pod", |s| s.on(&node).len() == 1).await;
    }
    place.witness("meanwhile").await;
    let sight = place.sight().await;
    assert_eq!(sight.condition("Progressing"), "True/RollingOut", "{sight}");
    // Nor do they when they become Ready.
    for number in 3..8 {
        place.silence(number, false).await;
    }
    for pod in &sight.pods {
        if pod.image == "a:2" && pod.uid != first.uid {
            place.annotate(&pod.name, super::PENDING.0, None).await;
        }
    }
    place
        .until("the new nodes", |s| s.serving("a:2").len() == 5)
        .await;
    let sight = place.sight().await;
    assert_eq!(sight.condition("Progressing"), "True/RollingOut", "{sight}");
    place
        .apply(&place.with("a:3", &tolerant(), &json!({})))
        .await;
    place.served("a:3", &place.nodes(8)).await;
}

#[tokio::test]
async fn neither_a_cordon_nor_a_change_of_the_strategy_lifts_an_auto_pause() {
    let place = Place::new("pause-lifted", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    let bad = place.with("b:1", &pending(), &json!({}));
    place.apply(&bad).await;
    let failed = first_of(&place, "b:1").await;
    let crash = container(0, waiting("InvalidImageName"));
    place.set_status(&failed.name, crash).await;
    place
        .until_condition("Progressing", "False/AutoPaused")
        .await;
    // The failing node recovers, and the only one with the old revision is cordoned.
    place.annotate(&failed.name, super::PENDING.0, None).await;
    let old = usize::from(failed.node == nodes[0]);
    place.cordon(old, true).await;
    place
        .until("the recovery", |s| s.count("numberReady") == 2)
        .await;
    place.witness("cordoned").await;
    let sight = place.sight().await;
    assert_eq!(sight.condition("Progressing"), "False/AutoPaused");
    place.cordon(old, false).await;
    place.witness("uncordoned").await;
    // OnDelete and back.
    let on_delete = json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}});
    place
        .apply(&place.with("b:1", &pending(), &on_delete))
        .await;
    place.until("OnDelete to be seen", Sight::is_current).await;
    place.apply(&bad).await;
    place
        .until("RollingUpdate to be seen", Sight::is_current)
        .await;
    place.witness("and-back").await;
    let sight = place.sight().await;
    assert_eq!(sight.condition("Progressing"), "False/AutoPaused");
    assert_eq!(sight.only(&nodes[old]).uid, before.only(&nodes[old]).uid);
}
