//! The command as a text: from a file or from standard input, where a terminal gets a prompt.

use std::io::{BufRead, Read, Write};
use std::path::Path;

use crate::connection::{Failure, root};

/// No command may be longer: the webhook rejects it.
pub(super) const MAX_LEN: usize = 32_768;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// What is likely not meant as it is written. Nothing is changed: a document within the text may need it.
pub(super) fn warning(text: &str) -> Option<&'static str> {
    let has_crlf = text.contains("\r\n") || text.ends_with('\r');
    has_crlf.then_some(
        "Warning: the lines of the command end with CRLF, and a shell takes the CR for a part of the last word: tr -d '\\r' removes it",
    )
}

/// Reads a file; `-` is standard input.
pub(super) fn file(path: &Path) -> Result<String, Failure> {
    let failed =
        |error: std::io::Error| format!("cannot read {}: {}", path.display(), root(&error));
    if path == Path::new("-") {
        return all(std::io::stdin().lock(), "standard input");
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    all(file, &path.display().to_string())
}

/// Reads everything, as far as a command may go. It is an error if there is no command.
pub(super) fn all(input: impl Read, what: &str) -> Result<String, Failure> {
    present(optional(input, what)?, what)
}

/// The same, or an empty text if there is no command.
pub(super) fn optional(input: impl Read, what: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_LEN).unwrap_or(u64::MAX).saturating_add(2);
    let read = input.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot read {what}: {}", root(&error)))?;
    text(bytes, what)
}

/// Asks for the lines one after the other, as at(1) does, until ^D.
pub(super) fn ask(mut input: impl BufRead, prompt: &mut dyn Write) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    while bytes.len() <= MAX_LEN {
        write!(prompt, "at> ")?;
        prompt.flush()?;
        let left = u64::try_from(MAX_LEN + 2 - bytes.len()).unwrap_or(0);
        let read = input.by_ref().take(left).read_until(b'\n', &mut bytes);
        let read = read.map_err(|error| format!("cannot read the terminal: {}", root(&error)))?;
        if read == 0 {
            writeln!(prompt, "<EOT>")?;
            break;
        }
    }
    present(text(bytes, "the terminal")?, "the terminal")
}

/// The text of these bytes, empty if it is blank.
fn text(bytes: Vec<u8>, what: &str) -> Result<String, Failure> {
    let mut text =
        String::from_utf8(bytes).map_err(|_| format!("the command of {what} is not UTF-8"))?;
    // Editors write it, and a shell would take it for a part of the first word.
    if text.starts_with(BYTE_ORDER_MARK) {
        text.remove(0);
    }
    if text.contains('\0') {
        let text = format!("the command of {what} has a NUL byte, which no shell reads: give text");
        return Err(text.into());
    }
    if text.ends_with('\n') {
        text.pop();
    }
    if text.len() > MAX_LEN {
        let text =
            format!("the command of {what} is longer than {MAX_LEN} bytes: put it into an image");
        return Err(text.into());
    }
    if text.trim().is_empty() {
        text.clear();
    }
    Ok(text)
}

fn present(text: String, what: &str) -> Result<String, Failure> {
    if text.is_empty() {
        let text = format!("{what} has no command: give one after --, with -f FILE, or there");
        return Err(text.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_terminal_is_asked_line_by_line_until_its_end() {
        let mut shown = Vec::new();
        let text = ask(&b"echo a\necho b\n"[..], &mut shown).unwrap();
        assert_eq!(text, "echo a\necho b");
        assert_eq!(String::from_utf8(shown).unwrap(), "at> at> at> <EOT>\n");
    }

    #[test]
    fn what_editors_of_windows_add_is_dropped_or_told() {
        let text = all(&b"\xef\xbb\xbfecho a\r\n"[..], "f").unwrap();
        assert_eq!(text, "echo a\r");
        assert!(warning(&text).is_some());
        assert!(warning("echo a\r\necho b").unwrap().contains("CRLF"));
        assert_eq!(warning("printf 'a\r'\necho b"), None);
    }

    #[test]
    fn nothing_and_too_much_are_mistakes() {
        let long = "x".repeat(MAX_LEN);
        assert_eq!(all(format!("{long}\n").as_bytes(), "f").unwrap(), long);
        for (bytes, part) in [
            (&b" \n"[..], "has no command"),
            (&b"\xff"[..], "not UTF-8"),
            (&b"echo a\0b\n"[..], "has a NUL byte"),
            (&b"\xef\xbb\xbf"[..], "has no command"),
            (&vec![b'x'; 1 << 20][..], "longer than 32768"),
        ] {
            let asked = ask(bytes, &mut Vec::new()).unwrap_err().to_string();
            assert!(asked.contains(part), "{asked}");
            let read = all(bytes, "f").unwrap_err().to_string();
            assert!(read.contains(part), "{read}");
            let blank = optional(bytes, "f").is_ok_and(|text| text.is_empty());
            assert_eq!(blank, part == "has no command", "{read}");
        }
    }
}
