//! Frames on a terminal. They go to its second screen, so that nothing of them stays in the history; the last one is
//! printed when the view ends.

use std::io::{self, Write};

/// Show the second screen, and hide the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The opposite.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The screen of a terminal, while frames are on it.
pub(crate) struct Screen<W: Write> {
    out: W,
    /// The frame that is on it.
    shown: Vec<String>,
    size: (usize, usize),
    /// A second [`LEAVE`] would move the cursor back over what was printed after the first.
    is_left: bool,
}

impl<W: Write> Screen<W> {
    pub(crate) fn enter(mut out: W) -> io::Result<Self> {
        out.write_all(ENTER.as_bytes())?;
        Ok(Self {
            out,
            shown: Vec::new(),
            size: (0, 0),
            is_left: false,
        })
    }

    /// Shows a frame. Lines must be cut to the width; those beyond the height are left out. What is on the screen already is
    /// not written again.
    pub(crate) fn show(&mut self, mut frame: Vec<String>, size: (usize, usize)) -> io::Result<()> {
        frame.truncate(size.1.max(1));
        let resized = self.size != size;
        let mut text = String::new();
        if resized {
            text.push_str("\x1b[2J");
        }
        for (i, line) in frame.iter().enumerate() {
            if resized || self.shown.get(i) != Some(line) {
                text.extend([place(i).as_str(), line, "\x1b[K"]);
            }
        }
        if frame.len() < self.shown.len() && !resized {
            text.extend([place(frame.len()).as_str(), "\x1b[J"]);
        }
        (self.shown, self.size) = (frame, size);
        if text.is_empty() {
            return Ok(());
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Back to the first screen, with the last frame on it.
    pub(crate) fn leave(mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.shown);
        self.restore()?;
        for line in frame {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }

    /// The size for which the frame was drawn.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.size
    }

    fn restore(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_left, true) {
            return Ok(());
        }
        self.out.write_all(LEAVE.as_bytes())?;
        self.out.flush()
    }
}

/// Moves the cursor to the start of a line.
fn place(line: usize) -> String {
    format!("\x1b[{};1H", line + 1)
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    /// What a terminal of that size shows after everything that was written.
    fn terminal(written: &[u8], (width, height): (u16, u16)) -> vt100::Parser {
        let mut terminal = vt100::Parser::new(height, width, 0);
        terminal.process(written);
        terminal
    }

    #[test]
    fn frames_replace_each_other_on_the_second_screen() {
        let mut written = Vec::new();
        let mut screen = Screen::enter(&mut written).unwrap();
        screen
            .show(lines(&["one", "two", "three"]), (20, 5))
            .unwrap();
        screen.show(lines(&["1", "two"]), (20, 5)).unwrap();
        let shown = terminal(screen.out, (20, 5));
        assert!(shown.screen().alternate_screen() && shown.screen().hide_cursor());
        assert_eq!(shown.screen().contents(), "1\ntwo");
        screen.leave().unwrap();
        let left = terminal(&written, (20, 5));
        assert!(!left.screen().alternate_screen() && !left.screen().hide_cursor());
    }

    #[test]
    fn a_frame_that_is_shown_already_is_not_written_again() {
        let mut written = Vec::new();
        let mut screen = Screen::enter(&mut written).unwrap();
        screen.show(lines(&["one", "two"]), (20, 5)).unwrap();
        let before = screen.out.len();
        screen.show(lines(&["one", "two"]), (20, 5)).unwrap();
        assert_eq!(screen.out.len(), before);
        screen.show(lines(&["one", "TWO"]), (20, 5)).unwrap();
        let update = String::from_utf8(screen.out[before..].to_vec()).unwrap();
        assert!(
            update.contains("TWO") && !update.contains("one"),
            "{update:?}"
        );
    }

    #[test]
    fn a_resize_draws_everything_and_nothing_below_the_last_line() {
        let mut written = Vec::new();
        let mut screen = Screen::enter(&mut written).unwrap();
        screen
            .show(lines(&["one", "two", "three"]), (20, 5))
            .unwrap();
        screen
            .show(lines(&["one", "two", "three"]), (20, 2))
            .unwrap();
        assert_eq!(
            terminal(screen.out, (20, 2)).screen().contents(),
            "one\ntwo"
        );
    }
}
