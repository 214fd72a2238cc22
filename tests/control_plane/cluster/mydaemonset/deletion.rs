//! A MyDaemonSet that is deleted: by owner references, in every way that kubectl has.

use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::{Place, eventually};

/// What is left of pods and revisions in the namespace, without what a test made itself.
async fn left(place: &Place) -> usize {
    let revisions = place.revisions().await;
    place.pods().await.len() + revisions.len()
}

#[tokio::test]
async fn deleted_in_the_background_or_foreground_it_takes_pods_and_revisions_along() {
    let place = Place::new("deleted", 2).await;
    let nodes = place.nodes(2);
    for cascade in ["background", "foreground"] {
        for image in ["a:1", "a:2"] {
            place.apply(&place.plain(image)).await;
            place.served(image, &nodes).await;
        }
        let delete = format!("delete mds/x --cascade={cascade} --timeout=90s");
        place.kubectl.run(&delete).await.good();
        eventually("everything to go", || async { left(&place).await == 0 }).await;
    }
}

#[tokio::test]
async fn an_orphaning_delete_does_not_hang_and_leaves_pods_and_revisions() {
    let place = Place::new("orphans", 2).await;
    let nodes = place.nodes(2);
    for image in ["a:1", "a:2"] {
        place
            .apply(&place.with(image, &super::awkward(), &serde_json::json!({})))
            .await;
        place.served(image, &nodes).await;
    }
    let before = place.sight().await;
    place
        .kubectl
        .run("delete mds/x --cascade=orphan --timeout=90s")
        .await
        .good();
    place.witness("meanwhile").await;
    let sight = place.sight().await;
    assert!(sight.object.is_null());
    assert_eq!(sight.uids(), before.uids());
    let mine = place
        .revisions()
        .await
        .into_iter()
        .filter(|r| r["data"]["image"] != "witness:1");
    let mine: Vec<_> = mine.collect();
    assert_eq!(mine.len(), 2, "{mine:?}");
    let free = |object: &serde_json::Value| object["metadata"]["ownerReferences"].is_null();
    assert!(sight.pods.iter().all(|pod| free(&pod.json)));
    assert!(mine.iter().all(free));
}

#[tokio::test]
async fn a_collection_is_deleted_by_label_with_its_pods() {
    let place = Place::new("collection", 1).await;
    let nodes = place.nodes(1);
    for (name, label) in [("x", "go"), ("y", "go"), ("z", "stay")] {
        let place = place.called(name);
        let mut object = place.plain("a:1");
        object["metadata"]["labels"] = json!({"it": label});
        place.apply(&object).await;
        place.served("a:1", &nodes).await;
    }
    let labels = ListParams::default().labels("it=go");
    let sets = place.sets();
    sets.delete_collection(&DeleteParams::default(), &labels)
        .await
        .unwrap();
    for name in ["x", "y"] {
        let place = place.called(name);
        place
            .until("all of it to go", |s| {
                s.object.is_null() && s.pods.is_empty()
            })
            .await;
    }
    place.called("z").served("a:1", &nodes).await;
}
