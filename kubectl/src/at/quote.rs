//! Words of a command line as one text for a shell, which gives the program exactly these words again.

/// Words that a shell takes for its own at the start of a command (Bash Reference Manual, 3.2.1). `time` may stay: it runs
/// the rest as it stands.
const RESERVED: &[&str] = &[
    "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "until", "while",
];

/// The text.
pub(super) fn words(words: &[String]) -> String {
    let quoted = words.iter().enumerate();
    let quoted = quoted.map(|(index, text)| word(text, index == 0));
    quoted.collect::<Vec<_>>().join(" ")
}

/// One word, perhaps the first of a command. Within single quotes a shell changes nothing; a single quote itself stands
/// outside of them.
pub(super) fn word(text: &str, is_first: bool) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:@%+".contains(c);
    let is_reserved = is_first && RESERVED.contains(&text);
    if !text.is_empty() && !is_reserved && text.chars().all(plain) {
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
        assert_eq!(words(&owned(&["if", "if"])), "'if' if");
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
                .args(["-c", &words(&command)])
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
