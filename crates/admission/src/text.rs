//! Text of others, for messages: in one line, of limited length, and without what makes a terminal hide, move or
//! reverse what it shows.

/// Whether a terminal does something on this character, or shows nothing for it.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Soft hyphen, combining grapheme joiner, Arabic letter mark.
            '\u{ad}' | '\u{34f}' | '\u{61c}'
            // Zero width; marks, embeddings and overrides of direction; separators of lines and paragraphs.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            // Word joiner, invisible operators, isolates of direction, deprecated formats.
            | '\u{2060}'..='\u{206f}'
            // Hangul fillers, byte order mark, unassigned, annotations.
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
            // Inherent vowels of Khmer, selectors of Mongolian, empty Braille.
            | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
            // Controls of shorthand and of music.
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            // Tags: invisible copies of ASCII.
            | '\u{e0000}'..='\u{e0fff}')
}

/// The text with every harmful character escaped.
pub fn clean(text: &str) -> String {
    escaped(text, is_harmful)
}

/// The text in quotes. Those within it, backslashes, odd blanks and the selectors that make a character an emoji are
/// escaped too.
pub fn quoted(text: &str) -> String {
    let is_odd = |c: char| c.is_whitespace() && c != ' ' || matches!(c, '\u{fe00}'..='\u{fe0f}');
    let text = escaped(text, |c| {
        is_harmful(c) || is_odd(c) || matches!(c, '"' | '\\')
    });
    format!("\"{text}\"")
}

/// The text with such characters as Rust writes them: `\0`, `\n`, `\u{1b}`.
fn escaped(text: &str, such: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let escape = c.escape_debug();
        match such(c) {
            true if escape.len() > 1 => out.extend(escape),
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    out
}

/// The text with every harmful character escaped, truncated to `most` characters after that.
pub fn line(text: &str, most: usize) -> String {
    // Cut first: escaping megabytes to show a few characters would be a waste.
    let cleaned = clean(&cut(text, most));
    if cleaned.chars().nth(most).is_none() {
        cleaned
    } else {
        cut(&cleaned, most - "...".len())
    }
}

/// The first `most` characters, followed by `...` if the text is longer.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_any_language_stays_as_it_is() {
        for text in ["", "büro – отчёт 日報 🎉", "हिन्दी", "a\u{a0}b", "\"a\\b'"]
        {
            assert_eq!(clean(text), text);
        }
    }

    #[test]
    fn a_quoted_text_shows_what_is_odd_about_it() {
        assert_eq!(quoted("a\u{a0}b\tc\"d\\"), r#""a\u{a0}b\tc\"d\\""#);
        assert_eq!(quoted("büro 日報 हि"), "\"büro 日報 हि\"");
        assert_eq!(quoted("web\u{fe0f}"), r#""web\u{fe0f}""#);
        for c in "\u{ad}\u{34f}\u{17b4}\u{180b}\u{180e}\u{200b}\u{202e}\u{2060}\u{2800}\u{3164}\u{feff}\u{fff9}\u{1d173}\u{e0041}".chars() {
            assert_eq!(clean(&format!("a{c}")), format!("a{}", c.escape_unicode()));
        }
    }

    #[test]
    fn no_character_with_a_function_is_left() {
        for c in '\0'..=char::MAX {
            let text = format!("{c}x");
            for shown in [clean(&text), quoted(&text), line(&text, 20)] {
                assert!(!shown.contains(is_harmful), "{c:?}");
            }
        }
    }
}
