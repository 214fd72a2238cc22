//! The generated JSON schemas refuse nothing that a cluster accepts: random objects of every kind, by the schema and by
//! `admit`.

use std::cell::Cell;
use std::path::Path;

use chrono::Utc;
use my_operator::kinds::{Kind, REGISTRY};
use my_operator::manifests;
use my_operator_admit::object::Rulebook;
use my_operator_admit::read::Source;
use my_operator_admit::report::{Judged, Outcome, Why};
use my_operator_rounds::{given_seed, lengths};
use serde_json::{Value, json};

use super::defaulting::object;
use super::objects::{sample, schema};
use super::random::cases;
use crate::checkout::text;

/// The generated schema of a kind.
fn json_schema(kind: &Kind) -> Value {
    let names = (kind.admission.resource)();
    let name = format!("{}_{}.json", names.kind.to_lowercase(), names.version);
    let path = Path::new("schemas").join(&*names.group).join(name);
    let files = manifests::files(&[kind]).unwrap();
    let file = files.iter().find(|file| file.path == path).unwrap();
    serde_json::from_str(&file.text).unwrap()
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        // 1.0 is an integer, too.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("no type {other}"),
    }
}

/// Validates by the words of JSON Schema that the generated files have.
fn is_valid(schema: &Value, value: &Value) -> bool {
    let (fields, items) = (value.as_object(), value.as_array());
    let list = |value: &Value| value.as_array().unwrap().clone();
    schema
        .as_object()
        .unwrap()
        .iter()
        .all(|(keyword, wanted)| match keyword.as_str() {
            "type" if wanted.is_string() => has_type(value, wanted.as_str().unwrap()),
            "type" => {
                let types = list(wanted);
                types.iter().any(|it| has_type(value, it.as_str().unwrap()))
            }
            "enum" => list(wanted).contains(value),
            "oneOf" => list(wanted).iter().filter(|it| is_valid(it, value)).count() == 1,
            "minimum" => value
                .as_f64()
                .is_none_or(|it| it >= wanted.as_f64().unwrap()),
            "maximum" => value
                .as_f64()
                .is_none_or(|it| it <= wanted.as_f64().unwrap()),
            "items" => items.is_none_or(|items| items.iter().all(|it| is_valid(wanted, it))),
            "required" => fields.is_none_or(|fields| {
                let names = list(wanted);
                names
                    .iter()
                    .all(|name| fields.contains_key(name.as_str().unwrap()))
            }),
            "properties" => fields.is_none_or(|fields| {
                let mut known = fields
                    .iter()
                    .filter_map(|(name, value)| Some((wanted.get(name.as_str())?, value)));
                known.all(|(schema, value)| is_valid(schema, value))
            }),
            "additionalProperties" => fields.is_none_or(|fields| {
                let mut others = fields
                    .iter()
                    .filter(|(name, _)| schema["properties"].get(name.as_str()).is_none());
                others.all(|(_, value)| match wanted {
                    Value::Bool(allowed) => *allowed,
                    schema => is_valid(schema, value),
                })
            }),
            "$schema" | "$comment" | "title" | "description" | "default" | "format" => true,
            other => panic!("JSON Schema has no keyword {other}, or this test does not know it"),
        })
}

fn judge(object: &Value, books: &[Rulebook]) -> Judged {
    let source = Source {
        name: "f.json".to_owned(),
        text: Ok(object.to_string()),
        is_named: true,
    };
    let mut judged = my_operator_admit::judge(&source, books, Utc::now());
    assert_eq!(judged.len(), 1, "{object}");
    judged.remove(0)
}

#[test]
fn a_schema_refuses_only_what_is_refused_and_every_unknown_field() {
    for kind in REGISTRY {
        let (crd, sample, json_schema) = (schema(kind), sample(kind), json_schema(kind));
        let books = [kind.rulebook()];
        let counts = Cell::new((0, 0));
        let count = lengths::random_objects() / 5;
        cases(count, |random| {
            let object = object(random, kind, &crd, &sample, "mark");
            let object: Value = serde_json::from_str(&object).unwrap();
            let judged = judge(&object, &books);
            let (mut valid, mut refused) = counts.get();
            if is_valid(&json_schema, &object) {
                valid += 1;
                // What the CRD's schema says and the pod's does not: an object's own unknown fields.
                let unknown = judged.faults.iter().find(|fault| {
                    let in_metadata = fault.field.starts_with("metadata.");
                    fault.reason == Why::UnknownField && fault.by.is_none() && !in_metadata
                });
                assert_eq!(unknown, None, "{object}");
            } else {
                refused += 1;
                assert_ne!(judged.result, Outcome::Accepted, "{object}");
            }
            counts.set((valid, refused));
        });
        let (valid, refused) = counts.get();
        println!("{}: {valid} valid, {refused} refused", kind.name);
        // Otherwise the two would agree about nothing.
        assert!(
            given_seed().is_some() || (valid > count / 100 && refused > count / 100),
            "{}: {valid} valid, {refused} refused",
            kind.name
        );
    }
}

#[test]
fn samples_and_stored_objects_are_valid_and_mistakes_are_not() {
    for kind in REGISTRY {
        let schema = json_schema(kind);
        for sample in kind.samples {
            if !sample.file.starts_with("bad/") {
                let object: Value = serde_saphyr::from_str(sample.text).unwrap();
                assert!(is_valid(&schema, &object), "{}", sample.file);
            }
        }
        let good = sample(kind);
        let with = |pointer: &str, value: Value| {
            let mut object = good.clone();
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[name] = value;
            is_valid(&schema, &object)
        };
        for (pointer, value) in [
            ("/status", json!({"observedGeneration": -1})),
            ("/status", Value::Null),
            ("/spec", Value::Null),
            ("/metadata/labels", json!({"a": "b"})),
        ] {
            assert!(with(pointer, value), "{}: {pointer}", kind.name);
        }
        for (pointer, value) in [
            ("/speck", json!({})),
            ("/spec", json!([])),
            ("/spec/unknown", json!(1)),
            ("/kind", json!("Other")),
            ("/apiVersion", json!("example.com/v1")),
            ("/metadata", Value::Null),
            ("/status", json!({"observedGeneration": "1"})),
        ] {
            assert!(!with(pointer, value), "{}: {pointer}", kind.name);
        }
    }
}

/// The line that docs/admit.md shows for editors names a file that `my-operator manifests` writes.
#[test]
fn the_modeline_that_the_page_shows_names_a_generated_schema() {
    let page = text("docs/admit.md");
    let lines = page.lines();
    let shown: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("# yaml-language-server: $schema="))
        .collect();
    assert!(!shown.is_empty());
    let files = manifests::config().unwrap();
    for path in shown {
        assert!(
            files.iter().any(|file| file.path == Path::new(path)),
            "{path}"
        );
    }
}
