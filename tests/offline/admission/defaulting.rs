//! Defaulting adds what is missing and touches nothing else: random objects of every kind, made from
//! its schema, through the webhooks as text.

use std::collections::{BTreeMap, BTreeSet};

use my_operator::kinds::{Kind, REGISTRY};
use my_operator_rounds::{given_seed, lengths};
use serde_json::{Value, json};

use super::objects::{sample, sample_with, schema};
use super::random::{Random, cases};
use super::text::Text;
use super::wire::{Ask, Wire};

/// What the annotations that only the webhook writes are forged to.
const FORGED: &str = "forged";

/// Numbers as people and programs write them.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "1",
    "2",
    "3",
    "10",
    "3600",
    "-1",
    "1.0",
    "1e3",
    "0.10",
    "2147483648",
    "9007199254740993",
    "18446744073709551616",
    "123456789012345678901234567890",
    "1E-400",
];

/// Any JSON, as the value of an unknown field.
fn anything(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 6 } else { 9 }) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 | 3 => random.one(&NUMBERS[..]).to_owned(),
        4 => r#""text""#.to_owned(),
        5 => r#""\u00e4\/\ud83d\udc33""#.to_owned(),
        6 => {
            let items: Vec<_> = (0..random.below(3))
                .map(|_| anything(random, depth - 1))
                .collect();
            format!("[{}]", items.join(" , "))
        }
        _ => {
            let n = random.below(3);
            let members = (0..n).map(|i| {
                (
                    format!("k{i}/~{}", random.below(9)),
                    anything(random, depth - 1),
                )
            });
            let members = members.collect();
            written(random, members)
        }
    }
}

