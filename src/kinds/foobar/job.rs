//! The Job of one generation: how it is created, resumed and observed.

use chrono::TimeDelta;
use k8s_openapi::api::batch::v1;
use serde_json::{Value, json};

use super::admission::FooBarRules;
use super::crd::{FooBarSpec, FooBarStatus, Phase};
use super::run::{self, Job, ObservedRun, Pod};
use crate::kinds::shared::command::escape;
use crate::kinds::shared::owned_child::decision::Trouble;
use crate::kinds::shared::owned_child::view::ChildView;
use crate::kinds::shared::owned_child::{
    Child, DriftPolicy, Observed, Owner, Parent, Report, Seen,
};
use my_operator_runtime::reconcile::condition::{self, Condition};
use my_operator_runtime::reconcile::event::{NewEvent, Severity};
use my_operator_runtime::reconcile::write::{MANAGED_BY, MANAGER};

/// The container that runs the command.
pub const CONTAINER: &str = "foobar";
/// The label of Jobs and pods with the name of their object.
pub const LABEL: &str = "foobar";
/// The user that the command runs as: an arbitrary one that is not root.
const USER: i64 = 65_532;

/// The label that the Job controller puts on the pods of a Job, with its UID.
const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// Interval of reconciles during a run: no watch shows a Job whose labels were removed.
const LOOK_AGAIN: TimeDelta = TimeDelta::minutes(1);

/// See the module of the kind.
#[derive(Debug)]
pub struct FooBars;

impl Parent for FooBars {
    const NAME: &'static str = "foobar";
    const CONFLICT: &'static str = "JobExists";
    const POD_LABELS: &'static [&'static str] = &[LABEL, JOB_UID];
    const ONCE: bool = true;

    type Rules = FooBarRules;
    type Child = v1::Job;

    fn child(owner: &Owner<'_, Self>) -> Child {
        let name = name_of(owner);
        Child {
            create: run::recorded(owner.status, &name).is_none(),
            fields: fields(&owner.key.name, owner.spec),
            name,
        }
    }

    fn drift_policy(owner: &Owner<'_, Self>, child: &ChildView) -> DriftPolicy {
        let name = name_of(owner);
        let is_own = child.owner_uid() == Some(owner.uid);
        if run::may_start(owner.status, &name, &child.uid, child.generation) {
            DriftPolicy::Patch(json!({"spec": {"suspend": false}}))
        } else if !is_own && run::recorded(owner.status, &name) == Some(&child.uid) {
            DriftPolicy::Patch(json!({}))
        } else {
            DriftPolicy::Leave
        }
    }

    fn report(seen: &Seen<'_, Self>, status: &mut FooBarStatus) -> Report {
        let owner = seen.owner;
        let job = seen.child.map(|child| Job {
            uid: child.uid.clone(),
            generation: child.generation,
            suspended: child.suspended,
            status: child.status(),
        });
        let of_job = job.as_ref().and_then(|job| {
            let pods = seen.pods.iter().map(|(_, pod)| pod);
            let own = pods.filter(|pod| pod.label(1) == Some(&job.uid));
            // There is more than one only where the Job was suspended and resumed by hand.
            own.max_by_key(|pod| !pod.ended)
        });
        let observed = ObservedRun {
            job_name: name_of(owner),
            generation: owner.generation,
            pod: of_job.map(|pod| Pod {
                running: pod.ready,
                ended: pod.ended,
                exit_code: pod.exit_code,
            }),
            job,
            leaving: seen.leaving,
            trouble: seen.trouble.map(|trouble| trouble.message.as_str()),
        };
        let is_held = observed.job.as_ref().is_some_and(Job::is_held);
        let event = run::report(&observed, status, seen.now)
            .and_then(|phase| finished_event(phase, status));
        let goes_on = !status.phase.is_some_and(Phase::is_final);
        Report {
            trouble: complete(status)
                .filter(|_| is_held && goes_on)
                .map(|complete| Trouble {
                    reason: run::SUSPENDED,
                    message: complete.message.clone(),
                }),
            events: event.into_iter().collect(),
            next: goes_on.then(|| seen.now + LOOK_AGAIN),
        }
    }

    /// Only when the current one has succeeded: until then the earlier ones are all there is to
    /// debug. A Job whose command may be running is kept until it ends, since its deletion would
    /// kill the pod.
    fn deletes_other(present: &ChildView, other: &ChildView) -> bool {
        let never_started = other.suspended && other.generation == Some(1);
        run::has_succeeded(&present.status()) && (never_started || run::has_ended(&other.status()))
    }
}

