//! Structured logs on standard error: text for users, JSON for machines.

use std::io::IsTerminal;

use anyhow::Context;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// Reads a filter.
///
/// # Errors
/// When the filter is malformed, or has a bare word that is not a level: it would be taken for the name of a module,
/// and silence all others.
pub fn filter(text: &str) -> anyhow::Result<EnvFilter> {
    for part in text.split(',').map(str::trim) {
        let is_level = part.parse::<LevelFilter>().is_ok();
        if !is_level && !part.contains('=') {
            anyhow::bail!("{part:?} is not a log level");
        }
    }
    EnvFilter::try_new(text).with_context(|| format!("{text:?} is not a log filter"))
}

/// Starts logging. `level` is a filter as `tracing_subscriber` reads it: `info`, or
/// `info,my_operator=debug`.
///
/// # Errors
/// When `level` is not a filter.
pub fn start(format: Format, level: &str) -> anyhow::Result<()> {
    let filter = filter(level)?;
    // The client logs each failed connection as an error of its own, in addition to ours, which says more. It also logs
    // the whole of an answer that it cannot read, which may contain anything.
    let quiet = "kube_client::client=off".parse();
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
