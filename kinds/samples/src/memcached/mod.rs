//! Memcached: a number of servers with an image and a memory size, in a Deployment of the same name.
//!
//! 1. [`crd`] has the types. `spec.size` is also what `kubectl scale` writes.
//! 2. [`admission`] has the defaults and rules.
//! 3. [`decide`] builds the desired Deployment, with its [`labels`]. [`super::owned_child`] keeps the Deployment equal to it.
//! 4. [`status`] reports on the Deployment and its pods.

mod admission;
pub mod crd;
mod decide;
mod labels;
mod status;

#[cfg(feature = "controllers")]
use super::owned_child;
use admission_rules::judge::Admission;
use my_operator_kind::Start;
use my_operator_kind::{Kind, Permission, Sample};

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "memcached",
    by_default: false,
    crd: crd::crd,
    admission: Admission::of::<admission::MemcachedRules>(),
    pod_templates: &[],
    permissions: &[
        Permission {
            group: "apps",
            resource: "deployments",
            verbs: &["get", "list", "watch", "create", "patch"],
        },
        Permission {
            group: "",
            resource: "pods",
            verbs: &["list", "watch"],
        },
        Permission::EVENTS,
        Permission {
            group: "cache.example.com",
            resource: "memcacheds",
            verbs: &["get", "list", "watch"],
        },
        Permission {
            group: "cache.example.com",
            resource: "memcacheds/status",
            verbs: &["update"],
        },
        Permission {
            group: "cache.example.com",
            // Owner references with blockOwnerDeletion need it where that is enforced.
            resource: "memcacheds/finalizers",
            verbs: &["update"],
        },
    ],
    cluster_permissions: &[],
    images: &[admission::DEFAULT_IMAGE],
    samples: &[
        Sample {
            file: "cache_v1alpha1_memcached.yaml",
            text: include_str!("samples/cache_v1alpha1_memcached.yaml"),
        },
        Sample {
            file: "bad/cache_v1alpha1_memcached.yaml",
            text: include_str!("samples/bad/cache_v1alpha1_memcached.yaml"),
        },
    ],
    #[cfg(not(feature = "controllers"))]
    start: Start::Absent,
    #[cfg(feature = "controllers")]
    start: Start::Plain(owned_child::start::<decide::Memcacheds>),
};
