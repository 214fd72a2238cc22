//! What the controller remembers of an object between two looks at it.
//!
//! Nothing here is needed for correctness after a restart: it bridges the time until the watches show
//! what was done, and holds what would else be told too often.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::rollout::board::Board;
use super::rollout::{Claim, Delete, Last, Why};
use super::status::Refusal;
use super::views::PodView;

/// A watch that has not shown what was done after so long never will.
const PATIENCE: TimeDelta = TimeDelta::seconds(30);
/// Pods made and deleted are told of at most once in this time.
const NEWS_INTERVAL: TimeDelta = TimeDelta::seconds(60);
/// The longest pause after the API server refused to make a pod.
const LONGEST_PAUSE: TimeDelta = TimeDelta::seconds(60);
/// The longest pause between two writes of a status of which only numbers changed.
const LONGEST_REST: TimeDelta = TimeDelta::milliseconds(100);

/// See the module.
#[derive(Debug, Default)]
pub struct Memory {
    /// The object's UID: another one means that nothing of this holds.
    pub uid: String,
    /// The verdicts on all nodes; none before the first look.
    pub board: Option<Board>,
    /// Nodes of which something changed since the last look.
    changed: BTreeSet<Box<str>>,
    /// What was done on nodes and not yet seen, and what was last on those whose pod is gone.
    nodes: HashMap<Box<str>, Recent>,
    /// When something of that is believed no longer.
    ends: BTreeSet<(DateTime<Utc>, Box<str>)>,
    /// The revision of which the API server is known to take a pod.
    pub proven: Option<String>,
    /// Whether the last look made as many pods as one may, and all went well.
    pub flowing: bool,
    /// The API server's last refusal to make a pod.
    pub refused: Option<Refused>,
    /// Its last refusal to delete one.
    pub undeleted: Option<Refused>,
    /// How many looks in a row ended with something that could not be done.
    pub in_vain: usize,
    /// Pods that the watch shows no more, though nobody deleted them.
    pub vanished: Vec<Claim>,
    /// When a status was written last.
    pub written: Option<DateTime<Utc>>,
    /// What was done and not yet told.
    tally: Tally,
    /// When it was last asked what changed.
    looked: DateTime<Utc>,
}

/// What was done on a node.
#[derive(Debug, Default)]
struct Recent {
    /// Pods that were made and not yet seen, and until when they are believed in.
    creates: Vec<(Arc<PodView>, DateTime<Utc>)>,
    /// Pods that were deleted and not yet seen going, by UID, and until when that is believed.
    deletes: Vec<(String, DateTime<Utc>)>,
    /// Pods that were adopted or released and not yet seen so, and until when that is believed.
    claims: Vec<(Claim, DateTime<Utc>)>,
    /// What was last on the node.
    last: Option<Last>,
}

impl Recent {
    /// Believes in nothing any more.
    fn forget(&mut self) {
        self.creates.clear();
        self.deletes.clear();
        self.claims.clear();
    }

    fn is_empty(&self) -> bool {
        self.ends().is_none() && self.last.is_none()
    }

    fn ends(&self) -> Option<DateTime<Utc>> {
        let creates = self.creates.iter().map(|(_, until)| *until);
        let deletes = self.deletes.iter().map(|(_, until)| *until);
        let claims = self.claims.iter().map(|(_, until)| *until);
        creates.chain(deletes).chain(claims).min()
    }
}

/// A refusal, and when to try again.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// What is told of it.
    pub refusal: Refusal,
    /// How often in a row nothing could be made: the pause doubles with each.
    pub count: u32,
    /// When to try again.
    pub next: DateTime<Utc>,
    /// The `metadata.generation` that was refused: a new one is tried at once.
    pub generation: Option<i64>,
}

impl Refused {
    /// The refusal that came after another one. The pause grows while nothing can be done.
    pub fn after(
        before: Option<Self>,
        refusal: Refusal,
        some_done: bool,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) -> Self {
        let before = before.filter(|before| before.generation == generation);
        let count = match &before {
            Some(before) if !some_done => before.count.saturating_add(1),
            _ => 0,
        };
        // The same words for another pod are no news.
        let known = before.map(|before| before.refusal);
        let known = known.filter(|known| known.message == refusal.message);
        // 2^6 s is beyond the longest pause.
        let pause = TimeDelta::seconds(1 << count.min(6)).min(LONGEST_PAUSE);
        Self {
            refusal: known.unwrap_or(refusal),
            count,
            next: now + pause,
            generation,
        }
    }

    /// Whether nothing is to be tried before its pause is over. A new spec is tried at once.
    pub fn holds(&self, generation: Option<i64>, now: DateTime<Utc>) -> bool {
        self.generation == generation && self.next > now
    }
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

