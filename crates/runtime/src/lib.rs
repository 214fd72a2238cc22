//! What every controller of my-operator uses. Nothing here knows a kind.
//!
//! [`reconcile`]: watches -> cache -> work queue -> workers; conditions, Events, status writes, backoff.

pub mod reconcile;
