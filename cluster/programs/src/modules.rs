//! The programs of a cluster, and the Go modules that they are built from.

/// One Go module whose dependencies hold programs of a cluster.
#[derive(Debug)]
pub(crate) struct Module {
    /// A directory name for it.
    pub(crate) name: &'static str,
    /// Whether its programs are partly written in C.
    pub(crate) cgo: bool,
    /// The build tags, if any.
    pub(crate) tags: &'static str,
    /// Whether its programs are compiled without optimization, in two thirds of the time: tests call them for moments.
    pub(crate) quick: bool,
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
}

/// One program: its file name, the Go package it is built from, and in which module.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    pub(crate) module: &'static Module,
}

/// Programs that are built, kept and looked for together.
#[derive(Debug)]
pub(crate) struct Set {
    /// What they make up, as in "building the ...".
    pub(crate) name: &'static str,
    /// How long a first build takes on 2 cores, as in "about ...".
    pub(crate) duration: &'static str,
    pub(crate) modules: &'static [&'static Module],
    /// The smallest first, so that a missing build tool is reported early.
    pub(crate) programs: &'static [Program],
}

/// A module by its folder below `go/`, all in Go and without tags.
macro_rules! module {
    ($name:literal) => {
        Module {
            name: $name,
            cgo: false,
            tags: "",
            quick: false,
            go_mod: include_str!(concat!("../go/", $name, "/go.mod")),
            go_sum: include_str!(concat!("../go/", $name, "/go.sum")),
        }
    };
}

/// Kubernetes and the etcd it wants.
pub(crate) static CONTROL_PLANE: Module = module!("controlplane");

/// The Kubernetes programs of a node, of the control plane's release. They have a module of their own, so that a change
/// of it does not rebuild the control plane.
pub(crate) static KUBELET: Module = module!("node");
/// containerd; Debian's is too old for this kubelet.
static RUNTIME: Module = module!("runtime");
/// What containerd calls. The seccomp profile of a restricted pod needs libseccomp.
pub(crate) static OCI: Module = Module {
    cgo: true,
    tags: "seccomp",
    ..module!("oci")
};

/// What tests alone call: Helm 4, and promtool without Prometheus' service discovery, which is most of it. In one module,
/// what both are made of is compiled once.
static TESTS: Module = Module {
    tags: "remove_all_sd",
    quick: true,
    ..module!("tests")
};

/// The release of Helm before, which needs older versions of the same.
static HELM_3: Module = Module {
    quick: true,
    ..module!("helm3")
};

/// Helm 3.
pub(crate) static HELM_3_SET: Set = Set {
    name: "program of Helm 3",
    duration: "2 minutes",
    modules: &[&HELM_3],
    programs: &[Program {
        name: "helm",
        package: "helm.sh/helm/v3/cmd/helm",
        module: &HELM_3,
    }],
};

/// Helm 4.
pub(crate) static HELM_4_SET: Set = Set {
    name: "program of Helm 4",
    duration: "2 minutes",
    modules: &[&TESTS],
    programs: &[Program {
        name: "helm",
        package: "helm.sh/helm/v4/cmd/helm",
        module: &TESTS,
    }],
};

/// What tests alerts.
pub(crate) static PROMTOOL_SET: Set = Set {
    name: "promtool of Prometheus",
    duration: "2 minutes",
    modules: &[&TESTS],
    programs: &[Program {
        name: "promtool",
        package: "github.com/prometheus/prometheus/cmd/promtool",
        module: &TESTS,
    }],
};

/// The programs of a control plane.
pub(crate) static CONTROL_PLANE_SET: Set = Set {
    name: "Kubernetes control plane",
    duration: "5 minutes",
    modules: &[&CONTROL_PLANE],
    programs: &CONTROL_PLANE_PROGRAMS,
};

/// The programs of a real node.
pub(crate) static NODE_SET: Set = Set {
    name: "Kubernetes node",
    duration: "4 minutes",
    modules: &[&KUBELET, &RUNTIME, &OCI],
    programs: &NODE_PROGRAMS,
};

static NODE_PROGRAMS: [Program; 9] = [
    Program {
        name: "runc",
        package: "github.com/opencontainers/runc",
        module: &OCI,
    },
    Program {
        name: "ptp",
        package: "github.com/containernetworking/plugins/plugins/main/ptp",
        module: &OCI,
    },
    Program {
        name: "loopback",
        package: "github.com/containernetworking/plugins/plugins/main/loopback",
        module: &OCI,
    },
    Program {
        name: "host-local",
        package: "github.com/containernetworking/plugins/plugins/ipam/host-local",
        module: &OCI,
    },
    Program {
        name: "ctr",
        package: "github.com/containerd/containerd/v2/cmd/ctr",
        module: &RUNTIME,
    },
    Program {
        name: "containerd-shim-runc-v2",
        package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        module: &RUNTIME,
    },
    Program {
        name: "containerd",
        package: "github.com/containerd/containerd/v2/cmd/containerd",
        module: &RUNTIME,
    },
    Program {
        name: "kube-proxy",
        package: "k8s.io/kubernetes/cmd/kube-proxy",
        module: &KUBELET,
    },
    Program {
        name: "kubelet",
        package: "k8s.io/kubernetes/cmd/kubelet",
        module: &KUBELET,
    },
];

static CONTROL_PLANE_PROGRAMS: [Program; 5] = [
    Program {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
        module: &CONTROL_PLANE,
    },
    Program {
        name: "kubectl",
        package: "k8s.io/kubernetes/cmd/kubectl",
        module: &CONTROL_PLANE,
    },
    Program {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        module: &CONTROL_PLANE,
    },
    Program {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        module: &CONTROL_PLANE,
    },
    Program {
        name: "kube-scheduler",
        package: "k8s.io/kubernetes/cmd/kube-scheduler",
        module: &CONTROL_PLANE,
    },
];

/// The Kubernetes release that is built, like `v1.36.3`. It is read from the module's requirements, its only source.
pub fn kubernetes_version() -> &'static str {
    CONTROL_PLANE
        .go_mod
        .lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("require ")
                .strip_prefix("k8s.io/kubernetes ")
        })
        .find_map(|rest| rest.split_whitespace().next())
        .unwrap_or("v0.0.0")
}
