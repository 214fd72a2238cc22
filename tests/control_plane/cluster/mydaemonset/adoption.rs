//! Pods without an owner are adopted, and pods that lose our label are released.

use serde_json::{Value, json};

use super::journal::{Journal, most_alike, serving};
use super::{NAME_LABEL, Place, Pod, REVISION_LABEL, Sight};

/// Two nodes or more whose pods were orphaned.
async fn orphaned(pool: &str, nodes: usize) -> (Place, Sight) {
    let place = Place::new(pool, nodes).await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &place.nodes(nodes)).await;
    place
        .kubectl
        .run("delete mds/x --cascade=orphan --timeout=90s")
        .await
        .good();
    (place, sight)
}

fn is_owned(object: &Value, owner: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|o| {
        o["uid"] == owner["metadata"]["uid"]
            && o["controller"] == true
            && o["blockOwnerDeletion"] == true
    })
}

#[tokio::test]
async fn orphans_of_the_same_spec_are_adopted_as_they_are() {
    let (place, before) = orphaned("adopt", 2).await;
    let journal = Journal::start(&place).await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &place.nodes(2)).await;
    let owned = |s: &Sight| s.pods.iter().all(|pod| is_owned(&pod.json, &s.object));
    let sight = if owned(&sight) {
        sight
    } else {
        place.until("owners", owned).await
    };
    assert_eq!(sight.uids(), before.uids(), "the very same pods");
    let moments = journal.moments().await;
    assert_eq!(moments.iter().map(serving).min(), Some(2));
    assert_eq!(most_alike(&moments, |pod| &pod.node), 1);
    let revisions = place.revisions().await;
    assert_eq!(revisions.len(), 1, "{revisions:?}");
    assert!(is_owned(&revisions[0], &sight.object));
    // They go with their new owner.
    place.kubectl.run("delete mds/x").await.good();
    place.until("the pods to go", |s| s.pods.is_empty()).await;
}

#[tokio::test]
async fn orphans_of_another_spec_are_adopted_and_rolled_within_the_limits() {
    let (place, before) = orphaned("adopt-roll", 4).await;
    let journal = Journal::start(&place).await;
    place.apply(&place.plain("a:2")).await;
    let sight = place.served("a:2", &place.nodes(4)).await;
    assert!(
        sight
            .pods
            .iter()
            .all(|pod| before.pods.iter().all(|old| old.uid != pod.uid))
    );
    let moments = journal.moments().await;
    assert_eq!(moments.iter().map(serving).min(), Some(3));
    assert_eq!(most_alike(&moments, |pod| &pod.node), 1);
}

/// Creates a copy of a pod with another name and those owners.
async fn copy(place: &Place, pod: &Pod, name: &str, owners: Value) {
    let mut copy = pod.json.clone();
    let labels = &pod.json["metadata"]["labels"];
    copy["metadata"] = json!({"name": name, "labels": labels, "ownerReferences": owners});
    copy.as_object_mut().unwrap().remove("status");
    let copy = serde_json::from_value(copy).unwrap();
    let params = kube::api::PostParams::default();
    place.pods_api().create(&params, &copy).await.unwrap();
}

#[tokio::test]
async fn a_pod_with_another_controller_is_never_touched() {
    let place = Place::new("others", 2).await;
    place
        .kubectl
        .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}")
        .await
        .good();
    let uid = place
        .kubectl
        .field("configmap/owner", "{.metadata.uid}")
        .await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true}]);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &place.nodes(2)).await;
    copy(&place, &sight.pods[0], "anothers", owner).await;
    place
        .until("the other's pod to run", |s| {
            s.pods.iter().any(|p| p.name == "anothers" && p.ready)
        })
        .await;
    let before = place.kubectl.field("pod/anothers", "{.metadata}").await;
    place.apply(&place.plain("a:2")).await;
    let replaced = |s: &Sight| {
        s.is_current()
            && s.pods.len() == 3
            && s.serving("a:2").len() == 2
            && s.condition("Progressing") == "False/Complete"
    };
    place.until("the roll-out", replaced).await;
    assert_eq!(
        place.kubectl.field("pod/anothers", "{.metadata}").await,
        before
    );
    place.kubectl.run("delete mds/x").await.good();
    place.until("its own to go", |s| s.pods.len() == 1).await;
    assert_eq!(
        place.kubectl.field("pod/anothers", "{.metadata}").await,
        before
    );
}

