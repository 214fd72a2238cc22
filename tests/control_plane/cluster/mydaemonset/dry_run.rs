//! Before the first Ready pod goes for a new revision, one of it is tried as a dry run.

use serde_json::json;

use super::Place;

#[tokio::test]
async fn a_pod_that_would_be_refused_costs_no_old_one() {
    let place = Place::new("dry-run", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    let unknown = json!({"spec": {"hostNetwrok": true}});
    let invalid = json!({"spec": {"dnsPolicy": "Sometimes"}});
    for (template, words) in [(&unknown, "spec.hostNetwrok"), (&invalid, "spec.dnsPolicy")] {
        place.apply(&place.with("a:2", template, &json!({}))).await;
        let sight = place
            .until(words, |s| {
                s.is_current() && s.message("Degraded").contains(words)
            })
            .await;
        assert_eq!(sight.condition("Degraded"), "True/PodRefused");
        place.witness("meanwhile").await;
        assert_eq!(place.sight().await.uids(), before.uids(), "{words}");
    }
    place.apply(&place.plain("a:3")).await;
    let sight = place.served("a:3", &nodes).await;
    assert_eq!(sight.condition("Degraded"), "False/NoPodFails");
}

#[tokio::test]
async fn a_full_quota_does_not_keep_pods_from_being_replaced() {
    let place = Place::new("full-quota", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &nodes).await;
    let quota =
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: full}, spec: {hard: {pods: '2'}}}";
    place.kubectl.apply(quota).await.good();
    place
        .kubectl
        .until_field("resourcequota/full", "{.status.used.pods}", "2")
        .await;
    // The quota allows the new pod once the old one is gone.
    place.apply(&place.plain("a:2")).await;
    place.served("a:2", &nodes).await;
}
