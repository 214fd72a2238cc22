//! The report as SARIF 2.1.0, for code scanning of GitHub and others:
//! <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::annotations::{Finding, Level, UNREADABLE, WARNING, findings, names};
use super::report::{self, Judged, Summary};

/// The most results: GitHub rejects a file with more.
const MAX_RESULTS: usize = 25_000;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// One rule for each kind of finding.
const RULES: [(&str, &str); 11] = [
    ("FieldValueRequired", "A required field is missing"),
    ("FieldValueInvalid", "A value breaks a rule of its field"),
    (
        "FieldValueNotSupported",
        "A value is not one of those that its field supports",
    ),
    ("FieldValueForbidden", "A field must not be set here"),
    ("FieldValueTooLong", "A value is too long"),
    (
        "FieldValueDuplicate",
        "A value occurs twice in a list of distinct values",
    ),
    ("FieldValueTypeInvalid", "A value has the wrong type"),
    ("UnknownField", "The kind has no field of this name"),
    ("NoMatch", "The API group has no such kind or version"),
    (UNREADABLE, "A file or a document cannot be read"),
    (WARNING, "The object is accepted with a warning"),
];

/// One SARIF document. Files below `root`, an absolute path, are named from there. Unreadable files and documents are
/// reported to `errors` as well.
pub fn print(
    judged: &[Judged],
    root: &Path,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> io::Result<()> {
    report::complaints(judged, errors)?;
    report::write_json(&log(judged, root), out)
}

fn log(judged: &[Judged], root: &Path) -> Value {
    let found = findings(judged).take(MAX_RESULTS + 1);
    let mut results: Vec<Value> = found.map(|found| result(&found, root)).collect();
    let mut notifications = Vec::new();
    if results.len() > MAX_RESULTS {
        results.truncate(MAX_RESULTS);
        let message = format!("only the first {MAX_RESULTS} findings are listed");
        notifications.push(json!({"level": "warning", "message": {"text": message}}));
    }
    let exit_code = Summary::new(judged).exit_code();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "my-operator admit",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": RULES.map(rule),
            }},
            "invocations": [{
                "executionSuccessful": exit_code < 2,
                "exitCode": exit_code,
                "toolExecutionNotifications": notifications,
            }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule((id, meaning): (&str, &str)) -> Value {
    let level = if id == WARNING {
        Level::Warning
    } else {
        Level::Error
    };
    // GitHub wants each of the three texts.
    json!({
        "id": id,
        "shortDescription": {"text": meaning},
        "fullDescription": {"text": meaning},
        "help": {"text": format!("{meaning}. See docs/admit.md of my-operator.")},
        "defaultConfiguration": {"level": level},
    })
}

fn result(found: &Finding<'_>, root: &Path) -> Value {
    let mut location = json!({"artifactLocation": artifact(found.file, root)});
    if let Some(line) = found.line {
        location["region"] = json!({"startLine": line});
        if let Some(column) = found.column {
            location["region"]["startColumn"] = column.into();
        }
    }
    json!({
        "ruleId": found.rule,
        "level": found.level,
        // `[text](address)` would be a link.
        "message": {"text": found.message.replace("](", "] (")},
        "locations": [{"physicalLocation": location}],
    })
}

/// Where a file is: from `root` on if it is below, else by its absolute path.
fn artifact(file: &str, root: &Path) -> Value {
    let path = Path::new(file);
    let path = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<String> = names(path).map(|name| percent_encoded(&name)).collect();
    let joined = parts.join("/");
    if path.is_absolute() {
        return json!({"uri": format!("file:///{joined}")});
    }
    let uri = if joined.is_empty() { "." } else { &joined };
    json!({"uri": uri, "uriBaseId": "%SRCROOT%"})
}

/// The text with everything escaped that has a meaning in a URI.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use admission_rules::faults::Reason;

    use super::*;
    use crate::report::{Found, Outcome, Why};

    fn refused(file: &str, reasons: &[Why]) -> Judged {
        let fault = |reason: &Why| Found {
            field: "spec.command".to_owned(),
            line: 7,
            column: 3,
            reason: *reason,
            message: "words [x](http://example.com)".to_owned(),
            by: None,
        };
        Judged {
            file: file.to_owned(),
            result: Outcome::Refused,
            faults: reasons.iter().map(fault).collect(),
            ..Judged::default()
        }
    }

    #[test]
    fn every_kind_of_finding_has_its_rule() {
        let reasons = [
            Reason::Required,
            Reason::Invalid,
            Reason::NotSupported,
            Reason::Forbidden,
            Reason::TooLong,
            Reason::Duplicate,
            Reason::TypeInvalid,
        ];
        let mut reasons: Vec<Why> = reasons.into_iter().map(Why::Field).collect();
        reasons.extend([Why::UnknownField, Why::NoMatch]);
        let mut one = refused("a.yaml", &reasons);
        one.warnings = vec!["careful".to_owned()];
        let unreadable = Judged {
            error: Some("no".to_owned()),
            ..Judged::default()
        };
        let log = log(&[one, unreadable], Path::new("/work"));
        let results = log["runs"][0]["results"].as_array().unwrap();
        let rules = log["runs"][0]["tool"]["driver"]["rules"]
            .as_array()
            .unwrap();
        assert_eq!(results.len(), RULES.len());
        for (id, _) in RULES {
            let mut results = results.iter();
            assert!(results.any(|result| result["ruleId"] == id), "{id}");
            let mut rules = rules.iter();
            assert!(rules.any(|rule| rule["id"] == id), "{id}");
        }
        assert_eq!(
            results[0]["message"]["text"],
            " \"\": spec.command: words [x] (http://example.com)"
        );
    }

    #[test]
    fn files_are_named_from_the_root_and_escaped() {
        let uri = |file: &str| artifact(file, Path::new("/work/here"));
        let below = |uri: &str| json!({"uri": uri, "uriBaseId": "%SRCROOT%"});
        for (file, expected) in [
            ("deploy/a.yaml", "deploy/a.yaml"),
            ("./deploy//a.yaml", "deploy/a.yaml"),
            ("/work/here/a.yaml", "a.yaml"),
            ("../b/a.yaml", "../b/a.yaml"),
            ("a b%\n:?#ä.yaml", "a%20b%25%0A%3A%3F%23%C3%A4.yaml"),
            ("-", "-"),
            (".", "."),
        ] {
            assert_eq!(uri(file), below(expected), "{file:?}");
        }
        let elsewhere = json!({"uri": "file:///tmp/a.yaml"});
        assert_eq!(uri("/tmp/a.yaml"), elsewhere);
    }

    #[test]
    fn a_document_has_no_more_results_than_are_accepted() {
        let many = vec![Why::UnknownField; MAX_RESULTS];
        let log = |judged: &[Judged]| log(judged, Path::new("/"))["runs"][0].take();
        let full = log(&[refused("a.yaml", &many)]);
        assert_eq!(full["results"].as_array().unwrap().len(), MAX_RESULTS);
        let said = |run: &Value| run["invocations"][0]["toolExecutionNotifications"].clone();
        assert_eq!(said(&full), json!([]));
        let cut = log(&[refused("a.yaml", &many), refused("b.yaml", &many[..1])]);
        assert_eq!(cut["results"].as_array().unwrap().len(), MAX_RESULTS);
        assert_ne!(said(&cut), json!([]));
    }
}
