//! What a FooBar asks for: one Job for each generation, which runs once.

use chrono::TimeDelta;
use k8s_openapi::api::batch::v1;
use serde_json::json;

use super::admission::FooBarRules;
use super::crd::{FooBarStatus, Phase};
use super::job::{self, LABEL};
use super::status::{self, Job, ObservedRun, Pod};
use crate::owned_child::view::ChildView;
use crate::owned_child::{
    Creation, Desired, DriftPolicy, Lifecycle, Observation, Owner, Parent, Report, Trouble,
};

/// The label that the Job controller puts on the pods of a Job, with its UID.
const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// Interval of reconciles during a run: no watch shows a Job whose labels were removed.
const RUN_INTERVAL: TimeDelta = TimeDelta::minutes(1);

/// The kind, for the reconciler of owned children.
#[derive(Debug)]
pub(crate) struct FooBars;

impl Parent for FooBars {
    const NAME: &'static str = "foobar";
    const CONFLICT: &'static str = "JobExists";
    const POD_LABELS: &'static [&'static str] = &[LABEL, JOB_UID];

    type Rules = FooBarRules;
    type Child = v1::Job;
    type Lifecycle = RunOnce;

    fn desired(owner: &Owner<'_, Self>) -> Desired {
        Desired {
            name: job_name(owner),
            fields: job::fields(&owner.key.name, owner.spec),
        }
    }

    fn report(observation: &Observation<'_, Self>, status: &mut FooBarStatus) -> Report {
        let observed = observed_run(observation);
        let is_held = observed.job.as_ref().is_some_and(Job::is_held);
        let event = status::report(&observed, status, observation.now)
            .and_then(|phase| status::finished_event(phase, status));
        let goes_on = !status.phase.is_some_and(Phase::is_final);
        Report {
            trouble: status::complete(status)
                .filter(|_| is_held && goes_on)
                .map(|complete| Trouble {
                    reason: status::SUSPENDED,
                    message: complete.message.clone(),
                }),
            events: event.into_iter().collect(),
            requeue_at: goes_on.then(|| observation.now + RUN_INTERVAL),
        }
    }

    /// Only when the current one has succeeded: until then the earlier ones are all there is to
    /// debug. A Job whose command may be running is kept until it ends, since its deletion would
    /// kill the pod.
    fn deletes_other(present: &ChildView, other: &ChildView) -> bool {
        let never_started = other.suspended && other.generation == Some(1);
        status::has_succeeded(&present.status())
            && (never_started || status::has_ended(&other.status()))
    }
}

/// What is observed of the run of the current generation.
fn observed_run<'a>(observation: &Observation<'a, FooBars>) -> ObservedRun<'a> {
    let owner = observation.owner;
    let job = observation.child.map(|child| Job {
        uid: child.uid.clone(),
        generation: child.generation,
        suspended: child.suspended,
        status: child.status(),
    });
    let pod = job.as_ref().and_then(|job| {
        let pods = observation.pods.iter().map(|(_, pod)| pod);
        let own = pods.filter(|pod| pod.label(1) == Some(&job.uid));
        // There is more than one only where the Job was suspended and resumed by hand.
        own.max_by_key(|pod| !pod.ended)
    });
    ObservedRun {
        job_name: job_name(owner),
        generation: owner.generation,
        pod: pod.map(|pod| Pod {
            running: pod.ready,
            ended: pod.ended,
            exit_code: pod.exit_code,
        }),
        job,
        terminating: observation.terminating,
        trouble: observation.trouble.map(|trouble| trouble.message.as_str()),
    }
}

/// The lifecycle of a child that is a run: it is created once, suspended, and started once its UID is
/// in the status. It is never corrected, since a second run would be worse than a modified one.
#[derive(Debug)]
pub(crate) struct RunOnce;

impl Lifecycle<FooBars> for RunOnce {
    /// A malformed status is not replaced: it may record a Job that was created and is gone, which
    /// must not be created a second time.
    fn read_status(text: &str) -> serde_json::Result<FooBarStatus> {
        Ok(serde_json::from_str::<Option<FooBarStatus>>(text)?.unwrap_or_default())
    }

    /// By a plain create: an apply to a Job that another operator has created and started meanwhile
    /// would suspend it.
    fn creation(owner: &Owner<'_, FooBars>) -> Creation {
        match recorded(owner.status, &job_name(owner)) {
            None => Creation::Create,
            Some(_) => Creation::Never,
        }
    }

