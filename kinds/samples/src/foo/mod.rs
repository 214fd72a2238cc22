//! Foo: the example of Kubernetes' own sample-controller, which manages a Deployment of nginx.
//!
//! [`crd`] has the types and the CRD, which is marked as unapproved: its group is the Kubernetes
//! project's. [`admission`] has the default and the rules, shared by the webhook and the
//! reconciler. [`decide`] builds the desired Deployment of a Foo, and [`super::owned_child`]
//! keeps the Deployment equal to it. [`status`] builds the status and the Event.

mod admission;
pub mod crd;
mod decide;
mod status;

#[cfg(feature = "controllers")]
use super::owned_child;
use admission_rules::judge::Admission;
use my_operator_kind::{Kind, Permission, Start, sample};

/// The group of the API.
const GROUP: &str = "samplecontroller.k8s.io";

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "foo",
    by_default: false,
    crd: crd::crd,
    admission: Admission::of::<admission::FooRules>(),
    pod_templates: &[],
    permissions: &[
        Permission::new("apps", "deployments", Permission::OWN),
        Permission::EVENTS,
        Permission::new(GROUP, "foos", Permission::READ),
        Permission::new(GROUP, "foos/status", &["update"]),
        // Owner references with blockOwnerDeletion need it where that is enforced.
        Permission::new(GROUP, "foos/finalizers", &["update"]),
    ],
    cluster_permissions: &[],
    images: &[decide::IMAGE],
    samples: &[
        sample!("samplecontroller_v1alpha1_foo.yaml"),
        sample!("bad/samplecontroller_v1alpha1_foo.yaml"),
    ],
    #[cfg(not(feature = "controllers"))]
    start: Start::Absent,
    #[cfg(feature = "controllers")]
    start: Start::Plain(owned_child::start::<decide::Foos>),
};
