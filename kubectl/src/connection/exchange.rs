//! What happens around every request: its time limit, and the warnings of its answer.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use tower::{BoxError, Layer, Service};

use crate::terminal;

/// More different warnings than this are not remembered, and so can be repeated.
const MAX_WARNINGS: usize = 256;

/// No answer came in time.
#[derive(Debug)]
pub(super) struct TimedOut(Duration);

impl std::fmt::Display for TimedOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no answer within {:?} (--request-timeout)", self.0)
    }
}

impl std::error::Error for TimedOut {}

/// The layer around the client's own.
pub(super) fn layer(timeout: Option<Duration>) -> Exchanges {
    Exchanges {
        timeout: timeout.filter(|it| !it.is_zero()),
        shown: Arc::default(),
    }
}

#[derive(Clone)]
pub(super) struct Exchanges {
    timeout: Option<Duration>,
    /// The warnings that were printed: kubectl prints each one once.
    shown: Arc<Mutex<BTreeSet<String>>>,
}

impl<S> Layer<S> for Exchanges {
    type Service = Exchange<S>;

    fn layer(&self, inner: S) -> Exchange<S> {
        Exchange {
            inner,
            around: self.clone(),
        }
    }
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
        let (call, around) = (self.inner.call(request), self.around.clone());
        Box::pin(async move {
            let answer = match around.timeout {
                None => call.await,
                Some(limit) => match tokio::time::timeout(limit, call).await {
                    Ok(answer) => answer,
                    Err(_) => return Err(TimedOut(limit).into()),
                },
            };
            let answer = answer.map_err(Into::into)?;
            around.warn(answer.headers());
            Ok(answer)
        })
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
