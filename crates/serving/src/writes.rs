//! A time limit for answers: a peer that never reads would hold its connection, and the data written to it, for ever.
//! Hyper has no such limit.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::counters::{Counters, Rejection};

/// A stream whose writes fail when the peer has not received all of them in time.
///
/// The time runs from the first write that blocks until everything is written, not from one byte to the next. So a peer
/// that reads a byte now and then is cut off, too. While the peer keeps up, there is no timer.
pub(super) struct TimedWrites<'a, S> {
    stream: S,
    limit: Duration,
    blocked: Option<Pin<Box<Sleep>>>,
    counters: &'a Counters,
}

impl<'a, S> TimedWrites<'a, S> {
    pub(super) fn new(stream: S, limit: Duration, counters: &'a Counters) -> Self {
        Self {
            stream,
            limit,
            blocked: None,
            counters,
        }
    }

    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        let limit = self.limit;
        let timer = self.blocked.get_or_insert_with(|| Box::pin(sleep(limit)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.counters.reject(Rejection::WriteTimeout);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedWrites<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedWrites<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.in_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            // Here, and not after a write, since TLS may have buffered a part of it.
            self.blocked = None;
        }
        self.in_time(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.in_time(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_given_up_and_counted() {
        let counters = Counters::default();
        let (ours, _theirs) = duplex(10);
        let mut ours = TimedWrites::new(ours, LIMIT, &counters);
        let failed = ours.write_all(&[0; 11]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert_eq!(counters.rejected(Rejection::WriteTimeout), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_byte_by_byte_gains_no_time() {
        let counters = Counters::default();
        let (ours, mut theirs) = duplex(10);
        let mut ours = TimedWrites::new(ours, LIMIT, &counters);
        let trickle = async {
            loop {
                tokio::time::sleep(LIMIT / 5).await;
                theirs.read_u8().await.unwrap();
            }
        };
        tokio::select! {
            failed = ours.write_all(&[0; 100]) => assert!(failed.is_err()),
            () = trickle => {}
        }
        assert_eq!(counters.rejected(Rejection::WriteTimeout), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_limit_restarts_once_everything_is_written() {
        let counters = Counters::default();
        let (ours, mut theirs) = duplex(10);
        let mut ours = TimedWrites::new(ours, LIMIT, &counters);
        for _ in 0..5 {
            let late = async {
                tokio::time::sleep(LIMIT / 2).await;
                theirs.read_exact(&mut [0; 20]).await.unwrap();
            };
            let write = async {
                ours.write_all(&[0; 20]).await.unwrap();
                ours.flush().await.unwrap();
            };
            tokio::join!(late, write);
        }
        assert_eq!(counters.rejected(Rejection::WriteTimeout), 0);
    }
}
