//! What a listener counts, for metrics to read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection was turned away or cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// As many connections as allowed were open.
    OverCapacity,
    /// The TLS handshake took too long.
    HandshakeTimeout,
    /// The TLS handshake failed: plain text, no common cipher, a peer that does not trust us.
    HandshakeFailed,
    /// No complete request head came in time after the handshake.
    FirstRequestTimeout,
    /// The system could not accept a connection (too many open files, say).
    AcceptFailed,
}

impl Rejection {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::OverCapacity,
        Self::HandshakeTimeout,
        Self::HandshakeFailed,
        Self::FirstRequestTimeout,
        Self::AcceptFailed,
    ];

    /// The reason as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OverCapacity => "over_capacity",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::HandshakeFailed => "handshake_failed",
            Self::FirstRequestTimeout => "first_request_timeout",
            Self::AcceptFailed => "accept_failed",
        }
    }
}

/// The counters of one listener. They only ever grow; what is open is the difference of two.
#[derive(Debug, Default)]
pub struct Counters {
    accepted: AtomicU64,
    closed: AtomicU64,
    rejected: [AtomicU64; Rejection::ALL.len()],
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

    /// Connections turned away or cut for this reason.
    pub fn rejected(&self, reason: Rejection) -> u64 {
        self.rejected[reason as usize].load(Ordering::Relaxed)
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