/// An object with its members in any order, and blanks wherever they may be.
fn written(random: &mut Random, mut members: Vec<(String, String)>) -> String {
    random.shuffle(&mut members);
    let blanks = [" ", "", "", "\n  ", "\t"];
    let members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| {
            let (a, b) = (random.one(&blanks), random.one(&blanks));
            format!("{a}{}{b}:{a}{value}{b}", Value::from(name))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

/// A value by a schema, good more often than not. `sample` is what stands there in a good object.
fn value(random: &mut Random, schema: &Value, sample: Option<&Value>) -> String {
    if let Some(sample) = sample.filter(|s| !s.is_object())
        && !random.once_in(3)
    {
        return sample.to_string();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return random
            .one(&["0", "1", "7", r#""25%""#, r#""100%""#, r#""x""#, "-3"])
            .to_owned();
    }
    match schema["type"].as_str() {
        Some("object") if schema["properties"].is_object() => {
            let properties = schema["properties"].as_object().unwrap();
            let mut members = Vec::new();
            for (name, schema) in properties {
                let sample = sample.and_then(|sample| sample.get(name));
                // What a good object has is there, mostly.
                let left_out = if sample.is_some() {
                    random.once_in(6)
                } else {
                    random.once_in(2)
                };
                if !left_out {
                    members.push((name.clone(), field(random, schema, sample)));
                }
            }
            for i in 0..random.below(5).saturating_sub(2) {
                members.push((format!("unknown{i}"), anything(random, 3)));
            }
            written(random, members)
        }
        Some("object") if schema["additionalProperties"].is_object() => {
            let n = random.below(3);
            let members = (0..n)
                .map(|i| {
                    (
                        format!("example.com/k{i}"),
                        value(random, &schema["additionalProperties"], None),
                    )
                })
                .collect();
            written(random, members)
        }
        Some("object") => {
            let n = random.below(4);
            let members = (0..n)
                .map(|i| (format!("any{i}"), anything(random, 3)))
                .collect();
            written(random, members)
        }
        Some("array") => {
            let n = random.below(3);
            let items: Vec<_> = (0..n)
                .map(|_| value(random, &schema["items"], None))
                .collect();
            format!("[{}]", items.join(", "))
        }
        Some("boolean") => random.one(&["true", "false"]).to_owned(),
        Some("integer") => random.one(&NUMBERS[..7]).to_owned(),
        Some("string") if schema["enum"].is_array() => {
            let values = schema["enum"].as_array().unwrap();
            values[random.below(values.len())].to_string()
        }
        Some("string") => random
            .one(&[
                r#""""#,
                r#""x:1""#,
                r#""now""#,
                r#""RollingUpdate""#,
                r#""OnDelete""#,
                r#""a b""#,
            ])
            .to_owned(),
        _ => anything(random, 3),
    }
}

/// A field that is there: mostly what it should be.
fn field(random: &mut Random, schema: &Value, sample: Option<&Value>) -> String {
    match random.below(30) {
        0 | 1 => "null".to_owned(),
        2 => anything(random, 2),
        3 if schema["type"] == "integer" => random.one(&NUMBERS[..]).to_owned(),
        _ => value(random, schema, sample),
    }
}

/// Metadata that the API server would let through: it checks these before it asks a webhook.
fn metadata(random: &mut Random, kind: &Kind, mark: &str) -> String {
    let mut members = vec![("name".to_owned(), r#""x""#.to_owned())];
    match random.below(5) {
        0 => {}
        1 => members.push(("annotations".to_owned(), "null".to_owned())),
        _ => {
            let mut annotations = vec![("example.com/a~b".to_owned(), r#""\u0041""#.to_owned())];
            for key in kind.admission.recorded {
                if random.once_in(2) {
                    annotations.push(((*key).to_owned(), Value::from(mark).to_string()));
                }
            }
            annotations.truncate(random.below(4));
            members.push(("annotations".to_owned(), written(random, annotations)));
        }
    }
    for i in 0..random.below(3) {
        members.push((format!("unknown{i}"), anything(random, 2)));
    }
    written(random, members)
}

/// An object of the kind with a random spec, good more often than not.
pub(super) fn object(
    random: &mut Random,
    kind: &Kind,
    schema: &Value,
    sample: &Value,
    mark: &str,
) -> String {
    let spec = field(random, &schema["properties"]["spec"], Some(&sample["spec"]));
    let mut members = vec![
        ("apiVersion".to_owned(), sample["apiVersion"].to_string()),
        ("kind".to_owned(), sample["kind"].to_string()),
        ("metadata".to_owned(), metadata(random, kind, mark)),
        ("spec".to_owned(), spec),
    ];
    if random.once_in(10) {
        members.pop();
    }
    if random.once_in(4) {
        members.push(("unknown".to_owned(), anything(random, 3)));
    }
    written(random, members)
}

/// Where the webhook may write what it likes: its own annotations.
fn is_recorded(kind: &Kind, path: &str) -> bool {
    let of = |key: &str| format!("/metadata/annotations{}", token(key));
    kind.admission.recorded.iter().any(|key| path == of(key))
}

/// A name as a part of a JSON pointer.
fn token(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Every operation fills in something that was missing.
fn check_operations(kind: &Kind, before: &Text, operations: &[Value]) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for operation in operations {
        let path = operation["path"].as_str().unwrap();
        assert!(paths.insert(path.to_owned()), "{path} is changed twice");
        if is_recorded(kind, path) {
            continue;
        }
        assert_eq!(operation["op"], "add", "{operation}");
        let made_for_them = ["/metadata", "/metadata/annotations", "/spec"].contains(&path);
        assert!(made_for_them || path.starts_with("/spec/"), "{operation}");
        let there = before.at(path).filter(|value| !value.is_null());
        assert_eq!(there, None, "{operation} changes what was there");
    }
    paths
}

/// Whatever was there is there, in the same words and the same order.
fn check_kept(before: &Text, after: &Text, path: &str, changed: &BTreeSet<String>) {
    if changed.contains(path) {
        return;
    }
    let (Text::Object(before), Text::Object(after)) = (before, after) else {
        assert_eq!(before, after, "{path}");
        return;
    };
    let mut rest = after.iter();
    for (name, value) in before {
        let path = path.to_owned() + &token(name);
        if !after.iter().any(|(other, _)| other == name) {
            assert!(changed.contains(&path), "{path} is lost");
            continue;
        }
        let kept = rest.by_ref().find(|(other, _)| other == name);
        let (_, kept) = kept.unwrap_or_else(|| panic!("{path} is out of order"));
        check_kept(value, kept, &path, changed);
    }
    for (name, _) in after {
        if before.iter().all(|(other, _)| other != name) {
            let path = path.to_owned() + &token(name);
            assert!(changed.contains(&path), "{path} came from nowhere");
        }
    }
}

/// The annotations that only the webhook writes.
fn recorded(kind: &Kind, object: &Value) -> BTreeMap<&'static str, Value> {
    let annotations = &object["metadata"]["annotations"];
    let keys = kind.admission.recorded.iter();
    keys.filter_map(|key| Some((*key, annotations.get(*key)?.clone())))
        .collect()
}

/// Defaults one object. Answers what becomes of it, and whether anything does.
fn check_defaulting(wire: &Wire, kind: &Kind, ask: &Ask<'_>) -> (String, bool) {
    let mutate = kind.admission.path("mutate");
    let first = wire.post(&mutate, ask.review(kind).as_bytes());
    let response = first.response();
    assert_eq!(
        response["allowed"], true,
        "defaulting never refuses: {response}"
    );
    let operations = first.patch();

    // By another crate, and by the text.
    let before = Text::read(ask.object);
    let mut after = before.clone();
    after.patch(&operations);
    let text = after.to_string();
    let mut by_crate: Value = serde_json::from_str(ask.object).unwrap();
    let patch: json_patch::Patch = serde_json::from_value(operations.clone().into()).unwrap();
    json_patch::patch(&mut by_crate, &patch).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), by_crate);

    let changed = check_operations(kind, &before, &operations);
    check_kept(&before, &after, "", &changed);

    let defaulted = Ask {
        object: &text,
        ..*ask
    };
    let second = wire.post(&mutate, defaulted.review(kind).as_bytes());
    assert_eq!(
        second.patch(),
        Vec::<Value>::new(),
        "a second pass changes something: {text}"
    );

    for (key, value) in recorded(kind, &by_crate) {
        assert_ne!(value, FORGED, "{key} can be forged");
    }
    (text, !operations.is_empty())
}

/// Whether the object is accepted, which must be the same with and without its defaults.
fn check_validity(wire: &Wire, kind: &Kind, ask: &Ask<'_>, defaulted: &str) -> bool {
    let defaulted = Ask {
        object: defaulted,
        ..*ask
    };
    let path = kind.admission.path("validate");
    let [plain, full] = [ask, &defaulted].map(|ask| wire.post(&path, ask.review(kind).as_bytes()));
    let (plain, full) = (plain.response(), full.response());
    assert_eq!(plain["allowed"], full["allowed"], "{}", ask.object);
    assert_eq!(plain["status"], full["status"], "{}", ask.object);
    full["allowed"] == true
}

fn check_kind(kind: &Kind) {
    let wire = Wire::new();
    let (schema, sample) = (schema(kind), sample(kind));
    let counts = std::cell::Cell::new((0, 0));
    let count = lengths::random_objects();
    cases(count, |random| {
        let new = object(random, kind, &schema, &sample, FORGED);
        let old = object(random, kind, &schema, &sample, "kept");
        let ask = if random.once_in(3) {
            Ask::update(&old, &new)
        } else {
            Ask::create(&new)
        };
        let (defaulted, changed) = check_defaulting(&wire, kind, &ask);
        let accepted = random.once_in(3) && check_validity(&wire, kind, &ask, &defaulted);
        let (a, c) = counts.get();
        counts.set((a + u64::from(accepted), c + u64::from(changed)));
    });
    let (accepted, changed) = counts.get();
    println!(
        "{}: {accepted} of {count} accepted, {changed} changed",
        kind.name
    );
    if given_seed().is_none() {
        // Otherwise the properties would hold of nothing. A kind may have little to fill in, or nothing.
        let mut bare = sample.clone();
        bare["spec"] = json!({});
        let (_, fills_in) = check_defaulting(&wire, kind, &Ask::create(&bare.to_string()));
        assert!(
            accepted > count / 100 && (changed > count / 20 || !fills_in),
            "{} of {count}: {accepted} accepted, {changed} changed",
            kind.name
        );
    }
}

#[test]
fn of_random_objects_of_every_kind_nothing_is_lost_and_what_was_missing_is_added() {
    std::thread::scope(|scope| {
        for kind in REGISTRY {
            scope.spawn(|| check_kind(kind));
        }
    });
}

#[test]
fn good_objects_of_every_kind_stay_good_whatever_form_they_have() {
    let wire = Wire::new();
    for kind in REGISTRY {
        let plain = sample(kind);
        let full = sample_with(
            kind,
            &json!({"template": {"spec": {"containers": [{"name": "app", "image": "a:1"}]}}}),
        );
        for object in [plain, full] {
            let text = object.to_string();
            let pretty = serde_json::to_string_pretty(&object).unwrap();
            let unknown = r#""spec":{"unknown":123456789012345678901234567890.0e-5,"#;
            let unknown = text.replace(r#""spec":{"#, unknown);
            for text in [text, pretty, unknown] {
                for ask in [Ask::create(&text), Ask::update(&text, &text)] {
                    let (defaulted, _) = check_defaulting(&wire, kind, &ask);
                    assert!(check_validity(&wire, kind, &ask, &defaulted), "{text}");
                }
            }
        }
    }
}

#[test]
fn objects_without_metadata_or_spec_are_defaulted_all_the_same() {
    let wire = Wire::new();
    for kind in REGISTRY {
        for text in [
            "{}",
            r#"{"metadata":null,"spec":null}"#,
            r#"{"metadata":{"annotations":null}}"#,
            r#"{"spec":{}}"#,
        ] {
            check_defaulting(&wire, kind, &Ask::create(text));
            check_defaulting(&wire, kind, &Ask::update(text, text));
        }
    }
}

#[test]
fn what_only_the_webhook_writes_cannot_be_forged_on_an_object_whose_spec_cannot_be_read() {
    let wire = Wire::new();
    for kind in REGISTRY {
        let annotated = |value: Option<&str>, spec: &str| {
            let mut object = json!({"metadata": {"name": "x", "annotations": {}}});
            for key in kind.admission.recorded {
                if let Some(value) = value {
                    object["metadata"]["annotations"][*key] = value.into();
                }
            }
            let text = object.to_string();
            format!("{},\"spec\":{spec}}}", text.strip_suffix('}').unwrap())
        };
        let good = sample(kind)["spec"].to_string();
        for (old_spec, new_spec) in [("[]", "[]"), ("[]", good.as_str()), (good.as_str(), "[]")] {
            for new_value in [None, Some(FORGED)] {
                let old = annotated(Some("kept"), old_spec);
                let new = annotated(new_value, new_spec);
                let ask = Ask::update(&old, &new);
                let answer = wire.post(&kind.admission.path("mutate"), ask.review(kind).as_bytes());
                let mut object = Text::read(&new);
                object.patch(&answer.patch());
                let object: Value = serde_json::from_str(&object.to_string()).unwrap();
                let after = recorded(kind, &object);
                // A change of the spec may change what is recorded of it, but never to the client's.
                for (key, value) in &after {
                    assert_ne!(value, FORGED, "{key}: {old_spec} -> {new_spec}");
                    assert_ne!(
                        value, "ann",
                        "{key} is recorded again: {old_spec} -> {new_spec}"
                    );
                }
                if old_spec == new_spec {
                    assert_eq!(after.len(), kind.admission.recorded.len(), "{after:?}");
                }
            }
        }
    }
}
