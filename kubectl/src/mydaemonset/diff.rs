//! What differs between two revisions, field by field.
//!
//! A list whose items all have a name of their own, such as `containers`, is compared by these names, so that an added
//! sidecar is one difference. Any other list is compared as a whole: a position in `args` says little.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

/// A difference in one field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// Such as `template.spec.containers[app].image`.
    pub(crate) path: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "~ {path}: {before} -> {after}"),
            (None, Some(after)) => write!(f, "+ {path}: {after}"),
            (Some(before), None) => write!(f, "- {path}: {before}"),
            (None, None) => Ok(()),
        }
    }
}

/// The differences, in the order of the fields' names.
pub(crate) fn diff(before: &Value, after: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare("", Some(before), Some(after), &mut changes);
    changes
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    let none = Map::new();
    let old = before.map_or(Some(&none), Value::as_object);
    let new = after.map_or(Some(&none), Value::as_object);
    let is_both = before.is_some() && after.is_some();
    if let (Some(old), Some(new)) = (old, new)
        // A chain of objects with one field each is a path, and not a value.
        && (is_both || old.len() + new.len() == 1)
    {
        return compare_fields(path, old, new, changes);
    }
    if let (Some(old), Some(new)) = (before.and_then(by_name), after.and_then(by_name)) {
        let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
        let earlier = changes.len();
        for name in names {
            let (old, new) = (old.get(name).copied(), new.get(name).copied());
            compare(&format!("{path}[{name}]"), old, new, changes);
        }
        // Only the order differs: that is a difference of the list itself.
        if changes.len() > earlier {
            return;
        }
    }
    changes.push(Change {
        path: path.to_owned(),
        before: before.cloned(),
        after: after.cloned(),
    });
}

fn compare_fields(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    changes: &mut Vec<Change>,
) {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let path = if path.is_empty() {
            name.clone()
        } else if name.contains(['.', '/']) {
            format!("{path}[{name}]")
        } else {
            format!("{path}.{name}")
        };
        compare(&path, before.get(name), after.get(name), changes);
    }
}

/// The items of a list by their names; `None` where an item has none, or not one of its own.
fn by_name(value: &Value) -> Option<BTreeMap<&str, &Value>> {
    let items = value.as_array()?;
    let mut named = BTreeMap::new();
    for item in items {
        let name = item.get("name")?.as_str()?;
        if named.insert(name, item).is_some() {
            return None;
        }
    }
    Some(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(before: &Value, after: &Value) -> Vec<String> {
        diff(before, after).iter().map(Change::to_string).collect()
    }

    #[test]
    fn equal_values_do_not_differ() {
        let value =
            json!({"image": "a:1", "template": {"spec": {"containers": [{"name": "app"}]}}});
        assert!(diff(&value, &value.clone()).is_empty());
    }

    #[test]
    fn fields_are_changed_added_and_removed() {
        let before = json!({"image": "a:1", "template": {"metadata": {"labels": {"x": "y"}}}});
        let after = json!({"image": "a:2", "template": {"metadata": {"annotations": {"example.com/at": "1"}}}});
        assert_eq!(
            texts(&before, &after),
            [
                r#"~ image: "a:1" -> "a:2""#,
                r#"+ template.metadata.annotations[example.com/at]: "1""#,
                r#"- template.metadata.labels.x: "y""#,
            ]
        );
        let (old, new) = (
            json!({"a": {"example.com/at": 1}}),
            json!({"a": {"example.com/at": 2}}),
        );
        assert_eq!(texts(&old, &new), ["~ a[example.com/at]: 1 -> 2"]);
    }

    #[test]
    fn containers_are_compared_by_name() {
        let before = json!({"containers": [{"name": "app", "image": "a:1"}]});
        let after = json!({"containers": [{"name": "log", "image": "l:1"}, {"name": "app", "image": "a:2"}]});
        assert_eq!(
            texts(&before, &after),
            [
                r#"~ containers[app].image: "a:1" -> "a:2""#,
                r#"+ containers[log]: {"image":"l:1","name":"log"}"#,
            ]
        );
    }

    #[test]
    fn a_list_without_names_of_their_own_is_one_value() {
        let pairs = [
            (json!({"args": ["a", "b"]}), json!({"args": ["b"]})),
            // Only the order differs.
            (
                json!({"c": [{"name": "a"}, {"name": "b"}]}),
                json!({"c": [{"name": "b"}, {"name": "a"}]}),
            ),
            (
                json!({"c": [{"name": "a"}, {"name": "a"}]}),
                json!({"c": []}),
            ),
            (json!({"c": "text"}), json!({"c": {"x": 1}})),
        ];
        for (before, after) in pairs {
            let changes = diff(&before, &after);
            assert_eq!(changes.len(), 1, "{changes:?}");
            assert!(!changes[0].path.contains('['), "{changes:?}");
        }
    }
}
