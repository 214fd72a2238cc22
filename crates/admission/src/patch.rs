//! Patches (RFC 6902) that add missing fields and change no others.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// One change to an object. A path is a list of field names; arrays are never entered.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The field gets this value; missing parents are created.
    Set(Vec<String>, Value),
    /// The field is removed, if it exists.
    Remove(Vec<String>),
}

impl Change {
    fn path(&self) -> &[String] {
        match self {
            Self::Set(path, _) | Self::Remove(path) => path,
        }
    }
}

/// One operation of a patch, in its wire format.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Sets or replaces the value.
    Add {
        /// A JSON pointer.
        path: String,
        /// The value.
        value: Value,
    },
    /// Removes the value.
    Remove {
        /// A JSON pointer.
        path: String,
    },
}

/// The values that `after` has and `before` lacks, below `path`: the changes that defaulting makes.
///
/// Both are the JSON of one type, so they differ only in defaults, and equal values have the same text. A list that
/// changed is set as a whole.
///
/// # Errors
/// When one of them is not JSON.
pub fn additions(path: &[&str], before: &str, after: &str) -> serde_json::Result<Vec<Change>> {
    let mut changes = Vec::new();
    let mut path = path.iter().map(ToString::to_string).collect();
    walk(&mut path, before, after, &mut changes)?;
    Ok(changes)
}

fn walk(
    path: &mut Vec<String>,
    before: &str,
    after: &str,
    changes: &mut Vec<Change>,
) -> serde_json::Result<()> {
    if before == after {
        return Ok(());
    }
    let (Some(before), Some(members)) = (members(before)?, members(after)?) else {
        changes.push(Change::Set(path.clone(), serde_json::from_str(after)?));
        return Ok(());
    };
    for (name, value) in members {
        let old = before.get(&name);
        path.push(name);
        if let Some(old) = old {
            walk(path, old.get(), value.get(), changes)?;
        } else {
            let value = serde_json::from_str(value.get())?;
            changes.push(Change::Set(path.clone(), value));
        }
        path.pop();
    }
    Ok(())
}

/// The members of an object, the last one for each name; None for any other value.
fn members(text: &str) -> serde_json::Result<Option<BTreeMap<String, &RawValue>>> {
    if text.starts_with('{') {
        serde_json::from_str(text).map(Some)
    } else {
        Ok(None)
    }
}

/// The part of an object's member `name` that the changes need: whether the values at the ends of their paths exist,
/// and nothing that they do not touch.
///
/// # Errors
/// When `text` is not JSON.
pub(crate) fn sketch(name: &str, text: &str, changes: &[Change]) -> serde_json::Result<Value> {
    let paths: Vec<&[String]> = changes.iter().map(Change::path).collect();
    draw(text, &below(name, &paths))
}

fn draw(text: &str, paths: &[&[String]]) -> serde_json::Result<Value> {
    if !text.starts_with('{') {
        // No path enters a value that is not an object: only whether it is `null` counts.
        return Ok(if text == "null" {
            Value::Null
        } else {
            Value::Bool(true)
        });
    }
    serde_json::Deserializer::from_str(text)
        .deserialize_map(Drawn(paths))
        .map(Value::Object)
}

/// Reads only the members of an object that some path begins with. A map of all members takes many times the memory of
/// their text.
struct Drawn<'p>(&'p [&'p [String]]);

impl<'de> Visitor<'de> for Drawn<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut drawn = Map::new();
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            let value: &RawValue = members.next_value()?;
            let rest = below(&name, self.0);
            if rest.is_empty() {
                continue;
            }
            let value = draw(value.get(), &rest).map_err(A::Error::custom)?;
            drawn.insert(name.into_owned(), value);
        }
        Ok(drawn)
    }
}

/// The rests of the paths that begin with that name.
fn below<'a>(name: &str, paths: &[&'a [String]]) -> Vec<&'a [String]> {
    let rest = |path: &&'a [String]| match path.split_first() {
        Some((first, rest)) if first == name => Some(rest),
        _ => None,
    };
    paths.iter().filter_map(rest).collect()
}

/// The operations that apply the changes to `object`. Only the fields along the paths are read. A `null` field counts
/// as missing.
pub fn operations(mut object: Value, changes: &[Change]) -> Vec<Operation> {
    let mut operations = Vec::new();
    for change in changes {
        match change {
            Change::Set(path, value) => set(&mut object, path, value, &mut operations),
            Change::Remove(path) => remove(&mut object, path, &mut operations),
        }
    }
    operations
}

fn set(object: &mut Value, path: &[String], value: &Value, operations: &mut Vec<Operation>) {
    let mut place = object;
    for (depth, name) in path.iter().enumerate() {
        let Value::Object(fields) = place else {
            // The parent has the wrong type: the schema rejects the object for that.
            return;
        };
        let missing = fields.get(name).is_none_or(Value::is_null);
        let last = depth + 1 == path.len();
        if missing || last {
            // The value, wrapped in the missing parents.
            let wrap = |inner: Value, name: &String| {
                Value::Object(Map::from_iter([(name.clone(), inner)]))
            };
            let value = path[depth + 1..].iter().rev().fold(value.clone(), wrap);
            operations.push(Operation::Add {
                path: pointer(&path[..=depth]),
                value: value.clone(),
            });
            fields.insert(name.clone(), value);
            return;
        }
        place = &mut fields[name];
    }
}

fn remove(object: &mut Value, path: &[String], operations: &mut Vec<Operation>) {
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
        operations.push(Operation::Remove {
            path: pointer(path),
        });
    }
}

/// A JSON pointer (RFC 6901).
fn pointer(path: &[String]) -> String {
    let mut pointer = String::new();
    for name in path {
        pointer.push('/');
        for part in name.split_inclusive(['~', '/']) {
            if let Some(plain) = part.strip_suffix('~') {
                pointer.extend([plain, "~0"]);
            } else if let Some(plain) = part.strip_suffix('/') {
                pointer.extend([plain, "~1"]);
            } else {
                pointer.push_str(part);
            }
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn apply(object: &Value, operations: &[Operation]) -> Value {
        let mut object = object.clone();
        let patch: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        object
    }

    fn set(path: &[&str], value: Value) -> Change {
        Change::Set(path.iter().map(ToString::to_string).collect(), value)
    }

    #[test]
    fn patch_creates_a_missing_parent_once() {
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
    fn removing_an_absent_field_yields_no_operation() {
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
    fn only_missing_fields_are_added() {
        let before = r#"{"image":"a","nested":{"x":1}}"#;
        let after = r#"{"image":"a","nested":{"x":1,"y":2},"shell":["sh"]}"#;
        let changes = additions(&["spec"], before, after).unwrap();
        assert_eq!(
            changes,
            [
                set(&["spec", "nested", "y"], 2.into()),
                set(&["spec", "shell"], json!(["sh"]))
            ]
        );
        assert!(additions(&["spec"], after, after).unwrap().is_empty());
    }

    #[test]
    fn a_sketch_has_the_fields_that_changes_need() {
        let text = r#"{"a": {"x": null, "other": [1]}, "b": 1, "large": {"x": [{"y": 1}]}}"#;
        let changes = [
            set(&["spec", "a", "x"], 1.into()),
            set(&["spec", "b", "x"], 1.into()),
            set(&["metadata", "large", "x"], 1.into()),
        ];
        assert_eq!(
            sketch("spec", text, &changes).unwrap(),
            json!({"a": {"x": null}, "b": true})
        );
    }
}
