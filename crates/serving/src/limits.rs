//! The bounds of a listener, and the values that webhooks and pages have.

use std::time::Duration;

/// The bounds of a listener. Its *source* of a connection is an IPv4 address or an IPv6 /64. Durations are time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// From the handshake to the end of the first request's head.
    pub first_request: Duration,
    /// From one answer to the end of the next request's head. It also cuts idle connections, and the
    /// API server keeps those for 90 s: a shorter time would cut calls that it just begins.
    pub idle: Duration,
    /// For a request's whole body.
    pub body: Duration,
    /// For a peer to receive an answer, from the first write that blocks.
    pub write: Duration,
    /// Size of a request's body.
    pub body_bytes: usize,
    /// Memory of all bodies together, from their arrival to the answer. A source may hold a quarter of it. (A small
    /// part of each body is not counted.) Beyond it, requests are rejected with 429 and `Retry-After`.
    pub bodies_bytes: usize,
    /// The same of all answers, until their peers have taken them.
    pub answers_bytes: usize,
    /// A body of more bytes is large: the request is answered on a thread of its own, and each source has a few such
    /// requests at a time.
    pub large: usize,
    /// Open connections, including those in the handshake. Beyond it, a connection of the source with most of them is
    /// closed for the newcomer, an idle one if there is one.
    pub connections: usize,
    /// Connections at once from one source.
    pub connections_per_source: usize,
    /// How long a new connection is protected from being closed for another.
    pub fair_chance: Duration,
    /// For the requests in flight when the listener stops.
    pub drain: Duration,
}

impl Default for Limits {
    /// Those of an admission webhook: bodies of 8 MiB, 64 MiB for all of them, 32 MiB for answers, 1000 connections,
    /// 256 from one source, and 20 seconds to drain.
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            first_request: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            body: Duration::from_secs(5),
            // The API server waits 10 s for the whole call.
            write: Duration::from_secs(10),
            // A review of an UPDATE holds two objects, and an object is at most 1.5 MiB in etcd, but
            // JSON may be a good deal longer than what is stored.
            body_bytes: 8 * 1024 * 1024,
            bodies_bytes: 64 * 1024 * 1024,
            // No answer of a webhook is longer than 256 KiB.
            answers_bytes: 32 * 1024 * 1024,
            // A review of 64 kB takes a fifth of a millisecond, as a handshake does.
            large: 64 * 1024,
            connections: 1000,
            // An API server allows 200 writes in flight (--max-mutating-requests-inflight), and each may be a new
            // connection when the process has just started.
            connections_per_source: 256,
            fair_chance: Duration::from_secs(1),
            drain: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// The limits for pages that few peers read occasionally: probes and metrics.
    pub fn of_pages() -> Self {
        Self {
            connections: 100,
            connections_per_source: 25,
            // Requests for these pages have no body.
            body_bytes: 64 * 1024,
            bodies_bytes: 1024 * 1024,
            // The metrics of some ten thousand objects must fit into a quarter.
            answers_bytes: 128 * 1024 * 1024,
            drain: Duration::from_secs(1),
            ..Self::default()
        }
    }
}
