//! Reads a request's whole body, within bounds.

use axum::body::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;

use super::budget::Share;

/// This much of each body is not counted: a usual review (3 kB) is read even while large bodies hold all shared memory.
/// The number of connections bounds the total of these parts.
pub(super) const FREE: usize = 8 * 1024;

/// The smallest buffer that is allocated.
const MIN_CAPACITY: usize = 4 * 1024;

/// A body, and its share of the memory for bodies.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    pub(super) share: Share,
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is too large, by its announced or its actual length.
    TooLarge,
    /// It ended too early, or is malformed.
    Broken,
    /// There was no memory for it. It was read to its end, so that the connection can be used again, and discarded.
    NoMemory,
}

/// Reads `body` to its end: at most `max` bytes, in memory that `share` must hold.
///
/// Only memory in use is counted, which grows with the bytes received. A peer that announces a large body and sends
/// nothing takes no memory from others.
pub(super) async fn read<B>(mut body: B, max: usize, share: Share) -> Result<Whole, Fault>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = body.size_hint().exact();
    // A body that announces too large a length is not read at all.
    let bound = match announced.map(usize::try_from) {
        Some(Ok(size)) if size <= max => size,
        Some(_) => return Err(Fault::TooLarge),
        None => max,
    };
    let mut held = Vec::new();
    let (mut came, mut counted) = (0, 0);
    // None once there was no memory for it.
    let mut share = Some(share);
    loop {
        let frame = tokio::select! {
            () = revoked(share.as_ref()) => {
                (held, share) = (Vec::new(), None);
                continue;
            }
            frame = body.frame() => frame,
        };
        let Some(frame) = frame else {
            break;
        };
        let frame = frame.map_err(|_| Fault::Broken)?;
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        came += data.len();
        if came > max {
            return Err(Fault::TooLarge);
        }
        let Some(taken) = &mut share else {
            continue;
        };
        if came == data.len() && body.is_end_stream() {
            // It came in one piece, as small bodies do: no copy needed.
            let share = share.ok_or(Fault::NoMemory)?;
            return Ok(Whole { bytes: data, share });
        }
        if came > counted {
            // Grown by a quarter: the counted memory stays close to the bytes received, and little is copied.
            let capacity = (came + came / 4).max(MIN_CAPACITY).min(bound);
            if !taken.grow_to(capacity.saturating_sub(FREE)).await {
                (held, share) = (Vec::new(), None);
                continue;
            }
            // All at once: pages that nothing was written to take no memory, and growing would leave the allocator every
            // smaller copy.
            let want = if announced.is_some() { bound } else { capacity };
            if held.try_reserve_exact(want - held.len()).is_err() {
                (held, share) = (Vec::new(), None);
                continue;
            }
            counted = capacity;
        }
        held.extend_from_slice(&data);
    }
    let share = share.filter(Share::complete).ok_or(Fault::NoMemory)?;
    let bytes = held.into();
    Ok(Whole { bytes, share })
}

async fn revoked(share: Option<&Share>) {
    match share {
        Some(share) => share.revoked().await,
        None => std::future::pending().await,
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

    use super::super::budget::BodyBudget;
    use super::super::fairness::Source;
    use super::*;

    fn source() -> Source {
        std::net::IpAddr::from([10, 0, 0, 1]).into()
    }

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
        let budget = BodyBudget::new(4 << 20);
        for cut in [
            &[][..],
            &[0],
            &[5],
            &[1, 2, 3],
            &[FREE, 1],
            &[FREE + 1, 0, 70_000],
        ] {
            let body = read(pieces(cut), 1 << 20, budget.share(source()));
            let whole = body.await.unwrap();
            assert_eq!(whole.bytes.len(), cut.iter().sum::<usize>(), "{cut:?}");
        }
        assert!(
            budget.share(source()).grow_to(1 << 20).await,
            "all came back"
        );
    }

    #[tokio::test]
    async fn a_body_is_too_large_when_it_says_so_or_becomes_so() {
        let budget = BodyBudget::new(1 << 20);
        let share = || budget.share(source());
        let announced = Full::new(Bytes::from_static(b"four"));
        assert_eq!(
            read(announced, 3, share()).await.unwrap_err(),
            Fault::TooLarge
        );
        let fault = read(pieces(&[2, 2]), 3, share()).await.unwrap_err();
        assert_eq!(fault, Fault::TooLarge);
        assert!(read(pieces(&[2, 1]), 3, share()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn small_bodies_are_read_while_large_ones_hold_all_the_memory() {
        let budget = BodyBudget::new(4 * 2 * FREE);
        let share = || budget.share(source());
        let large = read(pieces(&[FREE, 2 * FREE]), 3 * FREE, share()).await;
        let large = large.unwrap();
        let another = read(pieces(&[FREE, 1]), 8 << 20, share()).await;
        assert_eq!(another.unwrap_err(), Fault::NoMemory);
        let small = read(pieces(&[FREE / 2, FREE / 2]), FREE, share()).await;
        assert_eq!(small.unwrap().bytes.len(), FREE);
        drop(large);
        assert!(read(pieces(&[FREE, 1]), 8 << 20, share()).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_whose_share_is_revoked_is_dropped_and_read_to_its_end() {
        let budget = BodyBudget::new(4 * 1000);
        let mut older = budget.share(source());
        assert!(older.grow_to(1).await);
        let (send, receive) = futures::channel::mpsc::unbounded();
        let mut body = std::pin::pin!(read(
            StreamBody::new(receive),
            8 << 20,
            budget.share(source())
        ));
        let data = |size| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; size])));
        send.unbounded_send(data(FREE / 2)).unwrap();
        assert!(futures::poll!(&mut body).is_pending());
        send.unbounded_send(data(FREE / 3)).unwrap();
        assert!(futures::poll!(&mut body).is_pending());
        assert!(older.grow_to(1000).await);
        send.unbounded_send(data(FREE)).unwrap();
        drop(send);
        assert_eq!(body.await.unwrap_err(), Fault::NoMemory);
    }

    #[tokio::test]
    async fn what_is_counted_is_close_to_what_came() {
        let came = 4 * (1 << 20) + 1;
        let bound = came + came / 4;
        let budget = BodyBudget::new(4 * bound);
        let cut = vec![16 * 1024; came / (16 * 1024)];
        let whole = read(pieces(&cut), 8 << 20, budget.share(source()));
        let whole = whole.await.unwrap();
        assert_eq!(whole.bytes.len(), came - 1);
    }

    #[tokio::test]
    async fn a_body_that_is_announced_but_does_not_come_holds_nothing() {
        let budget = BodyBudget::new(4);
        let mut misers: Vec<_> = (0..100)
            .map(|_| Box::pin(read(Miser(false), 8 << 20, budget.share(source()))))
            .collect();
        for miser in &mut misers {
            assert!(futures::poll!(miser).is_pending());
        }
        assert!(budget.share(source()).grow_to(1).await);
    }
}
