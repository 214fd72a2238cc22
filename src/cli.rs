//! The command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::run::flags::Flags;
use crate::run::traces;
use my_operator_admit as admit;

use crate::check;
use crate::kinds::{self, REGISTRY};
use crate::manifests;
use my_operator_telemetry::logs;
use my_operator_telemetry::traces::Traces;

/// A Kubernetes operator: admission webhooks and reconcilers of its kinds in one process.
#[derive(Debug, Parser)]
#[command(name = "my-operator", version, max_term_width = 100, after_help = help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve webhooks and reconcile.
    Run(Box<Flags>),
    /// Print, or write, CRDs, webhook configurations and RBAC; write samples and JSON schemas, too.
    Manifests {
        /// Write the generated files of config/ into this folder; without it, all objects of the kinds are
        /// printed.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// The kinds to install, separated by commas, and no others. Without any, those that are on by default, and
        /// with --out the others as the component sample-kinds.
        #[arg(long, value_name = "KINDS")]
        kinds: Option<String>,
        /// Write the files of this config/ that are not generated, too: all that the kinds need is then in the folder.
        /// Its component namespaced is for --namespace, or else for the namespaces that it has in this config/.
        #[arg(long, value_name = "DIR", requires = "out")]
        from: Option<PathBuf>,
        /// Write the reference of fields into the folder `reference` of this one.
        #[arg(long, value_name = "DIR", requires = "out")]
        docs: Option<PathBuf>,
        /// Write what the templates of the Helm chart read of the kinds into the folder `files` of this one.
        #[arg(long, value_name = "DIR", requires = "out")]
        chart: Option<PathBuf>,
        /// Write only the component of an operator that works in this namespace alone; repeatable. It is for the
        /// kinds of the config/ in the folder of --out; with --from, all of a config/ is written.
        #[arg(
            long = "namespace",
            value_name = "NAMESPACE",
            requires = "out",
            conflicts_with_all = ["docs", "chart"]
        )]
        namespaces: Vec<String>,
    },
    /// Write a development CA and a serving certificate: ca.crt, tls.crt, tls.key.
    Certs {
        /// The folder to write to. It is made when missing; files of those names are replaced.
        #[arg(long, value_name = "DIR", default_value = "certs")]
        out: PathBuf,
        /// A host name or IP address that the certificate is good for; repeatable.
        #[arg(long = "host", value_name = "HOST", default_values = ["localhost", "127.0.0.1"])]
        hosts: Vec<String>,
    },
    /// Judge manifests by the rules of the webhooks, without a cluster.
    #[command(after_help = ADMIT_HELP)]
    Admit(admit::Flags),
    /// Check an installation, or with --pre whether one can be made.
    #[command(after_help = CHECK_HELP)]
    Check(check::Flags),
}

/// The kinds, what to begin with, and where to read on.
fn help() -> String {
    let names = |by_default: bool| {
        let kinds = REGISTRY.iter().filter(|kind| kind.by_default == by_default);
        let names = kinds.map(|kind| (kind.admission.resource)().kind);
        names.collect::<Vec<_>>().join(", ")
    };
    format!(
        "Kinds: {}; with --kinds also {}.

  my-operator check --pre                   may it be installed in the cluster of the kubeconfig?
  my-operator run --webhooks=false          reconcile from here, without webhooks
  my-operator admit -f manifests/ -R        judge manifests

Documentation: docs/README.md in the repository.",
        names(true),
        names(false)
    )
}

const ADMIT_HELP: &str = "\
Faults, warnings and notes go to standard output; what cannot be read goes to standard error.
With -o github, both go to standard output.
Exit code: 0 accepted, 1 an object is refused, 2 something could not be read, or no object was given.

  my-operator admit -f manifests/ -R
  my-operator admit -f manifests/ -R -o github
  kustomize build . | my-operator admit -f -";

const CHECK_HELP: &str = "\
Nothing is changed: objects are created only as dry runs. What you may not read is a warning.
Exit code: 0 all is well, perhaps with warnings; 1 something failed (with --strict, or could not be checked); 2 wrong
usage, or no cluster was reached.

  my-operator check --pre
  my-operator check --wait 2m";

