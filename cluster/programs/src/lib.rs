//! Where the programs come from that the local cluster and the tests call: `KUBEBUILDER_ASSETS`, the user's cache
//! directory, or a build with Go.
//!
//! Each [`Set`] has a directory of its own, so that a cluster without a real node does not build the node's programs.
//! The directory is `$XDG_CACHE_HOME/my-operator/cluster/<key>` (`~/.cache/...`), where the key is a hash of everything
//! that the programs depend on. A program in it is complete: builds write to another name and rename. Directories of
//! other keys are kept; another checkout may use them.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

mod error;
mod go;
mod modules;
pub mod needs;

pub use error::{Error, report};
pub use go::{log_tail, platform};
pub use modules::kubernetes_version;
use modules::{CONTROL_PLANE_SET, HELM_3_SET, HELM_4_SET, Module, NODE_SET, PROMTOOL_SET, Set};

/// The programs of a control plane, and those of a real node if it is to have one; all present.
#[derive(Debug, Clone)]
pub struct Programs {
    paths: BTreeMap<&'static str, PathBuf>,
    node: Option<PathBuf>,
}

impl Programs {
    /// Finds the programs of a control plane and builds with Go those that are found nowhere, with progress on
    /// standard error.
    ///
    /// Blocks: for minutes the first time, for microseconds afterwards.
    pub fn ensure() -> Result<Self, Error> {
        let assets = env::var_os("KUBEBUILDER_ASSETS")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from);
        Ok(Self {
            paths: find_or_build(&CONTROL_PLANE_SET, assets.as_deref())?,
            node: None,
        })
    }

    /// The same, and the programs of a real node. Fails first if this machine cannot have one.
    pub fn ensure_with_node() -> Result<Self, Error> {
        needs::check()?;
        let mut programs = Self::ensure()?;
        programs.paths.extend(find_or_build(&NODE_SET, None)?);
        programs.node = Some(node_cache_directory()?);
        Ok(programs)
    }

    /// The directory with the programs of a node, which call each other.
    pub fn node_directory(&self) -> Option<&Path> {
        self.node.as_deref()
    }

    /// The path of a program of the cluster. Another name is returned as it is, to be found on `PATH`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.paths
            .get(name)
            .cloned()
            .unwrap_or_else(|| PathBuf::from(name))
    }
}

/// The paths of the programs of `set`: in `assets`, in the cache, or built into it.
fn find_or_build(
    set: &'static Set,
    assets: Option<&Path>,
) -> Result<BTreeMap<&'static str, PathBuf>, Error> {
    let cache = directory_of(set)?;
    let mut paths = BTreeMap::new();
    let mut missing = Vec::new();
    for program in set.programs {
        let mut candidates = assets
            .into_iter()
            .chain([cache.as_path()])
            .map(|directory| directory.join(program.name));
        if let Some(path) = candidates.find(|path| path.is_file()) {
            paths.insert(program.name, path);
        } else {
            missing.push(program);
        }
    }
    if !missing.is_empty() {
        go::build(set, &missing, &cache)?;
        paths.extend(
            missing
                .iter()
                .map(|program| (program.name, cache.join(program.name))),
        );
    }
    Ok(paths)
}

/// The program of Helm that `HELM` names: `3`, `4` (the default), or a path. One that is not there yet is built with Go.
///
/// Blocks: for minutes the first time, for microseconds afterwards.
pub fn helm() -> Result<PathBuf, Error> {
    let set = match env::var("HELM").unwrap_or_default().as_str() {
        "" | "4" => &HELM_4_SET,
        "3" => &HELM_3_SET,
        path => return Ok(PathBuf::from(path)),
    };
    only_program(set)
}

/// The promtool of Prometheus, which tests alerts. One that is not there yet is built with Go.
///
/// Blocks: for minutes the first time, for microseconds afterwards.
pub fn promtool() -> Result<PathBuf, Error> {
    only_program(&PROMTOOL_SET)
}

/// The path of the program of a set of one.
fn only_program(set: &'static Set) -> Result<PathBuf, Error> {
    let programs = find_or_build(set, None)?;
    Ok(programs.into_values().collect())
}

/// Where the control plane's programs are: `$XDG_CACHE_HOME/my-operator/cluster/<key>`, whether it exists or not.
pub fn cache_directory() -> Result<PathBuf, Error> {
    directory_of(&CONTROL_PLANE_SET)
}

/// Where a real node's programs are, whether the directory exists or not.
pub fn node_cache_directory() -> Result<PathBuf, Error> {
    directory_of(&NODE_SET)
}

fn directory_of(set: &Set) -> Result<PathBuf, Error> {
    let base = base_directory("XDG_CACHE_HOME", ".cache").ok_or(Error::NoHome {
        what: "the cluster's programs",
        variable: "XDG_CACHE_HOME",
    })?;
    let (os, arch) = go::platform();
    let key = key(set.modules, &go::recipe(set), os, arch);
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

/// A hash of everything that the programs depend on.
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
    use super::{Module, key, kubernetes_version};
    use crate::modules::{CONTROL_PLANE, KUBELET, OCI};

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
    fn node_and_control_plane_are_of_one_release() {
        let required = |module: &Module| {
            let lines = module.go_mod.lines().map(str::trim);
            lines
                .filter(|line| line.starts_with("k8s.io/"))
                .map(str::to_owned)
                .collect::<std::collections::BTreeSet<_>>()
        };
        let (node, control_plane) = (required(&KUBELET), required(&CONTROL_PLANE));
        assert!(
            node.iter()
                .any(|line| line.starts_with("k8s.io/kubernetes "))
        );
        let replaced = |line: &&String| line.contains("=>");
        let node: Vec<_> = node.iter().filter(replaced).collect();
        let control_plane: Vec<_> = control_plane.iter().filter(replaced).collect();
        assert_eq!(node, control_plane);
        let version = format!("k8s.io/kubernetes {}", kubernetes_version());
        assert!(KUBELET.go_mod.contains(&version), "{version}");
    }

    #[test]
    fn the_key_changes_with_everything_that_decides_what_is_built() {
        let base = key(&[&CONTROL_PLANE, &OCI], "recipe", "linux", "amd64");
        assert_eq!(
            base,
            key(&[&CONTROL_PLANE, &OCI], "recipe", "linux", "amd64")
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
            key(&[&sum, &OCI], "recipe", "linux", "amd64"),
            key(&[&module, &OCI], "recipe", "linux", "amd64"),
            key(&[&CONTROL_PLANE, &OCI], "other recipe", "linux", "amd64"),
            key(&[&CONTROL_PLANE, &OCI], "recipe", "darwin", "amd64"),
            key(&[&CONTROL_PLANE, &OCI], "recipe", "linux", "arm64"),
        ];
        assert!(
            others.iter().all(|other| *other != base),
            "{base} {others:?}"
        );
    }
}
