//! How the reconciler of a kind starts.

#[cfg(feature = "controllers")]
use clap::{ArgMatches, Command};
#[cfg(feature = "controllers")]
use futures::future::BoxFuture;

#[cfg(feature = "controllers")]
use wall_clock_controller::reconcile::Context;

/// What a reconciler does until its context is cancelled.
#[cfg(feature = "controllers")]
pub type Run = BoxFuture<'static, anyhow::Result<()>>;

/// How the reconciler of a kind starts.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// It has none: the crate of the kind was built without its feature `controllers`.
    Absent,
    /// Without flags of its own.
    #[cfg(feature = "controllers")]
    Plain(fn(Context) -> Run),
    /// With flags of `run` that only this kind knows.
    #[cfg(feature = "controllers")]
    WithFlags {
        /// Adds them to the command.
        flags: fn(Command) -> Command,
        /// Starts the reconciler with their values.
        start: fn(Context, &ArgMatches) -> Run,
    },
}

#[cfg(feature = "controllers")]
impl Start {
    /// Adds the flags of the kind, if it has any.
    pub fn flags(self, command: Command) -> Command {
        match self {
            Self::Absent | Self::Plain(_) => command,
            Self::WithFlags { flags, .. } => flags(command),
        }
    }

    /// Starts the reconciler. `matches` has the flags of every kind.
    pub fn run(self, context: Context, matches: &ArgMatches) -> Run {
        match self {
            Self::Absent => Box::pin(async { anyhow::bail!("the kind has no reconciler") }),
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
