//! The protocol "arm by UID": what to do next about one At, as a pure function.
//!
//! The pod has a fixed name, so there is at most one at a time, and a scheduling gate, so none runs
//! before it is released. **The commit point** is the write of the pod's UID into the status, with
//! the resource version that was looked at; only the pod with that UID is ever released. Whatever
//! crashes, is repeated, or arrives hours late before the commit has started nothing; after it the
//! same pod can only be released again, which changes nothing.
//!
//! **The status says what has been seen, and no more.** The commit records the pod and not its start:
//! Started becomes True, with startTime, when the pod is seen without our gate. A deletion that
//! decides a result is preceded by a write of that decision ([`conditions::FAILURE_TARGET`]), so that
//! neither a failed write nor a crash after the deletion turns Missed into Unknown.
//!
//! What is done when stands in the tables of `docs/at/protocol.md`, which the tests hold [`step`]
//! to. An At *may go on* when it is due, not suspended, the deadline not passed, not being deleted,
//! valid. What a pod's absence or another's presence leads to is decided on a live read only:
//! watches lag, each by its own time.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::admission::{deadline, past};
use super::crd::{AtSpec, AtStatus, Ending, Phase};
use super::pod::{self, PodPhase, PodView, Waiting};
use super::result::{self, Verdict};
use super::schedule::ceil_to_millisecond;
use super::view::AtView;
use crate::admission::faults::join;
use crate::reconcile::condition::{self, ACCEPTED};
use crate::reconcile::event::{NewEvent, Severity};

/// How often to look at what no watch tells of, such as somebody else's pod.
pub const BLIND_INTERVAL: TimeDelta = TimeDelta::seconds(60);
/// So long the record of a start waits for another write of the status to ride on: as a rule the end
/// of a short command.
pub const START_RECORDED_WITHIN: TimeDelta = TimeDelta::seconds(2);
/// In a burst, it takes longer until even a short command has ended, and starts come before records. So two
/// records are as far apart as this,
const BETWEEN_RECORDS: TimeDelta = TimeDelta::milliseconds(100);
/// unless that would put one off for longer than this.
const MAX_RECORD_DELAY: TimeDelta = TimeDelta::minutes(5);
/// So late a start is nothing that a busy cluster explains.
const OVERDUE_AFTER: TimeDelta = TimeDelta::seconds(60);

/// The types of conditions.
pub mod conditions {
    /// The pod was seen without our gate.
    pub const STARTED: &str = "Started";
    /// It ended, with exit code 0.
    pub const COMPLETE: &str = "Complete";
    /// It ended in any other way.
    pub const FAILED: &str = "Failed";
    /// It ended.
    pub const FINISHED: &str = "Finished";
    /// The operator has decided that the At fails or is missed, and deletes its pod first. Named as
    /// the condition of a Job that is about to fail.
    pub const FAILURE_TARGET: &str = "FailureTarget";
    /// kstatus: work is in progress.
    pub const RECONCILING: &str = "Reconciling";
    /// kstatus: nothing goes on without somebody's help.
    pub const STALLED: &str = "Stalled";
}
use conditions::{COMPLETE, FAILED, FAILURE_TARGET, FINISHED, RECONCILING, STALLED, STARTED};

/// Reason: a pod of somebody else has the name.
pub const NAME_CONFLICT: &str = "NameConflict";
/// Reason: the pod was altered on its way so that it could run twice.
pub const POD_ALTERED: &str = "PodAltered";
/// Reason: a pod of ours that was not to run holds the name until it is gone.
pub const POD_TERMINATING: &str = "PodTerminating";
/// Event: the released pod does not run yet.
const POD_WAITING: &str = "PodWaiting";
/// Event: the released pod may not run any more.
const POD_DISRUPTED: &str = "PodDisrupted";
/// Reason: the gate of a pod was removed by another client.
pub const GATE_VIOLATED: &str = "GateViolated";
/// Reason: the pod is recorded and about to be released.
const COMMITTED: &str = "Committed";
const RELEASED: &str = "Released";
const NEVER_DUE: &str = "NeverDue";
const SUSPENDED: &str = "Suspended";
const INVALID: &str = "Invalid";
const POD_LOST: &str = "PodLost";
const NEVER_STARTED: &str = "NeverStarted";
const TOO_LATE: &str = "StartingDeadlineExceeded";
const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// A call about the pod that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Its creation.
    Create,
    /// The removal of our gate.
    Release,
    /// Its deletion.
    Delete,
    /// A live read.
    Read,
}

impl Call {
    /// Reason: the API server, a policy, a quota or a webhook rejects the call.
    fn refused(self) -> &'static str {
        match self {
            Self::Create => "PodRefused",
            Self::Release => "ReleaseRefused",
            Self::Delete => "DeleteRefused",
            Self::Read => "ReadRefused",
        }
    }

    /// Reason: the call fails in another way: no answer in time, 429, a server error.
    fn failed(self) -> &'static str {
        match self {
            Self::Create => "CreateFailed",
            Self::Release => "ReleaseFailed",
            Self::Delete => "DeleteFailed",
            Self::Read => "ReadFailed",
        }
    }
}

/// What keeps a call about the pod from being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hindrance<'a> {
    /// The call.
    pub call: Call,
    /// The API server's words, or why it did not answer.
    pub why: &'a str,
    /// The call is rejected, and will be until something is changed; else it may work next time.
    pub refused: bool,
    /// How often in a row it has failed.
    pub failures: u32,
    /// When to try again; none where the caller decides.
    pub hold: Option<DateTime<Utc>>,
}

/// What is known of the pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// The pod with the At's pod name.
    pub pod: Option<&'a PodView>,
    /// It is the answer of the API server itself, not that of a watch.
    pub live: bool,
    /// The last state of a pod that the watch saw deleted.
    pub last: Option<&'a Last>,
    /// The first sight of a pod of this At without our gate. It counts when the pod is gone, too: a
    /// pod that could run is the run.
    pub released: Option<&'a Released>,
    /// This process committed the recorded pod, and has sent no request that can have released it.
    pub withheld: bool,
    /// No pod is to be created, released or deleted, and no foreign one read again, before this
    /// instant: the last attempts failed.
    pub hold: Option<DateTime<Utc>>,
}

