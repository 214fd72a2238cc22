//! One line that is rewritten in place: a countdown, a reason.

use std::io::{self, Write};

use super::table::cut;
use super::{harmless, obeys_sequences, terminal_columns};

/// The line, on standard error. Where that is no terminal on which the cursor can be moved, each different text is a line of
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
            let rewritten = format!("\r\x1b[K{}", cut(&line, width));
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
