//! The protocol "arm by UID": what to do next about one At, as a pure function.
//!
//! The pod has a fixed name, so there is at most one at a time, and a scheduling gate, so none runs
//! before it is released. **The commit point** is the write of the pod's UID into the status, with
//! the resource version that was looked at; only the pod with that UID is ever released. Whatever
//! crashes, is repeated, or arrives hours late before the commit has started nothing; after it the
//! same pod can only be released again, which changes nothing.
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
use crate::reconcile::event::{News, Severity};

/// How often to look at what no watch tells of, such as somebody else's pod.
pub const BLIND_INTERVAL: TimeDelta = TimeDelta::seconds(60);
/// A start time in the status that is off by more than this is written again.
const START_TOLERANCE: TimeDelta = TimeDelta::seconds(1);
/// So late a start is nothing that a busy cluster explains.
const OVERDUE_AFTER: TimeDelta = TimeDelta::seconds(60);

/// The types of conditions.
pub mod conditions {
    /// The pod was released.
    pub const STARTED: &str = "Started";
    /// It ended, with exit code 0.
    pub const COMPLETE: &str = "Complete";
    /// It ended in any other way.
    pub const FAILED: &str = "Failed";
    /// It ended.
    pub const FINISHED: &str = "Finished";
    /// kstatus: work is in progress.
    pub const RECONCILING: &str = "Reconciling";
    /// kstatus: nothing goes on without somebody's help.
    pub const STALLED: &str = "Stalled";
}
use conditions::{COMPLETE, FAILED, FINISHED, RECONCILING, STALLED, STARTED};

/// Reason: a pod of somebody else has the name.
pub const NAME_CONFLICT: &str = "NameConflict";
/// Reason: the API server does not take the pod.
pub const POD_REFUSED: &str = "PodRefused";
/// Reason: the pod was altered on its way so that it could run twice.
pub const POD_ALTERED: &str = "PodAltered";
/// Reason: a pod of ours that was not to run holds the name until it is gone.
pub const POD_TERMINATING: &str = "PodTerminating";
/// Reason: the API server does not let the pod be released.
pub const RELEASE_REFUSED: &str = "ReleaseRefused";
/// Reason: somebody else released a pod.
pub const GATE_VIOLATED: &str = "GateViolated";
/// The sentence of a start.
const RELEASED: &str = "the pod was released to run";
const NEVER_DUE: &str = "NeverDue";
const SUSPENDED: &str = "Suspended";
const INVALID: &str = "Invalid";
const POD_LOST: &str = "PodLost";
const NEVER_STARTED: &str = "NeverStarted";
const TOO_LATE: &str = "StartingDeadlineExceeded";

/// What is known of the pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// The pod with the At's pod name.
    pub pod: Option<&'a PodView>,
    /// It is the answer of the API server itself, not that of a watch.
    pub live: bool,
    /// The last state of a pod that the watch saw deleted.
    pub last: Option<&'a Last>,
    /// No pod is to be created, and none of somebody else's looked at again, before this instant:
    /// the last attempts were in vain.
    pub hold: Option<DateTime<Utc>>,
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
    pub news: Vec<News>,
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

/// Whether the command should have started more than a minute ago, and waits still: for a pod that is
/// refused, or for a name that is taken.
pub fn is_overdue(at: &AtView, now: DateTime<Utc>) -> bool {
    let is_due_for_long = || {
        let instant = at.instant();
        instant.is_some_and(|instant| instant + OVERDUE_AFTER <= now)
    };
    // In this order: nearly every look is at an At that has not been due for so long.
    at.phase() == Phase::Pending && is_due_for_long() && may_go_on(at, now) == Go::Yes
}

/// Decides what to do next about an At.
pub fn step(at: &AtView, seen: Seen<'_>, now: DateTime<Utc>) -> Step {
    let draft = Draft::new(at, now);
    match (at.phase(), &at.status.pod_uid) {
        (Phase::Done, _) => done(draft, seen),
        // A recorded UID is a start, whatever the phase says.
        (_, Some(uid)) => running(draft, seen, uid),
        (Phase::Running, None) => lost(draft, None),
        (Phase::Pending, None) => pending(draft, seen),
    }
}

/// Decides what to do when the API server refused the pod for good, which only a change of
/// somebody's can cure. `hold` is when to try again.
pub fn refused(at: &AtView, why: &str, hold: DateTime<Utc>, now: DateTime<Utc>) -> Step {
    let mut draft = Draft::new(at, now);
    draft.hindered(POD_REFUSED, why);
    draft.wait(earliest(Some(hold), too_late_from(at)))
}

