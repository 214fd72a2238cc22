//! The command line of the local cluster.
#![allow(clippy::print_stdout)]

fn main() {}
