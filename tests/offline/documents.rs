//! `admit` on documents of the operator's kinds, without a process: the report, object by object.

use std::path::Path;

use admission_rules::review::Request;
use chrono::{DateTime, Utc};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use my_operator::kinds::REGISTRY;
use my_operator_admit::object::Rulebook;
use my_operator_admit::read::{Source, decode};
use my_operator_admit::report::{self, Judged, Outcome, Summary};
use my_operator_admit::{annotations, sarif, yaml};
use my_operator_rounds::{lengths, proptest_config};
use proptest::prelude::*;
use serde_json::{Value, json};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

/// The one document that the text must hold.
fn value(text: &str) -> Value {
    let mut values = Vec::new();
    yaml::documents(text, &mut |document| {
        values.push(document.content.unwrap().value());
    });
    assert_eq!(values.len(), 1, "{text}: {values:?}");
    values.remove(0)
}

fn books() -> Vec<Rulebook> {
    REGISTRY.iter().map(|kind| kind.rulebook()).collect()
}

fn judge(text: &str) -> Vec<Judged> {
    let source = Source {
        name: "f.yaml".to_owned(),
        text: Ok(text.to_owned()),
        is_named: true,
    };
    my_operator_admit::judge(&source, &books(), now())
}

/// The faults of the one object that the text must hold: `line field: message`.
fn faults(text: &str) -> Vec<String> {
    let judged = judge(text);
    assert_eq!(judged.len(), 1, "{judged:?}");
    let faults = judged[0].faults.iter();
    let shown = faults.map(|f| format!("{} {}: {}", f.line, f.field, f.message));
    shown.collect()
}

fn lines(judged: &[Judged]) -> String {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    report::text(judged, &mut out, &mut errors).unwrap();
    out.extend(errors);
    String::from_utf8(out).unwrap()
}

const AT: &str = "apiVersion: cnat.programming-kubernetes.info/v1alpha1\nkind: At\n";

#[test]
fn faults_are_those_of_the_webhook() {
    for kind in REGISTRY {
        let names = (kind.admission.resource)();
        for sample in kind.samples {
            let request = json!({
                "uid": "u",
                "kind": { "group": names.group, "version": names.version, "kind": names.kind },
                "operation": "CREATE",
                "object": value(sample.text),
            });
            let request = request.to_string();
            let request = Request::read(&request).unwrap();
            let verdict = (kind.admission.validate)(&request, now());
            let judged = judge(sample.text);
            assert_eq!(judged.len(), 1);
            let ours: Vec<_> = judged[0]
                .faults
                .iter()
                .map(|f| (&f.field, &f.message))
                .collect();
            let theirs: Vec<_> = verdict
                .faults
                .iter()
                .map(|f| (&f.field, &f.message))
                .collect();
            assert_eq!(ours, theirs, "{}", sample.file);
            assert_eq!(
                judged[0].warnings, verdict.response.warnings,
                "{}",
                sample.file
            );
            let accepted = judged[0].result == Outcome::Accepted;
            assert_eq!(accepted, verdict.response.allowed, "{}", sample.file);
        }
    }
}

#[test]
fn what_the_api_server_refuses_before_it_asks_the_webhook_is_found() {
    let text = format!(
        "{AT}metadata:\n  name: Bad_Name\n  lables: {{}}\nspeck: 1\nspec:\n  imgae: x\n  image: 5\n  schedule: now\n  command: [x]\n  shell: [1, null]\n  suspend: 'yes'\n  activeDeadlineSeconds: 1.5\n  template:\n    foo: 1\n    metadata: {{labels: {{a.b/c: 1, d: null}}}}\n    spec: {{anything: 1}}\nstatus: {{phase: NOPE, foo: 1}}\n"
    );
    let body = |field: &str, wanted: &str, is: &str| {
        format!("{field}: Invalid value: {is:?}: {field} in body must be of type {wanted}: {is:?}")
    };
    let found = faults(&text);
    for expected in [
        "5 metadata.lables: unknown field \"metadata.lables\"".to_owned(),
        "6 speck: unknown field \"speck\"".to_owned(),
        "8 spec.imgae: unknown field \"spec.imgae\"".to_owned(),
        "16 spec.template.foo: unknown field \"spec.template.foo\"".to_owned(),
        "18 spec.template.spec.anything: unknown field \"spec.template.spec.anything\"".to_owned(),
        "19 status.foo: unknown field \"status.foo\"".to_owned(),
        format!("9 {}", body("spec.image", "string", "integer")),
        format!("11 {}", body("spec.command", "string", "array")),
        format!("12 {}", body("spec.shell[0]", "string", "integer")),
        format!("12 {}", body("spec.shell[1]", "string", "null")),
        format!("13 {}", body("spec.suspend", "boolean", "string")),
        format!(
            "14 {}",
            body("spec.activeDeadlineSeconds", "integer", "number")
        ),
        format!(
            "17 {}",
            body("spec.template.metadata.labels.a.b/c", "string", "integer")
        ),
    ] {
        assert!(found.contains(&expected), "{expected} is not in {found:#?}");
    }
    assert!(found.iter().any(|f| {
        f.starts_with("4 metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123")
    }));
    assert_eq!(found.len(), 14, "{found:#?}");
}

