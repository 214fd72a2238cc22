//! What the controller remembers of an object between two reconciles.
//!
//! Nothing here is needed for correctness after a restart. It covers the time until the watches
//! show what was done, and limits how often calls, Events and status writes are repeated. Each
//! part has an owner, which alone writes it:
//!
//! | part | what it assumes, and until when | owner |
//! |---|---|---|
//! | [`nodes`] | pods that were created, deleted, adopted and released are so until the watch shows it; the last pods of nodes | the calls about pods, the watch of pods |
//! | `vanished` | pods that the watch lost may have lost our labels, until a live read | the watch of pods, the step that releases them |
//! | [`first_look`] | the cache shows every pod that was there before the object, once it did | the live list of a new object |
//! | [`acceptance`] | what the API server made of a pod of a revision holds for all, until the revision is the newest again | the dry runs |
//! | [`stored_revisions`] | revisions that were stored are there, until the watch shows them | the calls about revisions |
//! | [`backoffs`] | a step that failed fails again, until its pause ends or the spec changes | every step |
//! | [`event_tally`] | pods that no Event has reported yet | the end of a pass |
//! | [`status_pacing`] | another operator writes the same status, until its backoff ends | the status write |
//! | `gone_until` | the object does not exist, as the API server says, until a while later | the status write |
//! | `way_back` | a revision that failed is not tried again, until the image or template changes, or a user resumes it | the begin of a pass |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use super::decide::decision::Claim;
use super::decide::placement::Placement;
use super::decide::rollout::RolloutState;
use super::observe::pod::PodView;

pub(crate) mod acceptance;
pub(crate) mod backoffs;
pub(crate) mod belief;
pub(crate) mod event_tally;
pub(crate) mod first_look;
pub(crate) mod nodes;
pub(crate) mod status_pacing;
pub(crate) mod stored_revisions;

/// A clock that differs by more than this from one that is never set was set.
const MAX_DRIFT: TimeDelta = TimeDelta::seconds(1);

/// The memory of one object.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The object's UID. With another UID nothing of this applies.
    uid: String,
    /// When the last pass began, by both clocks.
    begun_at: Option<(DateTime<Utc>, Instant)>,
    /// The verdicts on all nodes; `None` before the first decision.
    pub(crate) rollout: Option<RolloutState>,
    pub(crate) nodes: nodes::NodeMemory,
    /// Pods that the watch no longer shows although nothing deleted them, by UID: the watch selects by our labels, so such
    /// a pod may still exist without them. It stays here until a live read shows that it is gone, or it was released.
    pub(crate) vanished: BTreeMap<String, Claim>,
    pub(crate) first_look: first_look::FirstLook,
    pub(crate) acceptance: acceptance::Acceptance,
    pub(crate) stored: stored_revisions::StoredRevisions,
    pub(crate) backoffs: backoffs::Backoffs,
    pub(crate) tally: event_tally::EventTally,
    pub(crate) status: status_pacing::StatusPacing,
    /// The API server knows no such object, and the cache still has it: until then nothing is done for it, unless the watch
    /// shows another one of its name.
    pub(crate) gone_until: Option<DateTime<Utc>>,
    /// The pods go back to an earlier revision, as the status says.
    pub(crate) way_back: Option<WayBack>,
}

/// A roll-out that goes back by itself.
#[derive(Debug)]
pub(crate) struct WayBack {
    /// The revision that failed. On the way back its pods go, and with them all evidence but that in the status, which the
    /// watch may show late.
    pub(crate) from: String,
    /// Where pods of the other revision belong: the watch of nodes does not decode the status.
    pub(crate) placement: Arc<Placement>,
}

