//! What is observed of an At and its pod, as a decision sees it.

use chrono::{DateTime, Utc};

use super::admission::{Base, schedule_instant};
use super::conditions::{FAILURE_TARGET, POD_ACCEPTED, STARTED};
use super::crd::{AtSpec, AtStatus, Phase};
use super::pod::build::Owner;
use super::pod::view::PodView;
use super::schedule;
use super::sightings::{LastSeen, Released};
use super::trial::Trial;
use admission_rules::faults::Fault;
use wall_clock_controller::reconcile::Key;
use wall_clock_controller::reconcile::condition::{self, ACCEPTED};

/// An At as a decision sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AtView {
    /// Namespace and name.
    pub(crate) key: Key,
    /// `metadata.uid`.
    pub(crate) uid: String,
    /// `metadata.resourceVersion`: every write of the status carries it.
    pub(crate) resource_version: String,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// The object is being deleted.
    pub(crate) deleting: bool,
    /// What a relative schedule counts from.
    pub(crate) base: Option<Base>,
    /// The defaulted spec, or its errors.
    pub(crate) spec: Result<AtSpec, Vec<Fault>>,
    /// The status.
    pub(crate) status: AtStatus,
}

impl AtView {
    /// The same without the pod template, which is only needed to build a pod and its hash: a value
    /// tree takes many times the memory of its text.
    #[must_use]
    pub(crate) fn without_template(mut self) -> Self {
        if let Ok(spec) = &mut self.spec {
            spec.template = None;
        }
        self
    }

    /// The instant of the schedule; `None` for an invalid spec, and beyond the year 9999.
    pub(crate) fn instant(&self) -> Option<DateTime<Utc>> {
        let text = self.spec.as_ref().ok()?.schedule.as_deref()?;
        schedule_instant(schedule::parse(text).ok()?, self.base?)
    }

    /// The phase; PENDING before the first status.
    pub(crate) fn phase(&self) -> Phase {
        self.status.phase.unwrap_or_default()
    }

    pub(crate) fn is_accepted(&self) -> bool {
        self.status.is_true(ACCEPTED)
    }

    /// Whether the status says that a dry run of the pod was refused before the At was due.
    pub(crate) fn is_refused_early(&self) -> bool {
        condition::get(&self.status.conditions, POD_ACCEPTED).is_some()
    }

    /// Whether the status says that the pod was released.
    pub(crate) fn is_started(&self) -> bool {
        self.status.is_true(STARTED)
    }

    /// Whether its end is announced, and only the deletion of its pod is left.
    pub(crate) fn is_end_announced(&self) -> bool {
        self.status.is_true(FAILURE_TARGET)
    }

    /// The At as the owner of a pod.
    pub(crate) fn owner(&self) -> Owner<'_> {
        Owner {
            name: &self.key.name,
            namespace: &self.key.namespace,
            uid: &self.uid,
        }
    }
}

/// What a decision is based on, besides the At.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observed<'a> {
    /// The pod with the At's pod name.
    pub(crate) pod: Option<&'a PodView>,
    /// It comes from a live read, not from a watch.
    pub(crate) live: bool,
    /// The last known state of a pod that is gone.
    pub(crate) last: Option<&'a LastSeen>,
    /// The first sight of a pod of this At without our gate. It counts when the pod is gone, too: a
    /// pod that could run is the run.
    pub(crate) released: Option<&'a Released>,
    /// The call of the last decision failed.
    pub(crate) failed: Option<&'a FailedCall>,
    /// The call about the pod that failed last, and has not succeeded since.
    pub(crate) failing: Option<&'a FailedCall>,
    /// The last dry run of the pod that the status may not show yet, or that was not successful.
    pub(crate) trial: Option<&'a Trial>,
    /// When this process began.
    pub(crate) process_start: DateTime<Utc>,
}

/// A call about the pod that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Create,
    /// The removal of our gate.
    Release,
    Delete,
    /// The deletion of the At itself, whose time to live has passed.
    DeleteAt,
    /// A live read.
    Read,
}

/// Why a call about the pod failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedCall {
    pub(crate) call: Call,
    /// The API server's message, or why it did not answer.
    pub(crate) message: String,
    /// The API server rejects the call until something changes. Otherwise a retry may succeed.
    pub(crate) refused: bool,
    /// The attempt before failed, too.
    pub(crate) again: bool,
    /// The API server asked to send nothing for a while: the status is to say so afterwards.
    pub(crate) unreported: bool,
}