#[test]
fn null_counts_as_absent() {
    let text = format!(
        "{AT}metadata: {{name: a, labels: null, creationTimestamp: null}}\nspec: {{schedule: now, command: x, image: ~, template: {{metadata: ~, spec: ~}}}}\nstatus: ~\n"
    );
    assert_eq!(faults(&text), [""; 0]);
}

#[test]
fn metadata_must_name_the_object() {
    let spec = "spec: {schedule: now, command: x}\n";
    let of = |metadata: &str| faults(&format!("{AT}{metadata}\n{spec}"));
    let missing = "metadata.name: Required value: name or generateName is required";
    assert_eq!(of("# none"), [format!("1 {missing}")]);
    assert_eq!(of("metadata: ~"), [format!("3 {missing}")]);
    assert_eq!(of("metadata: {name: ''}"), [format!("3 {missing}")]);
    assert!(of("metadata: {name: a-1.b}").is_empty());
    assert!(of("metadata: {generateName: a-}").is_empty());
    for (metadata, field) in [
        ("metadata: {name: a_b}", "metadata.name"),
        ("metadata: {name: a-}", "metadata.name"),
        ("metadata: {name: a..b}", "metadata.name"),
        ("metadata: {name: 5}", "metadata.name"),
        ("metadata: {generateName: A-}", "metadata.generateName"),
        ("metadata: {generateName: ä-}", "metadata.generateName"),
        ("metadata: {name: a, labels: {b: 1}}", "metadata.labels"),
        (
            "metadata: {name: a, annotations: [b]}",
            "metadata.annotations",
        ),
        ("metadata: [a]", "metadata"),
    ] {
        let found = of(metadata);
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("3 {field}")),
            "{metadata}: {found:?}"
        );
    }
}

#[test]
fn objects_of_other_kinds_are_skipped() {
    let result = |text: &str| judge(text)[0].result;
    assert_eq!(
        result("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
        Outcome::PassedOver
    );
    assert_eq!(
        result("apiVersion: example.com/v1\nkind: At\n"),
        Outcome::PassedOver
    );
    let group = "cnat.programming-kubernetes.info";
    for (version, kind) in [("v1", "At"), ("v1alpha1", "Att"), ("v1alpha1", "at")] {
        let text = format!("apiVersion: {group}/{version}\nkind: {kind}\nmetadata: {{name: a}}\n");
        let said = format!("1 : no matches for kind \"{kind}\" in version \"{group}/{version}\"");
        assert_eq!(faults(&text), [said]);
    }
    let text = format!("apiVersion: {group}\nkind: At\n");
    assert_eq!(
        faults(&text),
        [format!(
            "1 : no matches for kind \"At\" in version \"{group}\""
        )]
    );
    for (text, said) in [
        ("kind: At\n", "apiVersion not set"),
        ("apiVersion: v1\n", "kind not set"),
        ("a: 1\n", "apiVersion not set, kind not set"),
        (
            "kind: 1\napiVersion: ''\n",
            "apiVersion not set, kind not set",
        ),
        ("- a\n", "not an object"),
        ("text\n", "not an object"),
    ] {
        let judged = judge(text);
        assert_eq!(judged[0].result, Outcome::Unreadable);
        assert!(
            judged[0].error.as_ref().unwrap().starts_with(said),
            "{text}"
        );
    }
}

#[test]
fn lists_are_judged_item_by_item() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: cnat.programming-kubernetes.info/v1alpha1\n  kind: AtList\n  items:\n  - metadata: {name: a}\n    spec: {schedule: now, command: x}\n  - metadata: {name: b}\n    spec: {}\n- apiVersion: v1\n  kind: Secret\n- 5\n";
    let judged = judge(text);
    let seen: Vec<_> = judged
        .iter()
        .map(|one| (one.item.as_deref().unwrap(), one.line.unwrap(), one.result))
        .collect();
    assert_eq!(
        seen,
        [
            ("items[0].items[0]", 7, Outcome::Accepted),
            ("items[0].items[1]", 9, Outcome::Refused),
            ("items[1]", 11, Outcome::PassedOver),
            ("items[2]", 13, Outcome::Unreadable),
        ]
    );
    assert_eq!(judged[1].name.as_deref(), Some("b"));
    assert!(judge("apiVersion: v1\nkind: List\nitems: []\n").is_empty());
}

