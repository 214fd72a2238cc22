//! The next status of an At, as a value, with the Events that go with it.
//!
//! **The status says what has been observed, and no more.** The commit records the pod and not its
//! start: Started becomes True, with startTime, when the pod is seen without our gate.

use chrono::{DateTime, TimeDelta, Utc};

use super::conditions::{
    COMMITTED, COMPLETE, FAILED, FAILURE_TARGET, FINISHED, GATE_VIOLATED, INVALID,
    OTHER_CONTAINERS_RUNNING, POD_ACCEPTED, POD_DISRUPTED, POD_LOST, POD_REFUSED, POD_TERMINATING,
    POD_WAITING, RECONCILING, RELEASED, RUNNING, STALLED, STARTED, TOO_LATE, VALID,
};
use super::crd::{AtStatus, Ending, Phase};
use super::lateness;
use super::message::head;
use super::observe::{AtView, Observed};
use super::pod::names::pod_name;
use super::pod::view::{PodPhase, PodView, Waiting};
use super::result::RunResult;
use super::schedule::ceil_to_millisecond;
use super::sightings::{Released, START_RECORDED_WITHIN};
use super::trial::Verdict;
use admission_rules::faults::join;
use wall_clock_controller::reconcile::condition::{self, ACCEPTED};
use wall_clock_controller::reconcile::event::{self, NewEvent, Severity};

/// So long a pod may take to start, and to end after its command, before the status says what it waits for.
const USUAL: TimeDelta = TimeDelta::minutes(1);

/// Builds the next status. It begins as the current one.
pub(crate) struct StatusBuilder<'a> {
    pub(crate) at: &'a AtView,
    pub(crate) now: DateTime<Utc>,
    pub(crate) next: AtStatus,
    events: Vec<NewEvent>,
    start: Option<DateTime<Utc>>,
}

/// What a [`StatusBuilder`] has built.
pub(crate) struct Report {
    /// The next status, if it differs from the current one.
    pub(crate) status: Option<Box<AtStatus>>,
    pub(crate) events: Vec<NewEvent>,
    /// The start that these Events report.
    pub(crate) start: Option<DateTime<Utc>>,
}

impl<'a> StatusBuilder<'a> {
    pub(crate) fn new(at: &'a AtView, now: DateTime<Utc>) -> Self {
        let mut builder = Self {
            at,
            now,
            next: at.status.clone(),
            events: Vec::new(),
            start: None,
        };
        builder.next.phase = Some(at.phase());
        builder.next.observed_generation = at.generation;
        // A dry run of the pod of another spec says nothing of this one.
        let conditions = &at.status.conditions;
        let refused = condition::get(conditions, POD_ACCEPTED).and_then(|c| c.observed_generation);
        if refused.or(at.status.dry_run_generation) != at.generation {
            builder.forget_trial();
        }
        // What is not changed below still holds. `kubectl wait` compares the generation of the
        // condition itself, and would wait forever for one that stays behind.
        for condition in &mut builder.next.conditions {
            condition.observed_generation = at.generation;
        }
        builder.set_accepted();
        builder
    }

    /// Whether there is something to write.
    pub(crate) fn is_changed(&self) -> bool {
        self.next != self.at.status
    }

    /// The status, if it has changed, and the Events.
    pub(crate) fn finish(self) -> Report {
        let changed = self.is_changed();
        Report {
            status: changed.then(|| Box::new(self.next)),
            events: self.events,
            start: self.start,
        }
    }