/// What one process has seen of the pods of an At, besides the latest state.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    /// The last state of a pod that the watch saw deleted.
    pub last: Option<Last>,
    /// The first sight of a pod without our gate.
    pub released: Option<Released>,
}

impl Sightings {
    /// Takes in a state of a pod that is there.
    pub fn see(&mut self, pod: &PodView, now: DateTime<Utc>) {
        let outlives = |last: &mut Last| last.pod.uid == pod.uid && last.pod.is_older(pod);
        // For a watch with a label selector, a pod that loses its label is deleted.
        self.last.take_if(outlives);
        if pod.gate.is_none() {
            self.released.get_or_insert_with(|| Released::new(pod, now));
        } else if pod.deleting {
            // The scheduler binds no pod that is being deleted.
            self.last.get_or_insert_with(|| Last {
                pod: pod.clone(),
                certain: true,
            });
        }
    }

    /// Takes in the last state of a pod that is gone; `certain` if it was deleted in that state.
    pub fn miss(&mut self, pod: &PodView, certain: bool) {
        let pod = pod.clone();
        self.last = Some(Last { pod, certain });
    }
}

/// The first sight of a pod without our gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// `metadata.uid` of the pod.
    pub uid: String,
    /// When it was seen; or since when it had been scheduled then, or when it had ended, where that is
    /// known and earlier.
    pub at: DateTime<Utc>,
    /// The start has been published as an Event, and counted.
    pub reported: bool,
    /// When it is written, unless another write of the status takes it along before.
    pub record_at: DateTime<Utc>,
}

impl Released {
    /// A pod that is seen for the first time without our gate.
    pub fn new(pod: &PodView, now: DateTime<Utc>) -> Self {
        let ends = pod.ended.iter().filter_map(|ended| ended.finished_at);
        let known = pod.scheduled.into_iter().chain(ends).min();
        let at = known.map_or(now, |known| known.min(now));
        Self {
            uid: pod.uid.clone(),
            at,
            reported: false,
            record_at: at + START_RECORDED_WITHIN,
        }
    }
}

/// Spaces the records of starts.
#[derive(Debug, Default)]
pub struct Records {
    /// When the last one is written.
    last: DateTime<Utc>,
}

impl Records {
    /// Puts the record off until it is its turn.
    pub fn queue(&mut self, first: &mut Released, now: DateTime<Utc>) {
        let longest = now + MAX_RECORD_DELAY;
        // A last one later than that is from before the clock was set back.
        let last = Some(self.last).filter(|last| *last <= longest);
        let turn = last.map_or(now, |last| last + BETWEEN_RECORDS);
        first.record_at = first.record_at.max(now).max(turn).min(longest);
        self.last = first.record_at;
    }
}

/// The last state of a deleted pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// The pod.
    pub pod: PodView,
    /// It is the state in which the pod was deleted, with nothing between the two.
    pub certain: bool,
}

/// One version of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

impl Version {
    fn of(pod: &PodView) -> Self {
        Self {
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
        }
    }
}

/// One call to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// None.
    Nothing,
    /// Read the pod, and call [`step`] again with what is there.
    Look,
    /// Create this pod.
    Create(Value),
    /// Remove our gate from the pod, if it has this UID and the gate is at this index.
    Lift {
        /// The UID that is recorded in the status.
        uid: String,
        /// The index of our gate.
        gate: usize,
    },
    /// Delete the pod, if it still is at this version: so it is known not to have run.
    DeletePod(Version),
    /// Delete the At, if it is still as it was looked at.
    DeleteAt,
}

/// What to do next: first the act, then the status, then the news; if the act fails, nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The call to make.
    pub act: Act,
    /// The status to write, with the resource version that was looked at, if it is to change.
    pub status: Option<Box<AtStatus>>,
    /// What to tell people once that is done.
    pub news: Vec<NewEvent>,
    /// The start that these Events report, to be counted once that is done.
    pub start: Option<DateTime<Utc>>,
    /// Look at once what is next.
    pub again: bool,
    /// Else look again then, or when something changes.
    pub next: Option<DateTime<Utc>>,
}

/// Whether a command may start now, and what keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Go {
    Yes,
    Invalid,
    Suspended,
    /// Not before that instant; `None` is never.
    NotDue(Option<DateTime<Utc>>),
    TooLate,
}

fn may_go_on(at: &AtView, now: DateTime<Utc>) -> Go {
    let Ok(spec) = &at.spec else {
        return Go::Invalid;
    };
    if spec.suspend == Some(true) {
        return Go::Suspended;
    }
    match at.instant() {
        None => Go::NotDue(None),
        Some(instant) if now < instant => Go::NotDue(Some(instant)),
        Some(instant) if is_too_late(spec, instant, now) => Go::TooLate,
        Some(_) => Go::Yes,
    }
}

fn is_too_late(spec: &AtSpec, instant: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    let limit = spec.starting_deadline_seconds;
    limit.is_some_and(|seconds| past(instant, seconds, now))
}

/// The first moment at which a start would be too late.
fn too_late_from(at: &AtView) -> Option<DateTime<Utc>> {
    too_late_after(at, at.instant()?)
}

/// The first moment at which the release of a committed pod would be: what the schedule said then.
fn too_late_to_release_from(at: &AtView) -> Option<DateTime<Utc>> {
    too_late_after(at, at.status.scheduled_time?)
}

fn too_late_after(at: &AtView, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let seconds = at.spec.as_ref().ok()?.starting_deadline_seconds?;
    deadline(instant, seconds)?.checked_add_signed(TimeDelta::milliseconds(1))
}

