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

/// The table in Markdown: ours as it is, and as a multiple of each other's figure of the same round;
/// each with the median of the rounds, the least and the most.
pub(crate) fn render(rounds: &[Round]) -> String {
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    let Some([first, others @ ..]) = rounds.first().map(Vec::as_slice) else {
        return text;
    };
    let mut head = vec!["figure".to_owned(), first.name.to_owned()];
    head.extend(others.iter().map(|other| format!("÷ {}", other.name)));
    head.push("aim".to_owned());
    line(&head);
    line(&vec!["---".to_owned(); head.len()]);
    for figure in &first.figures {
        // Some figures are of ours alone, and some of the first round alone.
        let ours = |round| value(round, first.name, &figure.name);
        let all = Spread::new(rounds.iter().filter_map(ours).collect());
        let ratio = |other: &str| {
            let ratio = |round| Some(ours(round)? / value(round, other, &figure.name)?);
            let ratios = rounds.iter().filter_map(ratio);
            // A ratio of two zeros is undefined.
            let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
            (!ratios.is_empty()).then(|| Spread::new(ratios))
        };
        let mut cells = vec![figure.name.clone(), all.text()];
        cells.extend(
            others
                .iter()
                .map(|other| ratio(other.name).map_or_else(String::new, |ratio| ratio.text())),
        );
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
        line(&cells);
    }
    text
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
        let table = render(&rounds);
        assert!(
            table.ends_with("| requests/s | 80.0 (45.0–90.0) | 0.90 (0.80–0.90) | 9.00 (8.00–9.00) | ≥ 8 × slow: met |\n"),
            "{table}"
        );
    }
}
