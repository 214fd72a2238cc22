//! What all runs measured, as one table of ratios beside the aims.

use std::fmt::Write as _;

use crate::servers::Server;

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
    LeastTimes(f64, Server),
    /// This many times the other server's figure, or less.
    MostTimes(f64, Server),
    /// This or less.
    Most(f64),
}

/// The figures of one round: of each server, in the order of [`Server::ALL`].
pub(crate) type Round = [Vec<Figure>; Server::ALL.len()];

/// Median, least and most.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
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

/// The table in Markdown: ours as it is, and as a multiple of each other server's figure of the same
/// round; each with the median of the rounds, the least and the most.
pub(crate) fn render(rounds: &[Round]) -> String {
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    let others: Vec<Server> = Server::ALL[1..].to_vec();
    let mut head = vec!["figure".to_owned(), Server::Ours.name().to_owned()];
    head.extend(others.iter().map(|other| format!("÷ {}", other.name())));
    head.push("aim".to_owned());
    line(&head);
    line(&vec!["---".to_owned(); head.len()]);
    let figures = rounds.first().map_or(&[][..], |round| &round[0]);
    for (row, figure) in figures.iter().enumerate() {
        // Some figures are of ours alone.
        let value = |round: &Round, server: Server| {
            let found = round[server as usize]
                .iter()
                .find(|f| f.name == figure.name);
            found.map(|figure| figure.value)
        };
        let ours = Spread::of(rounds.iter().map(|round| round[0][row].value).collect());
        let ratio = |other: Server| {
            let ratio = |round| Some(value(round, Server::Ours)? / value(round, other)?);
            let ratios: Option<Vec<f64>> = rounds.iter().map(ratio).collect();
            ratios.map(Spread::of)
        };
        let mut cells = vec![figure.name.clone(), ours.text()];
        cells.extend(
            others
                .iter()
                .map(|other| ratio(*other).map_or_else(String::new, |ratio| ratio.text())),
        );
        let aims = figure.aims.iter().map(|aim| {
            let (text, met) = match aim {
                Aim::LeastTimes(least, other) => (
                    format!("≥ {least} × {}", other.name()),
                    ratio(*other).is_some_and(|ratio| ratio.median >= *least),
                ),
                Aim::MostTimes(most, other) => (
                    format!("≤ {most} × {}", other.name()),
                    ratio(*other).is_some_and(|ratio| ratio.median <= *most),
                ),
                Aim::Most(most) => (format!("≤ {most}"), ours.median <= *most),
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

    #[test]
    fn ratios_are_taken_within_a_round() {
        let figure = |value| {
            vec![Figure {
                name: "requests/s".to_owned(),
                value,
                aims: &[Aim::LeastTimes(8.0, Server::ControllerRuntime)],
            }]
        };
        let rounds = [
            [figure(90.0), figure(100.0), figure(10.0)],
            [figure(45.0), figure(50.0), figure(5.0)],
            [figure(80.0), figure(100.0), figure(10.0)],
        ];
        let table = render(&rounds);
        assert!(
            table.ends_with("| requests/s | 80.0 (45.0–90.0) | 0.90 (0.80–0.90) | 9.00 (8.00–9.00) | ≥ 8 × controller-runtime: met |\n"),
            "{table}"
        );
    }
}
