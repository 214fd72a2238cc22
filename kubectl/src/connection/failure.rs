//! Failures, in kubectl's words.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::io;

use kube::core::Status;

use super::exchange::TimedOut;
use crate::terminal;

/// Why a command has failed. Shown, it is what goes to standard error, without the newline at the end.
#[derive(Debug)]
pub enum Failure {
    /// The API server refused a request.
    Server(Box<Status>),
    /// No answer came, but the request may have arrived. The sentence stands for itself, as in kubectl.
    Unreachable(String),
    /// Nothing listens there, so that no request has arrived.
    Refused(String),
    /// Anything else, without the `error: ` before it.
    Message(String),
    /// The output could not be written.
    Output(io::Error),
}

impl Failure {
    /// That of a request to `server`.
    pub(super) fn of_request(error: kube::Error, server: &str) -> Self {
        if let kube::Error::Api(status) = error {
            return Self::Server(status);
        }
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(it) = cause {
            let refused = it
                .downcast_ref::<io::Error>()
                .is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused);
            if refused {
                return Self::Refused(format!(
                    "The connection to the server {server} was refused - did you specify the right host or port?"
                ));
            }
            if it.is::<TimedOut>() {
                return Self::Unreachable(format!("Unable to connect to the server: {it}"));
            }
            cause = it.source();
        }
        match &error {
            kube::Error::Service(_) | kube::Error::HyperError(_) => Self::Unreachable(format!(
                "Unable to connect to the server: {}",
                causes(&error)
            )),
            _ => Self::Message(causes(&error)),
        }
    }

    /// Whether the server says that there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Server(status) if status.reason == "NotFound")
    }

    /// Whether the server may answer another time: there was no answer, or one of those that ask to come back.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Server(status) => status.code == 429 || status.code >= 500,
            Self::Unreachable(_) | Self::Refused(_) => true,
            Self::Message(_) | Self::Output(_) => false,
        }
    }
}

impl Failure {
    /// Whether the request may have been carried out all the same.
    pub fn may_have_acted(&self) -> bool {
        match self {
            Self::Server(status) => status.code >= 500,
            Self::Unreachable(_) => true,
            Self::Refused(_) | Self::Message(_) | Self::Output(_) => false,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Server(status) => of_server(status),
            Self::Unreachable(text) | Self::Refused(text) => text.clone(),
            Self::Message(text) => format!("error: {text}"),
            Self::Output(error) => format!("error: cannot write the output: {error}"),
        };
        f.write_str(&terminal::harmless_lines(&text))
    }
}

/// What kubectl prints of a Status (checkErr and StandardErrorMessage in k8s.io/kubectl/pkg/cmd/util/helpers.go).
fn of_server(status: &Status) -> String {
    let Status {
        reason, message, ..
    } = status;
    if reason == "Invalid"
        && let Some(details) = &status.details
    {
        let subject = if details.kind.is_empty() && details.name.is_empty() {
            "The request is invalid".to_owned()
        } else {
            format!("The {} {:?} is invalid", details.kind, details.name)
        };
        let mut seen = BTreeSet::new();
        let causes: Vec<String> = details
            .causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .filter(|cause| seen.insert(cause.clone()))
            .collect();
        return match causes.as_slice() {
            [] if details.kind.is_empty() && details.name.is_empty() && !message.is_empty() => {
                format!("{subject}: {message}")
            }
            [] => subject,
            [cause] => format!("{subject}: {cause}"),
            causes => format!("{subject}: \n* {}", causes.join("\n* ")),
        };
    }
    // The path of the API itself is unknown, and not an object: it has no details.
    let no_object = status.details.as_ref().is_none_or(|it| it.kind.is_empty());
    if status.code == 404 && no_object {
        return "error: the server does not have the resource type: install the operator's CRDs, or look at --context"
            .to_owned();
    }
    match reason.as_str() {
        "Unauthorized" => format!("error: You must be logged in to the server ({message})"),
        "" => format!("Error from server: {message}"),
        reason => format!("Error from server ({reason}): {message}"),
    }
}

/// The error and what caused it, without what a cause repeats of the text before it.
pub(super) fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(it) = cause {
        let next = it.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = it.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn shown(status: serde_json::Value) -> String {
        Failure::Server(serde_json::from_value(status).unwrap()).to_string()
    }

    #[test]
    fn refusals_read_as_kubectls() {
        let forbidden = r#"ats.g is forbidden: User "x" cannot list resource "ats""#;
        assert_eq!(
            shown(json!({"code": 403, "reason": "Forbidden", "message": forbidden})),
            format!("Error from server (Forbidden): {forbidden}")
        );
        assert_eq!(
            shown(json!({"code": 500, "message": "boom\u{1b}[2J"})),
            "Error from server: boom^[[2J"
        );
        assert_eq!(
            shown(json!({"code": 401, "reason": "Unauthorized", "message": "Unauthorized"})),
            "error: You must be logged in to the server (Unauthorized)"
        );
    }

    #[test]
    fn faults_of_fields_are_listed_once_each() {
        let cause = |field: &str| json!({"reason": "FieldValueInvalid", "message": "Required value", "field": field});
        let of = |causes: Vec<serde_json::Value>| json!({"code": 422, "reason": "Invalid", "message": "m", "details": {"kind": "At", "name": "x", "causes": causes}});
        assert_eq!(
            shown(of(vec![cause("a")])),
            r#"The At "x" is invalid: a: Required value"#
        );
        assert_eq!(
            shown(of(vec![cause("a"), cause("b"), cause("a")])),
            "The At \"x\" is invalid: \n* a: Required value\n* b: Required value"
        );
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let server =
            |code: u16| Failure::Server(serde_json::from_value(json!({"code": code})).unwrap());
        assert!(server(503).is_passing() && server(429).is_passing());
        assert!(!server(403).is_passing() && !server(404).is_passing());
    }
}
