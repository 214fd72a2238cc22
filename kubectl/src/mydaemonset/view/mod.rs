//! `get`: the table of all objects or, with a name, the nodes and how far the roll-out is on each.
//!
//! [cells](mod@cells) has a word for what each node waits for, [`layout`] draws a frame of [lines](mod@line) within the
//! size of the terminal, and [`screen`] puts frames on it. [`live`] keeps the state from watches.

pub(super) mod cells;
pub(super) mod layout;
mod line;
mod live;
mod screen;

use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use chrono::Utc;
use clap::Args;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;

use super::object::{Object, parse_name};
use super::{cluster, failing, list, starting, why};
use crate::connection::{Connection, Failure};
use crate::terminal::{Colour, size};
use cells::{Cell, NodeCell, Noted, cells, group_label, noted};
use layout::Page;
use line::Line;

/// The objects, or the nodes of one.
#[derive(Args, Debug)]
pub(super) struct Get {
    /// The object; all of the namespace if absent
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// List those of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Go on until interrupted: a view that changes on a terminal, else a line for each change
    #[arg(short, long)]
    watch: bool,
    /// Group the nodes by this label; by topologyKey, the zone or the node pool if absent
    #[arg(long, value_name = "LABEL")]
    by: Option<String>,
}

/// So many failing pods are looked at, and so many that take long to become Ready.
const MAX_PODS: usize = 5;
/// A kubelet that does not answer in this time does not delay the others.
const TIMEOUT: Duration = Duration::from_secs(3);
/// What may be wrong without a right to list objects, each with the objects.
const MISSING: [(&str, &str); 2] = [
    (
        "nodes",
        "zones, cordons and nodes without a pod are not shown",
    ),
    (
        "controllerrevisions",
        "domains, and a way back, may be shown wrongly",
    ),
];

impl Get {
    pub(super) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        if let Some(mistake) = self.mistake() {
            return Err(mistake.into());
        }
        let Some(name) = &self.name else {
            return list::run(connection, self.all_namespaces).await;
        };
        let name = parse_name(name)?;
        if self.watch {
            return live::run(connection, &name, self.by.as_deref()).await;
        }
        let object = cluster::get(connection, &name).await?;
        let fleet = why::fleet(connection, &name, Utc::now())
            .await?
            .with_pods()?;
        let missing = MISSING.map(|(kind, _)| kind).into_iter();
        let missing: Vec<&str> = missing.filter(|kind| fleet.lacks(kind)).collect();
        let seen = fleet.seen(&object);
        let label = self.by.as_deref().or_else(|| object.topology_key());
        let label = label.or_else(|| group_label(seen.nodes.as_deref().unwrap_or_default()));
        let cells = cells(&seen, label, Utc::now());
        let pods = look_at(connection, &cells).await;
        let page = Page::new(size(), is_utf8(), self.by.is_some());
        let lines = frame(&object, None, &cells, &pods, &missing, page);
        let mut out = io::stdout().lock();
        for line in rendered(&lines, &io::stdout()) {
            writeln!(out, "{line}")?;
        }
        Ok(0)
    }

    /// Flags that do not go together.
    fn mistake(&self) -> Option<&'static str> {
        match &self.name {
            // kubectl's words.
            Some(_) if self.all_namespaces => {
                Some("a resource cannot be retrieved by name across all namespaces")
            }
            None if self.watch => Some("-w shows the nodes of one MyDaemonSet: name it"),
            None if self.by.is_some() => Some("--by groups the nodes of one MyDaemonSet: name it"),
            _ => None,
        }
    }
}

/// The lines for a terminal, or for what takes its place.
fn rendered(lines: &[Line], stream: &impl IsTerminal) -> Vec<String> {
    let (width, colour) = (size().map(|(width, _)| width), Colour::detect(stream));
    let lines = lines.iter().map(|line| line.render(width, colour));
    lines.collect()
}

/// The first pods that fail, and that take long to become Ready: those worth a closer look.
fn first_noted(cells: &[NodeCell]) -> impl Iterator<Item = (&NodeCell, &Noted)> {
    let of = |cell| noted(cells, cell).take(MAX_PODS);
    of(Cell::Failed).chain(of(Cell::Starting))
}

/// The same with what the closer look shows.
async fn look_at(connection: &Connection, cells: &[NodeCell]) -> Vec<NodeCell> {
    let api = connection.api::<Pod>();
    let nodes = first_noted(cells).map(async |(node, noted)| {
        let look = async {
            let pod = api.get(&noted.pod).await.ok()?;
            let mut found = noted.clone();
            match node.cell {
                Cell::Failed => found.lines = failing::last_lines(&api, &noted.pod, &pod).await,
                _ => found.reason = starting::reason(&pod),
            }
            Some(found)
        };
        let found = tokio::time::timeout(TIMEOUT, look).await.ok().flatten();
        NodeCell {
            pod: found.or_else(|| node.pod.clone()),
            ..node.clone()
        }
    });
    join_all(nodes).await
}

