//! CronTab: an image that runs again and again, in a CronJob of the same name.
//!
//! 1. [`crd`] has the types. `spec.replicas` is also what `kubectl scale` writes.
//! 2. [`admission`] has the defaults and rules; [`robfig_cron`] reads `spec.cronSpec` and
//!    `spec.timeZone` as Kubernetes does.
//! 3. [`decide`] builds the desired CronJob. [`super::owned_child`] keeps the CronJob equal to it.
//! 4. [`status`] reports on the CronJob, including the time of its next run, which Kubernetes
//!    itself does not report (kubernetes/kubernetes#78564).

mod admission;
pub mod crd;
mod decide;
mod status;

#[cfg(feature = "controllers")]
use super::owned_child;
use admission_rules::judge::Admission;
use my_operator_kind::{Kind, Permission, Start, sample};

/// The group of the API.
const GROUP: &str = "stable.example.com";

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "crontab",
    by_default: false,
    crd: crd::crd,
    admission: Admission::of::<admission::CronTabRules>(),
    pod_templates: &[],
    permissions: &[
        Permission::new(
            "batch",
            "cronjobs",
            &["get", "list", "watch", "create", "patch"],
        ),
        Permission::EVENTS,
        Permission::new(GROUP, "crontabs", Permission::READ),
        Permission::new(GROUP, "crontabs/status", &["update"]),
        // Owner references with blockOwnerDeletion need it where that is enforced.
        Permission::new(GROUP, "crontabs/finalizers", &["update"]),
    ],
    cluster_permissions: &[],
    images: &[],
    samples: &[
        sample!("stable_v1_crontab.yaml"),
        sample!("bad/stable_v1_crontab.yaml"),
    ],
    #[cfg(not(feature = "controllers"))]
    start: Start::Absent,
    #[cfg(feature = "controllers")]
    start: Start::Plain(owned_child::start::<decide::CronTabs>),
};
