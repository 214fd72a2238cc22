//! Pods that fail, and pods that the API server rejects.

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

use super::journal::{Journal, most_alike};
use super::{Place, Pod, Sight};
use crate::harness::policies::{BY_OPERATOR, Policy};

const ATTEMPT: &str = "apps.zhongmingmao.io/attempt";

/// Ends a pod as a kubelet does under disk pressure.
async fn evict(place: &Place, pod: &Pod) {
    // The back-off counts from when it failed.
    let unready = json!({"type": "Ready", "status": "False", "reason": "PodFailed", "lastTransitionTime": Utc::now()});
    let status = json!({
        "phase": "Failed", "reason": "Evicted", "message": "DiskPressure", "conditions": [unready],
    });
    place.set_status(&pod.name, status).await;
}

#[tokio::test]
async fn a_failed_pod_is_kept_for_its_back_off_and_its_successor_counts() {
    let place = Place::new("back-off", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    let journal = Journal::start(&place).await;
    let failed = sight.only(&nodes[0]).clone();
    evict(&place, &failed).await;
    // Its status can be read meanwhile, and the condition has it.
    let sight = place.until_condition("Degraded", "True/PodsFail").await;
    let message = sight.message("Degraded");
    assert!(
        message.contains(&format!("{} (Evicted)", nodes[0])),
        "{message}"
    );
    assert_eq!(sight.only(&nodes[0]).phase, "Failed");
    let sight = place
        .until("a successor", |s| s.only_serving(&nodes[0], "a:1"))
        .await;
    let successor = sight.only(&nodes[0]);
    let attempt = successor.annotation(ATTEMPT);
    assert_eq!(attempt, Some("1"), "{:#}", successor.json);
    let pause = successor.created() - failed.created();
    assert!(pause >= TimeDelta::seconds(10), "{pause}");
    place.served("a:1", &nodes).await;
    let moments = journal.moments().await;
    assert_eq!(most_alike(&moments, |pod| &pod.node), 1);
    assert!(
        moments
            .iter()
            .all(|m| m.values().any(|p| p.node == nodes[1] && p.serves()))
    );
}

#[tokio::test]
async fn a_node_whose_pod_fails_stops_no_other_and_a_new_spec_need_not_wait_for_it() {
    let place = Place::new("one-fails", 3).await;
    let nodes = place.nodes(3);
    let two = json!({"maxUnavailable": 2});
    place.apply(&place.rolling("a:1", two.clone())).await;
    let sight = place.served("a:1", &nodes).await;
    evict(&place, sight.only(&nodes[0])).await;
    place.until_condition("Degraded", "True/PodsFail").await;
    // The others are rolled, and the failed one is replaced in place of its successor.
    place.apply(&place.rolling("a:2", two)).await;
    let sight = place.served("a:2", &nodes).await;
    assert_eq!(
        sight.only(&nodes[0]).annotation(ATTEMPT),
        None,
        "no successor"
    );
    assert_eq!(sight.condition("Degraded"), "False/NoPodFails");
}

#[tokio::test]
async fn a_failed_pod_on_a_cordoned_node_stays() {
    let place = Place::new("fails-cordoned", 1).await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &place.nodes(1)).await;
    place.cordon(0, true).await;
    evict(&place, &sight.pods[0]).await;
    place.until_condition("Degraded", "True/PodsFail").await;
    place.apply(&place.plain("a:2")).await;
    place
        .until("the new spec to be seen", Sight::is_current)
        .await;
    place.witness("meanwhile").await;
    assert_eq!(place.sight().await.uids(), sight.uids());
    place.cordon(0, false).await;
    place.served("a:2", &place.nodes(1)).await;
}

#[tokio::test]
async fn a_quota_stops_the_pods_and_not_the_operator() {
    let place = Place::new("quota", 3).await;
    let quota = |pods: u32| {
        format!(
            "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: few}}, spec: {{hard: {{pods: '{pods}'}}}}}}"
        )
    };
    place.kubectl.apply(&quota(1)).await.good();
    place
        .kubectl
        .until_field("resourcequota/few", "{.status.hard.pods}", "1")
        .await;
    place.apply(&place.plain("a:1")).await;
    let sight = place
        .until("one pod", |s| {
            s.condition("Degraded") == "True/PodRefused" && s.count("numberReady") == 1
        })
        .await;
    let message = sight.message("Degraded");
    assert!(message.contains("exceeded quota"), "{message}");
    assert_eq!(sight.pods.len(), 1);
    assert_eq!(sight.condition("Available"), "False/TooFewNodesAvailable");
    place.kubectl.apply(&quota(9)).await.good();
    let sight = place.served("a:1", &place.nodes(3)).await;
    assert_eq!(sight.condition("Degraded"), "False/NoPodFails");
}

