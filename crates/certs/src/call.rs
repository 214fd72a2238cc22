//! One call to the API server, with a time limit and errors that name the call.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use kube::client::AuthError;
use kube::core::Status;

/// The time limit of one call. The client itself would wait, and retry, for minutes.
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
    /// The API server rejects it, or cannot be reached.
    #[error("{}", in_words(.call, .source))]
    Api {
        /// What was tried.
        call: Call,
        /// The client's error.
        source: Box<kube::Error>,
    },
    /// The call timed out.
    #[error("{call}: no answer within {timeout:.1?}")]
    Timeout {
        /// What was tried.
        call: Call,
        /// The time limit.
        timeout: Duration,
    },
}

/// An error and its causes in one line: the first line of each, without repetitions.
fn explain(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let first: &(dyn std::error::Error + 'static) = error;
    let mut line = String::new();
    for cause in std::iter::successors(Some(first), |error| error.source()) {
        // It would repeat all that the plugin printed, and so perhaps its secrets.
        if let Some(AuthError::AuthExecRun { .. } | AuthError::AuthExecParse(_)) =
            cause.downcast_ref()
        {
            return "the credential plugin of the kubeconfig failed".to_owned();
        }
        let text = cause.to_string();
        let text = text.lines().next().unwrap_or_default();
        if line.is_empty() {
            text.clone_into(&mut line);
        } else if !line.contains(text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

fn in_words(call: &Call, source: &kube::Error) -> String {
    let message = explain(source);
    match source {
        kube::Error::Api(status) if status.is_forbidden() => {}
        kube::Error::Api(status) if status.is_conflict() => {
            return format!("{call}: changed by another client meanwhile");
        }
        _ => return format!("{call}: {message}"),
    }
    let place = match &call.namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => call.name.clone(),
    };
    let Call { verb, resource, .. } = call;
    format!("not allowed to {verb} {resource} {place}: {message}")
}

impl Error {
    fn is(&self, answer: impl Fn(&Status) -> bool) -> bool {
        let Self::Api { source, .. } = self else {
            return false;
        };
        matches!(source.as_ref(), kube::Error::Api(status) if answer(status))
    }

    /// Another client was faster: read again at once instead of backing off.
    pub fn lost_race(&self) -> bool {
        self.is(Status::is_conflict) || self.is_already_exists()
    }

    /// The object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.is(Status::is_already_exists)
    }

    /// The object, or the namespace that it should be in, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is(Status::is_not_found)
    }
}

impl Call {
    /// Waits for `answer`, for 10 s at most.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn run<T>(
        self,
        answer: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        let (call, timeout) = (self, TIMEOUT);
        match tokio::time::timeout(timeout, answer).await {
            Ok(answer) => answer.map_err(|source| Error::Api {
                call,
                source: Box::new(source),
            }),
            Err(_) => Err(Error::Timeout { call, timeout }),
        }
    }
}
