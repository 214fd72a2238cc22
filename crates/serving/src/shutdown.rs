//! How a listener is stopped.

use tokio_util::sync::CancellationToken;

/// The two phases of the end of a listener.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// First: still answer, but with `Connection: close`, so that peers reconnect elsewhere. (Closing idle connections
    /// would race with requests in flight.)
    pub draining: CancellationToken,
    /// Then: accept no connections, finish the requests in flight, and end.
    pub stop: CancellationToken,
}
