//! Failures, in kubectl's words.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::io;

use kube::core::Status;
use resilient_kube_client::{of_a_credential_plugin, proxy};
use rustls::CertificateError;

use super::exchange::TimedOut;
use crate::terminal;

/// The reason of a Status that the client makes when it got none.
const NO_STATUS: &str = "Failed to parse error data";
/// Characters of an answer that is no Status.
const MAX_PAGE: usize = 200;

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
        // What is behind a proxy's failure is not the server's.
        for cause in chain(&error).take_while(|cause| !cause.is::<proxy::Failed>()) {
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            if kind == Some(io::ErrorKind::ConnectionRefused) {
                return Self::Refused(format!(
                    "The connection to the server {server} was refused - did you specify the right host or port?"
                ));
            }
        }
        match &error {
            kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
                let cause = unreachable(&error, server);
                Self::Unreachable(format!("Unable to connect to the server: {cause}"))
            }
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Message(format!(
                "the answer of {server} cannot be read: it may be no API server, or its objects are of another version ({})",
                root(&error)
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

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Message(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Message(text.to_owned())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Message(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            // It has lines of its own.
            Self::Server(status) => return f.write_str(&of_server(status)),
            Self::Unreachable(text) | Self::Refused(text) => text.clone(),
            Self::Message(text) => format!("error: {text}"),
            // An error with a text of its own names the file.
            Self::Output(error) if error.get_ref().is_some() => {
                format!("error: cannot write {}", root(error))
            }
            Self::Output(error) => format!("error: cannot write the output: {}", root(error)),
        };
        f.write_str(&terminal::harmless(&text))
    }
}

/// What kubectl prints of a Status (checkErr and StandardErrorMessage in k8s.io/kubectl/pkg/cmd/util/helpers.go). A newline in
/// a text of the server is shown as such: what is after it would read as a line of this program.
fn of_server(status: &Status) -> String {
    let (reason, message) = (
        terminal::harmless(&status.reason),
        terminal::harmless(&status.message),
    );
    if reason == "Invalid"
        && let Some(details) = &status.details
    {
        let subject = if details.kind.is_empty() && details.name.is_empty() {
            "The request is invalid".to_owned()
        } else {
            let kind = terminal::harmless(&details.kind);
            format!("The {kind} {:?} is invalid", details.name)
        };
        let mut seen = BTreeSet::new();
        let causes: Vec<String> = details
            .causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .map(|cause| terminal::harmless(&cause).into_owned())
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
    // The client's own, for an answer that is no Status: perhaps a page of something that is no API server.
    if reason == NO_STATUS {
        let start: String = message.chars().take(MAX_PAGE).collect();
        return format!("Error from server: HTTP status {}: {start}", status.code);
    }
    match &*reason {
        "Unauthorized" => format!("error: You must be logged in to the server ({message})"),
        "" => format!("Error from server: {message}"),
        reason => format!("Error from server ({reason}): {message}"),
    }
}

/// The error and what caused it, one after the other. Many libraries pass their causes on as `io::Error`, which hides itself.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        inner
            .map(|inner| inner as &(dyn Error + 'static))
            .or_else(|| error.source())
    })
}

/// Why no answer came, in kubectl's words where it has some. The layers of the client say nothing that helps: "client error".
fn unreachable(error: &kube::Error, server: &str) -> String {
    if let Some(text) = of_a_credential_plugin(error) {
        return text;
    }
    for cause in chain(error) {
        if cause.is::<proxy::Failed>() {
            return causes(cause);
        }
        if cause.is::<TimedOut>() {
            return cause.to_string();
        }
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return match error {
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                    "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
                }
                rustls::Error::InvalidCertificate(why) => {
                    format!("tls: failed to verify certificate: {why}")
                }
                other => format!("tls: {other}"),
            };
        }
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::TimedOut) {
            return "i/o timeout".to_owned();
        }
    }
    let cause = root(error);
    match cause.strip_prefix(LOOKUP) {
        Some(why) => format!("lookup {server}{why}"),
        None => cause,
    }
}

