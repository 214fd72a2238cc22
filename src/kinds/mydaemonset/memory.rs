//! What the controller remembers of an object between two looks at it.
//!
//! Nothing here is needed for correctness after a restart: it bridges the time until the watches show
//! what was done, and holds what would else be told too often.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::revision::RevisionView;
use super::rollout::board::RolloutState;
use super::rollout::{Claim, Create, Delete, DeleteReason, Last};
use super::status::Refusal;
use super::views::PodView;
use crate::reconcile::pace::StatusWrites;

/// A watch that does not show within this time what the API server has done is not waited for: the API server is asked.
const WATCH_TIMEOUT: TimeDelta = TimeDelta::seconds(30);
/// A call that had no definite answer may be carried out for so long after it ended. The API server itself gives up a
/// request after 60 s (`--request-timeout`); etcd may commit what was given up.
const MAY_LAND: TimeDelta = TimeDelta::seconds(65);
/// No call is under way for longer: it is given up after 40 s.
const MAX_CALL: TimeDelta = TimeDelta::seconds(45);
/// Pods made and deleted are told of at most once in this time.
const NEWS_INTERVAL: TimeDelta = TimeDelta::seconds(60);
/// The longest pause after the API server refused to make a pod.
const MAX_PAUSE: TimeDelta = TimeDelta::seconds(60);
/// The longest pause between two writes of a status of which only numbers changed.
const MAX_REST: TimeDelta = TimeDelta::milliseconds(100);

/// See the module.
#[derive(Debug, Default)]
pub struct Memory {
    /// The object's UID: another one means that nothing of this holds.
    pub uid: String,
    /// The verdicts on all nodes; none before the first look.
    pub board: Option<RolloutState>,
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
    /// Where no trial is possible: the revision, and the node whose pod is the trial.
    pub untried: Option<(String, Option<String>)>,
    /// The labels of a pod that was made were not ours.
    pub relabelled: bool,
    /// The revision of the present spec as it was stored, while the watch does not show it, and until when.
    pub stored: Option<(Arc<RevisionView>, DateTime<Utc>)>,
    /// The failures of steps.
    troubles: BTreeMap<Step, Trouble>,
    /// How many looks in a row ended with something that could not be done.
    pub in_vain: usize,
    /// Pods that the watch shows no more, though nobody deleted them, by UID.
    pub vanished: BTreeMap<String, Claim>,
    /// When a status was written last.
    pub written: Option<DateTime<Utc>>,
    /// The backoff of status writes against another operator's.
    pub statuses: StatusWrites,
    /// What was done and not yet told.
    tally: Tally,
    /// When it was last asked what changed.
    looked: DateTime<Utc>,
}

/// What was done on a node.
#[derive(Debug, Default)]
struct Recent {
    /// Pods that were made and that the watch has not shown.
    creates: Vec<Creation>,
    /// Pods that were deleted and that the watch still shows as they were.
    deletes: Vec<Deletion>,
    /// Pods that were adopted or released and not yet seen so, and until when that is believed.
    claims: Vec<(Claim, DateTime<Utc>)>,
    /// What was last on the node.
    last: Option<Last>,
    /// Since when the node is gone, though there are pods on it.
    gone_since: Option<DateTime<Utc>>,
}

#[derive(Debug)]
struct Creation {
    pod: Arc<PodView>,
    belief: Belief<Create>,
}

#[derive(Debug)]
struct Deletion {
    pod: String,
    uid: String,
    belief: Belief<Delete>,
}

/// The belief that a call was carried out. It ends when the watch shows what it did, or when the API server, asked at the
/// right time, says otherwise; never by itself.
#[derive(Debug)]
struct Belief<C> {
    /// When the API server is asked.
    ask: DateTime<Utc>,
    /// The call, if an attempt at it had no definite answer.
    unanswered: Option<Unanswered<C>>,
}

#[derive(Debug)]
struct Unanswered<C> {
    call: C,
    /// The `metadata.generation` that it was made for. Another one may not want it.
    generation: Option<i64>,
    /// Until when it may be carried out.
    until: DateTime<Utc>,
}

