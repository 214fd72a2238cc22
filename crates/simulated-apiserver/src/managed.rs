//! The ownership of fields: `metadata.managedFields`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::resource::Resource;

/// One step from an object towards a field, as FieldsV1 writes it: `f:name`, `k:{"name":"x"}` or `v:"text"`.
pub(crate) type Path = Vec<String>;

/// Fields, by their paths. It contains both an item of a merged list and the item's fields.
pub(crate) type Fields = BTreeSet<Path>;

/// The fields that no client owns.
const SYSTEM: &[&str] = &[
    "f:name",
    "f:namespace",
    "f:uid",
    "f:resourceVersion",
    "f:generation",
    "f:creationTimestamp",
    "f:deletionTimestamp",
    "f:deletionGracePeriodSeconds",
    "f:managedFields",
    "f:selfLink",
];

/// The fields that an object sets.
pub(crate) fn fields(resource: &Resource, object: &Value) -> Fields {
    let mut found = Fields::new();
    let mut path = Path::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if matches!(name.as_str(), "apiVersion" | "kind") {
            continue;
        }
        path.push(format!("f:{name}"));
        collect(resource, name, value, &mut path, &mut found);
        path.pop();
    }
    found.retain(|path| {
        let system = path
            .get(1)
            .is_some_and(|step| SYSTEM.contains(&step.as_str()));
        !(path.first().is_some_and(|first| first == "f:metadata") && (path.len() == 1 || system))
    });
    found
}

fn collect(resource: &Resource, name: &str, value: &Value, path: &mut Path, found: &mut Fields) {
    match (value, resource.merge_keys(name)) {
        (Value::Object(map), _) if !map.is_empty() => {
            for (name, value) in map {
                path.push(format!("f:{name}"));
                collect(resource, name, value, path, found);
                path.pop();
            }
        }
        (Value::Array(items), Some(keys)) => {
            for item in items {
                path.push(item_step(item, keys));
                found.insert(path.clone());
                if let (Value::Object(map), false) = (item, keys.is_empty()) {
                    for (name, value) in map {
                        path.push(format!("f:{name}"));
                        collect(resource, name, value, path, found);
                        path.pop();
                    }
                }
                path.pop();
            }
        }
        _ => {
            found.insert(path.clone());
        }
    }
}

/// The keys that identify an item of a merged list.
pub(crate) fn item_step(item: &Value, keys: &[String]) -> String {
    if keys.is_empty() {
        return format!("v:{item}");
    }
    let mut found = Map::new();
    for key in keys {
        match &item[key] {
            // The one default among the keys of the built-in kinds.
            Value::Null if key == "protocol" => found.insert(key.clone(), json!("TCP")),
            Value::Null => None,
            value => found.insert(key.clone(), value.clone()),
        };
    }
    format!("k:{}", Value::Object(found))
}

/// The value at a path.
pub(crate) fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| {
        if let Some(name) = step.strip_prefix("f:") {
            return value.get(name);
        }
        let place = place(value.as_array()?, step)?;
        value.get(place)
    })
}

/// The index of an item in a merged list.
pub(crate) fn place(items: &[Value], step: &str) -> Option<usize> {
    if let Some(wanted) = step.strip_prefix("v:") {
        let wanted: Value = serde_json::from_str(wanted).ok()?;
        return items.iter().position(|item| *item == wanted);
    }
    let wanted: Map<String, Value> = serde_json::from_str(step.strip_prefix("k:")?).ok()?;
    items.iter().position(|item| {
        let fits = |(key, value): (&String, &Value)| {
            item[key] == *value || (key == "protocol" && item[key].is_null() && value == "TCP")
        };
        wanted.iter().all(fits)
    })
}

/// Removes the value at a path, and parents that are empty then.
pub(crate) fn remove(object: &mut Value, path: &[String]) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    if let Some(name) = step.strip_prefix("f:") {
        let Value::Object(map) = object else { return };
        if let (false, Some(child)) = (rest.is_empty(), map.get_mut(name)) {
            remove(child, rest);
            let empty = match child {
                Value::Object(map) => map.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => false,
            };
            if !empty {
                return;
            }
        }
        map.remove(name);
    } else if let Value::Array(items) = object {
        match place(items, step) {
            Some(place) if rest.is_empty() => drop(items.remove(place)),
            Some(place) => remove(&mut items[place], rest),
            None => {}
        }
    }
}

