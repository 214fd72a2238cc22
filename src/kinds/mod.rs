//! What a kind is, and the registry: one line per kind.

pub mod at;
pub mod child;
pub mod command;
pub mod count;
pub mod crontab;
pub mod foo;
pub mod foobar;
pub mod memcached;
pub mod mydaemonset;
pub mod pods;
pub mod schema;
pub mod template;

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::admission::judge::Admission;
use crate::reconcile::Context;

/// A permission that a kind's reconciler needs.
#[derive(Clone, Copy, Debug)]
pub struct Permission {
    /// The API group; empty for the core one.
    pub group: &'static str,
    /// The resource, such as `pods` or `pods/status`.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

impl Permission {
    /// To tell news.
    pub const EVENTS: Self = Self {
        group: "events.k8s.io",
        resource: "events",
        verbs: &["create", "patch"],
    };
}

/// A manifest for people to try: its file name below `config/samples`, and its text.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Such as `cnat_v1alpha1_at.yaml`; what the webhook must refuse lies in `bad/`.
    pub file: &'static str,
    /// YAML.
    pub text: &'static str,
}

/// All that the rest of the program knows of a kind.
#[derive(Debug)]
pub struct Kind {
    /// The value of `--kinds`, and the kind's folder.
    pub name: &'static str,
    /// Whether it is installed, served and reconciled where nobody asks for it by name.
    pub by_default: bool,
    /// The CRD, built from the Rust types.
    pub crd: fn() -> CustomResourceDefinition,
    /// Defaulting and validation.
    pub admission: Admission,
    /// All permissions that the reconciler needs in namespaces, those on the kind itself included.
    pub permissions: &'static [Permission],
    /// Those that it needs on resources without namespace, such as nodes.
    pub cluster_permissions: &'static [Permission],
    /// Samples, good and bad.
    pub samples: &'static [Sample],
    /// Runs the reconciler until the context says stop.
    pub start: fn(Context) -> BoxFuture<'static, anyhow::Result<()>>,
}

impl Kind {
    /// Whether `kubectl scale` writes its spec, past the webhooks.
    pub fn scales(&self) -> bool {
        let mut versions = (self.crd)().spec.versions.into_iter();
        versions.any(|version| version.subresources.is_some_and(|all| all.scale.is_some()))
    }
}

/// Every kind: the one list from which all others are made.
pub const REGISTRY: &[&Kind] = &[
    &mydaemonset::KIND,
    &at::KIND,
    &memcached::KIND,
    &crontab::KIND,
    &foo::KIND,
    &count::KIND,
    &foobar::KIND,
];

/// The kinds that are installed, served and reconciled where nobody names any.
pub fn by_default() -> Vec<&'static Kind> {
    let kinds = REGISTRY.iter().copied();
    kinds.filter(|kind| kind.by_default).collect()
}
