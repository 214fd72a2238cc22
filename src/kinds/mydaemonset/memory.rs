//! What the controller remembers of an object between two reconciles.
//!
//! Nothing here is needed for correctness after a restart. It covers the time until the watches
//! show what was done, and limits how often Events and status writes repeat.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::revision::RevisionView;
use super::rollout::state::RolloutState;
use super::rollout::{Claim, Create, Delete, DeleteReason, Last};
use super::status::Refusal;
use super::views::PodView;
use my_operator_runtime::reconcile::backoff::StatusWrites;

/// After this time the API server is asked about a change that it made and the watch has not shown.
const WATCH_TIMEOUT: TimeDelta = TimeDelta::seconds(30);
/// A call without a definite answer may still be carried out for this long after it ended. The API
/// server itself gives up a request after 60 s (`--request-timeout`), but etcd may commit what was
/// given up.
const MAY_LAND: TimeDelta = TimeDelta::seconds(65);
/// Upper bound on the duration of a call: the client gives up after 40 s.
const MAX_CALL: TimeDelta = TimeDelta::seconds(45);
/// Created and deleted pods are reported at most once in this time.
const EVENT_INTERVAL: TimeDelta = TimeDelta::seconds(60);
/// The longest pause after the API server rejected a pod.
const MAX_PAUSE: TimeDelta = TimeDelta::seconds(60);
/// The longest pause between two status writes that change only numbers.
const MAX_REST: TimeDelta = TimeDelta::milliseconds(100);

/// See the module.
#[derive(Debug, Default)]
pub struct Memory {
    /// The object's UID. With another UID nothing of this applies.
    pub uid: String,
    /// The verdicts on all nodes; `None` before the first reconcile.
    pub rollout_state: Option<RolloutState>,
    /// Nodes that changed since the last reconcile.
    changed: BTreeSet<Box<str>>,
    /// What was done on nodes and not yet observed, and the last pod of those without one.
    nodes: HashMap<Box<str>, Recent>,
    /// When the beliefs about a node must be checked.
    ends: BTreeSet<(DateTime<Utc>, Box<str>)>,
    /// The revision whose pods the API server is known to accept.
    pub validated: Option<String>,
    /// Whether the last reconcile created the maximum number of pods without a failure.
    pub flowing: bool,
    /// Where no dry run is possible: the revision, and the node whose pod is the trial.
    pub trial: Option<(String, Option<String>)>,
    /// A created pod came back with other labels than ours.
    pub relabelled: bool,
    /// The revision of the current spec as it was stored, while the watch does not show it, and until when.
    pub stored: Option<(Arc<RevisionView>, DateTime<Utc>)>,
    /// The failures of steps.
    troubles: BTreeMap<Step, Trouble>,
    /// How many reconciles in a row ended with something that could not be done.
    pub failures: usize,
    /// Pods that the watch no longer shows although they were not deleted, by UID.
    pub vanished: BTreeMap<String, Claim>,
    /// When the status was last written.
    pub written: Option<DateTime<Utc>>,
    /// The backoff of status writes against another operator's.
    pub statuses: StatusWrites,
    /// What was done and is not published yet.
    tally: Tally,
    /// When the changes were last taken.
    taken_at: DateTime<Utc>,
}

/// What was done on a node.
#[derive(Debug, Default)]
struct Recent {
    /// Created pods that the watch has not shown.
    creates: Vec<Creation>,
    /// Deleted pods that the watch still shows unchanged.
    deletes: Vec<Deletion>,
    /// Pods that were adopted or released and are not yet observed so, and until when that is believed.
    claims: Vec<(Claim, DateTime<Utc>)>,
    /// The last pod on the node.
    last: Option<Last>,
    /// Since when the node is gone although there are pods on it.
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

/// The belief that a call was carried out. It ends when the watch shows the effect, or when a live
/// read at the right time says otherwise; never by itself.
#[derive(Debug)]
struct Belief<C> {
    /// When to ask the API server.
    ask: DateTime<Utc>,
    /// The call, if an attempt at it had no definite answer.
    unanswered: Option<Unanswered<C>>,
}

#[derive(Debug)]
struct Unanswered<C> {
    call: C,
    /// The `metadata.generation` that the call was made for. Another one may not want it.
    generation: Option<i64>,
    /// Until when the call may still be carried out.
    until: DateTime<Utc>,
}

/// What is known of a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// It was not carried out and will not be.
    Refused,
    /// It was not carried out: the object has another version than the one in the call's
    /// precondition. No attempt at the same call can be carried out any more, but an earlier one
    /// may have been.
    Overtaken,
    /// It may have been carried out, or may still be.
    Unknown,
}

