//! Patches (RFC 6902) that add what is missing and touch nothing else.

use serde_json::{Map, Value, json};

/// One change to an object. A path is a list of field names; arrays are never entered.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The field gets this value; missing parents are made.
    Set(Vec<String>, Value),
    /// The field goes away, if it is there.
    Remove(Vec<String>),
}

/// What `after` has and `before` lacks, below `path`: the changes that defaulting makes.
///
/// Both are serialised from one type, so that nothing but defaults can differ. A list that
/// changed is set as a whole.
pub fn additions(path: &[&str], before: &Value, after: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut path = path.iter().map(ToString::to_string).collect();
    walk(&mut path, before, after, &mut changes);
    changes
}

fn walk(path: &mut Vec<String>, before: &Value, after: &Value, changes: &mut Vec<Change>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in after {
                path.push(name.clone());
                match before.get(name) {
                    Some(old) => walk(path, old, value, changes),
                    None => changes.push(Change::Set(path.clone(), value.clone())),
                }
                path.pop();
            }
        }
        (before, after) if before != after => {
            changes.push(Change::Set(path.clone(), after.clone()));
        }
        _ => {}
    }
}

/// The operations that carry out the changes on `object`, of which only the fields along the paths
/// are looked at. A field that is `null` counts as missing.
pub fn operations(mut object: Value, changes: &[Change]) -> Vec<Value> {
    let mut operations = Vec::new();
    for change in changes {
        match change {
            Change::Set(path, value) => set(&mut object, path, value, &mut operations),
            Change::Remove(path) => remove(&mut object, path, &mut operations),
        }
    }
    operations
}

fn set(object: &mut Value, path: &[String], value: &Value, operations: &mut Vec<Value>) {
    let mut place = object;
    for (depth, name) in path.iter().enumerate() {
        let Value::Object(fields) = place else {
            // The parent is of another type: the schema refuses the object for that.
            return;
        };
        let missing = fields.get(name).is_none_or(Value::is_null);
        let last = depth + 1 == path.len();
        if missing || last {
            // The value, wrapped in the parents that are missing.
            let wrap = |inner: Value, name: &String| {
                Value::Object(Map::from_iter([(name.clone(), inner)]))
            };
            let value = path[depth + 1..].iter().rev().fold(value.clone(), wrap);
            operations.push(json!({
                "op": "add",
                "path": pointer(&path[..=depth]),
                "value": value.clone(),
            }));
            fields.insert(name.clone(), value);
            return;
        }
        place = &mut fields[name];
    }
}

fn remove(object: &mut Value, path: &[String], operations: &mut Vec<Value>) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let parent = parents
        .iter()
        .try_fold(object, |place, name| place.get_mut(name));
    let removed = parent
        .and_then(Value::as_object_mut)
        .and_then(|fields| fields.remove(last));
    if removed.is_some() {
        operations.push(json!({ "op": "remove", "path": pointer(path) }));
    }
}

/// A JSON pointer (RFC 6901).
fn pointer(path: &[String]) -> String {
    path.iter().fold(String::new(), |pointer, name| {
        pointer + "/" + &name.replace('~', "~0").replace('/', "~1")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn apply(object: &Value, operations: &[Value]) -> Value {
        let mut object = object.clone();
        let patch: json_patch::Patch = serde_json::from_value(operations.to_vec().into()).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        object
    }

    fn set(path: &[&str], value: Value) -> Change {
        Change::Set(path.iter().map(ToString::to_string).collect(), value)
    }

    #[test]
    fn missing_parents_are_made_once() {
        let object = json!({"metadata": {"name": "x"}});
        let changes = [
            set(&["metadata", "annotations", "a/b~c"], "1".into()),
            set(&["metadata", "annotations", "d"], "2".into()),
            set(&["spec", "a", "b"], 3.into()),
        ];
        let operations = operations(object.clone(), &changes);
        assert_eq!(
            apply(&object, &operations),
            json!({"metadata": {"name": "x", "annotations": {"a/b~c": "1", "d": "2"}}, "spec": {"a": {"b": 3}}})
        );
    }

    #[test]
    fn null_counts_as_missing_and_other_types_are_left_alone() {
        let object = json!({"spec": {"a": null, "b": [1], "c": "text"}});
        let changes = [
            set(&["spec", "a", "x"], 1.into()),
            set(&["spec", "b", "x"], 1.into()),
            set(&["spec", "c", "x"], 1.into()),
        ];
        let operations = operations(object.clone(), &changes);
        assert_eq!(
            apply(&object, &operations),
            json!({"spec": {"a": {"x": 1}, "b": [1], "c": "text"}})
        );
    }

    #[test]
    fn removing_what_is_not_there_is_no_operation() {
        let object = json!({"metadata": {"annotations": {"a": "1"}}});
        let remove =
            |name: &str| Change::Remove(vec!["metadata".into(), "annotations".into(), name.into()]);
        assert!(operations(object.clone(), &[remove("b")]).is_empty());
        let operations = operations(object.clone(), &[remove("a")]);
        assert_eq!(
            apply(&object, &operations),
            json!({"metadata": {"annotations": {}}})
        );
    }

    #[test]
    fn additions_are_only_what_was_missing() {
        let before = json!({"image": "a", "nested": {"x": 1}});
        let after = json!({"image": "a", "nested": {"x": 1, "y": 2}, "shell": ["sh"]});
        let changes = additions(&["spec"], &before, &after);
        assert_eq!(
            changes,
            [
                set(&["spec", "nested", "y"], 2.into()),
                set(&["spec", "shell"], json!(["sh"]))
            ]
        );
        assert!(additions(&["spec"], &after, &after).is_empty());
    }
}