impl Memory {
    /// An empty memory of the object with that UID.
    pub(super) fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            ..Self::default()
        }
    }

    /// A pass begins at that time by the wall clock, and by one that is never set. Forgets everything if the object is
    /// another one of the same name. If the wall clock was set, or the machine suspended, nothing waits for its old time to
    /// come again, and what may still be carried out stays so for as long as before.
    pub(crate) fn begin(&mut self, uid: &str, now: DateTime<Utc>, instant: Instant) {
        if self.uid != uid {
            *self = Self::new(uid);
        }
        let Some((before, since)) = self.begun_at.replace((now, instant)) else {
            return;
        };
        let elapsed = TimeDelta::from_std(instant - since).unwrap_or(TimeDelta::MAX);
        let forward = (now - before) - elapsed;
        if forward.abs() > MAX_DRIFT {
            self.nodes.clock_was_set(forward, now);
        }
        if forward < -MAX_DRIFT {
            self.backoffs.forget_pauses();
            self.stored.forget_all();
        }
    }

    /// The nodes that changed since the last decision.
    pub(crate) fn take_changed(&mut self, now: DateTime<Utc>) -> BTreeSet<Box<str>> {
        self.nodes.take_changed(now)
    }

    /// The watch no longer shows a pod. A pod that was not deleted may have lost our labels.
    pub(crate) fn pod_gone(&mut self, pod: &PodView) {
        // The event may be about the pod of an earlier object of the same name.
        if self.uid != pod.owner_uid {
            return;
        }
        // Before the deletion is forgotten as observed.
        if !pod.deleting && !self.nodes.is_deleted(pod) {
            self.vanished.insert(pod.uid.clone(), Claim::release(pod));
        }
        self.nodes.gone(pod);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use std::time::Duration;

    use super::backoffs::{Nature, Problem, Step};
    use super::belief::Answer;
    use super::nodes::Written;
    use super::*;
    use crate::decide::decision::{Create, Delete, DeleteReason};
    use crate::decide::input::Last;
    use crate::status::Refusal;

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

    fn deletion(pod: &PodView, reason: DeleteReason, attempt: u32) -> Written {
        Written::Deleted(Delete {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            reason,
            last: Last {
                revision: pod.revision.clone(),
                attempt,
                ..Last::default()
            },
            version: None,
        })
    }

    /// What is believed to be on the node, and whether the node changed.
    fn shown(memory: &mut Memory, cached: &[PodView], now: i64) -> (Vec<(String, bool)>, bool) {
        let cached: Vec<_> = cached.iter().cloned().map(Arc::new).collect();
        let changed = memory.take_changed(at(now)).contains("n");
        let pods = memory.nodes.overlay(&memory.uid, "n", cached);
        let pods = pods.iter().map(|p| (p.uid.clone(), p.deleting));
        (pods.collect(), changed)
    }

    fn problem(nature: Nature) -> Problem {
        Problem {
            refusal: Refusal {
                reason: "PodRefused",
                node: None,
                message: "quota".into(),
            },
            nature,
        }
    }

    fn creation(pod: &PodView) -> Written {
        Written::Created(Arc::new(pod.clone()))
    }

    /// The pods in doubt at that time.
    fn doubts(memory: &Memory, now: i64) -> Vec<String> {
        let doubts = memory.nodes.doubts(at(now)).into_iter();
        doubts.map(|doubt| doubt.id().0.to_owned()).collect()
    }

    #[test]
    fn an_overtaken_deletion_is_checked_at_once() {
        let mut memory = Memory::new("me");
        let delete = deletion(&pod("a", "u"), DeleteReason::Outdated, 0);
        memory.nodes.begins(delete.clone(), at(0));
        memory
            .nodes
            .answered(&delete, Answer::Overtaken, None, at(0));
        assert_eq!(memory.nodes.next_check(), None);
        for (answer, second) in [(Answer::Unknown, 0), (Answer::Overtaken, 5)] {
            memory.nodes.begins(delete.clone(), at(second));
            memory.nodes.answered(&delete, answer, None, at(second));
        }
        assert_eq!(memory.nodes.unanswered_deletes(None), []);
        assert_eq!(doubts(&memory, 5), ["a"]);
    }

    #[test]
    fn writes_count_until_the_watch_shows_them_or_a_live_read_denies_them() {
        let mut memory = Memory::default();
        let old = pod("old", "u");
        let delete = deletion(&old, DeleteReason::Outdated, 0);
        let (made, done) = (pod("a", ""), Answer::Done);
        memory.nodes.begins(creation(&made), at(0));
        memory.nodes.begins(delete.clone(), at(0));
        memory.nodes.answered(&creation(&made), done, None, at(0));
        memory.nodes.answered(&delete, done, None, at(0));
        assert_eq!(memory.nodes.next_check(), Some(at(30)));
        assert_eq!(
            shown(&mut memory, std::slice::from_ref(&old), 1),
            (vec![("u".into(), true), (String::new(), false)], true)
        );
        assert!(!shown(&mut memory, std::slice::from_ref(&old), 1).1);
        // Observed in the cache, under its own UID; the other one is gone.
        memory.nodes.seen(&pod("a", "ua"));
        memory.nodes.gone(&old);
        let seen = vec![("ua".to_owned(), false)];
        assert_eq!(
            shown(&mut memory, &[pod("a", "ua")], 2),
            (seen.clone(), true)
        );
        assert_eq!(memory.nodes.next_check(), None);
        // Never observed: it stays believed until the API server says otherwise, however late.
        let (other, delete) = (
            pod("b", ""),
            deletion(&pod("a", "ua"), DeleteReason::Outdated, 0),
        );
        memory.nodes.begins(creation(&other), at(5));
        memory.nodes.begins(delete.clone(), at(5));
        memory.nodes.answered(&creation(&other), done, None, at(5));
        memory.nodes.answered(&delete, done, None, at(5));
        let believed = vec![("ua".to_owned(), true), (String::new(), false)];
        assert_eq!(doubts(&memory, 34), [""; 0]);
        let later = shown(&mut memory, &[pod("a", "ua")], 3_600);
        assert_eq!(later, (believed.clone(), true));
        assert_eq!(doubts(&memory, 3_600), ["b", "a"]);
        for doubt in memory.nodes.doubts(at(3_600)) {
            memory.nodes.resolve(&doubt, true, at(3_600));
        }
        let later = shown(&mut memory, &[pod("a", "ua")], 3_600);
        assert_eq!(later, (believed, true));
        assert_eq!(doubts(&memory, 3_629), [""; 0]);
        for doubt in memory.nodes.doubts(at(3_630)) {
            memory.nodes.resolve(&doubt, false, at(3_630));
        }
        assert_eq!(shown(&mut memory, &[pod("a", "ua")], 3_630), (seen, true));
        // Created, observed and gone again before the next reconcile.
        memory.nodes.begins(creation(&pod("c", "")), at(3_640));
        memory.nodes.seen(&pod("c", "uc"));
        assert!(shown(&mut memory, &[], 3_641).0.is_empty());
        // Nothing is left of a node that is gone.
        memory.nodes.forget_node("n");
        assert!(memory.nodes.is_empty());
        assert!(memory.take_changed(at(3_650)).is_empty());
    }

    #[test]
    fn a_call_without_a_definite_answer_is_repeated_and_checked_when_it_can_no_longer_take_effect()
    {
        let mut memory = Memory::default();
        let delete = deletion(&pod("a", "u"), DeleteReason::Outdated, 0);
        let mut attempt = |answer, now| {
            let again = memory.nodes.begins(delete.clone(), at(now));
            memory.nodes.answered(&delete, answer, Some(1), at(now));
            let first_doubt = (now..now + 100).find(|now| !doubts(&memory, *now).is_empty());
            let repeats =
                [1, 2].map(|generation| memory.nodes.unanswered_deletes(Some(generation)));
            (again, repeats.map(|repeats| repeats.len()), first_doubt)
        };
        // A definite rejection of the only attempt.
        assert_eq!(attempt(Answer::Refused, 0), (false, [0, 0], None));
        assert_eq!(attempt(Answer::Unknown, 0), (false, [1, 0], Some(65)));
        assert_eq!(attempt(Answer::Unknown, 10), (true, [1, 0], Some(75)));
        // It says nothing about earlier attempts.
        assert_eq!(attempt(Answer::Refused, 20), (true, [1, 0], Some(75)));
        assert_eq!(attempt(Answer::Done, 30), (true, [0, 0], Some(60)));
        // The watch shows that it is being deleted.
        let leaving = PodView {
            deleting: true,
            ..pod("a", "u")
        };
        memory.nodes.seen(&leaving);
        assert_eq!(memory.nodes.next_check(), None);
    }

    #[test]
    fn a_call_that_is_under_way_is_not_in_doubt() {
        let mut memory = Memory::default();
        memory.nodes.begins(creation(&pod("a", "")), at(0));
        assert_eq!(doubts(&memory, 40), [""; 0]);
        let create = creation(&pod("a", ""));
        memory
            .nodes
            .answered(&create, Answer::Unknown, None, at(40));
        assert_eq!(
            memory.nodes.unanswered_creates(None),
            [Create::of(&pod("a", ""))]
        );
        assert_eq!(doubts(&memory, 104), [""; 0]);
        assert_eq!(doubts(&memory, 105), ["a"]);
    }

    #[test]
    fn pending_writes_are_checked_soon_after_the_clock_is_set_back() {
        let mut memory = Memory::default();
        let start = Instant::now();
        memory.begin("", at(1_000), start);
        let (a, b) = (pod("a", ""), pod("b", ""));
        for (pod, answer) in [(&a, Answer::Done), (&b, Answer::Unknown)] {
            memory.nodes.begins(creation(pod), at(1_000));
            memory
                .nodes
                .answered(&creation(pod), answer, None, at(1_000));
        }
        memory.backoffs.record(
            Step::Create,
            Some(problem(Nature::Refused)),
            false,
            Some(1),
            at(1_000),
        );
        memory.begin("", at(10), start);
        assert!(memory.take_changed(at(10)).contains("n"));
        assert!(!memory.backoffs.has_failed(Step::Create));
        assert_eq!(memory.nodes.overlay(&memory.uid, "n", Vec::new()).len(), 2);
        assert_eq!(doubts(&memory, 40), ["a"]);
        assert_eq!(doubts(&memory, 75), ["a", "b"]);
    }

    #[test]
    fn a_node_is_gone_for_as_long_although_the_clock_is_set() {
        let mut memory = Memory::default();
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        memory.begin("", at(1_000), start);
        let gone_since =
            |memory: &mut Memory, now| memory.nodes.gone_since("n", true, at(now)).unwrap();
        assert_eq!(gone_since(&mut memory, 1_000), at(1_000));
        // Forward by 90 s, and back by 610.
        memory.begin("", at(1_100), later(10));
        assert_eq!(gone_since(&mut memory, 1_100), at(1_090));
        memory.begin("", at(500), later(20));
        assert_eq!(gone_since(&mut memory, 500), at(480));
    }

    #[test]
    fn a_call_may_be_carried_out_for_as_long_although_the_clock_is_set_forward() {
        let mut memory = Memory::default();
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        memory.begin("", at(1_000), start);
        let created = creation(&pod("a", ""));
        memory.nodes.begins(created.clone(), at(1_000));
        memory
            .nodes
            .answered(&created, Answer::Unknown, None, at(1_000));
        // By 70 s, 20 s later; then a pass without a change of the clock.
        memory.begin("", at(1_090), later(20));
        memory.begin("", at(1_091), later(21));
        assert_eq!(doubts(&memory, 1_134), [""; 0]);
        assert_eq!(doubts(&memory, 1_135), ["a"]);
        // Twice: the time is no longer than that of a call that ends now.
        memory.begin("", at(9_000), later(22));
        memory.begin("", at(99_000), later(23));
        assert_eq!(doubts(&memory, 99_065), ["a"]);
    }

    #[test]
    fn a_pod_that_disappears_without_a_deletion_is_looked_up() {
        let mut memory = Memory::default();
        let shown = pod("a", "u");
        memory
            .nodes
            .begins(deletion(&shown, DeleteReason::Outdated, 0), at(0));
        memory.pod_gone(&shown);
        let mut leaving = pod("b", "v");
        leaving.deleting = true;
        memory.pod_gone(&leaving);
        assert!(memory.vanished.is_empty());
        memory.pod_gone(&pod("c", "w"));
        assert_eq!(memory.vanished.len(), 1);
    }

    #[test]
    fn the_last_pod_of_a_node_is_forgotten_when_another_runs() {
        let mut memory = Memory::default();
        let gone = pod("a", "u");
        memory.nodes.gone(&gone);
        let mut is_known_beside = |uid: &str, revision: &str| {
            let mut runs = pod("b", uid);
            runs.revision = revision.to_owned();
            let update = &gone.revision;
            let nodes = &mut memory.nodes;
            nodes.forget_last_where_one_runs("n", &[Arc::new(runs)], update);
            nodes.last("n").is_some()
        };
        assert!(is_known_beside("", &gone.revision), "not seen yet");
        assert!(is_known_beside("v", "older"), "the old pod of a surge");
        assert!(!is_known_beside("v", &gone.revision));
    }

    #[test]
    fn adoptions_and_releases_count_before_the_watch_shows_them() {
        let mut memory = Memory::new("owner");
        let orphan = Arc::new(pod("a", "u"));
        let claim = |adopt| Claim {
            pod: "a".into(),
            uid: "u".into(),
            node: "n".into(),
            adopt,
        };
        memory.nodes.claimed(&claim(true), at(0));
        let seen = memory.nodes.overlay(&memory.uid, "n", vec![orphan.clone()]);
        assert_eq!(seen[0].owner_uid, "owner");
        memory.nodes.claimed(&claim(false), at(1));
        assert!(
            memory
                .nodes
                .overlay(&memory.uid, "n", vec![orphan.clone()])
                .is_empty()
        );
        memory.take_changed(at(31));
        assert!(memory.nodes.overlay(&memory.uid, "n", vec![orphan])[0].is_orphan());
    }

    #[test]
    fn the_record_of_a_failure_outlives_the_delete_event_of_the_pod() {
        let mut memory = Memory::default();
        let failed = pod("a", "u");
        memory
            .nodes
            .begins(deletion(&failed, DeleteReason::Failed, 3), at(0));
        memory.nodes.gone(&failed);
        assert_eq!(memory.nodes.last("n").map(|last| last.attempt), Some(3));
        let mut other = pod("b", "v");
        other.revision = "s".into();
        memory.nodes.gone(&other);
        let last = memory.nodes.last("n").unwrap();
        assert_eq!((last.revision.as_str(), last.attempt), ("s", 0));
        assert_eq!(memory.nodes.revisions().collect::<Vec<_>>(), ["s"]);
        // Its successor is created.
        let next = pod("c", "");
        memory.nodes.begins(creation(&next), at(1));
        memory
            .nodes
            .answered(&creation(&next), Answer::Done, None, at(1));
        assert_eq!(memory.nodes.last("n"), None);
    }

    #[test]
    fn a_node_is_gone_since_it_was_first_missed() {
        let mut memory = Memory::default();
        let mut since = |is_gone, now| memory.nodes.gone_since("n", is_gone, at(now));
        assert_eq!(since(true, 10), Some(at(10)));
        assert_eq!(since(true, 20), Some(at(10)));
        assert_eq!(since(true, 5), Some(at(5)), "the clock was set back");
        assert_eq!(since(false, 30), None);
        assert_eq!(since(true, 40), Some(at(40)));
        assert_eq!(since(false, 50), None);
        assert!(memory.nodes.is_empty());
    }
}
