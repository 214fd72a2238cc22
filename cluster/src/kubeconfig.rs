//! kubeconfig files: one per identity, with the authority and the token inside, so that a file can be copied.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::Error;

/// The name of cluster and context in every kubeconfig written here.
const NAME: &str = "my-operator-cluster";

/// Writes the kubeconfig of `user`, who has `token` and works in `namespace`, to `path`.
pub(crate) fn write(
    path: &Path,
    server: &str,
    ca: &str,
    user: &str,
    token: &str,
    namespace: &str,
) -> Result<(), Error> {
    let ca = STANDARD.encode(ca);
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {NAME}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    token: {token}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {user}
    namespace: {namespace}
current-context: {NAME}
"
    );
    fs::write(path, text).map_err(Error::file("write", path))
}

/// A client of the cluster that the kubeconfig at `path` names.
pub(crate) async fn client(path: &Path) -> Result<kube::Client, Error> {
    let refuse = |message: String| Error::Kubeconfig {
        path: path.to_owned(),
        message,
    };
    let kubeconfig =
        kube::config::Kubeconfig::read_from(path).map_err(|error| refuse(error.to_string()))?;
    let mut config = kube::Config::from_custom_kubeconfig(
        kubeconfig,
        &kube::config::KubeConfigOptions::default(),
    )
    .await
    .map_err(|error| refuse(error.to_string()))?;
    // A proxy of the environment leads nowhere from the loopback interface.
    config.proxy_url = None;
    kube::Client::try_from(config).map_err(Error::api("make a client of the cluster"))
}