/// Whether the command should have started more than a minute ago, and still waits: for a pod that is
/// rejected, for a name that is taken, or for a release that fails.
pub fn is_overdue(at: &AtView, released: Option<&Released>, now: DateTime<Utc>) -> bool {
    let is_due_for_long = |instant: Option<DateTime<Utc>>| {
        instant.is_some_and(|instant| instant + OVERDUE_AFTER <= now)
    };
    // In this order: nearly every reconcile is of an At that has not been due for so long.
    !at.deleting
        && match at.phase() {
            Phase::Pending => is_due_for_long(at.instant()) && may_go_on(at, now) == Go::Yes,
            Phase::Running => {
                let seen = released.is_some_and(|r| Some(&r.uid) == at.status.pod_uid.as_ref());
                // One whose end is decided waits for the deletion of its pod, not for a start.
                let ends = condition::get(&at.status.conditions, FAILURE_TARGET).is_some();
                !at.is_started() && !seen && !ends && is_due_for_long(at.status.scheduled_time)
            }
            Phase::Done => false,
        }
}

/// Decides what to do next about an At.
pub fn step(at: &AtView, seen: Seen<'_>, now: DateTime<Utc>) -> Step {
    let draft = StatusBuilder::new(at, now);
    match (at.phase(), &at.status.pod_uid) {
        (Phase::Done, _) => done(draft, seen),
        // A recorded UID is a start, whatever the phase says.
        (_, Some(uid)) => running(draft, seen, uid),
        (Phase::Running, None) => lost(draft, seen, None),
        (Phase::Pending, None) => pending(draft, seen),
    }
}

/// Decides what the status says of a call about the pod that fails, and when to try again.
pub fn hindered(at: &AtView, hindrance: Hindrance<'_>, now: DateTime<Utc>) -> Step {
    let Hindrance {
        call,
        why,
        refused,
        failures,
        hold,
    } = hindrance;
    let reason = if refused {
        call.refused()
    } else {
        call.failed()
    };
    let mut draft = StatusBuilder::new(at, now);
    match at.phase() {
        _ if at.deleting => {}
        // The result stays what it is. Only a deletion is tried then.
        Phase::Done if failures == 1 => draft.tell(Severity::Warning, reason, "DeletePod", why),
        Phase::Done => {}
        // Retries word the same failure in many ways: the first words stay.
        _ if !refused && at.status.reason.as_deref() == Some(reason) => {}
        Phase::Pending if at.status.pod_uid.is_none() => {
            draft.hindered(reason, why);
            return draft.wait(earliest(hold, too_late_from(at)));
        }
        Phase::Pending | Phase::Running => {
            draft.status.phase = Some(Phase::Running);
            draft.held_up(reason, why);
        }
    }
    let deadline = match at.phase() {
        Phase::Done => None,
        Phase::Pending if at.status.pod_uid.is_none() => too_late_from(at),
        // Once the end is decided, only the deletion is left.
        _ if at.is_started() || draft.decided().is_some() => None,
        _ => too_late_to_release_from(at),
    };
    draft.wait(earliest(hold, deadline.filter(|deadline| *deadline > now)))
}

fn pending(mut draft: StatusBuilder<'_>, seen: Seen<'_>) -> Step {
    let (at, now) = (draft.at, draft.now);
    let ours = seen.pod.filter(|pod| pod.is_of(&at.uid));
    if at.deleting {
        return match ours {
            Some(pod) if pod.gate.is_some() && !pod.deleting => draft.delete_pod(seen, pod),
            _ => StatusBuilder::silent(),
        };
    }
    let go = may_go_on(at, now);
    // A pod that was seen without our gate and is gone: the watches need not have shown its end.
    let is_gone = |run: &&Released| ours.is_none_or(|pod| pod.uid != run.uid);
    if let Some(run) = seen.released.filter(is_gone) {
        if !seen.live {
            return StatusBuilder::look();
        }
        draft.take_for_run(&run.uid, seen, None);
        return draft.again();
    }
    match ours {
        Some(_) if !seen.live => StatusBuilder::look(),
        Some(pod) if pod.gate.is_none() => {
            draft.take_for_run(&pod.uid, seen, Some(pod));
            draft.again()
        }
        // What is not committed never runs, so the pod need not be gone: a finalizer may hold it, and a
        // policy may reject its deletion.
        Some(_) if go == Go::TooLate => draft.end_missed(),
        // The watch shows when it is gone, unless another client took our label off it.
        Some(pod) if pod.deleting => {
            let blind = Some(now + BLIND_INTERVAL);
            if go != Go::Yes {
                let step = idle(draft, &go);
                let next = earliest(step.next, blind);
                return Step { next, ..step };
            }
            let why = format!(
                "the pod {} of an earlier attempt is still being deleted; the command starts when it is gone",
                pod::name(&at.key.name)
            );
            draft.hindered(POD_TERMINATING, &why);
            draft.wait(earliest(blind, too_late_from(at)))
        }
        Some(pod) => match altered(pod, &go) {
            Some(why) => draft.delete_altered(seen, pod, &why),
            None if draft.is_discarded(pod) => draft.delete_pod(seen, pod),
            None if go == Go::Yes && is_current(pod, at) => {
                draft.commit(pod);
                draft.again()
            }
            None => draft.discard(pod),
        },
        None if go == Go::Yes => start(draft, seen),
        None => idle(draft, &go),
    }
}

/// What a foreign webhook did to a gated pod of ours that it must not, if anything: the rest of a
/// sentence.
fn altered(pod: &PodView, go: &Go) -> Option<String> {
    match &pod.may_restart {
        Some(why) => Some(format!(" and could run twice: {why}")),
        None if pod.hash.is_none() && *go == Go::Yes => {
            Some(format!(": its annotation {} was taken away", pod::HASH))
        }
        None => None,
    }
}

/// Whether the pod was made from the spec as it is now.
fn is_current(pod: &PodView, at: &AtView) -> bool {
    let hash = at.spec.as_ref().ok().map(|spec| pod::hash(&at.uid, spec));
    hash.is_some() && pod.hash == hash
}