#[test]
fn a_dump_of_a_stored_object_is_judged_as_if_it_were_new() {
    let forged = "2020-01-01T00:00:00.000Z";
    let text = format!(
        "{AT}metadata:\n  name: a\n  uid: u\n  resourceVersion: '5'\n  creationTimestamp: 2020-01-01T00:00:00Z\n  annotations: {{cnat.programming-kubernetes.info/schedule-set-at: '{forged}'}}\nspec: {{schedule: now + 5 minutes, command: x, image: 'a:1'}}\nstatus: {{phase: DONE}}\n"
    );
    let judged = judge(&text);
    assert_eq!(judged[0].result, Outcome::Accepted, "{judged:?}");
    let patch = json!(judged[0].patch).to_string();
    assert!(
        patch.contains("schedule-set-at") && patch.contains("remove"),
        "{patch}"
    );
}

#[test]
fn hostile_text_does_not_reach_the_terminal() {
    let hostile = "\\e[2J\\u202e\\u009b\\n\\x7f";
    let text = format!(
        "{AT}metadata: {{name: \"{hostile}\"}}\nspec: {{\"{hostile}\": 1, image: \"{hostile}\", template: {{metadata: {{labels: {{\"{hostile}\": \"{hostile}\"}}}}}}}}\n---\napiVersion: \"{hostile}\"\nkind: \"{hostile}\"\n---\n\"{hostile}\": 1\n\"{hostile}\": 1\n"
    );
    let judged = judge(&text);
    let (mut json, mut errors) = (Vec::new(), Vec::new());
    report::json(&judged, &mut json, &mut errors).unwrap();
    let json = String::from_utf8(json).unwrap();
    let (mut commands, mut sarif) = (Vec::new(), Vec::new());
    annotations::print(&judged, &mut commands).unwrap();
    sarif::print(&judged, Path::new("/"), &mut sarif, &mut errors).unwrap();
    for shown in [
        lines(&judged),
        json.clone(),
        String::from_utf8(errors).unwrap(),
        String::from_utf8(commands).unwrap(),
        String::from_utf8(sarif).unwrap(),
    ] {
        let raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!shown.contains(raw), "{shown:?}");
    }
    assert!(!lines(&judged).contains("\n\n"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["results"][0]["name"],
        "\u{1b}[2J\u{202e}\u{9b}\n\u{7f}"
    );
}

#[test]
fn the_worst_outcome_decides_the_exit_code() {
    let code = |accepted, refused, passed_over, unreadable| {
        let summary = Summary {
            accepted,
            refused,
            passed_over,
            unreadable,
            // They count for nothing.
            not_objects: 1,
        };
        summary.exit_code()
    };
    assert_eq!(code(1, 0, 0, 0), 0);
    assert_eq!(code(0, 0, 1, 0), 0);
    assert_eq!(code(5, 1, 1, 0), 1);
    assert_eq!(code(5, 1, 1, 1), 2);
    assert_eq!(code(5, 0, 0, 1), 2);
    assert_eq!(code(0, 0, 0, 0), 2);
}

