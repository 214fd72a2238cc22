//! Reading a request's body as a whole, within bounds.

use axum::body::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;

use super::budget::{Budget, Share};

/// So much of each body is not counted: a usual review (3 kB) is read even while large bodies hold
/// all that is shared. The number of connections bounds what these parts can be together.
pub(super) const FREE: usize = 32 * 1024;

/// No smaller piece of memory is asked for.
const LEAST: usize = 1024;

/// A body, and what it holds of the memory for bodies.
#[derive(Debug)]
pub(super) struct Whole<'a> {
    pub(super) bytes: Bytes,
    pub(super) share: Share<'a>,
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It says that it is too large, or has become so.
    TooLarge,
    /// It ended too early, or is no well-formed body.
    Broken,
    /// Other bodies hold all the memory there is for them. This one was read to its end, so that the
    /// connection can go on, and nothing of it was kept.
    NoMemory,
}

/// Reads `body` to its end: at most `most` bytes, in memory that `budget` still has.
///
/// What is counted is memory that is really held, which grows with the bytes that have come: a peer
/// that announces a large body and sends nothing takes nothing away from others.
pub(super) async fn read<B>(mut body: B, most: usize, budget: &Budget) -> Result<Whole<'_>, Fault>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = body.size_hint().exact();
    // One that says beforehand that it is too large is not read at all.
    let room = match announced.map(usize::try_from) {
        Some(Ok(size)) if size <= most => size,
        Some(_) => return Err(Fault::TooLarge),
        None => most,
    };
    let mut share = budget.share();
    let mut held = Vec::new();
    let mut came = 0;
    let mut kept = true;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Fault::Broken)?;
        // Trailers mean nothing to us.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        came += data.len();
        if came > most {
            return Err(Fault::TooLarge);
        }
        if came == data.len() && body.is_end_stream() {
            // It came in one piece, as small ones do: no need to copy it.
            return Ok(Whole { bytes: data, share });
        }
        let size = came.next_power_of_two().max(LEAST).min(room);
        kept = kept && share.grow_to(size.saturating_sub(FREE));
        if kept {
            held.reserve_exact(size.saturating_sub(held.len()));
            held.extend_from_slice(&data);
        } else {
            held = Vec::new();
            share = budget.share();
        }
    }
    if kept {
        let bytes = held.into();
        Ok(Whole { bytes, share })
    } else {
        Err(Fault::NoMemory)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures::stream::{self, StreamExt as _};
    use http_body_util::{Full, StreamBody};
    use hyper::body::{Frame, SizeHint};

    use super::*;

    /// A body in pieces, as it comes from a socket.
    fn pieces(pieces: &[usize]) -> impl Body<Data = Bytes> + Unpin + use<> {
        let pieces = pieces.to_vec();
        StreamBody::new(stream::iter(pieces).map(|size| {
            let data = Bytes::from(vec![b'x'; size]);
            Ok::<_, Infallible>(Frame::data(data))
        }))
    }

    /// Announces a size, and never sends more than its first byte.
    struct Miser(bool);

    impl Body for Miser {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Pending;
            }
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(8 << 20)
        }
    }

    #[tokio::test]
    async fn a_body_is_the_same_however_it_is_cut() {
        let budget = Budget::new(1 << 20);
        for cut in [
            &[][..],
            &[0],
            &[5],
            &[1, 2, 3],
            &[FREE, 1],
            &[FREE + 1, 0, 70_000],
        ] {
            let whole = read(pieces(cut), 1 << 20, &budget).await.unwrap();
            assert_eq!(whole.bytes.len(), cut.iter().sum::<usize>(), "{cut:?}");
        }
        assert!(budget.take(1 << 20).is_some(), "all came back");
    }

    #[tokio::test]
    async fn a_body_is_too_large_when_it_says_so_or_becomes_so() {
        let budget = Budget::new(1 << 20);
        let announced = Full::new(Bytes::from_static(b"four"));
        assert_eq!(
            read(announced, 3, &budget).await.unwrap_err(),
            Fault::TooLarge
        );
        let fault = read(pieces(&[2, 2]), 3, &budget).await.unwrap_err();
        assert_eq!(fault, Fault::TooLarge);
        assert!(read(pieces(&[2, 1]), 3, &budget).await.is_ok());
    }

    #[tokio::test]
    async fn small_bodies_are_read_while_large_ones_hold_all_the_memory() {
        let budget = Budget::new(3 * FREE);
        let large = read(pieces(&[FREE, 2 * FREE]), 8 << 20, &budget).await;
        let large = large.unwrap();
        assert!(budget.take(1).is_none());
        let another = read(pieces(&[FREE, 1]), 8 << 20, &budget).await;
        assert_eq!(another.unwrap_err(), Fault::NoMemory);
        let small = read(pieces(&[FREE / 2, FREE / 2]), 8 << 20, &budget).await;
        assert_eq!(small.unwrap().bytes.len(), FREE);
        drop(large);
        assert!(read(pieces(&[FREE, 1]), 8 << 20, &budget).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_that_is_announced_but_does_not_come_holds_nothing() {
        let budget = Budget::new(1);
        let mut misers: Vec<_> = (0..100)
            .map(|_| Box::pin(read(Miser(false), 8 << 20, &budget)))
            .collect();
        for miser in &mut misers {
            assert!(futures::poll!(miser).is_pending());
        }
        assert!(budget.take(1).is_some());
    }
}
