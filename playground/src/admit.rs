//! Manifests as `my-operator admit` judges them.

use std::io;

use admission_rules::text::clean;
use chrono::DateTime;
use my_operator_admit::object::Rulebook;
use my_operator_admit::read::{self, Source};
use my_operator_admit::report::Judged;
use my_operator_admit::{Flags, Output, conclude, judge, yaml};
use my_operator_kinds::REGISTRY;
use serde::Serialize;
use serde_json::{Value, json};
use similar::TextDiff;

/// The name of standard input.
const INPUT: &str = "-";

/// What is said of a text.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    /// What `-o json --show-patch` prints.
    report: Value,
    /// What `-o text` prints.
    text: String,
    /// What both print to standard error.
    errors: String,
    /// The exit code.
    code: u8,
    /// The same, for each line of the text.
    findings: Vec<Finding>,
    /// What defaulting changes, for each object that it changes.
    diffs: Vec<Diff>,
}

/// One sentence, and its position.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    level: Level,
    line: Option<usize>,
    text: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Level {
    /// It could not be read.
    Error,
    /// It breaks a rule.
    Fault,
    Warning,
}

/// An object before and after defaulting, as YAML with its fields in the order of the alphabet.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Diff {
    line: Option<usize>,
    kind: Option<String>,
    name: Option<String>,
    /// The differences, as a unified diff.
    unified: String,
}

/// A manifest to begin with.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    /// Below `config/samples`; what the webhook rejects is in `bad/`.
    file: &'static str,
    text: &'static str,
}

/// The samples of all kinds.
pub(crate) fn samples() -> Vec<Sample> {
    let samples = REGISTRY.iter().flat_map(|kind| kind.samples);
    let samples = samples.map(|it| Sample {
        file: it.file,
        text: it.text,
    });
    samples.collect()
}

/// Judges a text.
pub(crate) fn answer(manifest: &str, now: i64) -> io::Result<Answer> {
    let now = DateTime::from_timestamp_millis(now)
        .ok_or_else(|| io::Error::other("the clock of this browser is out of range"))?;
    let books: Vec<Rulebook> = REGISTRY.iter().map(|kind| kind.rulebook()).collect();
    let source = Source {
        name: INPUT.to_owned(),
        text: read::text(&mut manifest.as_bytes()),
        is_named: true,
    };
    let judged = judge(&source, &books, now);
    let (report, _, _) = printed(Output::Json, &judged)?;
    let (text, errors, code) = printed(Output::Text, &judged)?;
    Ok(Answer {
        report: serde_json::from_str(&report)?,
        text,
        errors,
        code,
        findings: judged.iter().flat_map(findings).collect(),
        diffs: diffs(source.text.as_deref().unwrap_or_default(), &judged),
    })
}

/// What the command prints to standard output and to standard error, and its exit code.
fn printed(output: Output, judged: &[Judged]) -> io::Result<(String, String, u8)> {
    let flags = Flags {
        filenames: vec![INPUT.into()],
        recursive: false,
        output,
        show_patch: output == Output::Json,
        skip_pod_schema: false,
        verbose: false,
    };
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let code = conclude(&flags, judged.to_vec(), &mut out, &mut errors)?;
    let text = |bytes| String::from_utf8(bytes).map_err(io::Error::other);
    Ok((text(out)?, text(errors)?, code))
}

/// The lines of an object, or of a document that could not be read.
fn findings(one: &Judged) -> Vec<Finding> {
    let finding = |level, line, text: &str| Finding {
        level,
        line,
        text: clean(text),
    };
    let error = one.read_error().into_iter();
    let error = error.map(|text| finding(Level::Error, one.line, text));
    let faults = one.faults.iter();
    let faults = faults.map(|it| finding(Level::Fault, Some(it.line), &one.sentence(it)));
    let warnings = one.warnings.iter();
    let warnings = warnings.map(|it| finding(Level::Warning, one.line, &one.caution(it)));
    error.chain(faults).chain(warnings).collect()
}

fn diffs(text: &str, judged: &[Judged]) -> Vec<Diff> {
    let mut diffs = Vec::new();
    let mut number = 0;
    yaml::documents(text, &mut |document| {
        number += 1;
        let Ok(node) = document.content else {
            return;
        };
        let of_this = judged.iter().filter(|one| one.document == Some(number));
        let mut changed = of_this
            .filter(|one| one.patch.iter().flatten().next().is_some())
            .peekable();
        if changed.peek().is_some() {
            let value = node.value();
            diffs.extend(changed.filter_map(|one| diff(one, &value)));
        }
    });
    diffs
}

