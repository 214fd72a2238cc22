//! A line of a frame: pieces of text, each in a style. Text of the server is made harmless when it is added, and the line
//! is cut to the width before it is coloured.

use unicode_width::UnicodeWidthStr as _;

use crate::terminal::{Colour, Style, cut, harmless};

/// A line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pieces: Vec<(String, Option<Style>)>,
}

impl Line {
    pub(crate) fn new(text: &str) -> Self {
        Self::default().plain(text)
    }

    /// Adds text without a style.
    pub(crate) fn plain(self, text: &str) -> Self {
        self.styled(text, None)
    }

    /// Adds text.
    pub(crate) fn styled(mut self, text: &str, style: Option<Style>) -> Self {
        self.pieces.push((harmless(text).into_owned(), style));
        self
    }

    /// Adds text and blanks up to a width.
    pub(crate) fn padded(self, text: &str, width: usize) -> Self {
        let text = fit(&harmless(text), width);
        let blanks = width.saturating_sub(text.width());
        self.plain(&text).plain(&" ".repeat(blanks))
    }

    /// The line, cut to the width if one is given.
    pub(crate) fn render(&self, width: Option<usize>, colour: Colour) -> String {
        let mut left = width.unwrap_or(usize::MAX);
        let mut out = String::new();
        let last = self
            .pieces
            .iter()
            .rposition(|(text, _)| !text.trim_end().is_empty());
        let pieces = self.pieces.iter().take(last.map_or(0, |last| last + 1));
        for (text, style) in pieces {
            let is_cut = text.width() > left;
            let text = fit(text, left);
            left -= text.width().min(left);
            match style {
                Some(style) => out.push_str(&colour.paint(*style, &text)),
                None => out.push_str(&text),
            }
            if is_cut {
                break;
            }
        }
        let end = out.trim_end().len();
        out.truncate(end);
        out
    }
}

/// As much of a text as fits, with a mark where it is cut.
pub(crate) fn fit(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let kept = width.checked_sub(1).map(|width| cut(text, width));
    kept.map(|kept| format!("{kept}~")).unwrap_or_default()
}

/// A text in lines of at most that width, broken at blanks where there are any, and at most `max` of them.
pub(crate) fn wrap(text: &str, width: usize, max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in harmless(text).split(' ') {
        let needed = word.width();
        let Some(line) = lines.last_mut() else {
            continue;
        };
        if line.is_empty() {
            line.push_str(word);
        } else if line.width() + 1 + needed <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    if lines.len() > max {
        let rest = lines.split_off(max.saturating_sub(1)).join(" ");
        lines.push(rest);
    }
    lines.iter().map(|line| fit(line, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_to_the_width_by_columns() {
        let line = Line::new("ab").plain("日報").plain("cd");
        assert_eq!(line.render(Some(8), Colour::OFF), "ab日報cd");
        assert_eq!(line.render(Some(7), Colour::OFF), "ab日報~");
        assert_eq!(line.render(Some(4), Colour::OFF), "ab~");
        assert_eq!(line.render(Some(0), Colour::OFF), "");
        assert_eq!(line.render(None, Colour::OFF), "ab日報cd");
    }

    #[test]
    fn hostile_text_does_nothing() {
        let line = Line::new("a\x1b[2J\nb").padded("\u{202e}x", 12).plain("|");
        assert_eq!(line.render(None, Colour::OFF), "a^[[2J\\nb\\u{202e}x   |");
    }

    #[test]
    fn a_text_is_wrapped_at_blanks_and_limited() {
        assert_eq!(wrap("one two three", 7, 3), ["one two", "three"]);
        assert_eq!(wrap("one two three four", 7, 2), ["one two", "three ~"]);
        assert_eq!(wrap("abcdefghij x", 4, 3), ["abc~", "x"]);
        assert_eq!(wrap("", 4, 3), [""]);
    }
}
