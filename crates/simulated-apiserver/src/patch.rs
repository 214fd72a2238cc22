//! JSON patches, merge patches and strategic merge patches.

use json_patch::jsonptr::Pointer;
use json_patch::{AddOperation, PatchOperation};
use serde_json::{Map, Value};

use crate::managed;
use crate::resource::Resource;
use crate::status::Status;

/// The object after an RFC 6902 patch. A patch that does not apply, for example because a `test` fails, is 422.
pub(crate) fn json(object: &Value, patch: &Value) -> Result<Value, Status> {
    let patch = json_patch_of(patch)?;
    let mut object = object.clone();
    for operation in patch.0 {
        let operation = match operation {
            // The API server's library adds a missing field on `replace`.
            PatchOperation::Replace(replace) if is_new_field(&object, &replace.path) => {
                PatchOperation::Add(AddOperation {
                    path: replace.path,
                    value: replace.value,
                })
            }
            // And takes a missing field for null in a `test`.
            PatchOperation::Test(test)
                if test.value.is_null() && is_new_field(&object, &test.path) =>
            {
                continue;
            }
            other => other,
        };
        if json_patch::patch(&mut object, &[operation]).is_err() {
            let message = "the server rejected our request due to an error in our request";
            let details = Value::Object(Map::new());
            return Err(Status::new(422, "Invalid", message).with_details(details));
        }
    }
    Ok(object)
}

/// Whether a path names a missing field of an existing object.
fn is_new_field(object: &Value, path: &Pointer) -> bool {
    let parent = path.parent().and_then(|parent| parent.resolve(object).ok());
    path.resolve(object).is_err() && parent.is_some_and(Value::is_object)
}

fn json_patch_of(patch: &Value) -> Result<json_patch::Patch, Status> {
    let text = patch.to_string();
    serde_json::from_str(&text)
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
}

/// The object after an RFC 7386 patch.
pub(crate) fn merge(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}

/// The object after a strategic merge patch: maps as in a merge patch, lists by the keys of their items.
pub(crate) fn strategic(resource: &Resource, object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    merge_strategic(resource, &mut object, patch);
    object
}

/// The object merged with an applied one: as in a strategic merge patch, but items of lists are identified by all their
/// keys, and there are no directives.
pub(crate) fn applied(resource: &Resource, object: &Value, applied: &Value) -> Value {
    let mut object = object.clone();
    merge_applied(resource, &mut object, applied);
    object
}

fn merge_applied(resource: &Resource, object: &mut Value, applied: &Value) {
    let Value::Object(changes) = applied else {
        *object = applied.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    for (name, change) in changes {
        let field = &mut object[name];
        match (change, resource.merge_keys(name)) {
            (Value::Array(items), Some(keys)) => {
                if !field.is_array() {
                    *field = Value::Array(Vec::new());
                }
                let Value::Array(list) = field else { continue };
                for item in items {
                    match managed::place(list, &managed::item_step(item, keys)) {
                        Some(place) => merge_applied(resource, &mut list[place], item),
                        None => list.push(item.clone()),
                    }
                }
            }
            (Value::Object(_), _) => merge_applied(resource, field, change),
            _ => *field = change.clone(),
        }
    }
}

fn merge_strategic(resource: &Resource, object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else {
        return;
    };
    match changes.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            fields.clear();
            fields.extend(plain(changes));
            return;
        }
        Some("delete") => return fields.clear(),
        _ => {}
    }
    for (name, change) in changes {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Value::Array(gone)) = (fields.get_mut(list), change)
            {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        match (change, resource.merge_keys(name)) {
            (Value::Null, _) => {
                fields.remove(name);
            }
            (Value::Array(items), Some(keys)) => {
                let list = fields
                    .entry(name.clone())
                    .or_insert_with(|| Value::Array(Vec::new()));
                if !list.is_array() {
                    *list = Value::Array(Vec::new());
                }
                if let Value::Array(list) = list {
                    merge_list(resource, list, items, keys);
                }
            }
            (Value::Object(_), _) => {
                let field = fields.entry(name.clone()).or_insert(Value::Null);
                merge_strategic(resource, field, change);
            }
            _ => {
                fields.insert(name.clone(), change.clone());
            }
        }
    }
}

/// Without the directives.
fn plain(changes: &Map<String, Value>) -> Map<String, Value> {
    let fields = changes.iter().filter(|(name, _)| !name.starts_with('$'));
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn merge_list(resource: &Resource, list: &mut Vec<Value>, items: &[Value], keys: &[String]) {
    if items.iter().any(|item| item["$patch"] == "replace") {
        list.clear();
    }
    // A patch identifies an item by the first key alone, unlike server-side apply.
    let key = keys.first();
    let same = |one: &Value, other: &Value| match key {
        None => one == other,
        Some(key) => one[key] == other[key],
    };
    let before = list.clone();
    let mut patched = Vec::new();
    for item in items {
        let place = list.iter().position(|there| same(there, item));
        let there = place.map(|place| list.remove(place));
        if item["$patch"] == "delete" || item["$patch"] == "replace" {
            continue;
        }
        let mut merged = there.unwrap_or_else(|| item.clone());
        if key.is_some() {
            merge_strategic(resource, &mut merged, item);
        }
        patched.push(merged);
    }
    // Items of the patch come first, except that existing items keep their order.
    let place = |item: &Value| before.iter().position(|there| same(there, item));
    let mut rest = std::mem::take(list).into_iter().peekable();
    for item in patched {
        while let Some(other) = rest.next_if(|other| {
            place(&item).is_some_and(|place_of_item| place(other) < Some(place_of_item))
        }) {
            list.push(other);
        }
        list.push(item);
    }
    list.extend(rest);
}
