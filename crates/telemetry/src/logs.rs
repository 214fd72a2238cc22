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

/// What the names of our own crates begin with.
const OURS: &str = "my_operator";

/// Reads a filter. A level alone is that of our own crates: libraries log details for their own developers, so of them
/// only warnings and errors are shown.
///
/// # Errors
/// When the filter is malformed, or has a bare word that is not a level: it would be taken for the name of a module,
/// and silence all others.
pub fn filter(text: &str) -> anyhow::Result<EnvFilter> {
    let (mut levels, mut others) = (Vec::new(), Vec::new());
    for part in text.split(',').map(str::trim) {
        match part.parse::<LevelFilter>() {
            Ok(level) if level > LevelFilter::WARN => {
                levels.extend(["warn".to_owned(), format!("{OURS}={level}")]);
            }
            Ok(level) => levels.push(level.to_string()),
            Err(_) if !part.contains('=') => anyhow::bail!("{part:?} is not a log level"),
            Err(_) => others.push(part.to_owned()),
        }
    }
    // Of two for one crate, the last counts.
    levels.append(&mut others);
    let filter = EnvFilter::try_new(levels.join(","));
    filter.with_context(|| format!("{text:?} is not a log filter"))
}

/// Starts logging. `level` is a [`filter`]: `info`, or `info,my_operator_leader=debug,hyper=info`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_alone_is_that_of_our_own_crates() {
        for (text, directives) in [
            ("debug", "my_operator=debug,warn"),
            ("warn", "warn"),
            ("off", "off"),
            ("info, hyper=debug", "my_operator=info,hyper=debug,warn"),
            ("my_operator=debug,info", "my_operator=debug,warn"),
            ("my_operator=warn,info", "my_operator=warn,warn"),
            (
                "info,my_operator_leader=trace",
                "my_operator_leader=trace,my_operator=info,warn",
            ),
        ] {
            let shown = filter(text).map(|filter| filter.to_string());
            assert_eq!(shown.ok().as_deref(), Some(directives), "{text}");
        }
        for text in ["hyper", "debug,x", "x=y=z"] {
            assert!(filter(text).is_err(), "{text}");
        }
    }
}
