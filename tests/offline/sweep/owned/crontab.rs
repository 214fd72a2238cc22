//! `CronTab`: a `CronJob` of the same name.

use serde_json::{Value, json};

use super::{Family, NAME, mutants, tests};
use crate::sweep::changes::condition;
use crate::sweep::cluster::{Cluster, NAMESPACE};
use crate::sweep::subject::scenarios;

static CRONTAB: Family = Family {
    name: "crontab",
    api_version: "stable.example.com/v1",
    object_kind: "CronTab",
    plural: "crontabs",
    watched: &["crontabs", "cronjobs"],
    child_api_version: "batch/v1",
    child_kind: "CronJob",
    children: "cronjobs",
    child: NAME,
    // No run is due while a scenario goes on.
    spec: || json!({"cronSpec": "5 0 1 1 *", "image": "busybox:1.37"}),
    scenarios: SCENARIOS,
    is_done,
    rare: &["Refused", "CronJobExists", "Invalid", "Suspended"],
    mutants: mutants::OF_ANY,
};

fn is_done(crontab: &Value) -> bool {
    let ready = condition(crontab, "Ready");
    let is_ready = ready.is_some_and(|(status, _)| status == "True");
    is_ready || crontab["spec"]["suspend"] == true
}

fn is_up(cluster: &Cluster) -> bool {
    let crontab = cluster.get("crontabs", NAME).unwrap_or_default();
    let is_current = crontab["status"]["observedGeneration"] == crontab["metadata"]["generation"];
    CRONTAB.owns_child(cluster) && is_current && is_done(&crontab)
}

async fn up(cluster: &Cluster) {
    CRONTAB.create(cluster);
    cluster.until(is_up).await;
}

scenarios! {
    created = |cluster| {
        CRONTAB.create(cluster);
    };
    two_operators(TwoOperators) = |cluster| {
        up(cluster).await;
        CRONTAB.change(cluster, &json!({"replicas": 3}));
    };
    handed_over = |cluster| {
        CRONTAB.create(cluster);
        cluster.until(|c| CRONTAB.owns_child(c)).await;
        cluster.hand_over().await;
    };
    schedule_changed_and_back = |cluster| {
        up(cluster).await;
        CRONTAB.change(cluster, &json!({"cronSpec": "1 1 1 2 *", "timeZone": "Europe/Berlin"}));
        cluster.until(is_up).await;
        CRONTAB.change(cluster, &json!({"cronSpec": "5 0 1 1 *", "timeZone": null}));
    };
    suspended_and_back = |cluster| {
        up(cluster).await;
        CRONTAB.change(cluster, &json!({"suspend": true}));
        cluster.until(|c| c.condition("Ready") == "Suspended").await;
        CRONTAB.change(cluster, &json!({"suspend": false}));
    };
    command_given_and_taken_away = |cluster| {
        up(cluster).await;
        CRONTAB.change(cluster, &json!({"command": ["date", "-u"]}));
        cluster.until(is_up).await;
        CRONTAB.change(cluster, &json!({"command": null}));
    };
    child_deleted = |cluster| {
        up(cluster).await;
        cluster.delete("cronjobs", NAME);
    };
    child_edited = |cluster| {
        up(cluster).await;
        cluster.patch("cronjobs", NAME, &json!({"spec": {"schedule": "* * * * *"}}));
        cluster.until(|c| c.get("cronjobs", NAME).is_some_and(|it| it["spec"]["schedule"] == "5 0 1 1 *")).await;
    };
    child_without_owner = |cluster| {
        up(cluster).await;
        cluster.patch("cronjobs", NAME, &json!({"metadata": {"ownerReferences": null}}));
        cluster.until(|c| CRONTAB.owns_child(c)).await;
    };
    run_seen = |cluster| {
        up(cluster).await;
        let status = json!({"status": {"lastScheduleTime": "2020-01-01T00:05:00Z", "active": [{"name": "a-1"}]}});
        let _ = cluster.server.direct().patch_status("cronjobs", NAMESPACE, NAME, &status);
        cluster.until(|c| c.field("/status/active") == Some(json!(1))).await;
    };
    foreign_child = |cluster| {
        cluster.create("cronjobs", CRONTAB.foreign(NAME));
        CRONTAB.create(cluster);
        CRONTAB.give_name_back(cluster, "CronJobExists").await;
    };
    refused = |cluster| {
        cluster.admission().refuse(|review| review.resource == "cronjobs");
        CRONTAB.create(cluster);
        cluster.until(|c| c.condition("Degraded") == "Refused").await;
        cluster.admission().allow_everything();
    };
    invalid_for_a_while = |cluster| {
        up(cluster).await;
        CRONTAB.change(cluster, &json!({"cronSpec": "tomorrow"}));
        cluster.until(|c| c.condition("Accepted") == "Invalid").await;
        CRONTAB.change(cluster, &json!({"cronSpec": "5 0 1 1 *"}));
        cluster.until(is_up).await;
    };
    deleted = |cluster| {
        up(cluster).await;
        cluster.delete("crontabs", NAME);
        cluster.until(|c| c.get("cronjobs", NAME).is_none()).await;
    };
    recreated_after_background_deletion = |cluster| {
        up(cluster).await;
        CRONTAB.recreate(cluster, "Background").await;
    };
    recreated_after_foreground_deletion = |cluster| {
        up(cluster).await;
        CRONTAB.recreate(cluster, "Foreground").await;
    };
    recreated_after_orphaning_deletion = |cluster| {
        up(cluster).await;
        CRONTAB.recreate(cluster, "Orphan").await;
        cluster.until(|c| CRONTAB.owns_child(c)).await;
    };
}

tests!(CRONTAB, {"replicas": 3}, [
    ("/cronSpec", "1 1 1 2 *"),
    ("/cronSpec", null),
    ("/image", "busybox:1.36"),
    ("/replicas", 3),
    ("/timeZone", "Europe/Berlin"),
    ("/suspend", true),
    ("/command", ["date", "-u"]),
]);
