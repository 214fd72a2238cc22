//! Errors, each as one line that says what to do (the last lines of a log or compiler come before it).
//!
//! The line holds the cause's text, so causes are fields and not `source()`s, which would be printed twice.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

/// Why a cluster could not be built, started or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program could not be found, built or started, a file not be read or written, or this machine cannot have a real
    /// node.
    #[error(transparent)]
    Programs(#[from] my_operator_programs::Error),
    /// A component of the control plane ended while the cluster was starting.
    #[error(
        "{log}\n{component} ended during start ({status}): the lines above are the end of its log"
    )]
    Died {
        /// Its name.
        component: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A wait timed out.
    #[error("waited {seconds} s for {what}, which did not happen; the logs are in {}", logs.display())]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// Where the components' logs are (while the cluster lives).
        logs: PathBuf,
    },
    /// The API server refused a request or could not be reached.
    #[error("cannot {action}: {cause}")]
    Api {
        /// What was tried.
        action: String,
        /// Why it failed.
        cause: Box<kube::Error>,
    },
    /// The cluster's own kubeconfig was not understood.
    #[error("cannot use {}: {message}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A certificate could not be made.
    #[error("cannot make the cluster's certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// No free port was found on an address of this machine.
    #[error("no free port on {address} between {first} and {last}")]
    NoPort {
        /// The address.
        address: IpAddr,
        /// The lowest port tried.
        first: u16,
        /// The highest port tried.
        last: u16,
    },
    /// A program that prepares something of a real node failed.
    #[error("cannot {action}: {output}")]
    Failed {
        /// What was tried.
        action: String,
        /// What the program said.
        output: String,
    },
    /// A component's name that this cluster does not have.
    #[error("no component {name}: the cluster's components are {known}")]
    UnknownComponent {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// Something else of this process failed (a task that panicked).
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// Wraps an I/O error with what was tried on which path.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let wrap = my_operator_programs::Error::file(action, path);
        move |cause| wrap(cause).into()
    }

    /// The error of a program that could not be started, naming it.
    pub(crate) fn spawn(command: &Command, cause: std::io::Error) -> Self {
        my_operator_programs::Error::spawn(command, cause).into()
    }

    /// What a real node lacks on this machine.
    pub(crate) fn need(what: &str) -> Self {
        my_operator_programs::Error::Need(what.to_owned()).into()
    }

    /// Wraps an API error with what was tried.
    pub(crate) fn api(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        move |cause| Self::Api {
            action,
            cause: Box::new(cause),
        }
    }
}
