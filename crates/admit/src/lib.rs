//! `my-operator admit`: checks manifests by the webhook's rules, without a cluster.
//!
//! [`read`] reads the files, and [`yaml`] splits and parses them as kubectl does. [`object`] makes the checks of the
//! API server on the creation of an object: the [`schema`] of its kind, then the two handlers of the kind that the
//! webhook calls, too. No rule is implemented twice. [`pods`] checks pod templates as the API server will check their
//! pods. [`report`] prints the results, [`annotations`] as workflow commands of GitHub, and [`sarif`] as SARIF.
//!
//! No part of the running operator is started: no runtime, no logs, no client. CEL rules, policies of others, quotas and
//! updates are not checked. `cargo run -p my-operator-admit --example check` is a whole program with a kind of its own.

pub mod annotations;
pub mod object;
pub mod pods;
pub mod read;
pub mod report;
pub mod sarif;
pub mod schema;
pub mod yaml;

#[cfg(test)]
mod tests;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, ValueEnum};

use annotations::Inert;
use object::Rulebook;
use read::Source;
use report::{Judged, Outcome, Summary};

/// The flags of `my-operator admit`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct Flags {
    /// Files, folders (their .json, .yaml and .yml files), or - for standard input; repeatable.
    // Several behind one flag, so that `-f *.yaml` and pre-commit work.
    #[arg(short, long = "filename", value_name = "PATH", required = true, num_args = 1..)]
    pub filenames: Vec<PathBuf>,
    /// Read the folders in folders too. What is no Kubernetes object in a folder, such as values.yaml, is skipped.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// How to print what was found.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Show what defaulting adds as well.
    #[arg(long)]
    pub show_patch: bool,
    /// Leave out the schema of pods, of which a newer Kubernetes knows more fields and values.
    #[arg(long)]
    pub skip_pod_schema: bool,
    /// Name each document of a folder that was skipped because it is no Kubernetes object (with -o text).
    #[arg(short, long)]
    pub verbose: bool,
}

/// The forms of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A line for each fault.
    Text,
    /// One JSON document.
    Json,
    /// Workflow commands, which GitHub Actions shows as annotations of the lines.
    Github,
    /// One SARIF 2.1.0 document, for code scanning.
    Sarif,
}

/// Runs the command and returns the exit code. `in_workflow` says that what is printed is in the log of GitHub Actions,
/// whose runner executes commands that it finds there.
///
/// # Errors
/// When `out` or `errors` cannot be written to.
pub fn run(
    flags: &Flags,
    mut books: Vec<Rulebook>,
    now: DateTime<Utc>,
    in_workflow: bool,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> io::Result<u8> {
    if in_workflow && flags.output != Output::Github {
        let (mut out, mut errors) = (Inert(out), Inert(errors));
        return run(flags, books, now, false, &mut out, &mut errors);
    }
    if flags.skip_pod_schema {
        let all = books.into_iter();
        books = all.map(|book| book.with_pod_templates(&[])).collect();
    }
    let mut judged = Vec::new();
    for path in &flags.filenames {
        read::sources(path, flags.recursive, &mut |source| {
            judged.extend(judge(&source, &books, now));
        });
    }
    conclude(flags, judged, out, errors)
}

/// Prints what was found, as the flags want it, and returns the exit code.
///
/// # Errors
/// When `out` or `errors` cannot be written to.
pub fn conclude(
    flags: &Flags,
    mut judged: Vec<Judged>,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> io::Result<u8> {
    if !flags.show_patch {
        for one in &mut judged {
            one.patch = None;
        }
    }
    match print(flags, &judged, out, errors) {
        // The reader has closed the pipe, as `| head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        printed => printed?,
    }
    let summary = Summary::new(&judged);
    // With the others, it is an annotation.
    if summary.is_empty() && flags.output != Output::Github {
        writeln!(errors, "error: {}", report::NO_OBJECTS)?;
    }
    Ok(summary.exit_code())
}

fn print(
    flags: &Flags,
    judged: &[Judged],
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> io::Result<()> {
    match flags.output {
        Output::Text => {
            report::skipped(judged, flags.verbose, out)?;
            report::text(judged, out, errors)
        }
        Output::Json => report::json(judged, out, errors),
        Output::Github => {
            // Not each: such a line would begin with the name of a file.
            report::skipped(judged, false, out)?;
            annotations::print(judged, out)
        }
        Output::Sarif => {
            // Files are named from the folder that the command runs in.
            let root = env::current_dir().unwrap_or_default();
            sarif::print(judged, &root, out, errors)
        }
    }
}

/// Checks every document of a file.
pub fn judge(source: &Source, books: &[Rulebook], now: DateTime<Utc>) -> Vec<Judged> {
    let file = Judged {
        file: source.name.clone(),
        ..Judged::default()
    };
    let text = match &source.text {
        Ok(text) => text,
        Err(error) => {
            let error = Some(error.clone());
            return vec![Judged { error, ..file }];
        }
    };
    let mut judged = Vec::new();
    let mut number = 0;
    yaml::documents(text, &mut |document| {
        number += 1;
        let at = Judged {
            document: Some(number),
            line: Some(document.line),
            ..file.clone()
        };
        match document.content {
            Ok(node) => {
                let mut objects = object::judge(&at, &node, books, now);
                for one in &mut objects {
                    if source.is_named && one.result == Outcome::NotAnObject {
                        one.result = Outcome::Unreadable;
                    }
                }
                judged.extend(objects);
            }
            Err(unreadable) => judged.push(Judged {
                column: unreadable.column,
                error: Some(unreadable.message),
                ..at
            }),
        }
    });
    judged
}
