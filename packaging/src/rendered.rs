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

    /// What hack/render prints of config/manifests, in kustomize's order: with that image and those components, and for
    /// those kinds alone; without any, for those of the checkout.
    ///
    /// # Errors
    /// If a component does not exist, or kubectl is missing or fails.
    pub(crate) fn render(
        &self,
        image: &str,
        kinds: &[&Kind],
        components: &[&str],
    ) -> Result<Vec<Value>> {
        let folder = tempfile::tempdir().context("a temporary folder")?;
        let mut command = Command::new(self.root.join("hack/render"));
        if !kinds.is_empty() {
            let files = manifests::tree(&self.root.join("config"), kinds, &[])?;
            manifests::write(&files, folder.path())?;
            command.env("CONFIG_FOLDER", folder.path());
        }
        let output = command
            .env("BASE", "manifests")
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
        serde_saphyr::from_multiple(&text).context("cannot read the rendered YAML")
    }
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
