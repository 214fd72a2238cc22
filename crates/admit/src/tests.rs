//! The reader compared with kubectl's library, and the schema of pods. The checks of documents are in
//! tests/offline/documents.rs of the operator.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use admission_rules::faults::Fault;
use admission_rules::judge::Admission;
use admission_rules::rules::{Findings, Rules, Subject};
use chrono::{DateTime, Utc};
use kube::{CustomResource, CustomResourceExt as _};
use my_operator_rounds::{lengths, proptest_config};
use proptest::prelude::*;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::object::Rulebook;
use super::read::{Source, decode};
use super::report::{self, Found, Judged, Summary};
use super::{pods, yaml};

fn documents(text: &str) -> Vec<yaml::Document> {
    let mut documents = Vec::new();
    yaml::documents(text, &mut |document| documents.push(document));
    documents
}

fn values(text: &str) -> Vec<Result<Value, String>> {
    let read = |document: yaml::Document| {
        let content = document.content.map(|node| node.value());
        content.map_err(|unreadable| unreadable.message)
    };
    documents(text).into_iter().map(read).collect()
}

/// The one document that the text must hold.
fn value(text: &str) -> Value {
    let values = values(text);
    assert_eq!(values.len(), 1, "{text}: {values:?}");
    values[0].clone().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Why the one document of the text cannot be read: `line:column: message`.
fn error(text: &str) -> String {
    let documents = documents(text);
    let [document] = documents.as_slice() else {
        panic!("{text}: {documents:?}");
    };
    let unreadable = document.content.as_ref().unwrap_err();
    let column = unreadable.column.map_or(String::new(), |c| format!("{c}:"));
    format!("{}:{column} {}", unreadable.line, unreadable.message)
}

#[test]
fn documents_decode_to_the_json_that_kubectl_sends() {
    // Refused here, since it can only be a mistake: kubectl takes the last one, or what stands first.
    let mistakes = [
        "a: 1\na: 2",
        "1: a\n\"1\": b",
        "{a: 1, a: 2}",
        "a: 1\n...\nb: 2",
        " a: b\nc: d",
        // kubectl cuts the file there, and so has an error too.
        "%YAML 1.1\n---\na: yes",
    ];
    // Read otherwise: the first two are JSON, which kubectl reads with another library; the last has
    // no line break at its end, which kubectl adds.
    let others = [
        "a: \"\\ud83d\\ude00\"",
        "a: \"\\x41\\/\\e\"",
        "a: \u{85}b",
        "a: \u{2028}b",
        "a: \u{feff}b",
        ".inf: x",
        "v: .5_5",
        "v: -0.0",
        "a: |2\n  x",
    ];
    let table = include_str!("kubectl.tsv");
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let (text, theirs) = row.split_once('\t').unwrap();
        let text: String = serde_json::from_str(text).unwrap();
        let theirs = serde_json::from_str(theirs).ok();
        let mut ours = values(&text);
        let ours = match ours.len() {
            0 => Some(Value::Null),
            1 => ours.remove(0).ok(),
            _ => None,
        };
        if mistakes.contains(&text.as_str()) {
            assert!(ours.is_none() && theirs.is_some(), "{text:?}: {ours:?}");
        } else {
            let same = !others.contains(&text.as_str());
            assert_eq!(ours == theirs, same, "{text:?}: {ours:?}, {theirs:?}");
        }
    }
}

#[test]
fn a_file_is_cut_at_its_separators() {
    let all = |text: &str| -> Vec<Value> { values(text).into_iter().map(Result::unwrap).collect() };
    for nothing in [
        "",
        "\n",
        "---\n",
        "# c\n---\n# d\n---\n",
        "null\n",
        "---",
        "\r\n",
    ] {
        assert!(all(nothing).is_empty(), "{nothing:?}");
    }
    assert_eq!(
        all("---\na: 1\n---\n---\nb: 2\n"),
        [json!({"a": 1}), json!({"b": 2})]
    );
    assert_eq!(
        all("a: 1\r\n--- # c\r\nb: 2"),
        [json!({"a": 1}), json!({"b": 2})]
    );
    assert_eq!(
        all("{\"a\":1}{\"b\":2}\n {\"c\":3}"),
        [json!({"a": 1}), json!({"b": 2}), json!({"c": 3})]
    );
    assert_eq!(
        all("{\"a\": 1}\n---\n{b: 2}"),
        [json!({"a": 1}), json!({"b": 2})]
    );
    let seen = documents("\n\na: 1\n--- x\nskipped: 1\n---\n\nb: [\n---\nc: 1\n");
    let seen: Vec<_> = seen.iter().map(|d| (d.line, d.content.is_ok())).collect();
    assert_eq!(seen, [(3, true), (4, false), (8, false), (10, true)]);
    let lines: Vec<_> = documents("{\"a\":1}\n\n{\"b\":\n2}{}")
        .iter()
        .map(|d| d.line)
        .collect();
    assert_eq!(lines, [1, 3, 4]);
}