#[test]
fn numbers_out_of_the_bounds_of_a_schema_are_reported_in_the_api_servers_wording() {
    let schema: JSONSchemaProps = serde_json::from_value(json!({"properties": {"spec": {
        "type": "object",
        "properties": {"size": {"type": "integer", "minimum": 0, "maximum": 10}},
    }}}))
    .unwrap();
    let found = |size: Value| {
        let object = json!({"spec": {"size": size}});
        let faults = my_operator_admit::schema::check(&schema, &object)
            .values
            .into_iter();
        faults.map(|fault| fault.message).collect::<Vec<_>>()
    };
    for good in [json!(0), json!(10), Value::Null] {
        assert_eq!(found(good), [""; 0]);
    }
    let words = |size: i64, bound: &str| {
        format!("Invalid value: {size}: spec.size in body should be {bound}")
    };
    assert_eq!(found(json!(-1)), [words(-1, "greater than or equal to 0")]);
    assert_eq!(found(json!(11)), [words(11, "less than or equal to 10")]);
    let huge = 2_147_483_648_i64;
    assert_eq!(
        found(json!(huge)),
        [words(huge, "less than or equal to 10")]
    );
}

/// The walker must know every keyword of the CRDs that decides about an object. Those of a status
/// decide nothing when an object is created.
#[test]
fn the_walker_knows_every_keyword() {
    fn walk(at: &str, schema: &Value, unknown: &mut Vec<String>) {
        for (keyword, value) in schema.as_object().unwrap() {
            match keyword.as_str() {
                "description" | "title" | "nullable" | "x-kubernetes-int-or-string" => {}
                "x-kubernetes-preserve-unknown-fields" => assert_eq!(value, true),
                "minimum" | "maximum" => assert!(value.is_number(), "{at}"),
                "type" => {
                    let types = ["string", "integer", "boolean", "array", "object"];
                    assert!(types.contains(&value.as_str().unwrap()), "{at}: {value}");
                }
                // Whether a number fits is found by the decoder of the kind.
                "format" => assert!(
                    ["int32", "int64"].contains(&value.as_str().unwrap()),
                    "{at}"
                ),
                "properties" => {
                    for (name, schema) in value.as_object().unwrap() {
                        walk(&format!("{at}.{name}"), schema, unknown);
                    }
                }
                "items" | "additionalProperties" => walk(at, value, unknown),
                keyword => unknown.push(format!("{at}: {keyword}")),
            }
        }
    }
    let mut unknown = Vec::new();
    for kind in REGISTRY {
        for version in (kind.crd)().spec.versions {
            let schema: JSONSchemaProps = version.schema.unwrap().open_api_v3_schema.unwrap();
            let mut schema = serde_json::to_value(schema).unwrap();
            schema["properties"]
                .as_object_mut()
                .unwrap()
                .remove("status");
            walk(kind.name, &schema, &mut unknown);
        }
    }
    assert!(
        unknown.is_empty(),
        "crates/admit/src/schema.rs does not know {unknown:?}"
    );
}

proptest! {
    #![proptest_config(proptest_config(lengths::documents()))]

    #[test]
    fn any_bytes_are_checked_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(text) = decode(bytes) {
            lines(&judge(&text));
        }
    }

    #[test]
    fn any_text_made_of_pieces_of_manifests_is_checked(
        words in prop::collection::vec(prop::sample::select(&[
            "apiVersion: ", "cnat.programming-kubernetes.info/v1alpha1", "\n", "\n", "\n  ", "\n    ",
            "kind: ", "At", "List", "metadata: ", "name: ", "spec: ", "template: ", "items: ", "- ",
            "{", "}", "[", "]", ",", ": ", "&a ", "*a", "<<: ", "!!int ", "!x ", "|", ">", "'", "\"",
            "\\", "#", "---", "...", "%", "@", "\t", "\0", "\u{feff}", "\r", "ä", "yes", "0x", "1e9",
            "~", "?", "{{", "status: ", "\n---\n",
        ][..]), 0..60)
    ) {
        let judged = judge(&words.concat());
        prop_assert!(Summary::new(&judged).exit_code() <= 2);
        lines(&judged);
    }
}
