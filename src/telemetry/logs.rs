//! Structured logs on standard error: text for people, JSON for machines.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// Starts logging. `level` is a filter as `tracing_subscriber` reads it: `info`, or
/// `info,my_operator=debug`.
///
/// # Errors
/// When `level` is not a filter.
pub fn start(format: Format, level: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(level)
        .map_err(|cause| anyhow::anyhow!("--log-level {level:?} is not a level: {cause}"))?;
    // The client logs each failed connection as an error of its own, beside ours that says more.
    let quiet = "kube_client::client::builder=off".parse();
    let filter = match quiet {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        Format::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
