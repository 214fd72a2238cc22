#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// The path of a connection: accepted, on a thread that does nothing else (listener) -> admitted, perhaps in place of
// another (limiter) -> TLS handshake, for HTTPS -> requests one after another (connection). Each request is read
// as a whole (body, within a budget), then answered by the router (answer). Handshakes and large
// requests have turns. Every wait is bounded, also for writes (writes). Every connection is a task of its own, so
// a silent, slow or resetting peer never delays others. Scarce resources are shared by one rule (fairness).

mod answer;
mod bind;
mod body;
mod budget;
mod client_certificates;
mod connection;
mod counters;
mod fairness;
mod held;
mod limiter;
mod limits;
mod listener;
mod permits;
mod shutdown;
mod tls;
mod turns;
mod writes;

pub use bind::bind;
pub use client_certificates::{ClientAuthority, Error};
pub use counters::{Counters, Rejection};
pub use limits::Limits;
pub use listener::{serve, serve_plain};
pub use shutdown::Shutdown;
pub use tls::tls_config;

#[cfg(test)]
mod tests;
