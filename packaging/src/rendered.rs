//! config/ as kustomize renders it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The root of a checkout.
#[derive(Debug)]
pub(crate) struct Checkout {
    root: PathBuf,
}

impl Checkout {
    /// # Errors
    /// If `root` has no config/default.
    pub(crate) fn at(root: &Path) -> Result<Self> {
        let root = root
            .canonicalize()
            .with_context(|| format!("{}", root.display()))?;
        if !root.join("config/default/kustomization.yaml").is_file() {
            bail!(
                "{} is not the root of the checkout: it has no config/default",
                root.display()
            );
        }
        Ok(Self { root })
    }

    /// The text of a file.
    ///
    /// # Errors
    /// If it cannot be read; the message names it.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        std::fs::read_to_string(self.root.join(path)).with_context(|| path.to_owned())
    }

    /// The version of the workspace.
    ///
    /// # Errors
    /// If Cargo.toml has none.
    pub(crate) fn version(&self) -> Result<String> {
        let text = self.read("Cargo.toml")?;
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix("version = "));
        found
            .map(|version| version.trim_matches('"').to_owned())
            .context("Cargo.toml: no line begins with `version = `")
    }

    /// The names of the folders of config/components, sorted.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(crate) fn components(&self) -> Result<Vec<String>> {
        const FOLDER: &str = "config/components";
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.root.join(FOLDER)).context(FOLDER)? {
            let entry = entry.context(FOLDER)?;
            if entry.path().join("kustomization.yaml").is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The objects of config/default with those components, in kustomize's order. The image is the one of
    /// config/manager.
    ///
    /// # Errors
    /// If a component does not exist, or kubectl is missing or fails.
    pub(crate) fn render(&self, components: &[&str]) -> Result<Vec<Value>> {
        self.run("default", "registry.invalid/my-operator:latest", components)
    }

    /// The objects of config/manifests with those components and that image, and the samples of the components.
    ///
    /// # Errors
    /// If a component does not exist, or kubectl is missing or fails.
    pub(crate) fn render_bundle(&self, image: &str, components: &[String]) -> Result<Vec<Value>> {
        let names: Vec<&str> = components.iter().map(String::as_str).collect();
        let mut objects = self.run("manifests", image, &names)?;
        for component in components {
            let samples = self.root.join("config/samples").join(component);
            if !samples.join("kustomization.yaml").is_file() {
                continue;
            }
            let entries =
                fs::read_dir(&samples).with_context(|| format!("{}", samples.display()))?;
            let mut paths: Vec<PathBuf> = entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.is_file() && !path.ends_with("kustomization.yaml"))
                .collect();
            paths.sort();
            for path in paths {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
                objects.extend(read(&text)?);
            }
        }
        Ok(objects)
    }

    /// What hack/render prints of a folder of config/.
    fn run(&self, base: &str, image: &str, components: &[&str]) -> Result<Vec<Value>> {
        let output = Command::new(self.root.join("hack/render"))
            .env("BASE", base)
            .arg(image)
            .args(components)
            .output()
            .context("hack/render")?;
        if !output.status.success() {
            bail!(
                "hack/render: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let text = String::from_utf8(output.stdout).context("hack/render prints UTF-8")?;
        read(&text)
    }
}

/// The objects of a stream of YAML documents; empty documents are left out.
///
/// # Errors
/// If a document is not YAML.
pub(crate) fn read(text: &str) -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(text).context("cannot read the rendered YAML")
}

/// `kind namespace/name` of an object, as messages say it.
pub(crate) fn title(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (kind, namespace, name) = (
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    );
    if namespace.is_empty() {
        format!("{kind} {name}")
    } else {
        format!("{kind} {namespace}/{name}")
    }
}
