//! `MyDaemonSet`: one pod on every eligible node, with roll-outs that stop before they do harm.
//!
//! The modules, in the order in which data passes through them:
//!
//! 1. [`crd`] has the types. The pod template is JSON that the operator does not decode, so that
//!    unknown fields reach the pod.
//! 2. [`admission`] has the defaults and rules. The webhook and the reconciler share them: an
//!    object that bypassed the webhook gets the condition `Accepted=False`, and nothing else is done
//!    with it.
//! 3. [`views`] is what the caches hold of nodes and pods: little, since there may be many thousands.
//! 4. [`revision`]: the image and the template, as written, are kept as a `ControllerRevision`
//!    named by the hash of its content. A node that a roll-out may not touch gets a pod of its own
//!    revision again when it loses its pod.
//! 5. [`placement`] decides for a node and a template whether a pod runs there, stays there, or leaves.
//! 6. [`rollout`] decides which pods to create and delete now, when to reconcile again, and what is
//!    observed. It is a pure function, and a random model of a cluster drives it in its tests.
//! 7. [`pod`] builds the pod. Its name is the node's with a hash of owner, node and revision: the
//!    API server itself rejects a second one, whatever client sends it.
//! 8. [`status`] turns what is observed into counts, conditions and Events.
//! 9. [`memory`] covers the time until the watches show what was done.
//! 10. [`controller`] is the edge: it watches, calls `RolloutState::decide` in [`rollout`], and makes the few calls.
//!
//! Invariants: at most one pod of a revision on a node; a roll-out makes no more nodes unavailable
//! than `maxUnavailable`, however they became unavailable; a failing node or pod does not block the
//! others; no-op writes are skipped.

pub mod admission;
pub mod controller;
pub mod crd;
pub mod memory;
pub mod metrics;
pub mod placement;
pub mod pod;
pub mod revision;
pub mod rollout;
pub mod status;
pub mod views;

use super::kind::{Kind, Permission, Sample};
use my_operator_admission::judge::Admission;

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "mydaemonset",
    by_default: true,
    crd: crd::crd,
    admission: Admission::of::<admission::MyDaemonSetRules>(),
    permissions: &[
        Permission {
            group: "",
            resource: "pods",
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
        },
        Permission {
            group: "apps",
            resource: "controllerrevisions",
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
        },
        Permission::EVENTS,
        Permission {
            group: "apps.zhongmingmao.io",
            resource: "mydaemonsets",
            // Before an orphan is adopted, it is read live.
            verbs: &["get", "list", "watch"],
        },
        Permission {
            group: "apps.zhongmingmao.io",
            resource: "mydaemonsets/status",
            verbs: &["patch"],
        },
        Permission {
            group: "apps.zhongmingmao.io",
            // Owner references with blockOwnerDeletion need it where that is enforced.
            resource: "mydaemonsets/finalizers",
            verbs: &["update"],
        },
    ],
    cluster_permissions: &[Permission {
        group: "",
        resource: "nodes",
        verbs: &["get", "list", "watch"],
    }],
    samples: &[
        Sample {
            file: "apps_v1beta1_mydaemonset.yaml",
            text: include_str!("samples/apps_v1beta1_mydaemonset.yaml"),
        },
        Sample {
            file: "apps_v1beta1_mydaemonset_restricted.yaml",
            text: include_str!("samples/apps_v1beta1_mydaemonset_restricted.yaml"),
        },
        Sample {
            file: "bad/apps_v1beta1_mydaemonset.yaml",
            text: include_str!("samples/bad/apps_v1beta1_mydaemonset.yaml"),
        },
    ],
    start: |context| Box::pin(controller::run(context)),
};
