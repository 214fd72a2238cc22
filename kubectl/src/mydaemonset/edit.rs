//! The changes that a command makes: a patch that carries only what changes.
//!
//! Each patch has the object's UID, so that it does not reach a namesake. One that depends on what was read of the
//! object has its `resourceVersion` too, and the API server rejects it with a conflict if the object changed meanwhile.
//! A template is replaced as a whole, by a JSON patch, and not merged with the one before.

use chrono::{DateTime, SecondsFormat, Utc};
use kube::ResourceExt as _;
use kube::api::Patch;
use my_operator_mydaemonset::names::{APPROVE_ANNOTATION, RESUME_ANNOTATION};
use my_operator_mydaemonset::status::WAITING_FOR_APPROVAL;
use serde_json::{Value, json};

use super::history::{RESTARTED_AT, Revision};
use super::object::{Object, RESOURCE};

/// What a command does to an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edit {
    /// `None` where nothing is to be changed.
    pub(crate) patch: Option<Patch<Value>>,
    /// What happened to the object, as kubectl says it: `mydaemonset.apps.zhongmingmao.io/web paused`.
    pub(crate) operation: String,
}

impl Edit {
    fn merge(object: &Object, mut patch: Value, operation: impl Into<String>) -> Self {
        patch["metadata"]["uid"] = object.uid.as_str().into();
        Self {
            patch: Some(Patch::Merge(patch)),
            operation: operation.into(),
        }
    }
}

/// An error as kubectl words it.
fn error(object: &Object, text: &str) -> String {
    format!("{RESOURCE} {:?} {text}", object.name)
}

fn rolling(field: &str, value: Value) -> Value {
    let mut change = json!({});
    change["spec"]["updateStrategy"]["rollingUpdate"][field] = value;
    change
}

fn check_strategy(object: &Object, what: &str) -> Result<(), String> {
    if object.strategy().on_delete {
        let text = format!("{what} has no effect: its updateStrategy is OnDelete");
        return Err(error(object, &text));
    }
    Ok(())
}

/// Stops the roll-out.
pub(crate) fn pause(object: &Object) -> Result<Edit, String> {
    check_strategy(object, "pausing")?;
    if object.strategy().paused {
        return Err(error(object, "is already paused"));
    }
    let fields = rolling("paused", true.into());
    Ok(Edit::merge(object, fields, "paused"))
}

/// The revision of a stopped roll-out that a resume lets go on. To let a paused way back go on is not to ask for the
/// revision that failed.
pub(crate) fn resumed(object: &Object) -> Option<String> {
    let is_paused = object.strategy().paused;
    let is_asked_for =
        |revision: &String| !(is_paused && object.is_undone() && *revision == object.revision());
    object.stopped().filter(is_asked_for)
}

/// Lets a roll-out go on that a user paused or that stopped by itself. The annotation names the revision: should
/// the image or template change meanwhile, it has no effect.
pub(crate) fn resume(object: &Object) -> Result<Edit, String> {
    let is_paused = object.strategy().paused;
    let stopped = resumed(object);
    if !is_paused && stopped.is_none() {
        return Err(error(object, "is not paused"));
    }
    let mut fields = json!({});
    if is_paused {
        fields = rolling("paused", false.into());
    }
    if let Some(revision) = stopped {
        if object.is_undone() && revision == object.revision() {
            // It was approved before it failed.
            fields["metadata"]["annotations"][APPROVE_ANNOTATION] = Value::Null;
        }
        fields["metadata"]["annotations"][RESUME_ANNOTATION] = revision.into();
    }
    Ok(Edit::merge(object, fields, "resumed"))
}

/// Ends the canary: the revision goes to the other nodes. The annotation names the revision: should the image or
/// template change meanwhile, it has no effect.
pub(crate) fn approve(object: &Object) -> Result<Edit, String> {
    check_strategy(object, "an approval")?;
    let operation = if object.holds_its_canaries() {
        "approved, and held until it is resumed or thawed"
    } else if !object.is_on_canaries() {
        return Err(error(object, "is not on its canaries"));
    } else if object.progress() == WAITING_FOR_APPROVAL {
        "approved"
    } else {
        "approved before its soak was over"
    };
    let revision = object.revision();
    let fields = json!({"metadata": {"annotations": {APPROVE_ANNOTATION: revision}}});
    Ok(Edit::merge(object, fields, operation))
}

