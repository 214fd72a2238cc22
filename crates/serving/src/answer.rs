//! One request, from its head to its answer: its whole body is read within bounds, then the router is called. So every
//! limit and its answer is here, and handlers see only complete bodies.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use futures::FutureExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio::time::timeout;
use tower::Service as _;

use super::body::{self, Fault, Whole};
use super::budget::BodyBudget;
use super::counters::{Counters, Rejection};
use super::fairness::Source;
use super::held;
use super::limits::Limits;
use super::turns::Turns;

/// Large bodies that are answered at once, each on a thread.
const LARGE_AT_ONCE: usize = 2;

/// What all requests of a listener share.
pub(super) struct Requests {
    router: Router,
    /// Bytes of bodies, from their arrival to the answer.
    bodies: Arc<BodyBudget>,
    /// Bytes of answers that peers have not taken yet. Apart from those of bodies, which must not wait for peers that
    /// read nothing.
    answers: Arc<BodyBudget>,
    /// Large bodies are answered on threads of their own: one of a network at a time,
    large: Arc<Turns>,
    /// and as many of all networks as there are such threads.
    threads: Arc<Semaphore>,
}

impl Requests {
    pub(super) fn new(router: Router, limits: &Limits) -> Self {
        Self {
            router,
            bodies: BodyBudget::new(limits.bodies_bytes),
            answers: BodyBudget::new(limits.answers_bytes),
            large: Turns::new(1),
            threads: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
        }
    }

    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        source: Source,
        limits: &Limits,
        counters: &Counters,
    ) -> Response<Body> {
        let refused = |reason| {
            counters.reject(reason);
            refusal(reason)
        };
        // A peer that pipelines many requests must not monopolize the thread. And of requests that arrive together, all are
        // read before the first is judged, which takes a tenth less time: the code of each step stays in the cache.
        tokio::task::yield_now().await;
        let (parts, body) = request.into_parts();
        let (body, size, share) = if body.is_end_stream() {
            (Body::empty(), 0, None)
        } else {
            let reading = body::read(body, limits.body_bytes, self.bodies.share(source));
            match timeout(limits.body, reading).await {
                Ok(Ok(Whole { bytes, share })) => {
                    let size = bytes.len();
                    (Body::from(bytes), size, Some(share))
                }
                Ok(Err(Fault::TooLarge)) => return refused(Rejection::BodyTooLarge),
                Ok(Err(Fault::Broken)) => return refused(Rejection::BodyBroken),
                Ok(Err(Fault::NoMemory)) => return refused(Rejection::BodyMemory),
                Err(_) => return refused(Rejection::BodyTimeout),
            }
        };
        let is_large = size > limits.large;
        let turn = if is_large {
            let turn = self.large.take(source).await;
            Some((turn, self.threads.clone().acquire_owned().await))
        } else {
            None
        };
        // The router is a pointer to its routes, and always ready. A panic affects only its request.
        let mut router = self.router.clone();
        let answer = async move {
            // Held until the answer is complete, even if the caller has disconnected by then.
            let _held = (turn, share);
            router.call(Request::from_parts(parts, body)).await
        };
        let answer = AssertUnwindSafe(answer).catch_unwind();
        let answered = if is_large {
            on_another_thread(answer).await
        } else {
            Ok(answer.await)
        };
        match answered {
            Ok(Ok(Ok(response))) => match held::hold(response, self.answers.share(source)).await {
                Some(response) => response,
                None => refused(Rejection::AnswerMemory),
            },
            Ok(Ok(Err(never))) => match never {},
            Ok(Err(panic)) => {
                counters.panic();
                let message = message(&*panic);
                tracing::error!(panic = message, "a request handler panicked");
                failure(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
            }
            Err(_) => failure(StatusCode::SERVICE_UNAVAILABLE, "the process is ending"),
        }
    }
}

/// Runs a future on a thread of its own: it may compute for a tenth of a second, and the worker threads have other
/// connections to serve.
async fn on_another_thread<F>(future: F) -> Result<F::Output, JoinError>
where
    F: Future<Output: Send> + Send + 'static,
{
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(future)).await
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

fn refusal(reason: Rejection) -> Response<Body> {
    let too_many = |message| {
        let mut response = failure(StatusCode::TOO_MANY_REQUESTS, message);
        // With `Retry-After` the API server retries by itself; without it, the user gets the error.
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    };
    // The rest of the body may still arrive, and is not read.
    let closing = |status, message| {
        let mut response = failure(status, message);
        close(&mut response);
        response
    };
    match reason {
        Rejection::BodyMemory => too_many("too many large requests at once"),
        Rejection::AnswerMemory => too_many("too many large answers that were not read"),
        Rejection::BodyTooLarge => closing(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
        Rejection::BodyTimeout => {
            closing(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")
        }
        _ => closing(
            StatusCode::BAD_REQUEST,
            "the body is broken or did not come to its end",
        ),
    }
}

/// Closes the connection after this answer.
pub(super) fn close(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}

/// One line of JSON. `message` must not contain characters that JSON escapes.
fn failure(status: StatusCode, message: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{{\"error\":\"{message}\"}}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
