//! Commands for people, as plugins of kubectl: one program that acts by the name it is called by.
//!
//! kubectl runs `kubectl-at` for `kubectl at`. The other names in [`PROGRAMS`] are links to the same file.
//! [`connection`] turns kubectl's flags into a client and prints failures as kubectl does; [`terminal`] makes text of the
//! server harmless, and lays it out. Neither knows a command.
//!
//! [`at`] and [`mydaemonset`] have the commands. What they know of a kind is the crate of the kind in `kinds/`, without its
//! reconciler; [`complete`] has what a shell completes.

pub mod at;
pub mod complete;
pub mod connection;
mod containers;
mod flags;
mod links;
mod man;
pub mod mydaemonset;
pub mod print;
pub mod terminal;
mod usage;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use connection::Failure;

/// One name of this program, and the command that it is.
pub struct Program {
    /// The name of the file, which is also that of the clap command: `kubectl-at`.
    pub name: &'static str,
    /// Its flags.
    pub command: fn() -> clap::Command,
    /// Runs it; the exit code is 0 unless it says otherwise.
    pub run: fn(&clap::ArgMatches) -> Result<u8, Failure>,
}

impl Program {
    /// Its flags beside these words of a command line, as kubectl takes flags.
    pub(crate) fn parser(&self, words: &[OsString]) -> clap::Command {
        flags::as_kubectl(flags::beside(words, (self.command)()))
    }
}

/// The arguments of a command.
pub(crate) fn parsed<A: FromArgMatches>(matches: &clap::ArgMatches) -> Result<A, Failure> {
    A::from_arg_matches(matches).map_err(|error| error.to_string().into())
}

/// Every command. The first is the one that the program takes itself for under an unknown name.
pub const PROGRAMS: &[Program] = &[
    at::create::PROGRAM,
    at::queue::PROGRAM,
    at::remove::PROGRAM,
    mydaemonset::PROGRAM,
    mydaemonset::SHORT_PROGRAM,
];

/// The exit code after Ctrl-C, as a shell has it: 128 and the number of SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Runs the command that the program's own name stands for.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments
        .first()
        .and_then(|name| Path::new(name).file_name());
    let called = called.map(OsStr::to_string_lossy).unwrap_or_default();
    let plugin = called.replacen(complete::PREFIX, complete::PLUGIN_PREFIX, 1);
    let completes = called.starts_with(complete::PREFIX);
    let Some(program) = program(&plugin) else {
        return ExitCode::FAILURE;
    };
    // Fails only where one is installed already, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if completes {
        let words = arguments.get(1..).unwrap_or_default();
        return written(complete::run(program, words));
    }
    if let [_, flag, folder] = arguments.as_slice() {
        if flag == man::FLAG {
            return written(man::write(Path::new(folder)));
        }
        if flag == links::FLAG {
            return written(links::write(Path::new(folder)));
        }
    }
    let matches = match program.parser(&arguments).try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => return explain(program, &arguments, &error),
    };
    match (program.run)(&matches) {
        Ok(code) => ExitCode::from(code),
        // The reader has gone, as of `kubectl atq | head`: nothing can be written any more.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::FAILURE
        }
        Err(failure) => {
            let _ = writeln!(io::stderr(), "{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Prints help, or what is wrong with the arguments. The text may go to a closed pipe, as of `--help | head`.
fn explain(program: &Program, arguments: &[OsString], error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let plain = (program.command)().try_get_matches_from(arguments);
            let plain = plain.err().filter(|it| it.kind() == error.kind());
            let _ = plain.as_ref().unwrap_or(error).print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::FAILURE
        }
        _ => {
            let words = arguments.get(1..).unwrap_or_default();
            let text = usage::mistake(&(program.command)(), error, words);
            let _ = writeln!(io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

/// The command of this name; else the first, as for a file that was renamed.
fn program(name: &str) -> Option<&'static Program> {
    let called = PROGRAMS.iter().find(|program| program.name == name);
    called.or(PROGRAMS.first())
}

fn written(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{}", Failure::Output(error));
            ExitCode::FAILURE
        }
    }
}

/// Runs a command's requests to their end, on this thread: a second one would only make the start slower.
///
/// # Errors
/// Those of the future, and when the system has no resources for a runtime.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    runtime.block_on(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_chooses_the_command() {
        for expected in PROGRAMS {
            assert_eq!(
                program(expected.name).map(|it| it.name),
                Some(expected.name)
            );
        }
        assert_eq!(program("renamed").map(|it| it.name), Some("kubectl-at"));
    }

    #[test]
    fn the_definitions_of_all_flags_are_consistent() {
        for program in PROGRAMS {
            let command = (program.command)();
            assert_eq!(command.get_name(), program.name);
            command.debug_assert();
        }
    }
}
