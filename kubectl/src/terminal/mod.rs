//! The terminal: text of others made harmless, tables, colour.

mod harmless;
mod style;
mod table;

pub use harmless::{harmless, harmless_lines};
pub use style::{Colour, Style};
pub use table::Table;

/// The columns of the terminal that standard output goes to; none if it goes elsewhere.
pub fn width() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0))
}
