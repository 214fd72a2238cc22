//! `MyDaemonSet`: one pod on every eligible node, with roll-outs that stop before they do harm.
//!
//! The modules, in the order in which data passes through them:
//!
//! 1. [`crd`] has the types. The pod template is JSON that the operator does not decode, so that
//!    unknown fields reach the pod.
//! 2. [`admission`] has the defaults and rules. The webhook and the reconciler share them: an
//!    object that bypassed the webhook gets the condition `Accepted=False`, and nothing else is done
//!    with it.
//! 3. [`observe`] is what is watched of nodes and pods, and the little that the caches keep: there may be
//!    many thousands.
//! 4. [`revision`]: the image and the template, as written, are kept as a `ControllerRevision`
//!    named by the hash of its content. A node that a roll-out may not touch gets a pod of its own
//!    revision again when it loses its pod.
//! 5. [`decide`] is the roll-out, a pure function: which nodes a pod belongs on (`decide/placement`),
//!    what each node needs (`decide/node`), and which pods to create and delete now within the limits
//!    (`decide/rollout.rs`). A random model of a cluster drives it in its tests.
//! 6. [`pod`] builds the pod. Its name ([`names`]) is the node's with a hash of owner, node and
//!    revision: the API server itself rejects a second one, whatever client sends it.
//! 7. [`status`] turns what is observed into counts, conditions and Events. [`cause`] is what nodes wait for, of which
//!    [`why`] says more to `kubectl mydaemonset why`.
//! 8. [`memory`] covers the time until the watches show what was done.
//! 9. [`act`] makes the calls about pods and revisions.
//! 10. [`controller`] is the edge: it watches into the [`caches`], and reconciles one [`object`] after
//!     the other (`controller/reconcile.rs`: observe, decide, act, report).
//!
//! Invariants: at most one pod of a revision on a node; a roll-out makes no more nodes unavailable
//! than `maxUnavailable`, however they became unavailable; a failing node or pod does not block the
//! others; no-op writes are skipped.

// Without the reconciler, decisions and statuses have no caller.
#![cfg_attr(not(feature = "controllers"), allow(dead_code, unused_imports))]

#[cfg(feature = "controllers")]
mod act;
mod admission;
mod basis;
#[cfg(feature = "controllers")]
mod caches;
pub mod cause;
#[cfg(feature = "controllers")]
mod controller;
pub mod crd;
pub mod decide;
#[cfg(feature = "controllers")]
mod flags;
#[cfg(feature = "controllers")]
mod memory;
#[cfg(feature = "controllers")]
mod metrics;
pub mod names;
mod object;
pub mod observe;
#[cfg(feature = "controllers")]
mod pass;
#[cfg(feature = "controllers")]
mod pod;
pub mod revision;
pub mod status;
pub mod why;

#[cfg(feature = "controllers")]
use clap::{Args as _, FromArgMatches as _};

use admission_rules::judge::Admission;
#[cfg(feature = "controllers")]
use flags::Flags;
use my_operator_kind::{Kind, Permission, Start, sample};

/// The group of the API.
const GROUP: &str = "apps.zhongmingmao.io";

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: names::CONTROLLER,
    by_default: true,
    crd: crd::crd,
    admission: Admission::of::<admission::MyDaemonSetRules>(),
    pod_templates: &["spec.template"],
    permissions: &[
        Permission::new("", "pods", Permission::OWN),
        Permission::new("apps", "controllerrevisions", Permission::OWN),
        Permission::EVENTS,
        // Before an orphan is adopted, it is read live.
        Permission::new(GROUP, "mydaemonsets", Permission::READ),
        Permission::new(GROUP, "mydaemonsets/status", &["patch"]),
        // Owner references with blockOwnerDeletion need it where that is enforced.
        Permission::new(GROUP, "mydaemonsets/finalizers", &["update"]),
    ],
    cluster_permissions: &[
        Permission::new("", "nodes", Permission::READ),
        Permission::NAMESPACES,
    ],
    images: &[],
    samples: &[
        sample!("apps_v1beta1_mydaemonset.yaml"),
        sample!("apps_v1beta1_mydaemonset_restricted.yaml"),
        sample!("bad/apps_v1beta1_mydaemonset.yaml"),
    ],
    #[cfg(not(feature = "controllers"))]
    start: Start::Absent,
    #[cfg(feature = "controllers")]
    start: Start::WithFlags {
        flags: Flags::augment_args,
        start: |context, matches| {
            let flags = Flags::from_arg_matches(matches);
            Box::pin(async { controller::run(context, flags?.node_not_ready_grace).await })
        },
    },
};
