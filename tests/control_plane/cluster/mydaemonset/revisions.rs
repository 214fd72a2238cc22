//! Revisions: kept as ControllerRevisions, found again, and in no other client's way.

use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{NAME_LABEL, Place, REVISION_LABEL, Sight, awkward, eventually, pending};
use crate::harness::record::Record;

/// Their images, the oldest first.
fn images(revisions: &[Value]) -> Vec<&str> {
    let images = revisions
        .iter()
        .map(|r| r["data"]["image"].as_str().unwrap());
    images.collect()
}

#[tokio::test]
async fn each_revision_is_kept_as_a_controller_revision_of_the_object() {
    let place = Place::new("revisions", 1).await;
    let nodes = place.nodes(1);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    let hash = sight.text("updateRevision");
    assert_eq!(sight.pods[0].revision, hash);
    let revisions = place.revisions().await;
    let [revision] = &revisions[..] else {
        panic!("{revisions:?}");
    };
    let metadata = &revision["metadata"];
    assert_eq!(metadata["name"], format!("x-{hash}"));
    assert_eq!(
        metadata["labels"],
        json!({NAME_LABEL: "x", REVISION_LABEL: hash, "app.kubernetes.io/managed-by": "my-operator"})
    );
    let owner = &metadata["ownerReferences"][0];
    assert_eq!(
        (&owner["uid"], &owner["controller"]),
        (&sight.object["metadata"]["uid"], &json!(true))
    );
    let spec = &sight.object["spec"];
    assert_eq!(
        revision["data"],
        json!({"image": spec["image"], "template": spec["template"]})
    );
    // What is not part of a pod makes no revision, and rolls nothing.
    let other = json!({"minReadySeconds": 1, "revisionHistoryLimit": 3, "updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}});
    place.apply(&place.with("a:1", &json!({}), &other)).await;
    let again = place.served("a:1", &nodes).await;
    assert_eq!(again.uids(), sight.uids());
    assert_eq!(place.revisions().await.len(), 1);
}

#[tokio::test]
async fn the_old_spec_again_is_the_old_revision_again() {
    let place = Place::new("undo", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let first = place.served("a:1", &nodes).await;
    place.apply(&place.plain("a:2")).await;
    place.served("a:2", &nodes).await;
    assert_eq!(images(&place.revisions().await), ["a:1", "a:2"]);
    place.apply(&place.plain("a:1")).await;
    let undone = place.served("a:1", &nodes).await;
    assert_eq!(undone.text("updateRevision"), first.text("updateRevision"));
    // It is the newest of the history now.
    assert_eq!(images(&place.revisions().await), ["a:2", "a:1"]);
}

#[tokio::test]
async fn an_annotation_of_the_template_restarts_every_pod() {
    let place = Place::new("restart", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    // As the page on MyDaemonSet shows it.
    let patch =
        "{\"spec\":{\"template\":{\"metadata\":{\"annotations\":{\"restarted-at\":\"now\"}}}}}";
    place
        .kubectl
        .run(&format!("patch mds/x --type=merge -p {patch}"))
        .await
        .good();
    let restarted = |s: &super::Sight| {
        s.pods
            .iter()
            .all(|p| p.serves() && p.annotation("restarted-at") == Some("now"))
    };
    place.until("the restart", restarted).await;
    let after = place.served("a:1", &nodes).await;
    assert!(
        before
            .pods
            .iter()
            .all(|old| after.pods.iter().all(|new| new.uid != old.uid))
    );
}

#[tokio::test]
async fn the_history_is_as_long_as_its_limit_and_keeps_what_is_in_use() {
    let place = Place::new("history", 2).await;
    let nodes = place.nodes(2);
    let limit = |held: u32| json!({"revisionHistoryLimit": 1, "updateStrategy": {"rollingUpdate": {"partition": held}}});
    for image in ["a:1", "a:2", "a:3"] {
        place.apply(&place.with(image, &json!({}), &limit(0))).await;
        place.served(image, &nodes).await;
    }
    eventually("the oldest to go", || async {
        images(&place.revisions().await) == ["a:2", "a:3"]
    })
    .await;
    // One that a node still has, and is to have again, stays beyond the limit.
    for image in ["a:4", "a:5", "a:6"] {
        place.apply(&place.with(image, &json!({}), &limit(1))).await;
        place
            .until(image, |s| {
                s.is_current() && s.only_serving(&nodes[0], image)
            })
            .await;
    }
    // Of the others, the one that every node had goes last.
    eventually("those in between to go", || async {
        images(&place.revisions().await) == ["a:2", "a:3", "a:6"]
    })
    .await;
}

#[tokio::test]
async fn a_patch_of_a_controller_revision_succeeds_whatever_it_holds() {
    let place = Place::new("canonical", 1).await;
    place
        .apply(&place.with("a:1", &awkward(), &json!({})))
        .await;
    place.served("a:1", &place.nodes(1)).await;
    let name = place.revisions().await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    place
        .kubectl
        .run(&format!("label controllerrevision/{name} looked=at"))
        .await
        .good();
    let api = place.api("apps", "v1", "ControllerRevision", "controllerrevisions");
    let patch = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"labels": {"by": "apply"}}, "revision": 1});
    api.patch(
        &name,
        &PatchParams::apply("test").force(),
        &Patch::Apply(patch),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_deleted_controller_revision_is_recreated() {
    let place = Place::new("revision-lost", 1).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(1)).await;
    let old = place.revisions().await[0]["metadata"].clone();
    let name = old["name"].as_str().unwrap();
    place
        .kubectl
        .run(&format!("delete controllerrevision/{name}"))
        .await
        .good();
    let back = async || {
        let revisions = place.revisions().await;
        matches!(&revisions[..], [one] if one["metadata"]["name"] == *name && one["metadata"]["uid"] != old["uid"])
    };
    eventually("the revision to come back", back).await;
    assert_eq!(
        place.served("a:1", &place.nodes(1)).await.uids(),
        before.uids()
    );
}

#[tokio::test]
async fn a_foreign_controller_revision_of_the_same_name_is_reported() {
    let place = Place::new("revision-taken", 1).await;
    place.apply(&place.plain("a:1")).await;
    let first = place.served("a:1", &place.nodes(1)).await;
    let name = place.revisions().await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    place.kubectl.run("delete mds/x").await.good();
    place
        .kubectl
        .until_gone(&format!("controllerrevision/{name}"))
        .await;
    let foreign = format!(
        "{{apiVersion: apps/v1, kind: ControllerRevision, metadata: {{name: {name}}}, data: {{its: own}}, revision: 1}}"
    );
    place.kubectl.apply(&foreign).await.good();
    place.apply(&place.plain("a:1")).await;
    let sight = place
        .until_condition("Degraded", "True/RevisionConflict")
        .await;
    assert!(sight.message("Degraded").contains(&name), "{sight}");
    assert_eq!(sight.condition("Stalled"), "True/RevisionConflict");
    // Another spec needs another name.
    place.apply(&place.plain("a:2")).await;
    let sight = place.served("a:2", &place.nodes(1)).await;
    assert_ne!(sight.text("updateRevision"), first.text("updateRevision"));
}

#[tokio::test]
async fn an_undo_in_the_middle_of_a_roll_out_restarts_no_pod() {
    let place = Place::new("undo-midway", 4).await;
    let nodes = place.nodes(4);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    place
        .apply(&place.with("a:2", &pending(), &json!({})))
        .await;
    place
        .until("the first new pod", |s| s.of_image("a:2") == 1)
        .await;
    place.apply(&place.plain("a:1")).await;
    let after = place.served("a:1", &nodes).await;
    let kept = |node: &&String| after.only(node).uid == before.only(node).uid;
    assert_eq!(nodes.iter().filter(kept).count(), 3, "{after}");
}

#[tokio::test]
async fn an_equal_revision_under_another_name_changes_no_pod() {
    let place = Place::new("revision-copy", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    let original = place.revisions().await[0].clone();
    let metadata = &original["metadata"];
    let copy = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": "x-copy", "labels": metadata["labels"], "ownerReferences": metadata["ownerReferences"]},
        "data": original["data"], "revision": 7,
    });
    place.kubectl.apply(&copy.to_string()).await.good();
    // What joins gets the one revision that there is.
    place.add(place.fake(2)).await;
    let after = place.served("a:1", &place.nodes(3)).await;
    assert_eq!(after.text("updateRevision"), before.text("updateRevision"));
    for node in &nodes {
        assert_eq!(after.only(node).uid, before.only(node).uid);
    }
    // Nor does a roll-out and its undo.
    for image in ["a:2", "a:1"] {
        place.apply(&place.plain(image)).await;
        place.served(image, &place.nodes(3)).await;
    }
    let undone = place.sight().await;
    assert_eq!(undone.text("updateRevision"), before.text("updateRevision"));
}

/// Every version of an object, as the API server stored it.
async fn record(place: &Place) -> Record<DynamicObject> {
    Record::start(place.sets()).await
}

/// Whether a version of the object had that condition.
fn had(record: &Record<DynamicObject>, condition: &str, reason: &str) -> bool {
    record.look(|events| {
        events.iter().any(|event| {
            let conditions = event.object.data["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|c| c["type"] == condition && c["reason"] == reason)
        })
    })
}

#[tokio::test]
async fn an_object_deleted_and_applied_again_at_once_gets_its_pods() {
    let place = Place::new("again", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let first = place.served("a:1", &nodes).await;
    let record = record(&place).await;
    let name = format!("controllerrevision/x-{}", first.text("updateRevision"));
    // The garbage collector of a large cluster comes late. Here a finalizer keeps the revision of the first object.
    let finalizers = async |list: Value| {
        let patch = json!({"metadata": {"finalizers": list}});
        let api = place.api("apps", "v1", "ControllerRevision", "controllerrevisions");
        let (_, name) = name.split_once('/').unwrap();
        let params = PatchParams::default();
        api.patch(name, &params, &Patch::Merge(patch))
            .await
            .unwrap();
    };
    let recreate = async || {
        let deletion = "delete mds/x --cascade=background";
        place.kubectl.run(deletion).await.good();
        place.apply(&place.plain("a:1")).await;
    };
    finalizers(json!(["example.com/keep"])).await;
    recreate().await;
    place
        .kubectl
        .until_any(&name, "{.metadata.deletionTimestamp}")
        .await;
    place
        .until("the new object to be seen", Sight::is_current)
        .await;
    place.witness("meanwhile").await;
    finalizers(Value::Null).await;
    let second = place.served("a:1", &nodes).await;
    for node in &nodes {
        assert_ne!(second.only(node).uid, first.only(node).uid);
    }
    // Without a finalizer the garbage collector and the operator race.
    for _ in 0..5 {
        recreate().await;
        place.served("a:1", &nodes).await;
    }
    assert!(!had(&record, "Degraded", "RevisionConflict"));
    assert!(!had(&record, "Stalled", "RevisionConflict"));
}
