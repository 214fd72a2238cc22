//! Every block of commands in README.md and docs/ is run by a test, or says why not, behind its language: `run-by:NAME`, a
//! test or a file that has the command, or `not-run:REASON`. What a program prints is a block of `text`.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use my_operator_harness::markdown::{CodeBlock, code_blocks};

use crate::checklist::tests;
use crate::checkout::{checkout, files, pages};
use crate::make;

/// Pages that a test reads to type what is behind `$`, each with that test.
const TYPED: [(&str, &str); 4] = [
    ("docs/admit.md", "the_page_shows_the_actual_output"),
    ("docs/at/tutorial.md", "the_tutorial_of_at_is_what_happens"),
    (
        "docs/mydaemonset/README.md",
        "the_pages_of_mydaemonset_are_what_happens",
    ),
    (
        "docs/mydaemonset/tutorial.md",
        "the_pages_of_mydaemonset_are_what_happens",
    ),
];

/// Why no test runs a block.
#[rustfmt::skip]
const REASONS: [&str; 6] = [
    // The reader takes the lines for what there is.
    "choice",
    // It takes hours, and is run by hand.
    "hours",
    // The reader puts names in.
    "names",
    // It calls a program that the tests do not have.
    "program",
    // It needs a registry, or what builds images for one.
    "registry",
    // It needs the files of a release.
    "release",
];

/// Whether a file has the first command of a block, whatever variables the page gives it.
fn is_called_by(path: &str, block: &CodeBlock<'_>) -> bool {
    let text = fs::read_to_string(checkout().join(path));
    text.is_ok_and(|text| is_called_in(&text, block))
}

fn is_called_in(text: &str, block: &CodeBlock<'_>) -> bool {
    let command = block.lines.first().copied().unwrap_or_default();
    let words = command.split(' ').filter(|word| !word.contains('='));
    let words = words.collect::<Vec<_>>().join(" ");
    let mut code = text.lines().filter(|line| !line.trim().starts_with('#'));
    !words.is_empty() && code.any(|line| line.contains(&words))
}

/// What is wrong with the mark of a block.
fn fault(
    block: &CodeBlock<'_>,
    page: &str,
    tests: &BTreeMap<String, String>,
) -> Option<&'static str> {
    let has_commands = ["", "bash", "console", "sh"].contains(&block.language());
    let is_typed = TYPED.iter().any(|(typed, _)| *typed == page)
        && block.lines.iter().any(|line| line.starts_with("$ "));
    if is_typed || !has_commands {
        return block.mark().map(|_| "needs no mark");
    }
    match block.mark().and_then(|mark| mark.split_once(':')) {
        Some(("run-by", path)) if path.contains('/') => {
            (!is_called_by(path, block)).then_some("is not called by that file")
        }
        Some(("run-by", test)) => (!tests.contains_key(test)).then_some("names no test"),
        Some(("not-run", reason)) => (!REASONS.contains(&reason)).then_some("has no known reason"),
        _ => Some("needs run-by:TEST or not-run:REASON"),
    }
}

#[test]
fn every_block_of_commands_is_run_by_a_test_or_says_why_not() {
    let tests = tests();
    let mut pages = files(&checkout().join("docs"), "md");
    pages.push(checkout().join("README.md"));
    let (mut marks, mut wrong) = (Vec::new(), Vec::new());
    for path in pages {
        let page = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(checkout()).unwrap().to_str().unwrap();
        for block in code_blocks(&page) {
            let fault = fault(&block, name, &tests);
            wrong.extend(fault.map(|fault| format!("{name}: {:?} {fault}", block.lines.first())));
            marks.extend(block.mark().map(str::to_owned));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let count = |reason: &str| {
        let mark = format!("not-run:{reason}");
        marks.iter().filter(|it| **it == mark).count()
    };
    for reason in REASONS {
        assert!(count(reason) > 0, "{reason} is not used");
    }
}

#[test]
fn the_tests_that_type_pages_name_them() {
    let tests = tests();
    for (page, test) in TYPED {
        assert!(tests[test].contains(page), "{test} does not read {page}");
    }
}

#[test]
fn a_missing_unknown_or_needless_mark_is_found() {
    let tests = BTreeMap::from([("a_test".to_owned(), String::new())]);
    let found = |page: &str, info: &str| {
        let text = format!("a\n- b\n  ```{info}\n  $ make unit T=x\n  ```\n");
        let all = code_blocks(&text);
        assert_eq!(all.len(), 1);
        fault(&all[0], page, &tests)
    };
    for info in ["sh run-by:a_test", "sh not-run:names", "text", "yaml"] {
        assert_eq!(found("x.md", info), None, "{info}");
    }
    for info in [
        "",
        "sh",
        "console",
        "sh not-run",
        "sh run-by:other",
        "sh not-run:lazy",
        "sh run-by:src/main.rs",
        "text not-run:names",
    ] {
        assert!(found("x.md", info).is_some(), "{info}");
    }
    assert_eq!(found("docs/admit.md", "sh"), None);
    assert!(found("docs/admit.md", "sh not-run:names").is_some());
}

#[test]
fn a_file_that_only_mentions_a_command_does_not_run_it() {
    let is_called = |command: &'static str, text: &str| {
        let block = CodeBlock {
            lines: vec![command],
            ..CodeBlock::default()
        };
        is_called_in(text, &block)
    };
    assert!(is_called(
        "make run LOCAL=1",
        "# As CI.\n  ./hack/bare make run >log\n"
    ));
    assert!(!is_called(
        "make run",
        "set -e\n  # `make run` is not run\n"
    ));
    assert!(!is_called("LOCAL=1", "make run\n"));
}

/// What `my-operator COMMAND --help` prints.
fn help(command: &str) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_my-operator"));
    let output = program.args([command, "--help"]).output().unwrap();
    assert!(output.status.success(), "my-operator {command}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a text has between characters that names of flags do not have.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_lowercase() && c != '-')
}

#[test]
fn pages_give_my_operator_flags_that_it_has() {
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for line in make::commands(&page) {
            let line = line.trim_start_matches("$ ");
            let Some((command, rest)) = line
                .strip_prefix("my-operator ")
                .and_then(|rest| rest.split_once(' '))
            else {
                continue;
            };
            let help = helps
                .entry(command.to_owned())
                .or_insert_with(|| help(command));
            for flag in words(rest).filter(|word| word.starts_with("--")) {
                checked += 1;
                if words(help).all(|word| word != flag) {
                    wrong.push(format!("{}: {line}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 8, "{checked}");
}