impl Observed for FooBarStatus {
    fn observed(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        (&mut self.observed_generation, &mut self.conditions)
    }
}

/// The Event for the end of a run.
fn finished_event(phase: Phase, status: &FooBarStatus) -> Option<NewEvent> {
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

fn complete(status: &FooBarStatus) -> Option<&Condition> {
    condition::get(&status.conditions, run::COMPLETE)
}

fn name_of(owner: &Owner<'_, FooBars>) -> String {
    name(&owner.key.name, owner.generation.unwrap_or_default())
}

/// The name of the Job of a generation.
pub fn name(foobar: &str, generation: i64) -> String {
    format!("{foobar}-{generation}")
}

/// Labels and spec of the Job of an object with that name and a defaulted spec. It is created
/// suspended. Once resumed, it creates one pod, and no other if that fails.
pub fn fields(foobar: &str, spec: &FooBarSpec) -> Value {
    let text = |text: &Option<String>| escape(text.as_deref().unwrap_or_default());
    let labels = json!({LABEL: foobar, MANAGED_BY: MANAGER});
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "suspend": true,
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            // Not while a deleted pod may still run: never two at a time.
            "podReplacementPolicy": "Failed",
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    // What Pod Security requires where it enforces `restricted`.
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [{
                        "name": CONTAINER,
                        "image": spec.image,
                        "command": ["sh", "-c", text(&spec.command)],
                        "env": [
                            {"name": "FOO", "value": text(&spec.foo)},
                            {"name": "BARZ", "value": text(&spec.barz)},
                        ],
                        // Without a message of its own, the end of the output explains a failure best.
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use my_operator_runtime::reconcile::raw::Object;

    fn spec() -> FooBarSpec {
        FooBarSpec {
            foo: Some("$(HOME) costs $5".to_owned()),
            barz: None,
            command: Some("echo \"$FOO\" $(date) $$".to_owned()),
            image: Some("bash:5.3".to_owned()),
        }
    }

    #[test]
    fn the_command_and_its_environment_arrive_as_they_are_written() {
        let fields = fields("a", &spec());
        let container = &fields["spec"]["template"]["spec"]["containers"][0];
        let expected = json!(["sh", "-c", "echo \"$$FOO\" $$(date) $$$$"]);
        assert_eq!(container["command"], expected);
        let expected = json!([
            {"name": "FOO", "value": "$$(HOME) costs $$5"},
            {"name": "BARZ", "value": ""},
        ]);
        assert_eq!(container["env"], expected);
    }

    #[test]
    fn a_job_is_born_suspended_and_tries_nothing_twice() {
        let fields = fields("a", &spec());
        for (path, value) in [
            ("/spec/suspend", json!(true)),
            ("/spec/completions", json!(1)),
            ("/spec/backoffLimit", json!(0)),
            ("/spec/template/spec/restartPolicy", json!("Never")),
            ("/spec/template/metadata/labels/foobar", json!("a")),
            ("/metadata/labels/foobar", json!("a")),
        ] {
            assert_eq!(fields.pointer(path), Some(&value), "{path}");
        }
    }

    #[test]
    fn only_a_job_that_cannot_run_is_deleted_for_its_successor() {
        let job = |generation: i64, suspend: bool, condition: &str| {
            let object = json!({"metadata": {"name": "a-1", "generation": generation},
                "spec": {"suspend": suspend},
                "status": {"conditions": [{"type": condition, "status": "True"}]}});
            let object: Object<v1::Job> = serde_json::from_str(&object.to_string()).unwrap();
            ChildView::of::<super::super::crd::FooBar, _>(object)
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
    fn the_longest_name_is_still_a_label() {
        let longest = "n".repeat(super::super::admission::MAX_NAME_LEN);
        assert_eq!(name(&longest, 9_999_999_999).len(), 63);
        assert_eq!(name("foobar-sample", 1), "foobar-sample-1");
    }
}
