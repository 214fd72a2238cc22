//! One line that is rewritten in place: a countdown, a reason.

use std::borrow::Cow;
use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::table::cut;
use super::{harmless, obeys_sequences, terminal_columns};

/// The line, on standard error. Unless it is a terminal on which the cursor can be moved, each different text is a line of
/// its own.
pub struct StatusLine {
    /// Whether the line is rewritten in place.
    live: bool,
    shown: String,
}

impl StatusLine {
    /// Without a text.
    pub fn new() -> Self {
        Self {
            live: obeys_sequences(&io::stderr()),
            shown: String::new(),
        }
    }

    /// Whether the line is rewritten in place as time passes.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Shows the text. `lasting` is what of it does not change by itself as time passes.
    ///
    /// # Errors
    /// Those of standard error.
    pub fn show(&mut self, lasting: &str, passing: &str) -> io::Result<()> {
        let mut out = io::stderr().lock();
        if !self.live {
            if self.shown != lasting {
                writeln!(out, "{}{}", harmless(lasting), harmless(passing))?;
                lasting.clone_into(&mut self.shown);
            }
            return Ok(());
        }
        let text = format!("{lasting}{passing}");
        if text != self.shown {
            let line = harmless(&text);
            // The last column stays free: some terminals begin a new line there.
            let width = terminal_columns(io::stderr())
                .unwrap_or(80)
                .saturating_sub(1);
            // In one write: standard error has no buffer, and a line that is erased first flickers.
            let rewritten = format!("\r\x1b[K{}", fit(&line, width));
            out.write_all(rewritten.as_bytes())?;
            out.flush()?;
            self.shown = text;
        }
        Ok(())
    }

    /// Removes the line, for other output.
    ///
    /// # Errors
    /// Those of standard error.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.live && !self.shown.is_empty() {
            self.shown.clear();
            let mut out = io::stderr().lock();
            write!(out, "\r\x1b[K")?;
            out.flush()?;
        }
        Ok(())
    }
}

impl Default for StatusLine {
    fn default() -> Self {
        Self::new()
    }
}

/// The text, without its middle if it is too wide: a reason is at its start, and the cause of a failure at its end.
fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return Cow::Borrowed(text);
    }
    let Some(kept) = width.checked_sub(1) else {
        return Cow::Borrowed("");
    };
    let start = cut(text, kept.div_ceil(2));
    let mut left = kept - start.width();
    let mut end = text.len();
    for (index, c) in text.char_indices().rev() {
        let needed = c.width().unwrap_or(0);
        if needed > left {
            break;
        }
        (left, end) = (left - needed, index);
    }
    let end = text.get(end..).unwrap_or_default();
    Cow::Owned(format!("{start}…{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_wide_loses_its_middle_and_says_so() {
        let line = "PodRefused: at/x waits: serviceaccount \"nosuch\" not found";
        for (text, width, shown) in [
            (line, 80, line),
            (line, 40, "PodRefused: at/x wai… \"nosuch\" not found"),
            ("日報日報", 8, "日報日報"),
            ("日報日報", 7, "日…日報"),
            ("日報日報", 2, "…"),
            ("abcd", 3, "a…d"),
            ("abcd", 1, "…"),
            ("abcd", 0, ""),
        ] {
            assert_eq!(fit(text, width), shown, "{text} {width}");
            assert!(fit(text, width).width() <= width, "{text} {width}");
        }
    }
}