/// Decides what to do when the API server does not let the recorded pod be released, as
/// [`refused`] for one that is not let in.
pub fn unreleased(at: &AtView, why: &str, hold: DateTime<Utc>, now: DateTime<Utc>) -> Step {
    let mut draft = Draft::new(at, now);
    draft.status.phase = Some(Phase::Running);
    (draft.status.start_time, draft.status.lateness_milliseconds) = (None, None);
    draft.held_up(RELEASE_REFUSED, why);
    draft.wait(earliest(Some(hold), too_late_to_release_from(at)))
}

fn pending(mut draft: Draft<'_>, seen: Seen<'_>) -> Step {
    let (at, now) = (draft.at, draft.now);
    let ours = seen.pod.filter(|pod| pod.is_of(&at.uid));
    if at.deleting {
        return match ours {
            Some(pod) if pod.gate.is_some() && !pod.deleting => draft.delete_pod(seen, pod),
            _ => Draft::silent(),
        };
    }
    let go = may_go_on(at, now);
    match ours {
        Some(_) if !seen.live => Draft::look(),
        Some(pod) if pod.gate.is_none() => {
            draft.start(
                pod,
                GATE_VIOLATED,
                "somebody else removed the gate of the pod before the command was to start",
            );
            draft.tell(
                Severity::Warning,
                GATE_VIOLATED,
                "RecordPod",
                "somebody else removed the gate of the pod; it is taken for the run",
            );
            draft.again()
        }
        // Somebody's finalizer may hold it longer than the deadline allows.
        Some(pod) if pod.deleting && go == Go::TooLate => draft.end_missed(Act::Nothing),
        // Its going is seen by the watch, unless somebody took our label off it.
        Some(pod) if pod.deleting => {
            let blind = Some(now + BLIND_INTERVAL);
            if go != Go::Yes {
                return draft.wait(blind);
            }
            let why = format!(
                "the pod {} of an earlier attempt is still being deleted; the command starts when it is gone",
                pod::name(&at.key.name)
            );
            draft.hindered(POD_TERMINATING, &why);
            draft.wait(earliest(blind, too_late_from(at)))
        }
        Some(pod) => match altered(pod, &go) {
            Some(why) => {
                let why = format!("the pod was altered while it was created{why}");
                draft.hindered(POD_ALTERED, &why);
                draft.delete_pod(seen, pod)
            }
            None if go == Go::Yes && is_current(pod, at) => {
                draft.start(pod, "Released", RELEASED);
                draft.again()
            }
            None => draft.delete_pod(seen, pod),
        },
        None if go == Go::Yes => start(draft, seen),
        None => idle(draft, &go),
    }
}

/// What somebody's webhook did to a gated pod of ours that it must not, if anything: the rest of a
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
fn start(mut draft: Draft<'_>, seen: Seen<'_>) -> Step {
    let (at, now) = (draft.at, draft.now);
    let conflict = condition::get(&at.status.conditions, STARTED)
        .is_some_and(|c| c.reason == NAME_CONFLICT && c.status == "False");
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
        // Where there was a stranger's pod, look before trying.
        _ if !seen.live && (seen.pod.is_some() || conflict) => Draft::look(),
        Ok(spec) => Step {
            act: Act::Create(pod::build(at.owner(), spec)),
            status: None,
            news: Vec::new(),
            again: true,
            next: None,
        },
        Err(_) => Draft::silent(),
    }
}

