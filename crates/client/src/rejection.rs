//! What a rejection says, in little memory, with `Retry-After`.
//!
//! The API server asks a client to wait in the header `Retry-After`; priority and fairness does so with an answer that
//! is not a Status. kube makes its error only from the Status in the body, so this copies the seconds there
//! (`details.retryAfterSeconds`, where the API server itself puts them in a Status).
//!
//! A rejection may be a hundred times as long as what was rejected: a sentence for each of 65,000 empty tolerations. It is
//! kept for as long as it lasts, for each object. So no more than its beginning is read.

use bytes::Bytes;
use http::{Response, header};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;
use serde_json::json;
use tower::BoxError;

use super::head;

/// No more bytes of a rejection are read.
const MAX_BYTES: usize = 64 * 1024;
/// The longest message, in bytes. It is kept; the rest is not.
const MAX_MESSAGE_LEN: usize = 2048;

/// Shortens a rejection, and copies `Retry-After` into its Status.
pub(super) async fn shorten<B>(answer: Response<B>) -> Response<Either<B, Full<Bytes>>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let code = answer.status();
    if !code.is_client_error() && !code.is_server_error() {
        return answer.map(Either::Left);
    }
    let seconds = seconds(&answer);
    let (mut parts, body) = answer.into_parts();
    let (text, is_whole) = beginning(body).await;
    let body = match status(&text, is_whole, code.as_u16(), seconds) {
        Some(status) => serde_json::to_vec(&status).unwrap_or_default(),
        None => text,
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Either::Right(Full::new(body.into())))
}

/// The first bytes of a body, and whether they are all. One that breaks off is still a rejection.
async fn beginning<B: Body<Data = Bytes>>(body: B) -> (Vec<u8>, bool) {
    let mut body = std::pin::pin!(body);
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let data = frame.into_data().unwrap_or_default();
        let rest = MAX_BYTES - text.len();
        text.extend_from_slice(&data[..data.len().min(rest)]);
        if data.len() > rest {
            return (text, false);
        }
    }
    (text, true)
}

/// How many seconds a rejection asks to wait. (The header may have a date instead, which no API server sends.)
fn seconds<B>(answer: &Response<B>) -> Option<u32> {
    let header = answer.headers().get(header::RETRY_AFTER)?;
    header.to_str().ok()?.trim().parse().ok()
}

/// The Status of a rejection, with the seconds; `None` for a whole one that is not a Status, if there are no seconds.
fn status(text: &[u8], is_whole: bool, code: u16, seconds: Option<u32>) -> Option<Status> {
    let read = serde_json::from_slice(text).ok();
    if read.is_none() && is_whole && seconds.is_none() {
        return None;
    }
    let mut status: Status = read.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(text);
        // Of a Status that was cut off, the message.
        let message = text
            .split_once("\"message\":\"")
            .map(|(_, message)| message);
        let message = message.map(|message| message.replace("\\\"", "\""));
        Status::failure(message.as_deref().unwrap_or(text.trim()), "").with_code(code)
    });
    // JSON of another server, such as a gateway, reads as a Status without a code.
    if status.code == 0 {
        status.code = code;
    }
    status.message = head(&status.message, MAX_MESSAGE_LEN);
    if let Some(seconds) = seconds {
        match &mut status.details {
            Some(details) => {
                details.retry_after_seconds = details.retry_after_seconds.max(seconds);
            }
            none => {
                let details = json!({"retryAfterSeconds": seconds});
                *none = serde_json::from_value::<StatusDetails>(details).ok();
            }
        }
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::convert::Infallible;

    use http::Request;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, Client};
    use tower::Layer as _;

    use super::*;
    use crate::Answers;

    /// The Status in the caller's error.
    async fn seen(code: u16, retry_after: Option<&'static str>, text: &'static str) -> Status {
        let server = tower::service_fn(move |_: Request<kube::client::Body>| async move {
            let mut answer = Response::builder().status(code);
            if let Some(value) = retry_after {
                answer = answer.header("retry-after", value);
            }
            answer = answer.header("content-length", text.len());
            let body = kube::client::Body::from(text.as_bytes().to_vec());
            Ok::<_, Infallible>(answer.body(body).unwrap())
        });
        let client = Client::new(Answers::default().layer(server), "default");
        let error = Api::<ConfigMap>::default_namespaced(client).get("a").await;
        match error.unwrap_err() {
            kube::Error::Api(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_rejection_is_kept_in_little_memory_however_long_it_is() {
        let text = |message: usize, causes: usize| -> &'static str {
            let cause = json!({"message": "x".repeat(9_000), "field": "y".repeat(9_000)});
            let causes = vec![cause.to_string(); causes].join(",");
            let message = "m".repeat(message);
            let text = format!(
                r#"{{"kind":"Status","message":"{message}","reason":"Invalid","code":422,"details":{{"causes":[{causes}]}}}}"#
            );
            text.leak()
        };
        // The whole of it is read, or not.
        for (message, causes, reason) in [(30_000, 1, "Invalid"), (9_000_000, 1_000, "")] {
            let seen = seen(422, None, text(message, causes)).await;
            assert_eq!((seen.code, seen.reason.as_str()), (422, reason));
            assert!(seen.message.starts_with("mmm") && seen.message.ends_with("m..."));
            assert!(seen.message.len() < 4_096);
            assert!(serde_json::to_string(&seen).unwrap().len() <= MAX_BYTES);
        }
        let page: &'static str = "<html>".repeat(50_000).leak();
        let seen = seen(502, None, page).await;
        assert!(seen.message.starts_with("<html>") && seen.message.len() < 4_096);
    }

    #[tokio::test]
    async fn the_seconds_reach_the_caller_with_any_kind_of_answer() {
        let wait = |status: &Status| {
            let details = status.details.as_ref();
            details.map(|details| details.retry_after_seconds)
        };
        // Of priority and fairness.
        let busy = "Too many requests, please try again later.";
        let status = seen(429, Some("7"), busy).await;
        assert_eq!((wait(&status), status.code), (Some(7), 429));
        assert_eq!(status.message, busy);
        let own = r#"{"kind": "Status", "code": 503, "message": "m", "reason": "r", "details": {"retryAfterSeconds": 9}}"#;
        let status = seen(503, Some("1"), own).await;
        assert_eq!((wait(&status), status.reason.as_str()), (Some(9), "r"));
        let bare = r#"{"kind": "Status", "code": 500, "message": "m"}"#;
        assert_eq!(wait(&seen(500, Some("3"), bare).await), Some(3));
        for header in [None, Some("Tue, 15 Nov 2033 08:12:31 GMT"), Some("-1")] {
            let status = seen(429, header, busy).await;
            assert_eq!((wait(&status), status.message.as_str()), (None, busy));
        }
    }
}