    /// Starts the recorded Job, or adopts it if it lost its owner reference.
    fn drift_policy(owner: &Owner<'_, FooBars>, child: &ChildView) -> DriftPolicy {
        let name = job_name(owner);
        if may_start(owner.status, &name, &child.uid, child.generation) {
            DriftPolicy::Patch(json!({"spec": {"suspend": false}}))
        } else if !owner.controls(child) && recorded(owner.status, &name) == Some(&child.uid) {
            DriftPolicy::Patch(json!({}))
        } else {
            DriftPolicy::Leave
        }
    }
}

/// The UID of the one Job that may run the command under this name, if it is recorded.
fn recorded<'a>(status: &'a FooBarStatus, job_name: &str) -> Option<&'a str> {
    let uid = status.job_uid.as_deref()?;
    (status.job_name.as_deref() == Some(job_name)).then_some(uid)
}

/// Whether a Job is resumed: it is the recorded one, and unmodified. A Job whose spec was changed
/// was resumed before, or changed by others: resuming a Job that was suspended by hand would start
/// the command again.
fn may_start(status: &FooBarStatus, job_name: &str, uid: &str, generation: Option<i64>) -> bool {
    recorded(status, job_name) == Some(uid) && generation == Some(1)
}

fn job_name(owner: &Owner<'_, FooBars>) -> String {
    job::name(&owner.key.name, owner.generation.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::foobar::crd::FooBarSpec;
    use wall_clock_controller::reconcile::Key;
    use wall_clock_controller::reconcile::raw::Object;

    #[test]
    fn only_a_job_that_cannot_run_is_deleted_for_its_successor() {
        let job = |generation: i64, suspend: bool, condition: &str| {
            let object = json!({"metadata": {"name": "a-1", "generation": generation},
                "spec": {"suspend": suspend},
                "status": {"conditions": [{"type": condition, "status": "True"}]}});
            let object: Object<v1::Job> = serde_json::from_str(&object.to_string()).unwrap();
            ChildView::new::<super::super::crd::FooBar, _>(object)
        };
        let succeeded = job(2, false, "Complete");
        for (present, other, retired) in [
            (&succeeded, job(2, false, "Complete"), true),
            (&succeeded, job(2, false, "Failed"), true),
            (&succeeded, job(1, true, "Suspended"), true),
            // It runs, ends, or waits for the user who suspended it.
            (&succeeded, job(2, false, ""), false),
            (&succeeded, job(2, false, "FailureTarget"), false),
            (&succeeded, job(3, true, "Suspended"), false),
            (&job(2, false, "Failed"), job(2, false, "Complete"), false),
            (&job(2, false, ""), job(1, true, "Suspended"), false),
        ] {
            assert_eq!(
                FooBars::deletes_other(present, &other),
                retired,
                "{other:?}"
            );
        }
    }

    #[test]
    fn a_job_is_created_until_one_is_recorded_and_then_never_again() {
        for (job_uid, creation) in [(None, Creation::Create), (Some("u"), Creation::Never)] {
            let status = FooBarStatus {
                job_name: Some("x-3".to_owned()),
                job_uid: job_uid.map(str::to_owned),
                ..FooBarStatus::default()
            };
            let owner = Owner::<FooBars> {
                key: &Key::new("ns", "x"),
                uid: "owner",
                generation: Some(3),
                spec: &FooBarSpec::default(),
                status: &status,
            };
            assert_eq!(RunOnce::creation(&owner), creation);
            let next = Owner::<FooBars> {
                generation: Some(4),
                ..owner
            };
            assert_eq!(RunOnce::creation(&next), Creation::Create);
        }
    }

    #[test]
    fn a_malformed_status_is_not_taken_for_an_empty_one() {
        assert!(RunOnce::read_status("null").is_ok());
        assert!(RunOnce::read_status(r#"{"jobUID": 7}"#).is_err());
    }

    #[test]
    fn a_job_is_let_go_once() {
        // The Job is recorded under the UID `u`.
        let status = FooBarStatus {
            phase: Some(Phase::Pending),
            job_name: Some("x-3".to_owned()),
            job_uid: Some("u".to_owned()),
            ..FooBarStatus::default()
        };
        for (name, uid, generation, start) in [
            ("x-3", "u", Some(1), true),
            ("x-3", "u", Some(2), false),
            ("x-3", "u", None, false),
            ("x-3", "other", Some(1), false),
            ("x-4", "u", Some(1), false),
        ] {
            assert_eq!(
                may_start(&status, name, uid, generation),
                start,
                "{name} {uid}"
            );
        }
        assert!(!may_start(&FooBarStatus::default(), "x-3", "", Some(1)));
    }
}
