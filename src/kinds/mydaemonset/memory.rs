//! What the controller remembers of an object between two looks at it.
//!
//! Nothing here is needed for correctness after a restart: it bridges the time until the watches show
//! what was done, and holds what would else be told too often.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::crd::MyDaemonSetStatus;
use super::rollout::{Last, Why};
use super::status::Refusal;
use super::views::PodView;

/// A watch that has not shown what was done after so long never will.
const PATIENCE: TimeDelta = TimeDelta::seconds(30);
/// Pods made and deleted are told of at most once in this time.
const NEWS_INTERVAL: TimeDelta = TimeDelta::seconds(60);
/// The longest pause after the API server refused to make a pod.
const LONGEST_PAUSE: TimeDelta = TimeDelta::seconds(60);
/// The longest pause between two looks at an object with many pods.
const LONGEST_REST: TimeDelta = TimeDelta::seconds(1);

/// See the module.
#[derive(Debug, Default)]
pub struct Memory {
    /// The object's UID: another one means that nothing of this holds.
    pub uid: String,
    /// Pods that were made and not yet seen, by name, and until when they are believed in.
    creates: HashMap<String, (PodView, DateTime<Utc>)>,
    /// Pods that were deleted and not yet seen going, by UID, and until when that is believed.
    deletes: HashMap<String, DateTime<Utc>>,
    /// What was last on nodes whose pod is gone.
    pub last: BTreeMap<String, Last>,
    /// The API server's last refusal to make a pod.
    pub refused: Option<Refused>,
    /// The last status that was written.
    pub written: Option<Written>,
    /// What was done and not yet told.
    tally: Tally,
    looked: Option<(DateTime<Utc>, Option<i64>)>,
}

/// A refusal, and when to try again.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// What is told of it.
    pub refusal: Refusal,
    /// How often in a row nothing could be made.
    pub count: u32,
    /// When to try again.
    pub next: DateTime<Utc>,
    /// The `metadata.generation` that was refused: a new one is tried at once.
    pub generation: Option<i64>,
}

/// A status that was written while the cache held an older version of the object.
#[derive(Clone, Debug)]
pub struct Written {
    /// The version in the cache at that time.
    pub seen: String,
    /// The version that the write made.
    pub version: String,
    /// The status.
    pub status: MyDaemonSetStatus,
}

#[derive(Debug, Default)]
struct Tally {
    created: usize,
    deleted: BTreeMap<Why, usize>,
    told: Option<DateTime<Utc>>,
}

