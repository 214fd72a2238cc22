//! The terminal: text of others made harmless, tables, colour.

mod harmless;
mod status_line;
mod style;
mod table;

pub use harmless::{harmless, harmless_lines, harmless_log};
pub use status_line::StatusLine;
pub use style::{Colour, Style};
pub use table::Table;

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