/// What is known of a call when it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// It was not carried out, and will not be.
    Refused,
    /// It was not carried out: the object has another version than the one that the call names. No attempt at the same call
    /// can be carried out any more, but an earlier one may have been.
    Overtaken,
    /// It may have been carried out, or still be.
    Unknown,
}

impl<C> Belief<C> {
    /// That in a call which begins now.
    fn new(now: DateTime<Utc>) -> Self {
        Self {
            ask: now + MAX_CALL + MAY_LAND,
            unanswered: None,
        }
    }

    /// Takes in an answer. Whether the belief stays.
    fn answered(
        &mut self,
        answer: Answer,
        call: impl FnOnce() -> C,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) -> bool {
        match answer {
            Answer::Done => {
                self.unanswered = None;
                self.ask = now + WATCH_TIMEOUT;
            }
            Answer::Unknown => {
                self.ask = now + MAY_LAND;
                self.unanswered = Some(Unanswered {
                    call: call(),
                    generation,
                    until: self.ask,
                });
            }
            Answer::Overtaken => {
                self.ask = now;
                return self.unanswered.take().is_some();
            }
            // It says nothing of an earlier attempt, which may still be carried out.
            Answer::Refused => match &self.unanswered {
                Some(unanswered) => self.ask = unanswered.until,
                None => return false,
            },
        }
        true
    }

    /// Goes on until then, if what is believed is so.
    fn confirm(&mut self, ask: Option<DateTime<Utc>>) -> bool {
        let Some(ask) = ask else {
            return false;
        };
        self.ask = ask;
        self.unanswered = None;
        true
    }

    /// Waits no longer than it would from now on: the clock was set back.
    fn rebase(&mut self, now: DateTime<Utc>) {
        self.ask = match &mut self.unanswered {
            Some(unanswered) => {
                unanswered.until = unanswered.until.min(now + MAY_LAND);
                unanswered.until
            }
            None => self.ask.min(now + WATCH_TIMEOUT),
        };
    }

    /// The call, if it is to be repeated for that generation.
    fn repeat(&self, generation: Option<i64>) -> Option<&C> {
        let unanswered = self.unanswered.as_ref();
        unanswered
            .filter(|unanswered| unanswered.generation == generation)
            .map(|unanswered| &unanswered.call)
    }
}

/// A belief that only the API server can confirm or end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The pod's name.
    pub pod: String,
    /// The UID of the pod that was deleted; empty for one that was made.
    pub uid: String,
    /// The node's name.
    pub node: Box<str>,
}

impl Recent {
    fn is_empty(&self) -> bool {
        self.ends().is_none() && self.last.is_none() && self.gone_since.is_none()
    }

    fn ends(&self) -> Option<DateTime<Utc>> {
        let creates = self.creates.iter().map(|made| made.belief.ask);
        let deletes = self.deletes.iter().map(|gone| gone.belief.ask);
        let claims = self.claims.iter().map(|(_, until)| *until);
        creates.chain(deletes).chain(claims).min()
    }

    /// The clock was set back: nothing waits for its old time to come again.
    fn rebase(&mut self, now: DateTime<Utc>) {
        self.claims.clear();
        for made in &mut self.creates {
            made.belief.rebase(now);
        }
        for gone in &mut self.deletes {
            gone.belief.rebase(now);
        }
    }
}

/// A kind of calls. Each has pauses of its own: what is refused at one holds up no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Pods are made, or tried.
    Create,
    /// Pods are deleted.
    Delete,
    /// Pods are adopted or released.
    Claim,
    /// Pods without our labels are looked for, and released.
    Release,
    /// Revisions are adopted.
    Adopt,
    /// Superfluous revisions are deleted.
    Prune,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// The API server rejects the call as it is. It is reported at once.
    Refused,
    /// What a person has to fix, or what heals by itself: reported from the second time in a row.
    Blocked,
    /// Another attempt may succeed. The queue makes the pause. Reported from the second time in a row.
    Failed,
    /// It is not reported.
    Expected,
}