#[test]
fn syntax_errors_are_reported_with_their_position() {
    for (text, words) in [
        (
            "a: 1\nb: {{ .Values.b }}\n",
            "2:5: a list or an object cannot be a key (is this a template",
        ),
        ("{{- if .Values.a }}\na: 1\n", "is this a template"),
        ("a: 1\n---\n", ""),
        ("x: 1\na:\n\tb: c\n", "3:"),
        ("a: 1\n\nb: 2\nb: 3\n", "4:1: key \"b\" already set in map"),
        ("{\"a\": 1, \"a\": 2}", "1:10: key \"a\" already set in map"),
        ("{\"a\": 1, \"a\"", "1:"),
        ("a: 1\nb: \0\n", "2: control characters are not allowed"),
        ("a: \u{9b}x\n", "1: control characters"),
        ("a: &a [*a]\n", "an anchor's value contains itself"),
        ("a: *b\n", "1:4:"),
        ("a: .inf\n", "1:4: JSON has no number .inf"),
        ("a: !!int five\n", "cannot decode \"five\" as a !!int"),
        ("a: !!binary '!'\n", "base64"),
        ("~: a\n", "null cannot be a key"),
        ("a: {<<: 5}\n", "map merge"),
    ] {
        if words.is_empty() {
            value(text);
        } else {
            let said = error(text);
            assert!(said.contains(words), "{text:?}: {said}");
        }
    }
}

#[test]
fn positions_count_characters_from_the_start_of_the_line() {
    let all = documents("{\"ä\":1} {\"b\": 1, \"b\": 2}");
    let second = all[1].content.as_ref().unwrap_err();
    assert_eq!((second.line, second.column), (1, Some(18)));
    let all = documents("spec:\n  ä: [1]\n  b: {c: 1, d: 2}\n");
    let node = all[0].content.as_ref().unwrap();
    for (path, position) in [
        ("spec.ä", (2, 3)),
        ("spec.b.d", (3, 13)),
        // A missing field has the position of its parent.
        ("spec.b.x", (3, 3)),
        ("spec.x", (1, 1)),
    ] {
        assert_eq!(node.position_of(path), position, "{path}");
    }
}

#[test]
fn a_document_that_explodes_is_refused_at_once() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..40 {
        let alias = format!("*a{}, ", i - 1).repeat(10);
        let _ = writeln!(laughs, "a{i}: &a{i} [{alias}]");
    }
    assert!(error(&laughs).contains("with its aliases replaced"));
    let long = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(100_000),
        "*a, ".repeat(1000)
    );
    assert!(error(&long).contains("with its aliases replaced"));
    // Merged once more each time, a document would double.
    let mut merges = "a0: &a0 {k: v}\n".to_owned();
    for i in 1..60 {
        let before = i - 1;
        let _ = writeln!(
            merges,
            "a{i}: &a{i} {{<<: *a{before}, x{i}: *a{before}, y{i}: *a{before}}}"
        );
    }
    assert!(error(&merges).contains("with its aliases replaced"));
    // Merging takes memory at once, and each of these maps alone is small enough.
    let keys: Vec<String> = (0..50_000).map(|i| format!("k{i}: 1")).collect();
    let keys = keys.join(", ");
    let merges = format!("a: &a {{{keys}}}\nb: [{}]\n", "{<<: *a}, ".repeat(10_000));
    assert!(error(&merges).contains("with its aliases replaced"));
    let merges = format!("a: &a {{{keys}}}\nb: {{<<: [{}]}}\n", "*a, ".repeat(10_000));
    assert!(error(&merges).contains("with its aliases replaced"));
    for deep in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "{\"a\":".repeat(100_000),
    ] {
        error(&deep);
    }
    let mut chain = "a0: &a0 x\n".to_owned();
    for i in 1..100_000 {
        let _ = writeln!(chain, "a{i}: &a{i} {{x: *a{}}}", i - 1);
    }
    assert!(error(&chain).contains("nested deeper than 100 levels"));
    assert_eq!(
        value("a: &a [1, 2]\nb: *a\n"),
        json!({"a": [1, 2], "b": [1, 2]})
    );
}

