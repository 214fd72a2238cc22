//! The words of `rollout status`: kubectl's about a DaemonSet, and about a StatefulSet where a partition ends the
//! roll-out.
//!
//! Whether a roll-out is at its end is the operator's verdict, in the condition `Progressing`. kubectl counts pods,
//! and so waits for ever for a node that is down or cordoned.

use my_operator_mydaemonset::status::{
    CANARY, COMPLETE, CORDONED, DEGRADED, FROZEN, MAINTENANCE, MIGRATING, OUTSIDE_WINDOW,
    PARTITIONED, PROGRESSING, ROLLED_BACK, ROLLING_BACK, STALLED, WAITING_FOR_APPROVAL,
    is_migrating,
};
use wall_clock_controller::reconcile::condition::ACCEPTED;

use super::object::{Object, RESOURCE};

/// How far a roll-out is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// A line.
    pub(crate) text: String,
    pub(crate) is_done: bool,
    /// Why the roll-out takes longer than usual, for standard error.
    pub(crate) note: Option<String>,
}

/// How far the roll-out of the present spec is, or why it has failed. `pinned` and `running` are the revision that the
/// user asks for, and the number of the newest one.
pub(crate) fn progress(
    object: &Object,
    pinned: i64,
    running: Option<i64>,
) -> Result<Progress, String> {
    let name = &object.name;
    let waiting = |text: String| Progress {
        text,
        is_done: false,
        note: note(object),
    };
    if object.strategy().on_delete {
        return Err("rollout status is only available for RollingUpdate strategy type".to_owned());
    }
    if !object.is_observed() {
        let text = "Waiting for daemon set spec update to be observed...";
        return Ok(waiting(text.to_owned()));
    }
    if let Some(running) = running.filter(|running| pinned > 0 && *running != pinned) {
        return Err(format!(
            "desired revision ({pinned}) is different from the running revision ({running})"
        ));
    }
    if let Some(failure) = failure(object) {
        return Err(failure);
    }
    let count = |count: Option<i32>| count.unwrap_or_default();
    let status = &object.status;
    let desired = count(status.desired_number_scheduled);
    let updated = count(status.updated_number_scheduled);
    let available = count(status.number_available);
    let done = |text| Progress {
        text,
        is_done: true,
        note: paused(object),
    };
    let to_finish = |what: &str| {
        let text = format!("Waiting for daemon set {name:?} rollout to finish: {what}...");
        waiting(text)
    };
    let some = format!("{updated} out of {desired} new pods have been updated");
    Ok(match object.progress() {
        COMPLETE | CORDONED | MAINTENANCE if available < desired || updated < desired => {
            done(format!(
                "daemon set {name:?} successfully rolled out ({updated} out of {desired} pods have been updated, {available} are available)"
            ))
        }
        COMPLETE | CORDONED | MAINTENANCE => {
            done(format!("daemon set {name:?} successfully rolled out"))
        }
        PARTITIONED if object.holds(DEGRADED).is_some() => waiting(format!(
            "Waiting for partitioned roll out to finish: {updated} new pods have been updated, and pods fail..."
        )),
        PARTITIONED => done(format!(
            "partitioned roll out complete: {updated} new pods have been updated..."
        )),
        ROLLING_BACK => waiting(format!(
            "Waiting for daemon set {name:?} to go back: its newest revision failed..."
        )),
        MIGRATING => to_finish("its pods are changing hands"),
        CANARY => to_finish(&format!("{some}, and are tried as canaries")),
        OUTSIDE_WINDOW => to_finish(&format!("{some}, and no window is open")),
        WAITING_FOR_APPROVAL => to_finish(&format!("{some}, and wait for approval")),
        _ if updated < desired => to_finish(&some),
        _ if available < desired => to_finish(&format!(
            "{available} of {desired} updated pods are available"
        )),
        _ => to_finish("old pods are pending termination"),
    })
}

/// Why the roll-out does not go on until a user acts.
fn failure(object: &Object) -> Option<String> {
    let name = &object.name;
    let accepted = object.condition(ACCEPTED);
    if accepted.is_some_and(|c| c.status == "False") {
        let message = object.message(ACCEPTED);
        return Some(format!("{RESOURCE} {name:?} is invalid: {message}"));
    }
    let (what, type_) = if object.is_auto_paused() {
        ("stopped by itself", PROGRESSING)
    } else if object.progress() == ROLLED_BACK {
        ("went back by itself", PROGRESSING)
    } else {
        object.holds(STALLED)?;
        ("cannot be rolled out", STALLED)
    };
    let message = object.message(type_);
    Some(format!("daemon set {name:?} {what}: {message}"))
}

