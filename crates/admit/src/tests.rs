//! The reader compared with kubectl's library. The checks of documents are in tests/offline/documents.rs of the operator.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;

use my_operator_rounds::{lengths, proptest_config};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::read::decode;
use super::yaml;

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