#[test]
fn files_are_utf8_or_say_that_they_are_utf16() {
    assert_eq!(decode("a: ä".into()).unwrap(), "a: ä");
    assert_eq!(decode("\u{feff}a: ä".into()).unwrap(), "a: ä");
    let units: Vec<u16> = "\u{feff}a: ä😀".encode_utf16().collect();
    let little: Vec<u8> = units.iter().flat_map(|u| u.to_le_bytes()).collect();
    let big: Vec<u8> = units.iter().flat_map(|u| u.to_be_bytes()).collect();
    assert_eq!(decode(little.clone()).unwrap(), "a: ä😀");
    assert_eq!(decode(big).unwrap(), "a: ä😀");
    assert_eq!(
        decode(little[..little.len() - 1].to_vec()).unwrap_err(),
        "not valid UTF-16"
    );
    assert_eq!(
        decode(b"a: 1\nb: \xff\n".to_vec()).unwrap_err(),
        "not valid UTF-8, in line 2"
    );
    assert_eq!(
        decode(vec![0xff]).unwrap_err(),
        "not valid UTF-8, in line 1"
    );
}

/// What the schema of pods says of the template, which is written in one line.
fn found_in(template: &str) -> Vec<Found> {
    let documents = documents(&format!("spec:\n  template: {template}\n"));
    let node = documents[0].content.as_ref().unwrap();
    pods::check("spec.template", &node.value(), node)
}

/// The faults of the template, without the path of its spec: `field: message`.
fn template_faults(template: &str) -> Vec<String> {
    let found = found_in(template);
    for fault in &found {
        assert_eq!(fault.line, 2, "{fault:?}");
        let by = fault.by.as_deref();
        assert_eq!(by, Some("schema of pods, Kubernetes 1.36"));
    }
    let faults = found.iter();
    let shown = faults.map(|fault| format!("{}: {}", fault.field, fault.message));
    let shown = shown.map(|fault| fault.replace("spec.template.spec.", ""));
    shown.collect()
}

/// A template whose container `at` has these fields.
fn container(fields: &str) -> String {
    format!("{{spec: {{containers: [{{name: at, {fields}}}]}}}}")
}

