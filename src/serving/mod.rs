//! The listeners: HTTPS for the API server, plain HTTP for probes and metrics.
//!
//! The path of a connection: accepted ([`listener`]) -> let in, perhaps in place of another ([`limiter`])
//! -> TLS handshake, if it is that listener -> requests one after another ([`connection`]), each read
//! as a whole ([`body`], within a [`budget`]), then answered by the router ([`answer`]) in its [turn](turns). Every wait on
//! the way is bounded, for what is written too ([`writes`]), and every connection is a task of its
//! own, so one silent, slow or resetting peer never delays others. Whatever is short is shared by one
//! rule ([`fairness`]).

mod answer;
mod bind;
mod body;
mod budget;
mod client_certificates;
mod connection;
mod counters;
mod fairness;
mod limiter;
mod listener;
mod turns;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::server::ResolvesServerCert;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use tokio_util::sync::CancellationToken;

pub use bind::bind;
pub use client_certificates::{ClientAuthority, Error};
pub use counters::{Counters, Rejection};
pub use listener::{serve, serve_plain};

/// The bounds of a listener.
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
    /// For a peer to take an answer, from when it first made us wait.
    pub write: Duration,
    /// Size of a request's body.
    pub body_bytes: usize,
    /// What all bodies hold together, from their coming to the answer, of which a source may hold a quarter.
    /// (Not counted is a small part of each, see [`body`].) Beyond it, requests are rejected with `Retry-After`.
    pub bodies_bytes: usize,
    /// Requests whose body is there and whose answer is not, those that wait for their [turn](turns) included.
    /// Beyond it, requests are rejected with `Retry-After`.
    pub in_work: usize,
    /// Requests of one network that are answered at a time, beside one of others: one for each thread, where an
    /// answer occupies one.
    pub at_once: usize,
    /// A body of more bytes is large: the request is answered on a thread of its own.
    pub large: usize,
    /// Requests with large bodies of one network that are answered at a time, beside one of others.
    pub large_at_once: usize,
    /// Connections at once, those in the handshake included. Beyond it, the source that has most of
    /// them gives up one for the newcomer; see [`limiter`].
    pub connections: usize,
    /// Connections at once from one address (IPv4) or one /64 (IPv6).
    pub connections_per_source: usize,
    /// What a connection has before it can be closed for another.
    pub fair_chance: Duration,
    /// For the requests in work when the listener stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            first_request: Duration::from_secs(10),
            idle: Duration::from_mins(2),
            body: Duration::from_secs(5),
            // The API server waits 10 s for the whole call.
            write: Duration::from_secs(10),
            // A review of an UPDATE holds two objects, and an object is at most 1.5 MiB in etcd, but
            // JSON may be a good deal longer than what is stored.
            body_bytes: 8 * 1024 * 1024,
            bodies_bytes: 64 * 1024 * 1024,
            in_work: 256,
            at_once: 4,
            // A review of 64 kB takes a third of a millisecond.
            large: 64 * 1024,
            large_at_once: 1,
            connections: 1000,
            // An API server lets 200 changes be in work at once (--max-mutating-requests-inflight), and
            // each may be a new connection when the operator has just started.
            connections_per_source: 256,
            fair_chance: Duration::from_secs(1),
            drain: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// For pages that a few peers read now and then: probes and metrics.
    pub fn of_pages() -> Self {
        Self {
            connections: 100,
            connections_per_source: 25,
            // Nothing that is asked here has a body.
            body_bytes: 64 * 1024,
            bodies_bytes: 1024 * 1024,
            // As many as there are connections: the limit of connections is the one that is fair.
            in_work: 100,
            // An answer may wait for the API server.
            at_once: 100,
            drain: Duration::from_secs(1),
            ..Self::default()
        }
    }
}

/// How a listener ends, in two phases.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// First: go on answering, but every answer says `Connection: close`, so that peers move away by
    /// themselves. (To close idle connections instead would race with requests on their way.)
    pub draining: CancellationToken,
    /// Then: accept nothing more, finish what is in work, and end.
    pub stop: CancellationToken,
}

/// How our listener speaks TLS: 1.2 and 1.3, HTTP/1.1 alone (all that an API server offers to a
/// webhook). With `callers`, a client needs a certificate that passes there.
///
/// # Errors
/// When the provider supports neither version, which ours does.
pub fn tls_config(
    resolver: Arc<dyn ResolvesServerCert>,
    callers: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<rustls::ServerConfig>, rustls::Error> {
    let provider: CryptoProvider = rustls::crypto::aws_lc_rs::default_provider();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13, &TLS12])?;
    let config = match callers {
        Some(callers) => config.with_client_cert_verifier(callers),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // An API server keeps no sessions to resume, and a ticket would be made for each connection.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests;