/// A failure of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is reported of it.
    pub refusal: Refusal,
    /// When it is reported.
    pub nature: Nature,
}

/// A problem, and when to try again.
#[derive(Clone, Debug, PartialEq)]
struct Trouble {
    problem: Problem,
    /// How often in a row nothing could be done: the pause doubles with each.
    count: u32,
    /// When to try again.
    next: DateTime<Utc>,
    /// The `metadata.generation` that it befell: a new one is tried at once.
    generation: Option<i64>,
}

impl Trouble {
    /// The trouble that came after another one. The pause grows while nothing can be done.
    fn after(
        before: Option<Self>,
        mut problem: Problem,
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
        let known = before.map(|before| before.problem.refusal);
        let same = |known: &Refusal| {
            (known.reason, &known.message) == (problem.refusal.reason, &problem.refusal.message)
        };
        if let Some(known) = known.filter(same) {
            problem.refusal = known;
        }
        // 2^6 s is beyond the longest pause.
        let pause = match problem.nature {
            Nature::Failed => TimeDelta::zero(),
            _ => TimeDelta::seconds(1 << count.min(6)).min(MAX_PAUSE),
        };
        Self {
            problem,
            count,
            next: now + pause,
            generation,
        }
    }

    fn is_reported(&self) -> bool {
        match self.problem.nature {
            Nature::Refused => true,
            Nature::Blocked | Nature::Failed => self.count > 0,
            Nature::Expected => false,
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    created: usize,
    deleted: BTreeMap<DeleteReason, usize>,
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
            self.troubles.clear();
            self.stored = None;
            for node in self.nodes_until(DateTime::<Utc>::MAX_UTC) {
                self.change(&node, |recent| recent.rebase(now));
            }
        }
        self.looked = now;
        for node in self.nodes_until(now) {
            self.change(&node, |recent| {
                recent.claims.retain(|(_, until)| *until > now);
            });
        }
        std::mem::take(&mut self.changed)
    }

    /// The nodes of which something is believed only until then.
    fn nodes_until(&self, time: DateTime<Utc>) -> Vec<Box<str>> {
        let ends = self.ends.iter().take_while(|(at, _)| *at <= time);
        ends.map(|(_, node)| node.clone()).collect()
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
        self.change(&node, |recent| {
            let pod = Arc::new(pod);
            let before = recent.creates.iter_mut().find(|c| c.pod.name == pod.name);
            if let Some(before) = before {
                before.belief.ask = Belief::<Create>::new(now).ask;
            } else {
                let belief = Belief::new(now);
                recent.creates.push(Creation { pod, belief });
            }
        });
    }

    /// Notes what came of an attempt to make a pod.
    pub fn create_answered(
        &mut self,
        create: &Create,
        pod: &str,
        answer: Answer,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        self.change(&create.node, |recent| {
            recent.creates.retain_mut(|made| {
                let call = || create.clone();
                made.pod.name != pod || made.belief.answered(answer, call, generation, now)
            });
            if answer == Answer::Done {
                // What was there before it is of no use any more.
                recent.last = None;
            }
        });
    }

    /// The watch shows a pod, or its end.
    pub fn seen(&mut self, pod: &PodView) {
        self.change(&pod.node, |recent| {
            recent.creates.retain(|made| made.pod.name != pod.name);
            if pod.deleting {
                recent.deletes.retain(|gone| gone.uid != pod.uid);
            }
        });
    }

    /// Notes a pod that is about to be deleted. Whether an earlier attempt had no definite answer.
    pub fn will_delete(&mut self, delete: &Delete, now: DateTime<Utc>) -> bool {
        let mut unanswered = false;
        self.change(&delete.node, |recent| {
            let mut deletes = recent.deletes.iter_mut();
            if let Some(before) = deletes.find(|gone| gone.uid == delete.uid) {
                before.belief.ask = Belief::<Delete>::new(now).ask;
                unanswered = before.belief.unanswered.is_some();
            } else {
                recent.deletes.push(Deletion {
                    pod: delete.pod.clone(),
                    uid: delete.uid.clone(),
                    belief: Belief::new(now),
                });
            }
            if delete.why != DeleteReason::NodeGone {
                recent.last = Some(delete.last.clone());
            }
        });
        unanswered
    }