#[test]
fn a_mistake_in_a_template_is_reported_with_what_was_expected() {
    let body = |field: &str, wanted: &str, is: &str| {
        format!("{field}: Invalid value: {is:?}: {field} in body must be of type {wanted}: {is:?}")
    };
    let unsupported = |field: &str, value: &str, supported: &str| {
        format!("{field}: Unsupported value: {value:?}: supported values: {supported}")
    };
    let quantity = "must be a quantity, such as 1.5, 500m or 128Mi";
    for (template, expected) in [
        (
            "{spec: {container: []}}".to_owned(),
            "container: unknown field \"container\"; did you mean \"containers\"?".to_owned(),
        ),
        (
            "{spec: {hostnetwork: true}}".to_owned(),
            "hostnetwork: unknown field \"hostnetwork\"; did you mean \"hostNetwork\"?".to_owned(),
        ),
        (
            container("comment: x"),
            "containers[0].comment: unknown field \"containers[0].comment\"; did you mean \"command\"?"
                .to_owned(),
        ),
        (
            container("nothing: x"),
            "containers[0].nothing: unknown field \"containers[0].nothing\"".to_owned(),
        ),
        (
            container("resources: {limits: {cpu: abc}}"),
            format!("containers[0].resources.limits.cpu: Invalid value: \"abc\": {quantity}"),
        ),
        (
            container("resources: {limits: {cpu: true}}"),
            body(
                "containers[0].resources.limits.cpu",
                "integer,number,string",
                "boolean",
            ),
        ),
        (
            container("env: [{name: \"A B\", value: 5}]"),
            body("containers[0].env[0].value", "string", "integer"),
        ),
        (
            container("imagePullPolicy: never"),
            unsupported(
                "containers[0].imagePullPolicy",
                "never",
                "\"Always\", \"IfNotPresent\", \"Never\"",
            ),
        ),
        (
            "{spec: {tolerations: [{operator: Bla}]}}".to_owned(),
            unsupported(
                "tolerations[0].operator",
                "Bla",
                "\"Equal\", \"Exists\", \"Gt\", \"Lt\"",
            ),
        ),
        (
            container("command: sleep"),
            body("containers[0].command", "array", "string"),
        ),
        (
            container("ports: [{containerPort: \"80\"}]"),
            body("containers[0].ports[0].containerPort", "integer", "string"),
        ),
        (
            container("ports: [{containerPort: 3000000000}]"),
            "containers[0].ports[0].containerPort: Invalid value: 3000000000: \
             containers[0].ports[0].containerPort in body should be less than or equal to 2147483647"
                .to_owned(),
        ),
        (
            container("livenessProbe: {httpGet: {path: /, port: {}}}"),
            body("containers[0].livenessProbe.httpGet.port", "integer,string", "object"),
        ),
        (
            container("volumeMounts: [{name: data}]"),
            "containers[0].volumeMounts[0].mountPath: Required value".to_owned(),
        ),
        (
            "{spec: {containers: [{name: \"\"}]}}".to_owned(),
            "containers[0].name: Required value".to_owned(),
        ),
        (
            "{spec: {nodeSelector: {disk: 1}}}".to_owned(),
            body("nodeSelector.disk", "string", "integer"),
        ),
        (
            "{metadata: {labels: [a]}}".to_owned(),
            body("spec.template.metadata.labels", "object", "array"),
        ),
        (
            "{spec: []}".to_owned(),
            body("spec.template.spec", "object", "array"),
        ),
        ("[]".to_owned(), body("spec.template", "object", "array")),
    ] {
        assert_eq!(template_faults(&template), [expected], "{template}");
    }
}

#[test]
fn what_the_api_server_accepts_in_a_template_is_no_fault() {
    for template in [
        "{}".to_owned(),
        "~".to_owned(),
        "{metadata: ~, spec: ~}".to_owned(),
        // The operator adds its container.
        "{spec: {}}".to_owned(),
        "{spec: {containers: ~, hostNetwork: ~}}".to_owned(),
        // To Go, a null in a list is an empty value, and an empty text is an absent one.
        container("args: [~, a]"),
        container("imagePullPolicy: \"\""),
        "{spec: {tolerations: [{key: a, operator: \"\", effect: \"\"}]}}".to_owned(),
        // Names of variables may have blanks since 1.34.
        container("env: [{name: \"A B\", value: \"5\"}]"),
        container("resources: {limits: {cpu: 0.5, memory: 1Gi, example.com/gpu: 1}}"),
        container("livenessProbe: {httpGet: {port: http, httpHeaders: [{name: A}]}}"),
        container("lifecycle: {preStop: {sleep: {}}}"),
        "{spec: {securityContext: {sysctls: [{name: a.b}]}}}".to_owned(),
        "{spec: {volumes: [{name: a, iscsi: {targetPortal: a, iqn: b}}]}}".to_owned(),
        "{spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1}]}}}}"
            .to_owned(),
        "{metadata: {managedFields: [{fieldsV1: {\"f:a\": {\"f:b\": {}}}}]}}".to_owned(),
    ] {
        assert_eq!(template_faults(&template), [""; 0], "{template}");
    }
    // An object without a template, and one whose spec is none.
    for text in ["a: 1\n", "spec: 1\n", "spec: {a: 1}\n"] {
        let documents = documents(text);
        let node = documents[0].content.as_ref().unwrap();
        let found = pods::check("spec.template", &node.value(), node);
        assert!(found.is_empty(), "{text}: {found:?}");
    }
}

#[test]
fn quantities_are_those_of_the_api_server() {
    let is_quantity = |text: &str| {
        let faults = template_faults(&container(&format!(
            "resources: {{limits: {{cpu: {text}}}}}"
        )));
        faults.is_empty()
    };
    for good in [
        "0", "1", "1.5", ".5", "5.", "+1", "-1", "100m", "1n", "1u", "1k", "1M", "1G", "1T", "1P",
        "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei", "1.5Gi", "1e3", "1E-3", "1e+3", " 1 ",
    ] {
        assert!(is_quantity(&format!("{good:?}")), "{good}");
    }
    for number in ["1", "1.5", "1e400", "18446744073709551615"] {
        assert!(is_quantity(number), "{number}");
    }
    for bad in [
        "", " ", "abc", "1 Gi", "1KB", "1kb", "1K", "128MB", "1mi", "1i", "1..5", "1.5.0", "0x10",
        "1e", "1e1.5", "1,5", "--1", "1+1", "NaN", "1Gi.", "٣",
    ] {
        assert!(!is_quantity(&format!("{bad:?}")), "{bad}");
    }
}