#[tokio::test]
async fn a_denial_stops_the_batch_at_its_first_pods() {
    let place = Place::new("denied", 12).await;
    let expression = format!("{BY_OPERATOR} && request.dryRun != true");
    let policy = Policy::deny(&place.kubectl, "CREATE", "pods", &expression).await;
    let before = policy.refusals().await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.until_condition("Degraded", "True/PodRefused").await;
    let message = sight.message("Degraded");
    assert!(message.contains("held back by a test"), "{message}");
    // The operator tried 1 pod, or a few more in later reconciles: not 12, and not 12 again.
    let tried = policy.refusals().await - before;
    assert!((1..=4).contains(&tried), "{tried} calls");
    policy.lift().await;
    place.served("a:1", &place.nodes(12)).await;
}

#[tokio::test]
async fn a_pod_security_violation_is_reported_and_the_restricted_sample_passes() {
    let place = Place::new("security", 1).await;
    let namespace = &place.kubectl.namespace;
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    place
        .kubectl
        .run(&format!("label namespace {namespace} {enforce}"))
        .await
        .good();
    place
        .kubectl
        .until_refused("run probe --image=probe:1", "violates PodSecurity")
        .await;
    place.apply(&place.plain("a:1")).await;
    let sight = place.until_condition("Degraded", "True/PodRefused").await;
    let message = sight.message("Degraded");
    assert!(
        message.contains("violates PodSecurity \"restricted"),
        "{message}"
    );
    let sample = "config/samples/apps_v1beta1_mydaemonset_restricted.yaml";
    let sample = std::fs::read_to_string(crate::harness::checkout().join(sample)).unwrap();
    place.kubectl.apply(&sample).await.good();
    let sample = place.called("mydaemonset-restricted");
    let sight = sample
        .until("its pods", |s| {
            s.is_current() && s.count("numberReady") == s.count("desiredNumberScheduled")
        })
        .await;
    assert_eq!(sight.condition("Degraded"), "False/NoPodFails");
}

/// What a kubelet reports of a pod that it has not yet started.
#[tokio::test]
async fn the_reason_of_a_waiting_pod_is_reported_with_its_node() {
    let place = Place::new("ails", 1).await;
    place
        .apply(&place.with("a:1", &super::pending(), &json!({})))
        .await;
    let sight = place.until("a pod", |s| s.pods.len() == 1).await;
    let waiting = |reason: &str| -> Value {
        json!({"containerStatuses": [{"name": "app", "image": "a:1", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": reason}}}]})
    };
    for reason in ["ImagePullBackOff", "CreateContainerConfigError"] {
        place.set_status(&sight.pods[0].name, waiting(reason)).await;
        let words = format!("{} ({reason})", place.node(0));
        place
            .until(&words, |s| s.message("Degraded").contains(&words))
            .await;
    }
}

#[tokio::test]
async fn a_pod_that_succeeds_is_made_again_when_no_finalizer_keeps_it() {
    let place = Place::new("succeeds", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    for node in &nodes {
        let pod = before.only(node);
        if *node == nodes[0] {
            let keep = json!({"metadata": {"finalizers": ["example.com/keep"]}});
            place.patch_pod(&pod.name, keep).await;
        }
        let unready = json!({"type": "Ready", "status": "False", "reason": "PodCompleted", "lastTransitionTime": Utc::now()});
        let status = json!({"phase": "Succeeded", "conditions": [unready]});
        place.set_status(&pod.name, status).await;
    }
    let kept = before.only(&nodes[0]);
    let sight = place
        .until("one to be made again, and the other to be deleted", |s| {
            let other = matches!(s.on(&nodes[1])[..], [pod] if pod.serves() && pod.uid != before.only(&nodes[1]).uid);
            other && s.only(&nodes[0]).leaving
        })
        .await;
    assert_eq!(sight.only(&nodes[0]).uid, kept.uid);
    place.witness("meanwhile").await;
    assert_eq!(place.sight().await.only(&nodes[0]).uid, kept.uid);
    let release = json!({"metadata": {"finalizers": null}});
    place.patch_pod(&kept.name, release).await;
    let after = place.served("a:1", &nodes).await;
    assert_ne!(after.only(&nodes[0]).uid, kept.uid);
}

/// A webhook for those objects that is down, and that fails closed.
fn webhook_down(place: &Place, group: &str, plural: &str) -> (String, Value) {
    let name = format!("down-{}", place.kubectl.namespace);
    let namespace = json!({"kubernetes.io/metadata.name": place.kubectl.namespace});
    let operations = if plural == "pods" {
        json!(["CREATE"])
    } else {
        json!(["CREATE", "UPDATE"])
    };
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "down.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:9/"},
            "namespaceSelector": {"matchLabels": namespace},
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "resources": [plural], "operations": operations}],
        }],
    });
    (name, webhook)
}

