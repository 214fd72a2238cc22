//! The status of a run, as a pure function of what is observed.

use chrono::{DateTime, Utc};
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};

use super::crd::{FooBarStatus, Phase};
use crate::owned_child::KindStatus;
use wall_clock_controller::reconcile::condition::{self, Condition};
use wall_clock_controller::reconcile::event::{NewEvent, Severity};

/// The command of this generation ended with exit code 0.
pub(crate) const COMPLETE: &str = "Complete";
/// It ended otherwise, or its end was not observed.
pub(crate) const FAILED: &str = "Failed";

/// The reason of a Job that was suspended by hand.
pub(crate) const SUSPENDED: &str = "Suspended";

impl KindStatus for FooBarStatus {
    fn common_fields(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        (&mut self.observed_generation, &mut self.conditions)
    }
}

/// A Job that the object controls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    pub(crate) uid: String,
    /// `metadata.generation`: above 1 if its spec was changed since its creation.
    pub(crate) generation: Option<i64>,
    pub(crate) suspended: bool,
    pub(crate) status: JobStatus,
}

impl Job {
    /// Whether it was suspended by hand: it was resumed before, or others changed it.
    pub(crate) fn is_held(&self) -> bool {
        self.suspended && self.generation.is_some_and(|generation| generation > 1)
    }
}

/// The pod of a Job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pod {
    /// It runs.
    pub(crate) running: bool,
    /// It has ended for good.
    pub(crate) ended: bool,
    /// The exit code of the command, if it has ended.
    pub(crate) exit_code: Option<i32>,
}

/// What is observed of the run of the current generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedRun<'a> {
    /// The name that its Job has, or would have.
    pub(crate) job_name: String,
    pub(crate) generation: Option<i64>,
    /// The Job of that name, if it exists and is the object's own.
    pub(crate) job: Option<Job>,
    /// That Job is being deleted.
    pub(crate) terminating: bool,
    /// The pod of that Job.
    pub(crate) pod: Option<Pod>,
    /// Why the Job cannot be created or resumed, or is not read just now.
    pub(crate) trouble: Option<&'a str>,
}

/// The state of the current generation's run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    phase: Phase,
    reason: String,
    message: String,
    exit_code: Option<i32>,
}

impl Outcome {
    fn new(phase: Phase, reason: &str, message: impl Into<String>) -> Self {
        Self {
            phase,
            reason: reason.to_owned(),
            message: message.into(),
            exit_code: None,
        }
    }
}

/// Writes what is observed into the status, and returns the phase if it changed.
pub(crate) fn report(
    observed: &ObservedRun<'_>,
    status: &mut FooBarStatus,
    now: DateTime<Utc>,
) -> Option<Phase> {
    let name = observed.job_name.as_str();
    if status.job_name.as_deref() != Some(name) {
        // All this belongs to an earlier generation.
        status.job_name = Some(name.to_owned());
        (status.job_uid, status.phase, status.exit_code) = (None, None, None);
    }
    if status.job_uid.is_none() {
        status.job_uid = observed.job.as_ref().map(|job| job.uid.clone());
    }
    let before = status.phase;
    let own = observed
        .job
        .as_ref()
        .filter(|job| status.job_uid.as_ref() == Some(&job.uid));
    let outcome = match own {
        Some(job) => outcome_of_job(observed, job, status.exit_code),
        // A finished run stays as it was reported.
        None if before.is_some_and(Phase::is_final) => return None,
        None if status.job_uid.is_none() => Outcome::new(
            Phase::Pending,
            "NoJob",
            observed.trouble.unwrap_or("the Job does not exist yet"),
        ),
        // The Job was not read.
        None if observed.trouble.is_some() => return None,
        None if observed.terminating => Outcome::new(
            before.unwrap_or(Phase::Pending),
            "Terminating",
            format!("Job {name} is being deleted"),
        ),
        None => Outcome::new(
            Phase::Failed,
            "JobLost",
            format!(
                "Job {name} is gone or no longer belongs to this FooBar, and its end was not seen: the command is not run a second time. To run it again, change the spec"
            ),
        ),
    };
    // Nor does a lagging cache change it, which has the Job in an earlier state. The pod may only add an exit code.
    if before.is_some_and(|before| before.is_final() && before != outcome.phase) {
        return None;
    }
    set_conditions(outcome, observed.generation, status, now);
    status.phase.filter(|phase| before != Some(*phase))
}