/// Runs the command of the command line.
pub fn main() -> ExitCode {
    // clap prints its own one-line errors and ends with code 2.
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Admit(flags) => return judge_manifests(&flags),
        Command::Check(flags) => return check_installation(&flags),
        Command::Run(flags) => run(*flags),
        Command::Manifests {
            out,
            kinds,
            from,
            docs,
            chart,
            namespaces,
        } => {
            let kinds = kinds.as_deref();
            write_manifests(out, kinds, from.as_deref(), docs, chart, &namespaces)
        }
        Command::Certs { out, hosts } => write_certificates(&out, &hosts),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// One line: what failed, and why.
fn complain(error: &anyhow::Error) {
    use std::io::Write as _;
    let _ = writeln!(
        std::io::stderr(),
        "error: {}",
        resilient_kube_client::explain(error.as_ref())
    );
}

fn run(flags: Flags) -> anyhow::Result<()> {
    if let Err(words) = flags.check() {
        Cli::command()
            .error(ErrorKind::ValueValidation, words)
            .exit();
    }
    let level = flags
        .log_level
        .clone()
        .or_else(|| std::env::var("RUST_LOG").ok())
        .filter(|level| !level.is_empty())
        .unwrap_or_else(|| "info".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(flags.worker_threads())
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let traces = {
        let _entered = runtime.enter();
        traces::start(|name| std::env::var(name).ok())?
    };
    let spans = traces.as_ref().map(Traces::layer);
    logs::start(flags.log_format, &level, spans)?;
    runtime.block_on(crate::run::run(flags, traces))
}

fn write_manifests(
    out: Option<PathBuf>,
    names: Option<&str>,
    from: Option<&Path>,
    docs: Option<PathBuf>,
    chart: Option<PathBuf>,
    namespaces: &[String],
) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut kinds = kinds::named(names.unwrap_or_default()).map_err(anyhow::Error::msg)?;
    if let (Some(folder), None, [_, ..]) = (&out, from, namespaces) {
        kinds = manifests::kinds_of(folder, kinds)?;
    }
    let is_default = kinds.is_empty();
    if is_default {
        kinds = kinds::by_default();
    }
    if let Some(folder) = docs {
        manifests::write(&manifests::pages(REGISTRY)?, &folder)?;
    }
    if let Some(folder) = chart {
        manifests::write(&manifests::chart()?, &folder)?;
    }
    let files = match (namespaces, from) {
        (any, Some(folder)) => manifests::tree(folder, &kinds, any)?,
        ([], None) if is_default => manifests::config()?,
        ([], None) => manifests::files(&kinds)?,
        (some, None) => manifests::namespaced(&kinds, some)?,
    };
    match out {
        Some(folder) => manifests::write(&files, &folder),
        None => std::io::stdout()
            .write_all(manifests::stream(&files).as_bytes())
            .context("cannot write to standard output"),
    }
}

fn write_certificates(out: &std::path::Path, hosts: &[String]) -> anyhow::Result<()> {
    use std::io::Write as _;
    let made = webhook_certs::files::development(out, hosts, chrono::Utc::now())?;
    for path in [made.authority, made.certificate, made.key] {
        writeln!(std::io::stdout(), "{}", path.display())
            .context("cannot write to standard output")?;
    }
    Ok(())
}

fn judge_manifests(flags: &admit::Flags) -> ExitCode {
    use std::io;
    let (mut out, mut errors) = (io::stdout().lock(), io::stderr().lock());
    let now = chrono::Utc::now();
    let books: Vec<_> = REGISTRY.iter().map(|kind| kind.rulebook()).collect();
    let in_workflow = std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true");
    match admit::run(flags, books, now, in_workflow, &mut out, &mut errors) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            drop(errors);
            complain(&anyhow::Error::new(error).context("cannot write the report"));
            ExitCode::from(2)
        }
    }
}

fn check_installation(flags: &check::Flags) -> ExitCode {
    use std::io;
    let checked = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?
            .block_on(check::run(flags, &mut io::stdout(), &mut io::stderr()))
    };
    match checked() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_description() {
        fn check(command: &clap::Command) {
            for flag in command.get_arguments() {
                let (of, flag, help) = (command.get_name(), flag.get_id(), flag.get_help());
                assert!(help.is_some(), "{of}: {flag}");
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn the_help_names_every_kind() {
        let help = Cli::command().render_help().to_string();
        for kind in REGISTRY {
            let name = (kind.admission.resource)().kind;
            assert!(help.contains(&*name), "{name}: {help}");
        }
    }

    #[test]
    fn wrong_values_are_refused_with_a_word_on_what_is_right() {
        let refused = |args: &[&str]| {
            let args = ["my-operator", "run"].iter().chain(args);
            Cli::try_parse_from(args).unwrap_err().to_string()
        };
        assert!(refused(&["--leader-elect=x"]).contains("true, false"));
        assert!(refused(&["--kinds", "cron"]).contains("the kinds are"));
        assert!(refused(&["--metrics-bind-address", "x"]).contains("127.0.0.1:8080"));
        assert!(refused(&["--webhook-url", "x"]).contains("https://host:9443"));
    }
}
