//! The proxy between a program and the API server, as client-go chooses it: the `proxy-url` of the kubeconfig, else
//! `HTTPS_PROXY`, but not for this machine and the hosts of `NO_PROXY` (`httpproxy.Config` of golang.org/x/net). kube
//! compares `NO_PROXY` with the proxy instead of the server. `HTTP_PROXY`, for servers without TLS, is not read.

use std::net::IpAddr;

use http::Uri;
use http::uri::Scheme;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use thiserror::Error;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};

/// What is configured is not the address of a proxy. Its text may have a password, so it is not repeated.
#[derive(Debug, Error)]
#[error(
    "the proxy of the kubeconfig (proxy-url) or the environment (HTTPS_PROXY) must be http://HOST:PORT or \
     socks5://HOST:PORT"
)]
pub struct Unusable;

/// A connection through the proxy failed: a cause of the client's errors.
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
        let mut given = [name.to_owned(), name.to_ascii_lowercase()].into_iter();
        given.find_map(|name| variable(&name).filter(|it| !it.is_empty()))
    };
    if let Some(own) = own {
        return parse(own).map(Some);
    }
    if server.scheme() != Some(&Scheme::HTTPS) || is_local(server) {
        return Ok(None);
    }
    match set("HTTPS_PROXY") {
        Some(given) if !is_excepted(server, &set("NO_PROXY").unwrap_or_default()) => {
            parse(&given).map(Some)
        }
        _ => Ok(None),
    }
}

/// A proxy with its scheme and port.
fn parse(given: &str) -> Result<Uri, Unusable> {
    let (scheme, rest) = given.split_once("://").unwrap_or(("http", given));
    let port = match scheme {
        "http" => 80,
        "socks5" => 1080,
        _ => return Err(Unusable),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    // A password may have an @, and the last one ends it.
    let (user, address) = match authority.rsplit_once('@') {
        Some((user, address)) => (format!("{}@", user.replace('@', "%40")), address),
        None => (String::new(), authority),
    };
    let port = match address.rsplit_once(':') {
        Some(_) if !address.ends_with(']') => String::new(),
        _ => format!(":{port}"),
    };
    let proxy: Uri = format!("{scheme}://{user}{address}{port}/")
        .parse()
        .map_err(|_| Unusable)?;
    match (proxy.host(), proxy.port_u16()) {
        (Some(host), Some(_)) if !host.is_empty() => Ok(proxy),
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
    let port = server.port_u16().unwrap_or(443).to_string();
    let here = list.split(',').filter_map(|entry| {
        let entry = entry.trim();
        let (host, of) = match entry.rsplit_once(':') {
            // Of an address of IPv6, only brackets part the port.
            Some((host, of)) if !host.contains(':') || host.ends_with(']') => (host, Some(of)),
            _ => (entry, None),
        };
        let host = host
            .strip_prefix('[')
            .map_or(host, |host| host.trim_end_matches(']'));
        let host = if host == "*" {
            host
        } else {
            host.trim_start_matches('*')
        };
        of.is_none_or(|of| of == port).then_some(host)
    });
    let here: Vec<_> = here.collect();
    // The proxy of this matcher is of no account: whether there is one for the server is. It knows neither ports nor `*` for an
    // address.
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
    let port = uri.port_u16().unwrap_or_default();
    let shown = format!("{}:{port}", uri.host().unwrap_or_default());
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
        let socks = socks.map_request(with_port);
        return BoxCloneSyncService::new(socks.map_err(move |error| failed(error.into())));
    }
    let tunnel = Tunnel::new(uri, connector);
    let tunnel = match proxy.basic_auth() {
        Some(credentials) => tunnel.with_auth(credentials.clone()),
        None => tunnel,
    };
    let tunnel = tunnel.map_request(with_port);
    BoxCloneSyncService::new(tunnel.map_err(move |error| failed(error.into())))
}

/// A server without TLS has the port 80, which the library takes for 443.
fn with_port(server: Uri) -> Uri {
    let host = server.host().filter(|_| server.port().is_none());
    match host.filter(|_| server.scheme() == Some(&Scheme::HTTP)) {
        Some(host) => format!("http://{host}:80").parse().unwrap_or(server),
        None => server,
    }
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
            ("10.0.0.5:,*:443", true),
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
        for (name, without, uses) in [
            (named, ".example.com", false),
            (named, "*.example.com", false),
            (named, "*.com:443", false),
            (named, "notexample.com", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", false),
            ("https://[fd00::1]:6443", "fd00::/8", false),
            ("https://[fd00::1]:6443", "[fd00::1]:443", true),
        ] {
            let expected = if uses { proxy } else { "none" };
            let environment = [all, ("NO_PROXY", ""), ("no_proxy", without)];
            assert_eq!(chosen(name, None, &environment), expected, "{without}");
        }
        // Without TLS, none is read.
        assert_eq!(
            chosen("http://10.0.0.5", None, &[all, ("HTTP_PROXY", "proxy:1")]),
            "none"
        );
        for (given, full) in [
            ("proxy", "http://proxy:80/"),
            ("socks5://proxy/", "socks5://proxy:1080/"),
            ("http://[fd00::2]", "http://[fd00::2]:80/"),
            ("http://u:p@ss@proxy:1", "http://u:p%40ss@proxy:1/"),
        ] {
            assert_eq!(chosen(server, Some(given), &[]), full);
        }
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
            "",
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
        let mut connector = through(Some(&proxy), &server, crate::tcp());
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
        let text = crate::explain(error.as_ref());
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
