//! Differences between the webhook configurations and what the program expects, except for `caBundle`.
//!
//! Drift is reported, not repaired: an administrator may have changed a configuration on purpose, for example to
//! exclude namespaces, or to bypass the webhooks in an emergency.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The fields of an entry that are compared, as the metric names them.
const FIELDS: [(&str, &str); 12] = [
    ("admissionReviewVersions", "/admissionReviewVersions"),
    ("clientConfig.service", "/clientConfig/service"),
    ("clientConfig.url", "/clientConfig/url"),
    ("failurePolicy", "/failurePolicy"),
    ("matchConditions", "/matchConditions"),
    ("matchPolicy", "/matchPolicy"),
    ("namespaceSelector", "/namespaceSelector"),
    ("objectSelector", "/objectSelector"),
    ("reinvocationPolicy", "/reinvocationPolicy"),
    ("rules", "/rules"),
    ("sideEffects", "/sideEffects"),
    ("timeoutSeconds", "/timeoutSeconds"),
];
/// A missing entry, or an unexpected one.
const ENTRIES: &str = "webhooks";

/// How many differences a note lists.
const MAX_NAMED: usize = 4;

/// One difference, to be counted by [`count`] and described by [`note`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The name of the entry.
    entry: String,
    /// The field that differs.
    field: &'static str,
    /// Its value, if that is a word.
    found: Option<String>,
}

/// Compares the entries of a configuration with the expected ones, by their names. `caBundle` is not compared.
pub fn compare(expected: &[Value], live: &[Value]) -> Vec<Drift> {
    let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    let same =
        |all: &[Value], entry: &Value| all.iter().find(|e| e["name"] == entry["name"]).cloned();
    let mut drifts = Vec::new();
    for entry in expected {
        let Some(live) = same(live, entry) else {
            drifts.push(Drift {
                entry: name(entry),
                field: ENTRIES,
                found: Some("missing".to_owned()),
            });
            continue;
        };
        for (field, path) in FIELDS {
            let found = normal(field, live.pointer(path));
            if found != normal(field, entry.pointer(path)) {
                let word = found.is_string() || found.is_number();
                drifts.push(Drift {
                    entry: name(entry),
                    field,
                    found: word.then(|| found.to_string()),
                });
            }
        }
    }
    let added = live.iter().filter(|entry| same(expected, entry).is_none());
    drifts.extend(added.map(|entry| Drift {
        entry: name(entry),
        field: ENTRIES,
        found: Some("not expected".to_owned()),
    }));
    drifts
}

/// A value as the API server completes it. The order of namespaces has no meaning.
fn normal(field: &str, value: Option<&Value>) -> Value {
    let value = value.filter(|value| !value.is_null());
    match (field, value) {
        ("namespaceSelector" | "objectSelector", None) => json!({}),
        ("matchConditions", None) => json!([]),
        ("namespaceSelector", Some(selector)) => {
            let mut selector = selector.clone();
            let expressions = selector
                .get_mut("matchExpressions")
                .and_then(Value::as_array_mut);
            for expression in expressions.into_iter().flatten() {
                if let Some(values) = expression.get_mut("values").and_then(Value::as_array_mut) {
                    values.sort_by_key(Value::to_string);
                }
            }
            selector
        }
        (_, value) => value.cloned().unwrap_or_default(),
    }
}

/// How many entries differ, for every field.
pub fn count(drifts: &[Drift]) -> BTreeMap<&'static str, usize> {
    let names = FIELDS.into_iter().map(|(name, _)| name).chain([ENTRIES]);
    names
        .map(|name| {
            (
                name,
                drifts.iter().filter(|drift| drift.field == name).count(),
            )
        })
        .collect()
}

