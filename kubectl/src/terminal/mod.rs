//! The terminal: text of others made harmless, tables, colour.

mod harmless;
mod status_line;
mod style;
mod table;

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write as _};

pub use harmless::{harmless, harmless_lines, harmless_log};
pub use status_line::StatusLine;
pub use style::{Colour, Style};
pub use table::Table;
pub(crate) use table::cut;

/// Whether the stream goes to a terminal that obeys escape sequences: cursor movements and colours. Without any that is
/// known by name, or in an editor's buffer (`dumb`), they would be shown as text.
pub fn obeys_sequences(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && is_able(std::env::var_os("TERM").as_deref())
}

fn is_able(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Prints a line beside the output, on standard error. It is made harmless.
///
/// # Errors
/// Those of standard error.
pub fn note(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{}", harmless(text))
}

/// Asks a question on the terminal; anything but yes means no.
///
/// # Errors
/// When the terminal cannot be written or read.
pub fn ask(question: &str) -> io::Result<bool> {
    let mut err = io::stderr();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    let answer = answer.trim().to_ascii_lowercase();
    Ok(matches!(answer.as_str(), "y" | "yes"))
}

/// The columns of the terminal that standard output goes to; none if it goes elsewhere.
pub fn width() -> Option<usize> {
    terminal_columns(std::io::stdout())
}

fn terminal_columns(stream: impl std::os::fd::AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0))
}

/// The columns and lines of the terminal that standard output goes to; none if it goes elsewhere.
pub fn size() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some((usize::from(width.0), usize::from(height.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_gets_no_sequences_and_neither_does_an_unknown_one() {
        for (term, able) in [
            (Some("xterm-256color"), true),
            (Some("linux"), true),
            (Some("dumb"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(is_able(term.map(OsStr::new)), able, "{term:?}");
        }
    }
}
