//! A new revision reaches the nodes within the limits.

use chrono::{TimeDelta, Utc};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::journal::{Journal, most_alike, serving};
use super::{PENDING, Place, Pod, Sight, UNREADY, eventually, pending};
use crate::cluster::GRACE;
use crate::harness::time;

#[tokio::test]
async fn a_roll_out_replaces_every_pod_within_max_unavailable() {
    let place = Place::new("rolling", 6).await;
    let nodes = place.nodes(6);
    let two = json!({"maxUnavailable": 2});
    place.apply(&place.rolling("a:1", two.clone())).await;
    let old = place.served("a:1", &nodes).await;
    let journal = Journal::start(&place).await;
    place.apply(&place.rolling("a:2", two)).await;
    let new = place.served("a:2", &nodes).await;
    let moments = journal.moments().await;
    let least = moments.iter().map(serving).min();
    assert_eq!(least, Some(4), "two at a time, and never more");
    assert_eq!(most_alike(&moments, |pod| &pod.node), 1, "no surge");
    assert_ne!(old.text("updateRevision"), new.text("updateRevision"));
    assert_eq!(new.text("currentRevision"), new.text("updateRevision"));
    let names =
        |sight: &Sight| -> Vec<String> { sight.pods.iter().map(|p| p.name.clone()).collect() };
    assert!(names(&old).iter().all(|name| !names(&new).contains(name)));
}

#[tokio::test]
async fn the_default_is_one_node_at_a_time() {
    let place = Place::new("one-by-one", 3).await;
    let nodes = place.nodes(3);
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &nodes).await;
    let journal = Journal::start(&place).await;
    place.apply(&place.plain("a:2")).await;
    place.served("a:2", &nodes).await;
    assert_eq!(journal.least_serving().await, 2);
}

/// How many nodes get the new revision when its pods are never ready.
async fn reached(place: &Place, rolling: Value, wanted: usize) {
    place.apply(&place.rolling("a:1", rolling.clone())).await;
    place.served("a:1", &place.nodes(6)).await;
    let spec = json!({"updateStrategy": {"rollingUpdate": rolling}});
    place.apply(&place.with("a:2", &pending(), &spec)).await;
    place
        .until(format!("{wanted} new pods"), |s| {
            s.of_image("a:2") == wanted
        })
        .await;
}

/// The same by the built-in DaemonSet.
async fn reached_by_the_built_in_one(place: &Place, name: &str, rolling: Value, wanted: usize) {
    let sets = place.api("apps", "v1", "DaemonSet", "daemonsets");
    let labels = json!({"built-in": name});
    let set = |image: &str, annotations: Value| {
        let template = place.plain(image)["spec"]["template"]["spec"].clone();
        let mut spec = template;
        spec["containers"] = json!([{"name": "app", "image": image}]);
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": labels},
                "updateStrategy": {"rollingUpdate": rolling},
                "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
            },
        })
    };
    let params = PatchParams::apply("test").force();
    let applied = |object: Value| {
        let sets = sets.clone();
        let params = params.clone();
        async move {
            let patch = Patch::Apply(&object);
            sets.patch(name, &params, &patch).await.unwrap();
        }
    };
    applied(set("a:1", json!({}))).await;
    let pods = place.api("", "v1", "Pod", "pods");
    let count = |image: &'static str, ready: bool| {
        let pods = pods.clone();
        async move {
            let ours = ListParams::default().labels(&format!("built-in={name}"));
            let list = pods.list(&ours).await.unwrap().items;
            let list = list.into_iter().map(Pod::of);
            list.filter(|p| p.image == image && p.serves() == ready)
                .count()
        }
    };
    super::eventually("the built-in pods", || async {
        count("a:1", true).await == 6
    })
    .await;
    applied(set("a:2", json!({PENDING.0: PENDING.1}))).await;
    super::eventually("its new pods", || async {
        count("a:2", false).await == wanted
    })
    .await;
}