#[tokio::test]
async fn a_revision_webhook_that_is_down_is_reported_and_stops_no_healing() {
    let place = Place::new("revisions-down", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    let (name, webhook) = webhook_down(&place, "apps", "controllerrevisions");
    place.kubectl.apply(&webhook.to_string()).await.good();
    let words = "failed calling webhook";
    let revisions = place.revisions().await;
    let revision = revisions[0]["metadata"]["name"].as_str().unwrap();
    let annotate = format!("annotate controllerrevision/{revision} probe=1");
    place.kubectl.until_refused(&annotate, words).await;
    place.apply(&place.plain("a:2")).await;
    let reported = |s: &Sight| {
        s.is_current()
            && s.condition("Degraded") == "True/FailedCreate"
            && s.message("Degraded").contains(words)
    };
    let sight = place.until("the revision", reported).await;
    assert_eq!(sight.uids(), before.uids());
    assert_eq!(sight.condition("Progressing"), "True/RollingOut");
    // A missing pod is made of the revision that is there.
    place.delete_pod(&before.only(&nodes[0]).name).await;
    let healed = |s: &Sight| s.serving("a:1").len() == 2 && s.uids() != before.uids();
    let sight = place.until("the missing pod", healed).await;
    assert_eq!(sight.of_image("a:2"), 0);
    place
        .kubectl
        .run(&format!("delete validatingwebhookconfiguration/{name}"))
        .await
        .good();
    let sight = place.served("a:2", &nodes).await;
    assert_eq!(sight.condition("Degraded"), "False/NoPodFails");
}

/// A pod webhook that is down, and that fails closed, as those of a service mesh or a policy engine do.
#[tokio::test]
async fn a_pod_webhook_that_is_down_is_reported_and_costs_no_pod() {
    let place = Place::new("webhook-down", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    let (name, webhook) = webhook_down(&place, "", "pods");
    place.kubectl.apply(&webhook.to_string()).await.good();
    let words = "failed calling webhook";
    place
        .kubectl
        .until_refused("run probe --image=probe:1", words)
        .await;
    let reported = |s: &Sight| {
        s.is_current()
            && s.condition("Degraded").starts_with("True/")
            && s.message("Degraded").contains(words)
    };
    // The roll-out does not begin.
    place.apply(&place.plain("a:2")).await;
    let sight = place.until("the roll-out's trial", reported).await;
    assert_eq!(sight.uids(), before.uids());
    place
        .kubectl
        .until_event("x", "that names the webhook", |event| {
            event.starts_with("Warning") && event.contains(words)
        })
        .await;
    // Nor is a missing pod made.
    place.apply(&place.plain("a:1")).await;
    place
        .until("the undo", |s| {
            s.is_current() && s.condition("Degraded") == "False/NoPodFails"
        })
        .await;
    place.delete_pod(&before.only(&nodes[0]).name).await;
    let sight = place.until("the missing pod", reported).await;
    assert_eq!(sight.pods.len(), 1);
    place
        .kubectl
        .run(&format!("delete validatingwebhookconfiguration/{name}"))
        .await
        .good();
    let sight = place.served("a:1", &nodes).await;
    assert_eq!(sight.condition("Degraded"), "False/NoPodFails");
}