/// The Event for the end of a run.
pub(crate) fn finished_event(phase: Phase, status: &FooBarStatus) -> Option<NewEvent> {
    let (severity, reason) = match phase {
        Phase::Succeeded => (Severity::Normal, "Succeeded"),
        Phase::Failed => (Severity::Warning, "Failed"),
        Phase::Pending | Phase::Running => return None,
    };
    Some(NewEvent {
        severity,
        reason,
        action: "RunCommand",
        note: complete(status)?.message.clone(),
    })
}

/// The condition that says how the run goes.
pub(crate) fn complete(status: &FooBarStatus) -> Option<&Condition> {
    condition::get(&status.conditions, COMPLETE)
}

/// Whether the Job of that status has succeeded.
pub(crate) fn has_succeeded(job: &JobStatus) -> bool {
    true_condition(job, COMPLETE).is_some()
}

/// Whether the Job of that status has ended: none of its pods runs any more.
pub(crate) fn has_ended(job: &JobStatus) -> bool {
    has_succeeded(job) || true_condition(job, FAILED).is_some()
}

fn true_condition<'a>(job: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    let mut all = job.conditions.iter().flatten();
    all.find(|c| c.type_ == type_ && c.status == "True")
}

/// The outcome according to a Job of ours.
fn outcome_of_job(observed: &ObservedRun<'_>, job: &Job, known: Option<i32>) -> Outcome {
    let name = &observed.job_name;
    if has_succeeded(&job.status) {
        return Outcome {
            // Its one pod succeeded, which takes exit code 0.
            exit_code: Some(0),
            ..Outcome::new(
                Phase::Succeeded,
                "Succeeded",
                format!(
                    "the command ended with exit code 0: kubectl logs job/{name} shows its log"
                ),
            )
        };
    }
    let exit_code = match observed.pod {
        // The pod was deleted because the Job was suspended.
        _ if job.is_held() => None,
        Some(pod) if !pod.ended => None,
        pod => pod.and_then(|pod| pod.exit_code).or(known),
    };
    // A Job fails after its pods: the observed pod is outdated.
    let late = exit_code.is_none() && observed.pod.is_some_and(|pod| !pod.ended);
    let outcome = match true_condition(&job.status, FAILED) {
        Some(failed) if !late => outcome_of_failed_job(name, failed, exit_code),
        failed => outcome_of_unfinished_job(observed, job, exit_code.is_some() || failed.is_some()),
    };
    Outcome {
        exit_code,
        ..outcome
    }
}

/// The outcome of a Job with that condition `Failed`.
fn outcome_of_failed_job(name: &str, failed: &JobCondition, exit_code: Option<i32>) -> Outcome {
    if let Some(code) = exit_code {
        let message = format!(
            "the command ended with exit code {code}: kubectl logs job/{name} shows its log"
        );
        return Outcome::new(Phase::Failed, "CommandFailed", message);
    }
    let why = failed.message.as_deref();
    let why = why.unwrap_or("its status does not say why");
    Outcome::new(
        Phase::Failed,
        failed.reason.as_deref().unwrap_or("JobFailed"),
        format!("Job {name} failed without an exit code of the command: {why}"),
    )
}

/// The outcome of a Job whose end is not known yet. `ending` says that its pod has ended.
fn outcome_of_unfinished_job(observed: &ObservedRun<'_>, job: &Job, ending: bool) -> Outcome {
    let name = &observed.job_name;
    let (phase, reason, message) = if job.is_held() {
        (
            Phase::Pending,
            SUSPENDED,
            format!(
                "Job {name} was suspended by a user: resuming it may start the command a second time, so that is left to the user"
            ),
        )
    } else if observed.pod.is_some_and(|pod| pod.running) {
        (
            Phase::Running,
            "Running",
            format!("Job {name} runs the command"),
        )
    } else if ending {
        (
            Phase::Running,
            "Ending",
            format!("the command has ended, but Job {name} has not reported completion yet"),
        )
    } else {
        (
            Phase::Pending,
            "Starting",
            format!("Job {name} has no running pod yet: kubectl describe job/{name} shows more"),
        )
    };
    Outcome::new(phase, reason, message)
}

