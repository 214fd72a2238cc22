//! Stops all requests of the leader's work when the lease has expired.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use rustix::time::{ClockId, clock_gettime};
use tower::{Service, ServiceExt as _};

/// The clock of [`up`].
#[cfg(not(target_vendor = "apple"))]
const UPTIME: ClockId = ClockId::Boottime;
/// macOS has no `CLOCK_BOOTTIME`, but its monotonic clock counts the time asleep too (clock_gettime(3) there).
#[cfg(target_vendor = "apple")]
const UPTIME: ClockId = ClockId::Monotonic;

/// The uptime of the machine. This clock cannot be set, and unlike [`std::time::Instant`] it counts the time that the
/// machine sleeps.
pub(super) fn up() -> Duration {
    let up = clock_gettime(UPTIME);
    let nanoseconds = u32::try_from(up.tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(up.tv_sec).unwrap_or_default(), nanoseconds)
}

/// Open as long as this replica leads: [`Term::fence`](crate::Term::fence). A default one never opens. Cheap to clone.
///
/// Checks in the work would not be enough: a process can be suspended after any of them, with requests on their way
/// through the client. So the check comes right before the bytes are passed to the kernel. Bytes already passed cannot be
/// called back.
///
/// The election's own requests bypass the fence: the elector writes the Lease to open it. The API server rejects a late
/// write by its resource version. The fence does not protect against a hypervisor that suspends the machine: no clock
/// in the machine counts that time.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    /// Nanoseconds by [`up`]: enough for 584 years.
    until: Arc<AtomicU64>,
}

impl Fence {
    /// Whether something may be sent now.
    pub fn is_open(&self) -> bool {
        up().as_nanos() < u128::from(self.until.load(Ordering::Relaxed))
    }

    /// A connector whose connections are those of `inner`, and send only while the fence is open: a write while it is
    /// closed is an error. Proxies and TLS go above it, so that their bytes pass the fence, too.
    pub fn connector<C>(
        &self,
        inner: C,
    ) -> impl Service<Uri, Response = Fenced<C::Response>, Error = C::Error, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + use<C>
    where
        C: Service<Uri, Future: Send + 'static> + Clone + Send + Sync + 'static,
    {
        let fence = self.clone();
        let behind = move |stream| Fenced {
            stream,
            fence: fence.clone(),
        };
        inner.map_response(behind)
    }

    /// Opens the fence until that time by [`up`].
    pub(super) fn open_until(&self, until: Duration) {
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Relaxed);
    }

    /// Closes the fence: nothing more is sent.
    pub(super) fn close(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}

/// A connection behind a [`Fence`], of [`Fence::connector`].
#[derive(Debug)]
pub struct Fenced<S> {
    stream: S,
    fence: Fence,
}

impl<S: Unpin> Fenced<S> {
    /// The connection to write to, if the fence is open.
    fn open(&mut self) -> io::Result<Pin<&mut S>> {
        if self.fence.is_open() {
            Ok(Pin::new(&mut self.stream))
        } else {
            Err(io::Error::other("the lease has expired"))
        }
    }
}

impl<S: Connection> Connection for Fenced<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl<S: Read + Unpin> Read for Fenced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for Fenced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.open()?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open()?.poll_write_vectored(context, bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::future::poll_fn;

    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn nothing_is_sent_when_the_time_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (mut peer, _) = listener.accept().await.unwrap();
        let fence = Fence::default();
        let mut fenced = Fenced {
            stream: TokioIo::new(stream.unwrap()),
            fence: fence.clone(),
        };
        let mut send = async |text: &'static str| {
            let written = poll_fn(|context| {
                let bytes = [io::IoSlice::new(text.as_bytes())];
                Pin::new(&mut fenced).poll_write_vectored(context, &bytes)
            });
            let first = written.await;
            let bytes = text.as_bytes();
            let second = poll_fn(|context| Pin::new(&mut fenced).poll_write(context, bytes)).await;
            assert_eq!(first.is_ok(), second.is_ok());
            first.is_ok()
        };
        assert!(!fence.is_open() && !send("never led ").await);
        fence.open_until(up() + Duration::from_secs(3600));
        assert!(fence.is_open() && send("leads ").await);
        fence.open_until(up());
        assert!(!send("led ").await);
        fence.open_until(up() + Duration::from_secs(3600));
        fence.close();
        assert!(!send("closed ").await);
        drop(fenced);
        let mut received = String::new();
        peer.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "leads leads ");
    }
}
