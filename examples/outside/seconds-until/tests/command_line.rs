//! What the command prints.

use std::process::{Command, Output};

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seconds-until"));
    command.args(words).output().unwrap()
}

#[test]
fn a_time_is_so_many_seconds_away() {
    let output = run(&["now", "+", "2", "minutes"]);
    assert!(output.status.success(), "{output:?}");
    let seconds = String::from_utf8(output.stdout).unwrap();
    let seconds: u32 = seconds.trim_end().parse().unwrap();
    // From the start of the minute on.
    assert!((60..=120).contains(&seconds), "{seconds}");
}

#[test]
fn a_misspelt_word_is_an_error_of_one_line() {
    let output = run(&["16:00", "tommorow"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("did you mean \"tomorrow\"?"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}
