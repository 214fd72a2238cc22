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
use my_operator_kind::{Kind, Permission, Start, sample};

/// The group of the API.
const GROUP: &str = "cache.example.com";

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "memcached",
    by_default: false,
    crd: crd::crd,
    admission: Admission::of::<admission::MemcachedRules>(),
    pod_templates: &[],
    permissions: &[
        Permission::new(
            "apps",
            "deployments",
            &["get", "list", "watch", "create", "patch"],
        ),
        Permission::new("", "pods", Permission::WATCH),
        Permission::EVENTS,
        Permission::new(GROUP, "memcacheds", Permission::READ),
        Permission::new(GROUP, "memcacheds/status", &["update"]),
        // Owner references with blockOwnerDeletion need it where that is enforced.
        Permission::new(GROUP, "memcacheds/finalizers", &["update"]),
    ],
    cluster_permissions: &[],
    images: &[admission::DEFAULT_IMAGE],
    samples: &[
        sample!("cache_v1alpha1_memcached.yaml"),
        sample!("bad/cache_v1alpha1_memcached.yaml"),
    ],
    #[cfg(not(feature = "controllers"))]
    start: Start::Absent,
    #[cfg(feature = "controllers")]
    start: Start::Plain(owned_child::start::<decide::Memcacheds>),
};
