//! MyDaemonSet under the sweep: roll-outs on five nodes, and what happens to the nodes meanwhile.
#![allow(clippy::needless_pass_by_value)] // the values are built where they are passed

use std::time::Duration;

use chrono::{SecondsFormat, TimeDelta};
use my_operator_rounds::{given_seed, is_soak};
use serde_json::{Value, json};
use simulated_apiserver::{Review, Run, Site, Status, Verb};

mod canaries;
mod judge;
mod known;
mod mutants;

use super::cluster::{Cluster, NAMESPACE};
use super::faults::Fault;
use super::mutants::Mutant;
use super::subject::{Judged, Scenario, Seen, Special, Subject, scenarios};

const NODES: &[&str] = &["node-1", "node-2", "node-3", "node-4", "node-5"];
/// The annotation of a pod that says what it replaced.
pub const PREDECESSOR: &str = "apps.zhongmingmao.io/predecessor";
/// A node that joins. By name it is the last, so that a partition would hold it.
const JOINING: &str = "node-6";
/// How long that takes.
const JOINS_AFTER: Duration = Duration::from_secs(20);

/// See the module.
pub struct MyDaemonSet;

impl Subject for MyDaemonSet {
    fn kind(&self) -> &'static str {
        "mydaemonset"
    }

    fn object(&self) -> (&'static str, &'static str) {
        ("mydaemonsets", "a")
    }

    fn watched(&self) -> &'static [&'static str] {
        &[
            "mydaemonsets",
            "pods",
            "nodes",
            "controllerrevisions",
            "namespaces",
        ]
    }

    fn scenarios(&self) -> &'static [Scenario] {
        SCENARIOS
    }

    fn nodes(&self) -> &'static [&'static str] {
        NODES
    }

    /// A node that is younger, and NotReady when an operator starts, is taken for one that joins.
    fn age_of_nodes(&self) -> TimeDelta {
        TimeDelta::minutes(10)
    }

    /// An image `app:N` works; others say what happens to their containers.
    fn run(&self, pod: &Value) -> Run {
        let image = pod["spec"]["containers"][0]["image"].as_str();
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let usual = Run::default();
        let crashing = Run {
            crashes: u32::MAX,
            ..usual.clone()
        };
        let unready = Run {
            ready_after: None,
            ..usual.clone()
        };
        let (name, _) = image
            .unwrap_or_default()
            .split_once(':')
            .unwrap_or_default();
        match name {
            "slow" => Run {
                ready_after: Some(Duration::from_secs(20)),
                ..usual
            },
            "crash" => crashing,
            "crash-twice" => Run {
                crashes: 2,
                ..usual
            },
            "crash-on-one" if node == "node-1" => crashing,
            "crash-on-others" if node != "node-1" => crashing,
            "crash-where-it-joins" if node == JOINING => crashing,
            "unready-on-one" if node == "node-1" => unready,
            "unready" => unready,
            "missing" => Run {
                starts_after: None,
                waits: Some("ImagePullBackOff".to_owned()),
                ..usual
            },
            "rejected-on-one" if node == "node-1" => Run {
                rejected: Some("OutOfcpu".to_owned()),
                ..usual
            },
            _ => usual,
        }
    }

    fn is_settled(&self, cluster: &Cluster, special: Special) -> bool {
        let holds = ["Partitioned", "AutoPaused", "RolledBack"];
        cluster.get("mydaemonsets", "a").is_none()
            || is_complete(cluster)
            || (special == Special::StaysHeld
                && is_observed(cluster)
                && holds.contains(&cluster.condition("Progressing").as_str()))
    }

    fn settle(&self) -> Duration {
        Duration::from_secs(90)
    }

    /// A pod with our labels, no owner, and another content.
    fn replacement(&self, mut object: Value) -> Value {
        if object["kind"] == "Pod" {
            let node = object["spec"]["nodeName"].take();
            object["spec"] =
                json!({"containers": [{"name": "foreign", "image": "app:0"}], "nodeName": node});
        }
        object
    }

    /// A pod that another client deletes is made again; one that it puts in place of ours is adopted.
    fn keeps_the_end(&self, fault: Fault, site: &Site) -> bool {
        // If the operator learns late that a node is not ready, the node seems to have failed after it got its new pod.
        let is_late = matches!(site.verb, Verb::List | Verb::Watch) && site.resource == "nodes";
        let is_foreign = fault.is_a_foreign_hand() && fault != Fault::EditBefore;
        !is_late && (!is_foreign || site.resource == "pods")
    }

    fn lag(&self) -> u64 {
        8
    }

    /// While it is blind, the collector deletes the pods of five nodes every second.
    fn wasted_pods(&self) -> usize {
        150
    }

    /// A 409 says that the pod is gone, or another one: an API server that says so of one that is there is no API server.
    ///
    /// If an operator learns of pods of a newer revision before it learns of the newer spec, it deletes them. Only another
    /// operator makes such pods.
    fn applies(&self, fault: Fault, site: &Site, special: Special) -> bool {
        let is_of_a_pod = site.resource == "pods" && site.verb != Verb::Create;
        let is_wrong = fault == Fault::Conflict && is_of_a_pod;
        let is_rival = fault == Fault::WatchesSilent && special == Special::TwoOperators;
        !is_wrong && !is_rival
    }

    fn judge(&self, seen: &Seen<'_>) -> Judged {
        judge::judge(seen)
    }

    fn rare(&self) -> &'static [&'static str] {
        &[
            "AutoPaused",
            "Canary",
            "Complete",
            "Cordoned",
            "DeleteRefused",
            "Frozen",
            "Invalid",
            "Maintenance",
            "NameConflict",
            "NoEligibleNodes",
            "OnDelete",
            "OutsideWindow",
            "Partitioned",
            "Paused",
            "PodRefused",
            "PodsFail",
            "RevisionConflict",
            "RevisionRefused",
            "RolledBack",
            "RollingBack",
            "RollingOut",
            "TooFewNodesAvailable",
            "WaitingForApproval",
        ]
    }

    fn mutants(&self) -> &'static [Mutant] {
        mutants::ALL
    }
}

