//! What happens around every request: its time limit, a line in the log of `-v=6`, and the warnings of its answer.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use tower::layer::layer_fn;
use tower::{BoxError, Layer, Service};

use crate::terminal;

/// More different warnings than this are not remembered, and so can be repeated.
const MAX_WARNINGS: usize = 256;

/// No answer came in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?} (--request-timeout)")]
pub(super) struct TimedOut(Duration);

/// The layer around the client's own. `log` is the address of the server if requests are to be logged.
pub(super) fn layer<S>(
    timeout: Option<Duration>,
    log: Option<String>,
) -> impl Layer<S, Service = Exchange<S>> {
    let around = Exchanges {
        timeout: timeout.filter(|it| !it.is_zero()),
        log: log.map(Arc::from),
        shown: Arc::default(),
    };
    layer_fn(move |inner| Exchange {
        inner,
        around: around.clone(),
    })
}

#[derive(Clone)]
struct Exchanges {
    timeout: Option<Duration>,
    log: Option<Arc<str>>,
    /// The warnings that were printed: kubectl prints each one once.
    shown: Arc<Mutex<BTreeSet<String>>>,
}

pub(super) struct Exchange<S> {
    inner: S,
    around: Exchanges,
}

impl<S, A, B> Service<Request<A>> for Exchange<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let around = self.around.clone();
        let server = around.log.as_ref();
        let line = server.map(|server| LogLine::new(server, request.method(), request.uri()));
        let call = self.inner.call(request);
        Box::pin(async move {
            let answer = match around.timeout {
                None => call.await.map_err(Into::into),
                Some(limit) => match tokio::time::timeout(limit, call).await {
                    Ok(answer) => answer.map_err(Into::into),
                    Err(_) => Err(TimedOut(limit).into()),
                },
            };
            if let Some(line) = line {
                line.write(answer.as_ref().ok().map(Response::status));
            }
            let answer = answer?;
            around.warn(answer.headers());
            Ok(answer)
        })
    }
}

/// A request that is to be logged, as kubectl does it from level 6 on.
struct LogLine {
    request: String,
    sent: Instant,
}

impl LogLine {
    fn new(server: &str, method: &Method, uri: &Uri) -> Self {
        // The layers within this one put the address of the server before the path.
        let server = server.trim_end_matches('/');
        // kube writes `?` before no parameter, and `&` before the first one.
        let path = uri.to_string().replacen("?&", "?", 1);
        let path = path.trim_end_matches('?');
        Self {
            request: format!("{method} {server}{path}"),
            sent: Instant::now(),
        }
    }

    /// The line; without a status if no answer came.
    fn text(&self, status: Option<StatusCode>) -> String {
        let status = status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
        let milliseconds = self.sent.elapsed().as_millis();
        format!("{} {status} in {milliseconds} milliseconds", self.request)
    }

    fn write(&self, status: Option<StatusCode>) {
        let text = self.text(status);
        // Nothing can be done about a standard error that takes no more.
        let _ = writeln!(std::io::stderr(), "{}", terminal::harmless(&text));
    }
}

impl Exchanges {
    /// Prints the warnings that the API server sends with an answer, as kubectl prints them.
    fn warn(&self, headers: &HeaderMap) {
        for value in headers.get_all(http::header::WARNING) {
            let Some(text) = value.to_str().ok().and_then(warning) else {
                continue;
            };
            let Ok(mut shown) = self.shown.lock() else {
                continue;
            };
            if shown.contains(&text) {
                continue;
            }
            let line = terminal::harmless(&text);
            // Nothing can be done about a standard error that takes no more.
            let _ = writeln!(std::io::stderr(), "Warning: {line}");
            if shown.len() < MAX_WARNINGS {
                shown.insert(text);
            }
        }
    }
}

/// The text of a header `299 - "text"` (RFC 7234, 5.5): a quoted string with backslashes before what they escape.
fn warning(header: &str) -> Option<String> {
    let quoted = header.strip_prefix("299 ")?.split_once(" \"")?.1;
    let mut text = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => text.push(chars.next()?),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_has_the_whole_url_the_status_and_the_duration() {
        let uri = Uri::from_static("/api/v1/pods?limit=1");
        let line = LogLine::new("https://h:6443/", &Method::GET, &uri);
        let text = line.text(Some(StatusCode::OK));
        let start = "GET https://h:6443/api/v1/pods?limit=1 200 OK in ";
        assert!(
            text.starts_with(start) && text.ends_with(" milliseconds"),
            "{text}"
        );
        assert!(line.text(None).contains("limit=1 no answer in "));
        for (uri, logged) in [
            ("/ats?&dryRun=All", "/ats?dryRun=All"),
            ("/ats/x?", "/ats/x"),
        ] {
            let line = LogLine::new("https://h", &Method::POST, &Uri::from_static(uri));
            let start = format!("POST https://h{logged} no answer");
            assert!(line.text(None).starts_with(&start), "{uri}");
        }
    }

    #[test]
    fn the_text_of_a_warning_is_unquoted() {
        for (header, text) in [
            (r#"299 - "spec.x is \"old\"""#, Some(r#"spec.x is "old""#)),
            (r#"299 - "a \\ b" "Mon, 01 Jan""#, Some(r"a \ b")),
            (r#"299 - "never ends"#, None),
            (r#"199 - "of a cache""#, None),
            ("299", None),
        ] {
            assert_eq!(warning(header).as_deref(), text, "{header}");
        }
    }
}
