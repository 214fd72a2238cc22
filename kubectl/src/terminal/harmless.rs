//! Text of the server is hostile: a user who may write a status or a log can write escape sequences that move the cursor,
//! hide lines or answer for the user, and marks that reverse the direction of writing.

use std::borrow::Cow;

use admission_rules::text::is_harmful;

/// One line: no character of the result does anything but appear. Newlines and tabs become `\n` and `\t`; other control
/// characters are shown as terminals echo them (`^[` is escape), and invisible ones by their number.
pub fn harmless(text: &str) -> Cow<'_, str> {
    replaced(text, &[])
}

/// The same for a text of several lines: newlines and tabs stay.
pub fn harmless_lines(text: &str) -> Cow<'_, str> {
    replaced(text, &['\n', '\t'])
}

/// The same for a line of a log: colours stay too (`ESC [ ... m`), and a lone carriage return begins a new line, so that
/// nothing that was shown is overwritten. The text must not end within an escape sequence. Colours end with it: one that
/// hides text (`ESC [ 8 m`) would hide what this program says next.
pub fn harmless_log(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(start) = rest.find("\x1b[") {
        let (before, sequence) = rest.split_at(start);
        shown.push_str(&harmless_lines(before));
        let parameters = |c: char| c.is_ascii_digit() || c == ';';
        let after = sequence
            .get(2..)
            .unwrap_or_default()
            .trim_start_matches(parameters);
        let end = sequence.len() - after.len() + 1;
        match sequence.get(..end) {
            Some(colour) if after.starts_with('m') => shown.push_str(colour),
            _ => shown.push_str("^[["),
        }
        let shown_until = if after.starts_with('m') { end } else { 2 };
        rest = sequence.get(shown_until..).unwrap_or_default();
    }
    shown.push_str(&harmless_lines(rest));
    if shown.contains('\x1b') {
        shown.insert_str(shown.trim_end_matches('\n').len(), "\x1b[m");
    }
    shown
}

fn replaced<'a>(text: &'a str, keep: &[char]) -> Cow<'a, str> {
    let harms = |c: char| is_harmful(c) && !keep.contains(&c);
    if !text.contains(harms) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !harms(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            '\0'..='\x1f' => {
                shown.push('^');
                shown.push(char::from(c as u8 + 0x40));
            }
            '\x7f' => shown.push_str("^?"),
            c => shown.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_of_any_language_stays_as_it_is() {
        for text in ["", "echo YAY", "büro – отчёт 日報 🎉", "a  b"] {
            assert!(
                matches!(harmless(text), Cow::Borrowed(it) if it == text),
                "{text}"
            );
        }
    }

    #[test]
    fn escape_sequences_and_reversed_writing_are_shown() {
        assert_eq!(harmless("\x1b[2J\x1b]0;title\x07"), "^[[2J^[]0;title^G");
        assert_eq!(harmless("a\r\nb\tc\x7f"), "a\\r\\nb\\tc^?");
        assert_eq!(harmless("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(harmless("x\u{202e}gpj.exe"), "x\\u{202e}gpj.exe");
        assert_eq!(harmless_lines("one\n\ttwo\x1b[A"), "one\n\ttwo^[[A");
    }

    #[test]
    fn a_line_of_a_log_keeps_its_colours_and_nothing_else() {
        let log = "\x1b[1;31mred\x1b[0m\r\n10 %\r20 %\x1b[2Jx\x1b[5m\x1b[";
        let shown = "\x1b[1;31mred\x1b[0m\n10 %\n20 %^[[2Jx\x1b[5m^[[\x1b[m";
        assert_eq!(harmless_log(log), shown);
        assert_eq!(harmless_log("\x1b[8mhidden\n"), "\x1b[8mhidden\x1b[m\n");
    }

    #[test]
    fn no_character_at_all_reaches_the_terminal_with_a_function() {
        for c in '\0'..=char::MAX {
            let text = c.to_string();
            assert!(!harmless(&text).contains(is_harmful), "{c:?}");
        }
    }
}
