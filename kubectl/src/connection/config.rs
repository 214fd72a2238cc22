//! The configuration of the client: the kubeconfig, and the flags that override it.

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use my_operator_admit::{read, yaml};
use resilient_kube_client as client;

use super::failure::{causes, root};
use super::{Failure, Flags};

/// The configuration that the flags stand for.
pub(super) async fn config(flags: &Flags) -> Result<Config, Failure> {
    let kubeconfig = kubeconfig(flags)?;
    let named = flags.context.is_some() || flags.cluster.is_some() || flags.user.is_some();
    let configured = kubeconfig.filter(|it| named || it.current_context.is_some());
    let mut config = match (configured, &flags.server) {
        (Some(kubeconfig), _) => from_kubeconfig(kubeconfig, flags).await?,
        (None, Some(server)) => {
            let mut config = Config::new(url(server)?);
            let proxy = client::choose_proxy(&config.cluster_url, None);
            config.proxy_url = proxy.map_err(|error| error.to_string())?;
            config
        }
        (None, None) => Config::incluster().map_err(|_| {
            "no cluster is configured: set KUBECONFIG, create ~/.kube/config, or use --kubeconfig or --server"
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
    format!("cannot use the kubeconfig {}: {why}", path.display()).into()
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
        return Err(format!("auth info {user:?} does not exist").into());
    }
    // --server replaces what may be missing in the file.
    if let Some(server) = &flags.server {
        let server = url(server)?.to_string();
        for cluster in kubeconfig
            .clusters
            .iter_mut()
            .filter_map(|it| it.cluster.as_mut())
        {
            cluster.server = Some(server.clone());
            // The name that the file has for another address.
            cluster.tls_server_name = None;
        }
    }
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let config = client::from_kubeconfig(kubeconfig, &options).await;
    Ok(config.map_err(|error| format!("cannot use the kubeconfig: {}", causes(&error)))?)
}

/// The flags go before the file.
fn apply(config: &mut Config, flags: &Flags) -> Result<(), Failure> {
    // An empty one, as of a variable that is not set, is none, as with kubectl.
    if let Some(namespace) = flags.namespace.as_ref().filter(|it| !it.is_empty()) {
        config.default_namespace.clone_from(namespace);
    }
    if let Some(path) = &flags.certificate_authority {
        if flags.insecure_skip_tls_verify {
            let text = "specifying a root certificates file with the insecure flag is not allowed";
            return Err(text.into());
        }
        // Who names an authority wants it to count, whatever the kubeconfig says.
        config.root_cert_file = Some(path.clone());
        config.accept_invalid_certs = false;
    }
    if flags.insecure_skip_tls_verify {
        config.accept_invalid_certs = true;
    }
    if let Some(name) = &flags.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    let user = &mut config.auth_info;
    if let Some(token) = &flags.token {
        // It replaces all credentials, but not whom to act as: the command would have more rights than were asked for.
        *user = AuthInfo {
            token: Some(token.clone().into()),
            ..client::only_impersonation(user)
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
        return Err(text.into());
    }
    client::keep_credentials_to_tls(config);
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
    let url = full.parse();
    Ok(url.map_err(|error| format!("--server: {server:?} is no URL: {error}"))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

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

    /// The configuration of a kubeconfig with that address, and a user with a token who acts as another.
    async fn configured(server: &str, flags: Flags) -> Result<Config, String> {
        let text = json!({
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"token": "secret", "as": "viewer", "as-groups": ["g"]}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, text.to_string()).unwrap();
        let kubeconfig = Some(path);
        let found = config(&Flags {
            kubeconfig,
            ..flags
        })
        .await;
        found.map_err(|failure| failure.to_string())
    }

    #[tokio::test]
    async fn a_credential_plugin_learns_of_no_proxy_that_the_kubeconfig_does_not_have() {
        for own in [None, Some("http://proxy:1/")] {
            let kubeconfig = json!({
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "proxy-url": own}}],
                "users": [{"name": "u", "user": {"exec": {"command": "true", "provideClusterInfo": true,
                    "apiVersion": "client.authentication.k8s.io/v1"}}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            });
            let kubeconfig = serde_json::from_value(kubeconfig).unwrap();
            let options = KubeConfigOptions::default();
            let config = client::from_kubeconfig(kubeconfig, &options).await.unwrap();
            let cluster = config.auth_info.exec.unwrap().cluster.unwrap();
            assert_eq!(cluster.proxy_url.as_deref(), own);
            let chosen = config.proxy_url.map(|proxy| proxy.to_string());
            assert_eq!(chosen.as_deref(), own);
        }
    }

    #[tokio::test]
    async fn credentials_go_over_tls_alone() {
        let tls = configured("https://h:6443", Flags::default())
            .await
            .unwrap();
        assert!(tls.auth_info.token.is_some());
        for (server, flag) in [
            ("http://h:80", None),
            // Without a scheme, it is http.
            ("https://h:6443", Some("h:6443")),
            ("h:6443", None),
        ] {
            for token in [None, Some("given".to_owned())] {
                let flags = Flags {
                    server: flag.map(str::to_owned),
                    token,
                    client_key: Some("key".into()),
                    ..Flags::default()
                };
                let user = configured(server, flags).await.unwrap().auth_info;
                assert!(
                    user.token.is_none() && user.client_key.is_none(),
                    "{server}"
                );
                assert_eq!(user.impersonate.as_deref(), Some("viewer"));
            }
        }
    }

    #[tokio::test]
    async fn an_authority_that_is_named_is_the_one_that_counts() {
        let certificate_authority = Some(PathBuf::from("/ca.pem"));
        let flags = Flags {
            certificate_authority,
            ..Flags::default()
        };
        let config = configured("https://h", flags.clone()).await.unwrap();
        assert!(!config.accept_invalid_certs && config.root_cert_file.is_some());
        let insecure_skip_tls_verify = true;
        let both = Flags {
            insecure_skip_tls_verify,
            ..flags
        };
        let error = configured("https://h", both).await.unwrap_err();
        assert!(error.contains("is not allowed"), "{error}");
    }

    #[tokio::test]
    async fn a_token_of_the_flags_acts_as_whom_the_kubeconfig_says() {
        let flags = Flags {
            token: Some("given".to_owned()),
            ..Flags::default()
        };
        let user = configured("https://h", flags).await.unwrap().auth_info;
        assert!(user.token.is_some());
        assert_eq!(user.impersonate.as_deref(), Some("viewer"));
        assert_eq!(user.impersonate_groups, Some(vec!["g".to_owned()]));
    }
}