/// Nothing may start now, and there is no pod of ours.
fn idle(mut draft: Draft<'_>, go: &Go) -> Step {
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
        Go::TooLate => draft.end_missed(Act::Nothing),
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

fn running(mut draft: Draft<'_>, seen: Seen<'_>, uid: &str) -> Step {
    let (at, now) = (draft.at, draft.now);
    draft.status.phase = Some(Phase::Running);
    let Some(pod) = seen.pod.filter(|pod| pod.uid == uid) else {
        return gone(draft, seen, uid);
    };
    if let Some(verdict) = result::of(pod) {
        draft.was_released();
        return draft.end(&verdict);
    }
    let too_late = too_late_to_release(at, now);
    let early = at.status.scheduled_time.filter(|instant| now < *instant);
    match pod.gate {
        Some(_) if !seen.live && (pod.deleting || at.deleting || too_late) => Draft::look(),
        Some(_) if pod.deleting => draft.end(&unknown(NEVER_STARTED)),
        Some(_) if at.deleting => draft.delete_pod(seen, pod),
        Some(_) if too_late => draft.end_missed(Act::DeletePod(Version::of(pod))),
        // The clock was set back since the commit, or is another operator's. Seen live only, the
        // pod may have lost the label that our watch goes by.
        Some(_) if early.is_some() => {
            let blind = seen.live.then(|| now + BLIND_INTERVAL);
            draft.wait(earliest(early, blind))
        }
        Some(_) if seen.hold.is_some_and(|hold| hold > now) => {
            draft.wait(earliest(seen.hold, too_late_to_release_from(at)))
        }
        Some(gate) => {
            draft.was_released();
            draft.correct_start();
            let late = draft.status.lateness_milliseconds.unwrap_or_default();
            let note = format!(
                "released the pod {}, {late} ms late",
                pod::name(&at.key.name)
            );
            draft.tell(Severity::Normal, "Started", "ReleasePod", &note);
            let uid = uid.to_owned();
            draft.act(Act::Lift { uid, gate })
        }
        None => released(draft, seen, pod),
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
fn released(mut draft: Draft<'_>, seen: Seen<'_>, pod: &PodView) -> Step {
    draft.was_released();
    let now = draft.now;
    let limit = draft.at.spec.as_ref().ok();
    let limit = limit.and_then(|spec| spec.active_deadline_seconds);
    let started = draft.status.start_time;
    // The kubelet keeps the time of a pod that it has taken in; nobody does for one that waits.
    let waits = pod.phase == PodPhase::Pending && !pod.taken && !pod.deleting;
    let end = started
        .zip(limit)
        .filter(|_| waits)
        .and_then(|(started, seconds)| deadline(started, seconds));
    match end {
        Some(end) if now >= end && !seen.live => Draft::look(),
        Some(end) if now >= end => {
            let message = "no node had taken the pod in when activeDeadlineSeconds had passed";
            let verdict = Verdict::plain(Ending::Failed, "DeadlineExceeded", message);
            draft.end_with(Act::DeletePod(Version::of(pod)), &verdict)
        }
        end => {
            draft.tell_of_wait(pod);
            // Seen live only, it may have lost the label that our watch goes by.
            let blind = seen.live.then(|| now + BLIND_INTERVAL);
            draft.wait(earliest(end, blind))
        }
    }
}

/// The recorded pod is not there.
fn gone(draft: Draft<'_>, seen: Seen<'_>, uid: &str) -> Step {
    let last = seen.last.filter(|last| last.pod.uid == uid);
    if let Some(verdict) = last.and_then(|last| result::of(&last.pod)) {
        return draft.end(&verdict);
    }
    if draft.at.deleting && seen.pod.is_none() {
        return Draft::silent();
    }
    if !seen.live {
        return Draft::look();
    }
    lost(draft, last)
}

fn lost(draft: Draft<'_>, last: Option<&Last>) -> Step {
    let gated = last.is_some_and(|last| last.certain && last.pod.gate.is_some());
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

fn unknown(reason: &str) -> Verdict {
    let message = if reason == NEVER_STARTED {
        "the pod was deleted before it was released: the command did not run, and is not run again"
    } else {
        "the pod is gone and its end was not seen: the command may have run, and is not run again"
    };
    Verdict::plain(Ending::Unknown, reason, message)
}

fn done(mut draft: Draft<'_>, seen: Seen<'_>) -> Step {
    let (at, now) = (draft.at, draft.now);
    let ours = seen.pod.filter(|pod| pod.is_of(&at.uid));
    if let Some(pod) = ours.filter(|pod| pod.gate.is_some() && !pod.deleting) {
        return draft.delete_pod(seen, pod);
    }
    if at.deleting {
        return Draft::silent();
    }
    let stray =
        ours.filter(|pod| pod.gate.is_none() && Some(&pod.uid) != at.status.pod_uid.as_ref());
    let told =
        condition::get(&at.status.conditions, STARTED).is_some_and(|c| c.reason == GATE_VIOLATED);
    if stray.is_some() && !told {
        if !seen.live {
            return Draft::look();
        }
        let why = "somebody else removed the gate of a pod that the operator never released";
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
            ..Draft::silent()
        },
        end => draft.wait(end),
    }
}

fn earliest(a: Option<DateTime<Utc>>, b: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    a.into_iter().chain(b).min()
}

/// A step that is being made up: the next status begins as the present one.
struct Draft<'a> {
    at: &'a AtView,
    now: DateTime<Utc>,
    status: AtStatus,
    news: Vec<News>,
}

impl<'a> Draft<'a> {
    fn new(at: &'a AtView, now: DateTime<Utc>) -> Self {
        let mut draft = Self {
            at,
            now,
            status: at.status.clone(),
            news: Vec::new(),
        };
        draft.status.phase = Some(at.phase());
        draft.status.observed_generation = at.generation;
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
        self.news.push(News {
            severity,
            reason,
            action,
            note: note.to_owned(),
        });
    }

    /// Tells what keeps the released pod from running, if anything does. While the reason stays the
    /// first message does: schedulers and kubelets reword theirs at every attempt.
    fn tell_of_wait(&mut self, pod: &PodView) {
        let Some(waiting) = pod.waiting.as_deref() else {
            self.unsay();
            let message = "the pod was released and has not ended";
            return self.set(RECONCILING, true, "Running", message);
        };
        let Waiting { reason, message } = waiting;
        if self.status.reason.as_ref() != Some(reason) {
            let note = format!("the pod does not run yet: {reason}: {message}");
            self.tell(Severity::Warning, "PodWaiting", "WaitForPod", &note);
            self.say(reason, message);
            self.set(RECONCILING, true, reason, message);
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
        if self.changes(STARTED, reason, why) {
            self.tell(Severity::Warning, reason, "StartPod", why);
        }
        self.say(reason, why);
        self.set(STARTED, false, reason, why);
        self.set(RECONCILING, true, reason, why);
    }

    /// Records this pod as the one that runs the command: the commit point.
    fn start(&mut self, pod: &PodView, reason: &str, message: &str) {
        self.status.phase = Some(Phase::Running);
        self.status.pod_uid = Some(pod.uid.clone());
        self.status.pod_name = Some(pod::name(&self.at.key.name));
        self.status.scheduled_time = self.at.instant();
        self.unsay();
        self.set_start();
        self.set(STARTED, true, reason, message);
        self.set(
            RECONCILING,
            true,
            "Running",
            "the pod was released and has not ended",
        );
        self.unset(STALLED);
    }

    fn set_start(&mut self) {
        // Rounded up: a start must not look earlier than its instant.
        let start = ceil_to_millisecond(self.now);
        self.status.start_time = Some(start);
        let late = self
            .status
            .scheduled_time
            .map(|instant| (start - instant).num_milliseconds());
        self.status.lateness_milliseconds = late.filter(|late| *late >= 0);
    }

    /// Between commit and release the operator may have been away, or the clock set back: the
    /// release is the start.
    fn correct_start(&mut self) {
        let recorded = self.status.start_time;
        if recorded.is_none_or(|start| (self.now - start).abs() > START_TOLERANCE) {
            self.set_start();
        }
    }

    /// The pod has no gate, or none in a moment. A release that was refused for a while, and then
    /// made by a call whose answer was lost, is not recorded yet.
    fn was_released(&mut self) {
        let started = condition::get(&self.status.conditions, STARTED);
        if started.is_some_and(|c| c.reason == RELEASE_REFUSED) {
            self.set_start();
            self.set(STARTED, true, "Released", RELEASED);
        }
    }

    /// Takes back what was recorded about a start that was not made.
    fn unstart(&mut self, reason: &str) {
        self.status.start_time = None;
        self.status.lateness_milliseconds = None;
        self.set(STARTED, false, reason, "the pod was not released");
    }

    /// It is over.
    fn end(mut self, verdict: &Verdict) -> Step {
        if [TOO_LATE, NEVER_STARTED].contains(&verdict.reason.as_str()) {
            self.unstart(&verdict.reason);
        }
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

    /// It is over, once the act is done.
    /// It is not started any more. What kept it from starting is told for good.
    fn end_missed(self, act: Act) -> Step {
        let mut message = "the command was not started: more than startingDeadlineSeconds had passed since its instant".to_owned();
        let kept = condition::get(&self.at.status.conditions, STARTED);
        if let Some(kept) = kept.filter(|c| c.status == "False" && c.reason != SUSPENDED) {
            message = format!("{message}; what kept it: {}: {}", kept.reason, kept.message);
        }
        let verdict = Verdict::plain(Ending::Missed, TOO_LATE, &result::head(&message));
        self.end_with(act, &verdict)
    }

    fn end_with(self, act: Act, verdict: &Verdict) -> Step {
        Step {
            act,
            ..self.end(verdict)
        }
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

impl AtView {
    fn is_accepted(&self) -> bool {
        condition::get(&self.status.conditions, ACCEPTED).is_some_and(|c| c.status == "True")
    }
}

#[cfg(test)]
mod tests;
