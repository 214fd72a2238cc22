//! What is decided: one call, the status after it, and when to decide again.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use crate::crd::AtStatus;
use crate::pod::view::PodView;
use crate::status::{Report, StatusBuilder};
use wall_clock_controller::reconcile::event::NewEvent;

/// Interval of live reads where no watch delivers a change, such as of a foreign pod.
pub(super) const BLIND_INTERVAL: TimeDelta = TimeDelta::seconds(60);

/// One version of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodVersion {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl PodVersion {
    pub(crate) fn from_pod(pod: &PodView) -> Self {
        Self {
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
        }
    }
}

/// One call to the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Operation {
    /// No call.
    #[default]
    Nothing,
    /// Read the pod live, and decide again with the result.
    GetLive,
    /// Create this pod.
    Create(Value),
    /// Dry-run the creation of this pod, and decide again with what that shows.
    DryRun(Value),
    /// Remove our gate from the pod, if it has this UID and the gate is at this index.
    RemoveGate {
        /// The UID that is recorded in the status.
        uid: String,
        /// The index of our gate.
        gate: usize,
    },
    /// Delete the pod if it is still at this version, which proves that it has not run.
    DeletePod(PodVersion),
    /// Delete the At if it still has the version that was read.
    DeleteAt,
}

/// What to do next: first the operation, then the status, then the Events. If the operation fails,
/// the rest is skipped: a status must not claim what did not happen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decision {
    /// The call to make.
    pub(crate) operation: Operation,
    /// The status to write at the resource version that was read, if it changes.
    pub(crate) status: Option<Box<AtStatus>>,
    /// The Events to publish once that is done.
    pub(crate) events: Vec<NewEvent>,
    /// The start that these Events report, to be counted once that is done.
    pub(crate) start: Option<DateTime<Utc>>,
    /// Decide again at once.
    pub(crate) again: bool,
    /// Something is in the way: decide again with backoff, and at `next` at the latest.
    pub(crate) retry: bool,
    /// Otherwise reconcile again then, or when something changes.
    pub(crate) next: Option<DateTime<Utc>>,
}

impl Decision {
    /// Nothing at all until something changes.
    pub(super) fn nothing() -> Self {
        Self::default()
    }

    /// A live read, and nothing before it.
    pub(super) fn get_live() -> Self {
        Self {
            operation: Operation::GetLive,
            again: true,
            ..Self::nothing()
        }
    }

    /// This status, then nothing until then.
    pub(super) fn wait(status: StatusBuilder<'_>, next: Option<DateTime<Utc>>) -> Self {
        let Report {
            status,
            events,
            start,
        } = status.finish();
        Self {
            status,
            events,
            start,
            next,
            ..Self::nothing()
        }
    }

    /// This status, then the next decision with backoff.
    pub(super) fn retry(status: StatusBuilder<'_>) -> Self {
        Self {
            retry: true,
            ..Self::wait(status, None)
        }
    }

    /// This status, then the next decision.
    pub(super) fn again(status: StatusBuilder<'_>) -> Self {
        Self {
            again: true,
            ..Self::wait(status, None)
        }
    }

    /// The operation, then this status, then the next decision.
    pub(super) fn perform(operation: Operation, status: StatusBuilder<'_>) -> Self {
        Self {
            operation,
            ..Self::again(status)
        }
    }
}

pub(super) fn earliest(
    a: Option<DateTime<Utc>>,
    b: Option<DateTime<Utc>>,
) -> Option<DateTime<Utc>> {
    a.into_iter().chain(b).min()
}