#[tokio::test]
async fn percentages_are_rounded_as_the_built_in_daemon_set_does() {
    let place = Place::new("percent", 6).await;
    // Both round up: 20 % of 6 are 1.2, and so 2 nodes. Nothing but the end of the roll-out would
    // bring more, so what was reached is looked at again after all of it.
    let cases = [
        ("unavailable", json!({"maxUnavailable": "20%"}), 2),
        ("surge", json!({"maxUnavailable": 0, "maxSurge": "51%"}), 4),
    ];
    for (name, rolling, wanted) in &cases {
        reached(&place.called(name), rolling.clone(), *wanted).await;
    }
    for (name, rolling, wanted) in &cases {
        reached_by_the_built_in_one(&place, name, rolling.clone(), *wanted).await;
    }
    for (name, _, wanted) in &cases {
        let sight = place.called(name).sight().await;
        assert_eq!(sight.of_image("a:2"), *wanted, "{name}: {sight}");
    }
}

#[tokio::test]
async fn max_unavailable_counts_nodes_that_are_unavailable_for_any_reason() {
    let place = Place::new("any-reason", 4).await;
    let nodes = place.nodes(4);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    // The roll-out passes over a cordoned node, whose pod is not ready for a reason of its own.
    let ailing = sight.only(&nodes[3]).name.clone();
    place.cordon(3, true).await;
    place.annotate(&ailing, UNREADY.0, Some(UNREADY.1)).await;
    place
        .until("3 ready pods", |s| s.count("numberReady") == 3)
        .await;
    place.apply(&place.plain("a:2")).await;
    place
        .until_condition("Progressing", "True/RollingOut")
        .await;
    place.witness("meanwhile").await;
    let sight = place.sight().await;
    assert_eq!(sight.of_image("a:1"), 4, "the budget is used up: {sight}");
    place.annotate(&ailing, UNREADY.0, None).await;
    place
        .until("all but the cordoned one", |s| s.serving("a:2").len() == 3)
        .await;
    place.cordon(3, false).await;
    place.served("a:2", &nodes).await;
}

/// kubernetes/kubernetes#123232: when all old pods are unready for a while, the whole fleet must not get a revision that
/// no node has shown to work.
#[tokio::test]
async fn bug_123232_old_pods_that_are_not_ready_go_first_and_no_faster_than_they_are_proven() {
    let place = Place::new("unready-first", 4).await;
    let nodes = place.nodes(4);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    for node in &nodes[1..] {
        let pod = &sight.only(node).name;
        place.annotate(pod, UNREADY.0, Some(UNREADY.1)).await;
    }
    place
        .until("1 ready pod", |s| s.count("numberReady") == 1)
        .await;
    let journal = Journal::start(&place).await;
    // The new pods do not become ready either.
    place
        .apply(&place.with("a:2", &pending(), &json!({})))
        .await;
    let sight = place
        .until("one to be replaced", |s| s.of_image("a:2") == 1)
        .await;
    place.witness("meanwhile").await;
    let after = place.sight().await;
    assert_eq!(after.uids(), sight.uids());
    assert_eq!(after.serving("a:1"), [nodes[0].as_str()]);
    assert_eq!(journal.least_serving().await, 1);
    // With pods that do, it goes on with the others.
    place.apply(&place.plain("a:3")).await;
    place.served("a:3", &nodes).await;
    assert!(journal.least_serving().await >= 1);
}

#[tokio::test]
async fn a_change_soon_after_a_change_takes_no_more_pods_down_than_one_alone() {
    let place = Place::new("soon-after", 4).await;
    // None of the pods is old enough to be available before this test is over.
    let patient = json!({"minReadySeconds": 3600});
    let template = json!({});
    place.apply(&place.with("a:1", &template, &patient)).await;
    place
        .until("4 ready pods", |s| s.serving("a:1").len() == 4)
        .await;
    let journal = Journal::start(&place).await;
    for image in ["a:2", "a:3", "a:4"] {
        place.apply(&place.with(image, &template, &patient)).await;
        place
            .until(image, |s| s.is_current() && s.of_image(image) > 0)
            .await;
    }
    place.witness("meanwhile").await;
    assert_eq!(journal.least_serving().await, 3);
}

