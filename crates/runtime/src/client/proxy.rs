//! The proxy between a program and the API server, as client-go chooses it: the `proxy-url` of the kubeconfig, else
//! `HTTPS_PROXY` or `HTTP_PROXY`, but not for this machine and the hosts of `NO_PROXY` (`httpproxy.Config` of
//! golang.org/x/net). kube compares `NO_PROXY` with the proxy instead of the server.

use std::net::IpAddr;

use axum::http::Uri;
use axum::http::uri::Scheme;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use thiserror::Error;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};

/// What is configured is no proxy. Its text may have a password, so it is not repeated.
#[derive(Debug, Error)]
#[error(
    "the proxy of the kubeconfig (proxy-url) or the environment (HTTPS_PROXY, HTTP_PROXY) must be http://HOST:PORT or \
     socks5://HOST:PORT"
)]
pub struct Unusable;

/// No connection through the proxy.
#[derive(Debug, Error)]
#[error("cannot connect through the proxy {proxy}")]
pub struct Failed {
    /// Host and port.
    proxy: String,
    source: BoxError,
}

/// The proxy for calls to `server`, where `own` is that of the kubeconfig.
pub(super) fn choose(
    server: &Uri,
    own: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, Unusable> {
    let set = |name: &str| {
        let given = variable(name).or_else(|| variable(&name.to_ascii_lowercase()));
        given.filter(|it| !it.is_empty())
    };
    let given = match own {
        Some(own) => own.to_owned(),
        None if is_local(server) => return Ok(None),
        None => {
            let name = if server.scheme() == Some(&Scheme::HTTP) {
                "HTTP_PROXY"
            } else {
                "HTTPS_PROXY"
            };
            let Some(given) = set(name) else {
                return Ok(None);
            };
            if is_excepted(server, &set("NO_PROXY").unwrap_or_default()) {
                return Ok(None);
            }
            given
        }
    };
    let full = if given.contains("://") {
        given
    } else {
        format!("http://{given}")
    };
    let proxy: Uri = full.parse().map_err(|_| Unusable)?;
    match proxy.scheme_str() {
        Some("http" | "socks5") if proxy.port_u16().is_some() => Ok(Some(proxy)),
        _ => Err(Unusable),
    }
}

/// Whether the server is on this machine, by its name or address.
fn is_local(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether the server is in a list of `NO_PROXY`: names with all below them, addresses, networks, `*`; each perhaps with a
/// port.
fn is_excepted(server: &Uri, list: &str) -> bool {
    let port = server.port_u16().map(|port| port.to_string());
    let port = port.unwrap_or_else(|| "443".to_owned());
    let here = list.split(',').filter_map(|entry| {
        let entry = entry.trim();
        match entry.rsplit_once(':') {
            Some((host, of)) if !host.contains(':') => (of == port).then_some(host),
            _ => Some(entry),
        }
    });
    let here: Vec<_> = here.collect();
    // The proxy of this matcher is of no account: whether there is one for the server is. It has no ports, and `*` only for names.
    let matcher = Matcher::builder().all("http://proxy.invalid");
    here.contains(&"*")
        || matcher
            .no(here.join(","))
            .build()
            .intercept(server)
            .is_none()
}

/// Connections that `connector` makes, or those through a proxy that it makes to the proxy.
pub(super) fn through<W>(
    proxy: Option<&Uri>,
    server: &Uri,
    connector: W,
) -> BoxCloneSyncService<Uri, W::Response, BoxError>
where
    W: Service<Uri> + Clone + Send + Sync + 'static,
    W::Response: Read + Write + Send + Unpin + 'static,
    W::Future: Send + 'static,
    W::Error: Into<BoxError>,
{
    let connector = connector.map_err(Into::into);
    // It takes the credentials out of the URL.
    let proxy = proxy.and_then(|proxy| {
        let all = Matcher::builder().all(proxy.to_string()).build();
        all.intercept(server)
    });
    let Some(proxy) = proxy else {
        return BoxCloneSyncService::new(connector);
    };
    let uri = proxy.uri().clone();
    let shown = uri.authority().map(ToString::to_string).unwrap_or_default();
    let failed = move |source| -> BoxError {
        let proxy = shown.clone();
        Box::new(Failed { proxy, source })
    };
    if uri.scheme_str() == Some("socks5") {
        let socks = SocksV5::new(uri, connector);
        let socks = match proxy.raw_auth() {
            Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
            None => socks,
        };
        return BoxCloneSyncService::new(socks.map_err(move |error| failed(error.into())));
    }
    let tunnel = Tunnel::new(uri, connector);
    let tunnel = match proxy.basic_auth() {
        Some(credentials) => tunnel.with_auth(credentials.clone()),
        None => tunnel,
    };
    BoxCloneSyncService::new(tunnel.map_err(move |error| failed(error.into())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// What is chosen for a server by a kubeconfig and an environment.
    fn chosen(server: &str, own: Option<&str>, environment: &[(&str, &str)]) -> String {
        let variable = |name: &str| {
            let found = environment.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        match choose(&server.parse().unwrap(), own, variable) {
            Ok(Some(proxy)) => proxy.to_string(),
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_proxy_is_that_of_client_go() {
        let server = "https://10.0.0.5:6443";
        let all = ("HTTPS_PROXY", "http://u:p@proxy:3128");
        let proxy = "http://u:p@proxy:3128/";
        assert_eq!(chosen(server, None, &[]), "none");
        assert_eq!(chosen(server, None, &[("HTTP_PROXY", "proxy:1")]), "none");
        assert_eq!(chosen(server, None, &[all]), proxy);
        assert_eq!(
            chosen(server, None, &[("https_proxy", "proxy:1")]),
            "http://proxy:1/"
        );
        for (without, uses) in [
            ("10.0.0.0/8", false),
            ("*", false),
            ("example.com,, 10.0.0.5", false),
            ("10.0.0.5:6443", false),
            ("10.0.0.5:443", true),
            // Not the proxy: the server counts.
            ("proxy", true),
            ("10.1.0.0/16", true),
        ] {
            let expected = if uses { proxy } else { "none" };
            assert_eq!(
                chosen(server, None, &[all, ("NO_PROXY", without)]),
                expected,
                "{without}"
            );
        }
        let named = "https://api.example.com";
        assert_eq!(
            chosen(named, None, &[all, ("NO_PROXY", ".example.com")]),
            "none"
        );
        for local in [
            "https://127.0.0.1:1",
            "https://localhost:1",
            "https://[::1]:1",
        ] {
            assert_eq!(chosen(local, None, &[all]), "none");
        }
        // That of the kubeconfig goes before all of this.
        let own = Some("socks5://own:1080");
        assert_eq!(
            chosen(server, own, &[all, ("NO_PROXY", "*")]),
            "socks5://own:1080/"
        );
        assert_eq!(
            chosen("https://127.0.0.1:1", own, &[]),
            "socks5://own:1080/"
        );
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_not_repeated() {
        for proxy in [
            "proxy",
            "ftp://u:secret@h:1",
            "http://",
            "http://u:secret@h:port",
            "https://h:1",
        ] {
            let error = chosen("https://10.0.0.5", Some(proxy), &[]);
            assert!(
                error.starts_with("the proxy of the kubeconfig"),
                "{proxy}: {error}"
            );
        }
    }

    /// What a proxy reads of a client that connects through it, and the client's error, as the proxy refuses.
    async fn exchanged(scheme: &str) -> (Vec<u8>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = format!("{scheme}://user:pa%40ss@{address}")
            .parse()
            .unwrap();
        let server: Uri = "https://api.example.com:6443".parse().unwrap();
        let mut connector = through(Some(&proxy), &server, crate::client::tcp());
        let refused = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = vec![0; 1024];
            let length = stream.read(&mut read).await.unwrap();
            read.truncate(length);
            let _ = stream.write_all(b"HTTP/1.1 407 no\r\n\r\n").await;
            read
        };
        let connected = async { connector.ready().await.unwrap().call(server.clone()).await };
        let (read, error) = tokio::join!(refused, connected);
        let error = error.err().unwrap();
        assert!(error.is::<Failed>(), "{error}");
        let text = crate::client::explain(error.as_ref());
        assert!(
            text.starts_with(&format!("cannot connect through the proxy {address}: ")),
            "{text}"
        );
        assert!(!text.contains("ss@") && !text.contains("user"), "{text}");
        (read, text)
    }

    #[tokio::test]
    async fn a_proxy_gets_the_servers_name_and_its_own_credentials() {
        let (read, _) = exchanged("http").await;
        let read = String::from_utf8(read).unwrap();
        assert!(
            read.starts_with("CONNECT api.example.com:6443 HTTP/1.1\r\n"),
            "{read}"
        );
        // user:pa@ss
        assert!(
            read.contains("Proxy-Authorization: Basic dXNlcjpwYUBzcw==\r\n"),
            "{read}"
        );
        let (read, _) = exchanged("socks5").await;
        assert_eq!(read[..2], [5, 1], "{read:?}");
    }
}
