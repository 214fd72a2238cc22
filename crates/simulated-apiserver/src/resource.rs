//! The kinds that the server knows, and their properties.

/// One kind of objects.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a property of its own"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
    /// Such as `Pod`.
    pub kind: String,
    /// Such as `pods`.
    pub plural: String,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
    /// Whether status has an endpoint of its own, so that it is ignored on the main one.
    pub status: bool,
    /// Whether metadata.generation counts changes of the spec.
    pub generation: bool,
    /// Whether a replace without resourceVersion is accepted.
    pub unconditional_update: bool,
    /// Whether a delete answers with the object rather than with a Status.
    pub returns_deleted: bool,
    /// Further special behavior.
    pub behavior: Behavior,
    /// Lists that server-side apply and strategic merge patches merge, with the fields that identify an item. No
    /// fields: a set of plain values.
    pub merged_lists: Vec<(String, Vec<String>)>,
}

/// The special behavior of some kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Defined by a CustomResourceDefinition.
    Custom,
    /// Built in, with nothing special.
    Plain,
    /// Pods: graceful deletion, scheduling gates, binding, an immutable spec.
    Pod,
    /// Namespaces: deleted after their content.
    Namespace,
}

/// Lists that are merged in every kind: those of the metadata.
const METADATA_LISTS: &[(&str, &[&str])] = &[("ownerReferences", &["uid"]), ("finalizers", &[])];

/// Lists that are merged in built-in kinds, by the name of the field.
const BUILT_IN_LISTS: &[(&str, &[&str])] = &[
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("imagePullSecrets", &["name"]),
    ("schedulingGates", &["name"]),
    ("hostAliases", &["ip"]),
    (
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("resourceClaims", &["name"]),
    // Of webhook configurations.
    ("webhooks", &["name"]),
];

impl Resource {
    /// A kind of a CustomResourceDefinition, namespaced and with a status subresource.
    pub fn custom(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced: true,
            status: true,
            generation: true,
            unconditional_update: false,
            returns_deleted: false,
            behavior: Behavior::Custom,
            merged_lists: owned(METADATA_LISTS),
        }
    }

    /// The resource of a Rust type of a custom kind, as kube's `CustomResource` derives it: namespaced and with a
    /// status subresource, whatever its CRD says; see [`Self::cluster_scoped`] and [`Self::without_status`].
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self::custom(
            &K::group(&()),
            &K::version(&()),
            &K::kind(&()),
            &K::plural(&()),
        )
    }

    /// A built-in kind.
    fn built_in(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        let mut merged_lists = owned(METADATA_LISTS);
        merged_lists.extend(owned(BUILT_IN_LISTS));
        // In containers and in Services the same name means lists of different items.
        let port = if kind == "Service" {
            "port"
        } else {
            "containerPort"
        };
        merged_lists.extend(owned(&[("ports", &[port, "protocol"])]));
        Self {
            unconditional_update: true,
            status: false,
            generation: false,
            behavior: Behavior::Plain,
            merged_lists,
            ..Self::custom(group, version, kind, plural)
        }
    }

    /// The same, cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// The same without a status subresource: status is a field like any other.
    #[must_use]
    pub fn without_status(mut self) -> Self {
        self.status = false;
        self
    }

    fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    fn returning_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }

    fn conditional(mut self) -> Self {
        self.unconditional_update = false;
        self
    }

    /// `pods`, or `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `Pod`, or `Deployment.apps`.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// `v1`, or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The fields that identify an item of that list, if it is merged.
    pub(crate) fn merge_keys(&self, list: &str) -> Option<&[String]> {
        let found = self.merged_lists.iter().find(|(name, _)| name == list);
        found.map(|(_, keys)| keys.as_slice())
    }
}

fn owned(lists: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let owned = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect();
    lists
        .iter()
        .map(|(list, keys)| ((*list).to_owned(), owned(keys)))
        .collect()
}

/// The kinds that every server knows.
pub(crate) fn built_in() -> Vec<Resource> {
    let groups = [core(), others(), workloads(), rbac(), registrations()];
    groups.into_iter().flatten().collect()
}

fn core() -> Vec<Resource> {
    let core = |kind, plural| Resource::built_in("", "v1", kind, plural);
    let mut pods = core("Pod", "pods")
        .with_status()
        .with_generation()
        .returning_deleted();
    pods.behavior = Behavior::Pod;
    let mut namespaces = core("Namespace", "namespaces")
        .with_status()
        .cluster_scoped()
        .returning_deleted();
    namespaces.behavior = Behavior::Namespace;
    vec![
        pods,
        namespaces,
        core("Node", "nodes").with_status().cluster_scoped(),
        core("Event", "events"),
        core("Service", "services")
            .with_status()
            .returning_deleted(),
        core("ConfigMap", "configmaps"),
        core("PodTemplate", "podtemplates").with_generation(),
        core("Secret", "secrets"),
        core("ServiceAccount", "serviceaccounts").returning_deleted(),
        core("PersistentVolumeClaim", "persistentvolumeclaims")
            .with_status()
            .returning_deleted(),
        core("ReplicationController", "replicationcontrollers")
            .with_status()
            .with_generation(),
        core("Endpoints", "endpoints"),
    ]
}

fn workloads() -> Vec<Resource> {
    let workload = |group, kind, plural| {
        Resource::built_in(group, "v1", kind, plural)
            .with_status()
            .with_generation()
    };
    vec![
        workload("batch", "Job", "jobs"),
        workload("batch", "CronJob", "cronjobs"),
        workload("apps", "Deployment", "deployments"),
        workload("apps", "ReplicaSet", "replicasets"),
        workload("apps", "StatefulSet", "statefulsets"),
        workload("apps", "DaemonSet", "daemonsets"),
        Resource::built_in("apps", "v1", "ControllerRevision", "controllerrevisions"),
        workload("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
        workload("networking.k8s.io", "Ingress", "ingresses"),
    ]
}

fn rbac() -> Vec<Resource> {
    let rbac = |kind, plural| Resource::built_in("rbac.authorization.k8s.io", "v1", kind, plural);
    vec![
        rbac("Role", "roles"),
        rbac("RoleBinding", "rolebindings"),
        rbac("ClusterRole", "clusterroles").cluster_scoped(),
        rbac("ClusterRoleBinding", "clusterrolebindings").cluster_scoped(),
    ]
}

/// What extends the API: webhooks and CRDs.
fn registrations() -> Vec<Resource> {
    let global = |group, kind, plural| {
        Resource::built_in(group, "v1", kind, plural)
            .cluster_scoped()
            .with_generation()
    };
    let mutating = (
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    );
    let validating = (
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    );
    let crd = ("CustomResourceDefinition", "customresourcedefinitions");
    vec![
        global("admissionregistration.k8s.io", mutating.0, mutating.1),
        global("admissionregistration.k8s.io", validating.0, validating.1),
        global("apiextensions.k8s.io", crd.0, crd.1)
            .with_status()
            .conditional(),
    ]
}

fn others() -> Vec<Resource> {
    vec![
        Resource::built_in("events.k8s.io", "v1", "Event", "events"),
        Resource::built_in("coordination.k8s.io", "v1", "Lease", "leases").conditional(),
    ]
}
