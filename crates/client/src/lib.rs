#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answers;
pub mod backoff;
pub mod clock;
pub mod pages;
pub mod proxy;
mod rejection;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response, Uri};
use http_body_util::{Either, Full, Limited};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{AuthError, Body, ClientBuilder, ConfigExt as _};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use thiserror::Error;
use tower::{BoxError, Service, ServiceBuilder};

pub use answers::{Answers, Metrics};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection on which nothing happens is probed after this time, and then as often.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
/// A connection is closed when sent data, including probes, is not acknowledged for this long. macOS has no such option
/// (`TCP_USER_TIMEOUT`, tcp(7)): there, probes alone close a connection.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// Whether the process runs in a pod: the kubelet gives every pod these.
pub fn in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
        && std::path::Path::new("/var/run/secrets/kubernetes.io/serviceaccount/token").exists()
}

/// Finds the API server: from the kubeconfig in `KUBECONFIG` or `~/.kube/config`, else from the pod's own
/// ServiceAccount. `context` is one of the kubeconfig's, in place of its current context.
///
/// Connections time out after 5 seconds and writes after 30, and kube's own retries are off: callers have a backoff of
/// their own.
///
/// # Errors
/// When there is none, or it cannot be read.
pub async fn config(context: Option<&str>) -> anyhow::Result<Config> {
    let mut config = match kubeconfig_paths() {
        paths if paths.is_empty() && in_cluster() => {
            Config::incluster().context("cannot use the pod's ServiceAccount")?
        }
        paths if paths.is_empty() => {
            anyhow::bail!("no cluster is configured: set KUBECONFIG, or make ~/.kube/config")
        }
        paths => {
            let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
            let names = names.join(":");
            let what = || format!("cannot use the kubeconfig {names}");
            let kubeconfig = Kubeconfig::from_env()
                .and_then(|given| given.map_or_else(Kubeconfig::read, Ok))
                .with_context(what)?;
            let options = KubeConfigOptions {
                context: context.map(str::to_owned),
                ..KubeConfigOptions::default()
            };
            from_kubeconfig(kubeconfig, &options)
                .await
                .with_context(what)?
        }
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    // Every caller has its own backoff; another one inside the client would only hide errors.
    config.default_retry = false;
    Ok(config)
}

/// Why a kubeconfig cannot be used.
#[derive(Debug, Error)]
pub enum Unusable {
    /// kube cannot read or use it.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// Its proxy cannot be used.
    #[error(transparent)]
    Proxy(#[from] proxy::Unusable),
}

/// The configuration for a context of a kubeconfig. As with client-go, and not with kube alone: its proxy is that of
/// [`proxy`], and no credentials go over a connection without TLS.
///
/// # Errors
/// When something that the context names is missing or cannot be read, or its proxy is not an address of one.
pub async fn from_kubeconfig(
    mut kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<Config, Unusable> {
    // So that kube does not look into the environment, where it takes offence at what is none of its business.
    let none = "http://proxy.invalid/";
    for cluster in kubeconfig
        .clusters
        .iter_mut()
        .filter_map(|it| it.cluster.as_mut())
    {
        let own = cluster.proxy_url.take().filter(|own| !own.is_empty());
        cluster.proxy_url = Some(own.unwrap_or_else(|| none.to_owned()));
    }
    let mut config = Config::from_custom_kubeconfig(kubeconfig, options).await?;
    // kube hands it on to a credential plugin.
    let exec = config.auth_info.exec.as_mut();
    if let Some(cluster) = exec.and_then(|exec| exec.cluster.as_mut()) {
        cluster.proxy_url = cluster.proxy_url.take().filter(|own| own != none);
    }
    let own = config.proxy_url.take().map(|own| own.to_string());
    config.proxy_url = choose_proxy(
        &config.cluster_url,
        own.filter(|own| own != none).as_deref(),
    )?;
    keep_credentials_to_tls(&mut config);
    Ok(config)
}

/// The proxy for calls to `server`, by this process's environment, where `own` is that of the kubeconfig.
///
/// # Errors
/// When what is configured is not the address of a proxy.
pub fn choose_proxy(server: &Uri, own: Option<&str>) -> Result<Option<Uri>, proxy::Unusable> {
    proxy::choose(server, own, |name| std::env::var(name).ok())
}

/// Removes credentials that would go over a connection without TLS, as client-go does ("only try to read the auth
/// information if we are secure"). Impersonation stays.
pub fn keep_credentials_to_tls(config: &mut Config) {
    if config.cluster_url.scheme() != Some(&Scheme::HTTPS) {
        config.auth_info = only_impersonation(&config.auth_info);
    }
}

/// The impersonation of a user, without any credentials.
pub fn only_impersonation(user: &AuthInfo) -> AuthInfo {
    AuthInfo {
        impersonate: user.impersonate.clone(),
        impersonate_uid: user.impersonate_uid.clone(),
        impersonate_groups: user.impersonate_groups.clone(),
        impersonate_user_extra: user.impersonate_user_extra.clone(),
        ..AuthInfo::default()
    }
}

/// The configured kubeconfig files: all in `KUBECONFIG`, whether or not they exist, or `~/.kube/config` if it exists.
fn kubeconfig_paths() -> Vec<PathBuf> {
    if let Some(paths) = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        return std::env::split_paths(&paths)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
    }
    let home = std::env::home_dir().map(|home| home.join(".kube/config"));
    home.filter(|path| path.exists()).into_iter().collect()
}

/// The body of an answer to a client of [`connect`].
pub type Answer = Limited<Either<Incoming, Full<Bytes>>>;

/// Makes TCP connections that time out when the peer disappears silently, for example when its node loses power.
/// Otherwise requests would hang on such a connection for a quarter of an hour (tcp_retries2 in tcp(7)).
pub fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // The scheme is https: TLS is a layer above.
    tcp.enforce_http(false);
    // The end of the TLS handshake and the first request are two writes. With Nagle's algorithm, the second waits until
    // the API server acknowledges the first, which Linux delays by 40 ms: for every new connection.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_AFTER));
    tcp.set_keepalive_interval(Some(KEEPALIVE_EVERY));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}

/// The builder of a client with the layer [`Answers`], over connections that `connector` makes: all bytes to the API
/// server pass through it last. Most callers want [`tcp`].
///
/// # Errors
/// When the TLS settings of the configuration, or the credentials, cannot be used.
///
/// # Panics
/// When rustls cannot choose its cryptography, because both `ring` and `aws-lc-rs` are compiled in, or neither, and the
/// program has not called `CryptoProvider::install_default`.
pub fn connect<W>(
    config: &Config,
    metrics: &Metrics,
    connector: W,
) -> anyhow::Result<
    ClientBuilder<
        impl Service<
            Request<Body>,
            Response = Response<Answer>,
            Error = BoxError,
            Future: Send + 'static,
        >
        + Clone
        + Send
        + Sync
        + 'static
        + use<W>,
    >,
>
where
    W: Service<Uri> + Clone + Send + Sync + 'static,
    W::Response: Connection + Read + Write + Send + Unpin + 'static,
    W::Future: Send + 'static,
    W::Error: Into<BoxError>,
{
    let builder = builder(config, connector).context("cannot make a client")?;
    Ok(builder.with_layer(&Answers::new(metrics)))
}

/// The layers of kube's own client, which has no hook for a connector, over connections that `connector` makes, through
/// the proxy of the configuration.
///
/// # Errors
/// When the TLS settings of the configuration, or the credentials, cannot be used.
///
/// # Panics
/// As [`connect`].
pub fn builder<W>(
    config: &Config,
    connector: W,
) -> kube::Result<
    ClientBuilder<
        impl Service<
            Request<Body>,
            Response = Response<Incoming>,
            Error = BoxError,
            Future: Send + 'static,
        >
        + Clone
        + Send
        + Sync
        + 'static
        + use<W>,
    >,
>
where
    W: Service<Uri> + Clone + Send + Sync + 'static,
    W::Response: Connection + Read + Write + Send + Unpin + 'static,
    W::Future: Send + 'static,
    W::Error: Into<BoxError>,
{
    let connector = proxy::through(config.proxy_url.as_ref(), &config.cluster_url, connector);
    let tls = config.rustls_https_connector_with_connector(connector)?;
    let mut tls = TimeoutConnector::new(tls);
    tls.set_connect_timeout(config.connect_timeout);
    tls.set_read_timeout(config.read_timeout);
    tls.set_write_timeout(config.write_timeout);
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(tls);
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(stack, config.default_namespace.clone()))
}

