//! The body of the answer to a watch: its events as they come.

use std::io;

use bytes::Bytes;
use futures::stream::{self, Stream};
use http_body::Frame;
use tokio::time::timeout_at;

use crate::server::Server;
use crate::watch::Step;

pub(crate) fn broken() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "connection reset by the simulated server",
    )
}

/// An open watch, closed when it is dropped.
pub(crate) struct Handle {
    pub(crate) server: Server,
    pub(crate) id: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.server.state().watches.close(self.id);
    }
}

/// The body of the answer to a watch.
pub(crate) fn body(handle: Handle) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    stream::unfold(Some(handle), |handle| async move {
        let handle = handle?;
        loop {
            let (step, wake) = {
                let mut state = handle.server.state();
                let delay = handle.server.options().watch_delay;
                let state = &mut *state;
                let step = state.watches.step(handle.id, &state.store, delay);
                let open = state.watches.open.get(&handle.id)?;
                let wake = open.wake.clone();
                if matches!(step, Step::Deliver(_)) && open.ending.is_none() {
                    let (user, resource) = (open.user.clone(), open.resource.clone());
                    let (version, at) = (open.version, handle.server.clock().elapsed());
                    state.delivered(&user, &resource.plural, version, at);
                }
                (step, wake)
            };
            match step {
                Step::Deliver(event) => return Some((Ok(Frame::data(event)), Some(handle))),
                Step::Break => return Some((Err(broken()), None)),
                Step::End => return None,
                Step::Wait(None) => wake.notified().await,
                Step::Wait(Some(until)) => {
                    // The next step finds out whether it was woken or the time has come.
                    let _ = timeout_at(until, wake.notified()).await;
                }
            }
        }
    })
}
