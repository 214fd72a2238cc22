//! Where the programs of the control plane come from: `KUBEBUILDER_ASSETS`, the user's cache directory, or Go.
//!
//! The cache directory is `$XDG_CACHE_HOME/my-operator/cluster/<key>` (`~/.cache/...`), where the key is a hash of
//! everything that decides what the programs are. A program that is there is complete: builds go to another name
//! and are renamed. Directories of other keys are left alone; another checkout may use them.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::{Error, go};

/// One Go module whose dependencies hold programs of the control plane.
#[derive(Debug)]
pub(crate) struct Module {
    /// A directory name for it.
    pub(crate) name: &'static str,
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

/// Kubernetes and the etcd it wants. Separate from kwok, whose dependencies would move those of Kubernetes.
static CONTROL_PLANE: Module = Module {
    name: "controlplane",
    go_mod: include_str!("../go/controlplane/go.mod"),
    go_sum: include_str!("../go/controlplane/go.sum"),
};
static KWOK: Module = Module {
    name: "kwok",
    go_mod: include_str!("../go/kwok/go.mod"),
    go_sum: include_str!("../go/kwok/go.sum"),
};

/// Every program, the smallest first: whoever lacks something to build them learns it early.
pub(crate) static PROGRAMS: [Program; 6] = [
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
    Program {
        name: "kwok",
        package: "sigs.k8s.io/kwok/cmd/kwok",
        module: &KWOK,
    },
];

/// The Kubernetes release that is built, like `v1.36.3`: what the module requires, so that it is written once.
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

/// The programs of a control plane, all present.
#[derive(Debug, Clone)]
pub struct Programs {
    paths: BTreeMap<&'static str, PathBuf>,
}

impl Programs {
    /// Finds the programs and builds with Go those that are found nowhere, with progress on standard error.
    ///
    /// Blocks: for minutes the first time, for microseconds afterwards.
    pub fn ensure() -> Result<Self, Error> {
        let assets = env::var_os("KUBEBUILDER_ASSETS")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from);
        let cache = cache_directory()?;
        let mut paths = BTreeMap::new();
        let mut missing = Vec::new();
        for program in &PROGRAMS {
            let candidates = assets
                .iter()
                .chain([&cache])
                .map(|directory| directory.join(program.name));
            if let Some(path) = candidates.into_iter().find(|path| path.is_file()) {
                paths.insert(program.name, path);
            } else {
                missing.push(program);
            }
        }
        if !missing.is_empty() {
            go::build(&missing, &cache)?;
            paths.extend(
                missing
                    .iter()
                    .map(|program| (program.name, cache.join(program.name))),
            );
        }
        Ok(Self { paths })
    }

    /// The path of a program of the control plane. Another name is returned as it is, to be found on `PATH`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.paths
            .get(name)
            .cloned()
            .unwrap_or_else(|| PathBuf::from(name))
    }
}

/// `$XDG_CACHE_HOME/my-operator/cluster/<key>`, whether it exists or not.
pub fn cache_directory() -> Result<PathBuf, Error> {
    let base = base_directory("XDG_CACHE_HOME", ".cache").ok_or(Error::NoHome {
        what: "the control plane's programs",
        variable: "XDG_CACHE_HOME",
    })?;
    let (os, arch) = go::platform();
    let key = key(&[&CONTROL_PLANE, &KWOK], &go::recipe(), os, arch);
    Ok(base.join("my-operator/cluster").join(key))
}

/// `$XDG_STATE_HOME/my-operator/cluster` (`~/.local/state/...`): what there is to know of a cluster in the background.
pub fn state_directory() -> Result<PathBuf, Error> {
    let base = base_directory("XDG_STATE_HOME", ".local/state").ok_or(Error::NoHome {
        what: "a cluster in the background",
        variable: "XDG_STATE_HOME",
    })?;
    Ok(base.join("my-operator/cluster"))
}

/// A directory of the XDG base directory specification, which ignores relative paths.
fn base_directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |path: PathBuf| Path::is_absolute(&path).then_some(path);
    env::var_os(variable)
        .and_then(|value| absolute(value.into()))
        .or_else(|| {
            env::var_os("HOME")
                .and_then(|home| absolute(home.into()))
                .map(|home| home.join(below_home))
        })
}

/// A hash of everything that decides what the programs are.
fn key(modules: &[&Module], recipe: &str, os: &str, arch: &str) -> String {
    let mut hash = Sha256::new();
    for part in modules
        .iter()
        .flat_map(|module| [module.go_mod, module.go_sum])
        .chain([recipe, os, arch])
    {
        // With its length before it, so that no two lists of parts look alike.
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let mut text = format!("{:x}", hash.finalize());
    text.truncate(20);
    text
}

#[cfg(test)]
mod tests {
    use super::{CONTROL_PLANE, KWOK, Module, key, kubernetes_version};

    #[test]
    fn the_version_is_that_of_the_module() {
        let version = kubernetes_version();
        assert!(version.starts_with("v1."), "{version}");
        assert!(
            CONTROL_PLANE
                .go_mod
                .contains(&format!("k8s.io/kubernetes {version}"))
        );
    }

    #[test]
    fn the_key_changes_with_everything_that_decides_what_is_built() {
        let base = key(&[&CONTROL_PLANE, &KWOK], "recipe", "linux", "amd64");
        assert_eq!(
            base,
            key(&[&CONTROL_PLANE, &KWOK], "recipe", "linux", "amd64")
        );
        let sum = Module {
            go_sum: "example.org/x v1.0.0 h1:other=\n",
            ..CONTROL_PLANE
        };
        let module = Module {
            go_mod: "module other\n",
            ..CONTROL_PLANE
        };
        let others = [
            key(&[&sum, &KWOK], "recipe", "linux", "amd64"),
            key(&[&module, &KWOK], "recipe", "linux", "amd64"),
            key(&[&CONTROL_PLANE, &KWOK], "other recipe", "linux", "amd64"),
            key(&[&CONTROL_PLANE, &KWOK], "recipe", "darwin", "amd64"),
            key(&[&CONTROL_PLANE, &KWOK], "recipe", "linux", "arm64"),
        ];
        assert!(
            others.iter().all(|other| *other != base),
            "{base} {others:?}"
        );
    }
}