#[test]
fn a_mydaemonset_keeps_its_promises_whatever_fails_at_whichever_call() {
    super::every_fault(&MyDaemonSet);
}

/// In soaks alone: what several faults together lead to is not all fixed (docs/reliability.md).
#[test]
fn a_mydaemonset_keeps_its_promises_under_faults_at_random() {
    if is_soak() || given_seed().is_some() {
        super::faults_at_random(&MyDaemonSet);
    }
}

#[test]
fn every_mutant_of_mydaemonset_is_caught() {
    super::every_mutant_is_caught(&MyDaemonSet);
}

/// A set with that spec, of the image `app:1` unless it says otherwise.
fn set(spec: Value) -> Value {
    let mut all = json!({"image": "app:1", "minReadySeconds": 0, "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate":
            {"maxUnavailable": 1, "maxSurge": 0, "partition": 0, "paused": false}}});
    json_patch::merge(&mut all, &spec);
    json!({"apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
        "metadata": {"name": "a", "namespace": NAMESPACE}, "spec": all})
}

/// A strategy with those limits.
fn rolling(limits: Value) -> Value {
    json!({"updateStrategy": {"rollingUpdate": limits}})
}

/// Both objects in one.
fn with(mut one: Value, other: Value) -> Value {
    json_patch::merge(&mut one, &other);
    one
}

fn create(cluster: &Cluster, spec: Value) {
    cluster.create("mydaemonsets", set(spec));
}

/// Creates a set and waits until it runs.
async fn run(cluster: &Cluster, spec: Value) {
    create(cluster, spec);
    cluster.until(is_complete).await;
}

/// Changes the spec.
fn change(cluster: &Cluster, spec: Value) {
    cluster.patch("mydaemonsets", "a", &json!({"spec": spec}));
}

fn image(cluster: &Cluster, image: &str) {
    change(cluster, json!({"image": image}));
}

fn number(cluster: &Cluster, field: &str) -> i64 {
    let value = cluster.field(&format!("/status/{field}"));
    value.and_then(|value| value.as_i64()).unwrap_or_default()
}

fn is_observed(cluster: &Cluster) -> bool {
    cluster.field("/status/observedGeneration") == cluster.field("/metadata/generation")
}

fn is_complete(cluster: &Cluster) -> bool {
    is_observed(cluster)
        && cluster.condition("Progressing") == "Complete"
        && number(cluster, "numberAvailable") == number(cluster, "desiredNumberScheduled")
}

/// Waits until so many nodes have the newest revision.
async fn updated(cluster: &Cluster, nodes: i64) {
    let reached = |c: &Cluster| is_observed(c) && number(c, "updatedNumberScheduled") >= nodes;
    cluster.until(reached).await;
}

/// Waits until the roll-out has that state.
async fn progress(cluster: &Cluster, reason: &str) {
    cluster
        .until(|c| is_observed(c) && c.condition("Progressing") == reason)
        .await;
}

/// Waits until every node but the first has an available pod of the newest revision. That node is left out after ten
/// minutes.
async fn all_others_updated(cluster: &Cluster) {
    cluster.sleep(700).await;
    let others = |c: &Cluster| {
        is_observed(c)
            && number(c, "numberAvailable") >= 4
            && number(c, "updatedNumberScheduled") == 5
    };
    cluster.until(others).await;
}

/// Waits until it has that trouble.
async fn degraded(cluster: &Cluster, reason: &str) {
    cluster.until(|c| c.condition("Degraded") == reason).await;
}

