//! The program behind `kubectl at` and its relatives.

use std::process::ExitCode;

fn main() -> ExitCode {
    my_operator_kubectl::main()
}
