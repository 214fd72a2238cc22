//! CronTab: an image that runs again and again, in a CronJob of the same name.
//!
//! 1. [`crd`] has the types. `spec.replicas` is also what `kubectl scale` writes.
//! 2. [`admission`] has the defaults and rules; [`schedule`] reads `spec.cronSpec` and [`zone`]
//!    `spec.timeZone` as Kubernetes does.
//! 3. [`cronjob`] says what the CronJob shall be. That it stays so, and whose it is, is seen to in
//!    [`super::child`].
//! 4. [`status`] says of the CronJob what people want to know, and when it comes next: Kubernetes
//!    itself does not tell (kubernetes/kubernetes#78564).

pub mod admission;
pub mod crd;
pub mod cronjob;
pub mod schedule;
pub mod status;
pub mod zone;

use k8s_openapi::api::batch::v1::CronJob;

use super::child::{self, Child, Observed, Owner, Parent, Report, Seen};
use super::{Kind, Permission, Sample};
use crate::admission::judge::Admission;
use crate::reconcile::condition::Condition;
use crd::CronTabStatus;

/// The kind, for the room that keeps the CronJob.
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

    /// The CronJob runs on as it was, but nobody looks at when: the next time would soon be one that
    /// has passed.
    fn rejected(status: &mut CronTabStatus) {
        status.next_schedule_time = None;
    }
}

impl Observed for CronTabStatus {
    fn observed(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        (&mut self.observed_generation, &mut self.conditions)
    }
}

/// What the rest of the program knows of the kind.
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
    start: child::start::<CronTabs>,
};

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn of_a_spec_that_is_not_acted_on_no_next_time_is_told() {
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
