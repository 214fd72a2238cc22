//! The body of an answer, in memory that its [`Share`] holds.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};

use super::body::FREE;
use super::budget::Share;

/// So much is handed over at a time. Hyper takes pieces until 16 KiB are unwritten (the connection's buffer), so what
/// it holds beside the share is bounded for each connection.
const PIECE: usize = 8 * 1024;

/// The bytes of an answer that are still to be handed over. Their memory is given back with the last piece, or at the end
/// of the connection.
struct Held {
    rest: Bytes,
    /// None once nothing is left.
    share: Option<Share>,
}

/// The response with its body in memory that `share` holds. None: there is not enough memory. It is there already, so
/// waiting for memory would only hold more.
pub(super) async fn hold(response: Response<Body>, mut share: Share) -> Option<Response<Body>> {
    let (parts, body) = response.into_parts();
    // Handlers answer with text that is there already.
    let rest = body.collect().await.ok()?.to_bytes();
    if !share.grow_now(rest.len().saturating_sub(FREE)) || !share.complete() {
        return None;
    }
    let share = Some(share).filter(|_| !rest.is_empty());
    Some(Response::from_parts(parts, Body::new(Held { rest, share })))
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            self.share = None;
            return Poll::Ready(None);
        }
        let most = self.rest.len().min(PIECE);
        // A copy: a part of the whole would keep all of it until the last byte is written.
        let piece = Bytes::copy_from_slice(&self.rest.split_to(most));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::budget::BodyBudget;
    use super::super::fairness::Source;
    use super::*;

    fn source() -> Source {
        std::net::IpAddr::from([10, 0, 0, 1]).into()
    }

    async fn held(budget: &std::sync::Arc<BodyBudget>, size: usize) -> Option<Body> {
        let response = Response::new(Body::from(vec![b'x'; size]));
        hold(response, budget.share(source()))
            .await
            .map(Response::into_body)
    }

    #[tokio::test]
    async fn an_answer_holds_memory_until_its_last_piece_is_taken() {
        let budget = BodyBudget::new(400 * 1024);
        let size = 100 * 1024;
        let mut first = held(&budget, size).await.unwrap();
        assert!(held(&budget, size).await.is_none(), "a quarter is taken");
        assert!(held(&budget, FREE).await.is_some(), "small ones are free");
        let mut came = 0;
        while let Some(frame) = first.frame().await {
            came += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!(came, size);
        let second = held(&budget, size).await.unwrap();
        assert!(held(&budget, size).await.is_none());
        // The connection ended.
        drop(second);
        assert!(held(&budget, size).await.is_some());
    }
}