/// Sets the annotation that freezes the set, or removes it.
fn freeze(cluster: &Cluster, value: Value) {
    let annotations = json!({"apps.zhongmingmao.io/freeze": value});
    let change = json!({"metadata": {"annotations": annotations}});
    cluster.patch("mydaemonsets", "a", &change);
}

/// Sets the annotation that freezes the namespace, or removes it.
fn freeze_namespace(cluster: &Cluster, value: Value) {
    let annotations = json!({"apps.zhongmingmao.io/freeze": value});
    let change = json!({"metadata": {"annotations": annotations}});
    let namespaces = cluster.server.direct();
    namespaces
        .patch("namespaces", "", NAMESPACE, &change)
        .unwrap();
}

fn change_node(cluster: &Cluster, node: &str, change: Value) {
    // The node may be gone.
    let _ = cluster.server.direct().patch("nodes", "", node, &change);
}

fn label(cluster: &Cluster, node: &str, value: Value) {
    change_node(
        cluster,
        node,
        json!({"metadata": {"labels": {"disk": value}}}),
    );
}

fn cordon(cluster: &Cluster, node: &str, is: bool) {
    change_node(cluster, node, json!({"spec": {"unschedulable": is}}));
}

/// A condition of the node says whether it is being worked on.
fn maintain(cluster: &Cluster, node: &str, status: &str) {
    let direct = cluster.server.direct();
    // The node may be gone.
    let _ = direct.edit_status("nodes", "", node, |node| {
        let conditions = node["status"]["conditions"].as_array();
        let mut conditions = conditions.cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "MaintenanceInProgress");
        conditions.push(json!({"type": "MaintenanceInProgress", "status": status}));
        node["status"]["conditions"] = json!(conditions);
    });
}

fn taint(cluster: &Cluster, node: &str, effect: &str) {
    let taints = json!([{"key": "example.com/maintenance", "effect": effect}]);
    change_node(cluster, node, json!({"spec": {"taints": taints}}));
}

fn untaint(cluster: &Cluster, node: &str) {
    change_node(cluster, node, json!({"spec": {"taints": null}}));
}

/// Labels the first three nodes one way, the others another way.
fn label_disks(cluster: &Cluster) {
    for (place, node) in NODES.iter().enumerate() {
        label(cluster, node, json!(if place < 3 { "ssd" } else { "nvme" }));
    }
}

/// A template whose pods want nodes with that label.
fn on_disk(disk: &str) -> Value {
    json!({"template": {"spec": {"nodeSelector": {"disk": disk}}}})
}

/// The pods of the set on a node.
fn pods_on(cluster: &Cluster, node: &str) -> Vec<Value> {
    let mut pods = cluster.server.direct().list("pods", NAMESPACE);
    pods.retain(|pod| pod["spec"]["nodeName"] == node);
    pods
}

/// Another client deletes the pod of a node.
fn delete_pod(cluster: &Cluster, node: &str) {
    for pod in pods_on(cluster, node) {
        cluster.delete("pods", pod["metadata"]["name"].as_str().unwrap_or_default());
    }
}

/// No pod of that image may be created.
fn refuse_image(cluster: &Cluster, image: &'static str, status: Status) {
    cluster.admission().rule(move |review: &mut Review<'_>| {
        let is_pod = (review.verb, review.resource) == (Verb::Create, "pods");
        if is_pod && review.object["spec"]["containers"][0]["image"] == image {
            return Err(status.clone());
        }
        Ok(())
    });
}

fn quota() -> Status {
    let message =
        "pods is forbidden: exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5";
    Status::new(403, "Forbidden", message)
}

fn failing_webhook() -> Status {
    let cause = "failed calling webhook \"pods.example.com\": connection refused";
    Status::internal_error(cause)
}

fn delete(cluster: &Cluster, propagation: &str) {
    let options = json!({"propagationPolicy": propagation});
    let direct = cluster.server.direct();
    // A fault may have deleted it already.
    let _ = direct.delete_with("mydaemonsets", NAMESPACE, "a", &options);
}

/// Recreates the set as soon as the name is free.
async fn create_again(cluster: &Cluster, spec: Value) {
    cluster
        .until(|c| c.get("mydaemonsets", "a").is_none())
        .await;
    // A fault may have created it already.
    let _ = cluster.server.direct().create(set(spec));
    cluster.until(is_complete).await;
}

