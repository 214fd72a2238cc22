//! The Go programs of `tests/oracle` that are asked live.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What that program answers to each of the questions, with that environment besides ours.
pub fn ask<A: DeserializeOwned>(
    program: &str,
    environment: &[(&str, &Path)],
    questions: impl ExactSizeIterator<Item = Value>,
) -> Vec<A> {
    let count = questions.len();
    // A file, because who writes to a pipe and reads from another may wait for himself.
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut lines = BufWriter::new(&file);
    for question in questions {
        writeln!(lines, "{question}").unwrap();
    }
    lines.flush().unwrap();
    drop(lines);
    let output = Command::new("go")
        .args(["run", "-trimpath", &format!("./{program}")])
        .current_dir(super::checkout().join("tests/oracle"))
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", "-mod=readonly"),
            ("GOWORK", "off"),
        ])
        .envs(environment.iter().copied())
        .stdin(File::open(file.path()).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .expect("cannot start go");
    assert!(output.status.success(), "{}", output.status);
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let answers: Vec<A> = answers.map(Result::unwrap).collect();
    assert_eq!(answers.len(), count);
    answers
}
