//! `MyDaemonSet`: one pod on every eligible node, with roll-outs that stop before they do harm.
//!
//! The story of the kind, in the order in which data meets it:
//!
//! 1. [`crd`] has the types. The template of the pods is JSON that nobody here decodes, so that a field
//!    which the operator does not know reaches the pod.
//! 2. [`admission`] has the defaults and rules. The webhook and the reconciler call the same ones: an
//!    object that came in while no webhook was there gets the condition `Accepted=False`, and nothing
//!    else is done with it.
//! 3. [`views`] is what is kept of nodes and pods: little, since there may be many thousands.
//! 4. [`revision`]: the image and the template, as they were written, are kept as a
//!    `ControllerRevision` named by the hash of its content. A node that a roll-out may not touch gets
//!    a pod of its own revision again when it loses its pod.
//! 5. [`placement`] says for a node and a template whether a pod runs there, stays there, or leaves.
//! 6. [`rollout`] decides: which pods are made and deleted now, when to look again, and what is the
//!    case. It is a pure function, and a random model of a cluster drives it in its tests.
//! 7. [`pod`] builds the pod. Its name is the node's with a hash of owner, node and revision: the API
//!    server itself refuses a second one, whoever asks for it.
//! 8. [`status`] makes counts, conditions and Events of what is the case.
//! 9. [`memory`] bridges the time until the watches show what was done.
//! 10. [`controller`] is the edge: it watches, calls `RolloutState::decide` in [`rollout`], and makes the few calls.
//!
//! What holds, whatever happens: at most one pod of a revision on a node; a roll-out makes no more
//! nodes unavailable than `maxUnavailable`, however they became unavailable; a node or pod that fails
//! holds up no other; and nothing is written when nothing changed.

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

use super::{Kind, Permission, Sample};
use crate::admission::judge::Admission;

/// What the rest of the program knows of the kind.
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
            // Before an orphan is adopted, the API server itself is asked.
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