/// The differences in one line for users.
pub fn note(drifts: &[Drift]) -> Option<String> {
    if drifts.is_empty() {
        return None;
    }
    let named = drifts.iter().take(MAX_NAMED).map(|drift| {
        let Drift {
            entry,
            field,
            found,
        } = drift;
        match found {
            Some(found) if *field == ENTRIES => format!("entry {entry} is {found}"),
            Some(found) => format!("{field} of {entry} is {found}"),
            None => format!("{field} of {entry} differs"),
        }
    });
    let mut named: Vec<_> = named.collect();
    if drifts.len() > MAX_NAMED {
        named.push(format!("{} more", drifts.len() - MAX_NAMED));
    }
    Some(format!(
        "not as this version expects it: {} (to put it back: apply the configuration again)",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry() -> Value {
        json!({
            "name": "a.x",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/p", "port": 443}},
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "rules": [{"apiGroups": ["g"], "operations": ["CREATE"]}],
            "matchConditions": [{"name": "c", "expression": "true"}],
        })
    }

    fn drift_of(change: impl Fn(&mut Value)) -> Vec<Drift> {
        let mut live = entry();
        // Added by the API server and the certificate manager.
        live["namespaceSelector"] = json!({});
        live["objectSelector"] = json!({});
        live["clientConfig"]["caBundle"] = "AAAA".into();
        change(&mut live);
        compare(&[entry()], &[live])
    }

    #[test]
    fn fields_defaulted_by_the_api_server_are_not_drift() {
        assert_eq!(drift_of(|_| ()), []);
        assert_eq!(note(&[]), None);
        assert!(count(&[]).values().all(|count| *count == 0));
    }

    #[test]
    fn each_field_that_differs_is_named_and_counted() {
        for (pointer, value, field) in [
            ("/failurePolicy", json!("Ignore"), "failurePolicy"),
            ("/matchPolicy", json!("Exact"), "matchPolicy"),
            ("/sideEffects", json!("Unknown"), "sideEffects"),
            ("/timeoutSeconds", json!(1), "timeoutSeconds"),
            ("/rules/0/operations", json!(["*"]), "rules"),
            ("/matchConditions", Value::Null, "matchConditions"),
            (
                "/namespaceSelector",
                json!({"matchLabels": {"a": "b"}}),
                "namespaceSelector",
            ),
            (
                "/objectSelector",
                json!({"matchLabels": {"a": "b"}}),
                "objectSelector",
            ),
            (
                "/clientConfig/service/namespace",
                json!("other"),
                "clientConfig.service",
            ),
        ] {
            let drifts = drift_of(|live| *live.pointer_mut(pointer).unwrap() = value.clone());
            let counts = count(&drifts);
            assert_eq!((drifts.len(), counts[field]), (1, 1), "{pointer}");
            assert!(
                note(&drifts).unwrap().contains(&format!("{field} of a.x ")),
                "{pointer}"
            );
        }
        let url = drift_of(|live| live["clientConfig"] = json!({"url": "https://elsewhere"}));
        let note = note(&url).unwrap();
        assert!(
            note.contains(r#"clientConfig.url of a.x is "https://elsewhere""#),
            "{note}"
        );
    }

    #[test]
    fn entries_that_are_missing_or_too_many_are_named() {
        let mut other = entry();
        other["name"] = "b.x".into();
        let drifts = compare(&[entry()], &[other]);
        let note = note(&drifts).unwrap();
        assert!(
            note.contains("entry a.x is missing, entry b.x is not expected"),
            "{note}"
        );
        assert_eq!(count(&drifts)[ENTRIES], 2);
    }

    #[test]
    fn the_order_of_namespaces_does_not_matter() {
        let selected = |names: &[&str]| {
            let mut entry = entry();
            entry["namespaceSelector"] = json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": names},
            ]});
            entry
        };
        assert_eq!(
            compare(&[selected(&["a", "b"])], &[selected(&["b", "a"])]),
            []
        );
        assert_eq!(
            compare(&[selected(&["a", "b"])], &[selected(&["a"])]).len(),
            1
        );
    }

    #[test]
    fn a_note_stays_one_short_line() {
        let drifts = compare(&vec![entry(); 30], &[]);
        let note = note(&drifts).unwrap();
        assert!(note.contains("26 more") && note.len() < 300, "{note}");
    }
}
