//! Leader election: one of several replicas reconciles. All of them serve webhooks.
//!
//! The replicas share a Lease, written as client-go writes it. [`decision`] is the pure part: what to do after each
//! observation, by a monotonic clock. [`lease`] reads and writes the object. It assumes little about its content, since
//! users may edit it. [`elector`] combines both: it acquires the lease, renews it, acquires it again when it was lost, and
//! releases it at the end.
//!
//! A process can be suspended at any point and continue an hour later. So the reconcilers have a client of their own
//! that sends nothing once the lease has expired: [`fence`].
//!
//! At most one replica leads, but safety does not depend on that: every write has a precondition, and
//! docs/at/exactly-once.md assumes no leader.

mod decision;
mod elector;
mod fence;
mod lease;
mod periods;
#[cfg(test)]
mod simulation;

pub use elector::{Elector, Settings, Term};
pub use fence::{Fence, Fenced};
pub use periods::Periods;
