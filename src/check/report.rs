//! The findings, and how they are printed.

use std::fmt::Write as _;
use std::io;

use admission_rules::text::line;
use serde::Serialize;

/// The longest text of a finding, in characters. A message of the cluster can be of any length.
const MAX_TEXT: usize = 600;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All is well.
    Passed,
    /// It works, or it cannot be seen whether it works.
    Warning,
    /// It does not work.
    Failed,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked: one of a fixed list of words.
    pub check: &'static str,
    /// The object that was checked, where a check has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How it ended.
    pub level: Level,
    /// What was seen.
    pub message: String,
    /// Whether it could not be checked, or not to its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

impl Finding {
    fn new(check: &'static str, level: Level, message: impl AsRef<str>) -> Self {
        Self {
            check,
            subject: None,
            level,
            message: harmless(message.as_ref()),
            unknown: false,
            action: None,
        }
    }

    pub(super) fn passed(check: &'static str, message: impl AsRef<str>) -> Self {
        Self::new(check, Level::Passed, message)
    }

    pub(super) fn warning(check: &'static str, message: impl AsRef<str>) -> Self {
        Self::new(check, Level::Warning, message)
    }

    pub(super) fn failed(check: &'static str, message: impl AsRef<str>) -> Self {
        Self::new(check, Level::Failed, message)
    }

    /// Notes that it could not be checked.
    pub(super) fn unknown(mut self) -> Self {
        self.unknown = true;
        self
    }

    pub(super) fn about(mut self, subject: &str) -> Self {
        self.subject = Some(harmless(subject));
        self
    }

    pub(super) fn action(mut self, action: impl AsRef<str>) -> Self {
        self.action = Some(harmless(action.as_ref()));
        self
    }

    /// The line for people.
    pub(super) fn line(&self) -> String {
        let mark = match self.level {
            Level::Passed => "✔",
            Level::Warning => "!",
            Level::Failed => "✗",
        };
        let mut line = format!("{mark} {}", self.check);
        // Writing to a String cannot fail.
        if let Some(subject) = &self.subject {
            let _ = write!(line, " {subject}");
        }
        let _ = write!(line, ": {}", self.message);
        if let Some(action) = &self.action {
            let _ = write!(line, " -> {action}");
        }
        line
    }
}

/// The text in one harmless line of limited length.
fn harmless(text: &str) -> String {
    line(&text.trim().replace(['\n', '\r', '\t'], " "), MAX_TEXT)
}

/// All findings of one pass.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of this program.
    pub version: &'static str,
    /// The operator's namespace.
    pub namespace: String,
    /// The worst of the levels.
    pub result: Level,
    /// How many could not be checked.
    pub unknown: usize,
    /// One for each check.
    pub checks: Vec<Finding>,
}

impl Report {
    pub(super) fn new(namespace: &str, checks: Vec<Finding>) -> Self {
        let worst = checks.iter().map(|finding| finding.level).max();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            namespace: namespace.to_owned(),
            result: worst.unwrap_or(Level::Passed),
            unknown: checks.iter().filter(|finding| finding.unknown).count(),
            checks,
        }
    }

    /// 0 if nothing failed and, if `strict`, everything could be checked; else 1.
    pub fn exit_code(&self, strict: bool) -> u8 {
        u8::from(self.result == Level::Failed || (strict && self.unknown > 0))
    }

    /// Prints the findings as lines.
    ///
    /// # Errors
    /// When `out` cannot be written to.
    pub fn text(&self, out: &mut dyn io::Write) -> io::Result<()> {
        for finding in &self.checks {
            writeln!(out, "{}", finding.line())?;
        }
        let count = |level| self.checks.iter().filter(|it| it.level == level).count();
        let (failed, warnings) = (count(Level::Failed), count(Level::Warning));
        let unknown = match self.unknown {
            0 => String::new(),
            unknown => format!("; {unknown} could not be checked"),
        };
        writeln!(
            out,
            "{} checks: {failed} failed, {warnings} with a warning{unknown}",
            self.checks.len()
        )
    }

    /// Prints the report as one JSON document.
    ///
    /// # Errors
    /// When `out` cannot be written to.
    pub fn json(&self, out: &mut dyn io::Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn texts_of_the_cluster_stay_one_harmless_line() {
        let hostile = format!(
            "a\n✔ all: well\x1b[2J\u{202e}\u{9b}31m{}",
            "x".repeat(9_000)
        );
        let finding = Finding::failed("lease", &hostile)
            .about("n\r\nm")
            .action(&hostile);
        let line = finding.line();
        assert!(line.starts_with("✗ lease n  m: a ✔ all: well\\u{1b}[2J\\u{202e}\\u{9b}31mx"));
        assert!(line.chars().count() < 1_300 && line.chars().all(|c| !c.is_control()));
    }

    #[test]
    fn the_worst_level_decides_and_a_warning_is_no_failure() {
        let of = |checks: Vec<Finding>| Report::new("n", checks).exit_code(false);
        let (good, warning, bad) = (
            Finding::passed("a", ""),
            Finding::warning("b", ""),
            Finding::failed("c", ""),
        );
        assert_eq!(of(vec![good.clone(), warning.clone()]), 0);
        assert_eq!(of(vec![bad, good, warning]), 1);
    }

    #[test]
    fn what_could_not_be_checked_is_counted_and_fails_where_that_is_strict() {
        let said = |checks: Vec<Finding>| {
            let report = Report::new("n", checks);
            let mut text = Vec::new();
            report.text(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let last = text.lines().last().unwrap().to_owned();
            let json = serde_json::to_value(&report).unwrap();
            (
                last,
                json["unknown"].as_u64(),
                [false, true].map(|strict| report.exit_code(strict)),
            )
        };
        let seen = || Finding::warning("a", "");
        let unseen = || Finding::warning("b", "unknown: no right").unknown();
        assert_eq!(
            said(vec![seen(), unseen(), unseen()]),
            (
                "3 checks: 0 failed, 3 with a warning; 2 could not be checked".to_owned(),
                Some(2),
                [0, 1]
            )
        );
        assert_eq!(
            said(vec![seen()]),
            (
                "1 checks: 0 failed, 1 with a warning".to_owned(),
                Some(0),
                [0, 0]
            )
        );
        let json = serde_json::to_value([seen(), unseen()]).unwrap();
        assert_eq!(json[0].get("unknown"), None);
        assert_eq!(json[1]["unknown"], true);
    }
}
