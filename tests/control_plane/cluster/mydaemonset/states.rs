//! A MyDaemonSet in each state that GitOps tools judge (`contrib/argocd`).

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Place, Sight, UNREADY, container, first_of, pending, waiting};
use crate::states::{MYDAEMONSET, same};

/// Changes the spec, waits until its roll-out is held for that reason with so many nodes updated, and compares.
async fn held(place: &Place, spec: Value, reason: &str, updated: usize, state: &str) {
    place.merge(json!({"spec": spec})).await;
    let is = |s: &Sight| {
        s.is_current()
            && s.condition("Progressing") == format!("False/{reason}")
            && s.count("updatedNumberScheduled") == updated
            && s.count("numberAvailable") == 3
    };
    let sight = place.until(reason, is).await;
    same(&sight.object, MYDAEMONSET, state);
}

#[tokio::test]
async fn argo_cd_is_shown_a_mydaemonset_as_it_is_in_each_state() {
    let place = Place::new("states", 3).await;
    let nodes = place.nodes(3);
    let crash = || container(5, waiting("CrashLoopBackOff"));

    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    same(&sight.object, MYDAEMONSET, "complete");

    let paused = json!({"image": "a:2", "updateStrategy": {"rollingUpdate": {"paused": true}}});
    held(&place, paused, "Paused", 0, "paused").await;
    let partition = json!({"updateStrategy": {"rollingUpdate": {"paused": false, "partition": 2}}});
    held(&place, partition, "Partitioned", 1, "partitioned").await;
    let strategy = json!({"type": "OnDelete", "rollingUpdate": null});
    let on_delete = json!({"image": "a:3", "updateStrategy": strategy});
    held(&place, on_delete, "OnDelete", 0, "on_delete").await;

    let rolling = json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}});
    place.merge(rolling).await;
    let sight = place.served("a:3", &nodes).await;
    for node in &nodes[..2] {
        let pod = &sight.only(node).name;
        place.annotate(pod, UNREADY.0, Some(UNREADY.1)).await;
    }
    let sight = place
        .until("two nodes without", |s| {
            s.count("numberAvailable") == 1
                && s.condition("Available") == "False/TooFewNodesAvailable"
        })
        .await;
    same(&sight.object, MYDAEMONSET, "unavailable");
    let pod = &sight.only(&nodes[0]).name;
    place.set_status(pod, crash()).await;
    let sight = place.until_condition("Degraded", "True/PodsFail").await;
    same(&sight.object, MYDAEMONSET, "degraded");

    place.merge(json!({"spec": {"image": "a:4"}})).await;
    place.served("a:4", &nodes).await;
    // The answer to a change shows the object before the operator has seen it.
    let patch = Patch::Merge(json!({"spec": {"image": "a:5", "template": pending()}}));
    let (sets, params) = (place.sets(), PatchParams::default());
    let changed = sets.patch(&place.name, &params, &patch).await.unwrap();
    let changed = serde_json::to_value(changed).unwrap();
    same(&changed, MYDAEMONSET, "changed");
    let sight = place
        .until("the first node", |s| {
            let message = s.message("Reconciling");
            s.is_current()
                && s.count("currentNumberScheduled") == 3
                && s.count("numberReady") == 2
                && s.count("updatedNumberScheduled") == 1
                && !message.contains("Terminating")
        })
        .await;
    same(&sight.object, MYDAEMONSET, "rolling");
    let bad = first_of(&place, "a:5").await;
    place.set_status(&bad.name, crash()).await;
    let sight = place
        .until("the auto-pause", |s| {
            s.condition("Progressing") == "False/AutoPaused"
                && s.condition("Degraded") == "True/PodsFail"
        })
        .await;
    same(&sight.object, MYDAEMONSET, "auto_paused");

    let template = json!({"metadata": {"annotations": null}, "spec": {"hostNetwrok": true}});
    let refused = json!({"spec": {"image": "a:6", "template": template}});
    place.merge(refused).await;
    let sight = place
        .until("the refusal", |s| {
            s.is_current()
                && s.condition("Progressing") == "True/RollingOut"
                && s.condition("Degraded") == "True/PodRefused"
        })
        .await;
    same(&sight.object, MYDAEMONSET, "refused");
}
