//! A MyDaemonSet that is deleted: by owner references, in every way that kubectl has.

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