fn set_conditions(
    outcome: Outcome,
    generation: Option<i64>,
    status: &mut FooBarStatus,
    now: DateTime<Utc>,
) {
    let Outcome {
        phase,
        reason,
        message,
        exit_code,
    } = outcome;
    status.phase = Some(phase);
    status.exit_code = exit_code;
    let mut set = |type_, is| {
        condition::set(
            &mut status.conditions,
            type_,
            is,
            &reason,
            &message,
            generation,
            now,
        );
    };
    set(COMPLETE, phase == Phase::Succeeded);
    if phase == Phase::Failed {
        set(FAILED, true);
    } else {
        condition::remove(&mut status.conditions, FAILED);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    /// A Job with that UID and these conditions, each with the reason R and the message M.
    fn job(uid: &str, conditions: &[&str]) -> Job {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|type_| json!({"type": type_, "status": "True", "reason": "R", "message": "M"}))
            .collect();
        Job {
            uid: uid.to_owned(),
            generation: Some(2),
            suspended: false,
            status: serde_json::from_value(json!({"conditions": conditions})).unwrap(),
        }
    }

    fn pod(running: bool, exit_code: Option<i32>) -> Pod {
        Pod {
            running,
            ended: exit_code.is_some(),
            exit_code,
        }
    }

    /// Generation 3 of `x`.
    fn observed(job: Option<Job>, pod: Option<Pod>) -> ObservedRun<'static> {
        ObservedRun {
            job_name: "x-3".to_owned(),
            generation: Some(3),
            job,
            pod,
            ..ObservedRun::default()
        }
    }

    /// The status of a run whose Job is recorded under the UID `u`.
    fn going(phase: Phase) -> FooBarStatus {
        FooBarStatus {
            phase: Some(phase),
            job_name: Some("x-3".to_owned()),
            job_uid: Some("u".to_owned()),
            ..FooBarStatus::default()
        }
    }

    /// Phase, exit code and the reason of `Complete`; all three must agree with `Failed`.
    fn reported(
        observed: &ObservedRun<'_>,
        mut status: FooBarStatus,
    ) -> (Phase, Option<i32>, String) {
        report(observed, &mut status, NOW);
        let phase = status.phase.unwrap();
        let get = |type_| condition::get(&status.conditions, type_);
        let complete = get(COMPLETE).unwrap();
        assert_eq!(complete.status == "True", phase == Phase::Succeeded);
        assert_eq!(complete.observed_generation, Some(3));
        let failed = get(FAILED).map(|c| (c.status.as_str(), c.reason.as_str()));
        let expected = (phase == Phase::Failed).then_some(("True", complete.reason.as_str()));
        assert_eq!(failed, expected);
        (phase, status.exit_code, complete.reason.clone())
    }

    #[test]
    fn the_status_of_a_run_follows_its_job_and_pod() {
        let (pending, running) = (Phase::Pending, Phase::Running);
        let (good, bad) = (Phase::Succeeded, Phase::Failed);
        for (conditions, pod, phase, exit_code, reason) in [
            // What the Job controller reported before the Job was resumed.
            (&["Suspended"][..], None, pending, None, "Starting"),
            (&[], None, pending, None, "Starting"),
            (&[], Some(pod(false, None)), pending, None, "Starting"),
            (&[], Some(pod(true, None)), running, None, "Running"),
            (&[], Some(pod(false, Some(3))), running, Some(3), "Ending"),
            (
                &["SuccessCriteriaMet"],
                Some(pod(false, Some(0))),
                running,
                Some(0),
                "Ending",
            ),
            (
                &["SuccessCriteriaMet", "Complete"],
                None,
                good,
                Some(0),
                "Succeeded",
            ),
            (
                &["FailureTarget"],
                Some(pod(false, Some(3))),
                running,
                Some(3),
                "Ending",
            ),
            (
                &["FailureTarget", "Failed"],
                Some(pod(false, Some(3))),
                bad,
                Some(3),
                "CommandFailed",
            ),
            // The observed pod is outdated.
            (&["Failed"], Some(pod(true, None)), running, None, "Running"),
            (&["Failed"], Some(pod(false, None)), running, None, "Ending"),
            // It never ran, or its end was not observed.
            (
                &["Failed"],
                Some(Pod {
                    ended: true,
                    ..Pod::default()
                }),
                bad,
                None,
                "R",
            ),
            (&["Failed"], None, bad, None, "R"),
        ] {
            let observed = observed(Some(job("u", conditions)), pod);
            let expected = (phase, exit_code, reason.to_owned());
            assert_eq!(
                reported(&observed, going(Phase::Running)),
                expected,
                "{conditions:?} {pod:?}"
            );
        }
    }

    #[test]
    fn a_job_that_somebody_suspended_is_told_of_until_it_ends() {
        for (generation, conditions, held, phase, reason) in [
            (1, &[][..], false, Phase::Pending, "Starting"),
            (2, &[][..], true, Phase::Pending, "Suspended"),
            (2, &["Failed"][..], true, Phase::Failed, "R"),
        ] {
            let job = Job {
                generation: Some(generation),
                suspended: true,
                ..job("u", conditions)
            };
            assert_eq!(job.is_held(), held);
            let expected = (phase, None, reason.to_owned());
            assert_eq!(
                reported(&observed(Some(job), None), going(Phase::Pending)),
                expected
            );
        }
    }

    #[test]
    fn a_new_generation_begins_anew() {
        let mut old = going(Phase::Failed);
        old.job_name = Some("x-2".to_owned());
        old.exit_code = Some(3);
        condition::set(&mut old.conditions, FAILED, true, "R", "", Some(2), NOW);
        let expected = (Phase::Pending, None, "NoJob".to_owned());
        assert_eq!(reported(&observed(None, None), old.clone()), expected);
        let mut status = old;
        report(&observed(Some(job("new", &[])), None), &mut status, NOW);
        assert_eq!(status.job_name.as_deref(), Some("x-3"));
        assert_eq!(status.job_uid.as_deref(), Some("new"));
    }

    #[test]
    fn only_the_recorded_job_counts_and_its_loss_is_a_failure() {
        let lost = (Phase::Failed, None, "JobLost".to_owned());
        for other in [None, Some(job("other", &["Complete"]))] {
            let observed = observed(other, None);
            for phase in [Phase::Pending, Phase::Running] {
                assert_eq!(reported(&observed, going(phase)), lost);
            }
            for phase in [Phase::Succeeded, Phase::Failed] {
                let mut status = going(phase);
                assert_eq!(report(&observed, &mut status, NOW), None);
                assert_eq!(status, going(phase));
            }
        }
        let leaving = ObservedRun {
            terminating: true,
            ..observed(None, None)
        };
        let expected = (Phase::Running, None, "Terminating".to_owned());
        assert_eq!(reported(&leaving, going(Phase::Running)), expected);
        // After a rejected attempt it is not read at once.
        let unseen = ObservedRun {
            trouble: Some("no place"),
            ..observed(None, None)
        };
        let mut status = going(Phase::Pending);
        assert_eq!(report(&unseen, &mut status, NOW), None);
        assert_eq!(status, going(Phase::Pending));
    }

    #[test]
    fn what_has_ended_stays_so_where_the_cache_of_jobs_lags_behind() {
        for phase in [Phase::Succeeded, Phase::Failed] {
            let mut status = going(phase);
            let stale = observed(Some(job("u", &[])), Some(pod(true, None)));
            let before = status.clone();
            assert_eq!(report(&stale, &mut status, NOW), None);
            assert_eq!(status, before);
        }
        // The exit code may come later than the end.
        let late = observed(Some(job("u", &["Failed"])), Some(pod(false, Some(3))));
        let (phase, exit_code, _) = reported(&late, going(Phase::Failed));
        assert_eq!((phase, exit_code), (Phase::Failed, Some(3)));
    }

    #[test]
    fn an_exit_code_outlives_its_pod() {
        let mut status = going(Phase::Failed);
        status.exit_code = Some(3);
        let expected = (Phase::Failed, Some(3), "CommandFailed".to_owned());
        let gone = observed(Some(job("u", &["Failed"])), None);
        assert_eq!(reported(&gone, status.clone()), expected);
        // But not where another pod runs.
        status.phase = Some(Phase::Running);
        let expected = (Phase::Running, None, "Running".to_owned());
        let resumed = observed(Some(job("u", &[])), Some(pod(true, None)));
        assert_eq!(reported(&resumed, status), expected);
    }

    #[test]
    fn what_blocks_the_job_is_reported() {
        let mut status = FooBarStatus::default();
        let observed = ObservedRun {
            trouble: Some("exceeded quota"),
            ..observed(None, None)
        };
        assert_eq!(report(&observed, &mut status, NOW), Some(Phase::Pending));
        let complete = condition::get(&status.conditions, COMPLETE).unwrap();
        assert_eq!(complete.message, "exceeded quota");
        assert_eq!(report(&observed, &mut status, NOW), None);
    }
}