    /// Notes what came of an attempt to delete a pod.
    pub fn delete_answered(
        &mut self,
        delete: &Delete,
        answer: Answer,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        self.change(&delete.node, |recent| {
            recent.deletes.retain_mut(|gone| {
                let call = || delete.clone();
                gone.uid != delete.uid || gone.belief.answered(answer, call, generation, now)
            });
        });
    }

    /// The deletions that had no definite answer, and are to be repeated for that generation.
    pub fn unanswered_deletes(&self, generation: Option<i64>) -> Vec<Delete> {
        let deletes = self.believed().flat_map(|recent| &recent.deletes);
        let repeat = deletes.filter_map(|gone| gone.belief.repeat(generation));
        repeat.cloned().collect()
    }

    /// The same of pods to make.
    pub fn unanswered_creates(&self, generation: Option<i64>) -> Vec<Create> {
        let creates = self.believed().flat_map(|recent| &recent.creates);
        let repeat = creates.filter_map(|made| made.belief.repeat(generation));
        repeat.cloned().collect()
    }

    /// Whether an attempt to make that pod had no definite answer.
    pub fn may_be_made(&self, create: &Create) -> bool {
        let recent = self.nodes.get(create.node.as_str());
        let mut creates = recent.into_iter().flat_map(|recent| &recent.creates);
        creates.any(|made| made.pod.revision == create.revision && made.belief.unanswered.is_some())
    }

    /// What is believed, of those nodes of which anything is.
    fn believed(&self) -> impl Iterator<Item = &Recent> {
        self.ends
            .iter()
            .filter_map(|(_, node)| self.nodes.get(node))
    }

    /// The beliefs that the watches should have confirmed by now.
    pub fn doubts(&self, now: DateTime<Utc>) -> Vec<Doubt> {
        let nodes = self.nodes_until(now).into_iter();
        let doubts = nodes.flat_map(|node| {
            let recent = self.nodes.get(&node);
            let creates = recent.into_iter().flat_map(|recent| &recent.creates);
            let creates = creates.filter(|made| made.belief.ask <= now);
            let deletes = recent.into_iter().flat_map(|recent| &recent.deletes);
            let deletes = deletes.filter(|gone| gone.belief.ask <= now);
            let creates = creates.map(|made| (&made.pod.name, ""));
            let deletes = deletes.map(|gone| (&gone.pod, gone.uid.as_str()));
            let doubts = creates.chain(deletes).map(|(pod, uid)| Doubt {
                pod: pod.clone(),
                uid: uid.to_owned(),
                node: node.clone(),
            });
            doubts.collect::<Vec<_>>()
        });
        doubts.collect()
    }

    /// The API server was asked: what was believed is so, and the watch will show it; or it is not.
    pub fn resolve(&mut self, doubt: &Doubt, is_so: bool, now: DateTime<Utc>) {
        let ask = is_so.then_some(now + WATCH_TIMEOUT);
        self.change(&doubt.node, |recent| {
            if doubt.uid.is_empty() {
                recent
                    .creates
                    .retain_mut(|made| made.pod.name != doubt.pod || made.belief.confirm(ask));
            } else {
                recent
                    .deletes
                    .retain_mut(|gone| gone.uid != doubt.uid || gone.belief.confirm(ask));
            }
        });
    }

    /// Notes that a pod is gone, for its successor. A note of the operator's own deletion of the
    /// same revision knows more.
    pub fn gone(&mut self, pod: &PodView) {
        self.change(&pod.node, |recent| {
            recent.deletes.retain(|gone| gone.uid != pod.uid);
            let known = recent.last.as_ref();
            if known.is_none_or(|last| last.revision != pod.revision) {
                recent.last = Some(Last {
                    revision: pod.revision.clone(),
                    attempt: 0,
                    excluded: false,
                });
            }
        });
    }

