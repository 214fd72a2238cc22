//! Which nodes speak against a revision, and which do not.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Place, Sight, UNREADY, container, first_of, pending, waiting};
use crate::disruption;
use crate::disruption::kills::kill;
use crate::harness::{Kubectl, Operator, operator_kubeconfig};

/// The annotation of a pod that says what it replaced.
const PREDECESSOR: &str = "apps.zhongmingmao.io/predecessor";

/// How long pods have to become available, in seconds, where none will.
const DEADLINE: u32 = 5;

/// A manifest with that image, whose pods have so long to become available.
fn impatient(place: &Place, image: &str, template: &Value) -> Value {
    place.with(
        image,
        template,
        &json!({"progressDeadlineSeconds": DEADLINE}),
    )
}

/// A manifest of a roll-out that goes on beside one unavailable node, and that one failed node stops.
fn touchy(place: &Place, image: &str, template: &Value) -> Value {
    let mut object = place.rolling(
        image,
        json!({"maxUnavailable": 2, "autoPause": {"maxFailures": 1}}),
    );
    json_patch::merge(&mut object["spec"]["template"], template);
    object
}

#[tokio::test]
async fn a_node_that_was_broken_before_stops_nothing() {
    let place = Place::new("broken-before", 3).await;
    let nodes = place.nodes(3);
    place.apply(&touchy(&place, "a:1", &json!({}))).await;
    let sight = place.served("a:1", &nodes).await;
    let broken = &sight.only(&nodes[0]).name;
    let crash = || container(5, waiting("CrashLoopBackOff"));
    place.annotate(broken, UNREADY.0, Some(UNREADY.1)).await;
    place.set_status(broken, crash()).await;
    place
        .until("2 ready pods", |s| s.count("numberReady") == 2)
        .await;
    place.apply(&touchy(&place, "b:1", &pending())).await;
    // The unready one goes first, and its successor fails as it did.
    let here = |s: &Sight| s.on(&nodes[0]).iter().any(|pod| pod.image == "b:1");
    let sight = place.until("its successor", here).await;
    let bad = sight.only(&nodes[0]);
    let before = bad.annotation(PREDECESSOR);
    assert!(
        before.is_some_and(|text| text.starts_with("unavailable since ")),
        "{before:?}"
    );
    place.set_status(&bad.name, crash()).await;
    for node in &nodes[1..] {
        let here = |s: &Sight| matches!(s.on(node)[..], [pod] if pod.image == "b:1");
        let sight = place.until("the next node", here).await;
        let pod = sight.only(node);
        assert_eq!(pod.annotation(PREDECESSOR), Some("available"));
        place.annotate(&pod.name, super::PENDING.0, None).await;
    }
    let sight = place
        .until("the others", |s| s.serving("b:1").len() == 2)
        .await;
    assert_eq!(sight.condition("Progressing"), "True/RollingOut", "{sight}");
}

