//! A frame: the header, the nodes within a number of lines, and single pods.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr as _;

use super::cells::{Cell, NodeCell, noted};
use super::line::{Line, fit, wrap};
use crate::mydaemonset::list;
use crate::mydaemonset::object::Object;
use crate::terminal::Style;

/// The width of a frame that does not go to a terminal.
const DEFAULT_WIDTH: usize = 120;
/// Lines of nodes where there is no terminal whose height would say.
const DEFAULT_LINES: usize = 16;
/// A message of a condition takes at most this many lines.
const MESSAGE_LINES: usize = 4;
/// The names of groups are cut to this width.
const GROUP_WIDTH: usize = 24;
/// The widest a node's name may be beside its cell.
const NAME_WIDTH: usize = 40;

/// How a frame is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) width: usize,
    /// How many lines the nodes may take.
    pub(crate) lines: usize,
    /// Whether the terminal shows UTF-8.
    pub(crate) utf8: bool,
    /// Whether the nodes are shown by group, even where their names would fit.
    pub(crate) grouped: bool,
}

impl Page {
    /// A page for a terminal of that size, if there is one.
    pub(crate) fn new(size: Option<(usize, usize)>, utf8: bool, grouped: bool) -> Self {
        Self {
            grouped,
            width: size.map_or(DEFAULT_WIDTH, |(width, _)| width.max(20)),
            lines: size.map_or(DEFAULT_LINES, |(_, height)| (height / 2).max(4)),
            utf8,
        }
    }
}

/// The object, its revision, its state, and why.
pub(crate) fn header(object: &Object, page: Page) -> Vec<Line> {
    let update = object.revision();
    let revision = match object.status.current_revision.as_deref() {
        None | Some("") => update,
        Some(current) if current == update => update,
        Some(current) => format!("{update} (in place of {current})"),
    };
    let state = object.state();
    let field = |name: &str, value: &str| Line::default().padded(name, 11).plain(value);
    let mut lines = vec![
        field("Name:", &object.name),
        field("Namespace:", &object.namespace),
        field("Image:", &object.image()),
        field("Revision:", &revision),
        Line::default()
            .padded("State:", 11)
            .styled(state, list::style(state)),
    ];
    let width = page.width.saturating_sub(11).max(9);
    let wrapped = wrap(object.reason(), width, MESSAGE_LINES);
    for (i, text) in wrapped.iter().enumerate() {
        lines.push(field(if i == 0 { "Reason:" } else { "" }, text));
    }
    lines
}

/// What is shown may be old.
pub(crate) fn lost(lost: &str, page: Page) -> Vec<Line> {
    let text = format!("{lost}; trying again");
    let lines = wrap(&text, page.width, MESSAGE_LINES).into_iter();
    lines
        .map(|line| Line::default().styled(&line, Some(Style::Warning)))
        .collect()
}

/// The nodes: each with its name if they fit and no groups are wanted, else each as a cell, else as counts for each group.
pub(crate) fn nodes(cells: &[NodeCell], page: Page) -> Vec<Line> {
    let lines = named(cells, page).or_else(|| packed(cells, page));
    let mut lines = lines.unwrap_or_else(|| counted(cells, page));
    lines.push(legend(cells, page));
    lines
}

fn mark(line: Line, cell: Cell, page: Page) -> Line {
    line.styled(cell.symbol(page.utf8), cell.style())
}

/// Columns of cells with the nodes' names, unless groups are wanted.
fn named(cells: &[NodeCell], page: Page) -> Option<Vec<Line>> {
    let widest = cells.iter().map(|node| node.node.width()).max();
    let widest = widest.unwrap_or(0).min(NAME_WIDTH);
    let columns = ((page.width + 2) / (widest + 4)).max(1);
    if page.grouped || cells.len().div_ceil(columns) > page.lines {
        return None;
    }
    let rows = cells.chunks(columns).map(|row| {
        row.iter().fold(Line::default(), |line, node| {
            let line = mark(line, node.cell, page).plain(" ");
            line.padded(&node.node, widest).plain("  ")
        })
    });
    Some(rows.collect())
}

