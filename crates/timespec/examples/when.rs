//! Prints the instant of a timespec, or of `-t [[CC]YY]MMDDhhmm[.SS]`, in the local time zone: `when noon + 3 days`.

use std::io::{self, Write};
use std::process::ExitCode;

use at_timespec::{parse, parse_touch};
use chrono::Local;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let now = Local::now();
    let instant = match words.as_slice() {
        [flag, time] if flag == "-t" => parse_touch(time, &now),
        words => parse(&words.join(" "), &now),
    };
    let written = match &instant {
        Ok(instant) => writeln!(
            io::stdout(),
            "{}",
            instant.with_timezone(&Local).to_rfc3339()
        ),
        Err(error) => writeln!(io::stderr(), "when: {error}"),
    };
    if instant.is_ok() && written.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
