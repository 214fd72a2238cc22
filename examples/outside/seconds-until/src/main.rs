//! Prints the seconds until a time of at(1): `sleep "$(seconds-until noon tomorrow)"`.

use std::process::ExitCode;

use chrono::Local;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let now = Local::now();
    match at_timespec::parse(&words.join(" "), &now) {
        Ok(instant) => {
            // "now" is the start of this minute.
            println!(
                "{}",
                instant.signed_duration_since(now).num_seconds().max(0)
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("seconds-until: {error}");
            ExitCode::FAILURE
        }
    }
}