/// Everything that is shown. `lost` says why there is no connection, `missing` what the user may not list.
fn frame(
    object: &Object,
    lost: Option<&str>,
    cells: &[NodeCell],
    pods: &[NodeCell],
    missing: &[&str],
    page: Page,
) -> Vec<Line> {
    let mut lines = layout::header(object, page);
    lines.extend(lost.into_iter().flat_map(|lost| layout::lost(lost, page)));
    lines.push(Line::default());
    lines.extend(layout::nodes(cells, page));
    for (kind, text) in MISSING {
        if missing.contains(&kind) {
            lines.push(Line::new(&format!("You may not list {kind}: {text}.")));
        }
    }
    lines.extend(layout::pods(pods, cells, page));
    lines
}

/// Why a roll-out stopped by itself: the operator's message, and the failing pods.
pub(super) async fn stop(connection: &Connection, object: &Object) -> Result<Vec<String>, Failure> {
    let now = Utc::now();
    let fleet = why::fleet(connection, &object.name, now).await?;
    let mut cells = cells(&fleet.with_pods()?.seen(object), None, now);
    cells.retain(|it| it.cell == Cell::Failed);
    let pods = look_at(connection, &cells).await;
    let page = Page::new(size(), is_utf8(), false);
    let mut lines = layout::header(object, page);
    lines.extend(layout::pods(&pods, &cells, page));
    Ok(rendered(&lines, &io::stderr()))
}

/// What to say of the failure of a watch that is tried again, if anything; the failure if that does not help.
pub(super) fn retried(
    connection: &Connection,
    error: watcher::Error,
) -> Result<Option<String>, Failure> {
    let failure = match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            connection.failure(error)
        }
        watcher::Error::WatchError(status) => Failure::Server(status),
        watcher::Error::WatchFailed(_) => {
            let server = &connection.server;
            return Ok(Some(format!("The connection to the server {server} broke")));
        }
        watcher::Error::NoResourceVersion => return Ok(None),
    };
    match failure {
        // The watch was behind for too long, and begins with a new list.
        Failure::Server(status) if status.code == 410 => Ok(None),
        failure if failure.is_passing() => Ok(Some(failure.to_string())),
        failure => Err(failure),
    }
}

/// Whether the terminal shows UTF-8, as the locale says.
fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    speaks_utf8(locale.as_deref())
}

/// macOS and minimal containers set no locale, and have terminals that show UTF-8 all the same.
fn speaks_utf8(locale: Option<&str>) -> bool {
    let locale = locale.map(str::to_ascii_lowercase);
    locale.is_none_or(|locale| locale.contains("utf-8") || locale.contains("utf8"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mydaemonset::object::tests::object;
    use crate::terminal::Colour;

    #[test]
    fn a_frame_says_what_the_user_may_not_list() {
        let object = object(&json!({"image": "nginx:1.29"}), &Value::Null);
        let shown = |missing: &[&str]| {
            let frame = frame(
                &object,
                None,
                &[],
                &[],
                missing,
                Page::new(None, true, false),
            );
            let lines = frame.iter().map(|line| line.render(None, Colour::OFF));
            lines
                .filter(|line| line.starts_with("You may not"))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(&[]), Vec::<String>::new());
        assert_eq!(
            shown(&["controllerrevisions"]),
            [
                "You may not list controllerrevisions: domains, and a way back, may be shown wrongly."
            ]
        );
        assert_eq!(shown(&["nodes", "controllerrevisions"]).len(), 2);
    }

    #[test]
    fn a_few_pods_of_many_are_looked_at() {
        let cells = (0..30).map(|i| NodeCell {
            node: format!("n{i}"),
            group: String::new(),
            cell: [Cell::Starting, Cell::Failed, Cell::New][i % 3],
            pod: Some(Noted {
                pod: format!("p{i}"),
                ..Noted::default()
            }),
        });
        let cells: Vec<NodeCell> = cells.collect();
        let noted: Vec<&str> = first_noted(&cells).map(|(_, it)| it.pod.as_str()).collect();
        let expected = [
            "p1", "p4", "p7", "p10", "p13", "p0", "p3", "p6", "p9", "p12",
        ];
        assert_eq!(noted, expected);
    }

    #[test]
    fn without_a_name_there_is_a_list_and_nothing_else() {
        let mistake = |name: Option<&str>, all_namespaces, watch, by: Option<&str>| {
            let get = Get {
                name: name.map(str::to_owned),
                all_namespaces,
                watch,
                by: by.map(str::to_owned),
            };
            get.mistake().unwrap_or_default()
        };
        assert_eq!(mistake(None, true, false, None), "");
        assert_eq!(mistake(Some("web"), false, true, Some("zone")), "");
        assert!(mistake(None, false, true, None).ends_with("name it"));
        assert!(mistake(None, true, false, Some("zone")).ends_with("name it"));
        assert_eq!(
            mistake(Some("web"), true, false, None),
            "a resource cannot be retrieved by name across all namespaces"
        );
    }

    #[test]
    fn the_locale_says_whether_there_is_utf_8() {
        for (locale, expected) in [
            (None, true),
            (Some("C.UTF-8"), true),
            (Some("de_DE.utf8"), true),
            (Some("C"), false),
            (Some("en_US.ISO-8859-1"), false),
        ] {
            assert_eq!(speaks_utf8(locale), expected, "{locale:?}");
        }
    }
}
