//! What must hold of every history of an object that owns a child, whatever failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use simulated_apiserver::{ChangeKind, Version};

use super::Family;
use super::controllers::JOB_UID;
use crate::sweep::changes::{condition, conditions, is_operator, left, reasons, versions};
use crate::sweep::faults::Fault;
use crate::sweep::subject::{Judged, Seen};

/// The annotation of a child with the name of its object.
fn owner_annotation(family: &Family) -> String {
    let group = family.api_version.split('/').next().unwrap_or_default();
    format!("{group}/owner")
}

/// The UID of the object of our kind that controls a child.
fn owner_uid<'a>(family: &Family, child: &'a Value) -> Option<&'a str> {
    let owners = child["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    (owner["kind"] == family.object_kind).then_some(owner["uid"].as_str()?)
}

/// Whether a child is one that operators may write: controlled by an object of our kind, or made for one and controlled by
/// nothing.
fn is_ours(family: &Family, child: &Value) -> bool {
    let labels = &child["metadata"]["labels"];
    let is_orphan = child["metadata"]["ownerReferences"]
        .as_array()
        .is_none_or(Vec::is_empty)
        && child["metadata"]["annotations"][owner_annotation(family)] == super::NAME
        && labels["app.kubernetes.io/managed-by"] == "my-operator";
    owner_uid(family, child).is_some() || is_orphan
}

/// Judges a history.
pub fn judge(family: &Family, seen: &Seen<'_>) -> Judged {
    let history = seen.history;
    let mut broken = Vec::new();
    let mut say = |what: String| broken.push(what);
    for child in versions(history, family.children).filter(|version| is_operator(&version.by)) {
        writes_its_own(family, child, &mut say);
        if family.child_kind == "Job" {
            stops_nothing_that_runs(child, &mut say);
        }
    }
    if family.child_kind == "Job" {
        starts_once(family, seen, &mut say);
    }
    let mut objects: BTreeMap<&str, Vec<&Version>> = BTreeMap::new();
    for version in versions(history, family.plural) {
        objects.entry(&version.uid).or_default().push(version);
    }
    for versions in objects.values() {
        reports_what_is_so(family, seen, versions, &mut say);
    }
    Judged {
        outcome: outcome(family, seen),
        broken,
        end_may_differ: false,
        marks: reasons(history, family.plural),
        patience: Duration::ZERO,
    }
}

/// Operators write no child but those that are theirs, and make none without an owner.
fn writes_its_own(family: &Family, child: &Version, say: &mut impl FnMut(String)) {
    let (what, of_whom) = match child.kind {
        ChangeKind::Added => ("created", child.object()),
        ChangeKind::Modified => ("changed", child.previous().unwrap_or(&Value::Null)),
        ChangeKind::Deleted => ("deleted", child.object()),
    };
    let is_right = match child.kind {
        ChangeKind::Added => owner_uid(family, of_whom).is_some(),
        _ => is_ours(family, of_whom),
    };
    if !is_right {
        say(format!(
            "{} {what} {}, which is not its own",
            child.by, child.name
        ));
    }
}

/// No Job is deleted whose command may be running.
fn stops_nothing_that_runs(job: &Version, say: &mut impl FnMut(String)) {
    let before = job.previous().unwrap_or_else(|| job.object());
    let was_deleted = |job: &Value| !job["metadata"]["deletionTimestamp"].is_null();
    let is_deletion = job.kind == ChangeKind::Deleted
        || was_deleted(job.object()) && job.previous().is_some_and(|before| !was_deleted(before));
    let has_ended = ["Complete", "Failed"]
        .iter()
        .any(|type_| condition(before, type_).is_some_and(|(status, _)| status == "True"));
    let is_waiting = before["spec"]["suspend"] == true && before["metadata"]["generation"] == 1;
    if is_deletion && !has_ended && !is_waiting {
        say(format!(
            "{} deleted the Job {}, which had not ended",
            job.by, job.name
        ));
    }
}

/// Operators start each generation of an object at most once, and only while it is the present one.
fn starts_once(family: &Family, seen: &Seen<'_>, say: &mut impl FnMut(String)) {
    let late = seen.faults.contains(&Fault::Late);
    let mut starts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for job in versions(seen.history, family.children).filter(|job| is_operator(&job.by)) {
        let runs = |job: &Value| job["spec"]["suspend"] != true;
        if job.kind == ChangeKind::Deleted
            || !runs(job.object())
            || job.previous().is_some_and(runs)
        {
            continue;
        }
        let owner = owner_uid(family, job.object()).unwrap_or_default();
        *starts
            .entry((owner.to_owned(), job.name.clone()))
            .or_default() += 1;
        if job.kind == ChangeKind::Added {
            say(format!("the Job {} was created running", job.name));
        }
        let objects = versions(seen.history, family.plural);
        let object = objects
            .filter(|o| o.uid == owner && o.version < job.version)
            .last();
        let status = object.map(|object| &object.object()["status"]);
        if status.is_none_or(|status| status["jobUID"] != job.uid) {
            say(format!(
                "the Job {} was released before its UID was recorded",
                job.name
            ));
        }
        let generation = object.map(|object| object.object()["metadata"]["generation"].to_string());
        let present = generation.map(|generation| format!("{}-{generation}", super::NAME));
        if present.as_ref() != Some(&job.name) && !late {
            say(format!(
                "the Job {} was released, and {present:?} is the present one",
                job.name
            ));
        }
    }
    for ((_, job), count) in starts {
        if count > 1 {
            say(format!("{job} was started {count} times"));
        }
    }
}

