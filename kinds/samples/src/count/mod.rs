//! Count: an assertion that exactly that many ready pods of an application exist in the namespace.
//!
//! A Count creates and deletes nothing. It says how many ready pods there should be ([`crd`]), and
//! its status says whether there are exactly that many. [`admission`] rejects invalid specs; the
//! reconciler applies the same rules to objects that bypassed the webhook.
//!
//! [`controller`] is the I/O edge. It watches every pod once for all Counts, as a slim view of
//! which only the ready ones are indexed, by namespace and label. So a pod that becomes ready, or
//! ceases to be, requeues only the Counts that name it, and no other change of a pod requeues any.
//!
//! [`status`] says what the status is, and [`decide`] which Events a change of it causes and how long
//! it waits, so that a roll-out of hundreds of pods is written a few times: pure functions.

mod admission;
#[cfg(feature = "controllers")]
mod controller;
pub mod crd;
mod decide;
mod status;

use admission_rules::judge::Admission;
use my_operator_kind::{Kind, Permission, Start, sample};

/// The group of the API.
const GROUP: &str = "demo.mark8s.io";

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "count",
    by_default: false,
    crd: crd::crd,
    admission: Admission::of::<admission::CountRules>(),
    pod_templates: &[],
    permissions: &[
        Permission::new("", "pods", Permission::WATCH),
        Permission::EVENTS,
        Permission::new(GROUP, "counts", Permission::WATCH),
        Permission::new(GROUP, "counts/status", &["update"]),
    ],
    cluster_permissions: &[],
    images: &[],
    samples: &[
        sample!("demo_v1_count.yaml"),
        sample!("bad/demo_v1_count.yaml"),
    ],
    #[cfg(not(feature = "controllers"))]
    start: Start::Absent,
    #[cfg(feature = "controllers")]
    start: Start::Plain(|context| Box::pin(controller::run(context))),
};
