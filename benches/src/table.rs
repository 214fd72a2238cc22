//! The results of all runs, as one table of ratios and the aims.

use std::fmt::Write as _;

/// One figure of one run of one server.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// What was measured, the unit included.
    pub(crate) name: String,
    /// In that unit.
    pub(crate) value: f64,
    /// What ours should be.
    pub(crate) aims: &'static [Aim],
}

/// What a figure of ours should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    /// This many times the other server's figure, or more.
    LeastTimes(f64, &'static str),
    /// This many times the other server's figure, or less.
    MostTimes(f64, &'static str),
    /// This or less.
    Most(f64),
}

/// The figures of one run, in the order in which they were taken.
#[derive(Default)]
pub(crate) struct Figures(pub(crate) Vec<Figure>);

impl Figures {
    /// Adds one.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, aims: &'static [Aim]) {
        self.0.push(Figure {
            name: name.into(),
            value,
            aims,
        });
    }
}

/// The figures of one compared program in a round.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its name, that of the column too.
    pub(crate) name: &'static str,
    /// What was measured of it.
    pub(crate) figures: Vec<Figure>,
}

impl Column {
    /// A column whose figures are printed at once: a round is long, and a user need not wait for its end.
    pub(crate) fn printed(name: &'static str, figures: Figures) -> Self {
        let figures = figures.0;
        for figure in &figures {
            eprintln!("  {}: {:.3}", figure.name, figure.value);
        }
        Self { name, figures }
    }
}

/// One round. The first column is ours, and the first round has every row and column that is shown.
pub(crate) type Round = Vec<Column>;

fn value(round: &Round, column: &str, figure: &str) -> Option<f64> {
    let column = round.iter().find(|c| c.name == column)?;
    let figure = column.figures.iter().find(|f| f.name == figure)?;
    Some(figure.value)
}

/// Median, least and most.
pub(crate) struct Spread {
    pub(crate) median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        Self {
            median: f64::midpoint(at(values.len().saturating_sub(1) / 2), at(values.len() / 2)),
            least: at(0),
            most: at(values.len().saturating_sub(1)),
        }
    }

    fn text(&self) -> String {
        let [median, least, most] = [self.median, self.least, self.most].map(short);
        format!("{median} ({least}–{most})")
    }
}

/// Three digits that count.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The results of a part as text: the head, and the figures with the medians of the rounds, the least and the most.
#[derive(Debug, PartialEq)]
pub(crate) struct Table {
    /// How and on what it was measured, in a line.
    how: String,
    /// The names of the cells of a row: the figure, ours, one for each other program, the aim.
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The median of a cell.
fn median(cell: &str) -> &str {
    cell.split_once(' ').map_or(cell, |(median, _)| median)
}

/// The parts of an aim, such as `≥ 8 × slow: met`, that are about a column.
fn bounds(aim: &str, column: &str) -> String {
    let other = column.strip_prefix("÷ ");
    let parts = aim.split("; ").filter_map(|part| {
        let (text, verdict) = part.rsplit_once(": ")?;
        let (bound, of) = match text.split_once(" × ") {
            Some((bound, of)) => (bound, Some(of)),
            None => (text, None),
        };
        let shown = match verdict {
            "met" => format!(" ({bound})"),
            missed => format!(" ({bound} {missed})"),
        };
        (of == other).then_some(shown)
    });
    parts.collect()
}

impl Table {
    /// Ours as it is, and as a multiple of each other's figure of the same round.
    pub(crate) fn new(how: String, rounds: &[Round]) -> Self {
        let Some([first, others @ ..]) = rounds.first().map(Vec::as_slice) else {
            return Self {
                how,
                head: Vec::new(),
                rows: Vec::new(),
            };
        };
        let mut head = vec!["figure".to_owned(), first.name.to_owned()];
        head.extend(others.iter().map(|other| format!("÷ {}", other.name)));
        head.push("aim".to_owned());
        let row = |figure: &Figure| row(figure, first.name, others, rounds);
        Self {
            how,
            head,
            rows: first.figures.iter().map(row).collect(),
        }
    }

    /// Lines of cells between tabs, as a file: `#` and how it was measured, the head, the rows.
    pub(crate) fn to_tsv(&self) -> String {
        let mut text = format!("# {}\n", self.how);
        for cells in std::iter::once(&self.head).chain(&self.rows) {
            let _ = writeln!(text, "{}", cells.join("\t"));
        }
        text
    }

    /// What [`Table::to_tsv`] has written; `None` if it is something else.
    pub(crate) fn from_tsv(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let how = lines.next()?.strip_prefix("# ")?.to_owned();
        let mut rows = lines.map(|line| line.split('\t').map(str::to_owned).collect());
        let head: Vec<String> = rows.next()?;
        let rows: Vec<Vec<String>> = rows.collect();
        let is_whole = rows.iter().all(|row| row.len() == head.len());
        is_whole.then_some(Self { how, head, rows })
    }

    /// In Markdown: everything.
    pub(crate) fn markdown(&self) -> String {
        lines(&self.how, &self.head, self.rows.iter().cloned())
    }

