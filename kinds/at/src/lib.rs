//! At: runs one command, once, at its instant.
//!
//! An At says when ([`schedule`]) and what to run. [`admission`] fills in its defaults, rejects
//! what is invalid and records who created it; the reconciler applies the same rules to objects
//! that bypassed the webhook. From then on the At waits in a queue ordered by instant, as a small
//! value ([`observe`]), and costs nothing.
//!
//! When its instant has come, the operator creates a [`pod`] with a fixed name and a scheduling
//! gate, which keeps it from starting. The pod's UID goes into the status: this write, which the
//! API server rejects unless the At has the version that was read, is the point at which the start
//! is decided. Then the gate of that pod, and of no other, is removed, and it runs. Its end becomes
//! the [`result`].
//!
//! A reconcile pass is in [`controller`]: it takes what is [observed](observe), what this process
//! [remembers](memory) and has [seen](sightings), lets [`decide`] decide, makes the call
//! ([`act`]) and writes the [`status`]. [`decide`] is a pure function with the whole protocol in
//! one table. It is tested over every combination of observations, and against a model of the API
//! server with two operators, lagging watches, crashes and late calls. "Never twice" depends on the
//! fixed name, the resource version of one write and the UID of one patch; on no lease, clock or
//! finalizer.
//!
//! Every At ends as DONE: Succeeded, Failed, Missed (too late to start) or Unknown (the pod was
//! gone before its end was seen). Nothing is ever tried a second time.

// Without the reconciler, decisions and statuses have no caller.
#![cfg_attr(not(feature = "controllers"), allow(dead_code, unused_imports))]

#[cfg(feature = "controllers")]
mod act;
mod admission;
#[cfg(feature = "controllers")]
mod caches;
mod conditions;
#[cfg(feature = "controllers")]
mod controller;
pub mod crd;
mod decide;
mod lateness;
#[cfg(feature = "controllers")]
mod memory;
mod message;
#[cfg(feature = "controllers")]
mod metrics;
mod observe;
#[cfg(feature = "controllers")]
mod packed;
mod pod;
mod result;
pub mod schedule;
mod sightings;
mod status;
mod trial;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;

use admission_rules::judge::Admission;
use admission_rules::rules::decode_and_validate;
use my_operator_kind::{Kind, Permission, Start, sample};

pub use conditions::POD_ACCEPTED;

/// The pod that the operator would create for an At with this spec, for a dry run of a client: without the owner reference,
/// since there is no such At. `None` if the spec is invalid.
pub fn trial_pod(name: &str, namespace: &str, spec: &Value, now: DateTime<Utc>) -> Option<Value> {
    let none = BTreeMap::new();
    let spec = decode_and_validate::<admission::AtRules>(name, &none, &spec.to_string(), now);
    let uid = "";
    let owner = pod::build::Owner {
        name,
        namespace,
        uid,
    };
    let mut pod = pod::build::build(owner, &spec.ok()?);
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
    Some(pod)
}

/// The group of the API.
const GROUP: &str = "cnat.programming-kubernetes.info";

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "at",
    by_default: true,
    crd: crd::crd,
    admission: Admission::of::<admission::AtRules>(),
    pod_templates: &["spec.template"],
    permissions: &[
        Permission::new("", "pods", Permission::OWN),
        Permission::EVENTS,
        Permission::new(GROUP, "ats", &["list", "watch", "delete"]),
        Permission::new(GROUP, "ats/status", &["update"]),
        Permission::new(GROUP, "ats/finalizers", &["update"]),
    ],
    cluster_permissions: &[],
    images: &[admission::DEFAULT_IMAGE],
    samples: &[
        sample!("cnat_v1alpha1_at.yaml"),
        sample!("cnat_v1alpha1_at_restricted.yaml"),
        sample!("bad/cnat_v1alpha1_at.yaml"),
    ],
    #[cfg(not(feature = "controllers"))]
    start: Start::Absent,
    #[cfg(feature = "controllers")]
    start: Start::Plain(|context| Box::pin(controller::run(context))),
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_can_try_the_pod_of_an_at_that_is_not_stored() {
        let pod = |spec: Value| trial_pod("x", "ns", &spec, Utc::now());
        let found = pod(json!({"schedule": "now", "command": "ls"})).unwrap();
        assert_eq!(found["metadata"]["name"], "x-pod");
        assert_eq!(found["metadata"].get("ownerReferences"), None);
        assert_eq!(found["spec"]["containers"][0]["image"], "bash:5.3");
        assert_eq!(pod(json!({"schedule": "now"})), None);
    }
}
