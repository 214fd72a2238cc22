//! What was found as one flat list, and as workflow commands of GitHub Actions.
//!
//! The runner executes each line of standard output that begins with `::`. Names of files and messages are text of
//! others: with escapes, they cannot begin a command or end a property.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Component, Path};

use admission_rules::text::{clean, line};
use serde::Serialize;

use super::report::{Judged, NO_OBJECTS, Summary};

/// The most characters of a message: GitHub's runner cuts off the rest.
const MAX_MESSAGE_LEN: usize = 4_096;

/// The rule of what cannot be read.
pub const UNREADABLE: &str = "Unreadable";
/// The rule of warnings.
pub const WARNING: &str = "Warning";

/// How bad a finding is, in the words of GitHub and of SARIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It counts for the exit code.
    Error,
    /// It does not.
    Warning,
}

/// A fault, a warning, or what cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<'a> {
    /// How bad it is.
    pub level: Level,
    /// Its kind: the reason of a fault as in the JSON report, [`UNREADABLE`] or [`WARNING`].
    pub rule: String,
    /// The file as it was named; `-` is standard input.
    pub file: &'a str,
    /// The line in the file, from 1, if known.
    pub line: Option<usize>,
    /// The column, from 1, if known.
    pub column: Option<usize>,
    /// One line of limited length, without harmful characters.
    pub message: String,
}

/// Everything that was found, in the order of the text report.
pub fn findings(judged: &[Judged]) -> impl Iterator<Item = Finding<'_>> {
    judged.iter().flat_map(of_document)
}

fn of_document(one: &Judged) -> Vec<Finding<'_>> {
    let file = one.file.as_str();
    let finding = |level: Level, rule: &str, text: &str| Finding {
        level,
        rule: rule.to_owned(),
        file,
        line: one.line,
        column: None,
        message: line(text, MAX_MESSAGE_LEN),
    };
    let mut found = Vec::new();
    if let Some(error) = one.read_error() {
        found.push(Finding {
            column: one.column,
            ..finding(Level::Error, UNREADABLE, error)
        });
    }
    found.extend(one.faults.iter().map(|fault| Finding {
        line: Some(fault.line),
        column: Some(fault.column),
        ..finding(Level::Error, &fault.reason.id(), &one.sentence(fault))
    }));
    let warnings = one.warnings.iter();
    found.extend(warnings.map(|text| finding(Level::Warning, WARNING, &one.caution(text))));
    found
}

/// One workflow command for each finding, and the summary.
pub fn print(judged: &[Judged], out: &mut dyn Write) -> io::Result<()> {
    for found in findings(judged) {
        writeln!(out, "{}", command(&found))?;
    }
    let summary = Summary::new(judged);
    if summary.is_empty() {
        writeln!(out, "::error title=my-operator admit::{NO_OBJECTS}")?;
    }
    writeln!(out, "{summary}")
}

/// `::error file=a.yaml,line=7,col=3,title=...::message`.
fn command(found: &Finding<'_>) -> String {
    let name = match found.level {
        Level::Error => "error",
        Level::Warning => "warning",
    };
    let mut properties = Vec::new();
    let mut message = data(&found.message);
    if found.file == "-" {
        // GitHub could not show standard input.
        if let Some(number) = found.line {
            message = format!("line {number}: {message}");
        }
    } else {
        properties.push(format!("file={}", property(&relative(found.file))));
        properties.extend(found.line.map(|number| format!("line={number}")));
        properties.extend(found.column.map(|number| format!("col={number}")));
    }
    let title = format!("my-operator admit: {}", found.rule);
    properties.push(format!("title={}", property(&title)));
    format!("::{name} {}::{message}", properties.join(","))
}

/// The file without `.` in its path: GitHub names files from the folder of the repository on.
fn relative(file: &str) -> String {
    let path = Path::new(file);
    let names: Vec<_> = names(path).collect();
    if names.is_empty() {
        return file.to_owned();
    }
    let root = if path.is_absolute() { "/" } else { "" };
    format!("{root}{}", names.join("/"))
}

/// The names in a path, without those that lead nowhere: `./deploy//a.yaml` has `deploy` and `a.yaml`.
pub(crate) fn names(path: &Path) -> impl Iterator<Item = Cow<'_, str>> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy()),
        Component::ParentDir => Some(Cow::Borrowed("..")),
        _ => None,
    })
}

/// Lines for a workflow that are not commands. GitHub's runner executes those of the old form, `##[error]`, anywhere in
/// a line. A line must come in one write.
pub(crate) struct Inert<'a>(pub(crate) &'a mut dyn Write);

