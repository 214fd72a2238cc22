//! The findings, and how they are printed.

use std::fmt::Write as _;
use std::io;

use my_operator_admission::text::line;
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
            checks,
        }
    }

    /// 0 if nothing failed, else 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(self.result == Level::Failed)
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
        writeln!(
            out,
            "{} checks: {failed} failed, {warnings} with a warning",
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
        let of = |checks: Vec<Finding>| Report::new("n", checks).exit_code();
        let (good, warning, bad) = (
            Finding::passed("a", ""),
            Finding::warning("b", ""),
            Finding::failed("c", ""),
        );
        assert_eq!(of(vec![good.clone(), warning.clone()]), 0);
        assert_eq!(of(vec![bad, good, warning]), 1);
    }
}