/// A status says only what is so, or was when a cache that may lag behind was filled; and what has ended stays so.
fn reports_what_is_so(
    family: &Family,
    seen: &Seen<'_>,
    objects: &[&Version],
    say: &mut impl FnMut(String),
) {
    let mut before: Option<&Value> = None;
    for version in objects {
        let object = version.object();
        let (status, metadata) = (&object["status"], &object["metadata"]);
        let observed = status["observedGeneration"].as_i64();
        if observed > metadata["generation"].as_i64() {
            say(format!(
                "{observed:?} is observed of {}",
                metadata["generation"]
            ));
        }
        if is_operator(&version.by) && version.kind == ChangeKind::Modified {
            let children = versions(seen.history, family.children)
                .filter(|child| child.version < version.version)
                .filter(|child| owner_uid(family, child.object()) == metadata["uid"].as_str());
            let numbers: BTreeSet<i64> = children
                .filter_map(|child| child.object()["status"]["availableReplicas"].as_i64())
                .chain([0])
                .collect();
            if let Some(number) = status["availableReplicas"].as_i64()
                && !numbers.contains(&number)
            {
                say(format!(
                    "availableReplicas is {number}, and was never more than {numbers:?}"
                ));
            }
        }
        let is_final = |status: &Value| {
            ["Succeeded", "Failed"]
                .map(Value::from)
                .contains(&status["phase"])
        };
        if let Some(before) = before.filter(|before| is_final(before))
            && before["jobName"] == status["jobName"]
            && before["phase"] != status["phase"]
        {
            say(format!(
                "{} had ended, and is {} now",
                before["jobName"], status["phase"]
            ));
        }
        if status["phase"] == "Succeeded"
            && before.is_none_or(|before| before["phase"] != "Succeeded")
        {
            let mut jobs = versions(seen.history, family.children);
            let is_so = jobs.any(|job| {
                job.version < version.version
                    && status["jobUID"] == job.uid
                    && condition(job.object(), "Complete")
                        .is_some_and(|(status, _)| status == "True")
            });
            if !is_so {
                say(format!(
                    "{} is Succeeded, and its Job was not",
                    status["jobName"]
                ));
            }
        }
        before = Some(status);
    }
}

/// What two runs of a scenario must have in common at their end. Times, UIDs, versions and messages differ.
fn outcome(family: &Family, seen: &Seen<'_>) -> String {
    let mut lines = Vec::new();
    let objects = left(seen.history, family.plural);
    for object in &objects {
        let mut status = object.object()["status"].clone();
        for field in [
            "conditions",
            "jobUID",
            "nextScheduleTime",
            "observedGeneration",
        ] {
            status[field] = Value::Null;
        }
        lines.push(format!(
            "{} {} {status} {}",
            family.object_kind,
            object.name,
            conditions(object.object())
        ));
    }
    for child in left(seen.history, family.children) {
        let object = child.object();
        // What a late request created after the Job of that name had gone. It is never released.
        let is_recorded = objects
            .iter()
            .any(|o| o.object()["status"]["jobUID"] == child.uid);
        let is_unused = object["spec"]["suspend"] == true && object["metadata"]["generation"] == 1;
        if family.child_kind == "Job" && is_unused && !is_recorded {
            continue;
        }
        let owner = owner_uid(family, object).is_some();
        let metadata = json!({"labels": object["metadata"]["labels"], "owned": owner,
            "annotation": object["metadata"]["annotations"][owner_annotation(family)]});
        lines.push(format!(
            "{} {metadata} {} {}",
            child.name,
            object["spec"],
            conditions(object)
        ));
    }
    let pods = left(seen.history, "pods");
    let mut pods: Vec<String> = pods
        .iter()
        .map(|pod| {
            let mut labels = pod.object()["metadata"]["labels"].clone();
            labels[JOB_UID] = Value::Null;
            format!("{} of {labels}", pod.object()["status"]["phase"])
        })
        .collect();
    pods.sort();
    lines.extend(pods);
    lines.join("\n")
}
