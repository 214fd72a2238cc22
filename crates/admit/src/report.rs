//! The report, for users and for programs.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use serde::Serialize;

use admission_rules::faults::Reason;
use admission_rules::patch::Operation;
use admission_rules::text::{clean, cut, is_harmful};

/// The longest path of a field that is shown, as in the webhook. It may contain user input.
pub(crate) const MAX_FIELD_LEN: usize = 512;

/// The longest kind or name that is shown, in characters: a valid one is no longer.
const MAX_NAME_LEN: usize = 253;

/// The error where there is nothing to check.
pub(crate) const NO_OBJECTS: &str = "no objects passed to admit";

/// The result for a document, or for a file that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Judged {
    /// The file as it was named; `-` is standard input.
    pub file: String,
    /// The number of the document in its file, from 1; empty ones are not counted.
    pub document: Option<usize>,
    /// The position of the object in a list, such as `items[0]`.
    pub item: Option<String>,
    /// The line in the file, from 1.
    pub line: Option<usize>,
    /// The column of a syntax error, from 1, if known.
    pub column: Option<usize>,
    /// The object's `apiVersion`.
    pub api_version: Option<String>,
    /// The object's `kind`.
    pub kind: Option<String>,
    /// The object's `metadata.namespace`.
    pub namespace: Option<String>,
    /// The object's `metadata.name`, else `metadata.generateName`.
    pub name: Option<String>,
    /// The outcome.
    pub result: Outcome,
    /// Why it is unreadable, or no object.
    pub error: Option<String>,
    /// Why it is rejected.
    pub faults: Vec<Found>,
    /// The warnings about an accepted object.
    pub warnings: Vec<String>,
    /// The changes of defaulting: operations of RFC 6902.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Vec<Operation>>,
}

/// The outcome for a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It obeys the rules.
    Accepted,
    /// It breaks rules.
    Refused,
    /// It is of a kind that this program does not check.
    PassedOver,
    /// It is not an object of Kubernetes, in a file that was found in a folder.
    NotAnObject,
    /// It could not be read.
    #[default]
    Unreadable,
}

/// A fault and its position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The path of the field.
    pub field: String,
    /// The line of the field; of its nearest parent where it is missing.
    pub line: usize,
    /// The column of the same, from 1, in characters.
    pub column: usize,
    /// The kind of fault.
    pub reason: Why,
    /// The sentence for the user.
    pub message: String,
    /// What found it, if a cluster accepts the object in spite of it: `schema of pods, Kubernetes 1.36`. Only a pod of
    /// the object would be rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Why {
    /// The schema has no such field.
    UnknownField,
    /// The group is ours, but does not have this kind or version.
    NoMatch,
    /// A cause in the API's own wording.
    #[serde(untagged)]
    Field(Reason),
}

/// The number of documents by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Documents that obey the rules.
    pub accepted: usize,
    /// Documents that break rules.
    pub refused: usize,
    /// Documents of other kinds.
    pub passed_over: usize,
    /// Documents of folders that are not objects.
    pub not_objects: usize,
    /// Documents and files that could not be read.
    pub unreadable: usize,
}

#[derive(Serialize)]
struct Report<'a> {
    results: &'a [Judged],
    summary: Summary,
}

impl Summary {
    /// Counts the outcomes.
    pub fn new(judged: &[Judged]) -> Self {
        let count = |result| judged.iter().filter(|one| one.result == result).count();
        Self {
            accepted: count(Outcome::Accepted),
            refused: count(Outcome::Refused),
            passed_over: count(Outcome::PassedOver),
            not_objects: count(Outcome::NotAnObject),
            unreadable: count(Outcome::Unreadable),
        }
    }

    /// Whether there was nothing to check, and nothing that could not be read.
    pub fn is_empty(self) -> bool {
        self.accepted + self.refused + self.passed_over + self.unreadable == 0
    }

    /// 2 if anything could not be read, or there was no object; else 1 if any object was rejected.
    pub fn exit_code(self) -> u8 {
        if self.unreadable > 0 || self.is_empty() {
            2
        } else {
            u8::from(self.refused > 0)
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            accepted,
            refused,
            passed_over,
            unreadable,
            ..
        } = self;
        write!(
            f,
            "{accepted} accepted, {refused} refused, {passed_over} passed over, {unreadable} unreadable"
        )
    }
}

impl Why {
    /// As in the JSON, such as `FieldValueRequired`.
    pub(crate) fn id(self) -> String {
        let id = serde_json::to_value(self).unwrap_or_default();
        id.as_str().unwrap_or_default().to_owned()
    }
}

impl Judged {
    /// Its position: `file:line: document 2, items[0]`.
    fn place(&self, line: Option<usize>) -> String {
        let mut place = self.file.clone();
        if let Some(line) = line {
            let _ = write!(place, ":{line}");
        }
        if let Some(column) = self.column {
            let _ = write!(place, ":{column}");
        }
        if let Some(document) = self.document {
            let _ = write!(place, ": document {document}");
        }
        if let Some(item) = &self.item {
            let _ = write!(place, ", {item}");
        }
        place
    }

