//! `Retry-After`, for callers that see only the error of a call.
//!
//! The API server asks a client to wait in the header `Retry-After`; priority and fairness does so with an answer that
//! is not a Status. kube makes its error only from the Status in the body, so this copies the seconds there
//! (`details.retryAfterSeconds`, where the API server itself puts them in a Status).

use axum::body::Bytes;
use axum::http::{Response, header};
use http_body_util::{BodyExt as _, Collected, Either, Full, Limited};
use hyper::body::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;
use serde_json::json;
use tower::BoxError;

/// The maximum size of a rejection.
const MAX_BYTES: usize = 64 * 1024;

/// Copies `Retry-After` into the Status of a rejection.
pub(super) async fn into_status<B>(answer: Response<B>) -> Response<Either<B, Full<Bytes>>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let Some(seconds) = seconds(&answer) else {
        return answer.map(Either::Left);
    };
    let (mut parts, body) = answer.into_parts();
    // Without its body it is still a rejection.
    let text = Limited::new(body, MAX_BYTES).collect().await;
    let text = text.map(Collected::to_bytes).unwrap_or_default();
    let status = with_seconds(&text, parts.status.as_u16(), seconds);
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = serde_json::to_vec(&status).map_or(text, Bytes::from);
    Response::from_parts(parts, Either::Right(Full::new(body)))
}

/// How many seconds a rejection asks to wait. (The header may have a date instead, which no API server sends.)
fn seconds<B>(answer: &Response<B>) -> Option<u32> {
    let status = answer.status();
    let is_refusal = status.is_client_error() || status.is_server_error();
    let header = answer.headers().get(header::RETRY_AFTER);
    let header = header.filter(|_| is_refusal)?;
    header.to_str().ok()?.trim().parse().ok()
}

/// The Status of a rejection, with the seconds.
fn with_seconds(text: &[u8], code: u16, seconds: u32) -> Status {
    let mut status: Status = serde_json::from_slice(text).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(text);
        Status::failure(text.trim(), "").with_code(code)
    });
    // JSON of another server, such as a gateway, reads as a Status without a code.
    if status.code == 0 {
        status.code = code;
    }
    match &mut status.details {
        Some(details) => details.retry_after_seconds = details.retry_after_seconds.max(seconds),
        none => {
            let details = json!({"retryAfterSeconds": seconds});
            *none = serde_json::from_value::<StatusDetails>(details).ok();
        }
    }
    status
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::convert::Infallible;

    use axum::http::Request;
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