/// The nodes of each group, in the order of the groups' names.
fn groups(cells: &[NodeCell]) -> BTreeMap<&str, Vec<Cell>> {
    let mut groups: BTreeMap<&str, Vec<Cell>> = BTreeMap::new();
    for node in cells {
        groups.entry(&node.group).or_default().push(node.cell);
    }
    groups
}

/// The width of the column with the groups' names; 0 where all nodes are in one group without a name.
fn group_width(groups: &BTreeMap<&str, Vec<Cell>>) -> usize {
    if groups.keys().all(|group| group.is_empty()) {
        return 0;
    }
    let widest = groups.keys().map(|group| label(group).width()).max();
    widest.unwrap_or(0).min(GROUP_WIDTH) + 2
}

fn label(group: &str) -> &str {
    if group.is_empty() { "(none)" } else { group }
}

fn group_label(group: &str, width: usize) -> Line {
    Line::default().padded(&fit(label(group), width.saturating_sub(2)), width)
}

/// One cell after the other, in a block for each group.
fn packed(cells: &[NodeCell], page: Page) -> Option<Vec<Line>> {
    let groups = groups(cells);
    let indent = group_width(&groups);
    let width = page
        .width
        .checked_sub(indent)
        .filter(|width| *width >= 10)?;
    let needed: usize = groups
        .values()
        .map(|cells| cells.len().div_ceil(width))
        .sum();
    if needed > page.lines {
        return None;
    }
    let mut lines = Vec::with_capacity(needed);
    for (group, cells) in groups {
        for (i, row) in cells.chunks(width).enumerate() {
            let first = match i {
                0 => group_label(group, indent),
                _ => Line::default().padded("", indent),
            };
            // Cells of one state in a row are one piece: thousands of colours would be slow.
            let runs = row.chunk_by(|a, b| a == b);
            let line = runs.fold(first, |line, run| match run.first() {
                None => line,
                Some(cell) => line.styled(&cell.symbol(page.utf8).repeat(run.len()), cell.style()),
            });
            lines.push(line);
        }
    }
    Some(lines)
}

/// How many nodes are in each state.
type Counts = BTreeMap<Cell, usize>;

fn counts(cells: impl IntoIterator<Item = Cell>) -> Counts {
    let mut counts = Counts::new();
    for cell in cells {
        *counts.entry(cell).or_default() += 1;
    }
    counts
}

/// Nodes that need a look.
fn trouble(counts: &Counts) -> usize {
    let troubles = [Cell::Failed, Cell::Down, Cell::Starting];
    troubles.iter().filter_map(|cell| counts.get(cell)).sum()
}

/// A line of counts for each group. Where there are too many groups, those with trouble come first.
fn counted(cells: &[NodeCell], page: Page) -> Vec<Line> {
    let groups = groups(cells);
    let indent = group_width(&groups);
    let mut rows: Vec<(&str, Counts)> = groups
        .into_iter()
        .map(|(group, cells)| (group, counts(cells)))
        .collect();
    let mut rest = Vec::new();
    if rows.len() > page.lines {
        rows.sort_by_key(|(_, counts)| std::cmp::Reverse(trouble(counts)));
        rest = rows.split_off(page.lines.saturating_sub(1));
        rows.sort_by_key(|(group, _)| *group);
    }
    let mut widths: BTreeMap<Cell, usize> = BTreeMap::new();
    for (cell, count) in rows.iter().flat_map(|(_, counts)| counts) {
        let width = widths.entry(*cell).or_default();
        *width = count.to_string().len().max(*width);
    }
    let row = |(group, counts): &(&str, Counts)| {
        let first = group_label(group, indent);
        widths.iter().fold(first, |line, (cell, width)| {
            let count = counts.get(cell).copied().unwrap_or_default();
            let style = cell.style().filter(|_| count > 0);
            let text = format!("{count:>width$} {}", cell.word());
            line.styled(&text, style).plain("  ")
        })
    };
    let mut lines: Vec<Line> = rows.iter().map(row).collect();
    if !rest.is_empty() {
        let nodes: usize = rest.iter().flat_map(|(_, counts)| counts.values()).sum();
        lines.push(Line::new(&format!(
            "and {} more groups with {nodes} nodes",
            rest.len()
        )));
    }
    lines
}