impl Memory {
    /// An empty memory of the object with that UID.
    pub fn of(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            ..Self::default()
        }
    }

    /// Notes a pod that is about to be made. Before the call: the watch may be faster than its
    /// answer.
    pub fn will_create(&mut self, pod: PodView, now: DateTime<Utc>) {
        self.creates.insert(pod.name.clone(), (pod, now + PATIENCE));
    }

    /// The pod was seen, or could not be made.
    pub fn seen(&mut self, pod: &str) {
        self.creates.remove(pod);
    }

    /// Notes a pod that is about to be deleted.
    pub fn will_delete(&mut self, uid: &str, now: DateTime<Utc>) {
        self.deletes.insert(uid.to_owned(), now + PATIENCE);
    }

    /// The pod could not be deleted.
    pub fn not_deleted(&mut self, uid: &str) {
        self.deletes.remove(uid);
    }

    /// Notes that a pod is gone, for its successor. A note of the operator's own deletion of the
    /// same revision knows more.
    pub fn gone(&mut self, pod: &PodView) {
        self.deletes.remove(&pod.uid);
        let known = self.last.get(&pod.node);
        if known.is_none_or(|last| last.revision != pod.revision) {
            let last = Last {
                revision: pod.revision.clone(),
                attempt: 0,
            };
            self.last.insert(pod.node.clone(), last);
        }
    }

    /// The pods as they will soon be seen: those in the cache, and what was done since.
    pub fn overlay(
        &mut self,
        mut pods: Vec<Arc<PodView>>,
        now: DateTime<Utc>,
    ) -> Vec<Arc<PodView>> {
        self.creates.retain(|_, (_, until)| *until > now);
        self.deletes.retain(|_, until| *until > now);
        for pod in &mut pods {
            self.creates.remove(&pod.name);
            if !pod.deleting && self.deletes.contains_key(&pod.uid) {
                Arc::make_mut(pod).deleting = true;
            }
        }
        pods.extend(self.creates.values().map(|(pod, _)| Arc::new(pod.clone())));
        pods
    }

    /// When to look again because the watches did not show what was done.
    pub fn patience_ends(&self) -> Option<DateTime<Utc>> {
        let creates = self.creates.values().map(|(_, until)| *until);
        creates.chain(self.deletes.values().copied()).min()
    }

    /// Whether the object was looked at just now, and when the next look is due. Every look costs
    /// work for each of its pods, so the changes of many pods wait for each other a little.
    pub fn rest(
        &mut self,
        pods: usize,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let rest = TimeDelta::milliseconds(i64::try_from(pods / 5).unwrap_or(i64::MAX));
        if let Some((at, of)) = self.looked {
            let due = at + rest.min(LONGEST_REST);
            if of == generation && at <= now && due > now {
                return Some(due);
            }
        }
        self.looked = Some((now, generation));
        None
    }

    /// Notes that pods could not be made. The pause grows while none can.
    pub fn refused(
        &mut self,
        refusal: Refusal,
        some_made: bool,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        let before = self.refused.take().filter(|r| r.generation == generation);
        let count = match before {
            Some(before) if !some_made => before.count.saturating_add(1),
            _ => 0,
        };
        // 2^6 s is beyond the longest pause; the count itself says which node is tried first.
        let pause = TimeDelta::seconds(1 << count.min(6)).min(LONGEST_PAUSE);
        self.refused = Some(Refused {
            refusal,
            count,
            next: now + pause,
            generation,
        });
    }

    /// Adds to what is to be told.
    pub fn count(&mut self, created: usize, deleted: impl IntoIterator<Item = Why>) {
        self.tally.created += created;
        for why in deleted {
            *self.tally.deleted.entry(why).or_default() += 1;
        }
    }

    /// What is to be told now of pods made and deleted, each as a sentence; and when more of it
    /// will be due.
    pub fn tell(
        &mut self,
        now: DateTime<Utc>,
    ) -> (Option<String>, Option<String>, Option<DateTime<Utc>>) {
        let tally = &mut self.tally;
        if tally.created == 0 && tally.deleted.is_empty() {
            return (None, None, None);
        }
        if let Some(due) = tally.told.map(|told| told + NEWS_INTERVAL)
            && due > now
        {
            return (None, None, Some(due));
        }
        tally.told = Some(now);
        let created = std::mem::take(&mut tally.created);
        let deleted = std::mem::take(&mut tally.deleted);
        (created_text(created), deleted_text(&deleted), None)
    }
}

/// `created 3 pods`, or nothing.
pub fn created_text(number: usize) -> Option<String> {
    (number > 0).then(|| format!("created {}", pods(number)))
}

/// `deleted 3 pods (2 outdated, 1 failed)`, or nothing.
pub fn deleted_text(deleted: &BTreeMap<Why, usize>) -> Option<String> {
    let number: usize = deleted.values().sum();
    let whys: Vec<String> = deleted
        .iter()
        .map(|(why, number)| format!("{number} {}", why.text()))
        .collect();
    (number > 0).then(|| format!("deleted {} ({})", pods(number), whys.join(", ")))
}

