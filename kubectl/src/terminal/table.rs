//! Tables as kubectl prints them.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::harmless;

/// Blanks between two columns.
const GAP: usize = 3;

/// Rows of text in columns. Every cell is made harmless.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With the names of the columns; without a header if there are none.
    pub fn new(header: &[&str]) -> Self {
        let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
        let rows = if header.is_empty() {
            Vec::new()
        } else {
            vec![header]
        };
        Self { rows }
    }

    /// Adds a row. An empty cell is shown as `<none>`, as kubectl does.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cell = |text: String| match text.as_str() {
            "" => "<none>".to_owned(),
            text => harmless(text).into_owned(),
        };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    /// Writes it; lines are at most `width` columns wide if one is given.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                let blanks = width.saturating_sub(cell.width()) + GAP;
                line.extend(std::iter::repeat_n(' ', blanks));
            }
            let line = line.trim_end();
            writeln!(out, "{}", width.map_or(line, |width| cut(line, width)))?;
        }
        Ok(())
    }
}

/// As much of the text as fits.
pub(crate) fn cut(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (start, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > width {
            return text.get(..start).unwrap_or_default();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn written(table: &Table, width: Option<usize>) -> String {
        let mut out = Vec::new();
        table.write(&mut out, width).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["NAME", "REASON"]);
        table.row(["日報".to_owned(), String::new()]);
        table.row(["a-longer-name".to_owned(), "x\x1b[A\ny".to_owned()]);
        let expected =
            "NAME            REASON\n日報            <none>\na-longer-name   x^[[A\\ny\n";
        assert_eq!(written(&table, None), expected);
        assert_eq!(written(&table, Some(3)), "NAM\n日\na-l\n");
    }
}
