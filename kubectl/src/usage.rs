//! What a mistake on the command line reads like: one line in kubectl's words, and what to write instead where that is known.

use std::error::Error as _;
use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::terminal;

/// The text for standard error. `arguments` are those after the program's name.
pub(crate) fn mistake(command: &Command, error: &Error, arguments: &[OsString]) -> String {
    let text = if let Some(advice) = advice(command, error, arguments) {
        format!("error: {advice}")
    } else {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        format!("error: {}\nSee '{name} --help' for usage.", words(error))
    };
    terminal::harmless_lines(&text).into_owned()
}

fn advice(command: &Command, error: &Error, arguments: &[OsString]) -> Option<String> {
    if !matches!(
        error.kind(),
        ErrorKind::UnknownArgument | ErrorKind::InvalidValue | ErrorKind::WrongNumberOfValues
    ) {
        return None;
    }
    let arguments = arguments.iter().map(|it| it.to_string_lossy());
    let words: Vec<_> = arguments.take_while(|word| word != "--").collect();
    // Only for what looks like a flag and is none.
    for (index, word) in words.iter().enumerate() {
        let Some(number) = word.strip_prefix('-') else {
            continue;
        };
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let before = index.checked_sub(1).and_then(|index| words.get(index));
        return Some(match before {
            Some(flag) if flag.starts_with("--") => {
                format!("{flag} takes no negative value: write one such as {number}")
            }
            _ if command.get_name() == "kubectl-at" => format!(
                "{word:?} reads as a flag: write a blank after the minus, as in \"sat - 30 minutes\""
            ),
            _ => return None,
        });
    }
    // A flag that a user may expect, and what to write instead.
    match (command.get_name(), text(error, ContextKind::InvalidArg)?) {
        ("kubectl-atrm", "--all") => Some(
            "kubectl atrm has no --all: name the Ats, such as kubectl atrm $(kubectl atq -o name)"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The mistake in kubectl's words where it has some.
fn words(error: &Error) -> String {
    let (flag, value) = (
        text(error, ContextKind::InvalidArg),
        text(error, ContextKind::InvalidValue),
    );
    match (error.kind(), flag, value) {
        (ErrorKind::UnknownArgument, Some(flag), _) if flag.starts_with('-') => {
            let close = text(error, ContextKind::SuggestedArg);
            let close = close.map(|close| format!("; did you mean {close}?"));
            let close = close.unwrap_or_default();
            match flag.strip_prefix('-') {
                Some(short) if !short.starts_with('-') => {
                    format!("unknown shorthand flag: '{short}' in {flag}{close}")
                }
                _ => format!("unknown flag: {flag}{close}"),
            }
        }
        (ErrorKind::InvalidValue, Some(flag), None | Some("")) => match name(flag) {
            "--dry-run" => "write --dry-run=client or --dry-run=server".to_owned(),
            flag => format!("flag needs an argument: {flag}"),
        },
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, Some(flag), Some(value)) => {
            let reason = error.source().map(ToString::to_string).or_else(|| {
                let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue) else {
                    return None;
                };
                Some(format!("write {}", valid.join(" or ")))
            });
            let reason = reason.map(|reason| format!(": {reason}"));
            let reason = reason.unwrap_or_default();
            let flag = match name(flag) {
                name if name.starts_with('-') => format!("{name:?} flag"),
                name => name.to_owned(),
            };
            format!("invalid argument {value:?} for {flag}{reason}")
        }
        // clap's own words up to the usage, in one line.
        _ => {
            let all = error.to_string();
            let first = all.split("\n\n").next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            first.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    }
}

/// The name of an argument, without its value: `--output` of `--output <FORMAT>`, `--follow` of `--follow[=<FOLLOW>]`.
fn name(argument: &str) -> &str {
    argument.split([' ', '[']).next().unwrap_or(argument)
}

fn text(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::PROGRAMS;

    fn said(words: &str) -> String {
        let (program, words) = words.split_once(' ').unwrap_or((words, ""));
        let program = PROGRAMS.iter().find(|it| it.name == program).unwrap();
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        let all = std::iter::once(OsString::from(program.name)).chain(words.iter().cloned());
        let parser = program.parser(&words);
        let error = parser.try_get_matches_from(all).unwrap_err();
        mistake(&(program.command)(), &error, &words)
    }

    #[test]
    fn a_number_after_a_minus_is_no_flag() {
        for (words, advice) in [
            (
                "kubectl-at sat -30min -- ls",
                "error: \"-30min\" reads as a flag: write a blank after the minus, as in \"sat - 30 minutes\"",
            ),
            (
                "kubectl-at noon --deadline -5s -- ls",
                "error: --deadline takes no negative value: write one such as 5s",
            ),
            (
                "kubectl-atrm --all",
                "error: kubectl atrm has no --all: name the Ats, such as kubectl atrm $(kubectl atq -o name)",
            ),
        ] {
            assert_eq!(said(words), advice, "{words}");
        }
    }

    #[test]
    fn mistakes_are_in_kubectls_words() {
        for (words, error) in [
            ("kubectl-atq --folow", "unknown flag: --folow"),
            (
                "kubectl-at --folow",
                "unknown flag: --folow; did you mean --follow?",
            ),
            ("kubectl-atq -z", "unknown shorthand flag: 'z' in -z"),
            ("kubectl-atq -o", "flag needs an argument: --output"),
            (
                "kubectl-at noon --dry-run",
                "write --dry-run=client or --dry-run=server",
            ),
            (
                "kubectl-atq -o xml",
                "invalid argument \"xml\" for \"--output\" flag: write wide or name or json or yaml",
            ),
            (
                "kubectl-mydaemonset history x --revision=x",
                "invalid argument \"x\" for \"--revision\" flag: write a whole number, 0 or more",
            ),
            (
                "kubectl-at noon --follow=maybe",
                "invalid argument \"maybe\" for \"--follow\" flag: write true or false",
            ),
            (
                "kubectl-at noon --ttl 90 -- ls",
                "invalid argument \"90\" for \"--ttl\" flag: it has no unit: write 90s or 90m",
            ),
            (
                "kubectl-mydaemonset partition x 1.5",
                "invalid argument \"1.5\" for <N>: write a whole number, 0 or more",
            ),
            (
                "kubectl-atrm",
                "the following required arguments were not provided: <NAME>...",
            ),
        ] {
            let program = words.split(' ').next().unwrap().replacen('-', " ", 1);
            let expected = format!("error: {error}\nSee '{program} --help' for usage.");
            assert_eq!(said(words), expected, "{words}");
        }
    }
}