#[test]
fn a_hostile_template_is_checked_at_once_and_its_report_is_short() {
    let many: Vec<String> = (0..100_000).map(|i| format!("hostNetwork{i}: 1")).collect();
    let many = found_in(&format!("{{spec: {{{}}}}}", many.join(", ")));
    assert_eq!(many.len(), 1_000);
    let mut items = "{a: 1}, ".repeat(100_000);
    items.truncate(items.len() - 2);
    let many = found_in(&format!("{{spec: {{containers: [{items}]}}}}"));
    assert_eq!(many.len(), 1_000);
    // No longer than the name of a field can be.
    let long = "x".repeat(1_000);
    for template in [
        format!("{{spec: {{{long}: 1}}}}"),
        container(&format!("imagePullPolicy: {}", "x".repeat(100_000))),
        container(&format!("resources: {{limits: {{{long}: {long}}}}}")),
        container(&format!(
            "resources: {{limits: {{{long}: \"\\e[2J\\u202e\"}}}}"
        )),
        format!("{{spec: {{\"\\e[2J\\u202e\": 1, nodeSelector: {{{long}: 1}}}}}}"),
    ] {
        let judged = Judged {
            faults: found_in(&template),
            ..Judged::default()
        };
        assert!(!judged.faults.is_empty());
        let text = text_of(&[judged]);
        let raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(text.len() < 3_000 && !text.contains(raw), "{text}");
    }
    // As deep as a document may be.
    let deep = format!("{}1{}", "{a: ".repeat(95), "}".repeat(95));
    assert_eq!(template_faults(&format!("{{spec: {deep}}}")).len(), 1);
    let deep = format!("{}{}", "[".repeat(90), "]".repeat(90));
    assert_eq!(
        template_faults(&container(&format!("args: {deep}"))).len(),
        1
    );
}

fn text_of(judged: &[Judged]) -> String {
    let mut out = Vec::new();
    report::text(judged, &mut out, &mut std::io::sink()).unwrap();
    String::from_utf8(out).unwrap()
}

/// The walker knows every keyword of the file, and finds every definition that another refers to.
#[test]
fn the_schema_of_pods_is_small_complete_and_understood() {
    fn walk(schema: &Value, references: &mut BTreeSet<String>, unknown: &mut BTreeSet<String>) {
        for (keyword, value) in schema.as_object().unwrap() {
            match keyword.as_str() {
                "properties" => {
                    let properties = value.as_object().unwrap().values();
                    properties.for_each(|schema| walk(schema, references, unknown));
                }
                "items" | "additionalProperties" => walk(value, references, unknown),
                "$ref" => {
                    references.insert(value.as_str().unwrap().to_owned());
                    // What is beside a reference is not read.
                    let others = schema.as_object().unwrap().keys();
                    let mut others =
                        others.filter(|key| !["$ref", "nullable"].contains(&key.as_str()));
                    assert_eq!(others.next(), None, "{schema}");
                }
                "format" => assert_eq!(value, "quantity"),
                "type" => {
                    let types = ["string", "integer", "boolean", "array", "object"];
                    assert!(types.contains(&value.as_str().unwrap()), "{value}");
                }
                "enum" | "required" => {
                    assert!(value.as_array().unwrap().iter().all(Value::is_string));
                }
                "minimum" | "maximum" => assert!(value.is_i64()),
                "nullable"
                | "x-kubernetes-int-or-string"
                | "x-kubernetes-preserve-unknown-fields" => {
                    assert_eq!(value, true);
                }
                keyword => {
                    unknown.insert(keyword.to_owned());
                }
            }
        }
    }
    let text = include_str!("pod-template.json");
    assert!(text.len() <= 60_000, "{} bytes", text.len());
    let file: Value = serde_json::from_str(text).unwrap();
    let definitions = file["definitions"].as_object().unwrap();
    let (mut references, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for (name, schema) in definitions {
        // A reference leads to what is checked, not to another.
        assert!(schema.get("$ref").is_none(), "{name}");
        walk(schema, &mut references, &mut unknown);
    }
    assert_eq!(unknown, BTreeSet::new());
    references.insert("PodTemplateSpec".to_owned());
    let defined: BTreeSet<String> = definitions.keys().cloned().collect();
    assert_eq!(references, defined);
}

/// A kind whose webhook reads two fields of its template.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
struct LampSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    template: Option<Value>,
}

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