/// The path as messages show it: `.spec.containers[name="x"].image`.
pub(crate) fn shown(path: &[String]) -> String {
    let mut text = String::new();
    for step in path {
        if let Some(name) = step.strip_prefix("f:") {
            text.push('.');
            text.push_str(name);
        } else if let Some(keys) = step.strip_prefix("k:") {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys = keys.iter().map(|(key, value)| format!("{key}={value}"));
            text.push('[');
            text.push_str(&keys.collect::<Vec<_>>().join(","));
            text.push(']');
        } else if let Some(value) = step.strip_prefix("v:") {
            text.push_str("[=");
            text.push_str(value);
            text.push(']');
        }
    }
    text
}

/// One owner of fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) manager: String,
    /// Whether it owns them by server-side apply, or by other writes.
    pub(crate) applied: bool,
    pub(crate) subresource: String,
}

/// The fields of each owner, and the time of its last write.
pub(crate) type Owners = BTreeMap<Owner, (Fields, String)>;

/// Reads `metadata.managedFields`.
pub(crate) fn read(object: &Value) -> Owners {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten().map(|entry| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let owner = Owner {
            manager: text("manager"),
            applied: entry["operation"] == "Apply",
            subresource: text("subresource"),
        };
        let mut fields = Fields::new();
        flatten(&entry["fieldsV1"], &mut Path::new(), &mut fields);
        (owner, (fields, text("time")))
    });
    entries.collect()
}

fn flatten(tree: &Value, path: &mut Path, found: &mut Fields) {
    let Some(map) = tree.as_object().filter(|map| !map.is_empty()) else {
        if !path.is_empty() {
            found.insert(path.clone());
        }
        return;
    };
    for (step, rest) in map {
        if step == "." {
            found.insert(path.clone());
            continue;
        }
        path.push(step.clone());
        flatten(rest, path, found);
        path.pop();
    }
}

/// The value of `metadata.managedFields`; null if nothing is owned.
pub(crate) fn write(owners: &Owners, api_version: &str) -> Value {
    let entries = owners.iter().filter(|(_, (fields, _))| !fields.is_empty());
    let entries: Vec<Value> = entries
        .map(|(owner, (fields, time))| {
            let mut tree = json!({});
            for path in fields {
                insert(&mut tree, path);
            }
            let mut entry = json!({
                "manager": owner.manager,
                "operation": if owner.applied { "Apply" } else { "Update" },
                "apiVersion": api_version,
                "time": time,
                "fieldsType": "FieldsV1",
                "fieldsV1": tree,
            });
            if !owner.subresource.is_empty() {
                entry["subresource"] = json!(owner.subresource);
            }
            entry
        })
        .collect();
    if entries.is_empty() {
        Value::Null
    } else {
        json!(entries)
    }
}

/// Paths come sorted, so that an item comes before its fields.
fn insert(tree: &mut Value, path: &[String]) {
    let mut place = tree;
    for (depth, step) in path.iter().enumerate() {
        if !place[step].is_object() {
            place[step] = json!({});
        }
        place = &mut place[step];
        let last = depth + 1 == path.len();
        if last && !step.starts_with("f:") {
            place["."] = json!({});
        }
    }
}

/// The fields in which two versions of an object differ: those with a new value, and those that were removed.
pub(crate) fn difference(resource: &Resource, old: &Value, new: &Value) -> (Fields, Fields) {
    let (before, after) = (fields(resource, old), fields(resource, new));
    let changed = after
        .iter()
        // An item itself changes only when it is added; its fields are compared on their own.
        .filter(|path| match path.last() {
            Some(step) if step.starts_with("f:") => at(old, path) != at(new, path),
            _ => !before.contains(*path),
        })
        .cloned()
        .collect();
    let gone = before.difference(&after).cloned().collect();
    (changed, gone)
}
