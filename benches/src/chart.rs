//! Pictures of results: for each figure, bars of the compared programs beside ours.

use std::fmt::Write as _;

use crate::table::{Bar, Table};

const WIDTH: usize = 860;
/// Where the bars begin, and how long the longest of a figure is.
const LEFT: usize = 256;
const LONGEST: f64 = 500.0;
/// The height of a bar with what is around it, of a title, and of the edges.
const BAR: usize = 22;
const TITLE: usize = 34;
const EDGE: usize = 12;

/// An SVG of these figures of a table, each with the title that it is to have. `style` is that of the other pictures.
pub(crate) fn svg(style: &str, title: &str, table: &Table, figures: &[[&str; 2]]) -> String {
    let figures: Vec<(&str, Vec<Bar>)> = figures
        .iter()
        .map(|[figure, title]| (*title, table.bars(figure)))
        .collect();
    let bars: usize = figures.iter().map(|(_, bars)| bars.len()).sum();
    let height = 2 * EDGE + TITLE * figures.len() + BAR * bars;
    let (mut described, mut drawn) = (String::new(), String::new());
    let mut y = EDGE;
    for (title, bars) in &figures {
        let longest = bars.iter().map(|bar| bar.size).fold(0.0, f64::max);
        y += TITLE;
        let _ = writeln!(
            drawn,
            "<text class=\"ink\" fill=\"#1f2328\" font-size=\"14\" font-weight=\"600\" x=\"16\" y=\"{}\">{title}</text>",
            y - 12
        );
        let named = bars
            .iter()
            .map(|bar| format!("{} {}", bar.program, bar.label));
        let _ = write!(
            described,
            "{title}: {}. ",
            named.collect::<Vec<_>>().join(", ")
        );
        for (nth, bar) in bars.iter().enumerate() {
            draw(&mut drawn, bar, longest, y, nth == 0);
            y += BAR;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif\" font-size=\"12\">
<title>{title}</title>
<desc>{}</desc>
<style>{style}</style>
<rect class=\"page\" fill=\"#ffffff\" stroke=\"#d0d7de\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>
{drawn}</svg>
",
        described.trim_end(),
        WIDTH - 1,
        height - 1,
    )
}

/// A bar with the program before and the label behind it.
fn draw(svg: &mut String, bar: &Bar, longest: f64, y: usize, is_ours: bool) {
    let colours = if is_ours {
        "class=\"green\" fill=\"#dafbe1\" stroke=\"#1a7f37\""
    } else {
        "class=\"box\" fill=\"#f6f8fa\" stroke=\"#8c959f\""
    };
    let width = (bar.size / longest * LONGEST).max(1.0);
    let behind = width + 8.0;
    let text = "class=\"ink\" fill=\"#1f2328\"";
    let (program, label) = (&bar.program, &bar.label);
    let baseline = y + BAR - 8;
    let _ = writeln!(
        svg,
        "<text {text} x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{program}</text>\n\
         <rect {colours} x=\"{LEFT}\" y=\"{}\" width=\"{width:.0}\" height=\"{}\"/>\n\
         <text {text} x=\"{:.0}\" y=\"{baseline}\">{label}</text>",
        LEFT - 8,
        y + 2,
        BAR - 6,
        f64::from(u16::try_from(LEFT).unwrap_or_default()) + behind,
    );
}
