//! What people install, made from what is elsewhere: from config/, the OLM bundle (`make bundle`); of the plugins of
//! kubectl, krew's manifests (`make release-manifests`).

mod bundle;
mod krew;
mod rendered;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::rendered::Checkout;

/// Makes what people install.
#[derive(Debug, Parser)]
#[command(name = "my-operator-packaging", version)]
struct Arguments {
    /// The root of the checkout.
    #[arg(long, default_value = ".")]
    checkout: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bundle(bundle::Options),
    Krew(krew::Options),
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Command::Bundle(options) => {
            let out = options.out.as_ref().unwrap_or(&arguments.checkout);
            bundle::write(&Checkout::at(&arguments.checkout)?, options, out)
        }
        Command::Krew(options) => krew::write(options),
    }
}
