//! The operator works with `kubectl drain` and with PodDisruptionBudgets.

use super::{Place, Sight, UNREADY};

#[tokio::test]
async fn a_drained_nodes_pod_stays_away_until_uncordon() {
    let place = Place::new("drain", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    let said = place
        .kubectl
        .run(&format!("drain {} --timeout=60s", nodes[0]))
        .await
        .good();
    assert!(
        said.contains(&format!("pod/{} evicted", before.only(&nodes[0]).name)),
        "{said}"
    );
    let sight = place.served("a:1", &nodes[1..]).await;
    assert_eq!(sight.only(&nodes[1]).uid, before.only(&nodes[1]).uid);
    // Not even a new spec brings it back.
    place.apply(&place.plain("a:2")).await;
    place.served("a:2", &nodes[1..]).await;
    place
        .kubectl
        .run(&format!("uncordon {}", nodes[0]))
        .await
        .good();
    place.served("a:2", &nodes).await;
}

#[tokio::test]
async fn a_pod_selector_spares_the_pods_when_a_node_is_drained() {
    let place = Place::new("drain-spared", 1).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(1)).await;
    let spare = format!(
        "drain {} --pod-selector=team!=a --timeout=60s",
        place.node(0)
    );
    place.kubectl.run(&spare).await.good();
    place.witness("meanwhile").await;
    assert_eq!(place.sight().await.uids(), before.uids());
}

#[tokio::test]
async fn a_budget_with_an_integer_min_available_is_honoured_by_drain() {
    let place = Place::new("budget", 3).await;
    let nodes = place.nodes(3);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    let budget = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: two}, \
         spec: {minAvailable: 2, selector: {matchLabels: {apps.zhongmingmao.io/mydaemonset: x}}}}";
    place.kubectl.apply(budget).await.good();
    let allowed = "{.status.disruptionsAllowed}";
    place.kubectl.until_field("pdb/two", allowed, "1").await;
    place
        .kubectl
        .run(&format!("drain {} --timeout=60s", nodes[0]))
        .await
        .good();
    place.kubectl.until_field("pdb/two", allowed, "0").await;
    let text = place
        .kubectl
        .run(&format!("drain {} --timeout=2s", nodes[1]))
        .await
        .bad();
    assert!(
        text.contains("would violate the pod's disruption budget"),
        "{text}"
    );
    let sight = place.sight().await;
    assert_eq!(sight.only(&nodes[1]).uid, before.only(&nodes[1]).uid);
    place
        .kubectl
        .run(&format!("uncordon {}", nodes[0]))
        .await
        .good();
    place.kubectl.until_field("pdb/two", allowed, "1").await;
    // The next drain evicts its pod as soon as the budget allows it.
    place
        .kubectl
        .run(&format!("drain {} --timeout=60s", nodes[1]))
        .await
        .good();
    place
        .served("a:1", &[nodes[0].clone(), nodes[2].clone()])
        .await;
}

#[tokio::test]
async fn a_node_drained_in_the_midst_of_a_roll_out_is_not_waited_for() {
    let place = Place::new("drain-rolling", 3).await;
    let nodes = place.nodes(3);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    // The roll-out stands at a node whose old pod must not go yet.
    let ailing = sight.only(&nodes[2]).name.clone();
    place.cordon(2, true).await;
    place.annotate(&ailing, UNREADY.0, Some(UNREADY.1)).await;
    place
        .until("one less", |s| s.count("numberReady") == 2)
        .await;
    place.apply(&place.plain("a:2")).await;
    place
        .until("the new spec to be seen", Sight::is_current)
        .await;
    place
        .kubectl
        .run(&format!("drain {} --timeout=60s", nodes[2]))
        .await
        .good();
    place.served("a:2", &nodes[..2]).await;
    place.cordon(2, false).await;
    place.served("a:2", &nodes).await;
}
