//! One call to the API server, with a time limit and errors that name the call.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::explain;

/// The default time limit of one call. The client itself would wait, and retry, for minutes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The verb as in an RBAC rule: get, create, update, patch.
    pub verb: &'static str,
    /// The resource as in an RBAC rule: secrets, namespaces...
    pub resource: &'static str,
    /// The object's namespace, if its kind has one.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            resource,
            namespace,
            name,
        } = self;
        match namespace {
            Some(namespace) => write!(f, "{verb} {resource} {namespace}/{name}"),
            None => write!(f, "{verb} {resource} {name}"),
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// RBAC does not allow it.
    #[error("not allowed to {} {}{}: {message}", .call.verb, .call.resource, within(.call))]
    Forbidden {
        /// What was tried.
        call: Call,
        /// The API server's words.
        message: String,
    },
    /// Another client changed the object between our read and our write.
    #[error("{call}: changed by someone else meanwhile")]
    Conflict {
        /// What was tried.
        call: Call,
    },
    /// The object exists already.
    #[error("{call}: exists already")]
    AlreadyExists {
        /// What was tried.
        call: Call,
    },
    /// The object, or the namespace that it should be in, does not exist.
    #[error("{call}: {message}")]
    NotFound {
        /// What was tried.
        call: Call,
        /// The API server's words.
        message: String,
    },
    /// The call timed out.
    #[error("{call}: no answer within {timeout:.1?}")]
    Timeout {
        /// What was tried.
        call: Call,
        /// The time limit.
        timeout: Duration,
    },
    /// Any other error: of the network, or a rejection.
    #[error("{call}: {}", explain(source.as_ref()))]
    Other {
        /// What was tried.
        call: Call,
        /// The client's error.
        source: Box<kube::Error>,
    },
}

fn within(call: &Call) -> String {
    match &call.namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None => format!(" {}", call.name),
    }
}

impl Error {
    /// Another client was faster: read again at once instead of backing off.
    pub fn lost_race(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::AlreadyExists { .. })
    }
}

impl Call {
    /// Waits for `answer`, for the default time limit at most.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn run<T>(
        self,
        answer: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        self.run_within(TIMEOUT, answer).await
    }

    /// Waits for `answer`, for `timeout` at most.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn run_within<T>(
        self,
        timeout: Duration,
        answer: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        let Ok(result) = tokio::time::timeout(timeout, answer).await else {
            return Err(Error::Timeout {
                call: self,
                timeout,
            });
        };
        result.map_err(|error| match error {
            kube::Error::Api(status) if status.is_forbidden() => Error::Forbidden {
                call: self,
                message: status.message.clone(),
            },
            kube::Error::Api(status) if status.is_conflict() => Error::Conflict { call: self },
            kube::Error::Api(status) if status.is_already_exists() => {
                Error::AlreadyExists { call: self }
            }
            kube::Error::Api(status) if status.is_not_found() => Error::NotFound {
                call: self,
                message: status.message.clone(),
            },
            source => Error::Other {
                call: self,
                source: Box::new(source),
            },
        })
    }
}
