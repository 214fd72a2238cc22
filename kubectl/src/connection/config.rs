//! The configuration of the client: the kubeconfig, and the flags that override it.

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use my_operator_admit::{read, yaml};

use super::failure::{causes, root};
use super::{Failure, Flags};

/// The configuration that the flags stand for.
pub(super) async fn config(flags: &Flags) -> Result<Config, Failure> {
    let kubeconfig = kubeconfig(flags)?;
    let named = flags.context.is_some() || flags.cluster.is_some() || flags.user.is_some();
    let configured = kubeconfig.filter(|it| named || it.current_context.is_some());
    let mut config = match (configured, &flags.server) {
        (Some(kubeconfig), _) => from_kubeconfig(kubeconfig, flags).await?,
        (None, Some(server)) => Config::new(url(server)?),
        (None, None) => Config::incluster().map_err(|_| {
            Failure::Message(
                "no cluster is configured: set KUBECONFIG, create ~/.kube/config, or use --kubeconfig or --server"
                    .to_owned(),
            )
        })?,
    };
    apply(&mut config, flags)?;
    Ok(config)
}

/// The kubeconfig, if there is any.
fn kubeconfig(flags: &Flags) -> Result<Option<Kubeconfig>, Failure> {
    if let Some(path) = &flags.kubeconfig {
        return Kubeconfig::read_from(path)
            .map(Some)
            .map_err(|error| unusable(path, &error));
    }
    if let Some(paths) = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        // kubectl skips the files of the list that do not exist; if there is none at all, no cluster is configured.
        let existing = std::env::split_paths(&paths)
            .filter(|path| !path.as_os_str().is_empty() && path.exists());
        let mut merged: Option<Kubeconfig> = None;
        for path in existing {
            let next = Kubeconfig::read_from(&path).map_err(|error| unusable(&path, &error))?;
            merged = Some(match merged {
                None => next,
                Some(before) => before
                    .merge(next)
                    .map_err(|error| unusable(&path, &error))?,
            });
        }
        return Ok(merged);
    }
    let home = std::env::home_dir().map(|home| home.join(".kube/config"));
    let Some(path) = home.filter(|path| path.exists()) else {
        return Ok(None);
    };
    Kubeconfig::read_from(&path)
        .map(Some)
        .map_err(|error| unusable(&path, &error))
}

/// Why the file cannot be used, in one line.
fn unusable(path: &Path, error: &KubeconfigError) -> Failure {
    let why = match error {
        KubeconfigError::ReadConfig(error, _) => root(error),
        KubeconfigError::Parse(_) => mistake(path).unwrap_or_else(|| causes(error)),
        error => causes(error),
    };
    Failure::Message(format!(
        "cannot use the kubeconfig {}: {why}",
        path.display()
    ))
}

/// The first mistake in the YAML of a file. The library of the client explains it with options of its own.
fn mistake(path: &Path) -> Option<String> {
    let text = read::decode(std::fs::read(path).ok()?).ok()?;
    let mut found: Option<String> = None;
    yaml::documents(&text, &mut |document| {
        if let Err(wrong) = document.content {
            found.get_or_insert(format!("line {}: {}", wrong.line, wrong.message));
        }
    });
    found
}

async fn from_kubeconfig(mut kubeconfig: Kubeconfig, flags: &Flags) -> Result<Config, Failure> {
    // kubectl takes a user of --user that does not exist for a mistake; kube connects without any.
    if let Some(user) = &flags.user
        && !kubeconfig.auth_infos.iter().any(|it| &it.name == user)
    {
        return Err(Failure::Message(format!(
            "auth info {user:?} does not exist"
        )));
    }
    // --server replaces what may be missing in the file.
    if let Some(server) = &flags.server {
        for cluster in kubeconfig
            .clusters
            .iter_mut()
            .filter_map(|it| it.cluster.as_mut())
        {
            cluster.server = Some(server.clone());
        }
    }
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| Failure::Message(format!("cannot use the kubeconfig: {}", causes(&error))))
}

/// The flags go before the file.
fn apply(config: &mut Config, flags: &Flags) -> Result<(), Failure> {
    if let Some(server) = &flags.server {
        config.cluster_url = url(server)?;
    }
    // An empty one, as of a variable that is not set, is none, as with kubectl.
    if let Some(namespace) = flags.namespace.as_ref().filter(|it| !it.is_empty()) {
        config.default_namespace.clone_from(namespace);
    }
    if let Some(path) = &flags.certificate_authority {
        config.root_cert_file = Some(path.clone());
    }
    if flags.insecure_skip_tls_verify {
        config.accept_invalid_certs = true;
    }
    if let Some(name) = &flags.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    let user = &mut config.auth_info;
    if let Some(token) = &flags.token {
        // A token of the flags is the whole identity, as with kubectl.
        *user = AuthInfo {
            token: Some(token.clone().into()),
            ..AuthInfo::default()
        };
    }
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    if let Some(path) = &flags.client_certificate {
        (user.client_certificate, user.client_certificate_data) = (Some(text(path)), None);
    }
    if let Some(path) = &flags.client_key {
        (user.client_key, user.client_key_data) = (Some(text(path)), None);
    }
    if let Some(name) = &flags.as_user {
        user.impersonate = Some(name.clone());
    }
    if !flags.as_group.is_empty() {
        user.impersonate_groups = Some(flags.as_group.clone());
    }
    if let Some(uid) = &flags.as_uid {
        user.impersonate_uid = Some(uid.clone());
    }
    if user.impersonate.is_none()
        && (user.impersonate_groups.is_some() || user.impersonate_uid.is_some())
    {
        let text = "--as-group and --as-uid need --as: name the user to act as";
        return Err(Failure::Message(text.to_owned()));
    }
    // A failed request is shown at once; --follow tries again by itself.
    config.default_retry = false;
    Ok(())
}

/// kubectl takes an address without a scheme for http.
fn url(server: &str) -> Result<http::Uri, Failure> {
    let full = if server.contains("://") {
        server.to_owned()
    } else {
        format!("http://{server}")
    };
    full.parse()
        .map_err(|error| Failure::Message(format!("--server: {server:?} is no URL: {error}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_kubeconfig_that_cannot_be_used_is_explained_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        for (text, why) in [
            ("a: 1\na: 2\n", "line 2: key \"a\" already set in map"),
            ("a: [\n", "line 1: "),
            ("clusters: 5\n", "line 1 column 11"),
        ] {
            let path = folder.path().join("config");
            std::fs::write(&path, text).unwrap();
            let error = unusable(&path, &Kubeconfig::read_from(&path).unwrap_err()).to_string();
            let start = format!("error: cannot use the kubeconfig {}: ", path.display());
            assert!(error.starts_with(&start) && error.contains(why), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let path = Path::new("/nonexistent");
        assert_eq!(
            unusable(path, &Kubeconfig::read_from(path).unwrap_err()).to_string(),
            "error: cannot use the kubeconfig /nonexistent: No such file or directory"
        );
    }
}
