//! What this process remembers of Ats in addition to what is stored.
//!
//! None of it decides whether a command starts: a restart forgets everything, and the protocol
//! still starts it at most once. It makes statuses more exact.

use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::observe::{AtView, Call, FailedCall};
use super::pod::view::PodView;
use super::sightings::Sightings;
use super::trial::{MAX_PAUSE, Trial, Verdict};
use resilient_kube_client::backoff::Exponential;
use wall_clock_controller::reconcile::Key;
use wall_clock_controller::reconcile::key_map::KeyMap;

/// The pauses between dry runs. Longer than those of a start: an At may wait for years, and its instant settles the matter.
const PAUSES: Exponential = Exponential {
    first: Duration::from_secs(5),
    max: MAX_PAUSE,
};

/// What is remembered of all Ats.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    ats: Mutex<KeyMap<AtMemory>>,
}

/// What is remembered of one At, until it is DONE or deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtMemory {
    /// `metadata.uid` of the At. A later At of the same name inherits nothing.
    uid: String,
    /// What was observed of its pods, so that the status reports it.
    pub(crate) sightings: Sightings,
    /// The call about the pod that failed last. Ends when that call succeeds.
    pub(crate) failing: Option<FailedCall>,
    /// The last dry run of the pod, unless the status says that it succeeded.
    pub(crate) trial: Option<Trial>,
}

impl Memory {
    /// What is remembered of that At.
    pub(crate) fn get(&self, at: &AtView) -> AtMemory {
        let all = self.ats.lock();
        let memory = all.get(&at.key).filter(|memory| memory.uid == at.uid);
        memory.cloned().unwrap_or_default()
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
        entry(&mut all, key, uid).sightings.record(pod, now);
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

    /// Records a failed call about the pod.
    pub(crate) fn record_call_failure(&self, at: &AtView, failed: FailedCall) {
        self.with(at, |memory| memory.failing = Some(failed));
    }

    /// Records what a dry run of the pod has shown. `asked`: the API server wants no other before that.
    pub(crate) fn record_trial(
        &self,
        at: &AtView,
        verdict: Verdict,
        asked: Option<Duration>,
        now: DateTime<Utc>,
    ) {
        self.with(at, |memory| {
            let trial = Trial::new(memory.trial.as_ref(), at.generation, verdict, asked, now);
            memory.trial = Some(trial);
        });
    }

    /// A pass has ended with nothing in the way. Forgets the failed call: what comes later has other causes. And a
    /// successful dry run, which the status has: a hundred thousand Ats may wait.
    pub(crate) fn forget_settled(&self, key: &Key) {
        let mut all = self.ats.lock();
        let Some(memory) = all.get_mut(key) else {
            return;
        };
        memory.failing = None;
        let is_accepted = |trial: &mut Trial| trial.verdict == Verdict::Accepted;
        if memory.trial.take_if(is_accepted).is_some() && memory.sightings == Sightings::default() {
            all.remove(key);
        }
    }

    /// Records that a call about the pod succeeded.
    pub(crate) fn record_call_success(&self, at: &AtView, call: Call) {
        if let Some(memory) = self.ats.lock().get_mut(&at.key) {
            memory.failing.take_if(|failed| failed.call == call);
        }
    }

    #[cfg(test)]
    pub(crate) fn peek(&self, key: &Key) -> Option<AtMemory> {
        self.ats.lock().get(key).cloned()
    }
}

impl Trial {
    /// A dry run after the `last` one. `asked`: the API server wants no other before that.
    pub(crate) fn new(
        last: Option<&Self>,
        generation: Option<i64>,
        verdict: Verdict,
        asked: Option<Duration>,
        now: DateTime<Utc>,
    ) -> Self {
        let last = last.filter(|last| last.generation == generation);
        let earlier = last.map_or(0, |last| last.earlier.saturating_add(1));
        let pause = PAUSES.after(earlier).max(asked.unwrap_or_default());
        Self {
            generation,
            verdict,
            earlier,
            made_at: now,
            not_before: now + pause,
        }
    }
}

/// What is remembered of the At with that key and UID.
fn entry<'a>(all: &'a mut KeyMap<AtMemory>, key: &Key, uid: &str) -> &'a mut AtMemory {
    let memory = all.entry(key.clone()).or_default();
    if memory.uid != uid {
        *memory = AtMemory {
            uid: uid.to_owned(),
            ..AtMemory::default()
        };
    }
    memory
}
