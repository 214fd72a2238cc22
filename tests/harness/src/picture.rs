//! Screens of a terminal as an SVG: text, in the colours of the terminal, on a ground of its own, so that it can be read on
//! a light and on a dark page.

use std::fmt::Write as _;

use vt100::{Cell, Color, Screen};

/// Sizes in pixels: of a character, of a line, and of the margin.
const CHARACTER: usize = 8;
const LINE: usize = 18;
const MARGIN: usize = 14;
/// How long a frame is shown; the last one for twice as long.
const FRAME_SECONDS: usize = 3;

const STYLE: &str = "\
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dae0;white-space:pre}\
.red{fill:#f07178}.green{fill:#98c379}.yellow{fill:#e5c07b}.faint{fill-opacity:.6}.strong{font-weight:bold}";

/// One screen, or several that follow each other without end. `title` is for those who cannot see it.
pub fn svg(title: &str, frames: &[Screen]) -> String {
    let lines = frames.iter().map(used_lines).max().unwrap_or(0);
    let columns = frames.first().map_or(0, |screen| screen.size().1);
    let width = usize::from(columns) * CHARACTER + 2 * MARGIN;
    let height = usize::from(lines) * LINE + 2 * MARGIN;
    let still = fullest(frames);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}{}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1e2127\"/>\n",
        escaped(title),
        timing(frames.len(), still),
    );
    for (number, screen) in frames.iter().enumerate() {
        if frames.len() > 1 {
            // Where nothing moves, as in a PDF, only one is there.
            let hidden = if number == still {
                ""
            } else {
                " visibility=\"hidden\""
            };
            let _ = writeln!(svg, "<g id=\"f{number}\"{hidden}>");
        }
        for row in 0..lines {
            line(&mut svg, screen, row);
        }
        if frames.len() > 1 {
            svg.push_str("</g>\n");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Which frame says most by itself: the one with most lines.
fn fullest(frames: &[Screen]) -> usize {
    let numbered = frames.iter().enumerate();
    let fullest = numbered.max_by_key(|(_, screen)| used_lines(screen));
    fullest.map_or(0, |(number, _)| number)
}

/// Shows one frame after the other; one alone to those who want no motion.
fn timing(frames: usize, still: usize) -> String {
    let mut style = String::new();
    if frames < 2 {
        return style;
    }
    let total = (frames + 1) * FRAME_SECONDS;
    for frame in 0..frames {
        let last = frame + 1 == frames;
        let percent = |seconds: usize| {
            let hundredths = seconds * 10_000 / total;
            format!("{}.{:02}%", hundredths / 100, hundredths % 100)
        };
        let (start, end) = (frame * FRAME_SECONDS, (frame + 1) * FRAME_SECONDS);
        let _ = write!(
            style,
            "#f{frame}{{animation:k{frame} {total}s step-end infinite}}"
        );
        let _ = write!(style, "@keyframes k{frame}{{0%{{visibility:hidden}}");
        let _ = write!(style, "{}{{visibility:visible}}", percent(start));
        if !last {
            let _ = write!(style, "{}{{visibility:hidden}}", percent(end));
        }
        style.push('}');
    }
    let _ = write!(
        style,
        "@media(prefers-reduced-motion){{g{{animation:none!important;visibility:hidden}}#f{still}{{visibility:visible}}}}"
    );
    style
}

/// How many lines of a screen have text.
fn used_lines(screen: &Screen) -> u16 {
    let (lines, columns) = screen.size();
    let is_used = |row: u16| {
        let mut cells = (0..columns).filter_map(|column| screen.cell(row, column));
        cells.any(|cell| !cell.contents().trim().is_empty())
    };
    (0..lines)
        .rev()
        .find(|row| is_used(*row))
        .map_or(0, |row| row + 1)
}

/// A line, in pieces of one style each, every one at its place: the characters of a font may be wider than the others.
fn line(svg: &mut String, screen: &Screen, row: u16) {
    let columns = screen.size().1;
    let cell = |column: u16| {
        screen
            .cell(row, column)
            .filter(|cell| !cell.is_wide_continuation())
    };
    let mut column = 0;
    while column < columns {
        let first = column;
        let style = cell(column).map(class);
        let mut text = String::new();
        while column < columns && (column == first || cell(column).map(class) == style) {
            let contents = cell(column).map_or("", Cell::contents);
            text.push_str(if contents.is_empty() { " " } else { contents });
            column += 1;
        }
        let class = style.filter(|class| !class.is_empty());
        let class = class.map_or(String::new(), |class| format!(" class=\"{class}\""));
        for (offset, piece) in pieces(&text) {
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" textLength=\"{}\"{class}>{}</text>",
                MARGIN + (usize::from(first) + offset) * CHARACTER,
                MARGIN + usize::from(row) * LINE + 14,
                piece.chars().count() * CHARACTER,
                escaped(piece),
            );
        }
    }
}

/// The text without two blanks in a row, which an SVG need not show: the pieces between, and in which column they start.
fn pieces(text: &str) -> Vec<(usize, &str)> {
    let mut column = 0;
    let mut pieces = Vec::new();
    for piece in text.split("  ") {
        let blanks = piece.len() - piece.trim_start().len();
        if !piece.trim().is_empty() {
            pieces.push((column + blanks, piece.trim()));
        }
        column += piece.chars().count() + 2;
    }
    pieces
}

/// The style of a cell, as a class.
fn class(cell: &Cell) -> String {
    let colour = match cell.fgcolor() {
        Color::Idx(1 | 9) => "red",
        Color::Idx(2 | 10) => "green",
        Color::Idx(3 | 11) => "yellow",
        _ => "",
    };
    let all = [
        (colour, true),
        ("faint", cell.dim()),
        ("strong", cell.bold()),
    ];
    let set = all
        .into_iter()
        .filter(|(name, set)| *set && !name.is_empty());
    set.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(bytes: &[u8]) -> Screen {
        let mut parser = vt100::Parser::new(4, 20, 0);
        parser.process(bytes);
        parser.screen().clone()
    }

    #[test]
    fn each_piece_of_one_style_is_at_its_place() {
        let svg = svg(
            "a & b",
            &[screen(b"\r\n  <x>   y\x1b[32mgreen\x1b[0m \xe2\x97\x8f")],
        );
        assert!(svg.contains("<title>a &amp; b</title>"), "{svg}");
        let y = MARGIN + LINE + 14;
        for (x, width, text) in [
            (30, 24, ">&lt;x&gt;<"),
            (78, 8, ">y<"),
            (86, 40, " class=\"green\">green<"),
            (134, 8, ">●<"),
        ] {
            let text = format!("<text x=\"{x}\" y=\"{y}\" textLength=\"{width}\"{text}/text>");
            assert!(svg.contains(&text), "{text}: {svg}");
        }
        assert!(!svg.contains("animation"), "{svg}");
        assert!(
            svg.contains(&format!("height=\"{}\"", 2 * LINE + 2 * MARGIN)),
            "{svg}"
        );
    }

    #[test]
    fn frames_follow_each_other() {
        let svg = svg("t", &[screen(b"one"), screen(b"two")]);
        assert!(svg.contains("@keyframes k0{0%{visibility:hidden}0.00%{visibility:visible}33.33%{visibility:hidden}}"), "{svg}");
        assert!(
            svg.contains("@keyframes k1{0%{visibility:hidden}33.33%{visibility:visible}}"),
            "{svg}"
        );
        assert!(
            svg.contains("<g id=\"f0\" visibility=\"hidden\">") && svg.contains("<g id=\"f1\">"),
            "{svg}"
        );
    }

    #[test]
    fn without_motion_the_fullest_frame_is_shown() {
        let svg = svg("t", &[screen(b"one\r\ntwo"), screen(b"three")]);
        for part in [
            "<g id=\"f0\">",
            "<g id=\"f1\" visibility=\"hidden\">",
            "#f0{visibility:visible}}</style>",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}
