//! The protocol "arm by UID": what to do next about one At, as a pure function.
//!
//! The pod has a fixed name, so there is at most one at a time, and a scheduling gate, so none runs
//! before it is released. **The commit point** is the write of the pod's UID into the status, with
//! the resource version that was read; only the pod with that UID is ever released. Before the
//! commit, whatever crashes, is repeated or arrives hours late has started nothing. After the
//! commit, only the same pod can be released again, which changes nothing.
//!
//! **The status says what has been observed, and no more.** The commit records the pod and not its
//! start: Started becomes True, with startTime, when the pod is seen without our gate. A deletion
//! that decides a result is preceded by a write of that decision ([`conditions::FAILURE_TARGET`]),
//! so that neither a failed write nor a crash after the deletion turns Missed into Unknown.
//!
//! The tables of `docs/at/protocol.md` define what is done when, and the tests check [`step`]
//! against them. An At *may go on* when it is due, not suspended, within its deadline, not being
//! deleted, and valid. Only a live read decides what follows from a pod's absence or a foreign
//! pod's presence: watches lag, each by its own time.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::admission::{deadline, past};
use super::crd::{AtSpec, AtStatus, Ending, Phase};
use super::pod::{self, PodPhase, PodView, Waiting};
use super::result::{self, Verdict};
use super::schedule::ceil_to_millisecond;
use super::view::AtView;
use my_operator_admission::faults::join;
use my_operator_runtime::reconcile::condition::{self, ACCEPTED};
use my_operator_runtime::reconcile::event::{NewEvent, Severity};

/// Interval of live reads where no watch delivers a change, such as of a foreign pod.
pub const BLIND_INTERVAL: TimeDelta = TimeDelta::seconds(60);
/// The record of a start waits this long for another write of the status to ride on, usually the
/// end of a short command.
pub const START_RECORDED_WITHIN: TimeDelta = TimeDelta::seconds(2);
/// In a burst even a short command takes longer to end, and starts come before records. So two
/// records are this far apart,
const BETWEEN_RECORDS: TimeDelta = TimeDelta::milliseconds(100);
/// unless that would delay one by more than this.
const MAX_RECORD_DELAY: TimeDelta = TimeDelta::minutes(5);
/// A busy cluster does not explain a start that is later than this.
const OVERDUE_AFTER: TimeDelta = TimeDelta::seconds(60);

/// The types of conditions.
pub mod conditions {
    /// The pod was seen without our gate.
    pub const STARTED: &str = "Started";
    /// It ended with exit code 0.
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
    /// kstatus: nothing happens without user intervention.
    pub const STALLED: &str = "Stalled";
}
use conditions::{COMPLETE, FAILED, FAILURE_TARGET, FINISHED, RECONCILING, STALLED, STARTED};

/// Reason: a foreign pod has the name.
pub const NAME_CONFLICT: &str = "NameConflict";
/// Reason: the pod was altered on its way so that it could run twice.
pub const POD_ALTERED: &str = "PodAltered";
/// Reason: a pod of ours that was not to run blocks the name until it is gone.
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

/// Why a call about the pod failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFailure<'a> {
    /// The call.
    pub call: Call,
    /// The API server's message, or why it did not answer.
    pub message: &'a str,
    /// The API server rejects the call until something changes. Otherwise a retry may succeed.
    pub refused: bool,
    /// Its failures in a row.
    pub failures: u32,
    /// When to try again; `None` if the caller decides.
    pub not_before: Option<DateTime<Utc>>,
}

/// What is known of the pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// The pod with the At's pod name.
    pub pod: Option<&'a PodView>,
    /// It comes from a live read, not from a watch.
    pub live: bool,
    /// The last state of a pod that the watch saw deleted.
    pub last: Option<&'a Last>,
    /// The first sight of a pod of this At without our gate. It counts when the pod is gone, too: a
    /// pod that could run is the run.
    pub released: Option<&'a Released>,
    /// This process committed the recorded pod, and has sent no request that can have released it.
    pub withheld: bool,
    /// Backoff after failed attempts: before this instant no pod is created, released or deleted,
    /// and no foreign pod is read again.
    pub not_before: Option<DateTime<Utc>>,
}

