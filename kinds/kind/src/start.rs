//! How the reconciler of a kind starts.

use clap::{ArgMatches, Command};
use futures::future::BoxFuture;

use wall_clock_controller::reconcile::Context;

/// What a reconciler does until its context is cancelled.
pub type Run = BoxFuture<'static, anyhow::Result<()>>;

/// How the reconciler of a kind starts.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// Without flags of its own.
    Plain(fn(Context) -> Run),
    /// With flags of `run` that only this kind knows.
    WithFlags {
        /// Adds them to the command.
        flags: fn(Command) -> Command,
        /// Starts the reconciler with their values.
        start: fn(Context, &ArgMatches) -> Run,
    },
}

impl Start {
    /// Adds the flags of the kind, if it has any.
    pub fn flags(self, command: Command) -> Command {
        match self {
            Self::Plain(_) => command,
            Self::WithFlags { flags, .. } => flags(command),
        }
    }

    /// Starts the reconciler. `matches` has the flags of every kind.
    pub fn run(self, context: Context, matches: &ArgMatches) -> Run {
        match self {
            Self::Plain(start) => start(context),
            Self::WithFlags { start, .. } => start(context, matches),
        }
    }

    /// Starts the reconciler with the defaults of its flags.
    ///
    /// # Errors
    /// When a flag has no default.
    pub fn run_with_defaults(self, context: Context) -> Result<Run, clap::Error> {
        let command = self.flags(Command::new("run").no_binary_name(true));
        let matches = command.try_get_matches_from(std::iter::empty::<&str>())?;
        Ok(self.run(context, &matches))
    }
}
