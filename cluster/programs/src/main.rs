//! `my-operator-programs`: builds what the local cluster and the tests call, and says where it is.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use my_operator_programs::{self as programs, Error, Programs};

/// Build programs of other projects from their Go modules if they are not there yet, and print where they are
#[derive(Debug, Parser)]
#[command(name = "my-operator-programs", version)]
struct Arguments {
    /// What to build
    #[arg(required = true)]
    what: Vec<What>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// etcd, kubectl and the control plane of Kubernetes
    ControlPlane,
    /// kubelet, containerd, runc and others of a real node (root)
    Node,
    /// Helm, in the release that HELM names: 3, 4 (the default) or a path
    Helm,
    /// promtool of Prometheus
    Promtool,
}

impl What {
    /// Where it is, once it is there.
    fn ensure(self) -> Result<PathBuf, Error> {
        match self {
            Self::ControlPlane => {
                Programs::ensure()?;
                programs::cache_directory()
            }
            Self::Node => {
                Programs::ensure_with_node()?;
                programs::node_cache_directory()
            }
            Self::Helm => programs::helm(),
            Self::Promtool => programs::promtool(),
        }
    }
}

fn main() -> ExitCode {
    for what in Arguments::parse().what {
        match what.ensure() {
            Ok(path) => println!("{}", path.display()),
            Err(error) => {
                programs::report("my-operator-programs", &error.to_string());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
