//! What is remembered of objects between two passes. Only pacing and Events depend on it, never
//! correctness: a new process starts without it.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::decide::Found;
use super::parent::{Done, Trouble};
use super::view::ChildView;
use wall_clock_controller::reconcile::Key;
use wall_clock_controller::reconcile::backoff::{Backoff, StatusWrites};
use wall_clock_controller::reconcile::key_map::KeyMap;
use wall_clock_controller::reconcile::write_cache::MAX_LAG;

/// What is remembered of one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    uid: String,
    generation: Option<i64>,
    /// Hash of the body applied last, and the print of the child that resulted.
    pub(crate) applied: Option<(u64, u64)>,
    /// The child written last: its name, the version that resulted, and the time of the write.
    written: Option<(String, u64, Instant)>,
    /// Name of the child that the object controlled when it was last observed.
    pub(crate) own: Option<String>,
    /// Backoff of writes to the child, and what blocks them.
    pub(crate) writes: Backoff,
    pub(crate) trouble: Option<Trouble>,
    /// The same for the deletion of earlier children.
    pub(crate) deletions: Backoff,
    pub(crate) leftover: Option<Trouble>,
    pub(crate) statuses: StatusWrites,
    /// What was done with the child and is not published yet: the status has not been written since.
    pub(crate) unpublished: Done,
}

/// A write to the child that succeeded.
pub(crate) struct Write<'a> {
    /// Hash of the body that was sent.
    pub(crate) body: u64,
    /// The child before it; none if it was created.
    pub(crate) before: Option<&'a ChildView>,
    pub(crate) after: &'a ChildView,
    /// The write was a patch that the kind asked for, which its own status reports.
    pub(crate) is_patch: bool,
}

impl Memory {
    /// Whether this child is older than our last write to it. Writes older than [`MAX_LAG`] do not
    /// count: after a restore of etcd, versions start again below them.
    pub(crate) fn is_ahead_of(&self, child: &ChildView) -> bool {
        let version = child.version.parse::<u64>();
        self.written.as_ref().is_some_and(|(name, written, since)| {
            *name == child.name
                && since.elapsed() <= MAX_LAG
                && version.is_ok_and(|version| version < *written)
        })
    }

    /// Resets what belongs to another object of the same name, and the failures of an earlier spec.
    pub(crate) fn sync(&mut self, uid: &str, generation: Option<i64>) {
        if self.uid != uid {
            *self = Self {
                uid: uid.to_owned(),
                ..Self::default()
            };
        }
        if self.generation != generation {
            self.generation = generation;
            (self.writes, self.deletions) = (Backoff::default(), Backoff::default());
            (self.trouble, self.leftover) = (None, None);
        }
    }

    /// Remembers whether the object controls the child that was found. The watch does not show a
    /// child whose labels were removed, so the next pass would not look for it otherwise.
    pub(crate) fn observed(&mut self, found: Found<'_>, is_own: impl FnOnce(&ChildView) -> bool) {
        match found {
            Found::There { child, .. } => self.own = is_own(child).then(|| child.name.clone()),
            Found::Absent => self.own = None,
            Found::Unknown => {}
        }
    }

    /// Records a write that succeeded. Returns what it did.
    pub(crate) fn wrote(&mut self, write: &Write<'_>, now: DateTime<Utc>) -> Done {
        let after = write.after;
        // Resource versions are increasing integers (Kubernetes' KEP-5504).
        let version = after.version.parse().ok();
        self.written = version.map(|version| (after.name.clone(), version, Instant::now()));
        let last = self.applied.replace((write.body, after.print));
        let again = last.is_some_and(|(last, _)| last == write.body);
        let done = match write.before {
            None => Done::Created,
            Some(_) if write.is_patch => Done::Nothing,
            Some(before) if before.print == after.print => Done::Nothing,
            Some(_) if again => Done::Restored,
            Some(_) => Done::Changed,
        };
        // A client that deletes what we apply is a conflicting writer too.
        let reverts = again && done != Done::Nothing;
        self.writes.succeeded(reverts, now);
        if done != Done::Nothing {
            self.unpublished = done;
        }
        done
    }

    /// Records what blocks writes to the child. Returns when to try again.
    pub(crate) fn failed(&mut self, trouble: Trouble, now: DateTime<Utc>) -> DateTime<Utc> {
        self.trouble = Some(trouble);
        self.writes.failed(now)
    }

    /// Records an attempt to delete earlier children, and what blocked it. Returns when to try again.
    pub(crate) fn tried_to_delete(
        &mut self,
        leftover: Option<Trouble>,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        self.leftover = leftover;
        if self.leftover.is_some() {
            return Some(self.deletions.failed(now));
        }
        self.deletions = Backoff::default();
        None
    }
}

/// What is remembered of every object.
#[derive(Default)]
pub(crate) struct Memories {
    by_object: Mutex<KeyMap<Memory>>,
    /// Objects that wait until a child that is not theirs changes, by that child.
    waiting: Mutex<HashMap<Key, BTreeSet<Key>>>,
}

impl Memories {
    /// Reads or changes what is remembered of an object.
    pub(crate) fn with<T>(&self, object: &Key, change: impl FnOnce(&mut Memory) -> T) -> T {
        change(self.by_object.lock().entry(object.clone()).or_default())
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, object: &Key) {
        self.by_object.lock().remove(object);
        self.waiting.lock().retain(|_, waiting| {
            waiting.remove(object);
            !waiting.is_empty()
        });
    }

    /// Remembers that an object waits for a change of that child.
    pub(crate) fn wait_for(&self, child: &Key, object: &Key) {
        let mut waiting = self.waiting.lock();
        waiting
            .entry(child.clone())
            .or_default()
            .insert(object.clone());
    }

    /// The objects that waited for a change of that child. They may write at once: their failures
    /// were those of the child as it was.
    pub(crate) fn released_by(&self, child: &Key) -> BTreeSet<Key> {
        let released = self.waiting.lock().remove(child).unwrap_or_default();
        for object in &released {
            if let Some(memory) = self.by_object.lock().get_mut(object) {
                memory.writes.reset();
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn child(name: &str, version: &str) -> ChildView {
        let object = json!({"metadata": {"name": name, "resourceVersion": version}});
        let object = serde_json::from_str(&object.to_string()).unwrap();
        ChildView::new::<ConfigMap, Deployment>(object)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lagging_watch_is_not_drift() {
        let memory = Memory {
            written: Some(("c".to_owned(), 10, Instant::now())),
            ..Memory::default()
        };
        for (name, version, ahead) in [
            ("c", "9", true),
            ("c", "10", false),
            ("c", "11", false),
            ("other", "9", false),
            ("c", "no number", false),
        ] {
            assert_eq!(
                memory.is_ahead_of(&child(name, version)),
                ahead,
                "{name} {version}"
            );
        }
        assert!(!Memory::default().is_ahead_of(&child("c", "1")));
        // A watch that lags further than this follows a restore of the API server's data.
        tokio::time::sleep(MAX_LAG).await;
        assert!(memory.is_ahead_of(&child("c", "9")));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!memory.is_ahead_of(&child("c", "9")));
    }
}
