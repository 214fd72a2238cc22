//! A thread with a runtime of its own, for the few tasks that must not wait for others: a review of 8 MB occupies a
//! worker thread for a tenth of a second, and the leadership is lost if the lease is renewed too late.

use std::future::Future;
use std::sync::mpsc;

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

/// A thread of its own, until dropped.
pub(super) struct Thread {
    handle: Handle,
    _end: DropGuard,
}

impl Thread {
    /// Starts a thread with that name.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub(super) fn start(name: &str) -> anyhow::Result<Self> {
        let what = || format!("cannot start the thread {name}");
        let end = CancellationToken::new();
        let ended = end.clone();
        let (sender, started) = mpsc::channel();
        // The runtime belongs to the thread: it must not be dropped within another runtime.
        let thread = move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                if sender.send(Ok(runtime.handle().clone())).is_ok() {
                    runtime.block_on(ended.cancelled());
                }
            }
            Err(error) => drop(sender.send(Err(error))),
        };
        let builder = std::thread::Builder::new().name(name.to_owned());
        builder.spawn(thread).with_context(what)?;
        let handle = started.recv().with_context(what)?.with_context(what)?;
        Ok(Self {
            handle,
            _end: end.drop_guard(),
        })
    }

    /// Runs a future on the thread. It ends with the future that is returned.
    ///
    /// # Errors
    /// When it panics.
    pub(super) async fn run<F>(&self, future: F) -> anyhow::Result<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let task = AbortOnDropHandle::new(self.handle.spawn(future));
        task.await.context("a task died")
    }

    /// Calls a function that starts tasks: they run on the thread.
    pub(super) fn within<T>(&self, call: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        call()
    }
}
