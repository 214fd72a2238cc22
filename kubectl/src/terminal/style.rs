//! Colour, for those who want it.

use std::io::IsTerminal;

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

    /// Colour on a terminal, unless NO_COLOR (no-color.org) or a terminal without any forbids it.
    pub fn detect(stream: &impl IsTerminal) -> Self {
        let term = std::env::var_os("TERM");
        Self::decide(
            stream.is_terminal(),
            std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty()),
            term.as_deref().and_then(|it| it.to_str()),
        )
    }

    fn decide(terminal: bool, forbidden: bool, term: Option<&str>) -> Self {
        Self(terminal && !forbidden && !matches!(term, None | Some("" | "dumb")))
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
    fn colour_is_for_terminals_that_have_it_and_users_who_want_it() {
        assert!(Colour::decide(true, false, Some("xterm")).0);
        assert!(!Colour::decide(false, false, Some("xterm")).0);
        assert!(!Colour::decide(true, true, Some("xterm")).0);
        assert!(!Colour::decide(true, false, Some("dumb")).0);
        assert!(!Colour::decide(true, false, None).0);
        assert_eq!(Colour::OFF.paint(Style::Bad, "x"), "x");
        assert_eq!(Colour(true).paint(Style::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}