/// An error and its causes in one line: the first line of each, without repetitions.
pub fn explain(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(text) = of_a_credential_plugin(error) {
        return text;
    }
    let mut line = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        // The library would append the whole answer in Rust's debug format, and so would its cause.
        let (text, deeper) = match cause.downcast_ref() {
            Some(kube::Error::Api(status)) if !status.message.is_empty() => {
                (status.message.clone(), None)
            }
            _ => (cause.to_string(), cause.source()),
        };
        let text = text.lines().next().unwrap_or_default();
        if line.is_empty() {
            text.clone_into(&mut line);
        } else if !line.contains(text) {
            line = format!("{line}: {text}");
        }
        next = deeper;
    }
    line
}

/// The first bytes of a text, at most `max_len`, cut between characters. A text that was cut ends with `...`.
pub fn head(text: &str, max_len: usize) -> String {
    if text.len() <= max_len {
        return text.to_owned();
    }
    let end = (0..=max_len.saturating_sub(3))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default();
    format!("{}...", &text[..end])
}

/// What to say if the error is that a credential plugin failed, else None: kube's message repeats the variables that
/// the plugin got and all that it printed, and so perhaps its secrets. [`explain`] uses it.
pub fn of_a_credential_plugin(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut chain = std::iter::successors(Some(error), |error| error.source());
    let what = match chain.find_map(|error| error.downcast_ref())? {
        AuthError::AuthExecRun { out, .. } => {
            format!("failed ({}): run it by hand to see why", out.status)
        }
        AuthError::AuthExecParse(_) => "printed no ExecCredential".to_owned(),
        _ => return None,
    };
    Some(format!(
        "the credential plugin of the kubeconfig (users[].user.exec) {what}"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn what_is_written_is_sent_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("https://{}/", listener.local_addr().unwrap());
        let connection = tcp().call(uri.parse().unwrap()).await.unwrap();
        assert!(connection.inner().nodelay().unwrap());
    }

    #[test]
    fn an_error_of_the_api_server_is_quoted_once() {
        let status = Status::failure("pods \"a\" is forbidden: no", "Forbidden").with_code(403);
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(explain(&error), "pods \"a\" is forbidden: no");
        let error = anyhow::Error::new(error).context("cannot start");
        assert_eq!(
            explain(error.as_ref()),
            "cannot start: pods \"a\" is forbidden: no"
        );
    }

    #[test]
    fn a_failure_is_reported_with_its_cause() {
        let refused = std::io::Error::other("connection refused\nat once");
        let error = kube::Error::Service(Box::new(refused));
        assert_eq!(explain(&error), "ServiceError: connection refused");
    }
}
