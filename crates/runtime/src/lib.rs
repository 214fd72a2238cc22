//! What every controller of my-operator uses. Nothing here knows a kind.
//!
//! - [`client`]: the connection to the API server: time limits, retries that the API server asks for, pages of lists.
//! - [`reconcile`]: watches -> cache -> work queue -> workers; conditions, Events, status writes, backoff.
//! - [`telemetry`]: logs, metrics, probes.
//! - [`clock`]: the source of the time, as an argument.

pub mod client;
pub mod clock;
pub mod reconcile;
pub mod telemetry;
