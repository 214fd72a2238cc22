//! What a kind is: all that the rest of the program knows of one.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::start::Start;
use admission_rules::judge::Admission;
use my_operator_admit::object::Rulebook;

/// A permission that a kind's reconciler needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The API group; empty for the core one.
    pub group: &'static str,
    /// The resource, such as `pods` or `pods/status`.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

impl Permission {
    /// Verbs to keep objects in a cache.
    pub const WATCH: &[&str] = &["list", "watch"];
    /// The same, and to read one live.
    pub const READ: &[&str] = &["get", "list", "watch"];
    /// Verbs for what a reconciler makes.
    pub const OWN: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

    /// These verbs on that resource of a group.
    pub const fn new(
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
    ) -> Self {
        Self {
            group,
            resource,
            verbs,
        }
    }

    /// To publish Events.
    pub const EVENTS: Self = Self::new("events.k8s.io", "events", &["create", "patch"]);

    /// To see what is said of namespaces. An operator of some namespaces does not have it: it would see all others, too.
    pub const NAMESPACES: Self = Self::new("", "namespaces", Self::WATCH);
}

/// A sample manifest: its file name below `config/samples`, and its text.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Such as `cnat_v1alpha1_at.yaml`; what the webhook must reject is in `bad/`.
    pub file: &'static str,
    /// YAML.
    pub text: &'static str,
}

/// The [`Sample`] of that file in the folder `samples` beside the source file that names it.
#[macro_export]
macro_rules! sample {
    ($file:literal) => {
        $crate::Sample {
            file: $file,
            text: include_str!(concat!("samples/", $file)),
        }
    };
}

/// Everything that the rest of the program knows of a kind.
#[derive(Debug)]
pub struct Kind {
    /// The value of `--kinds`, and the kind's folder.
    pub name: &'static str,
    /// Whether it is installed, served and reconciled without being named in `--kinds`.
    pub by_default: bool,
    /// The CRD, built from the Rust types.
    pub crd: fn() -> CustomResourceDefinition,
    /// Defaulting and validation.
    pub admission: Admission,
    /// The paths of the pod templates in an object, such as `spec.template`, which `admit` checks as pods.
    pub pod_templates: &'static [&'static str],
    /// All permissions that the reconciler needs in namespaces, including those on the kind itself.
    pub permissions: &'static [Permission],
    /// Those that it needs on cluster-scoped resources, such as nodes.
    pub cluster_permissions: &'static [Permission],
    /// The images of the pods of an object that names none, for mirrors of registries (`relatedImages` of OLM).
    pub images: &'static [&'static str],
    /// Samples, good and bad.
    pub samples: &'static [Sample],
    /// How its reconciler is started.
    pub start: Start,
}

impl Kind {
    /// What `my-operator admit` checks objects by.
    pub fn rulebook(&self) -> Rulebook {
        Rulebook::new((self.crd)(), self.admission).with_pod_templates(self.pod_templates)
    }

    /// Whether `kubectl scale` writes its spec, bypassing the webhooks.
    pub fn scales(&self) -> bool {
        let mut versions = (self.crd)().spec.versions.into_iter();
        versions.any(|version| version.subresources.is_some_and(|all| all.scale.is_some()))
    }
}