fn note(object: &Object) -> Option<String> {
    if is_migrating(&object.status) || object.progress() == ROLLING_BACK {
        let condition = object.condition(PROGRESSING)?;
        return Some(condition.message.clone());
    }
    if let Some(frozen) = object.holds(FROZEN) {
        return Some(frozen.message.clone());
    }
    if let Some(paused) = paused(object) {
        return Some(paused);
    }
    if let Some(degraded) = object.holds(DEGRADED) {
        return Some(format!("{}: {}", degraded.reason, degraded.message));
    }
    let progressing = object.condition(PROGRESSING)?;
    match progressing.reason.as_str() {
        CANARY | OUTSIDE_WINDOW => Some(progressing.message.clone()),
        WAITING_FOR_APPROVAL => {
            let [name, namespace] = [&object.name, &object.namespace];
            let command = format!("kubectl mydaemonset approve {name} -n {namespace}");
            Some(format!("waiting for approval; go on with: {command}"))
        }
        _ => {
            let domain = object.status.domain.as_deref()?;
            Some(format!("rolling out to {domain}"))
        }
    }
}

/// That a user paused it, if so: also after a roll-out, since the next one will wait.
pub(super) fn paused(object: &Object) -> Option<String> {
    let (name, namespace) = (&object.name, &object.namespace);
    object.strategy().paused.then(|| {
        format!("paused; go on with: kubectl mydaemonset rollout resume {name} -n {namespace}")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::super::object::tests::object;
    use super::*;

    /// The status of an object of generation 3, with a condition `Progressing` of that reason.
    fn status(counts: [i32; 3], reason: &str) -> Value {
        let [desired, updated, available] = counts;
        json!({
            "observedGeneration": 3, "updateRevision": "5djmrzzhj3",
            "desiredNumberScheduled": desired, "updatedNumberScheduled": updated, "numberAvailable": available,
            "conditions": [condition("Progressing", if reason == "RollingOut" { "True" } else { "False" }, reason)],
        })
    }

    fn condition(type_: &str, status: &str, reason: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": "the message",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    fn spec() -> Value {
        json!({"image": "nginx:1.29"})
    }

    fn of(counts: [i32; 3], reason: &str) -> Result<(String, bool), String> {
        let progress = progress(&object(&spec(), &status(counts, reason)), 0, None)?;
        Ok((progress.text, progress.is_done))
    }

    #[test]
    fn kubectls_words() {
        let cases = [
            (
                [3, 1, 0],
                "RollingOut",
                "Waiting for daemon set \"web\" rollout to finish: 1 out of 3 new pods have been updated...",
                false,
            ),
            (
                [3, 3, 2],
                "RollingOut",
                "Waiting for daemon set \"web\" rollout to finish: 2 of 3 updated pods are available...",
                false,
            ),
            (
                [3, 3, 3],
                "RollingOut",
                "Waiting for daemon set \"web\" rollout to finish: old pods are pending termination...",
                false,
            ),
            (
                [3, 1, 3],
                "OutsideWindow",
                "Waiting for daemon set \"web\" rollout to finish: 1 out of 3 new pods have been updated, and no window is open...",
                false,
            ),
            (
                [3, 1, 2],
                "RollingBack",
                "Waiting for daemon set \"web\" to go back: its newest revision failed...",
                false,
            ),
            (
                [3, 1, 3],
                "Paused",
                "Waiting for daemon set \"web\" rollout to finish: 1 out of 3 new pods have been updated...",
                false,
            ),
            (
                [3, 1, 3],
                "Canary",
                "Waiting for daemon set \"web\" rollout to finish: 1 out of 3 new pods have been updated, and are tried as canaries...",
                false,
            ),
            (
                [3, 1, 3],
                "WaitingForApproval",
                "Waiting for daemon set \"web\" rollout to finish: 1 out of 3 new pods have been updated, and wait for approval...",
                false,
            ),
            (
                [3, 3, 3],
                "Complete",
                "daemon set \"web\" successfully rolled out",
                true,
            ),
            (
                [0, 0, 0],
                "Complete",
                "daemon set \"web\" successfully rolled out",
                true,
            ),
            (
                [3, 2, 2],
                "Complete",
                "daemon set \"web\" successfully rolled out (2 out of 3 pods have been updated, 2 are available)",
                true,
            ),
            (
                [3, 2, 3],
                "Cordoned",
                "daemon set \"web\" successfully rolled out (2 out of 3 pods have been updated, 3 are available)",
                true,
            ),
            (
                [3, 2, 3],
                "Maintenance",
                "daemon set \"web\" successfully rolled out (2 out of 3 pods have been updated, 3 are available)",
                true,
            ),
            (
                [3, 2, 3],
                "Partitioned",
                "partitioned roll out complete: 2 new pods have been updated...",
                true,
            ),
        ];
        for (counts, reason, text, is_done) in cases {
            assert_eq!(of(counts, reason), Ok((text.to_owned(), is_done)));
        }
    }

    #[test]
    fn an_older_status_is_waited_for_whatever_it_says() {
        let mut old = status([3, 3, 3], "AutoPaused");
        old["observedGeneration"] = json!(2);
        let progress = progress(&object(&spec(), &old), 0, None).unwrap();
        assert_eq!(
            progress.text,
            "Waiting for daemon set spec update to be observed..."
        );
        assert!(!progress.is_done);
        let never = super::progress(&object(&spec(), &Value::Null), 0, None).unwrap();
        assert_eq!(never.text, progress.text);
    }

    #[test]
    fn a_roll_out_that_needs_a_user_has_failed() {
        let stopped = of([3, 1, 2], "AutoPaused").unwrap_err();
        assert_eq!(stopped, "daemon set \"web\" stopped by itself: the message");
        let mut conflict = status([3, 0, 0], "RevisionConflict");
        conflict["conditions"] = json!([
            condition("Progressing", "False", "RevisionConflict"),
            condition("Stalled", "True", "RevisionConflict")
        ]);
        let failed = progress(&object(&spec(), &conflict), 0, None).unwrap_err();
        assert_eq!(
            failed,
            "daemon set \"web\" cannot be rolled out: the message"
        );
        let mut invalid = status([3, 3, 3], "Complete");
        invalid["conditions"] = json!([condition("Accepted", "False", "Invalid")]);
        let failed = progress(&object(&spec(), &invalid), 0, None).unwrap_err();
        assert!(
            failed.ends_with("\"web\" is invalid: the message"),
            "{failed}"
        );
        let undone = of([3, 0, 3], "RolledBack").unwrap_err();
        assert_eq!(
            undone,
            "daemon set \"web\" went back by itself: the message"
        );
        let on_delete = json!({"image": "nginx:1.29", "updateStrategy": {"type": "OnDelete"}});
        let failed = progress(&object(&on_delete, &status([3, 3, 3], "OnDelete")), 0, None);
        assert_eq!(
            failed.unwrap_err(),
            "rollout status is only available for RollingUpdate strategy type"
        );
    }

    #[test]
    fn failing_pods_of_a_partitioned_roll_out_are_waited_for() {
        let mut failing = status([3, 2, 2], "Partitioned");
        let conditions = [
            condition("Progressing", "False", "Partitioned"),
            condition("Degraded", "True", "PodsFail"),
        ];
        failing["conditions"] = json!(conditions);
        let progress = progress(&object(&spec(), &failing), 0, None).unwrap();
        assert!(!progress.is_done, "{progress:?}");
        assert_eq!(progress.note.as_deref(), Some("PodsFail: the message"));
    }

    #[test]
    fn a_pinned_revision_must_be_the_newest() {
        let object = object(&spec(), &status([3, 3, 3], "Complete"));
        assert!(progress(&object, 4, Some(4)).unwrap().is_done);
        assert!(progress(&object, 0, Some(4)).unwrap().is_done);
        assert_eq!(
            progress(&object, 3, Some(4)).unwrap_err(),
            "desired revision (3) is different from the running revision (4)"
        );
    }

    #[test]
    fn what_delays_a_roll_out_is_a_note() {
        let note =
            |spec: &Value, status: &Value| progress(&object(spec, status), 0, None).unwrap().note;
        assert_eq!(note(&spec(), &status([3, 1, 3], "RollingOut")), None);
        let paused =
            json!({"image": "nginx:1.29", "updateStrategy": {"rollingUpdate": {"paused": true}}});
        let text = note(&paused, &status([3, 1, 3], "Paused")).unwrap();
        assert_eq!(
            text,
            "paused; go on with: kubectl mydaemonset rollout resume web -n shop"
        );
        let canary = note(&spec(), &status([3, 1, 3], "Canary"));
        assert_eq!(canary.as_deref(), Some("the message"));
        let outside = note(&spec(), &status([3, 1, 3], "OutsideWindow"));
        assert_eq!(outside.as_deref(), Some("the message"));
        let mut rolling = status([3, 1, 3], "RollingOut");
        rolling["domain"] = json!("zone b");
        let domain = note(&spec(), &rolling);
        assert_eq!(domain.as_deref(), Some("rolling out to zone b"));
        let waits = note(&spec(), &status([3, 1, 3], "WaitingForApproval")).unwrap();
        assert_eq!(
            waits,
            "waiting for approval; go on with: kubectl mydaemonset approve web -n shop"
        );
        let mut degraded = status([3, 1, 2], "RollingOut");
        degraded["conditions"] = json!([condition("Degraded", "True", "PodsFail")]);
        assert_eq!(
            note(&spec(), &degraded).as_deref(),
            Some("PodsFail: the message")
        );
    }
}