/// The way to a pod when there is none of ours, and it is time.
fn start(mut draft: StatusBuilder<'_>, seen: Seen<'_>) -> Step {
    let (at, now) = (draft.at, draft.now);
    let conflict = condition::get(&at.status.conditions, STARTED)
        .is_some_and(|c| c.reason == NAME_CONFLICT && c.status == "False");
    let stray = seen.pod.filter(|pod| seen.live && !pod.deleting);
    if let Some((pod, uid)) = stray.and_then(|pod| Some((pod, pod.stray_of.as_deref()?))) {
        // It is gated and marked as made for an At of this name, so it has never run, and no operator
        // will release it: it only blocks the name.
        return if uid == at.uid {
            draft.delete_altered(seen, pod, ": its owner reference was taken away")
        } else {
            draft.delete_pod(seen, pod)
        };
    }
    if seen.pod.is_some() && seen.live {
        let why = format!(
            "a pod named {} exists and is not of this At; the command starts when it is gone",
            pod::name(&at.key.name)
        );
        draft.hindered(NAME_CONFLICT, &why);
        let hold = seen.hold.filter(|hold| *hold > now);
        let next = earliest(hold, Some(now + BLIND_INTERVAL));
        return draft.wait(earliest(next, too_late_from(at)));
    }
    if let Some(hold) = seen.hold.filter(|hold| *hold > now) {
        return draft.wait(earliest(Some(hold), too_late_from(at)));
    }
    match &at.spec {
        // Where there was a foreign pod, look before trying.
        _ if !seen.live && (seen.pod.is_some() || conflict) => StatusBuilder::look(),
        Ok(spec) => Step {
            act: Act::Create(pod::build(at.owner(), spec)),
            again: true,
            ..StatusBuilder::silent()
        },
        Err(_) => StatusBuilder::silent(),
    }
}

/// Nothing may start now, and there is no pod of ours.
fn idle(mut draft: StatusBuilder<'_>, go: &Go) -> Step {
    let at = draft.at;
    draft.status.scheduled_time = at.instant();
    draft.unset(RECONCILING);
    draft.unsay();
    match go {
        Go::Suspended => {
            let why = "spec.suspend holds the start back";
            draft.say(SUSPENDED, why);
            draft.set(STARTED, false, SUSPENDED, why);
            draft.wait(None)
        }
        Go::TooLate => draft.end_missed(),
        Go::NotDue(instant) => {
            draft.unset(STARTED);
            if instant.is_none() {
                draft.say(
                    NEVER_DUE,
                    "the instant lies beyond the year 9999: the command never starts",
                );
            }
            if let Some(instant) = instant
                && (at.status.scheduled_time != Some(*instant) || !at.is_accepted())
            {
                let note = format!(
                    "the command is to start at {}",
                    instant.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
                );
                draft.tell(Severity::Normal, "Scheduled", "Schedule", &note);
            }
            draft.wait(*instant)
        }
        Go::Invalid | Go::Yes => {
            if let Err(faults) = &at.spec {
                draft.say(INVALID, &join(faults));
            }
            draft.unset(STARTED);
            draft.wait(None)
        }
    }
}

fn running(mut draft: StatusBuilder<'_>, seen: Seen<'_>, uid: &str) -> Step {
    draft.status.phase = Some(Phase::Running);
    let Some(pod) = seen.pod.filter(|pod| pod.uid == uid) else {
        return gone(draft, seen, uid);
    };
    if let Some(verdict) = result::of(pod) {
        return draft.end_of_pod(seen, pod, &verdict);
    }
    match pod.gate {
        Some(gate) => committed(draft, seen, pod, gate),
        None => released(draft, seen, pod),
    }
}

/// The recorded pod still has our gate.
fn committed(mut draft: StatusBuilder<'_>, seen: Seen<'_>, pod: &PodView, gate: usize) -> Step {
    let (at, now) = (draft.at, draft.now);
    let too_late = too_late_to_release(at, now);
    let early = at.status.scheduled_time.filter(|instant| now < *instant);
    let decided = draft.decided();
    let ends = pod.deleting || at.deleting || too_late || decided.is_some();
    match decided {
        // The pod of an At that has started is gated in an old view only, as a rule.
        _ if (ends || at.is_started()) && !seen.live => StatusBuilder::look(),
        // First, so that no end is recorded beside a start that was not.
        _ if at.is_started() && !at.deleting => {
            draft.take_back_start();
            draft.again()
        }
        Some(verdict) if pod.deleting => draft.end(&verdict),
        None if pod.deleting => draft.end(&unknown(NEVER_STARTED)),
        _ if at.deleting => draft.delete_pod(seen, pod),
        Some(verdict) => draft.end_by_deletion(seen, pod, &verdict),
        None if too_late => {
            let verdict = missed(at);
            draft.decide(&verdict)
        }
        // The clock was set back since the commit, or is another operator's. Seen live only, the
        // pod may have lost the label that our watch goes by.
        None if early.is_some() => {
            let blind = seen.live.then(|| now + BLIND_INTERVAL);
            draft.wait(earliest(early, blind))
        }
        None if seen.hold.is_some_and(|hold| hold > now) => {
            draft.wait(earliest(seen.hold, too_late_to_release_from(at)))
        }
        None => {
            let uid = pod.uid.clone();
            draft.act(Act::Lift { uid, gate })
        }
    }
}

/// The operator was away between commit and release, and the deadline passed meanwhile.
fn too_late_to_release(at: &AtView, now: DateTime<Utc>) -> bool {
    match (&at.spec, at.status.scheduled_time) {
        (Ok(spec), Some(instant)) => is_too_late(spec, instant, now),
        _ => false,
    }
}