#[tokio::test]
async fn a_new_pod_counts_when_it_was_ready_for_min_ready_seconds() {
    let place = Place::new("min-ready", 3).await;
    let nodes = place.nodes(3);
    let spec = json!({"minReadySeconds": 2});
    place.apply(&place.with("a:1", &json!({}), &spec)).await;
    place.served("a:1", &nodes).await;
    place.apply(&place.with("a:2", &json!({}), &spec)).await;
    let sight = place.served("a:2", &nodes).await;
    let mut pods: Vec<_> = sight
        .pods
        .iter()
        .map(|pod| {
            let conditions = pod.json["status"]["conditions"].as_array().unwrap();
            let ready = conditions.iter().find(|c| c["type"] == "Ready").unwrap();
            (
                pod.created(),
                time(ready["lastTransitionTime"].as_str().unwrap()),
            )
        })
        .collect();
    pods.sort();
    for pair in pods.windows(2) {
        // The API writes times to the second.
        let pause = pair[1].0 - pair[0].1;
        assert!(pause >= TimeDelta::seconds(1), "{pods:?}");
    }
    let first = pods[0].0;
    assert!(pods[2].0 - first >= TimeDelta::seconds(3), "{pods:?}");
}

#[tokio::test]
async fn missing_pods_are_made_whatever_the_limits() {
    let place = Place::new("missing", 3).await;
    let nodes = place.nodes(3);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    for pod in &sight.pods {
        place.delete_pod(&pod.name).await;
    }
    let again = place.served("a:1", &nodes).await;
    let names = |s: &Sight| -> Vec<String> { s.pods.iter().map(|p| p.name.clone()).collect() };
    assert_eq!(
        names(&sight),
        names(&again),
        "node and revision are the same"
    );
    assert_ne!(sight.uids(), again.uids());
}

#[tokio::test]
async fn a_new_spec_in_the_midst_of_a_roll_out_leaves_no_pod_of_the_one_between() {
    let place = Place::new("midst", 4).await;
    let nodes = place.nodes(4);
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &nodes).await;
    let journal = Journal::start(&place).await;
    place
        .apply(&place.with("a:2", &pending(), &json!({})))
        .await;
    place
        .until("a pod of a:2", |s| s.of_image("a:2") == 1)
        .await;
    // Back to the first spec: three nodes have it already.
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &nodes).await;
    assert_eq!(journal.least_serving().await, 3);
    let moments = journal.moments().await;
    let deleted = moments[0]
        .keys()
        .filter(|uid| !moments[moments.len() - 1].contains_key(*uid));
    assert_eq!(deleted.count(), 1, "only one node was touched");
}

#[tokio::test]
async fn a_silent_node_counts_for_its_grace_and_is_updated_when_it_is_back() {
    let place = Place::new("silent", 3).await;
    let nodes = place.nodes(3);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    let journal = Journal::start(&place).await;
    let silent_since = Utc::now();
    place.go_down(&sight, 0).await;
    place.apply(&place.plain("a:2")).await;
    // It never had the new revision, so nothing speaks against that.
    let rolled = |s: &Sight| {
        s.is_current()
            && s.condition("Progressing") == "False/Complete"
            && s.serving("a:2").len() == 2
            && s.message("Progressing")
                .contains(&format!("NotReady: {}", nodes[0]))
    };
    let after = place.until("the roll-out", rolled).await;
    // Nothing could replace its pod, whose containers may serve.
    assert_eq!(after.only(&nodes[0]).uid, sight.only(&nodes[0]).uid);
    let moments = journal.moments().await;
    let new = moments.iter().flat_map(|moment| moment.values());
    let new = new.filter(|pod| pod.image == "a:2" && pod.node != nodes[0]);
    let first = new.map(Pod::created).min().unwrap();
    // The API server records creation times in whole seconds.
    assert!(
        first - silent_since >= GRACE - TimeDelta::seconds(1),
        "{silent_since} {first}"
    );
    place.silence(0, false).await;
    place.served("a:2", &nodes).await;
}

#[tokio::test]
async fn a_roll_out_that_has_reached_no_node_is_not_complete() {
    let place = Place::new("unreached", 1).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(1)).await;
    place.go_down(&before, 0).await;
    place.apply(&place.plain("a:2")).await;
    // The limits leave the node out by now.
    let silent = Utc::now();
    let lost = async || Utc::now() - silent > GRACE + TimeDelta::seconds(1);
    eventually("the grace of the node to pass", lost).await;
    place.witness("meanwhile").await;
    let sight = place.sight().await;
    assert_ne!(sight.condition("Progressing"), "False/Complete", "{sight}");
    assert_eq!(sight.text("currentRevision"), before.text("updateRevision"));
    assert_eq!(sight.uids(), before.uids());
    place.silence(0, false).await;
    let after = place.served("a:2", &place.nodes(1)).await;
    assert_eq!(after.text("currentRevision"), after.text("updateRevision"));
}