    /// Notes that the watch does not show a pod any more. One that nobody deleted may have lost our
    /// labels.
    pub fn vanished(&mut self, pod: &PodView) {
        let recent = self.nodes.get(pod.node.as_str());
        let deleted = recent.is_some_and(|r| r.deletes.iter().any(|gone| gone.uid == pod.uid));
        if !deleted && !pod.deleting {
            self.vanished.insert(pod.uid.clone(), Claim::release(pod));
        }
    }

    /// Notes a pod that was adopted or released.
    pub fn claimed(&mut self, claim: &Claim, now: DateTime<Utc>) {
        self.change(&claim.node, |recent| {
            recent.claims.push((claim.clone(), now + WATCH_TIMEOUT));
        });
    }

    /// The pods of a node as they will soon be seen: those in the cache, and what was done since.
    pub fn overlay(&mut self, node: &str, mut pods: Vec<Arc<PodView>>) -> Vec<Arc<PodView>> {
        let Some(recent) = self.nodes.get(node) else {
            return pods;
        };
        pods.retain_mut(|pod| {
            if !pod.deleting && recent.deletes.iter().any(|gone| gone.uid == pod.uid) {
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
        let made = recent.creates.iter().map(|made| &made.pod);
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
            self.change(node, |recent| recent.last = None);
        }
    }

    /// The revisions that were last on nodes, or of which pods were made there.
    pub fn revisions(&self) -> impl Iterator<Item = &str> {
        self.nodes.values().flat_map(|recent| {
            let last = recent.last.iter().map(|last| last.revision.as_str());
            let creates = recent.creates.iter().map(|made| made.pod.revision.as_str());
            last.chain(creates)
        })
    }

    /// The node is gone, and its pods: nothing of it is needed any more.
    pub fn forget_node(&mut self, node: &str) {
        self.change(node, |recent| *recent = Recent::default());
        self.changed.remove(node);
    }

    /// When the API server is to be asked because the watches did not show what was done.
    pub fn patience_ends(&self) -> Option<DateTime<Utc>> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Until when a status of which only numbers changed is not written again: there would be one
    /// write for each of many pods.
    pub fn rests_until(&self, pods: usize, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let rest = TimeDelta::milliseconds(i64::try_from(pods / 20).unwrap_or(i64::MAX));
        let at = self.written?;
        let due = at + rest.min(MAX_REST);
        (at <= now && due > now).then_some(due)
    }

    /// Notes what came of a step: a problem, or none.
    pub fn report(
        &mut self,
        step: Step,
        problem: Option<Problem>,
        some_done: bool,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        let before = self.troubles.remove(&step);
        if let Some(problem) = problem {
            let trouble = Trouble::after(before, problem, some_done, generation, now);
            self.troubles.insert(step, trouble);
        }
    }

    /// Whether a step is not to be tried before its pause is over. A new spec is tried at once.
    pub fn rests(&self, step: Step, generation: Option<i64>, now: DateTime<Utc>) -> bool {
        let trouble = self.troubles.get(&step);
        trouble.is_some_and(|t| t.generation == generation && t.next > now)
    }

    /// When the first of the pauses is over.
    pub fn rest_ends(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let ends = self.troubles.values().map(|trouble| trouble.next);
        ends.filter(|next| *next > now).min()
    }

    /// Whether a step failed when it was tried last.
    pub fn has_trouble(&self, step: Step) -> bool {
        self.troubles.contains_key(&step)
    }

    /// What is to be reported of the failures.
    pub fn reported(&self) -> Option<&Refusal> {
        let mut reported = self.troubles.values().filter(|t| t.is_reported());
        reported.next().map(|trouble| &trouble.problem.refusal)
    }

    /// Since when a node is gone whose pods are still there. Until its pods are gone too, or it is back.
    pub fn gone_since(
        &mut self,
        node: &str,
        is_gone: bool,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let known = self.nodes.get(node).and_then(|recent| recent.gone_since);
        // After the clock was set back, it begins again.
        let since = is_gone.then(|| known.filter(|since| *since <= now).unwrap_or(now));
        if since != known {
            let recent = self.nodes.entry(node.into()).or_default();
            recent.gone_since = since;
            if recent.is_empty() {
                self.nodes.remove(node);
            }
        }
        since
    }

    /// What was last on a node is of no use where no pod may be.
    pub fn clear_last(&mut self, node: &str) {
        if self.last(node).is_some() {
            self.change(node, |recent| recent.last = None);
            self.changed.remove(node);
        }
    }

    /// Whether outdated pods may go for that revision: the API server takes its pods, or cannot be asked.
    pub fn is_proven(&self, hash: &str) -> bool {
        let untried = self.untried.as_ref().map(|(untried, _)| untried.as_str());
        self.proven.as_deref() == Some(hash) || untried == Some(hash)
    }

    /// Adds to what is to be told.
    pub fn count(&mut self, created: usize, deleted: impl IntoIterator<Item = DeleteReason>) {
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
pub fn deleted_text(deleted: &BTreeMap<DeleteReason, usize>) -> Option<String> {
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

    fn deletion(pod: &PodView, why: DeleteReason, attempt: u32) -> Delete {
        Delete {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            why,
            last: Last {
                revision: pod.revision.clone(),
                attempt,
                excluded: false,
            },
            version: None,
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
    fn a_deletion_that_cannot_land_any_more_is_asked_about_at_once() {
        let mut memory = Memory::of("me");
        let delete = deletion(&pod("a", "u"), DeleteReason::Outdated, 0);
        memory.will_delete(&delete, at(0));
        memory.delete_answered(&delete, Answer::Overtaken, None, at(0));
        assert_eq!(memory.patience_ends(), None);
        for (answer, second) in [(Answer::Unknown, 0), (Answer::Overtaken, 5)] {
            memory.will_delete(&delete, at(second));
            memory.delete_answered(&delete, answer, None, at(second));
        }
        assert_eq!(memory.unanswered_deletes(None), []);
        assert_eq!(doubts(&memory, 5), ["a"]);
    }

    #[test]
    fn nodes_that_are_refused_never_keep_the_others_waiting() {
        let mut memory = Memory::default();
        for attempt in 0..40 {
            memory.report(
                Step::Create,
                Some(problem(Nature::Refused)),
                false,
                Some(1),
                at(0),
            );
            let trouble = &memory.troubles[&Step::Create];
            // It says which node is tried first: each time another one.
            assert_eq!(trouble.count, attempt);
            assert!(trouble.next <= at(60));
        }
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

    fn creation(pod: &PodView) -> Create {
        Create {
            node: pod.node.clone(),
            node_uid: String::new(),
            revision: pod.revision.clone(),
            attempt: 0,
        }
    }

    /// What is in doubt then: the pods.
    fn doubts(memory: &Memory, now: i64) -> Vec<String> {
        let doubts = memory.doubts(at(now)).into_iter();
        doubts.map(|doubt| doubt.pod).collect()
    }

    #[test]
    fn what_was_done_is_believed_until_it_is_seen_or_the_api_server_says_otherwise() {
        let mut memory = Memory::default();
        let old = pod("old", "u");
        let delete = deletion(&old, DeleteReason::Outdated, 0);
        let (made, done) = (pod("a", ""), Answer::Done);
        memory.will_create(made.clone(), at(0));
        memory.will_delete(&delete, at(0));
        memory.create_answered(&creation(&made), "a", done, None, at(0));
        memory.delete_answered(&delete, done, None, at(0));
        assert_eq!(memory.patience_ends(), Some(at(30)));
        assert_eq!(
            shown(&mut memory, std::slice::from_ref(&old), 1),
            (vec![("u".into(), true), (String::new(), false)], true)
        );
        assert!(!shown(&mut memory, std::slice::from_ref(&old), 1).1);
        // Seen in the cache, under its own UID; the other one is gone.
        memory.seen(&pod("a", "ua"));
        memory.gone(&old);
        let seen = vec![("ua".to_owned(), false)];
        assert_eq!(
            shown(&mut memory, &[pod("a", "ua")], 2),
            (seen.clone(), true)
        );
        assert_eq!(memory.patience_ends(), None);
        // Never seen: it is so until the API server says otherwise, however late that is.
        let (other, delete) = (
            pod("b", ""),
            deletion(&pod("a", "ua"), DeleteReason::Outdated, 0),
        );
        memory.will_create(other.clone(), at(5));
        memory.will_delete(&delete, at(5));
        memory.create_answered(&creation(&other), "b", done, None, at(5));
        memory.delete_answered(&delete, done, None, at(5));
        let believed = vec![("ua".to_owned(), true), (String::new(), false)];
        assert_eq!(doubts(&memory, 34), [""; 0]);
        let later = shown(&mut memory, &[pod("a", "ua")], 3_600);
        assert_eq!(later, (believed.clone(), true));
        assert_eq!(doubts(&memory, 3_600), ["b", "a"]);
        for doubt in memory.doubts(at(3_600)) {
            memory.resolve(&doubt, true, at(3_600));
        }
        let later = shown(&mut memory, &[pod("a", "ua")], 3_600);
        assert_eq!(later, (believed, true));
        assert_eq!(doubts(&memory, 3_629), [""; 0]);
        for doubt in memory.doubts(at(3_630)) {
            memory.resolve(&doubt, false, at(3_630));
        }
        assert_eq!(shown(&mut memory, &[pod("a", "ua")], 3_630), (seen, true));
        // Made, seen and gone again before the next look.
        memory.will_create(pod("c", ""), at(3_640));
        memory.seen(&pod("c", "uc"));
        assert!(shown(&mut memory, &[], 3_641).0.is_empty());
        // Nothing is left of a node that is gone.
        memory.forget_node("n");
        assert!(memory.nodes.is_empty() && memory.ends.is_empty());
        assert!(memory.take_changed(at(3_650)).is_empty());
    }

    #[test]
    fn a_call_without_a_definite_answer_is_repeated_and_in_doubt_when_it_can_no_longer_land() {
        let mut memory = Memory::default();
        let delete = deletion(&pod("a", "u"), DeleteReason::Outdated, 0);
        let mut attempt = |answer, now| {
            let again = memory.will_delete(&delete, at(now));
            memory.delete_answered(&delete, answer, Some(1), at(now));
            let first_doubt = (now..now + 100).find(|now| !doubts(&memory, *now).is_empty());
            let repeats = [1, 2].map(|generation| memory.unanswered_deletes(Some(generation)));
            (again, repeats.map(|repeats| repeats.len()), first_doubt)
        };
        // A definite refusal of the only attempt.
        assert_eq!(attempt(Answer::Refused, 0), (false, [0, 0], None));
        assert_eq!(attempt(Answer::Unknown, 0), (false, [1, 0], Some(65)));
        assert_eq!(attempt(Answer::Unknown, 10), (true, [1, 0], Some(75)));
        // It says nothing of the attempts before.
        assert_eq!(attempt(Answer::Refused, 20), (true, [1, 0], Some(75)));
        assert_eq!(attempt(Answer::Done, 30), (true, [0, 0], Some(60)));
        // The watch shows that it goes.
        let leaving = PodView {
            deleting: true,
            ..pod("a", "u")
        };
        memory.seen(&leaving);
        assert_eq!(memory.patience_ends(), None);
    }

    #[test]
    fn a_call_that_is_under_way_is_not_in_doubt() {
        let mut memory = Memory::default();
        memory.will_create(pod("a", ""), at(0));
        assert_eq!(doubts(&memory, 40), [""; 0]);
        let create = creation(&pod("a", ""));
        memory.create_answered(&create, "a", Answer::Unknown, None, at(40));
        assert_eq!(memory.unanswered_creates(None), [create]);
        assert_eq!(doubts(&memory, 104), [""; 0]);
        assert_eq!(doubts(&memory, 105), ["a"]);
    }

    #[test]
    fn nothing_waits_for_the_old_time_after_the_clock_was_set_back() {
        let mut memory = Memory::default();
        memory.take_changed(at(1_000));
        let (a, b) = (pod("a", ""), pod("b", ""));
        for (pod, answer) in [(&a, Answer::Done), (&b, Answer::Unknown)] {
            memory.will_create(pod.clone(), at(1_000));
            memory.create_answered(&creation(pod), &pod.name, answer, None, at(1_000));
        }
        memory.report(
            Step::Create,
            Some(problem(Nature::Refused)),
            false,
            Some(1),
            at(1_000),
        );
        assert!(memory.take_changed(at(10)).contains("n"));
        assert!(!memory.has_trouble(Step::Create));
        assert_eq!(memory.overlay("n", Vec::new()).len(), 2);
        assert_eq!(doubts(&memory, 40), ["a"]);
        assert_eq!(doubts(&memory, 75), ["a", "b"]);
    }

    #[test]
    fn a_pod_that_nobody_deleted_and_that_is_shown_no_more_is_looked_for() {
        let mut memory = Memory::default();
        let shown = pod("a", "u");
        memory.will_delete(&deletion(&shown, DeleteReason::Outdated, 0), at(0));
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
        memory.will_delete(&deletion(&failed, DeleteReason::Failed, 3), at(0));
        memory.gone(&failed);
        assert_eq!(memory.last("n").map(|last| last.attempt), Some(3));
        let mut other = pod("b", "v");
        other.revision = "s".into();
        memory.gone(&other);
        let last = memory.last("n").unwrap();
        assert_eq!((last.revision.as_str(), last.attempt), ("s", 0));
        assert_eq!(memory.revisions().collect::<Vec<_>>(), ["s"]);
        // Its successor is made.
        let next = pod("c", "");
        memory.will_create(next.clone(), at(1));
        memory.create_answered(&creation(&next), "c", Answer::Done, None, at(1));
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
            let refused = Some(problem(Nature::Refused));
            memory.report(Step::Create, refused, some_made, Some(generation), at(now));
            assert!(memory.rests(Step::Create, Some(generation), at(now)));
            assert!(!memory.rests(Step::Create, Some(generation + 1), at(now)));
            assert!(!memory.rests(Step::Delete, Some(generation), at(now)));
            (memory.rest_ends(at(now)).unwrap() - at(now)).num_seconds()
        };
        let pauses: Vec<_> = (0..9).map(|_| refuse(false, 1, 0)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(refuse(true, 1, 0), 1);
        assert_eq!(refuse(false, 1, 0), 2);
        assert_eq!(refuse(false, 2, 0), 1);
    }

    #[test]
    fn a_hiccup_is_not_reported_and_a_rejection_is_at_once() {
        for (nature, first, second) in [
            (Nature::Refused, true, true),
            (Nature::Blocked, false, true),
            (Nature::Failed, false, true),
            (Nature::Expected, false, false),
        ] {
            let mut memory = Memory::default();
            let mut fail = |some_done| {
                memory.report(
                    Step::Prune,
                    Some(problem(nature)),
                    some_done,
                    Some(1),
                    at(0),
                );
                memory.reported().is_some()
            };
            assert_eq!((fail(false), fail(false)), (first, second), "{nature:?}");
            // What goes on is not blocked.
            assert_eq!(fail(true), nature == Nature::Refused);
            memory.report(Step::Prune, None, false, Some(1), at(0));
            assert!(!memory.has_trouble(Step::Prune) && memory.reported().is_none());
        }
    }

    #[test]
    fn a_node_is_gone_since_it_was_missed_first() {
        let mut memory = Memory::default();
        let mut since = |is_gone, now| memory.gone_since("n", is_gone, at(now));
        assert_eq!(since(true, 10), Some(at(10)));
        assert_eq!(since(true, 20), Some(at(10)));
        assert_eq!(since(true, 5), Some(at(5)), "the clock was set back");
        assert_eq!(since(false, 30), None);
        assert_eq!(since(true, 40), Some(at(40)));
        assert_eq!(since(false, 50), None);
        assert!(memory.nodes.is_empty());
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
        memory.count(
            1,
            [
                DeleteReason::Failed,
                DeleteReason::Outdated,
                DeleteReason::Outdated,
            ],
        );
        assert_eq!(memory.tell(at(10)), (None, None, Some(at(60))));
        memory.count(0, [DeleteReason::Failed]);
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
