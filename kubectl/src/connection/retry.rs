//! Requests that the API server puts off are sent again, as kubectl sends them (client-go's rest.Request): it is busy, or
//! has just started.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Sleep;
use tower::retry::Policy;
use tower::{BoxError, retry};

/// So often is a request sent again, as client-go does.
const MAX_RETRIES: u32 = 10;

/// No wait is longer: a person is waiting.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The layer around the client's own and its time limit, which is that of each request.
pub(super) fn layer() -> retry::RetryLayer<Retries> {
    retry::RetryLayer::new(Retries { left: MAX_RETRIES })
}

/// How often one request may still be sent again.
#[derive(Clone)]
pub(super) struct Retries {
    left: u32,
}

/// How long to wait before the request is sent again; `None` if the answer stands.
///
/// 429 says that the request was not carried out. A server error says nothing of the kind, so that only reads are
/// repeated after one, and only if the server says when.
fn wait(method: &Method, response: &Response<impl Sized>) -> Option<Duration> {
    let after = response.headers().get(RETRY_AFTER);
    let after = after
        .and_then(|it| it.to_str().ok())
        .and_then(|it| it.parse().ok());
    let seconds = match response.status() {
        StatusCode::TOO_MANY_REQUESTS => after.unwrap_or(1),
        status if status.is_server_error() && method == Method::GET => after?,
        _ => return None,
    };
    Some(Duration::from_secs(seconds).min(MAX_WAIT))
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for Retries {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Sleep> {
        let response = result.as_ref().ok()?;
        let wait = wait(request.method(), response)?;
        self.left = self.left.checked_sub(1)?;
        Some(tokio::time::sleep(wait))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut clone = Request::new(request.body().try_clone()?);
        request.method().clone_into(clone.method_mut());
        request.uri().clone_into(clone.uri_mut());
        request.headers().clone_into(clone.headers_mut());
        request.extensions().clone_into(clone.extensions_mut());
        Some(clone)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicU32, Ordering};

    use tower::{Layer as _, Service as _, service_fn};

    use super::*;

    fn answer(status: u16, after: Option<&str>) -> Response<()> {
        let mut response = Response::builder().status(status);
        if let Some(after) = after {
            response = response.header(RETRY_AFTER, after);
        }
        response.body(()).unwrap()
    }

    #[test]
    fn only_what_was_not_carried_out_or_changes_nothing_is_sent_again() {
        let seconds = |method: Method, status, after| {
            wait(&method, &answer(status, after)).map(|it| it.as_secs())
        };
        assert_eq!(seconds(Method::POST, 429, Some("3")), Some(3));
        assert_eq!(seconds(Method::POST, 429, None), Some(1));
        assert_eq!(seconds(Method::GET, 429, Some("Fri, 27 Nov 2026")), Some(1));
        assert_eq!(seconds(Method::GET, 503, Some("2")), Some(2));
        assert_eq!(seconds(Method::GET, 503, None), None);
        assert_eq!(seconds(Method::POST, 503, Some("2")), None);
        assert_eq!(seconds(Method::GET, 404, Some("2")), None);
        assert_eq!(
            seconds(Method::GET, 429, Some("99999")),
            Some(MAX_WAIT.as_secs())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_an_answer_or_after_ten_retries() {
        for (busy, status, calls) in [(0, 200, 1), (3, 200, 4), (99, 429, MAX_RETRIES + 1)] {
            let count = AtomicU32::new(0);
            let server = service_fn(|request: Request<Body>| {
                assert_eq!(request.uri(), "/x");
                let is_busy = count.fetch_add(1, Ordering::Relaxed) < busy;
                async move { Ok::<_, BoxError>(answer(if is_busy { 429 } else { 200 }, Some("1"))) }
            });
            let request = Request::post("/x").body(Body::from(vec![1])).unwrap();
            let answer = layer().layer(server).call(request).await.unwrap();
            assert_eq!(answer.status(), status);
            assert_eq!(count.load(Ordering::Relaxed), calls);
        }
    }
}