/// What the standard library says before the reason why a host has no address.
const LOOKUP: &str = "failed to lookup address information";

/// The last cause, in one line, without the numbers of the system.
pub(crate) fn root(error: &(dyn Error + 'static)) -> String {
    plain(&chain(error).last().unwrap_or(error).to_string())
}

/// The first line of a library's text: further ones draw the place of a mistake.
fn plain(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let end = line.find(" (os error ").unwrap_or(line.len());
    line.get(..end).unwrap_or(line).to_owned()
}

/// The error and what caused it, without what a cause repeats of the text before it.
pub(super) fn causes(error: &(dyn Error + 'static)) -> String {
    if let Some(text) = of_a_credential_plugin(error) {
        return text;
    }
    let mut text = String::new();
    for cause in chain(error) {
        let next = plain(&cause.to_string());
        if text.is_empty() {
            text = next;
        } else if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
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
    fn a_newline_of_the_server_begins_no_line_of_ours() {
        let forged = "no\nerror: your token is no longer valid";
        for status in [
            json!({"code": 500, "message": forged}),
            json!({"code": 403, "reason": forged, "message": forged}),
            json!({"code": 401, "reason": "Unauthorized", "message": forged}),
            json!({"code": 422, "reason": "Invalid", "message": forged, "details": {}}),
            json!({"code": 422, "reason": "Invalid", "details": {"kind": forged, "name": forged,
                "causes": [{"field": forged, "message": forged}]}}),
        ] {
            let text = shown(status);
            assert_eq!(text.lines().count(), 1, "{text}");
        }
        let message = Failure::Message(forged.to_owned()).to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
    }

    #[test]
    fn a_server_that_is_not_there_is_explained_without_the_words_of_libraries() {
        let io = |kind| io::Error::new(kind, "client error (os error 1)");
        let wrapped = |error: io::Error| {
            let outer = io::Error::other(io::Error::other(error));
            Failure::of_request(kube::Error::Service(Box::new(outer)), "h:6443").to_string()
        };
        assert_eq!(
            wrapped(io(io::ErrorKind::ConnectionRefused)),
            "The connection to the server h:6443 was refused - did you specify the right host or port?"
        );
        for (error, words) in [
            (io(io::ErrorKind::TimedOut), "i/o timeout"),
            (io(io::ErrorKind::HostUnreachable), "client error"),
            (
                io::Error::other(rustls::Error::InvalidCertificate(
                    CertificateError::UnknownIssuer,
                )),
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ),
            (
                io::Error::other("failed to lookup address information: Name or service not known"),
                "lookup h:6443: Name or service not known",
            ),
        ] {
            let expected = format!("Unable to connect to the server: {words}");
            assert_eq!(wrapped(error), expected);
        }
        let page = format!("<html>\n{}", "x".repeat(9999));
        let page = shown(json!({"code": 502, "reason": NO_STATUS, "message": page}));
        assert!(
            page.starts_with("Error from server: HTTP status 502: <html>\\nxxx"),
            "{page}"
        );
        assert!(page.len() < 300, "{page}");
        let html = serde_json::from_str::<serde_json::Value>("<html>").unwrap_err();
        let text = Failure::of_request(kube::Error::SerdeError(html), "h:6443").to_string();
        assert!(
            text.starts_with("error: the answer of h:6443 cannot be read"),
            "{text}"
        );
    }

    #[test]
    fn what_could_not_be_written_is_named() {
        let full = || io::Error::from_raw_os_error(28);
        let named = io::Error::new(full().kind(), format!("/x/kubectl-atq: {}", full()));
        for (error, words) in [
            (full(), "the output: No space left on device"),
            (named, "/x/kubectl-atq: No space left on device"),
        ] {
            let expected = format!("error: cannot write {words}");
            assert_eq!(Failure::Output(error).to_string(), expected);
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let server =
            |code: u16| Failure::Server(serde_json::from_value(json!({"code": code})).unwrap());
        assert!(server(503).is_passing() && server(429).is_passing());
        assert!(!server(403).is_passing() && !server(404).is_passing());
    }
}
