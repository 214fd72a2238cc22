//! Errors, each as one line that says what to do (the last lines of a compiler's output come before it).
//!
//! The line holds the cause's text, so causes are fields and not `source()`s, which would be printed twice.

use std::path::PathBuf;
use std::process::Command;

/// Why a program could not be found, built or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no Go toolchain, nothing in the cache and no complete `KUBEBUILDER_ASSETS`.
    #[error(
        "cannot build the {what} ({missing}): install Go 1.26 or newer (https://go.dev/dl) and put it on PATH, or set KUBEBUILDER_ASSETS to a directory that holds these programs"
    )]
    NoGo {
        /// What was to be built: the control plane or the node.
        what: &'static str,
        /// The programs that are neither in `KUBEBUILDER_ASSETS` nor in the cache.
        missing: String,
    },
    /// The Go toolchain is too old for this Kubernetes.
    #[error(
        "{found} is too old to build the {what}: install Go 1.26 or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS"
    )]
    GoTooOld {
        /// What was to be built.
        what: &'static str,
        /// What the toolchain calls itself.
        found: String,
    },
    /// There is no home directory to derive a cache or state directory from.
    #[error("no place for {what}: set HOME or {variable}")]
    NoHome {
        /// What is to be kept there.
        what: &'static str,
        /// The environment variable that would name the place.
        variable: &'static str,
    },
    /// A file or directory cannot be written or read.
    #[error("cannot {action} {}: {cause}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// With which path.
        path: PathBuf,
        /// Why it failed.
        cause: std::io::Error,
    },
    /// `go build` failed.
    #[error("{output}\ngo build of {program} into {} failed: the lines above are the end of its output", directory.display())]
    Build {
        /// Which program.
        program: String,
        /// Where it was to go.
        directory: PathBuf,
        /// The last lines of what `go` printed.
        output: String,
    },
    /// The disk is full, whether that of the cache, of Go's own cache or of its temporary directory.
    #[error(
        "the disk is full while building {program} into {}: {line}",
        directory.display()
    )]
    DiskFull {
        /// Which program.
        program: String,
        /// Where it was to go.
        directory: PathBuf,
        /// What Go said; it names the file that it could not write.
        line: String,
    },
    /// A program cannot be started at all.
    #[error("cannot start {program}: {cause}")]
    Spawn {
        /// Which program.
        program: String,
        /// Why.
        cause: std::io::Error,
    },
    /// This machine, or this user, cannot have a real node.
    #[error("no real node on this machine: {0}")]
    Need(String),
}

impl Error {
    /// Wraps an I/O error with what was tried on which path.
    pub fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::File {
            action,
            path,
            cause,
        }
    }

    /// The error of a program that could not be started, naming it.
    pub fn spawn(command: &Command, cause: std::io::Error) -> Self {
        Self::Spawn {
            program: command.get_program().to_string_lossy().into_owned(),
            cause,
        }
    }
}

/// Prints an error to standard error: quoted text (the end of a log) as is, and the line with the error itself under the
/// name of the program that fails.
pub fn report(program: &str, text: &str) {
    let (quoted, line) = text.rsplit_once('\n').unwrap_or(("", text));
    if !quoted.is_empty() {
        eprintln!("{quoted}");
    }
    eprintln!("{program}: {line}");
}
