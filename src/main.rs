//! The entry point: crypto provider, command line, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Fails only where one is installed already, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    my_operator::cli::main()
}