    /// Notes that something changed on a node.
    pub fn touch(&mut self, node: &str) {
        if !self.changed.contains(node) {
            self.changed.insert(node.into());
        }
    }

    /// The nodes of which something changed since this was asked last.
    pub fn take_changed(&mut self, now: DateTime<Utc>) -> BTreeSet<Box<str>> {
        if now < self.looked {
            // The clock was set back: nothing waits for its old time to come again.
            self.refused = None;
            self.undeleted = None;
            let ends: Vec<_> = self.ends.iter().map(|(_, node)| node.clone()).collect();
            for node in ends {
                self.change(&node, Recent::forget);
            }
        }
        self.looked = now;
        while let Some((at, node)) = self.ends.first()
            && *at <= now
        {
            let node = node.clone();
            self.change(&node, |recent| {
                recent.creates.retain(|(_, until)| *until > now);
                recent.deletes.retain(|(_, until)| *until > now);
                recent.claims.retain(|(_, until)| *until > now);
            });
        }
        std::mem::take(&mut self.changed)
    }

    fn change(&mut self, node: &str, change: impl FnOnce(&mut Recent)) {
        self.touch(node);
        let mut recent = self.nodes.remove(node).unwrap_or_default();
        if let Some(at) = recent.ends() {
            self.ends.remove(&(at, node.into()));
        }
        change(&mut recent);
        if let Some(at) = recent.ends() {
            self.ends.insert((at, node.into()));
        }
        if !recent.is_empty() {
            self.nodes.insert(node.into(), recent);
        }
    }

    /// Notes a pod that is about to be made. Before the call: the watch may be faster than its
    /// answer.
    pub fn will_create(&mut self, pod: PodView, now: DateTime<Utc>) {
        let node = pod.node.clone();
        let noted = (Arc::new(pod), now + PATIENCE);
        self.change(&node, |recent| recent.creates.push(noted));
    }

    /// The pod was seen, or could not be made.
    pub fn seen(&mut self, node: &str, pod: &str) {
        self.change(node, |recent| {
            recent.creates.retain(|(made, _)| made.name != pod);
        });
    }

    /// The pod was made: what was there before it is of no use any more.
    pub fn created(&mut self, node: &str) {
        self.change(node, |recent| recent.last = None);
    }

    /// Notes a pod that is about to be deleted.
    pub fn will_delete(&mut self, delete: &Delete, now: DateTime<Utc>) {
        self.change(&delete.node, |recent| {
            recent.deletes.push((delete.uid.clone(), now + PATIENCE));
            if delete.why != Why::NodeGone {
                recent.last = Some(delete.last.clone());
            }
        });
    }

    /// The pod could not be deleted.
    pub fn not_deleted(&mut self, delete: &Delete) {
        self.change(&delete.node, |recent| {
            recent.deletes.retain(|(uid, _)| *uid != delete.uid);
        });
    }

    /// Notes that a pod is gone, for its successor. A note of the operator's own deletion of the
    /// same revision knows more.
    pub fn gone(&mut self, pod: &PodView) {
        self.change(&pod.node, |recent| {
            recent.deletes.retain(|(uid, _)| *uid != pod.uid);
            let known = recent.last.as_ref();
            if known.is_none_or(|last| last.revision != pod.revision) {
                recent.last = Some(Last {
                    revision: pod.revision.clone(),
                    attempt: 0,
                });
            }
        });
    }

    /// Notes that the watch does not show a pod any more. One that nobody deleted may have lost our
    /// labels.
    pub fn vanished(&mut self, pod: &PodView) {
        let recent = self.nodes.get(pod.node.as_str());
        let deleted = recent.is_some_and(|r| r.deletes.iter().any(|(uid, _)| *uid == pod.uid));
        if !deleted && !pod.deleting {
            self.vanished.push(Claim::release(pod));
        }
    }

    /// Notes a pod that was adopted or released.
    pub fn claimed(&mut self, claim: &Claim, now: DateTime<Utc>) {
        self.change(&claim.node, |recent| {
            recent.claims.push((claim.clone(), now + PATIENCE));
        });
    }

    /// The pods of a node as they will soon be seen: those in the cache, and what was done since.
    pub fn overlay(&mut self, node: &str, mut pods: Vec<Arc<PodView>>) -> Vec<Arc<PodView>> {
        let Some(recent) = self.nodes.get(node) else {
            return pods;
        };
        pods.retain_mut(|pod| {
            if !pod.deleting && recent.deletes.iter().any(|(uid, _)| *uid == pod.uid) {
                Arc::make_mut(pod).deleting = true;
            }
            let claims = recent.claims.iter().map(|(claim, _)| claim);
            match claims.rev().find(|claim| claim.uid == pod.uid) {
                Some(claim) if claim.adopt && pod.is_orphan() => {
                    Arc::make_mut(pod).owner_uid.clone_from(&self.uid);
                    true
                }
                Some(claim) => claim.adopt,
                None => true,
            }
        });
        let seen = |made: &PodView| pods.iter().any(|pod| pod.name == made.name);
        let made = recent.creates.iter().map(|(made, _)| made);
        let unseen: Vec<_> = made.filter(|made| !seen(made)).cloned().collect();
        pods.extend(unseen);
        pods
    }

