//! The paths of the webhooks.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Serialize;
use serde_json::json;

use super::faults::{join, line};
use super::judge::{Admission, Judge};
use super::metrics::{Metrics, WebhookMetrics};
use super::review::{self, API_VERSION, KIND, LONGEST_MESSAGE, Review};
use crate::clock::Clock;

/// The longest body. A review of an UPDATE holds two objects, and an object is at most 1.5 MiB in
/// etcd, but JSON may be a good deal longer than what is stored.
const LONGEST_BODY: usize = 8 * 1024 * 1024;

struct Webhook {
    path: String,
    judge: Judge,
    clock: Clock,
    metrics: WebhookMetrics,
}

/// Two paths for each kind, and one-line JSON answers for everything else.
pub fn router(kinds: &[Admission], clock: &Clock, metrics: &Metrics) -> Router {
    let mut router = Router::new();
    for kind in kinds {
        let name = (kind.resource)().kind;
        for (verb, judge) in [("mutate", kind.mutate), ("validate", kind.validate)] {
            let path = kind.path(verb);
            let webhook = Webhook {
                metrics: metrics.of(&path, &name),
                path: path.clone(),
                judge,
                clock: clock.clone(),
            };
            router = router.route(&path, post(answer).with_state(Arc::new(webhook)));
        }
    }
    router
        .fallback(|| async { error(StatusCode::NOT_FOUND, "no webhook has this path") })
        .method_not_allowed_fallback(|| async {
            error(
                StatusCode::METHOD_NOT_ALLOWED,
                "a webhook is called with POST",
            )
        })
}

async fn answer(State(webhook): State<Arc<Webhook>>, request: Request) -> Response {
    let in_flight = webhook.metrics.begin();
    let (parts, body) = request.into_parts();
    let response = match read(&parts.headers, body).await {
        Ok(body) => judge(&webhook, &body, in_flight.start()),
        Err(refusal) => refusal,
    };
    in_flight.answered(response.status().as_u16());
    response
}

async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let media_type = text(header::CONTENT_TYPE).and_then(|value| value.split(';').next());
    if media_type.map(str::trim) != Some("application/json")
        || text(header::CONTENT_ENCODING).is_some()
    {
        let message = "the body must be application/json, not encoded";
        return Err(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    to_bytes(body, LONGEST_BODY).await.map_err(|cause| {
        if is_too_long(&cause) {
            let message = "the body is longer than 8 MiB";
            error(StatusCode::PAYLOAD_TOO_LARGE, message)
        } else {
            error(StatusCode::BAD_REQUEST, "the body did not come to its end")
        }
    })
}

/// The listener has the same limit: whichever notices first wraps the error in its own.
fn is_too_long(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<http_body_util::LengthLimitError>() || cause.source().is_some_and(is_too_long)
}

fn judge(webhook: &Webhook, body: &[u8], start: Instant) -> Response {
    let review: Review<'_> = match review::read(body) {
        Ok(review) => review,
        Err(cause) => {
            return error(
                StatusCode::BAD_REQUEST,
                &format!("not an AdmissionReview: {cause}"),
            );
        }
    };
    if review.api_version != API_VERSION || review.kind != KIND {
        let got = format!("{} {}", review.api_version, review.kind);
        let message = format!("expected {API_VERSION} {KIND}, got {got}");
        return error(StatusCode::BAD_REQUEST, &message);
    }
    let Some(request) = review.request else {
        return error(StatusCode::BAD_REQUEST, "the review has no request");
    };
    let verdict = (webhook.judge)(&request, (webhook.clock)());
    webhook.metrics.refused(&verdict.faults);
    tracing::info!(
        uid = %request.uid,
        webhook = webhook.path,
        kind = %request.kind.kind,
        namespace = %request.namespace,
        name = verdict.name,
        operation = %request.operation,
        allowed = verdict.response.allowed,
        faults = if verdict.faults.is_empty() { None } else { Some(join(&verdict.faults)) },
        us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
        "admission"
    );
    json_response(StatusCode::OK, &verdict.response.into_review())
}

fn error(status: StatusCode, message: &str) -> Response {
    json_response(status, &json!({ "error": line(message, LONGEST_MESSAGE) }))
}

fn json_response(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        // Nothing that is answered has a map with keys other than texts.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
