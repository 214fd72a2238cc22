//! The counters of a listener, which metrics read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection was rejected or closed, or a request rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// As many connections as allowed were open, and none of them had to be closed.
    OverCapacity,
    /// Its source had as many connections as a source may have: the newcomer was turned away, or an idle one closed for
    /// it.
    PerAddress,
    /// Closed for a newcomer because the listener was full and its source held most.
    Evicted,
    /// The TLS handshake took too long.
    HandshakeTimeout,
    /// The TLS handshake failed: plain text, no common cipher, a peer that does not trust the certificate.
    HandshakeFailed,
    /// The client had no certificate, or none that the [`ClientAuthority`](super::ClientAuthority) admits.
    ClientCertificate,
    /// No complete request head came in time after the handshake.
    FirstRequestTimeout,
    /// The peer did not take an answer in time.
    WriteTimeout,
    /// The system could not accept a connection (too many open files, say).
    AcceptFailed,
    /// A request whose body did not come in time.
    BodyTimeout,
    /// A request whose body was too large.
    BodyTooLarge,
    /// A request whose body ended early, or was malformed.
    BodyBroken,
    /// A request for whose body no memory was left: rejected with `Retry-After`.
    BodyMemory,
    /// A request for whose answer no memory was left, because peers do not read theirs: rejected with `Retry-After`.
    AnswerMemory,
}

impl Rejection {
    /// Every reason, and its label in metrics.
    pub const ALL: [(Self, &'static str); 14] = [
        (Self::OverCapacity, "over_capacity"),
        (Self::PerAddress, "per_address"),
        (Self::Evicted, "evicted"),
        (Self::HandshakeTimeout, "handshake_timeout"),
        (Self::HandshakeFailed, "handshake_failed"),
        (Self::ClientCertificate, "handshake_certificate"),
        (Self::FirstRequestTimeout, "first_request_timeout"),
        (Self::WriteTimeout, "write_timeout"),
        (Self::AcceptFailed, "accept_failed"),
        (Self::BodyTimeout, "body_timeout"),
        (Self::BodyTooLarge, "body_too_large"),
        (Self::BodyBroken, "body_broken"),
        (Self::BodyMemory, "body_memory"),
        (Self::AnswerMemory, "answer_memory"),
    ];
}

/// The counters of one listener. They only grow; the number of open connections is the difference of two.
#[derive(Debug, Default)]
pub struct Counters {
    accepted: AtomicU64,
    closed: AtomicU64,
    rejected: [AtomicU64; Rejection::ALL.len()],
    panics: AtomicU64,
}

impl Counters {
    /// Connections accepted and admitted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        // In this order a connection that comes or goes meanwhile never makes it negative.
        let closed = self.closed.load(Ordering::Acquire);
        self.accepted().saturating_sub(closed)
    }

    /// Connections and requests turned away or cut for this reason.
    pub fn rejected(&self, reason: Rejection) -> u64 {
        self.rejected[reason as usize].load(Ordering::Relaxed)
    }

    /// Panics of request handlers, each answered with a 500.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub(super) fn panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reject(&self, reason: Rejection) {
        self.rejected[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn close(&self) {
        self.closed.fetch_add(1, Ordering::Release);
    }
}