/// What defaulting changes in one object of a document.
fn diff(one: &Judged, document: &Value) -> Option<Diff> {
    // items[0] is /items/0.
    let item = one.item.as_ref().map(|item| format!("/{item}"));
    let item = item.unwrap_or_default().replace(['.', '['], "/");
    let before = document.pointer(&item.replace(']', ""))?;
    let patch: json_patch::Patch = serde_json::from_value(json!(one.patch)).ok()?;
    let mut after = before.clone();
    json_patch::patch(&mut after, &patch).ok()?;
    let yaml = |object: &Value| serde_saphyr::to_string(object).ok();
    let (before, after) = (yaml(before)?, yaml(&after)?);
    let diff = TextDiff::from_lines(&before, &after);
    Some(Diff {
        line: one.line,
        kind: one.kind.clone(),
        name: one.name.clone(),
        unified: diff.unified_diff().context_radius(3).to_string(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// 2026-11-27T12:47:34.200Z.
    const FRIDAY: i64 = 1_795_783_654_200;

    const AT: &str = "apiVersion: cnat.programming-kubernetes.info/v1alpha1\nkind: At\nmetadata:\n  name: a\nspec:\n";

    fn judged(text: &str) -> Answer {
        answer(text, FRIDAY).unwrap()
    }

    #[test]
    fn an_accepted_object_is_shown_with_its_defaults() {
        let answer = judged(&format!("{AT}  schedule: now\n  command: ls\n"));
        assert_eq!(
            (answer.code, answer.text.as_str(), answer.findings.len()),
            (0, "1 accepted, 0 refused, 0 passed over, 0 unreadable\n", 0)
        );
        let [diff] = answer.diffs.as_slice() else {
            unreachable!("one object")
        };
        assert_eq!((diff.line, diff.name.as_deref()), (Some(1), Some("a")));
        assert!(diff.unified.contains("\n+  image: bash:5.3\n"), "{diff:?}");
        assert!(diff.unified.contains("\n   schedule: now\n"), "{diff:?}");
    }

    #[test]
    fn a_fault_has_the_line_of_its_field_and_the_words_of_admit() {
        let text = format!("---\nkind: [\n---\n{AT}  schedule: tomorrow\n");
        let answer = judged(&text);
        let lines: Vec<_> = answer.findings.iter().map(|it| it.line).collect();
        assert_eq!(answer.code, 2);
        assert_eq!(lines, [Some(2), Some(9), Some(8)], "{answer:?}");
        for finding in &answer.findings {
            let all = format!("{}{}", answer.errors, answer.text);
            assert!(all.contains(&finding.text), "{finding:?}: {all}");
        }
        assert_eq!(answer.report["results"][1]["faults"][1]["line"], 8);
    }

    #[test]
    fn the_objects_of_a_list_have_their_own_diffs() {
        let object = "  metadata: {name: b}\n  spec: {schedule: now, command: ls}\n";
        let list = "apiVersion: cnat.programming-kubernetes.info/v1alpha1\nkind: AtList\nitems:\n";
        let answer = judged(&format!("{list}- metadata: {{name: a}}\n-{}", &object[1..]));
        let names: Vec<_> = answer.diffs.iter().map(|it| it.name.as_deref()).collect();
        assert_eq!(names, [Some("a"), Some("b")]);
        assert!(answer.diffs[0].unified.contains("\n+spec:\n"), "{answer:?}");
        assert!(answer.diffs[1].unified.contains("\n spec:\n"), "{answer:?}");
    }

    #[test]
    fn a_text_that_is_too_long_is_as_unreadable_as_for_admit() {
        let answer = judged(&"#\n".repeat(8 * 1024 * 1024 + 1));
        assert_eq!(answer.errors, "error: -: longer than 16 MiB\n");
        assert_eq!(answer.code, 2);
    }

    #[test]
    fn nothing_to_judge_is_said_as_by_admit() {
        let answer = judged("# nothing\n");
        assert_eq!(answer.errors, "error: no objects passed to admit\n");
        assert_eq!(answer.code, 2);
    }
}