/// The recorded pod was released and has not ended.
fn released(mut draft: StatusBuilder<'_>, seen: Seen<'_>, pod: &PodView) -> Step {
    let (at, now) = (draft.at, draft.now);
    draft.record_start(seen, pod);
    // The kubelet enforces the deadline of a pod that a node has. Of one that waits, the operator does.
    let waits = pod.phase == PodPhase::Pending && !pod.bound;
    match draft.decided() {
        Some(verdict) if verdict.result == Ending::Failed && waits => {
            return if pod.deleting {
                draft.end(&verdict)
            } else {
                draft.end_by_deletion(seen, pod, &verdict)
            };
        }
        // It started after all, or a node took it after all: the deletion can no longer be made.
        Some(_) => draft.unset(FAILURE_TARGET),
        None => {}
    }
    let limit = at.spec.as_ref().ok();
    let limit = limit.and_then(|spec| spec.active_deadline_seconds);
    let end = draft
        .status
        .start_time
        .zip(limit)
        .filter(|_| waits && !pod.deleting)
        .and_then(|(started, seconds)| deadline(started, seconds));
    match end {
        Some(end) if now >= end && !seen.live => StatusBuilder::look(),
        Some(end) if now >= end => {
            let message = "no node had taken the pod in when activeDeadlineSeconds had passed";
            draft.decide(&Verdict::plain(Ending::Failed, DEADLINE_EXCEEDED, message))
        }
        end => {
            // Seen live only, it may have lost the label that our watch goes by.
            let blind = seen.live.then(|| now + BLIND_INTERVAL);
            let next = earliest(end, blind);
            if let Some(record) = draft.record_due(seen, pod) {
                // The Events need not wait for the record.
                return Step {
                    news: draft.news,
                    start: draft.start,
                    next: earliest(next, Some(record)),
                    ..StatusBuilder::silent()
                };
            }
            if !at.deleting {
                draft.tell_of_wait(pod);
            }
            draft.wait(next)
        }
    }
}

/// The recorded pod is not there.
fn gone(draft: StatusBuilder<'_>, seen: Seen<'_>, uid: &str) -> Step {
    let last = seen.last.filter(|last| last.pod.uid == uid);
    if let Some((last, verdict)) = last.and_then(|last| Some((last, result::of(&last.pod)?))) {
        return draft.end_of_pod(seen, &last.pod, &verdict);
    }
    if draft.at.deleting && seen.pod.is_none() {
        return StatusBuilder::silent();
    }
    if !seen.live {
        return StatusBuilder::look();
    }
    lost(draft, seen, last)
}

fn lost(mut draft: StatusBuilder<'_>, seen: Seen<'_>, last: Option<&Last>) -> Step {
    let seen_free = |run: &&Released| Some(&run.uid) == draft.at.status.pod_uid.as_ref();
    let was_freed = draft.at.is_started()
        || seen.released.is_some_and(|run| seen_free(&run))
        || last.is_some_and(|last| last.pod.gate.is_none());
    let was_bound = last.is_some_and(|last| last.pod.bound);
    let decided = draft.decided().filter(|verdict| match verdict.result {
        Ending::Missed => !was_freed,
        _ => !was_bound,
    });
    if was_freed {
        draft.record_start_of(seen, last.map(|last| &last.pod));
    }
    if let Some(verdict) = decided {
        return draft.end(&verdict);
    }
    let gated = last.is_some_and(|last| last.certain) && !was_freed;
    let mut verdict = unknown(if gated { NEVER_STARTED } else { POD_LOST });
    // Such as an eviction, which the pod was told of before it was deleted.
    if let Some(last) = last.filter(|last| !last.pod.reason.is_empty()) {
        let PodView {
            reason, message, ..
        } = &last.pod;
        let said = format!("{}; last seen: {reason}: {message}", verdict.message);
        verdict.message = result::head(&said);
    }
    draft.end(&verdict)
}

/// The verdict on a command that was not started in time. What kept it from starting is kept for good.
fn missed(at: &AtView) -> Verdict {
    let mut message = "the command was not started: more than startingDeadlineSeconds had passed since its instant".to_owned();
    let kept = condition::get(&at.status.conditions, STARTED)
        .filter(|c| c.status == "False" && ![SUSPENDED, COMMITTED].contains(&c.reason.as_str()));
    if let Some(kept) = kept {
        message = format!("{message}; what kept it: {}: {}", kept.reason, kept.message);
    }
    Verdict::plain(Ending::Missed, TOO_LATE, &result::head(&message))
}

fn unknown(reason: &str) -> Verdict {
    let message = if reason == NEVER_STARTED {
        "the pod was deleted before it was released: the command did not run, and is not run again"
    } else {
        "the pod is gone and its end was not seen: the command may have run, and is not run again"
    };
    Verdict::plain(Ending::Unknown, reason, message)
}

fn done(mut draft: StatusBuilder<'_>, seen: Seen<'_>) -> Step {
    let (at, now) = (draft.at, draft.now);
    let ours = seen.pod.filter(|pod| pod.is_of(&at.uid));
    let held = seen.hold.filter(|hold| *hold > now);
    let unused = ours.filter(|pod| pod.gate.is_some() && !pod.deleting);
    // A deletion that is rejected must not hold up the time to live.
    if let Some(pod) = unused.filter(|_| held.is_none()) {
        return draft.delete_pod(seen, pod);
    }
    if at.deleting {
        return StatusBuilder::silent();
    }
    let stray =
        ours.filter(|pod| pod.gate.is_none() && Some(&pod.uid) != at.status.pod_uid.as_ref());
    let told =
        condition::get(&at.status.conditions, STARTED).is_some_and(|c| c.reason == GATE_VIOLATED);
    if stray.is_some() && !told {
        if !seen.live {
            return StatusBuilder::look();
        }
        let why = "another client removed the gate of a pod that the operator never released";
        draft.set(STARTED, true, GATE_VIOLATED, why);
        draft.tell(Severity::Warning, GATE_VIOLATED, "RecordPod", why);
    }
    let ttl = at
        .spec
        .as_ref()
        .ok()
        .and_then(|spec| spec.ttl_seconds_after_finished);
    let end = at
        .status
        .completion_time
        .zip(ttl)
        .and_then(|(end, seconds)| deadline(end, seconds));
    match end {
        Some(end) if now >= end => Step {
            act: Act::DeleteAt,
            // A finalizer may hold it, and a proxy may answer for the API server.
            next: Some(now + BLIND_INTERVAL),
            ..StatusBuilder::silent()
        },
        end => draft.wait(earliest(end, held.filter(|_| unused.is_some()))),
    }
}

