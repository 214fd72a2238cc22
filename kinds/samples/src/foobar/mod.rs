//! FooBar: a command that runs once for every version of its spec.
//!
//! [`admission`] defaults the image and rejects what is invalid. For each `metadata.generation`
//! there is one [`job`], whose name is made of both and so acts as a lock: two cannot exist at a
//! time. It is created suspended. Its UID goes into the status, a write that the API server rejects
//! unless the object has the version that was read. Only the Job with that UID is resumed, and only
//! while its spec is unmodified. So a Job that is deleted by hand is not created again and run a
//! second time, whichever operator misses it: a Job that is gone before its end is [`status`]'s
//! `JobLost`.
//!
//! The result is read from the Job's status, and the exit code from its pod's. Jobs of earlier
//! generations that have ended are deleted when the current one has succeeded; until then they are
//! kept for debugging. One whose command may be running is never deleted.

mod admission;
pub mod crd;
mod decide;
mod job;
mod status;

#[cfg(feature = "controllers")]
use super::owned_child;
use admission_rules::judge::Admission;
use my_operator_kind::{Kind, Permission, Start, sample};

/// The group of the API.
const GROUP: &str = "k8s.io";

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "foobar",
    by_default: false,
    crd: crd::crd,
    admission: Admission::of::<admission::FooBarRules>(),
    pod_templates: &[],
    permissions: &[
        Permission::new("", "pods", Permission::WATCH),
        Permission::new("batch", "jobs", Permission::OWN),
        Permission::EVENTS,
        // Before a Job that lost its owner is adopted, it is read live.
        Permission::new(GROUP, "foobars", Permission::READ),
        Permission::new(GROUP, "foobars/status", &["update"]),
        // Owner references with blockOwnerDeletion need it where that is enforced.
        Permission::new(GROUP, "foobars/finalizers", &["update"]),
    ],
    cluster_permissions: &[],
    images: &[admission::DEFAULT_IMAGE],
    samples: &[
        sample!("k8s_v1_foobar.yaml"),
        sample!("bad/k8s_v1_foobar.yaml"),
    ],
    #[cfg(not(feature = "controllers"))]
    start: Start::Absent,
    #[cfg(feature = "controllers")]
    start: Start::Plain(owned_child::start::<decide::FooBars>),
};
