//! Reads of a history that every judge needs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulated_apiserver::{ChangeKind, History, Version};

/// Whether that user is an operator.
pub fn is_operator(user: &str) -> bool {
    user.starts_with("operator")
}

/// The versions of all objects of a resource, in order.
pub fn versions<'a>(history: &'a History, resource: &'a str) -> impl Iterator<Item = &'a Version> {
    let all = history.versions.iter();
    all.filter(move |version| version.resource == resource)
}

/// The objects of a resource that were left at the end.
pub fn left<'a>(history: &'a History, resource: &'a str) -> Vec<&'a Version> {
    let mut left: BTreeMap<&str, &Version> = BTreeMap::new();
    for version in versions(history, resource) {
        if version.kind == ChangeKind::Deleted {
            left.remove(version.name.as_str());
        } else {
            left.insert(&version.name, version);
        }
    }
    left.into_values().collect()
}

/// How many objects of a resource operators made.
pub fn made(history: &History, resource: &str) -> usize {
    let made = versions(history, resource).filter(|version| version.kind == ChangeKind::Added);
    made.count()
}

/// The condition of a type: its status, and its reason if it has one. Those of pods have none.
pub fn condition<'a>(object: &'a Value, type_: &str) -> Option<(&'a str, &'a str)> {
    let all = object["status"]["conditions"].as_array()?;
    let found = all.iter().find(|condition| condition["type"] == type_)?;
    let reason = found["reason"].as_str().unwrap_or_default();
    Some((found["status"].as_str()?, reason))
}

/// Every reason that a condition of an object of that resource ever had.
pub fn reasons(history: &History, resource: &str) -> BTreeSet<String> {
    let all = versions(history, resource);
    let conditions = all.filter_map(|version| version.object()["status"]["conditions"].as_array());
    let reasons = conditions.flatten().filter_map(|c| c["reason"].as_str());
    reasons.map(str::to_owned).collect()
}

/// The conditions of an object as `Type=Status/Reason`, sorted, with a note on those of an earlier generation.
pub fn conditions(object: &Value) -> String {
    let mut conditions: Vec<String> = Vec::new();
    for condition in object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let (type_, is, reason) = (text("type"), text("status"), text("reason"));
        let behind = condition["observedGeneration"] != object["metadata"]["generation"];
        let behind = if behind {
            " (of an earlier generation)"
        } else {
            ""
        };
        conditions.push(format!("{type_}={is}/{reason}{behind}"));
    }
    conditions.sort();
    conditions.join(" ")
}
