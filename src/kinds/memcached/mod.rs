//! Memcached: a number of servers with an image and a memory size, in a Deployment of the same name.
//!
//! 1. [`crd`] has the types. `spec.size` is also what `kubectl scale` writes.
//! 2. [`admission`] has the defaults and rules.
//! 3. [`deployment`] builds the desired Deployment. [`super::shared::owned_child`] keeps the Deployment equal to it.
//! 4. [`status`] reports on the Deployment and its pods.

pub mod admission;
pub mod crd;
pub mod deployment;
pub mod status;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;

use super::kind::{Kind, Permission, Sample};
use super::shared::owned_child::deployment::DeploymentView;
use super::shared::owned_child::{self, Child, Done, Observed, Owner, Parent, Report, Seen};
use crd::MemcachedStatus;
use my_operator_admission::judge::Admission;
use my_operator_runtime::reconcile::condition::Condition;

/// The kind, for the reconciler of children.
#[derive(Debug)]
pub struct Memcacheds;

impl Parent for Memcacheds {
    const NAME: &'static str = KIND.name;
    const CONFLICT: &'static str = "DeploymentExists";
    const POD_LABELS: &'static [&'static str] = &[deployment::OWN_LABEL, deployment::APP_LABEL];

    type Rules = admission::MemcachedRules;
    type Child = Deployment;

    fn child(owner: &Owner<'_, Self>) -> Child {
        Child {
            name: owner.key.name.to_string(),
            fields: deployment::desired(&owner.key.name, owner.spec),
            create: true,
        }
    }

    fn replace_conflicting_list(field: &str) -> Option<Value> {
        field.contains(".ports[").then(deployment::only_port)
    }

    fn report(seen: &Seen<'_, Self>, status: &mut MemcachedStatus) -> Report {
        let pods = seen.pods.iter().filter(|(_, pod)| {
            let is_memcached = pod.label(1) == Some(deployment::MEMCACHED);
            is_memcached && !pod.deleting && !pod.ended
        });
        let observed = status::Observed {
            name: &seen.owner.key.name,
            generation: seen.owner.generation,
            size: seen.owner.spec.size.unwrap_or_default(),
            blocked: seen.trouble.is_some(),
            changed: seen.done == Done::Changed,
            deployment: seen.child.map(DeploymentView::of),
            pods: pods.map(|(key, _)| key.name.to_string()).collect(),
            now: seen.now,
        };
        Report {
            events: status::next(&observed, status),
            trouble: observed
                .deployment
                .as_ref()
                .and_then(DeploymentView::trouble),
            next: None,
        }
    }
}

impl Observed for MemcachedStatus {
    fn observed(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        (&mut self.observed_generation, &mut self.conditions)
    }
}

/// The kind, for the registry.
pub const KIND: Kind = Kind {
    name: "memcached",
    by_default: false,
    crd: crd::crd,
    admission: Admission::of::<admission::MemcachedRules>(),
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
    start: owned_child::start::<Memcacheds>,
};
