//! What this process remembers of Ats in addition to what is stored.
//!
//! None of it decides whether a command starts: a restart forgets everything, and the protocol
//! still starts it at most once. It makes statuses more exact, and it paces retries.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;

use super::crd::Phase;
use super::decide::too_late_at;
use super::observe::{AtView, Call};
use super::pod::view::PodView;
use super::sightings::{Records, Sightings};
use my_operator_runtime::reconcile::Key;

/// The pause after the first failed attempt at a pod. Each further failure doubles it.
pub(crate) const FIRST_BACKOFF: TimeDelta = TimeDelta::seconds(1);
pub(crate) const MAX_BACKOFF: TimeDelta = TimeDelta::seconds(60);
/// The last attempt begins so long before the deadline.
const LAST_ATTEMPT: TimeDelta = TimeDelta::seconds(1);

/// What is remembered of all Ats.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    ats: Mutex<HashMap<Key, AtMemory>>,
    records: Mutex<Records>,
}

/// What is remembered of one At, until it is DONE or deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtMemory {
    /// `metadata.uid` of the At. A later At of the same name inherits nothing.
    uid: String,
    /// What was observed of its pods, so that the status reports it.
    pub(crate) sightings: Sightings,
    /// The UID of the pod that this process committed. It ends with the first request that can have
    /// released the pod: from then on, a missing gate may be our own doing.
    pub(crate) withheld: Option<String>,
    /// How many attempts to create or read a pod failed in a row for that generation, and when to try again. A new
    /// phase is progress and ends the backoff; a changed spec is tried at once.
    failures: u32,
    generation: Option<i64>,
    pub(crate) not_before: Option<DateTime<Utc>>,
    /// The failing call about the pod, and its failures in a row. Ends when that call succeeds.
    failing: Option<(Call, u32)>,
}

impl Memory {
    /// What is remembered of that At.
    pub(crate) fn get(&self, at: &AtView) -> AtMemory {
        let all = self.ats.lock();
        let memory = all.get(&at.key).filter(|memory| memory.uid == at.uid);
        let mut memory = memory.cloned().unwrap_or_default();
        memory.not_before = memory
            .not_before
            .filter(|_| memory.generation == at.generation);
        memory
    }

    fn with<T>(&self, at: &AtView, change: impl FnOnce(&mut AtMemory) -> T) -> T {
        change(entry(&mut self.ats.lock(), &at.key, &at.uid))
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.ats.lock().remove(key);
    }

    /// Records an observed state of a pod of that At, from a watch or an API response.
    pub(crate) fn record_pod(&self, key: &Key, uid: &str, pod: &PodView, now: DateTime<Utc>) {
        let mut all = self.ats.lock();
        let known = all.get(key).is_some_and(|memory| memory.uid == uid);
        if !known && pod.gate.is_some() && !pod.deleting {
            // The common case: nothing to remember.
            return;
        }
        let sightings = &mut entry(&mut all, key, uid).sightings;
        let before = sightings.released.is_some();
        sightings.record(pod, now);
        if !before && let Some(first) = &mut sightings.released {
            self.records.lock().queue(first, now);
        }
    }

    /// Records the last state of a pod of that At that is gone; `certain` if it was deleted in that
    /// state.
    pub(crate) fn record_pod_deletion(&self, key: &Key, uid: &str, pod: &PodView, certain: bool) {
        let mut all = self.ats.lock();
        let sightings = &mut entry(&mut all, key, uid).sightings;
        sightings.record_deletion(pod, certain);
    }

    /// The start was published as an Event and counted. Nothing is remembered of a finished At.
    pub(crate) fn record_start_reported(&self, at: &AtView) {
        let mut all = self.ats.lock();
        let memory = all.get_mut(&at.key).filter(|memory| memory.uid == at.uid);
        if let Some(released) = memory.and_then(|memory| memory.sightings.released.as_mut()) {
            released.reported = true;
        }
    }

    /// This process has committed that pod.
    pub(crate) fn record_commit(&self, at: &AtView, pod_uid: String) {
        self.set_withheld(at, Some(pod_uid));
    }

    /// A request that can release the pod is about to be sent. Returns what was withheld before.
    pub(crate) fn take_withheld(&self, at: &AtView) -> Option<String> {
        self.with(at, |memory| memory.withheld.take())
    }

    pub(crate) fn set_withheld(&self, at: &AtView, pod_uid: Option<String>) {
        self.with(at, |memory| memory.withheld = pod_uid);
    }

    /// Records a failed attempt to create or read a pod. Returns the failures so far and when to
    /// try again. The pause starts now: the attempt itself may have taken long.
    pub(crate) fn record_failure(&self, at: &AtView, now: DateTime<Utc>) -> (u32, DateTime<Utc>) {
        self.with(at, |memory| {
            if memory.generation != at.generation {
                (memory.generation, memory.failures) = (at.generation, 0);
            }
            let pause = FIRST_BACKOFF * 2_i32.saturating_pow(memory.failures.min(10));
            memory.failures += 1;
            let later = now + pause.min(MAX_BACKOFF);
            // Until just before the deadline, what is in the way may go.
            let last = too_late_at(at).map(|end| end - LAST_ATTEMPT);
            let last = last.filter(|last| *last > now);
            let not_before = last.map_or(later, |last| last.min(later));
            memory.not_before = Some(not_before);
            (memory.failures, not_before)
        })
    }

    /// Records a failed call about the pod. Returns its failures in a row.
    pub(crate) fn record_call_failure(&self, at: &AtView, call: Call) -> u32 {
        self.with(at, |memory| {
            let before = memory.failing.filter(|(failing, _)| *failing == call);
            let failures = before.map_or(1, |(_, failures)| failures + 1);
            memory.failing = Some((call, failures));
            failures
        })
    }

    /// Records that a call about the pod succeeded.
    pub(crate) fn record_call_success(&self, at: &AtView, call: Call) {
        if let Some(memory) = self.ats.lock().get_mut(&at.key) {
            memory.failing.take_if(|(failing, _)| *failing == call);
        }
    }

    /// Ends the pause before the next attempt: what blocked the name is gone.
    pub(crate) fn end_pause(&self, key: &Key) {
        if let Some(memory) = self.ats.lock().get_mut(key) {
            memory.not_before = None;
        }
    }

    /// The At has a new phase, which ends the backoff. Nothing more happens to one that is DONE.
    pub(crate) fn record_phase(&self, key: &Key, phase: Phase) {
        let mut all = self.ats.lock();
        if phase == Phase::Done {
            all.remove(key);
        } else if let Some(memory) = all.get_mut(key) {
            (memory.failures, memory.not_before) = (0, None);
        }
    }

    #[cfg(test)]
    pub(crate) fn peek(&self, key: &Key) -> Option<AtMemory> {
        self.ats.lock().get(key).cloned()
    }
}

/// What is remembered of the At with that key and UID.
fn entry<'a>(all: &'a mut HashMap<Key, AtMemory>, key: &Key, uid: &str) -> &'a mut AtMemory {
    let memory = all.entry(key.clone()).or_default();
    if memory.uid != uid {
        *memory = AtMemory {
            uid: uid.to_owned(),
            ..AtMemory::default()
        };
    }
    memory
}
