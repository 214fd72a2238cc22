//! config/ as kustomize renders it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use my_operator::kinds::Kind;
use my_operator::manifests;
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

    /// What hack/render prints of that folder of config/, in kustomize's order: with that image and those components, and
    /// for those kinds alone; without any, for those of the checkout. With kinds, the component `namespaced` is for
    /// those namespaces; without any, for those of the checkout.
    ///
    /// # Errors
    /// If a component does not exist, or kubectl is missing or fails.
    pub(crate) fn render(
        &self,
        base: &str,
        image: &str,
        kinds: &[&Kind],
        namespaces: &[String],
        components: &[&str],
    ) -> Result<Vec<Value>> {
        let folder = tempfile::tempdir().context("a temporary folder")?;
        let mut command = Command::new(self.root.join("hack/render"));
        if !kinds.is_empty() {
            let files = manifests::tree(&self.root.join("config"), kinds, namespaces)?;
            manifests::write(&files, folder.path())?;
            command.env("CONFIG_FOLDER", folder.path());
        }
        let output = command
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