#[tokio::test]
async fn a_pod_that_loses_our_label_loses_its_owner_and_stays() {
    let place = Place::new("release", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    let taken = sight.only(&nodes[0]).clone();
    let label = json!({"metadata": {"labels": {NAME_LABEL: null, "mine": "now"}}});
    place.patch_pod(&taken.name, label).await;
    let pod = format!("pod/{}", taken.name);
    place
        .kubectl
        .until_absent(&pod, "{.metadata.ownerReferences}")
        .await;
    // Its name is in the way of the pod that the node should have.
    let sight = place.until_condition("Degraded", "True/NameConflict").await;
    assert!(sight.message("Degraded").contains(&taken.name), "{sight}");
    assert_eq!(
        place.kubectl.field(&pod, "{.metadata.uid}").await,
        taken.uid
    );
    assert_eq!(sight.only(&nodes[1]).image, "a:1");
    place.kubectl.run(&format!("delete {pod}")).await.good();
    let sight = place.served("a:1", &nodes).await;
    assert_eq!(sight.condition("Degraded"), "False/NoPodFails");
    assert_eq!(sight.only(&nodes[0]).name, taken.name);
}

#[tokio::test]
async fn a_free_pod_of_another_set_or_without_a_revision_is_not_adopted() {
    let place = Place::new("free", 1).await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &place.nodes(1)).await;
    let mut pod = sight.pods[0].clone();
    pod.json["metadata"]["labels"][NAME_LABEL] = "y".into();
    copy(&place, &pod, "of-y", json!([])).await;
    pod.json["metadata"]["labels"][NAME_LABEL] = "x".into();
    pod.json["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove(REVISION_LABEL);
    copy(&place, &pod, "no-revision", json!([])).await;
    place.apply(&place.plain("a:2")).await;
    place
        .until("the roll-out", |s| {
            s.is_current() && s.serving("a:2").len() == 1
        })
        .await;
    place.witness("meanwhile").await;
    for name in ["of-y", "no-revision"] {
        let pod = format!("pod/{name}");
        place
            .kubectl
            .absent(&pod, "{.metadata.ownerReferences}")
            .await;
        assert_eq!(place.kubectl.field(&pod, "{.metadata.name}").await, name);
    }
}

#[tokio::test]
async fn a_pod_that_loses_its_owner_is_adopted_again() {
    let place = Place::new("owner-lost", 1).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(1)).await;
    let orphan = json!({"metadata": {"ownerReferences": null}});
    place.patch_pod(&before.pods[0].name, orphan).await;
    let owned = |s: &Sight| s.pods.iter().all(|pod| is_owned(&pod.json, &s.object));
    let after = place.until("its owner", owned).await;
    assert_eq!(after.uids(), before.uids());
}

#[tokio::test]
async fn a_free_pod_is_adopted_when_it_gets_our_labels() {
    let place = Place::new("labels-late", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    // A cordoned node is not given a pod, and counts while it has one.
    let first = sight.only(&nodes[0]).clone();
    place.cordon(0, true).await;
    place.delete_pod(&first.name).await;
    place.served("a:1", &nodes[1..]).await;
    let mut bare = first.clone();
    bare.json["metadata"]["labels"] = json!({"team": "a"});
    copy(&place, &bare, "late", json!([])).await;
    place.witness("meanwhile").await;
    place.served("a:1", &nodes[1..]).await;
    let labels = json!({"metadata": {"labels": first.json["metadata"]["labels"]}});
    place.patch_pod("late", labels).await;
    let sight = place.served("a:1", &nodes).await;
    let owned = |s: &Sight| s.pods.iter().all(|pod| is_owned(&pod.json, &s.object));
    assert!(owned(&sight), "{sight}");
    assert_eq!(sight.only(&nodes[0]).name, "late");
}

#[tokio::test]
async fn a_pod_without_a_node_is_left_alone() {
    let place = Place::new("no-node", 1).await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &place.nodes(1)).await;
    let mut unbound = sight.pods[0].clone();
    let spec = unbound.json["spec"].as_object_mut().unwrap();
    spec.remove("nodeName");
    // The scheduler waits for this gate.
    spec.insert(
        "schedulingGates".to_owned(),
        json!([{"name": "example.com/gate"}]),
    );
    let owners = unbound.json["metadata"]["ownerReferences"].clone();
    for (name, owners) in [("unbound", json!([])), ("unbound-owned", owners)] {
        copy(&place, &unbound, name, owners).await;
    }
    place.apply(&place.plain("a:2")).await;
    let sight = place
        .until("the roll-out", |s| {
            s.only_serving(&place.node(0), "a:2") && s.condition("Progressing") == "False/Complete"
        })
        .await;
    assert_eq!(sight.count("desiredNumberScheduled"), 1);
    assert_eq!(sight.condition("Degraded"), "False/NoPodFails");
    let unbound = sight.on("");
    assert_eq!(unbound.len(), 2, "{sight}");
    assert!(unbound.iter().all(|pod| !pod.leaving), "{sight}");
}
