//! Colour, for those who want it.

use std::io::IsTerminal;

use super::obeys_sequences;

/// How a piece of text stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Something went well.
    Good,
    /// Something failed.
    Bad,
    /// Something needs a look.
    Warning,
    /// Less important than the rest.
    Faint,
    /// More important than the rest.
    Strong,
}

/// Whether there is colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(bool);

impl Colour {
    /// None at all.
    pub const OFF: Self = Self(false);

    /// Colour on a terminal that [obeys sequences](obeys_sequences), unless NO_COLOR (no-color.org) forbids it.
    pub fn detect(stream: &impl IsTerminal) -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        Self(obeys_sequences(stream) && !forbidden)
    }

    /// The text in a style. It must be [harmless](super::harmless()) already.
    pub fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            _ if !self.0 => return text.to_owned(),
            Style::Good => 32,
            Style::Bad => 31,
            Style::Warning => 33,
            Style::Faint => 2,
            Style::Strong => 1,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_style_is_a_sequence_only_with_colour() {
        assert_eq!(Colour::OFF.paint(Style::Bad, "x"), "x");
        assert_eq!(Colour(true).paint(Style::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}