struct LampRules;

impl Rules for LampRules {
    type Object = Lamp;
    type Spec = LampSpec;
    type Status = ();

    fn default(_: &mut LampSpec) {}

    fn check(lamp: &Subject<'_, LampSpec>, _now: DateTime<Utc>) -> Findings {
        let mut findings = Findings::default();
        let template = lamp.spec.template.as_ref().unwrap_or(&Value::Null);
        let disk = &template["spec"]["nodeSelector"]["disk"];
        if disk.is_number() {
            let at = "spec.template.spec.nodeSelector";
            findings.fault(Fault::type_invalid(at, disk, "words of a rule").at_key("disk"));
        }
        if template["spec"]["containers"][0].get("name").is_none() {
            let at = "spec.template.spec.containers[0].name";
            findings.fault(Fault::required(at, "words of a rule"));
        }
        findings
    }
}

#[test]
fn the_webhooks_words_count_and_the_rest_is_marked() {
    let books = [Rulebook::new(Lamp::crd(), Admission::of::<LampRules>())
        .with_pod_templates(&["spec.template"])];
    let judge = |template: &str| {
        let head =
            "apiVersion: example.com/v1\nkind: Lamp\nmetadata: {name: a}\nspec:\n  template:\n";
        let source = Source {
            name: "f.yaml".to_owned(),
            text: Ok(format!("{head}    spec:\n{template}")),
            is_named: true,
        };
        super::judge(&source, &books, DateTime::UNIX_EPOCH)
    };
    let judged = judge(
        "      nodeSelector: {disk: 1}\n      hostIpc: true\n      containers:\n      - tty: 'on'\n",
    );
    let path = "spec.template.spec";
    assert_eq!(
        text_of(&judged),
        format!(
            "f.yaml:7: document 1: Lamp \"a\": {path}.nodeSelector[disk]: Invalid value: 1: words of a rule\n\
             f.yaml:10: document 1: Lamp \"a\": {path}.containers[0].name: Required value: words of a rule\n\
             f.yaml:8: document 1: Lamp \"a\": unknown field \"{path}.hostIpc\"; \
             did you mean \"hostIPC\"? (schema of pods, Kubernetes 1.36)\n\
             f.yaml:10: document 1: Lamp \"a\": {path}.containers[0].tty: Invalid value: \"string\": \
             {path}.containers[0].tty in body must be of type boolean: \"string\" (schema of pods, Kubernetes 1.36)\n\
             0 accepted, 1 refused, 0 passed over, 0 unreadable\n"
        )
    );
    let json = json!(judged[0].faults);
    assert_eq!(json[0].get("by"), None);
    assert_eq!(json[2]["by"], "schema of pods, Kubernetes 1.36");
    assert_eq!(json[2]["message"], judged[0].faults[2].message);
    // A fault of a pod alone counts as well.
    let judged = judge("      hostIpc: true\n      containers: [{name: a}]\n");
    assert_eq!(judged[0].faults.len(), 1);
    assert_eq!(Summary::new(&judged).exit_code(), 1);
    let judged = judge("      containers: [{name: a}]\n");
    assert_eq!(Summary::new(&judged).exit_code(), 0, "{judged:?}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300).prop_map(|x: f64| Value::from(x + 0.5)),
        any::<String>().prop_map(Value::from),
        "[ -~]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map("[^\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f]{0,12}", inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// What JSON writers escape, and what `serde_json` does not.
fn escaped(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap();
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(proptest_config(lengths::documents()))]

    #[test]
    fn json_is_read_as_json(value in any_json()) {
        let object = json!({ "a": value });
        let text = escaped(&object);
        let read = values(&text);
        prop_assert_eq!(read.len(), 1);
        // Go and Rust write some floats in other ways; all of them are the same number.
        prop_assert_eq!(read[0].clone().map_err(|e| format!("{e}: {text}")), Ok(object));
    }
}
