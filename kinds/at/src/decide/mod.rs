//! The protocol "arm by UID": what to do next about one At, as a pure function.
//!
//! The pod has a fixed name, so there is at most one at a time, and a scheduling gate, so none runs
//! before it is released. **The commit point** is the write of the pod's UID into the status, with
//! the resource version that was read; only the pod with that UID is ever released. Before the
//! commit, whatever crashes, is repeated or arrives hours late has started nothing. After the
//! commit, only the same pod can be released again, which changes nothing.
//!
//! A deletion that decides a result is preceded by a write of that decision
//! ([`FAILURE_TARGET`](super::conditions::FAILURE_TARGET)), so that neither a failed write nor a
//! crash after the deletion turns Missed into Unknown. The decision is final only with the last
//! state of the pod, which may have been released after that write.
//!
//! The tables of `docs/at/protocol.md` define what is done when, and the tests check [`decide`]
//! against them. Only a live read decides what follows from a pod's absence or a foreign pod's
//! presence: watches lag, each by its own time.

use chrono::{DateTime, Utc};

use super::crd::Phase;
use super::observe::{AtView, Observed};
use super::status::StatusBuilder;

mod decision;
mod done;
mod end;
mod failed_call;
mod pending;
mod running;
mod start;
mod trial;

pub(crate) use decision::{Decision, Operation, PodVersion};
pub(crate) use start::{Delay, delay, too_late_at};
pub(crate) use trial::URGENT_BEFORE;

/// Decides what to do next about an At.
pub(crate) fn decide(at: &AtView, observed: Observed<'_>, now: DateTime<Utc>) -> Decision {
    if let Some(failed) = observed.failed {
        return failed_call::decide(at, failed, now);
    }
    let status = StatusBuilder::new(at, now);
    match (at.phase(), &at.status.pod_uid) {
        (Phase::Done, _) => done::decide(status, observed),
        // A recorded UID is a start, whatever the phase says.
        (_, Some(uid)) => running::decide(status, observed, uid),
        // No operator wrote this status. The command may have run.
        (Phase::Running, None) => running::lost(status, observed, None),
        (Phase::Pending, None) => pending::decide(status, observed),
    }
}

#[cfg(test)]
mod tests;
