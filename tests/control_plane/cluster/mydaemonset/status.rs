//! What users and tools see.

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Place, Sight, UNREADY, eventually, pending};
use crate::harness::try_wait;

#[tokio::test]
async fn counts_follow_nodes_and_pods() {
    let place = Place::new("counts", 3).await;
    let nodes = place.nodes(3);
    let slow = json!({"minReadySeconds": 3600});
    let fields = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "numberMisscheduled",
    ];
    let until = async |what: &str, counts: [usize; 7]| {
        let all = |s: &Sight| {
            fields
                .iter()
                .zip(counts)
                .all(|(field, n)| s.count(field) == n)
        };
        let sight = place.until(what, |s| s.is_current() && all(s)).await;
        assert_eq!(
            sight.count("availableReplicas"),
            counts[4],
            "the field of old"
        );
    };
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    until("all of them", [3, 3, 3, 3, 3, 0, 0]).await;
    let pod = sight.only(&nodes[0]).name.clone();
    place.annotate(&pod, UNREADY.0, Some(UNREADY.1)).await;
    until("one unready", [3, 3, 2, 3, 2, 1, 0]).await;
    place.annotate(&pod, UNREADY.0, None).await;
    place.apply(&place.with("a:1", &json!({}), &slow)).await;
    until("ready, and not available yet", [3, 3, 3, 3, 0, 3, 0]).await;
    place
        .apply(&place.with("a:1", &json!({}), &json!({"minReadySeconds": 0})))
        .await;
    until("all of them again", [3, 3, 3, 3, 3, 0, 0]).await;
    place.taint(2, "key", "", "NoSchedule").await;
    until("one misplaced", [2, 2, 2, 2, 2, 0, 1]).await;
    place
        .apply(&place.with("a:2", &pending(), &json!({})))
        .await;
    until("one updated", [2, 2, 1, 1, 1, 1, 1]).await;
}

#[tokio::test]
async fn conditions_say_whether_it_is_accepted_available_and_under_way() {
    let place = Place::new("conditions", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    for (type_, state) in [
        ("Accepted", "True/Valid"),
        ("Available", "True/EnoughNodesAvailable"),
        ("Progressing", "False/Complete"),
        ("Degraded", "False/NoPodFails"),
        // kstatus takes both for work or trouble: they are not there at rest.
        ("Reconciling", ""),
        ("Stalled", ""),
    ] {
        assert_eq!(sight.condition(type_), state, "{type_}");
    }
    place
        .apply(&place.with("a:2", &pending(), &json!({})))
        .await;
    let sight = place
        .until("the first node", |s| {
            s.count("numberReady") == 1 && s.of_image("a:2") == 1
        })
        .await;
    assert_eq!(sight.condition("Progressing"), "True/RollingOut");
    assert_eq!(sight.condition("Reconciling"), "True/RollingOut");
    // One of two is what a roll-out may take down.
    assert_eq!(sight.condition("Available"), "True/EnoughNodesAvailable");
    let all = place.nodes(2);
    for pod in place.pods().await {
        place.annotate(&pod.name, UNREADY.0, Some(UNREADY.1)).await;
    }
    place
        .until_condition("Available", "False/TooFewNodesAvailable")
        .await;
    place.apply(&place.plain("a:3")).await;
    place.served("a:3", &all).await;
}

#[tokio::test]
async fn kubectl_shows_columns_conditions_and_events_and_waits() {
    let place = Place::new("columns", 2).await;
    place.apply(&place.plain("a:1")).await;
    place
        .kubectl
        .run("wait --for=condition=Available --timeout=90s mds/x")
        .await
        .good();
    let sight = place.served("a:1", &place.nodes(2)).await;
    let table = place.kubectl.run("get mds -o wide").await.good();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "NAME",
            "DESIRED",
            "CURRENT",
            "READY",
            "UP-TO-DATE",
            "AVAILABLE",
            "STATE",
            "AGE",
            "IMAGE",
            "REVISION"
        ]
    );
    assert_eq!(rows[1][..7], ["x", "2", "2", "2", "2", "2", "Complete"]);
    assert_eq!(rows[1][8..], ["a:1", sight.text("updateRevision")]);
    let narrow = place.kubectl.run("get mydaemonset").await.good();
    assert!(
        narrow.contains("AGE") && !narrow.contains("REVISION"),
        "{narrow}"
    );
    let all = place.kubectl.run("get all -o name").await.good();
    assert!(all.contains("mydaemonset.apps.zhongmingmao.io/x"), "{all}");
    // A few words for all of the nodes.
    let reported = try_wait(crate::harness::TIMEOUT, async || {
        let story = place.kubectl.run("describe mds/x").await.good();
        story.contains("created 2 pods").then_some(story)
    });
    let story = reported.await.unwrap();
    assert!(story.contains("EnoughNodesAvailable"), "{story}");
    let explained = place
        .kubectl
        .run("explain mds.spec.updateStrategy.rollingUpdate.partition")
        .await
        .good();
    assert!(explained.contains("FIELD: partition"), "{explained}");
}

