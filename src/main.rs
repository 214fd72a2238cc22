//! The program's entry point.
fn main() {}
