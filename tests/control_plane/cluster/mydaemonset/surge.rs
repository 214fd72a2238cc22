//! A surge: the new pod first, and the old one goes when the new one is available.

use serde_json::json;

use super::journal::{Journal, Moment, most_alike, serving};
use super::{Place, pending};

/// The most nodes that have two pods at a moment, those aside that are about to go.
fn most_doubled(moments: &[Moment]) -> usize {
    let doubled = |moment: &Moment| {
        let staying = moment.values().filter(|pod| !pod.leaving);
        let mut nodes: Vec<&str> = staying.map(|pod| pod.node.as_str()).collect();
        let all = nodes.len();
        nodes.sort_unstable();
        nodes.dedup();
        all - nodes.len()
    };
    moments.iter().map(doubled).max().unwrap_or_default()
}

#[tokio::test]
async fn with_a_surge_the_new_pod_comes_first_and_no_node_is_ever_without() {
    let place = Place::new("surge", 5).await;
    let nodes = place.nodes(5);
    let two = json!({"maxSurge": 2, "maxUnavailable": 0});
    place.apply(&place.rolling("a:1", two.clone())).await;
    place.served("a:1", &nodes).await;
    let journal = Journal::start(&place).await;
    place.apply(&place.rolling("a:2", two)).await;
    place.served("a:2", &nodes).await;
    let moments = journal.moments().await;
    assert_eq!(moments.iter().map(serving).min(), Some(5));
    assert_eq!(most_doubled(&moments), 2, "maxSurge is used up and kept to");
    assert_eq!(most_alike(&moments, |pod| &pod.node), 2);
    assert_eq!(
        most_alike(&moments, |pod| &pod.revision),
        1,
        "of two revisions"
    );
}

#[tokio::test]
async fn an_old_pod_stays_until_the_new_one_was_ready_for_min_ready_seconds() {
    let place = Place::new("surge-min-ready", 1).await;
    let nodes = place.nodes(1);
    let spec = json!({
        "minReadySeconds": 3600,
        "updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    });
    place.apply(&place.with("a:1", &json!({}), &spec)).await;
    place
        .until("a ready pod", |s| s.serving("a:1").len() == 1)
        .await;
    place.apply(&place.with("a:2", &json!({}), &spec)).await;
    place
        .until("a ready pod", |s| s.serving("a:2").len() == 1)
        .await;
    place.witness("meanwhile").await;
    let sight = place.sight().await;
    assert_eq!(sight.pods.len(), 2, "{sight}");
    place.merge(json!({"spec": {"minReadySeconds": 1}})).await;
    place.served("a:2", &nodes).await;
}

#[tokio::test]
async fn a_new_pod_that_is_never_ready_costs_no_old_one() {
    let place = Place::new("surge-stuck", 3).await;
    let nodes = place.nodes(3);
    let surge = json!({"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    place.apply(&place.with("a:1", &json!({}), &surge)).await;
    place.served("a:1", &nodes).await;
    place.apply(&place.with("a:2", &pending(), &surge)).await;
    place.until("a new pod", |s| s.of_image("a:2") == 1).await;
    place.witness("meanwhile").await;
    let sight = place.sight().await;
    assert_eq!(
        (sight.serving("a:1").len(), sight.of_image("a:2")),
        (3, 1),
        "{sight}"
    );
    // Back again: the new pod goes, and the old ones never went.
    let journal = Journal::start(&place).await;
    place.apply(&place.with("a:1", &json!({}), &surge)).await;
    place.served("a:1", &nodes).await;
    assert_eq!(journal.least_serving().await, 3);
}

#[tokio::test]
async fn a_surge_goes_to_nodes_whose_old_pod_is_not_ready_as_well() {
    let place = Place::new("surge-unready", 2).await;
    let nodes = place.nodes(2);
    let surge = json!({"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    place.apply(&place.with("a:1", &pending(), &surge)).await;
    place.until("2 pods", |s| s.of_image("a:1") == 2).await;
    place.apply(&place.with("a:2", &json!({}), &surge)).await;
    place.served("a:2", &nodes).await;
}

#[tokio::test]
async fn limits_that_cannot_work_are_refused_at_apply() {
    let place = Place::new("surge-refused", 0).await;
    let ports = |port: serde_json::Value, host_network: bool| json!({"spec": {"hostNetwork": host_network, "containers": [{"name": "app", "ports": [port]}]}});
    let surge = json!({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}});
    let nothing =
        json!({"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}});
    let rolling = "spec.updateStrategy.rollingUpdate";
    for (template, spec, fault) in [
        (
            ports(json!({"containerPort": 80, "hostPort": 80}), false),
            &surge,
            "maxSurge: Forbidden: ",
        ),
        (
            ports(json!({"containerPort": 80}), true),
            &surge,
            "maxSurge: Forbidden: ",
        ),
        (
            json!({}),
            &nothing,
            "maxUnavailable: Invalid value: \"0%\": may not be 0 when maxSurge is 0",
        ),
    ] {
        let object = place.with("a:1", &template, spec);
        let text = place.kubectl.apply(&object.to_string()).await.bad();
        assert!(text.contains(&format!("{rolling}.{fault}")), "{text}");
    }
    // Without a host port there is nothing against it.
    let object = place.with("a:1", &ports(json!({"containerPort": 80}), false), &surge);
    place.kubectl.apply(&object.to_string()).await.good();
}