fn pods(number: usize) -> String {
    match number {
        1 => "1 pod".to_owned(),
        more => format!("{more} pods"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn pod(name: &str, uid: &str) -> PodView {
        PodView {
            name: name.into(),
            uid: uid.into(),
            node: "n".into(),
            revision: "r".into(),
            ..PodView::default()
        }
    }

    fn shown(memory: &mut Memory, cached: &[PodView], now: i64) -> Vec<(String, bool)> {
        let cached: Vec<_> = cached.iter().cloned().map(Arc::new).collect();
        let pods = memory.overlay(cached, at(now));
        pods.iter().map(|p| (p.uid.clone(), p.deleting)).collect()
    }

    #[test]
    fn nodes_that_are_refused_never_keep_the_others_waiting() {
        let mut memory = Memory::default();
        let refusal = Refusal {
            reason: "PodRefused",
            message: String::new(),
        };
        for attempt in 0..40 {
            memory.refused(refusal.clone(), false, Some(1), at(0));
            let refused = memory.refused.clone().unwrap();
            // It says which node is tried first: each time another one.
            assert_eq!(refused.count, attempt);
            assert!(refused.next <= at(60));
        }
    }

    #[test]
    fn what_was_done_is_believed_until_it_is_seen_or_patience_ends() {
        let mut memory = Memory::default();
        memory.will_create(pod("a", ""), at(0));
        memory.will_delete("u", at(0));
        assert_eq!(memory.patience_ends(), Some(at(30)));
        let old = pod("old", "u");
        assert_eq!(
            shown(&mut memory, std::slice::from_ref(&old), 1),
            [("u".to_owned(), true), (String::new(), false)]
        );
        // Seen in the cache, under its own UID; the other one is gone.
        memory.gone(&old);
        assert_eq!(
            shown(&mut memory, &[pod("a", "ua")], 2),
            [("ua".to_owned(), false)]
        );
        assert_eq!(memory.patience_ends(), None);
        // Never seen.
        memory.will_create(pod("b", ""), at(5));
        memory.will_delete("ua", at(5));
        assert_eq!(
            shown(&mut memory, &[pod("a", "ua")], 36),
            [("ua".to_owned(), false)]
        );
        // Made, seen and gone again before the next look.
        memory.will_create(pod("c", ""), at(40));
        memory.seen("c");
        assert!(shown(&mut memory, &[], 41).is_empty());
    }

    #[test]
    fn the_operators_own_note_of_a_failure_outlives_the_news_that_the_pod_is_gone() {
        let mut memory = Memory::default();
        let noted = Last {
            revision: "r".into(),
            attempt: 3,
        };
        memory.last.insert("n".into(), noted.clone());
        memory.gone(&pod("a", "u"));
        assert_eq!(memory.last["n"], noted);
        let mut other = pod("b", "v");
        other.revision = "s".into();
        memory.gone(&other);
        assert_eq!(memory.last["n"].revision, "s");
        assert_eq!(memory.last["n"].attempt, 0);
    }

    #[test]
    fn looks_at_many_pods_are_spaced() {
        let mut memory = Memory::default();
        assert_eq!(memory.rest(5_000, Some(1), at(10)), None);
        assert_eq!(memory.rest(5_000, Some(1), at(10)), Some(at(11)));
        assert_eq!(memory.rest(5_000, Some(2), at(10)), None, "a new spec");
        assert_eq!(memory.rest(5_000, Some(2), at(11)), None);
        assert_eq!(
            memory.rest(5_000, Some(2), at(5)),
            None,
            "the clock was set"
        );
        assert_eq!(memory.rest(4, Some(2), at(5)), None, "few pods");
    }

    #[test]
    fn the_pause_after_refusals_grows_while_nothing_can_be_made() {
        let mut memory = Memory::default();
        let mut refuse = |some_made, generation, now| {
            let refusal = Refusal {
                reason: "PodRefused",
                message: "quota".into(),
            };
            memory.refused(refusal, some_made, Some(generation), at(now));
            (memory.refused.as_ref().unwrap().next - at(now)).num_seconds()
        };
        let pauses: Vec<_> = (0..9).map(|_| refuse(false, 1, 0)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(refuse(true, 1, 0), 1);
        assert_eq!(refuse(false, 1, 0), 2);
        assert_eq!(refuse(false, 2, 0), 1);
    }

    #[test]
    fn pods_made_and_deleted_are_told_of_together() {
        let mut memory = Memory::default();
        assert_eq!(memory.tell(at(0)), (None, None, None));
        memory.count(3, []);
        assert_eq!(
            memory.tell(at(0)),
            (Some("created 3 pods".into()), None, None)
        );
        memory.count(1, [Why::Failed, Why::Outdated, Why::Outdated]);
        assert_eq!(memory.tell(at(10)), (None, None, Some(at(60))));
        memory.count(0, [Why::Failed]);
        assert_eq!(
            memory.tell(at(60)),
            (
                Some("created 1 pod".into()),
                Some("deleted 4 pods (2 failed, 2 outdated)".into()),
                None
            )
        );
        assert_eq!(memory.tell(at(61)), (None, None, None));
    }
}
