//! CronTab: an image that runs again and again, in a CronJob of the same name.
//!
//! 1. [`crd`] has the types. `spec.replicas` is also what `kubectl scale` writes.
//! 2. [`admission`] has the defaults and rules; [`schedule`] reads `spec.cronSpec` and [`zone`]
//!    `spec.timeZone` as Kubernetes does.
//! 3. [`cronjob`] builds the desired CronJob. [`super::shared::owned_child`] keeps the CronJob equal to it.
//! 4. [`status`] reports on the CronJob, including the time of its next run, which Kubernetes
//!    itself does not report (kubernetes/kubernetes#78564).

pub mod admission;
pub mod crd;
pub mod cronjob;
pub mod schedule;
pub mod status;
pub mod zone;

use k8s_openapi::api::batch::v1::CronJob;

use super::kind::{Kind, Permission, Sample};
use super::shared::owned_child::{self, Child, Observed, Owner, Parent, Report, Seen};
use crd::CronTabStatus;
use my_operator_admission::judge::Admission;
use my_operator_runtime::reconcile::condition::Condition;

/// The kind, for the reconciler of children.
#[derive(Debug)]
pub struct CronTabs;

impl Parent for CronTabs {
    const NAME: &'static str = KIND.name;
    const CONFLICT: &'static str = "CronJobExists";

    type Rules = admission::CronTabRules;
    type Child = CronJob;

    fn child(owner: &Owner<'_, Self>) -> Child {
        Child {
            name: owner.key.name.to_string(),
            fields: cronjob::desired(&owner.key.name, owner.spec),
            create: true,
        }
    }

    fn report(seen: &Seen<'_, Self>, status: &mut CronTabStatus) -> Report {
        let observed = status::Observed {
            spec: seen.owner.spec,
            generation: seen.owner.generation,
            cronjob: seen.child.map(|child| status::CronJob {
                created: child.created,
                status: child.status(),
            }),
            trouble: seen
                .trouble
                .map(|trouble| (trouble.reason, trouble.message.as_str())),
            now: seen.now,
        };
        Report {
            next: status::report(&observed, status),
            ..Report::default()
        }
    }

    /// The CronJob runs on unchanged, but the next run is no longer computed: it would soon be in the past.
    fn rejected(status: &mut CronTabStatus) {
        status.next_schedule_time = None;
    }
}

impl Observed for CronTabStatus {
    fn observed(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        (&mut self.observed_generation, &mut self.conditions)
    }
}

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "crontab",
    by_default: false,
    crd: crd::crd,
    admission: Admission::of::<admission::CronTabRules>(),
    permissions: &[
        Permission {
            group: "batch",
            resource: "cronjobs",
            verbs: &["get", "list", "watch", "create", "patch"],
        },
        Permission::EVENTS,
        Permission {
            group: "stable.example.com",
            resource: "crontabs",
            verbs: &["get", "list", "watch"],
        },
        Permission {
            group: "stable.example.com",
            resource: "crontabs/status",
            verbs: &["update"],
        },
        Permission {
            group: "stable.example.com",
            // Owner references with blockOwnerDeletion need it where that is enforced.
            resource: "crontabs/finalizers",
            verbs: &["update"],
        },
    ],
    cluster_permissions: &[],
    samples: &[
        Sample {
            file: "stable_v1_crontab.yaml",
            text: include_str!("samples/stable_v1_crontab.yaml"),
        },
        Sample {
            file: "bad/stable_v1_crontab.yaml",
            text: include_str!("samples/bad/stable_v1_crontab.yaml"),
        },
    ],
    start: owned_child::start::<CronTabs>,
};

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn a_rejected_spec_clears_the_next_schedule_time() {
        let mut status = CronTabStatus {
            replicas: Some(2),
            next_schedule_time: Some(DateTime::UNIX_EPOCH),
            last_schedule_time: Some(DateTime::UNIX_EPOCH),
            ..CronTabStatus::default()
        };
        CronTabs::rejected(&mut status);
        assert_eq!(status.next_schedule_time, None);
        assert_eq!(status.replicas, Some(2));
        assert_eq!(status.last_schedule_time, Some(DateTime::UNIX_EPOCH));
    }
}