impl<C> Belief<C> {
    /// For a call that begins now.
    fn new(now: DateTime<Utc>) -> Self {
        Self {
            ask: now + MAX_CALL + MAY_LAND,
            unanswered: None,
        }
    }

    /// Records an answer. Returns whether the belief stays.
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
            // This answer says nothing about an earlier attempt, which may still be carried out.
            Answer::Refused => match &self.unanswered {
                Some(unanswered) => self.ask = unanswered.until,
                None => return false,
            },
        }
        true
    }

    /// Extends the belief until `ask` if it was confirmed. Returns whether it stays.
    fn confirm(&mut self, ask: Option<DateTime<Utc>>) -> bool {
        let Some(ask) = ask else {
            return false;
        };
        self.ask = ask;
        self.unanswered = None;
        true
    }

    /// Limits the waiting time as if it began now: the clock was set back.
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
    /// The UID of the deleted pod; empty for a created one.
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

/// A kind of calls. Each backs off by itself, so that a rejection of one does not block the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Pods are created, or dry-run.
    Create,
    /// Pods are deleted.
    Delete,
    /// Pods are adopted or released.
    Claim,
    /// Pods without our labels are looked up and released.
    Release,
    /// Revisions are adopted.
    Adopt,
    /// Superfluous revisions are deleted.
    Prune,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// The API server rejects the call as it is. Reported at once.
    Refused,
    /// A user has to fix it, or it heals by itself. Reported from the second failure in a row.
    Blocked,
    /// A retry may succeed. The queue makes the pause. Reported from the second failure in a row.
    Failed,
    /// Not reported.
    Expected,
}

/// A failure of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is reported.
    pub refusal: Refusal,
    /// When it is reported.
    pub nature: Nature,
}

/// A problem, and when to try again.
#[derive(Clone, Debug, PartialEq)]
struct Trouble {
    problem: Problem,
    /// Failures in a row without any success: the pause doubles with each.
    count: u32,
    /// When to try again.
    next: DateTime<Utc>,
    /// The `metadata.generation` that failed: a new one is tried at once.
    generation: Option<i64>,
}

impl Trouble {
    /// The trouble after an earlier one. The pause grows while nothing can be done.
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
        // The same message for another pod is not a change.
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
    published: Option<DateTime<Utc>>,
}