fn earliest(a: Option<DateTime<Utc>>, b: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    a.into_iter().chain(b).min()
}

/// A step that is being made up: the next status begins as the present one.
struct StatusBuilder<'a> {
    at: &'a AtView,
    now: DateTime<Utc>,
    status: AtStatus,
    news: Vec<NewEvent>,
    start: Option<DateTime<Utc>>,
}

impl<'a> StatusBuilder<'a> {
    fn new(at: &'a AtView, now: DateTime<Utc>) -> Self {
        let mut draft = Self {
            at,
            now,
            status: at.status.clone(),
            news: Vec::new(),
            start: None,
        };
        draft.status.phase = Some(at.phase());
        draft.status.observed_generation = at.generation;
        // What is not changed below still holds. `kubectl wait` goes by the generation of the condition
        // itself, and would wait for ever for one that stays behind.
        for condition in &mut draft.status.conditions {
            condition.observed_generation = at.generation;
        }
        draft.accept();
        draft
    }

    /// Tells whether the spec is valid. One that is not holds up only what has not started.
    fn accept(&mut self) {
        let stalled = condition::get(&self.status.conditions, STALLED);
        match &self.at.spec {
            Ok(_) => {
                if stalled.is_some_and(|c| c.reason == INVALID) {
                    self.unset(STALLED);
                }
                self.set(ACCEPTED, true, "Valid", "the spec is valid");
            }
            Err(faults) => {
                let why = join(faults);
                if self.changes(ACCEPTED, INVALID, &why) {
                    self.tell(Severity::Warning, INVALID, "Validate", &why);
                }
                self.set(ACCEPTED, false, INVALID, &why);
                if self.at.phase() == Phase::Pending {
                    self.set(STALLED, true, INVALID, &why);
                }
            }
        }
    }

    fn set(&mut self, type_: &str, status: bool, reason: &str, message: &str) {
        let list = &mut self.status.conditions;
        condition::set(
            list,
            type_,
            status,
            reason,
            message,
            self.at.generation,
            self.now,
        );
    }

    /// Sets a condition to what is neither true nor false.
    fn set_unknown(&mut self, type_: &str, reason: &str, message: &str) {
        self.unset(type_);
        self.set(type_, false, reason, message);
        let set = self.status.conditions.iter_mut().find(|c| c.type_ == type_);
        if let Some(condition) = set {
            "Unknown".clone_into(&mut condition.status);
        }
    }

    fn unset(&mut self, type_: &str) {
        condition::remove(&mut self.status.conditions, type_);
    }

    /// Whether this is news: the condition does not say so yet. Messages are compared as far as a
    /// condition keeps them.
    fn changes(&self, type_: &str, reason: &str, message: &str) -> bool {
        condition::get(&self.at.status.conditions, type_)
            .is_none_or(|c| c.reason != reason || !message.starts_with(&c.message))
    }

    fn tell(&mut self, severity: Severity, reason: &'static str, action: &'static str, note: &str) {
        self.news.push(NewEvent {
            severity,
            reason,
            action,
            note: note.to_owned(),
        });
    }

    /// Reports what keeps the released pod from running or ending, if anything does. While the reason
    /// stays the first message does: schedulers and kubelets reword theirs at every attempt.
    fn tell_of_wait(&mut self, pod: &PodView) {
        let Some((event, reason, message)) = trouble(pod) else {
            self.unsay();
            let message = "the pod was released and has not ended";
            return self.set(RECONCILING, true, "Running", message);
        };
        if self.status.reason.as_deref() != Some(&reason) {
            let what = match event {
                POD_WAITING => "does not run yet",
                POD_TERMINATING => "is being deleted",
                _ => "may not run any more",
            };
            let note = format!("the pod {what}: {reason}: {message}");
            self.tell(Severity::Warning, event, "WaitForPod", &note);
            self.say(&reason, &message);
            self.set(RECONCILING, true, &reason, &message);
        }
    }

    /// Puts a word and a sentence where `kubectl get` shows them.
    fn say(&mut self, reason: &str, message: &str) {
        self.status.reason = Some(reason.to_owned());
        self.status.message = Some(result::head(message));
    }

    fn unsay(&mut self) {
        (self.status.reason, self.status.message) = (None, None);
    }

    /// It is time, and something keeps the command from starting.
    fn hindered(&mut self, reason: &'static str, why: &str) {
        self.status.scheduled_time = self.at.instant();
        self.held_up(reason, why);
    }

    fn held_up(&mut self, reason: &'static str, why: &str) {
        let type_ = if self.at.is_started() {
            RECONCILING
        } else {
            STARTED
        };
        if self.changes(type_, reason, why) {
            self.tell(Severity::Warning, reason, "StartPod", why);
        }
        self.say(reason, why);
        if type_ == STARTED {
            self.set(STARTED, false, reason, why);
        }
        self.set(RECONCILING, true, reason, why);
    }

    /// Records this pod as the one that runs the command: the commit point. That it started is for
    /// whoever sees it without our gate to say.
    fn commit(&mut self, pod: &PodView) {
        self.record_pod(&pod.uid);
        self.await_release();
    }

    fn await_release(&mut self) {
        let why = "the pod is recorded and about to be released";
        self.set(STARTED, false, COMMITTED, why);
        self.set(RECONCILING, true, COMMITTED, why);
    }

    fn record_pod(&mut self, uid: &str) {
        self.status.phase = Some(Phase::Running);
        self.status.pod_uid = Some(uid.to_owned());
        self.status.pod_name = Some(pod::name(&self.at.key.name));
        self.status.scheduled_time = self.at.instant();
        self.status.discarded_pod_uid = None;
        self.unsay();
        self.unset(STALLED);
    }