/// What one process has observed of the pods of an At, in addition to the latest state.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    /// The last state of a pod that the watch saw deleted.
    pub last: Option<Last>,
    /// The first sight of a pod without our gate.
    pub released: Option<Released>,
}

impl Sightings {
    /// Records the state of an existing pod.
    pub fn record(&mut self, pod: &PodView, now: DateTime<Utc>) {
        let outlives = |last: &mut Last| last.pod.uid == pod.uid && last.pod.is_older(pod);
        // To a watch with a label selector, a pod that loses its label is deleted.
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

    /// Records the last state of a pod that is gone; `certain` if it was deleted in that state.
    pub fn record_deletion(&mut self, pod: &PodView, certain: bool) {
        let pod = pod.clone();
        self.last = Some(Last { pod, certain });
    }
}

/// The first sight of a pod without our gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// `metadata.uid` of the pod.
    pub uid: String,
    /// When it was first seen released; or the time at which it was scheduled or ended, where that
    /// is known and earlier.
    pub at: DateTime<Utc>,
    /// The start was published as an Event and counted.
    pub reported: bool,
    /// When it is written, unless another write of the status includes it before.
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
    /// When the last record is due.
    last: DateTime<Utc>,
}

impl Records {
    /// Delays the record until its turn.
    pub fn queue(&mut self, first: &mut Released, now: DateTime<Utc>) {
        let longest = now + MAX_RECORD_DELAY;
        // A last record later than that is from before the clock was set back.
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
    /// The pod was deleted in exactly this state.
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
pub enum Operation {
    /// No call.
    Nothing,
    /// Read the pod live, and call [`step`] again with the result.
    GetLive,
    /// Create this pod.
    Create(Value),
    /// Remove our gate from the pod, if it has this UID and the gate is at this index.
    RemoveGate {
        /// The UID that is recorded in the status.
        uid: String,
        /// The index of our gate.
        gate: usize,
    },
    /// Delete the pod if it is still at this version, which proves that it has not run.
    DeletePod(Version),
    /// Delete the At if it still has the version that was read.
    DeleteAt,
}

/// What to do next: first the action, then the status, then the Events. If the action fails, the rest is skipped.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The call to make.
    pub operation: Operation,
    /// The status to write at the resource version that was read, if it changes.
    pub status: Option<Box<AtStatus>>,
    /// The Events to publish once that is done.
    pub events: Vec<NewEvent>,
    /// The start that these Events report, to be counted once that is done.
    pub start: Option<DateTime<Utc>>,
    /// Decide on the next step at once.
    pub again: bool,
    /// Otherwise reconcile again then, or when something changes.
    pub next: Option<DateTime<Utc>>,
}

/// Whether a command may start now, and what prevents it.
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

/// The first moment at which the release of a committed pod would be too late, by the schedule at the commit.
fn too_late_to_release_from(at: &AtView) -> Option<DateTime<Utc>> {
    too_late_after(at, at.status.scheduled_time?)
}

fn too_late_after(at: &AtView, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let seconds = at.spec.as_ref().ok()?.starting_deadline_seconds?;
    deadline(instant, seconds)?.checked_add_signed(TimeDelta::milliseconds(1))
}

/// Whether the command should have started more than a minute ago and still waits: because the pod
/// is rejected, the name is taken, or the release fails.
pub fn is_overdue(at: &AtView, released: Option<&Released>, now: DateTime<Utc>) -> bool {
    let is_due_for_long = |instant: Option<DateTime<Utc>>| {
        instant.is_some_and(|instant| instant + OVERDUE_AFTER <= now)
    };
    // In this order, because nearly every reconcile is of an At that is not that late.
    !at.deleting
        && match at.phase() {
            Phase::Pending => is_due_for_long(at.instant()) && may_go_on(at, now) == Go::Yes,
            Phase::Running => {
                let seen = released.is_some_and(|r| Some(&r.uid) == at.status.pod_uid.as_ref());
                // An At whose end is decided waits for the deletion of its pod, not for a start.
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

/// Decides what the status says of a failed call about the pod, and when to try again.
pub fn call_failed(at: &AtView, failure: CallFailure<'_>, now: DateTime<Utc>) -> Step {
    let CallFailure {
        call,
        message,
        refused,
        failures,
        not_before,
    } = failure;
    let reason = if refused {
        call.refused()
    } else {
        call.failed()
    };
    let mut draft = StatusBuilder::new(at, now);
    match at.phase() {
        _ if at.deleting => {}
        // The result stays. Only the deletion is retried.
        Phase::Done if failures == 1 => {
            draft.publish(Severity::Warning, reason, "DeletePod", message);
        }
        Phase::Done => {}
        // Retries word the same failure in many ways: the first message stays.
        _ if !refused && at.status.reason.as_deref() == Some(reason) => {}
        Phase::Pending if at.status.pod_uid.is_none() => {
            draft.report_start_blocked(reason, message);
            return draft.wait(earliest(not_before, too_late_from(at)));
        }
        Phase::Pending | Phase::Running => {
            draft.status.phase = Some(Phase::Running);
            draft.report_blocked(reason, message);
        }
    }
    let deadline = match at.phase() {
        Phase::Done => None,
        Phase::Pending if at.status.pod_uid.is_none() => too_late_from(at),
        // Once the end is decided, only the deletion is left.
        _ if at.is_started() || draft.decided().is_some() => None,
        _ => too_late_to_release_from(at),
    };
    draft.wait(earliest(
        not_before,
        deadline.filter(|deadline| *deadline > now),
    ))
}

fn pending(mut draft: StatusBuilder<'_>, seen: Seen<'_>) -> Step {
    let (at, now) = (draft.at, draft.now);
    let ours = seen.pod.filter(|pod| pod.is_of(&at.uid));
    if at.deleting {
        return match ours {
            Some(pod) if pod.gate.is_some() && !pod.deleting => draft.delete_pod(seen, pod),
            _ => StatusBuilder::no_step(),
        };
    }
    let go = may_go_on(at, now);
    // A pod that was seen without our gate is gone: the watches need not have shown its end.
    let is_gone = |run: &&Released| ours.is_none_or(|pod| pod.uid != run.uid);
    if let Some(run) = seen.released.filter(is_gone) {
        if !seen.live {
            return StatusBuilder::get_live();
        }
        draft.adopt_as_run(&run.uid, seen, None);
        return draft.again();
    }
    match ours {
        Some(_) if !seen.live => StatusBuilder::get_live(),
        Some(pod) if pod.gate.is_none() => {
            draft.adopt_as_run(&pod.uid, seen, Some(pod));
            draft.again()
        }
        // An uncommitted pod never runs, so it need not be gone: a finalizer may hold it, and a
        // policy may reject its deletion.
        Some(_) if go == Go::TooLate => draft.end_missed(),
        // The watch shows when it is gone, unless another client removed our label.
        Some(pod) if pod.deleting => {
            let blind = Some(now + BLIND_INTERVAL);
            if go != Go::Yes {
                let step = idle(draft, &go);
                let next = earliest(step.next, blind);
                return Step { next, ..step };
            }
            let message = format!(
                "the pod {} of an earlier attempt is still being deleted; the command starts when it is gone",
                pod::name(&at.key.name)
            );
            draft.report_start_blocked(POD_TERMINATING, &message);
            draft.wait(earliest(blind, too_late_from(at)))
        }
        Some(pod) => match altered(pod, &go) {
            Some(message) => draft.delete_altered(seen, pod, &message),
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

/// What a foreign webhook did to a gated pod of ours that it must not, as the rest of a sentence.
fn altered(pod: &PodView, go: &Go) -> Option<String> {
    match &pod.may_restart {
        Some(message) => Some(format!(" and could run twice: {message}")),
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

/// Creates the pod, or removes what blocks its name: it is time, and there is no pod of ours.
fn start(mut draft: StatusBuilder<'_>, seen: Seen<'_>) -> Step {
    let (at, now) = (draft.at, draft.now);
    let conflict = condition::get(&at.status.conditions, STARTED)
        .is_some_and(|c| c.reason == NAME_CONFLICT && c.status == "False");
    let stray = seen.pod.filter(|pod| seen.live && !pod.deleting);
    if let Some((pod, uid)) = stray.and_then(|pod| Some((pod, pod.stray_of.as_deref()?))) {
        // It is gated and marked as created for an At of this name, so it has never run, and no
        // operator will release it: it only blocks the name.
        return if uid == at.uid {
            draft.delete_altered(seen, pod, ": its owner reference was taken away")
        } else {
            draft.delete_pod(seen, pod)
        };
    }
    if seen.pod.is_some() && seen.live {
        let message = format!(
            "a pod named {} exists and is not of this At; the command starts when it is gone",
            pod::name(&at.key.name)
        );
        draft.report_start_blocked(NAME_CONFLICT, &message);
        let not_before = seen.not_before.filter(|time| *time > now);
        let next = earliest(not_before, Some(now + BLIND_INTERVAL));
        return draft.wait(earliest(next, too_late_from(at)));
    }
    if let Some(not_before) = seen.not_before.filter(|time| *time > now) {
        return draft.wait(earliest(Some(not_before), too_late_from(at)));
    }
    match &at.spec {
        // Where there was a foreign pod, read live before trying.
        _ if !seen.live && (seen.pod.is_some() || conflict) => StatusBuilder::get_live(),
        Ok(spec) => Step {
            operation: Operation::Create(pod::build(at.owner(), spec)),
            again: true,
            ..StatusBuilder::no_step()
        },
        Err(_) => StatusBuilder::no_step(),
    }
}

/// Nothing may start now, and there is no pod of ours.
fn idle(mut draft: StatusBuilder<'_>, go: &Go) -> Step {
    let at = draft.at;
    draft.status.scheduled_time = at.instant();
    draft.unset(RECONCILING);
    draft.clear_reason();
    match go {
        Go::Suspended => {
            let message = "spec.suspend holds the start back";
            draft.set_reason(SUSPENDED, message);
            draft.set(STARTED, false, SUSPENDED, message);
            draft.wait(None)
        }
        Go::TooLate => draft.end_missed(),
        Go::NotDue(instant) => {
            draft.unset(STARTED);
            if instant.is_none() {
                draft.set_reason(
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
                draft.publish(Severity::Normal, "Scheduled", "Schedule", &note);
            }
            draft.wait(*instant)
        }
        Go::Invalid | Go::Yes => {
            if let Err(faults) = &at.spec {
                draft.set_reason(INVALID, &join(faults));
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
        // A gated pod of an At that has started usually means an outdated cache.
        _ if (ends || at.is_started()) && !seen.live => StatusBuilder::get_live(),
        // First, so that no end is recorded next to a start that did not happen.
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
        // The clock was set back since the commit, or is another operator's. By a live read only:
        // the pod may have lost the label that our watch selects.
        None if early.is_some() => {
            let blind = seen.live.then(|| now + BLIND_INTERVAL);
            draft.wait(earliest(early, blind))
        }
        None if seen.not_before.is_some_and(|time| time > now) => {
            draft.wait(earliest(seen.not_before, too_late_to_release_from(at)))
        }
        None => {
            let uid = pod.uid.clone();
            draft.perform(Operation::RemoveGate { uid, gate })
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
    // The kubelet enforces the deadline of a bound pod, the operator that of a waiting one.
    let waits = pod.phase == PodPhase::Pending && !pod.bound;
    match draft.decided() {
        Some(verdict) if verdict.result == Ending::Failed && waits => {
            return if pod.deleting {
                draft.end(&verdict)
            } else {
                draft.end_by_deletion(seen, pod, &verdict)
            };
        }
        // It started or was bound after all: the deletion is no longer possible.
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
        Some(end) if now >= end && !seen.live => StatusBuilder::get_live(),
        Some(end) if now >= end => {
            let message = "no node had taken the pod in when activeDeadlineSeconds had passed";
            draft.decide(&Verdict::plain(Ending::Failed, DEADLINE_EXCEEDED, message))
        }
        end => {
            // By a live read only: it may have lost the label that our watch selects.
            let blind = seen.live.then(|| now + BLIND_INTERVAL);
            let next = earliest(end, blind);
            if let Some(record) = draft.record_due(seen, pod) {
                // The Events need not wait for the record.
                return Step {
                    events: draft.events,
                    start: draft.start,
                    next: earliest(next, Some(record)),
                    ..StatusBuilder::no_step()
                };
            }
            if !at.deleting {
                draft.report_waiting(pod);
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
        return StatusBuilder::no_step();
    }
    if !seen.live {
        return StatusBuilder::get_live();
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
    // Such as an eviction, which marks the pod before deleting it.
    if let Some(last) = last.filter(|last| !last.pod.reason.is_empty()) {
        let PodView {
            reason, message, ..
        } = &last.pod;
        let said = format!("{}; last seen: {reason}: {message}", verdict.message);
        verdict.message = result::head(&said);
    }
    draft.end(&verdict)
}

/// The verdict on a command that was not started in time. It keeps what prevented the start.
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
    let not_before = seen.not_before.filter(|time| *time > now);
    let unused = ours.filter(|pod| pod.gate.is_some() && !pod.deleting);
    // A rejected deletion must not delay the TTL.
    if let Some(pod) = unused.filter(|_| not_before.is_none()) {
        return draft.delete_pod(seen, pod);
    }
    if at.deleting {
        return StatusBuilder::no_step();
    }
    let stray =
        ours.filter(|pod| pod.gate.is_none() && Some(&pod.uid) != at.status.pod_uid.as_ref());
    let is_reported =
        condition::get(&at.status.conditions, STARTED).is_some_and(|c| c.reason == GATE_VIOLATED);
    if stray.is_some() && !is_reported {
        if !seen.live {
            return StatusBuilder::get_live();
        }
        let message = "another client removed the gate of a pod that the operator never released";
        draft.set(STARTED, true, GATE_VIOLATED, message);
        draft.publish(Severity::Warning, GATE_VIOLATED, "RecordPod", message);
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
            operation: Operation::DeleteAt,
            // A finalizer may hold it, and a proxy may answer for the API server.
            next: Some(now + BLIND_INTERVAL),
            ..StatusBuilder::no_step()
        },
        end => draft.wait(earliest(end, not_before.filter(|_| unused.is_some()))),
    }
}

fn earliest(a: Option<DateTime<Utc>>, b: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    a.into_iter().chain(b).min()
}

/// Builds a step. The next status begins as the current one.
struct StatusBuilder<'a> {
    at: &'a AtView,
    now: DateTime<Utc>,
    status: AtStatus,
    events: Vec<NewEvent>,
    start: Option<DateTime<Utc>>,
}

impl<'a> StatusBuilder<'a> {
    fn new(at: &'a AtView, now: DateTime<Utc>) -> Self {
        let mut draft = Self {
            at,
            now,
            status: at.status.clone(),
            events: Vec::new(),
            start: None,
        };
        draft.status.phase = Some(at.phase());
        draft.status.observed_generation = at.generation;
        // What is not changed below still holds. `kubectl wait` compares the generation of the
        // condition itself, and would wait forever for one that stays behind.
        for condition in &mut draft.status.conditions {
            condition.observed_generation = at.generation;
        }
        draft.accept();
        draft
    }

    /// Reports whether the spec is valid. An invalid one only blocks what has not started.
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
                let message = join(faults);
                if self.changes(ACCEPTED, INVALID, &message) {
                    self.publish(Severity::Warning, INVALID, "Validate", &message);
                }
                self.set(ACCEPTED, false, INVALID, &message);
                if self.at.phase() == Phase::Pending {
                    self.set(STALLED, true, INVALID, &message);
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

    /// Sets a condition to Unknown.
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

    /// Whether the condition changes by this. Messages are compared as far as a condition keeps them.
    fn changes(&self, type_: &str, reason: &str, message: &str) -> bool {
        condition::get(&self.at.status.conditions, type_)
            .is_none_or(|c| c.reason != reason || !message.starts_with(&c.message))
    }

    fn publish(
        &mut self,
        severity: Severity,
        reason: &'static str,
        action: &'static str,
        note: &str,
    ) {
        self.events.push(NewEvent {
            severity,
            reason,
            action,
            note: note.to_owned(),
        });
    }

    /// Reports what keeps the released pod from running or ending. While the reason stays the same,
    /// so does the first message: schedulers and kubelets reword theirs at every attempt.
    fn report_waiting(&mut self, pod: &PodView) {
        let Some((event, reason, message)) = trouble(pod) else {
            self.clear_reason();
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
            self.publish(Severity::Warning, event, "WaitForPod", &note);
            self.set_reason(&reason, &message);
            self.set(RECONCILING, true, &reason, &message);
        }
    }

    /// Sets the reason and message that `kubectl get` shows.
    fn set_reason(&mut self, reason: &str, message: &str) {
        self.status.reason = Some(reason.to_owned());
        self.status.message = Some(result::head(message));
    }

    fn clear_reason(&mut self) {
        (self.status.reason, self.status.message) = (None, None);
    }

    /// The command is due, and something prevents its start.
    fn report_start_blocked(&mut self, reason: &'static str, message: &str) {
        self.status.scheduled_time = self.at.instant();
        self.report_blocked(reason, message);
    }

    fn report_blocked(&mut self, reason: &'static str, message: &str) {
        let type_ = if self.at.is_started() {
            RECONCILING
        } else {
            STARTED
        };
        if self.changes(type_, reason, message) {
            self.publish(Severity::Warning, reason, "StartPod", message);
        }
        self.set_reason(reason, message);
        if type_ == STARTED {
            self.set(STARTED, false, reason, message);
        }
        self.set(RECONCILING, true, reason, message);
    }

    /// Records this pod as the one that runs the command: the commit point. Its start is recorded
    /// when it is seen without our gate.
    fn commit(&mut self, pod: &PodView) {
        self.record_pod(&pod.uid);
        self.await_release();
    }

    fn await_release(&mut self) {
        let message = "the pod is recorded and about to be released";
        self.set(STARTED, false, COMMITTED, message);
        self.set(RECONCILING, true, COMMITTED, message);
    }

    fn record_pod(&mut self, uid: &str) {
        self.status.phase = Some(Phase::Running);
        self.status.pod_uid = Some(uid.to_owned());
        self.status.pod_name = Some(pod::name(&self.at.key.name));
        self.status.scheduled_time = self.at.instant();
        self.status.discarded_pod_uid = None;
        self.clear_reason();
        self.unset(STALLED);
    }

    /// Records a pod as the run although another client removed its gate before the commit. The pod may be gone.
    fn adopt_as_run(&mut self, uid: &str, seen: Seen<'_>, pod: Option<&PodView>) {
        self.record_pod(uid);
        let first = self.first_sight(uid, seen, pod);
        self.set_start(first.at);
        let violation =
            "another client removed the gate of the pod before the command was to start";
        self.set(STARTED, true, GATE_VIOLATED, violation);
        let message = "the pod was released and has not ended";
        self.set(RECONCILING, true, "Running", message);
        let note = "another client removed the gate of the pod; it is taken for the run";
        self.publish(Severity::Warning, GATE_VIOLATED, "RecordPod", note);
        self.start = self.status.start_time;
    }

    /// When that pod was first seen without our gate; now, if that was not recorded.
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
            let message = "another client removed the gate of the recorded pod";
            self.set(STARTED, true, GATE_VIOLATED, message);
            if !first.reported {
                self.publish(Severity::Warning, GATE_VIOLATED, "RecordPod", message);
            }
        } else {
            // Times of other components may be cut to the second, and their clocks may be behind.
            self.set_start(scheduled.map_or(first.at, |instant| first.at.max(instant)));
            self.set(STARTED, true, RELEASED, "the pod was released to run");
            if !first.reported {
                let late = self.status.lateness_milliseconds.unwrap_or_default();
                let name = pod::name(&self.at.key.name);
                let note = format!("released the pod {name}, {late} ms late");
                self.publish(Severity::Normal, "Started", "ReleasePod", &note);
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
        // A clock that was set back must not delay it.
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

    /// The pod ended, or was last seen ended. A gated pod can be set to Failed, too, and has not run.
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

    /// Records how the At ends before its pod is deleted. The write carries the resource version
    /// that was read, so an outdated view of the At decides nothing; and whatever fails after it,
    /// the result stays.
    fn decide(mut self, verdict: &Verdict) -> Step {
        let (reason, message) = (&verdict.reason, &verdict.message);
        self.set(FAILURE_TARGET, true, reason, message);
        self.set(RECONCILING, true, reason, message);
        self.set_reason(reason, message);
        self.again()
    }

    /// Deletes the pod that has not run, and ends as was decided.
    fn end_by_deletion(self, seen: Seen<'_>, pod: &PodView, verdict: &Verdict) -> Step {
        if !seen.live {
            return Self::get_live();
        }
        if let Some(not_before) = seen.not_before.filter(|time| *time > self.now) {
            return StatusBuilder::new(self.at, self.now).wait(Some(not_before));
        }
        Step {
            operation: Operation::DeletePod(Version::of(pod)),
            ..self.end(verdict)
        }
    }

    fn is_discarded(&self, pod: &PodView) -> bool {
        self.at.status.discarded_pod_uid.as_deref() == Some(&pod.uid)
    }

    /// Records that this pod is never to be committed, before it is deleted. The write fails for an
    /// operator with an outdated view of the At, and a deletion that arrives late meets a pod that
    /// no operator has committed since.
    fn discard(mut self, pod: &PodView) -> Step {
        self.status.discarded_pod_uid = Some(pod.uid.clone());
        self.again()
    }

    /// Deletes a pod that was altered on its way to the API server, and reports that.
    fn delete_altered(mut self, seen: Seen<'_>, pod: &PodView, alteration: &str) -> Step {
        let message = format!("the pod was altered while it was created{alteration}");
        self.report_start_blocked(POD_ALTERED, &message);
        self.delete_pod(seen, pod)
    }

    /// Ends the At.
    fn end(mut self, verdict: &Verdict) -> Step {
        let is_started = is_true(&self.status.conditions, STARTED);
        if verdict.reason == POD_LOST && !is_started {
            let message = "the pod is gone, and whether it was released is not known";
            self.set_unknown(STARTED, POD_LOST, message);
        } else if !is_started {
            let message = "the pod was not released";
            self.set(STARTED, false, &verdict.reason, message);
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
        self.publish(severity, event, "Finish", &note);
        self.again()
    }

    /// Ends the At without a start.
    fn end_missed(self) -> Step {
        let verdict = missed(self.at);
        self.end(&verdict)
    }

    /// The action, then this status, then the next step.
    fn perform(self, operation: Operation) -> Step {
        Step {
            operation,
            ..self.again()
        }
    }

    /// This status, then the next step.
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
            operation: Operation::Nothing,
            status: changed.then(|| Box::new(self.status)),
            events: self.events,
            start: self.start,
            again: false,
            next,
        }
    }

    /// Nothing at all until something changes.
    fn no_step() -> Step {
        Step {
            operation: Operation::Nothing,
            status: None,
            events: Vec::new(),
            start: None,
            again: false,
            next: None,
        }
    }

    /// A live read, and nothing before it.
    fn get_live() -> Step {
        Step {
            operation: Operation::GetLive,
            again: true,
            ..Self::no_step()
        }
    }

    /// Deletes a pod that has never run; on a live read only.
    fn delete_pod(self, seen: Seen<'_>, pod: &PodView) -> Step {
        if let Some(not_before) = seen.not_before.filter(|time| *time > self.now) {
            // The last attempt failed, and the status says so.
            let too_late = too_late_from(self.at).filter(|late| *late > self.now);
            return Step {
                next: earliest(Some(not_before), too_late),
                ..Self::no_step()
            };
        }
        if !seen.live {
            return Self::get_live();
        }
        let at_deleting = self.at.deleting;
        // An At that is being deleted needs no status or Events.
        let step = if at_deleting {
            Self::no_step()
        } else {
            self.wait(None)
        };
        Step {
            operation: Operation::DeletePod(Version::of(pod)),
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
