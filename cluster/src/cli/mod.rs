//! The command line and its exit codes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use my_operator_cluster::binaries::{self, Programs};
use my_operator_cluster::{FakeNode, Options};

mod background;
mod demo;
mod exec;
mod follow;
mod image;
mod stop;

/// A real local Kubernetes control plane with fake nodes, on loopback ports.
#[derive(Debug, Parser)]
#[command(name = "my-operator-cluster", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster in the background
    Up(Nodes),
    /// Say whether a cluster is up in the background (exit code 1: no)
    Status,
    /// Stop the cluster in the background and remove everything of it
    Down,
    /// Run a command with a cluster of its own: KUBECONFIG set, kubectl on PATH, its exit code passed on
    Exec {
        #[command(flatten)]
        nodes: Nodes,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<std::ffi::OsString>,
    },
    /// Run the operator on a cluster of its own and show what it does
    Demo {
        #[command(flatten)]
        nodes: Nodes,
        /// The operator's binary
        #[arg(long, value_name = "FILE")]
        operator: PathBuf,
        /// The directory with crd/bases and samples
        #[arg(long, value_name = "DIR")]
        config: PathBuf,
        /// Further arguments of the operator's `run`
        #[arg(last = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Write the image of a Dockerfile whose last stage runs nothing, as `docker save` does
    Image(image::Arguments),
    /// What `up` starts
    #[command(hide = true)]
    Serve(Nodes),
}

impl Command {
    /// Whether it needs the programs of a real node.
    fn has_real_node(&self) -> bool {
        match self {
            Self::Up(nodes)
            | Self::Serve(nodes)
            | Self::Exec { nodes, .. }
            | Self::Demo { nodes, .. } => nodes.real_node,
            Self::Status | Self::Down | Self::Image(_) => false,
        }
    }
}

#[derive(Debug, clap::Args)]
struct Nodes {
    /// How many fake nodes, named node-1, node-2 and so on
    #[arg(long = "nodes", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=5000))]
    count: u16,
    /// A node more, named real-node, that runs containers (root, with what `make e2e` needs)
    #[arg(long)]
    real_node: bool,
}

/// What the real node is called.
const REAL_NODE: &str = "real-node";

impl Nodes {
    fn options(&self) -> Options {
        let nodes = (1..=self.count)
            .map(|number| FakeNode::new(format!("node-{number}")))
            .collect();
        Options {
            nodes,
            real_node: self.real_node.then(|| REAL_NODE.to_owned()),
            ..Options::default()
        }
    }
}

/// Runs the command line. A wrong one ends the process with exit code 2 here.
pub(crate) fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            binaries::report("my-operator-cluster", &format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    // Before a runtime exists, and so that Ctrl-C ends a build of minutes as it ends any program.
    if !matches!(command, Command::Status | Command::Down | Command::Image(_)) {
        if command.has_real_node() {
            Programs::ensure_with_node()?;
        } else {
            Programs::ensure()?;
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match command {
            Command::Image(arguments) => image::write(&arguments),
            Command::Up(nodes) => background::up(nodes.count, nodes.real_node).await,
            Command::Status => background::status(),
            Command::Down => background::down().await,
            Command::Serve(nodes) => background::serve(nodes.options()).await,
            Command::Exec { nodes, command } => exec::exec(nodes.options(), &command).await,
            Command::Demo {
                nodes,
                operator,
                config,
                arguments,
            } => {
                demo::Demo {
                    operator,
                    config,
                    arguments,
                }
                .run(nodes.options())
                .await
            }
        }
    })
}
