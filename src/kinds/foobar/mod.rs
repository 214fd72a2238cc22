//! FooBar: a command that runs once for every version of its spec.
//!
//! [`admission`] fills in the image and refuses what is wrong. For each `metadata.generation` there is
//! one [`job`], whose name is made of both and so is a lock: there can be no two at a time. It is born
//! suspended. Its UID goes into the status, a write that is refused unless the object is as it was looked
//! at; only the Job of that UID is let go, and only while nobody has touched its spec. So a Job that is
//! deleted by hand, by whatever operator it is missed, is not made again and run a second time: what is
//! gone before its end is [`run`]'s `JobLost`.
//!
//! What the Job came to is read from its own status, and the exit code from that of its pod. Jobs of
//! earlier generations that have ended are deleted when the present one has succeeded; until then they are
//! kept for debugging. One whose command may be running is never deleted.

pub mod admission;
pub mod crd;
pub mod job;
pub mod run;

use super::{Kind, Permission, Sample, child};
use crate::admission::judge::Admission;

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "foobar",
    by_default: false,
    crd: crd::crd,
    admission: Admission::of::<admission::FooBarRules>(),
    permissions: &[
        Permission {
            group: "",
            resource: "pods",
            verbs: &["list", "watch"],
        },
        Permission {
            group: "batch",
            resource: "jobs",
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
        },
        Permission::EVENTS,
        Permission {
            group: "k8s.io",
            resource: "foobars",
            // Before a Job that lost its owner is taken back, the API server itself is asked.
            verbs: &["get", "list", "watch"],
        },
        Permission {
            group: "k8s.io",
            resource: "foobars/status",
            verbs: &["update"],
        },
        Permission {
            group: "k8s.io",
            // Owner references with blockOwnerDeletion need it where that is enforced.
            resource: "foobars/finalizers",
            verbs: &["update"],
        },
    ],
    cluster_permissions: &[],
    samples: &[
        Sample {
            file: "k8s_v1_foobar.yaml",
            text: include_str!("samples/k8s_v1_foobar.yaml"),
        },
        Sample {
            file: "bad/k8s_v1_foobar.yaml",
            text: include_str!("samples/bad/k8s_v1_foobar.yaml"),
        },
    ],
    start: child::start::<job::FooBars>,
};