    /// Records a pod as the run whose gate another client removed before the commit. It may be gone.
    fn take_for_run(&mut self, uid: &str, seen: Seen<'_>, pod: Option<&PodView>) {
        self.record_pod(uid);
        let first = self.first_sight(uid, seen, pod);
        self.set_start(first.at);
        let why = "another client removed the gate of the pod before the command was to start";
        self.set(STARTED, true, GATE_VIOLATED, why);
        let message = "the pod was released and has not ended";
        self.set(RECONCILING, true, "Running", message);
        let note = "another client removed the gate of the pod; it is taken for the run";
        self.tell(Severity::Warning, GATE_VIOLATED, "RecordPod", note);
        self.start = self.status.start_time;
    }

    /// When that pod was first seen without our gate; now, if there is no record of it.
    fn first_sight(&self, uid: &str, seen: Seen<'_>, pod: Option<&PodView>) -> Released {
        let recorded = seen.released.filter(|first| first.uid == uid).cloned();
        recorded.unwrap_or_else(|| {
            let unseen = PodView::default();
            Released::new(pod.unwrap_or(&unseen), self.now)
        })
    }

    /// Records the start of the pod, which is seen without our gate.
    fn record_start(&mut self, seen: Seen<'_>, pod: &PodView) {
        self.record_start_of(seen, Some(pod));
    }

    fn record_start_of(&mut self, seen: Seen<'_>, pod: Option<&PodView>) {
        if self.at.is_started() {
            return;
        }
        let uid = self.at.status.pod_uid.as_deref().unwrap_or_default();
        let first = self.first_sight(uid, seen, pod);
        let scheduled = self.status.scheduled_time;
        if seen.withheld {
            self.set_start(first.at);
            let why = "another client removed the gate of the recorded pod";
            self.set(STARTED, true, GATE_VIOLATED, why);
            if !first.reported {
                self.tell(Severity::Warning, GATE_VIOLATED, "RecordPod", why);
            }
        } else {
            // The time of another component may be cut to the second, and its clock may be behind.
            self.set_start(scheduled.map_or(first.at, |instant| first.at.max(instant)));
            self.set(STARTED, true, RELEASED, "the pod was released to run");
            if !first.reported {
                let late = self.status.lateness_milliseconds.unwrap_or_default();
                let name = pod::name(&self.at.key.name);
                let note = format!("released the pod {name}, {late} ms late");
                self.tell(Severity::Normal, "Started", "ReleasePod", &note);
            }
        }
        self.start = self.status.start_time.filter(|_| !first.reported);
    }

    /// Until when the record of the start may wait for another write of the status to ride on.
    fn record_due(&self, seen: Seen<'_>, pod: &PodView) -> Option<DateTime<Utc>> {
        let at = self.at;
        let quiet = at.status.reason.is_none() && trouble(pod).is_none();
        if at.is_started() || !quiet || at.status.observed_generation != at.generation {
            return None;
        }
        let first = self.first_sight(&pod.uid, seen, Some(pod));
        let due = first.record_at;
        // A clock that was set back must not put it off.
        let waits = first.at <= self.now && self.now < due;
        waits.then_some(due)
    }

    fn set_start(&mut self, start: DateTime<Utc>) {
        // Rounded up: a start must not look earlier than its instant.
        let start = ceil_to_millisecond(start);
        self.status.start_time = Some(start);
        let late = self
            .status
            .scheduled_time
            .map(|instant| (start - instant).num_milliseconds());
        self.status.lateness_milliseconds = late.filter(|late| *late >= 0);
    }

    /// The pod ended, or was last seen so. A gated one can be set to Failed, too, and has not run.
    fn end_of_pod(mut self, seen: Seen<'_>, pod: &PodView, verdict: &Verdict) -> Step {
        if pod.gate.is_none() {
            self.record_start(seen, pod);
        } else if self.at.is_started() {
            self.take_back_start();
        }
        self.end(verdict)
    }

    /// An earlier version recorded the start with the commit, and the pod still has its gate.
    fn take_back_start(&mut self) {
        (self.status.start_time, self.status.lateness_milliseconds) = (None, None);
        self.await_release();
    }

    /// The end that was decided before the pod was deleted for it.
    fn decided(&self) -> Option<Verdict> {
        let target = condition::get(&self.at.status.conditions, FAILURE_TARGET)?;
        let result = if target.reason == TOO_LATE {
            Ending::Missed
        } else {
            Ending::Failed
        };
        Some(Verdict::plain(result, &target.reason, &target.message))
    }

    /// Writes down how it ends before the pod is deleted for it. The write carries the resource version
    /// that was read, so an old view of the At decides nothing; and whatever fails after it, the result
    /// stays.
    fn decide(mut self, verdict: &Verdict) -> Step {
        let (reason, message) = (&verdict.reason, &verdict.message);
        self.set(FAILURE_TARGET, true, reason, message);
        self.set(RECONCILING, true, reason, message);
        self.say(reason, message);
        self.again()
    }

    /// Deletes the pod that has not run, and ends as was decided.
    fn end_by_deletion(self, seen: Seen<'_>, pod: &PodView, verdict: &Verdict) -> Step {
        if !seen.live {
            return Self::look();
        }
        if let Some(hold) = seen.hold.filter(|hold| *hold > self.now) {
            return StatusBuilder::new(self.at, self.now).wait(Some(hold));
        }
        Step {
            act: Act::DeletePod(Version::of(pod)),
            ..self.end(verdict)
        }
    }

    fn is_discarded(&self, pod: &PodView) -> bool {
        self.at.status.discarded_pod_uid.as_deref() == Some(&pod.uid)
    }

    /// Writes down that this pod is never to be committed, before it is deleted. The write fails for an
    /// operator that has an old view of the At, and a deletion that arrives late meets a pod that no
    /// operator has committed since.
    fn discard(mut self, pod: &PodView) -> Step {
        self.status.discarded_pod_uid = Some(pod.uid.clone());
        self.again()
    }