#[tokio::test]
async fn a_restart_forgets_nothing_about_a_node_that_was_broken_before() {
    let cluster = disruption::cluster().await;
    let namespace = cluster.namespace("broken-restart").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let place = Place::within(kubectl, "broken-restart", 3).await;
    let kubeconfig = operator_kubeconfig(cluster).await;
    let namespaces = ["--namespace", &namespace];
    let flags = [
        &["--webhooks=false", "--kinds=mydaemonset"][..],
        &namespaces,
    ]
    .concat();
    let start = |name| Operator::spawn(cluster, name, &kubeconfig, &flags);
    let operator = start("broken-restart-1");
    let nodes = place.nodes(3);
    place.apply(&impatient(&place, "a:1", &json!({}))).await;
    let sight = place.served("a:1", &nodes).await;
    let broken = &sight.only(&nodes[0]).name;
    place.annotate(broken, UNREADY.0, Some(UNREADY.1)).await;
    place
        .until("2 ready pods", |s| s.count("numberReady") == 2)
        .await;
    // The broken node goes first, and stays so. With maxUnavailable 1, the others follow once it had its time.
    place.apply(&impatient(&place, "b:1", &pending())).await;
    let here = |s: &Sight| s.on(&nodes[0]).iter().any(|pod| pod.image == "b:1");
    place.until("its successor", here).await;
    kill(&operator).await;
    let operator = start("broken-restart-2");
    for count in 1..=2 {
        let good = |s: &Sight| {
            let pods = s
                .pods
                .iter()
                .filter(|pod| pod.image == "b:1" && pod.node != nodes[0]);
            pods.map(|pod| pod.name.clone()).collect::<Vec<_>>()
        };
        let sight = place
            .until("the next node", |s| good(s).len() == count)
            .await;
        for pod in good(&sight) {
            place.annotate(&pod, super::PENDING.0, None).await;
        }
    }
    let sight = place.until_condition("Progressing", "False/Complete").await;
    assert_eq!(sight.serving("b:1"), nodes[1..], "{sight}");
    let message = sight.message("Progressing");
    assert!(message.contains(&nodes[0]), "{message}");
    operator.process.stop(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_node_that_leaves_with_its_new_pod_stops_nothing() {
    let place = Place::new("leaves", 3).await;
    let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    place.apply(&place.with("a:1", &tolerant, &json!({}))).await;
    place.served("a:1", &place.nodes(3)).await;
    let mut slow = pending();
    json_patch::merge(&mut slow, &tolerant);
    place.apply(&place.with("b:1", &slow, &json!({}))).await;
    let first = first_of(&place, "b:1").await;
    let number = (0..3)
        .find(|number| place.node(*number) == first.node)
        .unwrap();
    place.silence(number, true).await;
    place.witness("silent").await;
    place
        .kubectl
        .cluster
        .remove_node(&first.node)
        .await
        .unwrap();
    place.apply(&place.with("b:1", &tolerant, &json!({}))).await;
    let rest: Vec<String> = place
        .nodes(3)
        .into_iter()
        .filter(|node| *node != first.node)
        .collect();
    place.served("b:1", &rest).await;
}

#[tokio::test]
async fn an_evicted_pod_stops_nothing() {
    let place = Place::new("evicted", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &nodes).await;
    place
        .apply(&place.with("b:1", &pending(), &json!({})))
        .await;
    let first = first_of(&place, "b:1").await;
    let disrupted =
        json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"});
    let status = json!({"phase": "Failed", "reason": "Evicted", "conditions": [disrupted]});
    place.set_status(&first.name, status).await;
    place.until_condition("Degraded", "True/PodsFail").await;
    place.witness("meanwhile").await;
    let sight = place.sight().await;
    assert_eq!(sight.condition("Progressing"), "True/RollingOut", "{sight}");
    place.apply(&place.plain("b:1")).await;
    place.served("b:1", &nodes).await;
}

#[tokio::test]
async fn a_joining_node_whose_pods_fail_stops_nothing() {
    let place = Place::new("joins-failing", 2).await;
    place.apply(&touchy(&place, "a:1", &json!({}))).await;
    place.served("a:1", &place.nodes(2)).await;
    let mut bad = touchy(&place, "b:1", &pending());
    bad["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 1.into();
    place.apply(&bad).await;
    let first = first_of(&place, "b:1").await;
    // It is Ready before it gets its pod, as with any set that does not tolerate a node that is not.
    place.add(place.fake(2)).await;
    let node = place.node(2);
    let sight = place.until("its pod", |s| s.on(&node).len() == 1).await;
    let pod = &sight.only(&node).name;
    let crash = container(3, waiting("CrashLoopBackOff"));
    place.set_status(pod, crash).await;
    place.until_condition("Degraded", "True/PodsFail").await;
    place.annotate(&first.name, super::PENDING.0, None).await;
    place
        .until("the first node", |s| s.serving("b:1").len() == 1)
        .await;
    place.apply(&touchy(&place, "b:1", &pending())).await;
    place
        .until("the second node", |s| s.of_image("b:1") == 3)
        .await;
    place
        .until_condition("Progressing", "True/RollingOut")
        .await;
    place.apply(&place.plain("a:2")).await;
    place.served("a:2", &place.nodes(3)).await;
}

#[tokio::test]
async fn a_revision_that_is_never_ready_stops_at_its_deadline() {
    let place = Place::new("never-ready", 2).await;
    let nodes = place.nodes(2);
    place.apply(&impatient(&place, "a:1", &json!({}))).await;
    let before = place.served("a:1", &nodes).await;
    place.apply(&impatient(&place, "b:1", &pending())).await;
    let bad = first_of(&place, "b:1").await;
    let sight = place
        .until_condition("Progressing", "False/AutoPaused")
        .await;
    assert_eq!(sight.condition("Stalled"), "True/AutoPaused");
    assert_eq!(
        sight.object["status"]["failedNodes"],
        json!([{"name": bad.node, "reason": "NotAvailable"}])
    );
    let good = nodes.iter().find(|node| **node != bad.node).unwrap();
    assert_eq!(sight.only(good).uid, before.only(good).uid);
}

#[tokio::test]
async fn an_auto_pause_can_be_tuned_and_switched_off() {
    let cases = [
        ("off", json!({"enabled": false}), "True/RollingOut"),
        ("two", json!({"maxFailures": 2}), "True/RollingOut"),
        ("one", json!({"maxFailures": 1}), "False/AutoPaused"),
    ];
    let all = cases.map(|(name, auto_pause, expected)| async move {
        let place = Place::new(&format!("tuned-{name}"), 3).await;
        let two = json!({"maxUnavailable": 2, "autoPause": auto_pause});
        place.apply(&place.rolling("a:1", two.clone())).await;
        place.served("a:1", &place.nodes(3)).await;
        let mut bad = place.rolling("b:1", two);
        json_patch::merge(&mut bad["spec"]["template"], &pending());
        place.apply(&bad).await;
        let first = first_of(&place, "b:1").await;
        let wrong_name = container(0, waiting("InvalidImageName"));
        place.set_status(&first.name, wrong_name).await;
        place.until_condition("Degraded", "True/PodsFail").await;
        place.witness("meanwhile").await;
        let sight = place.sight().await;
        assert_eq!(sight.condition("Progressing"), expected, "{name}: {sight}");
    });
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn complete_names_the_nodes_that_keep_an_older_revision() {
    let place = Place::new("keeps", 3).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(3)).await;
    place.taint(2, "maintenance", "", "NoSchedule").await;
    place.apply(&place.plain("a:2")).await;
    let sight = place.until_condition("Progressing", "False/Complete").await;
    let node = place.node(2);
    let message = sight.message("Progressing");
    assert!(
        message.contains(&format!("taint not tolerated: {node}")),
        "{message}"
    );
    assert_eq!(sight.only(&node).uid, before.only(&node).uid);
}

#[tokio::test]
async fn a_template_that_tolerates_cordons_keeps_its_pods_on_cordoned_nodes() {
    let place = Place::new("cordon-tolerated", 1).await;
    let tolerations = json!([{"operator": "Exists"}]);
    let template = json!({"spec": {"tolerations": tolerations}});
    place.apply(&place.with("a:1", &template, &json!({}))).await;
    let before = place.served("a:1", &place.nodes(1)).await;
    place.cordon(0, true).await;
    place.delete_pod(&before.pods[0].name).await;
    let again = |s: &Sight| s.only_serving(&place.node(0), "a:1") && s.uids() != before.uids();
    place.until("the pod to come back", again).await;
    place.apply(&place.with("a:2", &template, &json!({}))).await;
    place.served("a:2", &place.nodes(1)).await;
}
