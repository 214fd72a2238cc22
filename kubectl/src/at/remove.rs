//! `kubectl atrm`: removes Ats; a running one only with `--force`.

use std::io::{self, Write as _};

use clap::{CommandFactory as _, Parser};
use kube::core::Request;
use kube::core::params::{DeleteParams, Preconditions, PropagationPolicy};
use my_operator_at::crd::Phase;

use super::object::{self, Item, RESOURCE};
use crate::connection::{Connection, Failure, Flags};
use crate::print::{DryRun, reported};
use crate::{Program, block_on, parsed, terminal};

/// The program.
pub const PROGRAM: Program = Program {
    name: "kubectl-atrm",
    command: Remove::command,
    run: |matches| block_on(parsed::<Remove>(matches)?.run()),
};

/// An At may change between reading and deleting it; so often is it read again.
const MAX_ATTEMPTS: usize = 5;

/// Remove Ats, before they run or with their results.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-atrm",
    bin_name = "kubectl atrm",
    version,
    override_usage = "kubectl atrm NAME... [flags]"
)]
struct Remove {
    /// Names of Ats, as kubectl atq lists them
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Also remove one that is running: its command is stopped
    #[arg(long)]
    force: bool,
    /// Do not fail for one that does not exist
    #[arg(long)]
    ignore_not_found: bool,
    /// Remove nothing: client only looks, server also asks for the right to remove
    #[arg(long, value_name = "WHERE", default_value = "none")]
    dry_run: DryRun,
    /// Print the name for other commands of kubectl
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,
    #[command(flatten)]
    connection: Flags,
}

impl Remove {
    async fn run(&self) -> Result<u8, Failure> {
        let connection = Connection::new(&self.connection).await?;
        let mut code = 0;
        for given in &self.names {
            let removed = match self.remove(&connection, given).await {
                Err(failure) if self.ignore_not_found && failure.is_not_found() => Ok(()),
                removed => removed,
            };
            code = code.max(reported(removed)?);
        }
        Ok(code)
    }

    async fn remove(&self, connection: &Connection, given: &str) -> Result<(), Failure> {
        let name = object::name(given)?;
        for _ in 0..MAX_ATTEMPTS {
            let item = Item::read(&object::get(connection, name).await?)?;
            if item.status.phase == Some(Phase::Running) && !self.force {
                let text =
                    format!("at/{name} is running; --force stops its command and removes it");
                return Err(text.into());
            }
            let deleted = match self.dry_run {
                DryRun::Client => Ok(()),
                DryRun::None | DryRun::Server => self.delete(connection, &item).await,
            };
            match deleted {
                // It has changed meanwhile: it may have started.
                Err(Failure::Server(status)) if status.reason == "Conflict" => {}
                Err(failure) => return Err(failure),
                Ok(()) => return Ok(self.say(name, &connection.namespace)?),
            }
        }
        Err(format!("at/{name} keeps changing: try again").into())
    }

    /// What kubectl delete says.
    fn say(&self, name: &str, namespace: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let (name, namespace) = (terminal::harmless(name), terminal::harmless(namespace));
        if self.output.is_some() {
            return writeln!(out, "{RESOURCE}/{name}");
        }
        let dry = self.dry_run.suffix();
        writeln!(
            out,
            "{RESOURCE} \"{name}\" deleted from {namespace} namespace{dry}"
        )
    }

    /// Deletes exactly the state that was read.
    async fn delete(&self, connection: &Connection, item: &Item) -> Result<(), Failure> {
        let params = DeleteParams {
            dry_run: self.dry_run == DryRun::Server,
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(item.uid.clone()),
                resource_version: Some(item.resource_version.clone()),
            }),
            ..DeleteParams::default()
        };
        let delete = |ats: Request| ats.delete(&item.name, &params);
        object::send(connection, delete).await.map(drop)
    }
}
