//! Prints the next five times of a schedule: `next '30 2 * * *' Europe/Berlin`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use chrono::Utc;
use robfig_cron::{Zone, parse};

fn main() -> io::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let text = arguments.next().unwrap_or_else(|| "@daily".to_owned());
    let name = arguments.next().unwrap_or_else(|| "Etc/UTC".to_owned());
    let Some(zone) = Zone::named(&name) else {
        eprintln!("{name:?} is not a time zone of the IANA database");
        return Ok(ExitCode::FAILURE);
    };
    let schedule = match parse(&text) {
        Ok(schedule) => schedule,
        Err(errors) => {
            for error in errors {
                eprintln!("{error}");
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let start = Utc::now();
    let times = std::iter::successors(schedule.next(&zone, start, start), |last| {
        schedule.next(&zone, start, *last)
    });
    let mut out = io::stdout();
    for time in times.take(5) {
        writeln!(out, "{time}")?;
    }
    Ok(ExitCode::SUCCESS)
}
