//! What people install: from config/, `make chart` and `make bundle`; of the plugins of kubectl, krew's manifests.
//!
//! config/ is the one description of the installation; the Helm chart and the OLM bundle are other forms of it, and no
//! line of theirs is written by hand that could be derived from it.

mod bundle;
mod chart;
mod krew;
mod rendered;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Error, Result};
use clap::{Parser, Subcommand};
use my_operator::kinds;

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
    /// List the objects of config/default with some components.
    Objects {
        /// Names of folders of config/components.
        components: Vec<String>,
    },
    /// Write the OLM bundle: the folder bundle and bundle.Dockerfile.
    Bundle {
        /// The operator's image.
        #[arg(long)]
        image: String,
        /// The URL of the source.
        #[arg(long)]
        source: Option<String>,
        /// The channels of the catalog that offer it; the first is the default.
        #[arg(long, value_delimiter = ',', default_value = "candidate")]
        channels: Vec<String>,
        /// The kinds that it has, separated by commas or blanks; those that are on by default without any.
        #[arg(long, default_value = "")]
        kinds: String,
        /// The folder to write into; the checkout by default.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Names of folders of config/components.
        components: Vec<String>,
    },
    /// Write the Helm chart.
    Chart {
        /// Its folder.
        #[arg(long, default_value = "dist/chart")]
        out: PathBuf,
        /// The image that its values name.
        #[arg(long, default_value = chart::IMAGE)]
        image: String,
    },
    /// Write the manifests of the plugins of kubectl for krew, `krew-NAME.yaml`.
    Krew {
        /// The URL of the folder that the archives will be in.
        #[arg(long)]
        downloads: String,
        /// The URL of the project.
        #[arg(long)]
        homepage: Option<String>,
        /// The folder to write into.
        #[arg(long)]
        out: PathBuf,
        /// Archives with the program for a platform, whose checksums the manifests have.
        #[arg(required = true, value_name = "OS/ARCH=FILE")]
        archives: Vec<krew::Archive>,
    },
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
    let checkout = || Checkout::at(&arguments.checkout);
    match &arguments.command {
        Command::Objects { components } => {
            let mut out = std::io::stdout().lock();
            let components: Vec<&str> = components.iter().map(String::as_str).collect();
            for object in checkout()?.render("default", chart::IMAGE, &[], &[], &components)? {
                writeln!(out, "{}", rendered::title(&object))?;
            }
        }
        Command::Bundle {
            image,
            source,
            channels,
            kinds,
            out,
            components,
        } => {
            let options = bundle::Options {
                image: image.clone(),
                source: source.clone(),
                channels: channels.clone(),
                kinds: kinds::named(kinds).map_err(Error::msg)?,
                components: components.clone(),
            };
            bundle::write(
                &checkout()?,
                &options,
                out.as_ref().unwrap_or(&arguments.checkout),
            )?;
        }
        Command::Chart { out, image } => chart::write(&chart::files(&checkout()?, image)?, out)?,
        Command::Krew {
            downloads,
            homepage,
            out,
            archives,
        } => {
            let options = krew::Options {
                downloads: downloads.clone(),
                homepage: homepage.clone(),
                archives: archives.clone(),
            };
            krew::write(&options, out)?;
        }
    }
    Ok(())
}