scenarios! {
    created = |cluster| {
        create(cluster, json!({}));
    };
    two_operators_create(TwoOperators) = |cluster| {
        create(cluster, json!({}));
    };
    rolled_out = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
    };
    rolled_out_two_at_a_time = |cluster| {
        run(cluster, rolling(json!({"maxUnavailable": "40%"}))).await;
        image(cluster, "app:2");
    };
    rolled_out_with_surge = |cluster| {
        run(cluster, rolling(json!({"maxUnavailable": 0, "maxSurge": 1}))).await;
        image(cluster, "app:2");
    };
    rolled_out_with_surges = |cluster| {
        run(cluster, rolling(json!({"maxUnavailable": 0, "maxSurge": "40%"}))).await;
        image(cluster, "slow:2");
    };
    two_operators_roll_out(TwoOperators) = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
    };
    handed_over = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 2).await;
        cluster.hand_over().await;
    };
    shared = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 2).await;
        cluster.share().await;
        updated(cluster, 3).await;
        cluster.unite().await;
    };
    minimum_of_readiness = |cluster| {
        run(cluster, json!({"minReadySeconds": 10})).await;
        image(cluster, "app:2");
    };
    undone = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 2).await;
        image(cluster, "app:1");
    };
    changed_twice = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 2).await;
        image(cluster, "app:3");
    };
    paused = |cluster| {
        run(cluster, json!({})).await;
        change(cluster, with(json!({"image": "app:2"}), rolling(json!({"paused": true}))));
        progress(cluster, "Paused").await;
        delete_pod(cluster, "node-2");
        cluster.sleep(10).await;
        change(cluster, rolling(json!({"paused": false})));
    };
    frozen_and_thawed = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 1).await;
        freeze(cluster, json!("by a user"));
        cluster.sleep(30).await;
        delete_pod(cluster, "node-5");
        cluster.sleep(30).await;
        freeze(cluster, Value::Null);
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    frozen_by_the_namespace = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 1).await;
        freeze_namespace(cluster, json!("all, by a user"));
        cluster.sleep(30).await;
        delete_pod(cluster, "node-5");
        cluster.sleep(30).await;
        freeze_namespace(cluster, Value::Null);
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    partitioned = |cluster| {
        run(cluster, json!({})).await;
        change(cluster, with(json!({"image": "app:2"}), rolling(json!({"partition": 3}))));
        progress(cluster, "Partitioned").await;
        delete_pod(cluster, "node-5");
        cluster.sleep(10).await;
        change(cluster, rolling(json!({"partition": 0})));
    };
    partition_and_a_node_joins(StaysHeld) = |cluster| {
        run(cluster, json!({})).await;
        change(cluster, with(json!({"image": "app:2"}), rolling(json!({"partition": 3}))));
        progress(cluster, "Partitioned").await;
        cluster.sleep(2).await;
        cluster.kubelet.join(JOINING, &json!({}), JOINS_AFTER);
        cluster.sleep(40).await;
    };
    canary = |cluster| {
        run(cluster, rolling(json!({"canary": {"nodes": 1, "soakSeconds": 20, "promote": "Automatic"}}))).await;
        image(cluster, "app:2");
    };
    canary_approved = |cluster| {
        run(cluster, rolling(json!({"canary": {"nodes": 2, "soakSeconds": 5, "promote": "Manual"}}))).await;
        image(cluster, "app:2");
        progress(cluster, "WaitingForApproval").await;
        cluster.kubelet.join(JOINING, &json!({}), Duration::from_secs(2));
        cluster.sleep(20).await;
        let revision = cluster.text("/status/updateRevision");
        let approve = json!({"apps.zhongmingmao.io/approve-revision": revision});
        cluster.patch("mydaemonsets", "a", &json!({"metadata": {"annotations": approve}}));
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    canary_crashes = |cluster| {
        run(cluster, rolling(json!({"maxUnavailable": 3,
            "canary": {"nodes": 1, "soakSeconds": 20, "promote": "Automatic"}}))).await;
        image(cluster, "crash:2");
        progress(cluster, "AutoPaused").await;
        cluster.sleep(60).await;
        image(cluster, "app:3");
    };
    /// Open for one minute of three, which is too short for five slow pods.
    outside_the_windows = |cluster| {
        run(cluster, rolling(json!({"windows": [{"schedule": "*/3 * * * *", "duration": "1m"}]}))).await;
        image(cluster, "slow:2");
        progress(cluster, "OutsideWindow").await;
        delete_pod(cluster, "node-5");
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    one_domain_after_the_other = |cluster| {
        label_disks(cluster);
        run(cluster, rolling(json!({"maxUnavailable": 2, "topologyKey": "disk", "order": ["ssd"]}))).await;
        image(cluster, "app:2");
    };
    one_domain_after_the_other_and_operators_change = |cluster| {
        label_disks(cluster);
        run(cluster, rolling(json!({"maxUnavailable": "60%", "topologyKey": "disk"}))).await;
        image(cluster, "slow:2");
        updated(cluster, 1).await;
        delete_pod(cluster, "node-2");
        cluster.hand_over().await;
    };
    /// Each node is a step, and they do not all fit into a window.
    one_domain_after_the_other_in_windows = |cluster| {
        label_disks(cluster);
        let windows = json!([{"schedule": "*/3 * * * *", "duration": "1m"}]);
        run(cluster, rolling(json!({"windows": windows, "topologyKey": "disk"}))).await;
        image(cluster, "slow:2");
        progress(cluster, "OutsideWindow").await;
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    on_delete = |cluster| {
        run(cluster, json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}})).await;
        image(cluster, "app:2");
        progress(cluster, "OnDelete").await;
        delete_pod(cluster, "node-4");
        updated(cluster, 1).await;
        cluster.sleep(10).await;
        change(cluster, json!({"updateStrategy": {"type": "RollingUpdate"}}));
    };
    crashing = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "crash:2");
        progress(cluster, "AutoPaused").await;
        cluster.sleep(60).await;
        image(cluster, "app:3");
    };
    image_missing = |cluster| {
        run(cluster, rolling(json!({"maxUnavailable": 2}))).await;
        image(cluster, "missing:2");
        progress(cluster, "AutoPaused").await;
        image(cluster, "app:1");
    };
    undone_by_itself(StaysHeld) = |cluster| {
        run(cluster, rolling(json!({"onFailure": "Undo"}))).await;
        image(cluster, "crash:2");
        progress(cluster, "RolledBack").await;
        cluster.sleep(60).await;
    };
    undone_by_itself_while_operators_change(StaysHeld) = |cluster| {
        run(cluster, rolling(json!({"onFailure": "Undo", "maxUnavailable": 2}))).await;
        image(cluster, "crash:2");
        progress(cluster, "RollingBack").await;
        cluster.hand_over().await;
        progress(cluster, "RolledBack").await;
        cluster.sleep(60).await;
    };
    undone_by_itself_and_changed = |cluster| {
        run(cluster, rolling(json!({"onFailure": "Undo"}))).await;
        image(cluster, "crash:2");
        progress(cluster, "RolledBack").await;
        delete_pod(cluster, "node-3");
        cluster.sleep(10).await;
        image(cluster, "app:3");
    };
    canary_undone_by_itself(StaysHeld) = |cluster| {
        run(cluster, rolling(json!({"onFailure": "Undo", "maxUnavailable": 3,
            "canary": {"nodes": 2, "soakSeconds": 20, "promote": "Automatic"}}))).await;
        image(cluster, "crash:2");
        progress(cluster, "RolledBack").await;
        cluster.sleep(60).await;
    };
    /// It passes its canary, fails on a later node, and has to pass again when a user resumes it.
    undone_by_itself_after_its_canary_and_resumed = |cluster| {
        run(cluster, rolling(json!({"onFailure": "Undo",
            "canary": {"nodes": 1, "soakSeconds": 20, "promote": "Automatic"}}))).await;
        image(cluster, "crash-on-others:2");
        progress(cluster, "RolledBack").await;
        let revision = cluster.text("/status/updateRevision");
        let resume = json!({"apps.zhongmingmao.io/resume-revision": revision});
        cluster.patch("mydaemonsets", "a", &json!({"metadata": {"annotations": resume}}));
        updated(cluster, 2).await;
        image(cluster, "app:1");
    };
    /// As the first revision leaves a node behind, the second finds it, and takes no other.
    two_bad_revisions(StaysHeld) = |cluster| {
        run(cluster, json!({"progressDeadlineSeconds": 60})).await;
        image(cluster, "unready:2");
        progress(cluster, "AutoPaused").await;
        image(cluster, "unready:3");
        cluster.sleep(1).await;
        progress(cluster, "AutoPaused").await;
        cluster.sleep(300).await;
    };
    stopped_and_resumed = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "crash-twice:2");
        progress(cluster, "AutoPaused").await;
        cluster.sleep(90).await;
        let revision = cluster.text("/status/updateRevision");
        let resume = json!({"apps.zhongmingmao.io/resume-revision": revision});
        cluster.patch("mydaemonsets", "a", &json!({"metadata": {"annotations": resume}}));
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    stopped_and_the_other_nodes_cordoned(StaysHeld) = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "crash-twice:2");
        progress(cluster, "AutoPaused").await;
        for node in NODES {
            cordon(cluster, node, true);
        }
        cluster.sleep(120).await;
        for node in NODES {
            cordon(cluster, node, false);
        }
        cluster.sleep(60).await;
    };
    one_node_fails_and_holds_up_no_other = |cluster| {
        create(cluster, with(json!({"image": "crash-on-one:1"}), rolling(json!({"maxUnavailable": 2}))));
        cluster.until(|c| number(c, "numberAvailable") == 4).await;
        image(cluster, "app:2");
    };
    rejected_by_the_kubelet = |cluster| {
        create(cluster, with(json!({"image": "rejected-on-one:1"}), rolling(json!({"maxUnavailable": 2}))));
        cluster.until(|c| number(c, "numberAvailable") == 4).await;
        cluster.sleep(60).await;
        image(cluster, "app:2");
    };
    /// Its pods fail whatever their revision is.
    one_node_fails_before_and_after = |cluster| {
        create(cluster, json!({"image": "crash-on-one:1"}));
        cluster.until(|c| number(c, "numberAvailable") == 4).await;
        image(cluster, "crash-on-one:2");
        all_others_updated(cluster).await;
        image(cluster, "app:3");
    };
    one_node_is_unready_before_and_after_and_operators_change = |cluster| {
        create(cluster, json!({"image": "unready-on-one:1"}));
        cluster.until(|c| number(c, "numberAvailable") == 4).await;
        image(cluster, "unready-on-one:2");
        updated(cluster, 1).await;
        cluster.hand_over().await;
        all_others_updated(cluster).await;
        image(cluster, "app:3");
    };
    never_ready = |cluster| {
        run(cluster, json!({"progressDeadlineSeconds": 60})).await;
        image(cluster, "unready:2");
        progress(cluster, "AutoPaused").await;
        cluster.sleep(30).await;
        image(cluster, "app:3");
    };
    never_ready_and_operators_change = |cluster| {
        run(cluster, json!({"progressDeadlineSeconds": 60})).await;
        image(cluster, "unready:2");
        updated(cluster, 1).await;
        cluster.hand_over().await;
        progress(cluster, "AutoPaused").await;
        image(cluster, "app:3");
    };
    never_stopped_by_itself = |cluster| {
        run(cluster, rolling(json!({"autoPause": {"enabled": false}}))).await;
        image(cluster, "crash:2");
        updated(cluster, 1).await;
        cluster.sleep(60).await;
        image(cluster, "app:3");
    };
    /// The cloud deletes the Node of a machine that it has stopped, which is NotReady for a while.
    node_leaves_with_its_new_pod = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "slow:2");
        updated(cluster, 1).await;
        cluster.kubelet.fail("node-1");
        cluster.sleep(5).await;
        cluster.kubelet.remove_node("node-1");
        cluster.sleep(60).await;
    };
    new_pod_is_evicted = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "slow:2");
        updated(cluster, 1).await;
        for pod in pods_on(cluster, "node-1") {
            let now = cluster.server.clock().now().to_rfc3339_opts(SecondsFormat::Secs, true);
            let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted", "conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": now},
                {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": now},
            ]}});
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            // A fault may have deleted it.
            let _ = cluster.server.direct().patch_status("pods", NAMESPACE, name, &evicted);
        }
    };
    pods_fail_where_a_node_joins = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "crash-where-it-joins:2");
        updated(cluster, 2).await;
        cluster.kubelet.join(JOINING, &json!({}), Duration::from_secs(2));
        cluster.sleep(120).await;
        image(cluster, "app:3");
    };
    /// They ask a backend that fails for a while.
    all_pods_are_unready_during_a_roll_out = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "slow:2");
        updated(cluster, 1).await;
        cluster.kubelet.fail_probes();
        cluster.sleep(60).await;
        cluster.kubelet.pass_probes();
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    all_nodes_fail_for_a_moment_during_a_roll_out = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "slow:2");
        updated(cluster, 1).await;
        for node in NODES {
            cluster.kubelet.fail(node);
        }
        cluster.sleep(10).await;
        for node in NODES {
            cluster.kubelet.recover(node);
        }
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    rejected_by_a_policy = |cluster| {
        run(cluster, json!({})).await;
        refuse_image(cluster, "app:2", Status::new(422, "Invalid", "not this image"));
        image(cluster, "app:2");
        degraded(cluster, "PodRefused").await;
        cluster.sleep(30).await;
        cluster.admission().allow_everything();
        cluster.until(is_complete).await;
    };
    without_quota = |cluster| {
        run(cluster, json!({})).await;
        refuse_image(cluster, "app:2", quota());
        image(cluster, "app:2");
        degraded(cluster, "PodRefused").await;
        cluster.sleep(30).await;
        cluster.admission().allow_everything();
        cluster.until(is_complete).await;
    };
    webhook_down = |cluster| {
        refuse_image(cluster, "app:1", failing_webhook());
        create(cluster, json!({}));
        cluster.sleep(90).await;
        cluster.admission().allow_everything();
        cluster.until(is_complete).await;
    };
    deletions_refused = |cluster| {
        run(cluster, json!({})).await;
        cluster.admission().refuse_deletions_of_pods();
        image(cluster, "app:2");
        degraded(cluster, "DeleteRefused").await;
        cluster.sleep(30).await;
        cluster.admission().allow_everything();
        cluster.until(is_complete).await;
    };
    revisions_refused = |cluster| {
        run(cluster, json!({})).await;
        cluster.admission().refuse_revisions();
        image(cluster, "app:2");
        degraded(cluster, "RevisionRefused").await;
        delete_pod(cluster, "node-2");
        cluster.kubelet.join(JOINING, &json!({}), JOINS_AFTER);
        cluster.sleep(90).await;
        cluster.admission().allow_everything();
        cluster.until(is_complete).await;
    };
    revisions_of_a_new_set_refused = |cluster| {
        cluster.admission().refuse_revisions();
        create(cluster, json!({}));
        degraded(cluster, "RevisionRefused").await;
        cluster.sleep(90).await;
        cluster.admission().allow_everything();
        cluster.until(is_complete).await;
    };
    selector_fits_none = |cluster| {
        run(cluster, json!({})).await;
        change(cluster, on_disk("none"));
        cluster.sleep(60).await;
        change(cluster, json!({"template": null}));
    };
    selector_fits_none_and_a_user_agrees = |cluster| {
        run(cluster, json!({})).await;
        change(cluster, on_disk("none"));
        progress(cluster, "NoEligibleNodes").await;
        let revision = cluster.text("/status/updateRevision");
        let resume = json!({"apps.zhongmingmao.io/resume-revision": revision});
        cluster.patch("mydaemonsets", "a", &json!({"metadata": {"annotations": resume}}));
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    selector_fits_others = |cluster| {
        label_disks(cluster);
        run(cluster, on_disk("ssd")).await;
        change(cluster, on_disk("nvme"));
    };
    /// As the admission plugin PodNodeSelector does in a namespace.
    admission_demands_a_disk = |cluster| {
        label_disks(cluster);
        cluster.admission().alter_pods(on_disk("ssd")["template"].clone());
        run(cluster, json!({})).await;
        delete_pod(cluster, "node-2");
        label(cluster, "node-4", json!("ssd"));
        cluster.until(|c| is_complete(c) && number(c, "numberAvailable") == 4).await;
    };
    selector_changed_while_paused = |cluster| {
        label_disks(cluster);
        run(cluster, on_disk("ssd")).await;
        change(cluster, with(on_disk("nvme"), rolling(json!({"paused": true}))));
        cluster.sleep(60).await;
        change(cluster, rolling(json!({"paused": false})));
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    node_joins = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 2).await;
        cluster.kubelet.join(JOINING, &json!({}), JOINS_AFTER);
        cluster.sleep(60).await;
    };
    /// As the network plugin of a cluster: it runs on nodes that are not ready yet.
    node_joins_a_set_that_tolerates_everything = |cluster| {
        run(cluster, json!({"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}})).await;
        image(cluster, "app:2");
        updated(cluster, 2).await;
        cluster.kubelet.join(JOINING, &json!({}), JOINS_AFTER);
        cluster.sleep(60).await;
        cluster.until(is_complete).await;
    };
    node_leaves = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 1).await;
        cluster.kubelet.remove_node("node-3");
        cluster.sleep(60).await;
    };
    node_registers_again = |cluster| {
        run(cluster, json!({})).await;
        let _ = cluster.server.direct().delete("nodes", "", "node-3");
        cluster.sleep(5).await;
        cluster.kubelet.join("node-3", &json!({}), Duration::from_secs(2));
        cluster.sleep(30).await;
        cluster.until(is_complete).await;
    };
    node_registers_again_during_a_roll_out = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 1).await;
        let _ = cluster.server.direct().delete("nodes", "", "node-3");
        cluster.sleep(1).await;
        cluster.kubelet.join("node-3", &json!({}), Duration::from_secs(2));
        cluster.sleep(30).await;
        cluster.until(is_complete).await;
    };
    node_fails_for_a_moment = |cluster| {
        run(cluster, json!({})).await;
        cluster.kubelet.fail("node-4");
        image(cluster, "app:2");
        cluster.sleep(30).await;
        cluster.kubelet.recover("node-4");
    };
    node_fails_for_long = |cluster| {
        run(cluster, json!({})).await;
        cluster.kubelet.lose("node-4");
        cluster.sleep(50).await;
        image(cluster, "app:2");
        cluster.sleep(120).await;
        cluster.kubelet.recover("node-4");
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    all_nodes_fail = |cluster| {
        run(cluster, json!({})).await;
        for node in NODES {
            cluster.kubelet.lose(node);
        }
        cluster.sleep(150).await;
        image(cluster, "app:2");
        cluster.sleep(60).await;
        for node in NODES {
            cluster.kubelet.recover(node);
        }
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    node_cordoned = |cluster| {
        run(cluster, json!({})).await;
        cordon(cluster, "node-5", true);
        image(cluster, "app:2");
        // An operator that does not see the cordon yet goes on to the end.
        let stands = |c: &Cluster| is_observed(c) && c.condition("Progressing") == "Cordoned";
        cluster.until(|c| stands(c) || is_complete(c)).await;
        delete_pod(cluster, "node-5");
        cluster.sleep(10).await;
        cordon(cluster, "node-5", false);
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    /// It is rebooted meanwhile. The roll-out waits for it no more than for a cordoned one, and comes back to it.
    node_in_maintenance = |cluster| {
        run(cluster, json!({})).await;
        maintain(cluster, "node-2", "True");
        cluster.sleep(1).await;
        cluster.kubelet.lose("node-2");
        image(cluster, "app:2");
        updated(cluster, 4).await;
        cluster.sleep(30).await;
        cluster.kubelet.recover("node-2");
        cluster.sleep(10).await;
        maintain(cluster, "node-2", "False");
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    node_cordoned_during_a_surge = |cluster| {
        run(cluster, rolling(json!({"maxUnavailable": 0, "maxSurge": 1}))).await;
        image(cluster, "slow:2");
        cluster.until(|c| pods_on(c, "node-1").len() == 2).await;
        cordon(cluster, "node-1", true);
        cluster.sleep(60).await;
        cordon(cluster, "node-1", false);
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    node_tainted_for_new_pods = |cluster| {
        run(cluster, json!({})).await;
        taint(cluster, "node-2", "NoSchedule");
        image(cluster, "app:2");
        cluster.sleep(60).await;
        untaint(cluster, "node-2");
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    node_tainted_for_all_pods = |cluster| {
        run(cluster, json!({})).await;
        taint(cluster, "node-2", "NoExecute");
        image(cluster, "app:2");
        cluster.sleep(60).await;
        untaint(cluster, "node-2");
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    node_relabelled = |cluster| {
        label_disks(cluster);
        run(cluster, on_disk("ssd")).await;
        label(cluster, "node-1", json!("nvme"));
        label(cluster, "node-5", json!("ssd"));
        cluster.sleep(10).await;
        label(cluster, "node-1", json!("ssd"));
    };
    pods_deleted = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 1).await;
        for node in ["node-2", "node-4"] {
            delete_pod(cluster, node);
        }
    };
    pod_taken_away_by_its_label = |cluster| {
        run(cluster, json!({})).await;
        // A fault may have left none.
        let pod = pods_on(cluster, "node-2").pop().unwrap_or_default();
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        cluster.patch("pods", name, &json!({"metadata": {"labels": {"apps.zhongmingmao.io/mydaemonset": null}}}));
        // A fault may have deleted it.
        let is_replaced = |c: &Cluster| {
            pods_on(c, "node-2").iter().any(|pod| !pod["metadata"]["labels"]["apps.zhongmingmao.io/mydaemonset"].is_null())
        };
        cluster.until(|c| c.condition("Degraded") == "NameConflict" || is_replaced(c)).await;
        cluster.sleep(5).await;
        if !is_replaced(cluster) {
            cluster.delete("pods", name);
        }
        cluster.sleep(1).await;
        cluster.until(is_complete).await;
    };
    deleted_in_the_background = |cluster| {
        run(cluster, json!({})).await;
        delete(cluster, "Background");
        create_again(cluster, json!({})).await;
    };
    deleted_in_the_foreground = |cluster| {
        run(cluster, json!({})).await;
        delete(cluster, "Foreground");
        create_again(cluster, json!({})).await;
    };
    deleted_without_its_pods = |cluster| {
        run(cluster, json!({})).await;
        delete(cluster, "Orphan");
        create_again(cluster, json!({})).await;
    };
    deleted_without_its_pods_and_created_otherwise = |cluster| {
        run(cluster, json!({})).await;
        delete(cluster, "Orphan");
        create_again(cluster, json!({"image": "app:2"})).await;
    };
    deleted_for_good = |cluster| {
        run(cluster, json!({})).await;
        image(cluster, "app:2");
        updated(cluster, 2).await;
        delete(cluster, "Background");
        cluster.until(|c| c.get("mydaemonsets", "a").is_none()).await;
    };
    history_limited = |cluster| {
        run(cluster, json!({"revisionHistoryLimit": 1})).await;
        for next in ["app:2", "app:3", "app:4"] {
            image(cluster, next);
            cluster.sleep(1).await;
            cluster.until(is_complete).await;
        }
    };
    name_of_the_revision_taken = |cluster| {
        run(cluster, json!({})).await;
        let revisions = cluster.server.direct().list("controllerrevisions", NAMESPACE);
        // A fault may have left none.
        let mut taken = revisions.first().cloned().unwrap_or_default();
        delete(cluster, "Background");
        cluster.until(|c| c.server.direct().list("controllerrevisions", NAMESPACE).is_empty()).await;
        taken["metadata"] = json!({"name": taken["metadata"]["name"], "namespace": NAMESPACE});
        taken["data"] = json!({"image": "another"});
        let _ = cluster.server.direct().create(taken.clone());
        let _ = cluster.server.direct().create(set(json!({})));
        degraded(cluster, "RevisionConflict").await;
        let name = taken["metadata"]["name"].as_str().unwrap_or_default();
        cluster.delete("controllerrevisions", name);
        cluster.until(is_complete).await;
    };
    invalid = |cluster| {
        create(cluster, json!({"image": "not an image"}));
        cluster.until(|c| c.condition("Accepted") == "Invalid").await;
        image(cluster, "app:1");
    };
}
