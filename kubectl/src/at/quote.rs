//! Words of a command line as one text for a shell, which gives the program exactly these words again.

/// The text.
pub(super) fn words(words: &[String]) -> String {
    let quoted = words.iter().map(|text| word(text));
    quoted.collect::<Vec<_>>().join(" ")
}

/// The text by which a shell runs the program that the first word names.
pub(super) fn command(given: &[String]) -> String {
    let before = given.first().map(|program| prefix(program));
    format!("{}{}", before.unwrap_or_default(), words(given))
}

/// What stands before the name of a program, so that no keyword, builtin or function of the shell runs in its place:
/// `exec`, which looks for programs only. A name with a slash needs none. Neither does one with a minus first, which
/// would be an option of `exec`.
pub(super) fn prefix(program: &str) -> &'static str {
    if program.contains('/') || program.starts_with('-') {
        ""
    } else {
        "exec "
    }
}

/// One word. Within single quotes a shell changes nothing; a single quote itself stands outside of them.
pub(crate) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Whether the one word after `--` was rather meant as the text of a command: it can hardly be the name of a program.
pub(super) fn is_text(words: &[String]) -> bool {
    matches!(words, [only] if only.contains(|c: char| c.is_whitespace() || "|&;<>$".contains(c)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn plain_words_stay_readable() {
        let text = words(&owned(&[
            "./report", "--to=a", "-n", "5", "x y", "it's", "",
        ]));
        assert_eq!(text, r"./report '--to=a' -n 5 'x y' 'it'\''s' ''");
    }

    #[test]
    fn a_name_without_a_slash_gets_exec() {
        for (given, expected) in [
            (&["./report", "--all"][..], "./report --all"),
            (&["/bin/echo", "a b"], "/bin/echo 'a b'"),
            (&["ls"], "exec ls"),
            (&["time", "-f", "%e", "./x"], "exec time -f %e ./x"),
            (&["a=b", "x"], "exec 'a=b' x"),
            (&["-x", "y"], "-x y"),
        ] {
            assert_eq!(command(&owned(given)), expected);
        }
    }

    /// No machine has programs of these names.
    #[test]
    fn no_keyword_or_builtin_of_a_shell_runs_in_place_of_a_program() {
        for shell in ["sh", "bash"] {
            for given in [
                &["eval", "echo ran"][..],
                &["if", "true"],
                &["exit", "3"],
                &[":"],
                &["{"],
            ] {
                let output = Command::new(shell)
                    .args(["-c", &command(&owned(given))])
                    .output()
                    .unwrap();
                let printed = String::from_utf8_lossy(&output.stdout);
                let ended = (output.status.code(), printed.as_ref());
                // A shell's exit code where it finds no program.
                assert_eq!(ended, (Some(127), ""), "{shell} {given:?}");
            }
        }
    }

    #[test]
    fn a_shell_passes_on_every_word_exactly() {
        let nasty = owned(&[
            "",
            " ",
            "a b",
            "it's",
            "\"",
            "\\",
            "\\n",
            "\n",
            "a\nb\n",
            "$HOME",
            "$$",
            "`id`",
            "$(id)",
            "*",
            "?",
            "[a]",
            "~",
            "~root",
            "{a,b}",
            "!",
            "!!",
            "#",
            "a=b",
            "-n",
            "--",
            "&",
            "|",
            ";",
            "<",
            ">",
            "(",
            ")",
            "日報",
            "\t",
            "\u{1b}[2J",
            "^",
            "%",
            "''",
            "'",
        ]);
        for shell in ["sh", "bash"] {
            let mut command = owned(&["printf", "%s\\0"]);
            command.extend(nasty.iter().cloned());
            let output = Command::new(shell)
                .args(["-c", &super::command(&command)])
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let got: Vec<&str> = text.split_terminator('\0').collect();
            assert_eq!(got, nasty, "{shell}");
        }
    }

    #[test]
    fn one_word_with_blanks_is_rather_a_text() {
        assert!(is_text(&owned(&["echo a | wc"])));
        assert!(!is_text(&owned(&["./report"])));
        assert!(!is_text(&owned(&["echo", "a b"])));
    }
}