    /// What was last on a node, as far as it is remembered.
    pub fn last(&self, node: &str) -> Option<&Last> {
        self.nodes.get(node)?.last.as_ref()
    }

    /// What was last on a node is of no use while a pod runs there.
    pub fn forget_last(&mut self, node: &str, pods: &[Arc<PodView>]) {
        let known = self.last(node).is_some();
        if known && pods.iter().any(|pod| pod.is_live() && !pod.uid.is_empty()) {
            self.created(node);
        }
    }

    /// The revisions that were last on nodes, or of which pods were made there.
    pub fn revisions(&self) -> impl Iterator<Item = &str> {
        self.nodes.values().flat_map(|recent| {
            let last = recent.last.iter().map(|last| last.revision.as_str());
            let creates = recent.creates.iter().map(|(pod, _)| pod.revision.as_str());
            last.chain(creates)
        })
    }

    /// The node is gone, and its pods: nothing of it is needed any more.
    pub fn forget_node(&mut self, node: &str) {
        self.change(node, |recent| *recent = Recent::default());
        self.changed.remove(node);
    }

    /// When to look again because the watches did not show what was done.
    pub fn patience_ends(&self) -> Option<DateTime<Utc>> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Until when a status of which only numbers changed is not written again: there would be one
    /// write for each of many pods.
    pub fn rests_until(&self, pods: usize, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let rest = TimeDelta::milliseconds(i64::try_from(pods / 20).unwrap_or(i64::MAX));
        let at = self.written?;
        let due = at + rest.min(LONGEST_REST);
        (at <= now && due > now).then_some(due)
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

    fn deletion(pod: &PodView, why: Why, attempt: u32) -> Delete {
        Delete {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            why,
            last: Last {
                revision: pod.revision.clone(),
                attempt,
            },
        }
    }

    /// What is believed to be on the node, and whether the node is to be looked at again.
    fn shown(memory: &mut Memory, cached: &[PodView], now: i64) -> (Vec<(String, bool)>, bool) {
        let cached: Vec<_> = cached.iter().cloned().map(Arc::new).collect();
        let changed = memory.take_changed(at(now)).contains("n");
        let pods = memory.overlay("n", cached);
        let pods = pods.iter().map(|p| (p.uid.clone(), p.deleting));
        (pods.collect(), changed)
    }

    #[test]
    fn nodes_that_are_refused_never_keep_the_others_waiting() {
        let mut memory = Memory::default();
        let refusal = Refusal {
            reason: "PodRefused",
            node: None,
            message: String::new(),
        };
        for attempt in 0..40 {
            memory.refused = Some(Refused::after(
                memory.refused.take(),
                refusal.clone(),
                false,
                Some(1),
                at(0),
            ));
            let refused = memory.refused.clone().unwrap();
            // It says which node is tried first: each time another one.
            assert_eq!(refused.count, attempt);
            assert!(refused.next <= at(60));
        }
    }

    #[test]
    fn what_was_done_is_believed_until_it_is_seen_or_patience_ends() {
        let mut memory = Memory::default();
        let old = pod("old", "u");
        memory.will_create(pod("a", ""), at(0));
        memory.will_delete(&deletion(&old, Why::Outdated, 0), at(0));
        assert_eq!(memory.patience_ends(), Some(at(30)));
        assert_eq!(
            shown(&mut memory, std::slice::from_ref(&old), 1),
            (vec![("u".into(), true), (String::new(), false)], true)
        );
        assert!(!shown(&mut memory, std::slice::from_ref(&old), 1).1);
        // Seen in the cache, under its own UID; the other one is gone.
        memory.seen("n", "a");
        memory.gone(&old);
        let seen = vec![("ua".to_owned(), false)];
        assert_eq!(
            shown(&mut memory, &[pod("a", "ua")], 2),
            (seen.clone(), true)
        );
        assert_eq!(memory.patience_ends(), None);
        // Never seen.
        memory.will_create(pod("b", ""), at(5));
        memory.will_delete(&deletion(&pod("a", "ua"), Why::Outdated, 0), at(5));
        shown(&mut memory, &[pod("a", "ua")], 6);
        assert_eq!(shown(&mut memory, &[pod("a", "ua")], 36), (seen, true));
        // Made, seen and gone again before the next look.
        memory.will_create(pod("c", ""), at(40));
        memory.seen("n", "c");
        assert!(shown(&mut memory, &[], 41).0.is_empty());
        // Nothing is left of a node that is gone.
        memory.forget_node("n");
        assert!(memory.nodes.is_empty() && memory.ends.is_empty());
        assert!(memory.take_changed(at(50)).is_empty());
    }

    #[test]
    fn nothing_is_believed_any_more_after_the_clock_was_set_back() {
        let mut memory = Memory::default();
        memory.take_changed(at(1_000));
        memory.will_create(pod("a", ""), at(1_000));
        let refusal = Refusal {
            reason: "PodRefused",
            node: None,
            message: String::new(),
        };
        memory.refused = Some(Refused::after(None, refusal, false, Some(1), at(1_000)));
        let changed = memory.take_changed(at(10));
        assert!(changed.contains("n") && memory.overlay("n", Vec::new()).is_empty());
        assert!(memory.refused.is_none() && memory.patience_ends().is_none());
    }

    #[test]
    fn a_pod_that_nobody_deleted_and_that_is_shown_no_more_is_looked_for() {
        let mut memory = Memory::default();
        let shown = pod("a", "u");
        memory.will_delete(&deletion(&shown, Why::Outdated, 0), at(0));
        memory.vanished(&shown);
        let mut leaving = pod("b", "v");
        leaving.deleting = true;
        memory.vanished(&leaving);
        assert!(memory.vanished.is_empty());
        memory.vanished(&pod("c", "w"));
        assert_eq!(memory.vanished.len(), 1);
    }

    #[test]
    fn what_was_last_on_a_node_is_forgotten_when_a_pod_runs_there() {
        let mut memory = Memory::default();
        memory.gone(&pod("a", "u"));
        memory.forget_last("n", &[Arc::new(pod("b", ""))]);
        assert!(memory.last("n").is_some(), "not seen yet");
        memory.forget_last("n", &[Arc::new(pod("b", "v"))]);
        assert!(memory.last("n").is_none());
    }

    #[test]
    fn a_pod_that_was_adopted_or_released_is_believed_to_be_so() {
        let mut memory = Memory::of("owner");
        let orphan = Arc::new(pod("a", "u"));
        let claim = |adopt| Claim {
            pod: "a".into(),
            uid: "u".into(),
            node: "n".into(),
            adopt,
        };
        memory.claimed(&claim(true), at(0));
        let seen = memory.overlay("n", vec![orphan.clone()]);
        assert_eq!(seen[0].owner_uid, "owner");
        memory.claimed(&claim(false), at(1));
        assert!(memory.overlay("n", vec![orphan.clone()]).is_empty());
        memory.take_changed(at(31));
        assert!(memory.overlay("n", vec![orphan])[0].is_orphan());
    }

    #[test]
    fn the_operators_own_note_of_a_failure_outlives_the_news_that_the_pod_is_gone() {
        let mut memory = Memory::default();
        let failed = pod("a", "u");
        memory.will_delete(&deletion(&failed, Why::Failed, 3), at(0));
        memory.gone(&failed);
        assert_eq!(memory.last("n").map(|last| last.attempt), Some(3));
        let mut other = pod("b", "v");
        other.revision = "s".into();
        memory.gone(&other);
        let last = memory.last("n").unwrap();
        assert_eq!((last.revision.as_str(), last.attempt), ("s", 0));
        assert_eq!(memory.revisions().collect::<Vec<_>>(), ["s"]);
        // Its successor is made.
        memory.created("n");
        assert_eq!(memory.last("n"), None);
    }

    #[test]
    fn writes_of_mere_numbers_are_spaced_where_there_are_many_pods() {
        let mut memory = Memory::default();
        assert_eq!(memory.rests_until(5_000, at(10)), None);
        memory.written = Some(at(10));
        let due = at(10) + TimeDelta::milliseconds(100);
        assert_eq!(memory.rests_until(5_000, at(10)), Some(due));
        assert_eq!(memory.rests_until(5_000, due), None);
        assert_eq!(memory.rests_until(5_000, at(5)), None, "the clock was set");
        assert_eq!(memory.rests_until(4, at(10)), None, "few pods");
    }

    #[test]
    fn the_pause_after_refusals_grows_while_nothing_can_be_made() {
        let mut memory = Memory::default();
        let mut refuse = |some_made, generation, now| {
            let refusal = Refusal {
                reason: "PodRefused",
                node: None,
                message: "quota".into(),
            };
            memory.refused = Some(Refused::after(
                memory.refused.take(),
                refusal,
                some_made,
                Some(generation),
                at(now),
            ));
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