    /// In Markdown: the medians of the figures that have an aim, each aim behind the median that it is about.
    pub(crate) fn aims(&self) -> String {
        let Some((_, head)) = self.head.split_last() else {
            return String::new();
        };
        let rows = self.rows.iter().filter_map(|row| {
            let (aim, cells) = row.split_last()?;
            let (name, values) = cells.split_first()?;
            let columns = head.iter().skip(1).zip(values);
            let values =
                columns.map(|(column, cell)| median(cell).to_owned() + &bounds(aim, column));
            let cells = std::iter::once(name.clone()).chain(values);
            (!aim.is_empty()).then(|| cells.collect::<Vec<_>>())
        });
        // The versions of the compilers are in the file.
        let how = self.how.split("; rustc").next().unwrap_or_default();
        lines(how, head, rows)
    }

    /// What a picture shows of a figure: each program, its median as text, and its size beside ours.
    pub(crate) fn bars(&self, figure: &str) -> Vec<Bar> {
        let row = self
            .rows
            .iter()
            .find(|row| row.first().is_some_and(|name| name == figure));
        let cells = row
            .into_iter()
            .flat_map(|row| self.head.iter().zip(row))
            .skip(1);
        cells
            .filter_map(|(program, cell)| {
                let value: f64 = median(cell).parse().ok()?;
                Some(match program.strip_prefix("÷ ") {
                    None => Bar {
                        program: program.clone(),
                        label: median(cell).to_owned(),
                        size: 1.0,
                    },
                    Some(other) => Bar {
                        program: other.to_owned(),
                        label: format!("{} ×", short(1.0 / value)),
                        size: 1.0 / value,
                    },
                })
            })
            .collect()
    }
}

/// A table in Markdown, under how it was measured.
fn lines(how: &str, head: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = format!("{how}\n\n| {} |\n", head.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(head.len()));
    for cells in rows {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// A program in a picture.
#[derive(Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) program: String,
    pub(crate) label: String,
    /// The figure of the program divided by ours.
    pub(crate) size: f64,
}

/// The cells of a figure.
fn row(figure: &Figure, first: &str, others: &[Column], rounds: &[Round]) -> Vec<String> {
    // Some figures are of ours alone, and some of the first round alone.
    let ours = |round| value(round, first, &figure.name);
    let all = Spread::new(rounds.iter().filter_map(ours).collect());
    let ratio = |other: &str| {
        let ratio = |round| Some(ours(round)? / value(round, other, &figure.name)?);
        let ratios = rounds.iter().filter_map(ratio);
        // A ratio of two zeros is undefined.
        let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
        (!ratios.is_empty()).then(|| Spread::new(ratios))
    };
    let mut cells = vec![figure.name.clone(), all.text()];
    let ratios = others.iter().map(|other| ratio(other.name));
    cells.extend(ratios.map(|ratio| ratio.map_or_else(String::new, |ratio| ratio.text())));
    let aims = figure.aims.iter().map(|aim| {
        let (text, met) = match aim {
            Aim::LeastTimes(least, other) => (
                format!("≥ {least} × {other}"),
                ratio(other).is_some_and(|ratio| ratio.median >= *least),
            ),
            Aim::MostTimes(most, other) => (
                format!("≤ {most} × {other}"),
                ratio(other).is_some_and(|ratio| ratio.median <= *most),
            ),
            Aim::Most(most) => (format!("≤ {most}"), all.median <= *most),
        };
        format!("{text}: {}", if met { "met" } else { "**missed**" })
    });
    cells.push(aims.collect::<Vec<_>>().join("; "));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &'static str, value: f64) -> Column {
        Column {
            name,
            figures: vec![Figure {
                name: "requests/s".to_owned(),
                value,
                aims: &[Aim::LeastTimes(8.0, "slow")],
            }],
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let round = |ours, bare, slow| {
            vec![
                column("ours", ours),
                column("bare", bare),
                column("slow", slow),
            ]
        };
        let rounds = [
            round(90.0, 100.0, 10.0),
            round(45.0, 50.0, 5.0),
            round(80.0, 100.0, 10.0),
        ];
        let table = Table::new("on a machine".to_owned(), &rounds);
        let text = table.markdown();
        assert!(
            text.ends_with("| requests/s | 80.0 (45.0–90.0) | 0.90 (0.80–0.90) | 9.00 (8.00–9.00) | ≥ 8 × slow: met |\n"),
            "{text}"
        );
        let text = table.aims();
        let short = "| figure | ours | ÷ bare | ÷ slow |\n|---|---|---|---|\n\
                     | requests/s | 80.0 | 0.90 | 9.00 (≥ 8) |\n";
        assert!(text.ends_with(short), "{text}");
        assert_eq!(
            bounds("≤ 1: **missed**; ≥ 8 × slow: met", "ours"),
            " (≤ 1 **missed**)"
        );
        let labels = table.bars("requests/s").into_iter().map(|bar| bar.label);
        assert_eq!(labels.collect::<Vec<_>>(), ["80.0", "1.11 ×", "0.11 ×"]);
        assert_eq!(Table::from_tsv(&table.to_tsv()), Some(table));
    }
}
