//! `kubectl mydaemonset`: kubectl's rollout verbs for a `MyDaemonSet`, and its nodes at a glance.
//!
//! [`object`] is what is read of a `MyDaemonSet`. The decisions are pure functions of it: [`progress`] has the words of
//! `rollout status`, [`history`] and [`diff`] the revisions, [`edit`] the patches. [`cluster`] makes the requests,
//! [`failing`] reads what failing pods said last, [`rollout`] runs the verbs, [`view`] draws the nodes, and [`migrate`] takes
//! over what a `DaemonSet` has.

mod cluster;
mod diff;
mod edit;
mod failing;
mod history;
mod migrate;
mod object;
mod progress;
mod rollout;
mod view;

use chrono::Utc;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::connection::{Connection, Failure, Flags};
use crate::{Program, block_on};

pub(crate) use object::KIND;

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
    run: |matches| {
        let arguments = Arguments::from_arg_matches(matches)
            .map_err(|error| Failure::Message(error.to_string()))?;
        block_on(arguments.run())
    },
};

/// Roll out MyDaemonSets, and see how far they are.
///
/// NAME is the object's name, or mydaemonset/NAME.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-mydaemonset",
    bin_name = "kubectl mydaemonset",
    version
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
    /// Show the nodes: one cell for each, and what failing pods said last
    Get(view::Get),
    /// Take over the pods of a DaemonSet, node by node; or go back
    Migrate(migrate::Migrate),
}

impl Arguments {
    async fn run(self) -> Result<u8, Failure> {
        let connection = Connection::new(&self.connection).await?;
        match self.command {
            Command::Rollout(verb) | Command::Verb(verb) => verb.run(&connection).await,
            Command::Get(get) => get.run(&connection).await,
            Command::Migrate(migrate) => migrate.run(&connection).await,
        }
    }
}
