//! `kubectl atq`: what is to run, and what it waits for.

use std::io::{self, BufWriter, Write as _};

use admission_rules::text::cut;
use clap::{CommandFactory as _, Parser, ValueEnum};
use jiff::Timestamp;
use kube::core::params::ListParams;
use my_operator_times::moment::Clock;

use super::object::{self, Item};
use super::zone;
use crate::connection::{Connection, Failure, Flags};
use crate::print::{Objects, none_in};
use crate::terminal::{self, Table};
use crate::{Program, block_on, parsed};

/// The program.
pub const PROGRAM: Program = Program {
    name: "kubectl-atq",
    command: Queue::command,
    run: |matches| block_on(parsed::<Queue>(matches)?.run()),
};

/// More characters of a command than this are only shown by `-o wide`.
const MAX_COMMAND: usize = 60;

/// List Ats that are to run or running, in order.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-atq",
    bin_name = "kubectl atq",
    version,
    override_usage = "kubectl atq [flags]"
)]
struct Queue {
    /// List those of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Also list those that are over, with their results
    #[arg(long)]
    all: bool,
    /// Only those with these labels, such as app=report,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// How to print them: wide is a table with whole commands, name is for other commands of kubectl
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
    /// Print no header
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    connection: Flags,
}

// Without a text for each value: clap would make --help a longer page than -h for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Wide,
    Name,
    Json,
    Yaml,
}

/// What the table shows of an At: the object itself, with its template, is not kept.
struct Row {
    due: Option<Timestamp>,
    cells: Vec<String>,
}

impl Queue {
    async fn run(&self) -> Result<u8, Failure> {
        let connection = Connection::new(&self.connection).await?;
        let namespace = (!self.all_namespaces).then_some(connection.namespace.as_str());
        let selected = ListParams {
            label_selector: self.selector.clone(),
            field_selector: (!self.all).then(|| "status.phase!=DONE".to_owned()),
            ..ListParams::default()
        };
        let mut out = BufWriter::new(io::stdout().lock());
        if let Some(format) = self.output.filter(|it| *it != Format::Wide) {
            let mut objects = match format {
                Format::Json | Format::Yaml => {
                    Some(Objects::new(format == Format::Json, &mut out)?)
                }
                Format::Name | Format::Wide => None,
            };
            object::list(&connection, namespace, selected, |text| {
                if let Some(objects) = &mut objects {
                    let object = serde_json::from_str(text).map_err(object::unreadable)?;
                    return objects.add(object, &mut out);
                }
                let name = Item::read(text)?.name;
                let name = terminal::harmless(&name);
                Ok(writeln!(out, "{}/{name}", object::RESOURCE)?)
            })
            .await?;
            if let Some(objects) = objects {
                objects.end(&mut out)?;
            }
        } else {
            let clock = zone::clock();
            let mut rows: Vec<Row> = Vec::new();
            object::list(&connection, namespace, selected, |text| {
                rows.push(self.row(&Item::read(text)?, &clock));
                Ok(())
            })
            .await?;
            if rows.is_empty() {
                none_in(namespace)?;
            } else {
                self.table(rows).write(&mut out, self.width())?;
            }
        }
        out.flush()?;
        Ok(0)
    }

    fn width(&self) -> Option<usize> {
        terminal::width().filter(|_| self.output.is_none())
    }

    fn row(&self, item: &Item, clock: &Clock) -> Row {
        let due = item.due();
        let schedule = || item.spec.schedule.clone().unwrap_or_default();
        let exit = item.status.exit_code.map(|code| code.to_string());
        let mut cells = vec![
            item.name.clone(),
            due.map_or_else(schedule, |due| clock.local(due)),
            due.map(|due| clock.relative(due)).unwrap_or_default(),
            item.state().to_owned(),
            item.status.reason.clone().unwrap_or_default(),
            item.created_by.clone().unwrap_or_default(),
            self.command_cell(&item.command()),
        ];
        if self.all {
            cells.insert(4, exit.unwrap_or_default());
        }
        if self.all_namespaces {
            cells.insert(0, item.namespace.clone());
        }
        Row { due, cells }
    }

    fn command_cell(&self, command: &str) -> String {
        match self.output {
            Some(Format::Wide) => command.to_owned(),
            _ => cut(command, MAX_COMMAND),
        }
    }

    fn table(&self, mut rows: Vec<Row>) -> Table {
        // Those of which nothing is known yet come last. The sort is stable: by name among equals, as the server lists.
        rows.sort_by_key(|row| row.due.unwrap_or(Timestamp::MAX));
        let mut header = vec![
            "NAME", "DUE", "WHEN", "STATE", "REASON", "CREATOR", "COMMAND",
        ];
        if self.all {
            header.insert(4, "EXIT");
        }
        if self.all_namespaces {
            header.insert(0, "NAMESPACE");
        }
        let mut table = Table::new(if self.no_headers { &[] } else { &header });
        for row in rows {
            table.row(row.cells);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_help_is_as_compact_as_that_of_kubectl_at() {
        let help = |flag: &str| {
            let shown = Queue::command().try_get_matches_from(["kubectl-atq", flag]);
            shown.unwrap_err().to_string()
        };
        assert_eq!(help("--help"), help("-h"));
        assert!(help("-h").contains("Usage: kubectl atq [flags]\n"));
    }
}