    /// Deletes a pod that was altered on its way to the API server, and reports that.
    fn delete_altered(mut self, seen: Seen<'_>, pod: &PodView, why: &str) -> Step {
        let why = format!("the pod was altered while it was created{why}");
        self.hindered(POD_ALTERED, &why);
        self.delete_pod(seen, pod)
    }

    /// It is over.
    fn end(mut self, verdict: &Verdict) -> Step {
        let is_started = is_true(&self.status.conditions, STARTED);
        if verdict.reason == POD_LOST && !is_started {
            let why = "the pod is gone, and whether it was released is not known";
            self.set_unknown(STARTED, POD_LOST, why);
        } else if !is_started {
            let why = "the pod was not released";
            self.set(STARTED, false, &verdict.reason, why);
        }
        self.unset(FAILURE_TARGET);
        self.status.discarded_pod_uid = None;
        let status = &mut self.status;
        status.phase = Some(Phase::Done);
        status.result = Some(verdict.result);
        status.exit_code = verdict.exit_code;
        status.signal = verdict.signal;
        status.reason = Some(verdict.reason.clone());
        status.message = Some(verdict.message.clone()).filter(|text| !text.is_empty());
        if verdict.result == Ending::Missed {
            status.scheduled_time = status.scheduled_time.or_else(|| self.at.instant());
        }
        // The node's clock gives whole seconds and may be wrong: the end lies between start and now.
        let end = verdict
            .finished_at
            .map_or(self.now, |end| end.min(self.now));
        let end = status.start_time.map_or(end, |start| end.max(start));
        status.completion_time = Some(ceil_to_millisecond(end));
        let good = verdict.result == Ending::Succeeded;
        let message = if verdict.message.is_empty() {
            verdict
                .exit_code
                .map(|code| format!("the command ended with exit code {code}"))
        } else {
            None
        };
        let message = message.unwrap_or_else(|| verdict.message.clone());
        self.set(
            if good { COMPLETE } else { FAILED },
            true,
            &verdict.reason,
            &message,
        );
        self.set(FINISHED, true, &verdict.reason, &message);
        self.unset(RECONCILING);
        if !good {
            self.set(STALLED, true, &verdict.reason, &message);
        }
        let (severity, event) = match verdict.result {
            Ending::Succeeded => (Severity::Normal, "Completed"),
            Ending::Missed => (Severity::Warning, "Missed"),
            Ending::Failed | Ending::Unknown => (Severity::Warning, "Failed"),
        };
        let note = format!("{}: {message}", verdict.reason);
        self.tell(severity, event, "Finish", &note);
        self.again()
    }

    /// It is not started any more.
    fn end_missed(self) -> Step {
        let verdict = missed(self.at);
        self.end(&verdict)
    }

    /// The act, then this status, then on.
    fn act(self, act: Act) -> Step {
        Step {
            act,
            ..self.again()
        }
    }

    /// This status, then on.
    fn again(self) -> Step {
        Step {
            again: true,
            ..self.wait(None)
        }
    }

    /// This status, then nothing until then.
    fn wait(self, next: Option<DateTime<Utc>>) -> Step {
        let changed = self.status != self.at.status;
        Step {
            act: Act::Nothing,
            status: changed.then(|| Box::new(self.status)),
            news: self.news,
            start: self.start,
            again: false,
            next,
        }
    }

    /// Nothing at all until something changes.
    fn silent() -> Step {
        Step {
            act: Act::Nothing,
            status: None,
            news: Vec::new(),
            start: None,
            again: false,
            next: None,
        }
    }

    /// A live read, and nothing before it.
    fn look() -> Step {
        Step {
            act: Act::Look,
            again: true,
            ..Self::silent()
        }
    }

    /// Deletes a pod that has never run; on a live read only.
    fn delete_pod(self, seen: Seen<'_>, pod: &PodView) -> Step {
        if let Some(hold) = seen.hold.filter(|hold| *hold > self.now) {
            // The last attempt failed, and the status says so.
            let too_late = too_late_from(self.at).filter(|late| *late > self.now);
            return Step {
                next: earliest(Some(hold), too_late),
                ..Self::silent()
            };
        }
        if !seen.live {
            return Self::look();
        }
        let at_deleting = self.at.deleting;
        // An object that goes away needs no news of itself.
        let step = if at_deleting {
            Self::silent()
        } else {
            self.wait(None)
        };
        Step {
            act: Act::DeletePod(Version::of(pod)),
            again: true,
            ..step
        }
    }
}

/// What keeps a released pod from running or ending: the Event's reason, the reason, the message.
fn trouble(pod: &PodView) -> Option<(&'static str, String, String)> {
    if pod.deleting {
        let reason = Some(pod.reason.clone()).filter(|reason| !reason.is_empty());
        let message = Some(pod.message.clone()).filter(|message| !message.is_empty());
        return Some((
            POD_TERMINATING,
            reason.unwrap_or_else(|| POD_TERMINATING.to_owned()),
            message.unwrap_or_else(|| "the pod is being deleted and has not ended".to_owned()),
        ));
    }
    let event = match pod.phase {
        PodPhase::Pending => POD_WAITING,
        _ => POD_DISRUPTED,
    };
    if let Some(Waiting { reason, message }) = pod.waiting.as_deref() {
        return Some((event, reason.clone(), message.clone()));
    }
    let disrupted = !pod.reason.is_empty();
    disrupted.then(|| (POD_DISRUPTED, pod.reason.clone(), pod.message.clone()))
}

fn is_true(conditions: &[condition::Condition], type_: &str) -> bool {
    condition::get(conditions, type_).is_some_and(|c| c.status == "True")
}

impl AtView {
    fn is_accepted(&self) -> bool {
        is_true(&self.status.conditions, ACCEPTED)
    }

    /// Whether the status says that the pod was released.
    pub fn is_started(&self) -> bool {
        is_true(&self.status.conditions, STARTED)
    }
}

#[cfg(test)]
mod tests;
