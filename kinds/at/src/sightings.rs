//! What this process has seen of the pods of an At, in addition to their latest state.
//!
//! A status must report a start and an end even if the pod is gone before the next pass. What is
//! kept here makes that likely, not certain: a restart forgets it, and the decision then says
//! Unknown where it would have said more. It never makes a command run.

use chrono::{DateTime, TimeDelta, Utc};

use super::pod::view::PodView;

/// The record of a start waits this long for another write of the status to ride on, usually the
/// end of a short command.
pub(crate) const START_RECORDED_WITHIN: TimeDelta = TimeDelta::seconds(2);
/// What one process has observed of the pods of an At, in addition to the latest state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sightings {
    /// The last known state of a pod that is gone. Few Ats have one, and all that run have sightings.
    pub(crate) last: Option<Box<LastSeen>>,
    /// The first sight of a pod without our gate.
    pub(crate) released: Option<Released>,
}

impl Sightings {
    /// Records the state of an existing pod.
    pub(crate) fn record(&mut self, pod: &PodView, now: DateTime<Utc>) {
        let outlives = |last: &mut Box<LastSeen>| last.pod.uid == pod.uid && last.pod.is_older(pod);
        // To a watch with a label selector, a pod that loses its label is deleted. It exists, so
        // its end is still to come.
        self.last.take_if(outlives);
        if pod.gate.is_none() {
            self.released.get_or_insert_with(|| Released::new(pod, now));
        } else if pod.deleting {
            // The scheduler binds no pod that is being deleted: whatever comes, it never ran.
            self.last.get_or_insert_with(|| {
                Box::new(LastSeen {
                    pod: pod.clone(),
                    certain: true,
                })
            });
        }
    }

    /// Records the last state of a pod that is gone; `certain` if it was deleted in that state.
    pub(crate) fn record_deletion(&mut self, pod: &PodView, certain: bool) {
        let pod = pod.clone();
        self.last = Some(Box::new(LastSeen { pod, certain }));
    }
}

/// The first sight of a pod without our gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// `metadata.uid` of the pod.
    pub(crate) uid: String,
    /// When it was first seen released; or the time at which it was scheduled or ended, where that
    /// is known and earlier.
    pub(crate) at: DateTime<Utc>,
    /// The start was published as an Event and counted.
    pub(crate) reported: bool,
}

impl Released {
    /// A pod that is seen for the first time without our gate.
    pub(crate) fn new(pod: &PodView, now: DateTime<Utc>) -> Self {
        let ends = pod.ended.iter().filter_map(|ended| ended.finished_at);
        let known = pod.scheduled.into_iter().chain(ends).min();
        let at = known.map_or(now, |known| known.min(now));
        Self {
            uid: pod.uid.clone(),
            at,
            reported: false,
        }
    }
}

/// The last state of a deleted pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastSeen {
    pub(crate) pod: PodView,
    /// The pod was deleted in exactly this state. After a relist it may have changed once more.
    pub(crate) certain: bool,
}