impl Write for Inert<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).replace("##[", "## [");
        // It is the name of a file that a line begins with: this is the same file.
        let prefix = if text.trim_start().starts_with("::") {
            "./"
        } else {
            ""
        };
        self.0.write_all(format!("{prefix}{text}").as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A message, escaped as GitHub's own toolkit does (`escapeData` in `@actions/core`).
fn data(text: &str) -> String {
    let text = text.replace('%', "%25");
    text.replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property (`escapeProperty` there). The toolkit leaves other control characters to the terminal.
fn property(text: &str) -> String {
    let text = data(text).replace(':', "%3A").replace(',', "%2C");
    clean(&text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use admission_rules::faults::Reason;

    use super::*;
    use crate::report::{Found, Outcome, Why};

    fn refused(file: &str, message: &str) -> Judged {
        Judged {
            file: file.to_owned(),
            kind: Some("At".to_owned()),
            name: Some("a".to_owned()),
            result: Outcome::Refused,
            faults: vec![Found {
                field: "spec.command".to_owned(),
                line: 7,
                column: 3,
                reason: Why::Field(Reason::Required),
                message: message.to_owned(),
                by: None,
            }],
            ..Judged::default()
        }
    }

    fn printed(judged: &[Judged]) -> String {
        let mut out = Vec::new();
        print(judged, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_finding_is_a_workflow_command() {
        let mut warned = refused("b.yaml", "");
        warned.faults.clear();
        warned.result = Outcome::Accepted;
        warned.line = Some(2);
        warned.warnings = vec!["100% sure".to_owned()];
        let unreadable = Judged {
            file: "c.yaml".to_owned(),
            line: Some(3),
            column: Some(9),
            error: Some("did not find expected ','".to_owned()),
            ..Judged::default()
        };
        let skipped = Judged {
            result: Outcome::NotAnObject,
            ..unreadable.clone()
        };
        let judged = [
            refused("a.yaml", "Required value"),
            warned,
            unreadable,
            skipped,
        ];
        assert_eq!(
            printed(&judged),
            "::error file=a.yaml,line=7,col=3,title=my-operator admit%3A FieldValueRequired::\
             At \"a\": spec.command: Required value\n\
             ::warning file=b.yaml,line=2,title=my-operator admit%3A Warning::\
             At \"a\": warning: 100%25 sure\n\
             ::error file=c.yaml,line=3,col=9,title=my-operator admit%3A Unreadable::\
             did not find expected ','\n\
             1 accepted, 1 refused, 0 passed over, 1 unreadable\n"
        );
    }

    #[test]
    fn standard_input_is_no_file() {
        let printed = printed(&[refused("-", "Required value")]);
        let command = "::error title=my-operator admit%3A FieldValueRequired::\
                       line 7: At \"a\": spec.command: Required value\n";
        assert!(printed.starts_with(command), "{printed}");
    }

    #[test]
    fn a_file_is_named_without_the_folder_that_it_is_named_from() {
        for (file, expected) in [
            ("./a.yaml", "a.yaml"),
            ("./deploy/./b//a.yaml", "deploy/b/a.yaml"),
            ("../a.yaml", "../a.yaml"),
            ("/work/./a.yaml", "/work/a.yaml"),
            (".", "."),
        ] {
            assert_eq!(relative(file), expected, "{file:?}");
        }
    }

    #[test]
    fn nothing_to_check_is_an_error() {
        let skipped = Judged {
            file: "a.yaml".to_owned(),
            result: Outcome::NotAnObject,
            ..Judged::default()
        };
        assert_eq!(
            printed(&[skipped]),
            "::error title=my-operator admit::no objects passed to admit\n\
             0 accepted, 0 refused, 0 passed over, 0 unreadable\n"
        );
    }

    #[test]
    fn text_of_others_is_no_command_in_a_workflow() {
        let mut out = Vec::new();
        for line in [
            "a.yaml: ##[error]x ###[[",
            "::set-output name=a::b.yaml:1: x",
            " ::c.yaml: x",
            "a ## b :: [c]",
        ] {
            writeln!(Inert(&mut out), "{line}").unwrap();
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "a.yaml: ## [error]x ### [[\n./::set-output name=a::b.yaml:1: x\n./ ::c.yaml: x\na ## b :: [c]\n"
        );
    }

    #[test]
    fn hostile_text_begins_no_command_and_ends_no_property() {
        let hostile = "x,line=1::y%0A\r\n::stop-commands::t\u{1b}[2J\u{202e}";
        let printed = printed(&[refused(hostile, hostile)]);
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines.len(), 2, "{printed}");
        let (properties, _) = lines[0]
            .strip_prefix("::error ")
            .unwrap()
            .split_once("::")
            .unwrap();
        let file = "file=x%2Cline=1%3A%3Ay%250A%0D%0A%3A%3Astop-commands%3A%3At\\u{1b}[2J\\u{202e}";
        let properties: Vec<&str> = properties.split(',').collect();
        assert_eq!(properties[..3], [file, "line=7", "col=3"]);
        assert_eq!(properties.len(), 4, "{properties:?}");
        let long = refused("a.yaml", &"%\u{1b}".repeat(100_000));
        let long = findings(&[long])
            .map(|found| found.message.chars().count())
            .max();
        assert_eq!(long, Some(MAX_MESSAGE_LEN));
    }
}
