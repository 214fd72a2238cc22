//! The map of `my-operator`.

pub mod admission;
pub mod certs;
pub mod client;
pub mod clock;
pub mod kinds;
pub mod reconcile;
pub mod serving;
pub mod telemetry;
