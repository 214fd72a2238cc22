//! The webhooks as a router of axum.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use tracing::{Span, field};

use super::judge::{Admission, Handler, Verdict};
use super::metrics::{Metrics, WebhookMetrics};
use super::review::{self, API_VERSION, KIND, MAX_MESSAGE_LEN, MAX_NAME_LEN, Review};
use super::text::line;

/// The source of the time at which a review is judged. Tests set their own.
pub type Clock = Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>;

struct Webhook {
    path: String,
    judge: Handler,
    clock: Clock,
    metrics: WebhookMetrics,
}

/// A router with two paths for each kind ([`Admission::path`]), to be called with POST, and one-line JSON answers for
/// everything else: 400 for what is not an AdmissionReview, 404, 405 and 415. Every review is answered with 200, a
/// rejection too.
///
/// It reads the whole body, so what serves it has to bound that: bounded-listener does, or a layer such as
/// `RequestBodyLimitLayer` of tower-http. The webhook configurations that name these paths are the program's to create.
///
/// # Panics
/// When a kind is given twice.
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
    let read = read(&parts.headers, body).await;
    // After the wait, which would have to keep it. Its target and level are those that layers for OpenTelemetry ask for; no
    // log has them by default.
    let span = tracing::trace_span!(
        target: "otel::tracing",
        "review",
        otel.name = field::Empty,
        otel.kind = "server",
        otel.status_code = field::Empty,
        http.response.status_code = field::Empty,
        webhook = webhook.path,
        uid = field::Empty,
        kind = field::Empty,
        namespace = field::Empty,
        name = field::Empty,
        operation = field::Empty,
        dry_run = field::Empty,
        allowed = field::Empty,
    );
    let response = match read {
        Ok(body) => judge(&webhook, &body, in_flight.start(), &span),
        Err(refusal) => refusal,
    };
    let status = response.status();
    if !span.is_disabled() {
        span.record("http.response.status_code", status.as_u16());
        if !status.is_success() {
            span.record("otel.status_code", "ERROR");
        }
    }
    in_flight.answered(status.as_u16());
    response
}

async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let media_type = text(header::CONTENT_TYPE).and_then(|value| value.split(';').next());
    let is_json = |media_type: &str| media_type.trim().eq_ignore_ascii_case("application/json");
    if !media_type.is_some_and(is_json) || text(header::CONTENT_ENCODING).is_some() {
        let message = "the body must be application/json, not encoded";
        return Err(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    // The listener has read and bounded the whole body.
    to_bytes(body, usize::MAX)
        .await
        .map_err(|_| error(StatusCode::BAD_REQUEST, "the body did not come to its end"))
}

fn judge(webhook: &Webhook, body: &[u8], start: Instant, span: &Span) -> Response {
    let review = match Review::read(body) {
        Ok(review) => review,
        Err(cause) => {
            return error(
                StatusCode::BAD_REQUEST,
                &format!("not an AdmissionReview: {cause}"),
            );
        }
    };
    if review.api_version != API_VERSION || review.kind != KIND {
        let (version, kind) = (short(&review.api_version), short(&review.kind));
        let message = format!("expected {API_VERSION} {KIND}, got {version} {kind}");
        return error(StatusCode::BAD_REQUEST, &message);
    }
    let Some(request) = review.request else {
        return error(StatusCode::BAD_REQUEST, "the review has no request");
    };
    if let Err(message) = request.check_lengths() {
        return error(StatusCode::BAD_REQUEST, &message);
    }
    let verdict = (webhook.judge)(&request, (webhook.clock)());
    if !span.is_disabled() {
        describe(span, &request, &verdict);
    }
    webhook.metrics.refused(&verdict.faults);
    let us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    // Allowed reviews would fill the log, and the API server's audit log has them.
    if verdict.response.allowed {
        log!(debug, webhook, request, verdict, us);
    } else {
        log!(info, webhook, request, verdict, us);
    }
    json_response(StatusCode::OK, &verdict.response.into_review())
}

/// A review and its verdict, without what the object says.
fn describe(span: &Span, request: &review::Request<'_>, verdict: &Verdict) {
    let (kind, operation) = (short(&request.kind.kind), short(&request.operation));
    span.record("otel.name", format!("{operation} {kind}"));
    span.record("uid", &*short(&request.uid));
    span.record("kind", &*kind);
    span.record("namespace", &*short(&request.namespace));
    span.record("name", &*short(&verdict.name));
    span.record("operation", &*operation);
    span.record("dry_run", request.dry_run.unwrap_or_default());
    span.record("allowed", verdict.response.allowed);
}

/// A review and its verdict in one line. User input is escaped: neither log format escapes all characters that start a new
/// line or reverse the text. A macro, because the level must be a constant.
macro_rules! log {
    ($level:ident, $webhook:ident, $request:ident, $verdict:ident, $us:ident) => {
        tracing::$level!(
            uid = &*short(&$request.uid),
            webhook = $webhook.path,
            kind = &*short(&$request.kind.kind),
            namespace = &*short(&$request.namespace),
            name = &*short(&$verdict.name),
            operation = &*short(&$request.operation),
            user = &*short(&$request.user_info.username),
            dry_run = $request.dry_run.unwrap_or_default(),
            allowed = $verdict.response.allowed,
            faults = $verdict.response.audit_annotations.get("faults"),
            us = $us,
            "admission"
        )
    };
}
use log;

fn short(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if plain && text.len() <= MAX_NAME_LEN {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(line(text, MAX_NAME_LEN))
    }
}

fn error(status: StatusCode, message: &str) -> Response {
    json_response(status, &json!({ "error": line(message, MAX_MESSAGE_LEN) }))
}

fn json_response(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        // All maps in an answer have strings as keys.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
