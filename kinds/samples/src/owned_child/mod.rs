//! A reconciler for kinds whose objects each own one child, such as a Deployment, which it keeps
//! equal to what the spec says. A kind implements [`Parent`] to say what the child is
//! and what the status shows of it.
//!
//! Invariants for every kind:
//! - The child is created and corrected by server-side apply: the API server itself detects drift.
//!   Fields of others stay, and a field that the spec no longer asks for is removed. A kind whose
//!   child is not a state to keep says so with a [`Lifecycle`] of its own.
//! - A foreign object of that name is never touched: the condition `Degraded` names it. A child
//!   that we created and that lost its owner reference is adopted again.
//! - A child whose name the spec no longer uses is deleted when its successor exists.
//! - No-op writes are skipped. Conflicting writers, refused writes and name conflicts are retried
//!   with exponential backoff.
//!
//! Data flows one way: `observe` has the watches and the caches, whose [`view`]s are small;
//! `reconcile` is one pass, which asks `decide`, a pure function, and makes the calls of `act`;
//! `status` builds the status and the Events, again pure. `memory` is what is remembered between two
//! passes, and `controller` wires it all to the queue and the workers. [`deployment`] reads what a
//! child Deployment reports about itself.

#[cfg(feature = "controllers")]
mod act;
#[cfg(feature = "controllers")]
mod body;
#[cfg(feature = "controllers")]
mod controller;
mod decide;
pub(crate) mod deployment;
#[cfg(feature = "controllers")]
mod known_child;
#[cfg(feature = "controllers")]
mod memory;
#[cfg(feature = "controllers")]
mod observe;
mod parent;
#[cfg(feature = "controllers")]
mod reconcile;
mod status;
pub(crate) mod view;

#[cfg(feature = "controllers")]
use futures::future::BoxFuture;

pub(crate) use parent::{
    Creation, Desired, Done, DriftPolicy, KeptEqual, KindStatus, Lifecycle, Observation, Owner,
    Parent, Report, Trouble,
};

#[cfg(feature = "controllers")]
use wall_clock_controller::reconcile::Context;

/// Runs the reconciler of that kind until the context is cancelled.
#[cfg(feature = "controllers")]
pub(crate) fn start<P: Parent>(context: Context) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(controller::run::<P>(context))
}