#[tokio::test]
async fn events_report_a_roll_out_and_not_each_of_its_nodes() {
    let place = Place::new("events", 6).await;
    let nodes = place.nodes(6);
    place
        .apply(&place.rolling("a:1", json!({"maxUnavailable": 3})))
        .await;
    place.served("a:1", &nodes).await;
    place
        .apply(&place.rolling("a:2", json!({"maxUnavailable": 3})))
        .await;
    place.served("a:2", &nodes).await;
    let events = async || -> Vec<(String, String)> {
        let api = place.api("events.k8s.io", "v1", "Event", "events");
        let list = api.list(&ListParams::default()).await.unwrap();
        let ours = list
            .items
            .into_iter()
            .filter(|e| e.data["regarding"]["kind"] == "MyDaemonSet");
        let text = |e: &Value, key: &str| e[key].as_str().unwrap_or_default().to_owned();
        ours.map(|e| (text(&e.data, "reason"), text(&e.data, "note")))
            .collect()
    };
    let reported = |all: &[(String, String)], reason: &str| all.iter().any(|(r, _)| r == reason);
    let all = ["PodsCreated", "RolloutStarted", "RolloutComplete"];
    eventually("the Events", || async {
        let events = events().await;
        all.iter().all(|reason| reported(&events, reason))
    })
    .await;
    let events = events().await;
    assert!(events.len() <= 6, "{events:?}");
    assert!(
        events.iter().all(|(_, note)| !note.contains("events-")),
        "{events:?}"
    );
}

#[tokio::test]
async fn nothing_is_written_when_nothing_that_matters_changed() {
    let place = Place::new("quiet", 2).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(2)).await;
    place.apply(&place.plain("a:1")).await;
    // A heartbeat, a label that nothing selects, a note on a pod.
    let beat = json!({"metadata": {"annotations": {"heart": "beat"}, "labels": {"note": "a"}}});
    place.patch_node(0, beat).await;
    let note = json!({"metadata": {"annotations": {"note": "a"}}});
    place.patch_pod(&before.pods[0].name, note).await;
    place
        .set_status(&before.pods[1].name, json!({"message": "still here"}))
        .await;
    place.witness("meanwhile").await;
    let after = place.sight().await;
    assert_eq!(
        after.object["metadata"]["resourceVersion"],
        before.object["metadata"]["resourceVersion"]
    );
    assert_eq!(after.uids(), before.uids());
}

#[tokio::test]
async fn roles_of_the_namespace_may_edit_and_view() {
    let place = Place::new("people", 0).await;
    let kubectl = &place.kubectl;
    for role in ["admin", "edit", "view"] {
        kubectl
            .run(&format!(
                "create rolebinding {role} --clusterrole={role} --user={role}"
            ))
            .await
            .good();
    }
    let can = async |user: &str, verb: &str, what: &str| {
        let said = kubectl
            .run(&format!("auth can-i {verb} {what} --as={user}"))
            .await;
        said.out.trim() == "yes"
    };
    let mds = "mydaemonsets.apps.zhongmingmao.io";
    // The cluster gathers the roles after they are made.
    eventually("the roles to be gathered", || async {
        can("admin", "create", mds).await && can("view", "get", mds).await
    })
    .await;
    for verb in [
        "create",
        "patch",
        "update",
        "delete",
        "deletecollection",
        "get",
        "list",
        "watch",
    ] {
        let reads = ["get", "list", "watch"].contains(&verb);
        assert!(can("edit", verb, mds).await, "{verb}");
        assert_eq!(can("view", verb, mds).await, reads, "{verb}");
        assert!(!can("nobody", verb, mds).await, "{verb}");
    }
    for user in ["admin", "edit", "view"] {
        assert!(
            can(user, "get", &format!("{mds} --subresource=status")).await,
            "{user}"
        );
        // The status is the operator's.
        assert!(
            !can(user, "patch", &format!("{mds} --subresource=status")).await,
            "{user}"
        );
    }
}

#[tokio::test]
async fn a_pod_that_is_not_ready_for_long_is_named_and_left_alone() {
    let place = Place::new("unready", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    let pod = &before.only(&nodes[1]).name;
    place.annotate(pod, UNREADY.0, Some(UNREADY.1)).await;
    let sight = place
        .until("one less", |s| s.count("numberAvailable") == 1)
        .await;
    assert_eq!(
        sight.condition("Available"),
        "True/EnoughNodesAvailable",
        "{sight}"
    );
    let other = sight.only(&nodes[0]).name.clone();
    place.annotate(&other, UNREADY.0, Some(UNREADY.1)).await;
    let sight = place
        .until_condition("Available", "False/TooFewNodesAvailable")
        .await;
    let message = sight.message("Available");
    assert!(nodes.iter().all(|node| message.contains(node)), "{message}");
    assert_eq!(sight.uids(), before.uids());
}

#[tokio::test]
async fn a_foreign_condition_in_the_status_is_kept() {
    let place = Place::new("foreign-condition", 1).await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &place.nodes(1)).await;
    let mut conditions = sight.object["status"]["conditions"].clone();
    conditions.as_array_mut().unwrap().push(json!({
        "type": "Audited", "status": "True", "reason": "Test", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }));
    let patch = json!({"status": {"conditions": conditions}});
    let sets = place.sets();
    sets.patch_status("x", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    let pod = &sight.pods[0].name;
    place.annotate(pod, UNREADY.0, Some(UNREADY.1)).await;
    let sight = place
        .until("the next status", |s| s.count("numberReady") == 0)
        .await;
    assert_eq!(sight.condition("Audited"), "True/Test");
}
