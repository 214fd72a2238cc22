//! Helm, for what installs the chart.

use std::path::Path;
use std::process::Command;

use my_operator_cluster::{Cluster, binaries};

use crate::checkout;
use crate::programs::{Said, run};

/// A release of `dist/chart`.
pub struct Release {
    pub cluster: &'static Cluster,
    pub name: &'static str,
    pub namespace: &'static str,
}

impl Release {
    /// `helm ARGS --namespace NAMESPACE`, split at blanks: `install blue dist/chart --wait`.
    pub fn helm(&self, args: &str) -> impl Future<Output = Said> + use<> {
        let mut command = Command::new(binaries::helm().unwrap());
        command
            .current_dir(checkout())
            .args(args.split_whitespace())
            .args(["--namespace", self.namespace]);
        let kubectl = self.cluster.kubectl();
        for (name, value) in kubectl.get_envs() {
            let value = value.unwrap_or_default();
            command.env(name, value);
            if name == "HOME" {
                // Nothing of Helm's is left behind, and nothing of the user's is read.
                for kind in ["CONFIG", "CACHE", "DATA"] {
                    let folder = Path::new(value).join("helm").join(kind);
                    command.env(format!("HELM_{kind}_HOME"), folder);
                }
            }
        }
        run(&mut command, "")
    }

    /// The flag of Helm 4 that turns server-side apply off, as it is in Helm 3. With server-side apply an item of a list
    /// cannot be removed in which another writer has a field, such as the `caBundle` of a webhook: that field would
    /// stay alone.
    pub async fn client_side(&self) -> &'static str {
        let mut command = Command::new(binaries::helm().unwrap());
        let version = run(command.args(["version", "--template", "{{.Version}}"]), "");
        match version.await.good() {
            version if version.starts_with("v3") => "",
            _ => "--server-side=false",
        }
    }

    /// `helm install` with these arguments.
    pub fn install(&self, args: &str) -> impl Future<Output = Said> + use<> {
        self.helm(&format!("install {} dist/chart {args}", self.name))
    }

    /// `helm upgrade` to these values alone.
    pub fn upgrade(&self, args: &str) -> impl Future<Output = Said> + use<> {
        self.helm(&format!("upgrade {} dist/chart {args}", self.name))
    }
}
