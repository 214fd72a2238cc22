//! `my-operator-cluster`: a real local Kubernetes control plane from the command line.
#![allow(clippy::print_stdout)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