    /// Reports whether the spec is valid. An invalid one only blocks what has not started.
    fn set_accepted(&mut self) {
        let stalled = condition::get(&self.next.conditions, STALLED);
        match &self.at.spec {
            Ok(_) => {
                if stalled.is_some_and(|c| c.reason == INVALID) {
                    self.unset(STALLED);
                }
                self.set(ACCEPTED, true, VALID, "the spec is valid");
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

    pub(crate) fn set(&mut self, type_: &str, status: bool, reason: &str, message: &str) {
        condition::set(
            &mut self.next.conditions,
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
        let set = self.next.conditions.iter_mut().find(|c| c.type_ == type_);
        if let Some(condition) = set {
            "Unknown".clone_into(&mut condition.status);
        }
    }

    pub(crate) fn unset(&mut self, type_: &str) {
        condition::remove(&mut self.next.conditions, type_);
    }

    /// Whether the condition changes by this. Messages are compared as far as a condition keeps them.
    fn changes(&self, type_: &str, reason: &str, message: &str) -> bool {
        condition::get(&self.at.status.conditions, type_)
            .is_none_or(|c| c.reason != reason || !message.starts_with(&c.message))
    }

    pub(crate) fn publish(
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

    /// Sets the reason and message that `kubectl get` shows.
    pub(crate) fn set_reason(&mut self, reason: &str, message: &str) {
        self.next.reason = Some(reason.to_owned());
        self.next.message = Some(head(message));
    }

    pub(crate) fn clear_reason(&mut self) {
        (self.next.reason, self.next.message) = (None, None);
    }
}

/// What blocks a start or an end.
impl StatusBuilder<'_> {
    /// What a dry run has shown of the pod of an At that is not due yet. A refusal stays in the reason until another dry run
    /// succeeds.
    pub(crate) fn report_trial(&mut self, verdict: Option<&Verdict>) {
        let refusal = |status: &Self| {
            let said = condition::get(&status.next.conditions, POD_ACCEPTED);
            said.map(|said| said.message.clone())
        };
        match verdict {
            None | Some(Verdict::Unknown) => {}
            Some(Verdict::Accepted) => {
                self.unset(POD_ACCEPTED);
                // No condition: it would be a tenth of the memory that a waiting At takes.
                self.next.dry_run_generation = self.at.generation;
            }
            Some(Verdict::Refused(message)) => {
                let message = head(message);
                // A quota gives its figures: the first message stays.
                if refusal(self).is_none_or(|said| !event::is_alike(&said, &message)) {
                    let note =
                        format!("not due yet, but a dry run of its pod is refused: {message}");
                    self.publish(Severity::Warning, POD_REFUSED, "TryPod", &note);
                    self.set(POD_ACCEPTED, false, POD_REFUSED, &message);
                }
            }
        }
        if let Some(message) = refusal(self) {
            self.set_reason(POD_REFUSED, &message);
        }
    }

    /// What a dry run has shown is not so any more, or of no interest.
    pub(crate) fn forget_trial(&mut self) {
        self.unset(POD_ACCEPTED);
        self.next.dry_run_generation = None;
    }

    /// The command is due, and something prevents its start.
    pub(crate) fn report_start_blocked(&mut self, reason: &'static str, message: &str) {
        self.forget_trial();
        self.next.scheduled_time = self.at.instant();
        self.report_blocked(reason, message);
    }

    pub(crate) fn report_blocked(&mut self, reason: &'static str, message: &str) {
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

    /// Reports what keeps the released pod from running or ending. While the reason stays the same,
    /// so does the first message: schedulers and kubelets reword theirs at every attempt.
    pub(crate) fn report_waiting(&mut self, pod: &PodView) {
        let Some(Trouble {
            event,
            reason,
            message,
        }) = self.trouble(pod)
        else {
            self.clear_reason();
            return self.set_running();
        };
        if self.next.reason.as_deref() != Some(&reason) {
            let what = match event {
                POD_WAITING => "does not run yet",
                POD_TERMINATING => "is being deleted",
                OTHER_CONTAINERS_RUNNING => "has not ended",
                _ => "may not run any more",
            };
            let note = if reason == event {
                message.clone()
            } else {
                format!("the pod {what}: {reason}: {message}")
            };
            self.publish(Severity::Warning, event, "WaitForPod", &note);
            self.set_reason(&reason, &message);
            self.set(RECONCILING, true, &reason, &message);
        }
    }

    /// What keeps the released pod from running or ending, beyond what is usual.
    fn trouble(&self, pod: &PodView) -> Option<Trouble> {
        let is_usual = self.usual_until(pod).is_some() && !pod.deleting;
        Trouble::from_pod(pod).filter(|_| !is_usual)
    }

    /// Until when what the pod waits for is usual: it counts from the release, from when a node was found, or from the
    /// end of the command by the clock of that node, unless their clocks are ahead.
    pub(crate) fn usual_until(&self, pod: &PodView) -> Option<DateTime<Utc>> {
        pod.waiting.as_deref().filter(|waiting| waiting.usual)?;
        let ended = pod.command().and_then(|command| command.finished_at);
        let by_others = [pod.scheduled, ended].into_iter().flatten();
        let by_others = by_others.filter(|time| *time <= self.now).max();
        let until = by_others.max(self.next.start_time)? + USUAL;
        (self.now < until).then_some(until)
    }

    fn set_running(&mut self) {
        let message = "the pod was released and has not ended";
        self.set(RECONCILING, true, RUNNING, message);
    }
}

/// The commit and the start.
impl StatusBuilder<'_> {
    /// Records this pod as the one that runs the command: the commit point. Its start is recorded
    /// when it is seen without our gate.
    pub(crate) fn commit(&mut self, pod: &PodView) {
        self.record_pod(&pod.uid);
        self.await_release();
    }

    fn await_release(&mut self) {
        let message = "the pod is recorded and about to be released";
        self.set(STARTED, false, COMMITTED, message);
        self.set(RECONCILING, true, COMMITTED, message);
    }

    fn record_pod(&mut self, uid: &str) {
        self.next.phase = Some(Phase::Running);
        self.next.pod_uid = Some(uid.to_owned());
        self.next.pod_name = Some(pod_name(&self.at.key.name));
        self.next.scheduled_time = self.at.instant();
        self.next.discarded_pod_uid = None;
        self.clear_reason();
        self.forget_trial();
        self.unset(STALLED);
    }

    /// Records a pod as the run although another client removed its gate before the commit. The pod
    /// may be gone.
    pub(crate) fn adopt_as_run(
        &mut self,
        uid: &str,
        observed: Observed<'_>,
        pod: Option<&PodView>,
    ) {
        self.record_pod(uid);
        let first = self.first_sight(uid, observed, pod);
        self.set_start(first.at);
        let violation =
            "another client removed the gate of the pod before the command was to start";
        self.set(STARTED, true, GATE_VIOLATED, violation);
        self.set_running();
        let note = "another client removed the gate of the pod; it is taken for the run";
        self.publish(Severity::Warning, GATE_VIOLATED, "RecordPod", note);
        self.start = self.next.start_time;
    }

    /// When that pod was first seen without our gate; now, if that was not recorded.
    fn first_sight(&self, uid: &str, observed: Observed<'_>, pod: Option<&PodView>) -> Released {
        let recorded = observed.released.filter(|first| first.uid == uid).cloned();
        recorded.unwrap_or_else(|| {
            let unseen = PodView::default();
            Released::new(pod.unwrap_or(&unseen), self.now)
        })
    }

    /// Records the start of the recorded pod, which was seen without our gate and may be gone.
    pub(crate) fn record_start(&mut self, observed: Observed<'_>, pod: Option<&PodView>) {
        if self.at.is_started() {
            return;
        }
        let uid = self.at.status.pod_uid.as_deref().unwrap_or_default();
        let first = self.first_sight(uid, observed, pod);
        // Times of other components may be cut to the second, and their clocks may be behind.
        let scheduled = self.next.scheduled_time;
        self.set_start(scheduled.map_or(first.at, |instant| first.at.max(instant)));
        self.set(STARTED, true, RELEASED, "the pod was released to run");
        if !first.reported {
            let late = self.next.lateness_milliseconds.unwrap_or_default();
            let name = pod_name(&self.at.key.name);
            let note = format!("released the pod {name}, {late} ms late");
            self.publish(Severity::Normal, "Started", "ReleasePod", &note);
        }
        self.start = self.next.start_time.filter(|_| !first.reported);
    }

    /// Until when the record of the start may wait for another write of the status to ride on.
    pub(crate) fn record_due(
        &self,
        observed: Observed<'_>,
        pod: &PodView,
    ) -> Option<DateTime<Utc>> {
        let at = self.at;
        let quiet = at.status.reason.is_none() && self.trouble(pod).is_none();
        if at.is_started() || !quiet || at.status.observed_generation != at.generation {
            return None;
        }
        let first = self.first_sight(&pod.uid, observed, Some(pod));
        let due = first.at + START_RECORDED_WITHIN;
        // A clock that was set back must not delay it.
        let waits = first.at <= self.now && self.now < due;
        waits.then_some(due)
    }

    fn set_start(&mut self, start: DateTime<Utc>) {
        // Rounded up: a start must not look earlier than its instant.
        let start = ceil_to_millisecond(start);
        self.next.start_time = Some(start);
        let scheduled = self.next.scheduled_time;
        let late = scheduled.map(|instant| (start - instant).num_milliseconds());
        let late = late.filter(|late| *late >= 0);
        self.next.lateness_milliseconds = late;
        self.next.lateness = late.map(lateness::text);
    }

    /// An earlier version recorded the start with the commit, and the pod still has its gate.
    pub(crate) fn take_back_start(&mut self) {
        let next = &mut self.next;
        (next.start_time, next.lateness_milliseconds, next.lateness) = (None, None, None);
        self.await_release();
    }

    pub(crate) fn is_discarded(&self, pod: &PodView) -> bool {
        self.at.status.discarded_pod_uid.as_deref() == Some(&pod.uid)
    }
}

/// The end.
impl StatusBuilder<'_> {
    /// The end that was announced before the pod was deleted for it.
    pub(crate) fn announced_end(&self) -> Option<RunResult> {
        let target = condition::get(&self.at.status.conditions, FAILURE_TARGET)?;
        let ending = if target.reason == TOO_LATE {
            Ending::Missed
        } else {
            Ending::Failed
        };
        Some(RunResult::new(ending, &target.reason, &target.message))
    }

    /// Records how the At will end, before its pod is deleted.
    pub(crate) fn announce_end(&mut self, run: &RunResult) {
        let (reason, message) = (&run.reason, &run.message);
        self.set(FAILURE_TARGET, true, reason, message);
        self.set(RECONCILING, true, reason, message);
        self.set_reason(reason, message);
    }

    /// Ends the At.
    pub(crate) fn end(&mut self, run: &RunResult) {
        self.end_start(run);
        self.unset(FAILURE_TARGET);
        self.forget_trial();
        self.end_fields(run);
        let message = match run.exit_code {
            Some(code) if run.message.is_empty() => {
                format!("the command ended with exit code {code}")
            }
            _ => run.message.clone(),
        };
        let succeeded = run.ending == Ending::Succeeded;
        let type_ = if succeeded { COMPLETE } else { FAILED };
        self.set(type_, true, &run.reason, &message);
        self.set(FINISHED, true, &run.reason, &message);
        self.unset(RECONCILING);
        if !succeeded {
            self.set(STALLED, true, &run.reason, &message);
        }
        let (severity, event) = match run.ending {
            Ending::Succeeded => (Severity::Normal, "Completed"),
            Ending::Missed => (Severity::Warning, "Missed"),
            Ending::Failed | Ending::Unknown => (Severity::Warning, "Failed"),
        };
        let note = format!("{}: {message}", run.reason);
        self.publish(severity, event, "Finish", &note);
    }

    /// What the condition Started says at the end of an At that has not started.
    fn end_start(&mut self, run: &RunResult) {
        if self.next.is_true(STARTED) {
            return;
        }
        if run.reason == POD_LOST {
            let message = "the pod is gone, and whether it was released is not known";
            self.set_unknown(STARTED, POD_LOST, message);
        } else {
            self.set(STARTED, false, &run.reason, "the pod was not released");
        }
    }

    fn end_fields(&mut self, run: &RunResult) {
        let status = &mut self.next;
        status.discarded_pod_uid = None;
        status.phase = Some(Phase::Done);
        status.result = Some(run.ending);
        status.exit_code = run.exit_code;
        status.signal = run.signal;
        status.reason = Some(run.reason.clone());
        status.message = Some(run.message.clone()).filter(|text| !text.is_empty());
        if run.ending == Ending::Missed {
            status.scheduled_time = status.scheduled_time.or_else(|| self.at.instant());
        }
        // The node's clock gives whole seconds and may be wrong: the end lies between start and now.
        let end = run.finished_at.map_or(self.now, |end| end.min(self.now));
        let end = status.start_time.map_or(end, |start| end.max(start));
        status.completion_time = Some(ceil_to_millisecond(end));
    }
}

/// What keeps a released pod from running or ending.
struct Trouble {
    /// The reason of the Event.
    event: &'static str,
    reason: String,
    message: String,
}

impl Trouble {
    fn from_pod(pod: &PodView) -> Option<Self> {
        if pod.deleting {
            let reason = Some(pod.reason.clone()).filter(|reason| !reason.is_empty());
            let message = Some(pod.message.clone()).filter(|message| !message.is_empty());
            return Some(Self {
                event: POD_TERMINATING,
                reason: reason.unwrap_or_else(|| POD_TERMINATING.to_owned()),
                message: message
                    .unwrap_or_else(|| "the pod is being deleted and has not ended".to_owned()),
            });
        }
        if let Some(Waiting {
            reason, message, ..
        }) = pod.waiting.as_deref()
        {
            return Some(Self {
                event: match pod.phase {
                    _ if pod.command().is_some() => OTHER_CONTAINERS_RUNNING,
                    PodPhase::Pending => POD_WAITING,
                    _ => POD_DISRUPTED,
                },
                reason: reason.clone(),
                message: message.clone(),
            });
        }
        (!pod.reason.is_empty()).then(|| Self {
            event: POD_DISRUPTED,
            reason: pod.reason.clone(),
            message: pod.message.clone(),
        })
    }
}
