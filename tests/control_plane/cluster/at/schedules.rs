//! When an At starts, and when it no longer does.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::{STARTED_REASON, at, at_when, in_seconds, witness};
use crate::cluster::{environment, kubectl};
use crate::harness::{Kubectl, time, wait_for};

const SET_AT: &str = r"{.metadata.annotations.cnat\.programming-kubernetes\.info/schedule-set-at}";
const SCHEDULED: &str = "{.status.scheduledTime}";

/// Waits for the first status of an At.
async fn scheduled(kubectl: &Kubectl) -> DateTime<Utc> {
    time(&kubectl.until_any("at/x", SCHEDULED).await)
}

/// What changes with every write.
async fn version(kubectl: &Kubectl) -> String {
    kubectl.field("at/x", "{.metadata.resourceVersion}").await
}

#[tokio::test]
async fn a_relative_schedule_does_not_move_when_it_is_applied_again() {
    let all = [
        ("relative-client", "apply -f -"),
        ("relative-server", "apply --server-side -f -"),
        // As a GitOps tool does it, which owns every field it sets.
        (
            "relative-gitops",
            "apply --server-side --force-conflicts --field-manager=gitops -f -",
        ),
        ("relative-replace", "replace -f -"),
    ];
    let all = all.map(|(name, apply)| async move {
        let kubectl = kubectl(name).await;
        let object = at_when("now + 1 hour", "x", "", "");
        let first = apply.replace("replace", "create");
        kubectl.with(&first, &object).await.good();
        let due = scheduled(&kubectl).await;
        let created = time(&kubectl.field("at/x", "{.metadata.creationTimestamp}").await);
        // The API server cuts its time to the second, so the hour counts from that second's end.
        assert_eq!(due, created + TimeDelta::seconds(3601), "{apply}");
        kubectl
            .until_any("at/x", "{.status.dryRunGeneration}")
            .await;
        let before = version(&kubectl).await;
        let mut rounds = tokio::time::interval(Duration::from_secs(1));
        for _ in 0..4 {
            rounds.tick().await;
            kubectl.with(apply, &object).await.good();
        }
        witness(&kubectl, "witness", "now").await;
        assert_eq!(
            version(&kubectl).await,
            before,
            "{apply}: something was written"
        );
        assert_eq!(scheduled(&kubectl).await, due);
        kubectl.absent("at/x", SET_AT).await;
        // Another tool, or a label, does not move it either.
        kubectl
            .run("label at/x team=a --field-manager=somebody")
            .await
            .good();
        witness(&kubectl, "witness-2", "now").await;
        assert_eq!(scheduled(&kubectl).await, due);
    });
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn a_changed_relative_schedule_counts_from_its_change() {
    let kubectl = kubectl("changed").await;
    kubectl
        .apply(&at_when("now + 1 hour", "x", "", ""))
        .await
        .good();
    scheduled(&kubectl).await;
    let created = time(&kubectl.field("at/x", "{.metadata.creationTimestamp}").await);
    kubectl
        .apply(&at_when("now + 2 hours", "x", "", ""))
        .await
        .good();
    let set = time(&kubectl.field("at/x", SET_AT).await);
    assert!(set >= created, "{set} {created}");
    let second = set + TimeDelta::hours(2);
    kubectl
        .until("at/x", "to have another time", |at| {
            let due = at?["status"]["scheduledTime"].as_str()?;
            (time(due) == second).then_some(())
        })
        .await;
    // The same text once more moves nothing, nor does another field.
    let object = at_when("now + 2 hours", "x", "activeDeadlineSeconds: 5", "");
    for apply in ["apply -f -", "replace -f -", "apply -f -"] {
        kubectl.with(apply, &object).await.good();
        assert_eq!(time(&kubectl.field("at/x", SET_AT).await), set);
    }
    witness(&kubectl, "witness", "now").await;
    assert_eq!(time(&kubectl.field("at/x", SCHEDULED).await), second);
    // It does what it says: a second from its change, and not before.
    kubectl
        .apply(&at_when("now + 1 second", "x", "", ""))
        .await
        .good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
    let due = time(&kubectl.field("at/x", SET_AT).await) + TimeDelta::seconds(1);
    assert_eq!(time(&kubectl.field("at/x", SCHEDULED).await), due);
    assert!(time(&kubectl.field("at/x", "{.status.startTime}").await) >= due);
    // An instant does not depend on when it was set. Its lateness does, so that is recorded, too.
    kubectl
        .apply(&at_when("now + 1 hour", "z", "", ""))
        .await
        .good();
    kubectl.absent("at/z", SET_AT).await;
    kubectl
        .apply(&at_when("2999-01-01T00:00:00Z", "z", "", ""))
        .await
        .good();
    kubectl.field("at/z", SET_AT).await;
    kubectl
        .until_field("at/z", SCHEDULED, "2999-01-01T00:00:00Z")
        .await;
}

#[tokio::test]
async fn a_time_of_change_that_a_client_forges_is_ignored() {
    let kubectl = kubectl("forged-time").await;
    let forged = |schedule: &str| {
        at_when(schedule, "x", "", "").replace(
            "{name: x}",
            "{name: x, annotations: {cnat.programming-kubernetes.info/schedule-set-at: '2001-01-01T00:00:00.000Z', \
             cnat.programming-kubernetes.info/created-by: mallory}}",
        )
    };
    kubectl.apply(&forged("now + 1 hour")).await.good();
    kubectl.absent("at/x", SET_AT).await;
    let due = scheduled(&kubectl).await;
    assert!(due > Utc::now(), "{due}");
    kubectl.apply(&forged("now + 2 hours")).await.good();
    let set = kubectl.field("at/x", SET_AT).await;
    assert!(!set.is_empty() && !set.starts_with("2001"), "{set}");
    for change in [
        "annotate --overwrite at/x cnat.programming-kubernetes.info/schedule-set-at=2001-01-01T00:00:00.000Z",
        "annotate at/x cnat.programming-kubernetes.info/schedule-set-at-",
        "annotate --overwrite at/x cnat.programming-kubernetes.info/created-by=mallory",
    ] {
        kubectl.run(change).await.good();
        assert_eq!(kubectl.field("at/x", SET_AT).await, set, "{change}");
    }
    kubectl
        .with(
            "apply --server-side --force-conflicts -f -",
            &forged("now + 2 hours"),
        )
        .await
        .good();
    assert_eq!(kubectl.field("at/x", SET_AT).await, set);
    let creator = kubectl
        .field(
            "at/x",
            r"{.metadata.annotations.cnat\.programming-kubernetes\.info/created-by}",
        )
        .await;
    assert!(!creator.is_empty() && creator != "mallory", "{creator}");
    assert_eq!(kubectl.names("pods").await, [""; 0]);
}

#[tokio::test]
async fn a_suspended_at_waits_and_runs_when_it_is_resumed() {
    let kubectl = kubectl("suspend").await;
    kubectl.apply(&at("x", "suspend: true", "")).await.good();
    kubectl
        .until_field("at/x", "{.status.phase}", "PENDING")
        .await;
    kubectl
        .until_field("at/x", STARTED_REASON, "Suspended")
        .await;
    witness(&kubectl, "witness", "now").await;
    assert_eq!(kubectl.names("pods").await, ["witness-pod"]);
    kubectl.apply(&at("x", "suspend: false", "")).await.good();
    kubectl
        .until_field("at/x", "{.status.result}", "Succeeded")
        .await;
}

#[tokio::test]
async fn a_due_at_that_is_resumed_late_obeys_its_deadline() {
    let kubectl = kubectl("resumed").await;
    let due = in_seconds(1);
    let object = |name: &str, suspend: bool, more: &str| {
        at_when(&due, name, &format!("suspend: {suspend}{more}"), "")
    };
    let short = "\n  startingDeadlineSeconds: 1";
    let long = "\n  startingDeadlineSeconds: 3600";
    let all = [("none", ""), ("short", short), ("long", long)];
    for (name, more) in all {
        kubectl.apply(&object(name, true, more)).await.good();
    }
    let late = time(&due) + TimeDelta::seconds(2);
    wait_for("the deadline to pass", async || {
        (Utc::now() > late).then_some(())
    })
    .await;
    for (name, _) in all {
        let at = format!("at/{name}");
        // Not missed while it is suspended: the user who resumes it may also change its deadline.
        assert_eq!(
            kubectl.field(&at, "{.status.phase}").await,
            "PENDING",
            "{name}"
        );
    }
    for (name, more) in all {
        kubectl.apply(&object(name, false, more)).await.good();
    }
    for (name, result) in [
        ("none", "Succeeded"),
        ("short", "Missed"),
        ("long", "Succeeded"),
    ] {
        kubectl
            .until_field(&format!("at/{name}"), "{.status.result}", result)
            .await;
    }
    assert_eq!(
        kubectl.field("at/short", "{.status.reason}").await,
        "StartingDeadlineExceeded"
    );
    let late = kubectl
        .field("at/none", "{.status.latenessMilliseconds}")
        .await;
    assert!(late.parse::<i64>().unwrap() >= 2_000, "{late}");
    let pods = kubectl.names("pods").await;
    assert!(
        !pods.is_empty() && !pods.contains(&"short-pod".to_owned()),
        "{pods:?}"
    );
}

#[tokio::test]
async fn a_missed_deadline_is_reported_and_nothing_runs() {
    let kubectl = kubectl("missed").await;
    let late = at_when(
        "2020-01-01T00:00:00Z",
        "x",
        "startingDeadlineSeconds: 10",
        "",
    );
    kubectl.apply(&late).await.good();
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    assert_eq!(kubectl.field("at/x", "{.status.result}").await, "Missed");
    kubectl
        .run("wait --for=condition=Finished --timeout=90s at/x")
        .await
        .good();
    assert_eq!(kubectl.names("pods").await, [""; 0]);
    kubectl.absent("at/x", "{.status.startTime}").await;
}

#[tokio::test]
async fn a_pod_that_never_starts_is_ended_when_its_time_is_up() {
    let kubectl = kubectl("never-starts").await;
    let object = at("x", "activeDeadlineSeconds: 2", "").replace(
        "template: {",
        "template: {spec: {nodeSelector: {no: where}}, ",
    );
    kubectl.apply(&object).await.good();
    kubectl
        .until_field("at/x", "{.status.result}", "Failed")
        .await;
    assert_eq!(
        kubectl.field("at/x", "{.status.reason}").await,
        "DeadlineExceeded"
    );
    let message = kubectl.field("at/x", "{.status.message}").await;
    assert!(message.contains("no node"), "{message}");
    assert_eq!(kubectl.names("pods").await, [""; 0]);
}

#[tokio::test]
async fn the_kubelet_enforces_the_active_deadline() {
    let kubectl = kubectl("active-deadline").await;
    kubectl
        // Long enough for the pod to be started in, however busy the machine is.
        .apply(&at("x", "activeDeadlineSeconds: 10", super::HOLD))
        .await
        .good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    assert_eq!(
        kubectl
            .field("pod/x-pod", "{.spec.activeDeadlineSeconds}")
            .await,
        "10"
    );
    let started = time(&kubectl.until_any("at/x", "{.status.startTime}").await);
    let over = started + TimeDelta::seconds(11);
    wait_for("the time to be over", async || {
        (Utc::now() > over).then_some(())
    })
    .await;
    witness(&kubectl, "witness", "now").await;
    // This kubelet is a fake; the operator does not do its work.
    assert_eq!(kubectl.field("at/x", "{.status.phase}").await, "RUNNING");
    super::set_status(
        &kubectl,
        "x-pod",
        "{phase: Failed, reason: DeadlineExceeded, message: Pod was active on the node longer than the specified deadline}",
    ).await;
    kubectl
        .until_field("at/x", "{.status.result}", "Failed")
        .await;
    assert_eq!(
        kubectl.field("at/x", "{.status.reason}").await,
        "DeadlineExceeded"
    );
}

#[tokio::test]
async fn a_finished_at_goes_after_its_time_to_live() {
    let kubectl = kubectl("ttl").await;
    kubectl
        .apply(&at("x", "ttlSecondsAfterFinished: 1", ""))
        .await
        .good();
    kubectl.until_gone("at,pods").await;
}

#[tokio::test]
async fn a_missed_at_goes_after_its_time_to_live_too_and_a_kept_one_when_it_is_given_one() {
    let kubectl = kubectl("ttl-missed").await;
    let late = "{schedule: '2020-01-01T00:00:00Z', command: a, ttlSecondsAfterFinished: 0}";
    kubectl.apply(&super::at_with("missed", late)).await.good();
    witness(&kubectl, "kept", "now").await;
    kubectl.until_gone("at/missed").await;
    assert_eq!(kubectl.names("at").await, ["kept"]);
    let said = kubectl
        .run("patch at/kept --type=merge -p {\"spec\":{\"ttlSecondsAfterFinished\":0}}")
        .await;
    // The webhook sets the deadline that comes with it, so there is nothing to warn of.
    assert!(said.ok && !said.err.contains("no effect"), "{said:?}");
    kubectl.until_gone("at").await;
}

#[tokio::test]
async fn no_write_is_made_while_an_at_waits() {
    let kubectl = kubectl("quiet").await;
    kubectl
        .apply(&at_when("2999-01-01T00:00:00Z", "x", "", ""))
        .await
        .good();
    // The last one is about the dry run of its pod.
    kubectl
        .until_field("at/x", "{.status.dryRunGeneration}", "1")
        .await;
    let before = version(&kubectl).await;
    witness(&kubectl, "witness", "now").await;
    assert_eq!(version(&kubectl).await, before);
    assert!(environment().await.operator.process.is_running());
}