/// Replaces every pod by one of the same content, node by node.
pub(crate) fn restart(object: &Object, now: DateTime<Utc>) -> Result<Edit, String> {
    if object.strategy().paused {
        let text = "can't restart paused mydaemonset (run rollout resume first)";
        return Err(error(object, text));
    }
    if object.stopped().is_some() {
        // The restart would be another revision of the same content, which goes on to the next nodes.
        let text =
            "can't restart: its roll-out stopped by itself (run rollout resume or undo first)";
        return Err(error(object, text));
    }
    let at = now.to_rfc3339_opts(SecondsFormat::Secs, true);
    if object.raw.data["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT] == *at {
        let text = "if restart has already been triggered within the past second, please wait before attempting to trigger another";
        return Err(error(object, text));
    }
    let fields = json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: at}}}}});
    Ok(Edit::merge(object, fields, "restarted"))
}

/// Keeps that many nodes on the revision that they have.
pub(crate) fn partition(object: &Object, nodes: i32) -> Result<Edit, String> {
    check_strategy(object, "a partition")?;
    let before = object.strategy().partition;
    let operation = format!("partition set to {nodes} (was {before})");
    let fields = rolling("partition", nodes.into());
    Ok(Edit::merge(object, fields, operation))
}

/// Goes back to the image and the template of that revision.
pub(crate) fn undo(object: &Object, to: &Revision) -> Result<Edit, String> {
    let mut operations = Vec::new();
    for field in ["image", "template"] {
        let path = format!("/spec/{field}");
        let (before, after) = (&object.raw.data["spec"][field], &to.content[field]);
        if after.is_null() && !before.is_null() {
            operations.push(json!({"op": "remove", "path": path}));
        } else if after != before {
            operations.push(json!({"op": "add", "path": path, "value": after}));
        }
    }
    let number = to.number;
    if operations.is_empty() {
        return Ok(Edit {
            patch: None,
            operation: format!(
                "skipped rollback (current template already matches revision {number})"
            ),
        });
    }
    // They would let the same revision go on at once, should it come back from a file, however its pods fail.
    for annotation in [RESUME_ANNOTATION, APPROVE_ANNOTATION] {
        if object.raw.annotations().contains_key(annotation) {
            let path = format!("/metadata/annotations/{}", annotation.replace('/', "~1"));
            operations.push(json!({"op": "remove", "path": path}));
        }
    }
    for (field, value) in [("uid", &object.uid), ("resourceVersion", &object.version)] {
        let path = format!("/metadata/{field}");
        // With `replace` and not `test`: the API server then reports a conflict, and not an invalid patch.
        operations.push(json!({"op": "replace", "path": path, "value": value}));
    }
    let operations = serde_json::from_value(operations.into());
    let operations = operations.map_err(|error| error.to_string())?;
    Ok(Edit {
        patch: Some(Patch::Json(operations)),
        operation: format!("rolled back to revision {number} ({})", to.image()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::history::tests::revision;
    use super::super::object::tests::object;
    use super::*;

    fn merge(edit: Result<Edit, String>) -> (Value, String) {
        let edit = edit.unwrap();
        match edit.patch {
            Some(Patch::Merge(patch)) => (patch, edit.operation),
            other => unreachable_patch(other.as_ref()),
        }
    }

    #[allow(clippy::panic)]
    fn unreachable_patch(patch: Option<&Patch<Value>>) -> ! {
        panic!("not a merge patch: {patch:?}")
    }

    fn plain() -> Object {
        object(&json!({"image": "nginx:1.29"}), &Value::Null)
    }

    fn with(rolling: &Value) -> Object {
        let spec = json!({"image": "nginx:1.29", "updateStrategy": {"rollingUpdate": rolling}});
        object(&spec, &Value::Null)
    }

    fn stopped(rolling: &Value) -> Object {
        let spec = json!({"image": "nginx:1.29", "updateStrategy": {"rollingUpdate": rolling}});
        let condition = json!({"type": "Progressing", "status": "False", "reason": "AutoPaused",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        object(
            &spec,
            &json!({"updateRevision": "5djmrzzhj3", "conditions": [condition]}),
        )
    }

    #[test]
    fn a_pause_changes_one_field() {
        let (patch, operation) = merge(pause(&plain()));
        assert_eq!(
            patch,
            json!({"metadata": {"uid": "u"}, "spec": {"updateStrategy": {"rollingUpdate": {"paused": true}}}})
        );
        assert_eq!(operation, "paused");
        let error = pause(&with(&json!({"paused": true}))).unwrap_err();
        assert_eq!(
            error,
            "mydaemonsets.apps.zhongmingmao.io \"web\" is already paused"
        );
        let spec = json!({"image": "nginx:1.29", "updateStrategy": {"type": "OnDelete"}});
        let on_delete = object(&spec, &Value::Null);
        assert!(pause(&on_delete).unwrap_err().contains("OnDelete"));
        assert!(partition(&on_delete, 1).unwrap_err().contains("OnDelete"));
    }

    #[test]
    fn a_resume_undoes_both_kinds_of_pause_and_no_other() {
        let error = resume(&plain()).unwrap_err();
        assert_eq!(
            error,
            "mydaemonsets.apps.zhongmingmao.io \"web\" is not paused"
        );
        let (by_hand, _) = merge(resume(&with(&json!({"paused": true}))));
        assert_eq!(
            by_hand,
            json!({"metadata": {"uid": "u"}, "spec": {"updateStrategy": {"rollingUpdate": {"paused": false}}}})
        );
        let annotation = json!({"apps.zhongmingmao.io/resume-revision": "5djmrzzhj3"});
        let (by_itself, _) = merge(resume(&stopped(&json!({}))));
        assert_eq!(
            by_itself,
            json!({"metadata": {"uid": "u", "annotations": annotation}})
        );
        let (both, _) = merge(resume(&stopped(&json!({"paused": true}))));
        assert_eq!(both["metadata"]["annotations"], annotation);
        assert_eq!(both["spec"], by_hand["spec"]);
    }

    #[test]
    fn a_resume_of_a_paused_way_back_does_not_try_the_failed_revision_again() {
        let undone = |rolling: &Value, reason: &str, failed: &Value| {
            let spec = json!({"image": "nginx:1.29", "updateStrategy": {"rollingUpdate": rolling}});
            let condition = json!({"type": "Progressing", "status": "False", "reason": reason,
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let status = json!({"updateRevision": "5djmrzzhj3", "failedRevisions": failed,
                "completeRevisions": ["before"], "conditions": [condition]});
            let (patch, _) = merge(resume(&object(&spec, &status)));
            patch
        };
        let (runs, paused) = (json!({}), json!({"paused": true}));
        let one = json!(["5djmrzzhj3"]);
        let unpaused = undone(&paused, "Paused", &one);
        assert_eq!(
            unpaused,
            json!({"metadata": {"uid": "u"}, "spec": {"updateStrategy": {"rollingUpdate": {"paused": false}}}})
        );
        let annotations = |patch: Value| patch["metadata"]["annotations"].clone();
        let again = annotations(undone(&runs, "RolledBack", &one));
        assert_eq!(
            again,
            json!({"apps.zhongmingmao.io/resume-revision": "5djmrzzhj3", "apps.zhongmingmao.io/approve-revision": null})
        );
        // The way back has stopped itself: that is what goes on.
        let back = json!({"apps.zhongmingmao.io/resume-revision": "before"});
        let two = json!(["5djmrzzhj3", "before"]);
        for rolling in [&runs, &paused] {
            assert_eq!(annotations(undone(rolling, "AutoPaused", &two)), back);
            assert_eq!(annotations(undone(rolling, "NoEligibleNodes", &one)), back);
        }
    }

    fn on_canary(reason: &str, revision: &str) -> Object {
        let spec =
            json!({"image": "nginx:1.29", "updateStrategy": {"rollingUpdate": {"canary": {}}}});
        let condition = json!({"type": "Progressing", "status": "True", "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        object(
            &spec,
            &json!({"updateRevision": revision, "conditions": [condition]}),
        )
    }

    #[test]
    fn an_approval_names_the_revision() {
        let (patch, operation) = merge(approve(&on_canary("WaitingForApproval", "5djmrzzhj3")));
        let annotation = json!({"apps.zhongmingmao.io/approve-revision": "5djmrzzhj3"});
        assert_eq!(
            patch,
            json!({"metadata": {"uid": "u", "annotations": annotation}})
        );
        assert_eq!(operation, "approved");
        let (_, early) = merge(approve(&on_canary("Canary", "5djmrzzhj3")));
        assert_eq!(early, "approved before its soak was over");
        for held in ["Paused", "Frozen"] {
            let (held, operation) = merge(approve(&on_canary(held, "5djmrzzhj3")));
            assert_eq!(held, patch);
            assert_eq!(
                operation,
                "approved, and held until it is resumed or thawed"
            );
        }
        let mut passed = on_canary("Paused", "5djmrzzhj3");
        passed.status.promoted_revision = Some("5djmrzzhj3".to_owned());
        let mut complete = on_canary("Paused", "5djmrzzhj3");
        complete.status.complete_revisions = vec!["5djmrzzhj3".to_owned()];
        assert!(approve(&passed).is_err() && approve(&complete).is_err());
        for other in [
            plain(),
            on_canary("RollingOut", "5djmrzzhj3"),
            on_canary("Canary", "zzzzzzzzzz"),
        ] {
            assert_eq!(
                approve(&other).unwrap_err(),
                "mydaemonsets.apps.zhongmingmao.io \"web\" is not on its canaries"
            );
        }
    }

    #[test]
    fn a_restart_sets_kubectls_annotation() {
        let now = DateTime::from_timestamp(1_767_225_600, 5_000_000).unwrap();
        let (patch, operation) = merge(restart(&plain(), now));
        assert_eq!(
            patch["spec"],
            json!({"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}})
        );
        assert_eq!(operation, "restarted");
        let mut spec = patch["spec"].clone();
        spec["image"] = json!("nginx:1.29");
        let again = restart(&object(&spec, &Value::Null), now).unwrap_err();
        assert!(again.ends_with("please wait before attempting to trigger another"));
        let paused = restart(&with(&json!({"paused": true})), now).unwrap_err();
        assert!(paused.contains("run rollout resume first"), "{paused}");
        let failed = restart(&stopped(&json!({})), now).unwrap_err();
        assert!(failed.contains("stopped by itself"), "{failed}");
    }

    #[test]
    fn an_undo_replaces_image_and_template_and_is_guarded() {
        let spec = json!({"image": "b:2", "template": {"metadata": {"labels": {"x": "y"}}}, "minReadySeconds": 5});
        let object = object(&spec, &Value::Null);
        let guards = |operations: &mut Vec<Value>| {
            let guards = operations.split_off(operations.len() - 2);
            assert_eq!(
                guards[0],
                json!({"op": "replace", "path": "/metadata/uid", "value": "u"})
            );
            assert_eq!(guards[1]["path"], "/metadata/resourceVersion");
            assert_eq!(guards[1]["value"], "7");
        };
        let all = |object: &Object, content: Value| {
            let patch = undo(object, &revision(1, "a", content)).unwrap().patch;
            match &patch {
                Some(Patch::Json(operations)) => json!(operations).as_array().unwrap().clone(),
                other => unreachable_patch(other.as_ref()),
            }
        };
        let operations = |content: Value| {
            let mut operations = all(&object, content);
            guards(&mut operations);
            Value::from(operations)
        };
        assert_eq!(
            operations(json!({"image": "a:1"})),
            json!([
                {"op": "add", "path": "/spec/image", "value": "a:1"},
                {"op": "remove", "path": "/spec/template"},
            ])
        );
        assert_eq!(
            operations(json!({"image": "b:2", "template": {"spec": {}}})),
            json!([{"op": "add", "path": "/spec/template", "value": {"spec": {}}}])
        );
        // A stop that was lifted does not stay lifted.
        let mut resumed = object.raw.clone();
        let annotation = (RESUME_ANNOTATION.to_owned(), "a".to_owned());
        resumed.metadata.annotations = Some([annotation].into());
        let operations = all(&Object::decode(resumed).unwrap(), json!({"image": "a:1"}));
        let path = "/metadata/annotations/apps.zhongmingmao.io~1resume-revision";
        assert_eq!(operations[2], json!({"op": "remove", "path": path}));
        let same = json!({"image": "b:2", "template": {"metadata": {"labels": {"x": "y"}}}});
        let skipped = undo(&object, &revision(4, "a", same)).unwrap();
        assert_eq!(skipped.patch, None);
        assert_eq!(
            skipped.operation,
            "skipped rollback (current template already matches revision 4)"
        );
    }

    #[test]
    fn a_partition_says_what_it_was() {
        let (patch, operation) = merge(partition(&with(&json!({"partition": 2})), 5));
        assert_eq!(
            patch["spec"],
            json!({"updateStrategy": {"rollingUpdate": {"partition": 5}}})
        );
        assert_eq!(operation, "partition set to 5 (was 2)");
    }
}
