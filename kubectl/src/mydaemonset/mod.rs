//! `kubectl mydaemonset`: kubectl's rollout verbs for a `MyDaemonSet`, and its nodes at a glance.
//!
//! [`object`] is what is read of a `MyDaemonSet`. The decisions are pure functions of it: [`progress`] has the words of
//! `rollout status`, [`history`] and [`diff`] the revisions, [`edit`] the patches. [`cluster`] makes the requests,
//! [`failing`] reads what failing pods said last and [`starting`] why others are not Ready, [`rollout`] runs the verbs,
//! [`list`] has the table of all objects, [`view`] draws the nodes of one, [`why`] says what keeps them behind,
//! [`freeze`] holds everything at once, and [`migrate`] takes over what a `DaemonSet` has.

mod cluster;
mod diff;
mod edit;
mod failing;
mod freeze;
mod history;
mod list;
mod migrate;
mod object;
mod progress;
mod rollout;
mod starting;
mod view;
mod why;

use chrono::Utc;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::connection::{Connection, Failure, Flags};
use crate::{Program, block_on, parsed};

pub(crate) use object::KIND;
pub(crate) use why::NODE;

/// The numbers of an object's revisions, the newest first, each with its cause after a tab.
pub(crate) async fn revisions(connection: &Connection, name: &str) -> Result<Vec<String>, Failure> {
    let object = cluster::get(connection, name).await?;
    let revisions = cluster::revisions(connection, &object).await?;
    let rows = history::table(&revisions, &object, Utc::now());
    // Without the header.
    let rows = rows.into_iter().skip(1).rev();
    Ok(rows
        .map(|[number, .., cause]| format!("{number}\t{cause}"))
        .collect())
}

/// The program.
pub const PROGRAM: Program = Program {
    name: "kubectl-mydaemonset",
    command: Arguments::command,
    run: |matches| block_on(parsed::<Arguments>(matches)?.run()),
};

/// The same by the kind's short name. Its help has the name that it was called by.
pub const SHORT_PROGRAM: Program = Program {
    name: SHORT_NAME,
    command: || {
        let command = Arguments::command().name(SHORT_NAME);
        let examples = EXAMPLES.replace(BIN_NAME, SHORT_BIN_NAME);
        command.bin_name(SHORT_BIN_NAME).after_help(examples)
    },
    ..PROGRAM
};

pub(crate) const SHORT_NAME: &str = "kubectl-mds";
const BIN_NAME: &str = "kubectl mydaemonset";
const SHORT_BIN_NAME: &str = "kubectl mds";

const EXAMPLES: &str = "Examples:
  kubectl mydaemonset get -A                  # all of them, the worst first
  kubectl mydaemonset get web -w              # the nodes of one, as they change
  kubectl mydaemonset why web                 # what keeps which node behind
  kubectl mydaemonset status web --timeout=5m # wait for the end of a roll-out
  kubectl mydaemonset undo web                # back to what was completed last
  kubectl mydaemonset migrate daemonset/web --plan";

/// Roll out MyDaemonSets, and see how far they are.
///
/// NAME is the object's name, or mydaemonset/NAME. kubectl mydaemonset and kubectl mds are the same.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-mydaemonset",
    bin_name = BIN_NAME,
    version,
    after_help = EXAMPLES
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Flags,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The verbs below by kubectl's longer name, such as: kubectl mydaemonset rollout status NAME
    #[command(subcommand)]
    Rollout(rollout::Verb),
    #[command(flatten)]
    Verb(rollout::Verb),
    /// List them, the worst first; with NAME, show its nodes and what failing pods said last
    Get(view::Get),
    /// Say why nodes are behind or have no available pod, and what to do
    Why(why::Why),
    /// Take over the pods of a DaemonSet, node by node; or go back
    Migrate(migrate::Migrate),
    /// Have the operator delete no pod that runs; returns when it is certain that none goes any more
    Freeze(freeze::Freeze),
    /// End a freeze
    Thaw(freeze::Which),
}

impl Arguments {
    async fn run(self) -> Result<u8, Failure> {
        let connection = Connection::new(&self.connection).await?;
        match self.command {
            Command::Rollout(verb) | Command::Verb(verb) => verb.run(&connection).await,
            Command::Get(get) => get.run(&connection).await,
            Command::Why(why) => why.run(&connection).await,
            Command::Migrate(migrate) => migrate.run(&connection).await,
            Command::Freeze(freeze) => freeze.run(&connection).await,
            Command::Thaw(which) => which.run(&connection, None).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_the_name_that_was_called_and_no_example_is_wrapped() {
        for (program, name, other) in [
            (PROGRAM, BIN_NAME, SHORT_BIN_NAME),
            (SHORT_PROGRAM, SHORT_BIN_NAME, BIN_NAME),
        ] {
            let mut command = (program.command)().term_width(80);
            let help = command.render_help().to_string();
            let examples = EXAMPLES.replace(BIN_NAME, name);
            assert!(help.contains(&examples), "{help}");
            assert!(help.contains(&format!("Usage: {name} ")), "{help}");
            assert!(!help.contains(&format!("{other} undo")), "{help}");
            assert!(EXAMPLES.lines().all(|line| line.len() <= 80));
        }
    }
}