    /// One line on why it could not be read.
    fn complain(&self, errors: &mut dyn Write) -> io::Result<()> {
        let Some(error) = self.read_error() else {
            return Ok(());
        };
        let line = format!("error: {}: {error}", self.place(self.line));
        writeln!(errors, "{}", clean(&line))
    }

    /// Why it could not be read, if it could not.
    pub fn read_error(&self) -> Option<&str> {
        let is_unreadable = self.result == Outcome::Unreadable;
        self.error.as_deref().filter(|_| is_unreadable)
    }

    fn object(&self) -> String {
        let short = |text: Option<&str>| cut(text.unwrap_or_default(), MAX_NAME_LEN);
        let (kind, name) = (short(self.kind.as_deref()), short(self.name.as_deref()));
        format!("{kind} {name:?}")
    }

    /// One of its faults, without its position: `At "a": spec.command: Required value: command is required`.
    pub fn sentence(&self, fault: &Found) -> String {
        // The other two reasons name the field in their sentence.
        let field = match fault.reason {
            Why::Field(_) if !fault.field.is_empty() => {
                format!("{}: ", cut(&fault.field, MAX_FIELD_LEN))
            }
            _ => String::new(),
        };
        let by = fault.by.as_ref().map(|by| format!(" ({by})"));
        let (object, message, by) = (self.object(), &fault.message, by.unwrap_or_default());
        format!("{object}: {field}{message}{by}")
    }

    /// One of its warnings, without its position.
    pub fn caution(&self, warning: &str) -> String {
        format!("{}: warning: {warning}", self.object())
    }
}

/// One line for each fault, for users. Unreadable files and documents are reported to `errors`.
pub fn text(judged: &[Judged], out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<()> {
    for file in judged.chunk_by(|a, b| a.file == b.file) {
        for one in file {
            one.complain(errors)?;
            for fault in &one.faults {
                let place = one.place(Some(fault.line));
                let line = format!("{place}: {}", one.sentence(fault));
                writeln!(out, "{}", clean(&line))?;
            }
            let place = one.place(one.line);
            for warning in &one.warnings {
                let line = format!("{place}: {}", one.caution(warning));
                writeln!(out, "{}", clean(&line))?;
            }
            let object = one.object();
            let operations = one.patch.iter().flatten();
            for operation in operations {
                let what = match operation {
                    Operation::Add { path, value } => format!("add {path} {value}"),
                    Operation::Remove { path } => format!("remove {path}"),
                };
                let line = format!("{place}: {object}: default: {what}");
                writeln!(out, "{}", clean(&line))?;
            }
        }
        note(file, out)?;
    }
    writeln!(out, "{}", Summary::new(judged))
}

/// The documents that are not objects: how many there are or, if `verbose`, a line for each.
pub fn skipped(judged: &[Judged], verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    if verbose {
        for one in judged {
            if let (Outcome::NotAnObject, Some(why)) = (one.result, &one.error) {
                let line = format!("{}: note: skipped: {why}", one.place(one.line));
                writeln!(out, "{}", clean(&line))?;
            }
        }
        return Ok(());
    }
    let count = Summary::new(judged).not_objects;
    if count == 0 {
        return Ok(());
    }
    let what = if count == 1 {
        "document that is not a Kubernetes object (-v lists it)"
    } else {
        "documents that are not Kubernetes objects (-v lists them)"
    };
    writeln!(out, "note: skipped {count} {what}")
}

/// The skipped kinds of a file, in one line.
fn note(file: &[Judged], out: &mut dyn Write) -> io::Result<()> {
    let others = file.iter().filter(|one| one.result == Outcome::PassedOver);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in others.filter_map(|one| one.kind.as_deref()) {
        *kinds.entry(kind).or_default() += 1;
    }
    if let (Some(first), false) = (file.first(), kinds.is_empty()) {
        let kinds: Vec<String> = kinds
            .iter()
            .map(|(kind, n)| format!("{kind} ({n})"))
            .collect();
        let line = format!("{}: note: passed over: {}", first.file, kinds.join(", "));
        writeln!(out, "{}", clean(&line))?;
    }
    Ok(())
}

/// One JSON document. Unreadable files and documents are reported to `errors` as well.
pub fn json(judged: &[Judged], out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<()> {
    complaints(judged, errors)?;
    let report = Report {
        results: judged,
        summary: Summary::new(judged),
    };
    write_json(&report, out)
}

/// A line for each file and document that could not be read.
pub(crate) fn complaints(judged: &[Judged], errors: &mut dyn Write) -> io::Result<()> {
    judged.iter().try_for_each(|one| one.complain(errors))
}

/// Writes a value as indented JSON that a terminal shows as it is.
pub(crate) fn write_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    // In the log of a workflow, `##[error]` would be a command.
    let text = serde_json::to_string_pretty(value)?.replace("##[", "#\\u0023[");
    // JSON allows characters that rewrite a terminal. They occur only in strings, where an escape means the same.
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        // The newlines of the layout stay.
        if c == '\n' || !is_harmful(c) {
            escaped.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    writeln!(out, "{escaped}")
}