/// What the symbols mean, and how many nodes there are of each.
fn legend(cells: &[NodeCell], page: Page) -> Line {
    let nodes = match cells.len() {
        1 => "1 node: ".to_owned(),
        nodes => format!("{nodes} nodes: "),
    };
    let counts = counts(cells.iter().map(|node| node.cell));
    let shown = counts.into_iter().enumerate();
    shown.fold(Line::new(&nodes), |line, (i, (cell, count))| {
        let line = line.plain(if i == 0 { "" } else { "  " });
        mark(line, cell, page).plain(&format!(" {count} {}", cell.word()))
    })
}

/// The same in one line, for output that is not a terminal.
pub(crate) fn summary(object: &Object, cells: &[NodeCell]) -> Line {
    let (state, revision) = (object.state(), object.revision());
    let counts = counts(cells.iter().map(|node| node.cell)).into_iter();
    let texts: Vec<String> = counts
        .map(|(cell, count)| format!("{count} {}", cell.word()))
        .collect();
    let nodes = if texts.is_empty() {
        "no nodes".to_owned()
    } else {
        texts.join(", ")
    };
    Line::new(&format!("{state}, revision {revision}: {nodes}"))
}

/// The failing pods with their last lines, and those that take long to become Ready, with what they wait for: those `shown`
/// had a closer look, of all the `cells`. What matters most comes first: the end of a page or a line may be cut off.
pub(crate) fn pods(shown: &[NodeCell], cells: &[NodeCell], page: Page) -> Vec<Line> {
    let mut lines = Vec::new();
    for (cell, title) in [
        (Cell::Failed, "Failing pods"),
        (Cell::Starting, "Not Ready for more than a minute"),
    ] {
        let title = match (noted(shown, cell).count(), noted(cells, cell).count()) {
            (0, _) => continue,
            (shown, total) if shown < total => format!("{title} ({shown} of {total}):"),
            _ => format!("{title}:"),
        };
        lines.extend([Line::default(), Line::new(&title)]);
        for (node, pod) in noted(shown, cell) {
            let line = mark(Line::new("  "), cell, page).plain(&format!(" {}  ", pod.reason));
            let line = line.styled(&node.node, Some(Style::Strong));
            lines.push(line.plain(&format!("  {}", pod.pod)));
            let said = pod.lines.iter();
            lines.extend(said.map(|line| Line::new("      ").styled(line, Some(Style::Faint))));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::mydaemonset::object::tests::object;
    use crate::mydaemonset::view::cells::Noted;
    use crate::terminal::Colour;

    fn page(width: usize) -> Page {
        Page {
            width,
            lines: 12,
            utf8: true,
            grouped: false,
        }
    }

    fn cells(count: usize, zones: usize, cell: impl Fn(usize) -> Cell) -> Vec<NodeCell> {
        let node = |i: usize| NodeCell {
            node: format!("node-{i:04}.example"),
            group: if zones == 0 {
                String::new()
            } else {
                format!("zone-{}", i % zones)
            },
            cell: cell(i),
            pod: Some(Noted {
                pod: format!("node-{i:04}-abc"),
                ..Noted::default()
            }),
        };
        (0..count).map(node).collect()
    }

    /// The frame as a terminal of that width shows it: what a line is too wide for would appear on the next.
    fn screen(lines: &[Line], width: usize) -> Vec<String> {
        let mut terminal = vt100::Parser::new(60, u16::try_from(width).unwrap(), 0);
        for line in lines {
            let text = line.render(Some(width), Colour::OFF);
            terminal.process(format!("{text}\r\n").as_bytes());
        }
        let rows = terminal.screen().rows(0, u16::try_from(width).unwrap());
        let rows: Vec<String> = rows.collect();
        let end = rows
            .iter()
            .rposition(|row| !row.is_empty())
            .map_or(0, |i| i + 1);
        rows[..end].to_vec()
    }

    #[test]
    fn three_nodes_are_shown_with_their_names() {
        let states = [Cell::New, Cell::Starting, Cell::Failed];
        let cells = cells(3, 3, |i| states[i]);
        for width in [80, 200] {
            assert_eq!(
                screen(&nodes(&cells, page(width)), width),
                [
                    "● node-0000.example  ◐ node-0001.example  ✗ node-0002.example",
                    "3 nodes: ● 1 new  ◐ 1 starting  ✗ 1 failed",
                ]
            );
        }
        let narrow = screen(&nodes(&cells, page(30)), 30);
        assert_eq!(narrow[0], "● node-0000.example");
        assert_eq!(narrow[2], "✗ node-0002.example");
    }

    #[test]
    fn two_thousand_nodes_fold_to_counts_where_their_cells_do_not_fit() {
        let state = |i: usize| match i {
            0..1500 => Cell::New,
            1999 => Cell::Failed,
            _ => Cell::Old,
        };
        let cells = cells(2_000, 3, state);
        assert_eq!(
            screen(&nodes(&cells, page(80)), 80),
            [
                "zone-0  500 new  167 old  0 failed",
                "zone-1  500 new  166 old  1 failed",
                "zone-2  500 new  166 old  0 failed",
                "2000 nodes: ● 1500 new  ○ 499 old  ✗ 1 failed",
            ]
        );
        let wide = screen(&nodes(&cells, page(200)), 200);
        assert_eq!(wide.len(), 13, "{wide:#?}");
        assert!(wide[0].starts_with("zone-0  ●●●"));
        assert_eq!(wide[0].chars().count(), 200);
        assert!(wide[1].starts_with("        ●●●"));
        let all: String = wide[..12].concat();
        let count = |symbol: char| all.chars().filter(|c| *c == symbol).count();
        assert_eq!((count('●'), count('○'), count('✗')), (1500, 499, 1));
    }

    #[test]
    fn without_groups_the_counts_are_one_line() {
        let cells = cells(2_000, 0, |_| Cell::New);
        let shown = screen(&nodes(&cells, page(80)), 80);
        assert_eq!(shown, ["2000 new", "2000 nodes: ● 2000 new"]);
    }

    #[test]
    fn of_many_groups_those_with_trouble_are_shown() {
        let cells = cells(5_000, 100, |i| {
            if i % 100 == 77 { Cell::Down } else { Cell::New }
        });
        let shown = screen(&nodes(&cells, page(80)), 80);
        assert_eq!(shown.len(), 13, "{shown:#?}");
        assert!(
            shown.contains(&"zone-77   0 new  50 down".to_owned()),
            "{shown:#?}"
        );
        assert_eq!(shown[11], "and 89 more groups with 4450 nodes");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let hostile = "\u{1b}[2J\u{1b}[31mevil\r\nname\u{202e}日本語日本語日本語日本語日本語日本語"
            .to_owned();
        let seven = [
            Cell::New,
            Cell::Old,
            Cell::Starting,
            Cell::Failed,
            Cell::Held,
            Cell::Cordoned,
            Cell::Maintenance,
        ];
        let mut cells = cells(40, 7, |i| seven[i % 7]);
        cells[3].node.clone_from(&hostile);
        cells[5].group.clone_from(&hostile);
        let shown = [Cell::Failed, Cell::Starting].map(|cell| NodeCell {
            cell,
            node: hostile.clone(),
            group: String::new(),
            pod: Some(Noted {
                pod: hostile.clone(),
                reason: hostile.clone(),
                lines: vec![hostile.clone(), "x".repeat(500)],
            }),
        });
        let status = json!({"observedGeneration": 3, "state": hostile, "conditions": [{"type": "Progressing",
            "status": "True", "reason": "x", "message": hostile.repeat(20), "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let object = object(&json!({"image": hostile}), &status);
        for width in [20, 37, 80, 200] {
            let page = page(width);
            let mut frame = header(&object, page);
            frame.extend(nodes(&cells, page));
            frame.extend(pods(&shown, &cells, page));
            for line in &frame {
                let text = line.render(Some(width), Colour::OFF);
                assert!(text.width() <= width, "{width}: {text}");
                assert!(
                    !text.contains(|c: char| c.is_control() || c == '\u{202e}'),
                    "{text:?}"
                );
            }
            let shown = screen(&frame, width);
            assert_eq!(shown.len(), frame.len(), "a line was wrapped: {shown:#?}");
        }
    }

    #[test]
    fn the_header_says_what_is_rolled_out_and_why_it_stands() {
        let message =
            "revision 5djmrzzhj3 failed on node-1 (ImagePullBackOff): the roll-out is stopped";
        let condition = json!({"type": "Progressing", "status": "False", "reason": "AutoPaused", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut status = json!({"observedGeneration": 3, "state": "AutoPaused", "currentRevision": "aaaaaaaaaa",
            "updateRevision": "5djmrzzhj3", "conditions": [condition]});
        let spec = json!({"image": "nginx:1.29"});
        let shown = |status: &Value| screen(&header(&object(&spec, status), page(60)), 60);
        assert_eq!(
            shown(&status),
            [
                "Name:      web",
                "Namespace: shop",
                "Image:     nginx:1.29",
                "Revision:  5djmrzzhj3 (in place of aaaaaaaaaa)",
                "State:     AutoPaused",
                "Reason:    revision 5djmrzzhj3 failed on node-1",
                "           (ImagePullBackOff): the roll-out is stopped",
            ]
        );
        status["observedGeneration"] = json!(2);
        assert_eq!(
            shown(&status)[4..],
            [
                "State:     Unobserved",
                "Reason:    the operator has not seen this spec yet"
            ]
        );
    }

    #[test]
    fn failing_pods_have_their_last_lines_and_others_the_reason_first() {
        let shown = |cell, reason: &str, lines: &[&str]| NodeCell {
            cell,
            node: "n1".to_owned(),
            group: String::new(),
            pod: Some(Noted {
                pod: "n1-abc".to_owned(),
                reason: reason.to_owned(),
                lines: lines.iter().map(ToString::to_string).collect(),
            }),
        };
        let fails = shown(
            Cell::Failed,
            "CrashLoopBackOff, 4 restarts",
            &["no such file"],
        );
        let starts = shown(Cell::Starting, "ContainerCreating", &[]);
        let cells = cells(8, 0, |i| if i < 7 { Cell::Failed } else { Cell::Starting });
        assert_eq!(
            screen(&pods(&[fails, starts], &cells, page(80)), 80),
            [
                "",
                "Failing pods (1 of 7):",
                "  ✗ CrashLoopBackOff, 4 restarts  n1  n1-abc",
                "      no such file",
                "",
                "Not Ready for more than a minute:",
                "  ◐ ContainerCreating  n1  n1-abc",
            ]
        );
        assert!(pods(&[], &cells, page(80)).is_empty());
    }

    #[test]
    fn a_line_of_text_sums_up_a_frame() {
        let text = |generation: i64, cells: &[NodeCell]| {
            let status = json!({"observedGeneration": generation, "state": "Rolling 50%"});
            let object = object(&json!({"image": "nginx:1.29"}), &status);
            summary(&object, cells).render(None, Colour::OFF)
        };
        let cells = cells(4, 0, |i| if i < 2 { Cell::New } else { Cell::Old });
        let nodes = "revision 5djmrzzhj3: 2 new, 2 old";
        assert_eq!(text(3, &cells), format!("Rolling 50%, {nodes}"));
        assert_eq!(text(2, &cells), format!("Unobserved, {nodes}"));
        assert_eq!(text(3, &[]), "Rolling 50%, revision 5djmrzzhj3: no nodes");
    }
}