impl Memory {
    /// An empty memory of the object with that UID.
    pub fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            ..Self::default()
        }
    }

    /// Records that a node changed.
    pub fn touch(&mut self, node: &str) {
        if !self.changed.contains(node) {
            self.changed.insert(node.into());
        }
    }

    /// The nodes that changed since the last call.
    pub fn take_changed(&mut self, now: DateTime<Utc>) -> BTreeSet<Box<str>> {
        if now < self.taken_at {
            self.troubles.clear();
            self.stored = None;
            for node in self.nodes_until(DateTime::<Utc>::MAX_UTC) {
                self.change(&node, |recent| recent.rebase(now));
            }
        }
        self.taken_at = now;
        for node in self.nodes_until(now) {
            self.change(&node, |recent| {
                recent.claims.retain(|(_, until)| *until > now);
            });
        }
        std::mem::take(&mut self.changed)
    }

    /// The nodes with a belief that must be checked by then.
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

    /// Records a pod that is about to be created. Before the call, since the watch may be faster than the answer.
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

    /// Records the answer to the creation of a pod.
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
                // The pod before it no longer matters.
                recent.last = None;
            }
        });
    }

    /// The watch shows a pod, or that it is being deleted.
    pub fn seen(&mut self, pod: &PodView) {
        self.change(&pod.node, |recent| {
            recent.creates.retain(|made| made.pod.name != pod.name);
            if pod.deleting {
                recent.deletes.retain(|gone| gone.uid != pod.uid);
            }
        });
    }

    /// Records a pod that is about to be deleted. Returns whether an earlier attempt had no definite answer.
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
            if delete.reason != DeleteReason::NodeGone {
                recent.last = Some(delete.last.clone());
            }
        });
        unanswered
    }

    /// Records the answer to the deletion of a pod.
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

    /// The deletions without a definite answer that are to be repeated for that generation.
    pub fn unanswered_deletes(&self, generation: Option<i64>) -> Vec<Delete> {
        let deletes = self.believed().flat_map(|recent| &recent.deletes);
        let repeat = deletes.filter_map(|gone| gone.belief.repeat(generation));
        repeat.cloned().collect()
    }

    /// The same for creations.
    pub fn unanswered_creates(&self, generation: Option<i64>) -> Vec<Create> {
        let creates = self.believed().flat_map(|recent| &recent.creates);
        let repeat = creates.filter_map(|made| made.belief.repeat(generation));
        repeat.cloned().collect()
    }

    /// Whether an attempt to create that pod had no definite answer.
    pub fn may_be_made(&self, create: &Create) -> bool {
        let recent = self.nodes.get(create.node.as_str());
        let mut creates = recent.into_iter().flat_map(|recent| &recent.creates);
        creates.any(|made| made.pod.revision == create.revision && made.belief.unanswered.is_some())
    }

    /// The nodes about which anything is believed.
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

    /// Applies the API server's answer to a doubt: either what was believed is true, and the watch
    /// will show it, or it is not.
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

    /// Records that a pod is gone, for its successor. A record of the operator's own deletion of
    /// the same revision knows more and stays.
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

    /// Records that the watch no longer shows a pod. A pod that was not deleted may have lost our labels.
    pub fn vanished(&mut self, pod: &PodView) {
        let recent = self.nodes.get(pod.node.as_str());
        let deleted = recent.is_some_and(|r| r.deletes.iter().any(|gone| gone.uid == pod.uid));
        if !deleted && !pod.deleting {
            self.vanished.insert(pod.uid.clone(), Claim::release(pod));
        }
    }

    /// Records a pod that was adopted or released.
    pub fn claimed(&mut self, claim: &Claim, now: DateTime<Utc>) {
        self.change(&claim.node, |recent| {
            recent.claims.push((claim.clone(), now + WATCH_TIMEOUT));
        });
    }

    /// The pods of a node as the watch will soon show them: those in the cache, plus what was done since.
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

    /// The last pod on a node, as far as it is remembered.
    pub fn last(&self, node: &str) -> Option<&Last> {
        self.nodes.get(node)?.last.as_ref()
    }

    /// Forgets the last pod on a node where one runs.
    pub fn forget_last(&mut self, node: &str, pods: &[Arc<PodView>]) {
        let known = self.last(node).is_some();
        if known && pods.iter().any(|pod| pod.is_live() && !pod.uid.is_empty()) {
            self.change(node, |recent| recent.last = None);
        }
    }

    /// The revisions of the last pods on nodes, and of the pods created there.
    pub fn revisions(&self) -> impl Iterator<Item = &str> {
        self.nodes.values().flat_map(|recent| {
            let last = recent.last.iter().map(|last| last.revision.as_str());
            let creates = recent.creates.iter().map(|made| made.pod.revision.as_str());
            last.chain(creates)
        })
    }

    /// Forgets a node that is gone, with its pods.
    pub fn forget_node(&mut self, node: &str) {
        self.change(node, |recent| *recent = Recent::default());
        self.changed.remove(node);
    }

    /// When to ask the API server because the watches did not show what was done.
    pub fn next_check(&self) -> Option<DateTime<Utc>> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Until when a status of which only numbers changed is not written again. Otherwise each of
    /// many pods would cost a write.
    pub fn status_not_before(&self, pods: usize, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let rest = TimeDelta::milliseconds(i64::try_from(pods / 20).unwrap_or(i64::MAX));
        let at = self.written?;
        let due = at + rest.min(MAX_REST);
        (at <= now && due > now).then_some(due)
    }

    /// Records the outcome of a step: a problem, or none.
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

    /// Whether a step has to wait for the end of its pause. A new spec is tried at once.
    pub fn is_backing_off(&self, step: Step, generation: Option<i64>, now: DateTime<Utc>) -> bool {
        let trouble = self.troubles.get(&step);
        trouble.is_some_and(|t| t.generation == generation && t.next > now)
    }

    /// When the first of the pauses ends.
    pub fn backoff_ends(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let ends = self.troubles.values().map(|trouble| trouble.next);
        ends.filter(|next| *next > now).min()
    }

    /// Whether the last attempt at a step failed.
    pub fn has_trouble(&self, step: Step) -> bool {
        self.troubles.contains_key(&step)
    }

    /// The failure to report.
    pub fn reported(&self) -> Option<&Refusal> {
        let mut reported = self.troubles.values().filter(|t| t.is_reported());
        reported.next().map(|trouble| &trouble.problem.refusal)
    }

    /// Since when a node is gone whose pods are still there; until they are gone too, or it is back.
    pub fn gone_since(
        &mut self,
        node: &str,
        is_gone: bool,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let known = self.nodes.get(node).and_then(|recent| recent.gone_since);
        // After the clock was set back, the time starts again.
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

    /// Forgets the last pod on a node where no pod may be.
    pub fn clear_last(&mut self, node: &str) {
        if self.last(node).is_some() {
            self.change(node, |recent| recent.last = None);
            self.changed.remove(node);
        }
    }

    /// Whether outdated pods may be deleted for that revision: the API server accepts its pods, or cannot be asked.
    pub fn is_validated(&self, hash: &str) -> bool {
        let trial = self.trial.as_ref().map(|(trial, _)| trial.as_str());
        self.validated.as_deref() == Some(hash) || trial == Some(hash)
    }

    /// Counts created and deleted pods for the next Event.
    pub fn count(&mut self, created: usize, deleted: impl IntoIterator<Item = DeleteReason>) {
        self.tally.created += created;
        for reason in deleted {
            *self.tally.deleted.entry(reason).or_default() += 1;
        }
    }

    /// The notes to publish now about created and about deleted pods, and when more of them are due.
    pub fn due_notes(
        &mut self,
        now: DateTime<Utc>,
    ) -> (Option<String>, Option<String>, Option<DateTime<Utc>>) {
        let tally = &mut self.tally;
        if tally.created == 0 && tally.deleted.is_empty() {
            return (None, None, None);
        }
        if let Some(due) = tally.published.map(|published| published + EVENT_INTERVAL)
            && due > now
        {
            return (None, None, Some(due));
        }
        tally.published = Some(now);
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
    let reasons: Vec<String> = deleted
        .iter()
        .map(|(reason, number)| format!("{number} {}", reason.text()))
        .collect();
    (number > 0).then(|| format!("deleted {} ({})", pods(number), reasons.join(", ")))
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

    fn deletion(pod: &PodView, reason: DeleteReason, attempt: u32) -> Delete {
        Delete {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            reason,
            last: Last {
                revision: pod.revision.clone(),
                attempt,
                excluded: false,
            },
            version: None,
        }
    }

    /// What is believed to be on the node, and whether the node changed.
    fn shown(memory: &mut Memory, cached: &[PodView], now: i64) -> (Vec<(String, bool)>, bool) {
        let cached: Vec<_> = cached.iter().cloned().map(Arc::new).collect();
        let changed = memory.take_changed(at(now)).contains("n");
        let pods = memory.overlay("n", cached);
        let pods = pods.iter().map(|p| (p.uid.clone(), p.deleting));
        (pods.collect(), changed)
    }

    #[test]
    fn a_deletion_that_cannot_land_any_more_is_asked_about_at_once() {
        let mut memory = Memory::new("me");
        let delete = deletion(&pod("a", "u"), DeleteReason::Outdated, 0);
        memory.will_delete(&delete, at(0));
        memory.delete_answered(&delete, Answer::Overtaken, None, at(0));
        assert_eq!(memory.next_check(), None);
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
            // The count says which node is tried first: each time another one.
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

    /// The pods in doubt at that time.
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
        assert_eq!(memory.next_check(), Some(at(30)));
        assert_eq!(
            shown(&mut memory, std::slice::from_ref(&old), 1),
            (vec![("u".into(), true), (String::new(), false)], true)
        );
        assert!(!shown(&mut memory, std::slice::from_ref(&old), 1).1);
        // Observed in the cache, under its own UID; the other one is gone.
        memory.seen(&pod("a", "ua"));
        memory.gone(&old);
        let seen = vec![("ua".to_owned(), false)];
        assert_eq!(
            shown(&mut memory, &[pod("a", "ua")], 2),
            (seen.clone(), true)
        );
        assert_eq!(memory.next_check(), None);
        // Never observed: it stays believed until the API server says otherwise, however late.
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
        // Created, observed and gone again before the next reconcile.
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
        memory.seen(&leaving);
        assert_eq!(memory.next_check(), None);
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
        let mut memory = Memory::new("owner");
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
    fn the_record_of_a_failure_outlives_the_delete_event_of_the_pod() {
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
        // Its successor is created.
        let next = pod("c", "");
        memory.will_create(next.clone(), at(1));
        memory.create_answered(&creation(&next), "c", Answer::Done, None, at(1));
        assert_eq!(memory.last("n"), None);
    }

    #[test]
    fn writes_of_mere_numbers_are_spaced_where_there_are_many_pods() {
        let mut memory = Memory::default();
        assert_eq!(memory.status_not_before(5_000, at(10)), None);
        memory.written = Some(at(10));
        let due = at(10) + TimeDelta::milliseconds(100);
        assert_eq!(memory.status_not_before(5_000, at(10)), Some(due));
        assert_eq!(memory.status_not_before(5_000, due), None);
        assert_eq!(
            memory.status_not_before(5_000, at(5)),
            None,
            "the clock was set"
        );
        assert_eq!(memory.status_not_before(4, at(10)), None, "few pods");
    }

    #[test]
    fn the_pause_after_refusals_grows_while_nothing_can_be_made() {
        let mut memory = Memory::default();
        let mut refuse = |some_made, generation, now| {
            let refused = Some(problem(Nature::Refused));
            memory.report(Step::Create, refused, some_made, Some(generation), at(now));
            assert!(memory.is_backing_off(Step::Create, Some(generation), at(now)));
            assert!(!memory.is_backing_off(Step::Create, Some(generation + 1), at(now)));
            assert!(!memory.is_backing_off(Step::Delete, Some(generation), at(now)));
            (memory.backoff_ends(at(now)).unwrap() - at(now)).num_seconds()
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
            // A step with any progress is not blocked.
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
    fn created_and_deleted_pods_are_published_together() {
        let mut memory = Memory::default();
        assert_eq!(memory.due_notes(at(0)), (None, None, None));
        memory.count(3, []);
        assert_eq!(
            memory.due_notes(at(0)),
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
        assert_eq!(memory.due_notes(at(10)), (None, None, Some(at(60))));
        memory.count(0, [DeleteReason::Failed]);
        assert_eq!(
            memory.due_notes(at(60)),
            (
                Some("created 1 pod".into()),
                Some("deleted 4 pods (2 failed, 2 outdated)".into()),
                None
            )
        );
        assert_eq!(memory.due_notes(at(61)), (None, None, None));
    }
}
